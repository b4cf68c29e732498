//! The blocks that a read takes, on their way from the disk to the read's plan.

use nacre_base::Buffer;
use nacre_store::DiskError;

/// For each run of neighbouring blocks where it begins, and room for it.
pub(crate) struct Parts(pub Vec<(u64, Buffer)>);

impl Parts {
    /// For a plan's runs.
    pub fn new(runs: Vec<(u64, usize)>) -> Parts {
        Parts(runs.into_iter().map(|(offset, len)| (offset, Buffer::new(len))).collect())
    }

    pub fn lens(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|(_, bytes)| bytes.as_ref().len())
    }

    /// Gives a plan, which these were made for, what they hold: as a disk that never fails.
    pub fn read(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), DiskError> {
        for (offset, into) in reads {
            let (from, to) = (*offset, *offset + into.len() as u64);
            let holds = |part: &&(u64, Buffer)| part.0 <= from && to <= part.0 + part.1.as_ref().len() as u64;
            let (start, bytes) =
                self.0.iter().find(holds).expect("a plan asks for what it said that it needs");
            into.copy_from_slice(&bytes.as_ref()[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }
}
