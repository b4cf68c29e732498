//! What the kind of a pool forbids. Objects of erasure-coded pools have no omap, and are only written whole
//! or appended to, in whole stripes, unless the pool allows overwrites.

use super::draft::Draft;
use super::{Stop, fail};
use nacre_base::errno::EOPNOTSUPP;
use nacre_proto::maps::{Pool, pool_flags};
use nacre_proto::types::Op;

/// What operations of a pool may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolRules {
    no_omap: bool,
    /// Writes begin at the object's end, which is a multiple of this.
    appends_of: Option<u64>,
}

impl PoolRules {
    /// Those of a pool as the map has it.
    pub fn of(pool: &Pool) -> PoolRules {
        let appends_only = pool.is_erasure() && !pool.has(pool_flags::EC_OVERWRITES);
        PoolRules {
            no_omap: pool.is_erasure(),
            appends_of: appends_only.then_some(u64::from(pool.stripe_width.max(1))),
        }
    }

    /// Fails, before anything is changed, if the operation is not to be.
    pub(super) fn check(self, draft: &Draft<'_>, op: &Op) -> Result<(), Stop> {
        match op {
            Op::OmapSetVals(_)
            | Op::OmapSetHeader(_)
            | Op::OmapClear
            | Op::OmapRmKeys(_)
            | Op::OmapRmKeyRange { .. } => self.check_omap(),
            Op::TmapPut { .. } | Op::TmapUp { .. } => self.check_omap(),
            Op::Write { extent, .. } => self.check_write(draft, extent.off),
            Op::Append { .. } => self.check_write(draft, draft.size),
            Op::Truncate { .. } => self.check_overwrite(),
            // `Zero` and `WriteSame` may have nothing to do, which is no overwrite.
            _ => Ok(()),
        }
    }
    pub(super) fn check_omap(self) -> Result<(), Stop> {
        if self.no_omap { fail(EOPNOTSUPP) } else { Ok(()) }
    }
    pub(super) fn check_overwrite(self) -> Result<(), Stop> {
        if self.appends_of.is_some() { fail(EOPNOTSUPP) } else { Ok(()) }
    }
    pub(super) fn check_write(self, draft: &Draft<'_>, offset: u64) -> Result<(), Stop> {
        let size = if draft.exists { draft.size } else { 0 };
        match self.appends_of {
            Some(unit) if offset != size || !offset.is_multiple_of(unit) => fail(EOPNOTSUPP),
            _ => Ok(()),
        }
    }
}
