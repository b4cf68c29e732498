//! What a monitor does with a disk whose contents it cannot use: it stops, and says why.
//!
//! The store has checksums of its own, so damage is rare. A monitor that went on without an entry, or with
//! half of a checkpoint, would decide on another state than the other members.

use super::Mon;
use crate::services::upgrade::refusal;
use crate::state::{Batch, State};
use nacre_machine::{Effect, ReadError};
use nacre_proto::maps::{Incremental, OsdMap};
use nacre_wire::{DecodeError, from_slice};

/// Why a monitor cannot use what its disk holds.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] ReadError),
    #[error("the Raft log is damaged")]
    Log,
    #[error("the checkpoint at entry {index} of the Raft log is damaged: {error}")]
    Checkpoint { index: u64, error: DecodeError },
    #[error("entry {index} of the Raft log is damaged: {error}")]
    Entry { index: u64, error: DecodeError },
}

impl Damage {
    /// Ends the monitor with this name.
    pub fn fail(&self, name: &str) -> Effect {
        let reason = format!(
            "mon.{name} cannot use its store: {self}. Remove this monitor (`ceph mon rm {name}`) and add it \
             anew (`nacre mon format --id {name}`): see \"A monitor stops because its store is damaged\" in \
             docs/operating.md"
        );
        Effect::Fail { reason }
    }
}

/// The state that a checkpoint holds.
pub(crate) fn decode_checkpoint(index: u64, bytes: &[u8]) -> Result<State, Damage> {
    from_slice(bytes).map_err(|error| Damage::Checkpoint { index, error })
}

/// Whether an entry holds a batch, and maps that can be decoded. These are decoded again when the batch is
/// applied, too late to apply nothing of it: so whatever enters the log, from a peer or from the disk, is
/// checked by this first.
pub(crate) fn check_entry(bytes: &[u8]) -> Result<(), DecodeError> {
    let batch: Batch = from_slice(bytes)?;
    if let Some(genesis) = &batch.genesis {
        from_slice::<OsdMap>(&genesis.osdmap)?;
    }
    if let Some(incremental) = &batch.osdmap.incremental {
        from_slice::<Incremental>(incremental)?;
    }
    Ok(())
}

/// The batch that a committed entry holds.
pub(super) fn decode_entry(index: u64, bytes: &[u8]) -> Result<Batch, Damage> {
    from_slice(bytes).map_err(|error| Damage::Entry { index, error })
}

impl Mon {
    /// Another version of Nacre raised the cluster's format, and this one cannot use it.
    pub(super) fn stop_if_too_old(&self, out: &mut Vec<Effect>) {
        let (format, formats) = (self.format(), self.config.release.formats);
        if format > 0 && !formats.contains(format) {
            let name = format!("mon.{}", self.config.name);
            out.push(Effect::Fail { reason: refusal(&name, formats, format) });
        }
    }
}

#[cfg(test)]
impl Mon {
    /// Proposes what is no batch.
    pub(crate) fn propose_bytes(&mut self, bytes: &[u8]) {
        self.consensus.raft().propose(bytes.to_vec()).expect("it leads");
    }
}
