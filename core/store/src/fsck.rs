//! Offline checks of a store: what is in it, and whether all of it can be read.

use crate::disk::Disk;
use crate::index::omap::behind_reserved;
use crate::store::Store;
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::StoredId;

/// Read at a time.
const PIECE: u64 = 1 << 20;
/// Damaged blocks that are named one by one.
const NAMED_MAX: usize = 1000;

/// What reading everything found.
#[derive(Debug, Default)]
pub struct Readable {
    /// Bytes of data that were read.
    pub bytes: u64,
    /// Bytes that could not be read, in blocks.
    pub lost: u64,
    /// Whose, and why; no more than some thousand.
    pub errors: Vec<(StoredId, ReadError)>,
}

impl Readable {
    fn name(&mut self, error: (StoredId, ReadError)) {
        if self.errors.len() < NAMED_MAX {
            self.errors.push(error);
        }
    }
}

impl Store {
    /// Everything that is stored, in order. An error stands for objects that cannot be listed; others follow
    /// it.
    pub fn ids(&self) -> impl Iterator<Item = Result<StoredId, ReadError>> {
        let unlisted = |error| ReadError::Device(format!("objects that cannot be listed: {error}"));
        self.walk(behind_reserved()).map(move |id| id.map_err(unlisted))
    }

    /// Reads all data and verifies each checksum. `progress` is called with the number of bytes read.
    pub fn read_all(&self, disk: &(impl Disk + ?Sized), mut progress: impl FnMut(u64)) -> Readable {
        let mut found = Readable::default();
        for id in self.ids() {
            let id = match &id {
                Ok(id) => id,
                Err(error) => {
                    found.name((StoredId::meta("a page of metadata"), error.clone()));
                    continue;
                }
            };
            let extents = match self.extents(id, 0, u64::MAX) {
                Ok(extents) => extents,
                Err(error) => {
                    found.name((id.clone(), error));
                    continue;
                }
            };
            for (offset, len) in extents {
                for at in (offset..offset + len).step_by(PIECE as usize) {
                    let part = (offset + len - at).min(PIECE);
                    self.read_part(disk, id, at, part, &mut found);
                    progress(found.bytes + found.lost);
                }
            }
        }
        found
    }

    fn read_part(&self, disk: &(impl Disk + ?Sized), id: &StoredId, at: u64, len: u64, found: &mut Readable) {
        let read = |at, len| self.plan_read(id, &[(at, len)]).and_then(|plan| plan.run(disk));
        if read(at, len).is_ok() {
            found.bytes += len;
            return;
        }
        // Which of its blocks, one by one.
        let block_len = crate::BLOCK as u64;
        let mut from = at;
        while from < at + len {
            let to = (from / block_len + 1).saturating_mul(block_len).min(at + len);
            match read(from, to - from) {
                Ok(_) => found.bytes += to - from,
                Err(error) => {
                    found.lost += to - from;
                    found.name((id.clone(), error));
                }
            }
            from = to;
        }
    }
}
