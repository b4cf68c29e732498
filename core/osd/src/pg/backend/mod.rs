//! The redundancy backend: how the members of a placement group keep its objects between them.
//!
//! The rest of `pg` orders requests, keeps the log and moves messages. It asks the backend what depends on
//! how a pool stores its data:
//!
//!   write plan           what each member stores of a write (`plan_write`)
//!   read plan            which ranges are read where (`plan_read`)
//!   recovery sources     which holder gives what is missing, and what no holder can give (`recovery_source`,
//!                        `can_push`, `unavailable`)
//!   choice of history    which log is authoritative after a change of members, and whether enough holders of it
//!                        are there (`choose_history`)
//!   scrub verdict        whether copies agree, and which one is right (`is_consistent`, `scrub_verdict`)
//!
//! Pools are replicated today. A backend is chosen per pool, so an erasure-coded one is a further variant.

mod replicated;
pub mod scrub_verdict;

use super::history::missing::Missing;
use nacre_base::OsdId;
use nacre_proto::messages::PgRecord;
use nacre_proto::messages::part::Part;
use nacre_proto::messages::peer::{PgInfo, PgMsg, RepOp};
use nacre_proto::messages::scrub::BadObject;
use nacre_proto::transaction::Transaction;
use nacre_proto::types::ObjectId;
use scrub_verdict::{Content, Copies, RepairPlan};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Every member has a whole copy.
    #[default]
    Replicated,
}

/// A write, divided among the members. Cheap to clone.
#[derive(Clone)]
pub struct WritePlan {
    /// The log entry, and what every member of a replicated pool stores.
    write: Arc<RepOp>,
}

impl WritePlan {
    pub fn write(&self) -> &RepOp {
        &self.write
    }
    /// The message for another member; the same each time, as it may have to be sent again.
    pub fn message(&self, _member: OsdId) -> PgMsg {
        PgMsg::RepOp(self.write.clone())
    }
    /// The primary's own part, with room for one more change.
    pub fn own_txn(&self) -> Transaction {
        self.write.txn.clone_with_capacity(1)
    }
}

/// Where the ranges of a read come from.
pub struct ReadPlan {
    /// (offset, length) in the primary's own store.
    pub local: Vec<(u64, u64)>,
}

/// What decides about the authoritative history.
pub struct Candidates<'a> {
    /// The summaries of all holders that replied and whose summary counts.
    pub infos: BTreeMap<OsdId, PgInfo>,
    /// The members that were activated last, if any were.
    pub record: Option<&'a PgRecord>,
    /// An operator declared all of those lost, so that any history may be taken.
    pub given_up: bool,
    /// This OSD, and the members to be.
    pub me: OsdId,
    pub acting: &'a [OsdId],
}

/// The authoritative history.
pub struct HistoryChoice {
    pub source: OsdId,
    pub info: PgInfo,
    /// Holders that have every acknowledged write.
    pub survivors: Vec<OsdId>,
}

impl Backend {
    pub fn plan_write(self, write: RepOp) -> WritePlan {
        match self {
            Backend::Replicated => WritePlan { write: Arc::new(write) },
        }
    }

    /// Nothing of these ranges is missing on the primary.
    pub fn plan_read(self, extents: Vec<(u64, u64)>) -> ReadPlan {
        match self {
            Backend::Replicated => ReadPlan { local: extents },
        }
    }

    /// The holder that can give most of a part, and what of it.
    pub fn recovery_source<'a>(
        self,
        holders: impl Iterator<Item = (OsdId, &'a Missing)>,
        object: &ObjectId,
        part: &Part,
        is_tried: impl Fn(OsdId) -> bool,
    ) -> Option<(OsdId, Part)> {
        match self {
            Backend::Replicated => replicated::recovery_source(holders, object, part, is_tried),
        }
    }

    /// Whether a holder with the missing set `own` can give some of what one with `theirs` lacks of an
    /// object.
    pub fn can_push(self, own: &Missing, theirs: &Missing, object: &ObjectId) -> bool {
        match self {
            Backend::Replicated => {
                !own.lacks_meta(object) && !theirs.part(object).without(&own.part(object)).is_empty()
            }
        }
    }

    /// What of a part of an object none of these holders can give.
    pub fn unavailable<'a>(
        self,
        part: Part,
        object: &ObjectId,
        holders: impl Iterator<Item = &'a Missing>,
    ) -> Part {
        match self {
            Backend::Replicated => {
                holders.fold(part, |part, missing| part.intersection(&missing.part(object)))
            }
        }
    }

    /// None if too few holders have the acknowledged writes.
    pub fn choose_history(self, candidates: &Candidates<'_>) -> Option<HistoryChoice> {
        match self {
            Backend::Replicated => replicated::choose_history(candidates),
        }
    }

    /// Whether the metadata of all copies shows nothing wrong.
    pub fn is_consistent(self, copies: &Copies) -> bool {
        match self {
            Backend::Replicated => scrub_verdict::is_consistent(copies),
        }
    }

    /// What is wrong with an object, and what to replace; None if nothing is.
    pub fn scrub_verdict(
        self,
        copies: &Copies,
        content: &Content,
        primary: OsdId,
    ) -> Option<(BadObject, RepairPlan)> {
        match self {
            Backend::Replicated => scrub_verdict::verdict(copies, content, primary),
        }
    }
}
