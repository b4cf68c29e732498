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
//! A placement group gets the backend of its pool with its first map.

pub mod erasure;
mod replicated;
pub mod scrub_verdict;

use super::history::missing::Missing;
use erasure::parity_check::{Equation, locating_equations, parity_equations};
use erasure::{Geometry, Holder};
use nacre_base::{OsdId, ShardId};
use nacre_proto::messages::PgRecord;
use nacre_proto::messages::part::Part;
use nacre_proto::messages::peer::{PgInfo, PgMsg, RepOp};
use nacre_proto::messages::scrub::{BadObject, ScrubSum};
use nacre_proto::transaction::Transaction;
use nacre_proto::types::ObjectId;
use scrub_verdict::{Content, Copies, RepairPlan, Sums};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub enum Backend {
    /// Every member has a whole copy.
    #[default]
    Replicated,
    /// Each member has one shard.
    Erasure(Arc<Geometry>),
}

/// A write, divided among the members. Cheap to clone.
#[derive(Clone)]
pub struct WritePlan {
    /// The log entry, and what the primary stores: in a replicated pool what every member stores.
    write: Arc<RepOp>,
    /// What other members store, if that differs.
    of_members: Option<Arc<BTreeMap<OsdId, Arc<RepOp>>>>,
}

impl WritePlan {
    pub fn write(&self) -> &RepOp {
        &self.write
    }
    /// The message for another member; the same each time, as it may have to be sent again.
    pub fn message(&self, member: OsdId) -> PgMsg {
        let of_member = self.of_members.as_ref().and_then(|writes| writes.get(&member));
        PgMsg::RepOp(of_member.unwrap_or(&self.write).clone())
    }
    /// The primary's own part, with room for one more change.
    pub fn own_txn(&self) -> Transaction {
        self.write.txn.clone_with_capacity(1)
    }
}

/// Where the ranges of a read come from: (offset, length) extents.
pub enum ReadPlan {
    /// The primary's own store.
    Local(Vec<(u64, u64)>),
    /// Several members: extents of the whole object.
    Gather(Vec<(u64, u64)>),
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
    /// Whether each member has one shard.
    pub fn is_erasure(&self) -> bool {
        matches!(self, Backend::Erasure(_))
    }
    /// The code of an erasure-coded pool.
    pub fn geometry(&self) -> Option<&Arc<Geometry>> {
        match self {
            Backend::Replicated => None,
            Backend::Erasure(geometry) => Some(geometry),
        }
    }

    /// `shards`: of an erasure-coded pool what each shard does, and the shard of each other member.
    pub fn plan_write(&self, write: RepOp, shards: Option<(Vec<Transaction>, Shards)>) -> WritePlan {
        let Some((txns, held)) = shards else {
            return WritePlan { write: Arc::new(write), of_members: None };
        };
        let of =
            |shard: ShardId| erasure::index(shard).and_then(|at| txns.get(at).cloned()).unwrap_or_default();
        let of_members = held
            .others
            .iter()
            .map(|(osd, shard)| (*osd, Arc::new(RepOp { txn: of(*shard), ..write.clone() })));
        let of_members = Some(Arc::new(of_members.collect()));
        WritePlan { write: Arc::new(RepOp { txn: of(held.own), ..write }), of_members }
    }

    /// Nothing of these ranges is missing on the primary, in a replicated pool.
    pub fn plan_read(&self, extents: Vec<(u64, u64)>) -> ReadPlan {
        match self {
            Backend::Replicated => ReadPlan::Local(extents),
            Backend::Erasure(_) => ReadPlan::Gather(extents),
        }
    }

    /// The holder that can give most of a part, and what of it. Of an erasure-coded object any holder gives
    /// its metadata; its shards are computed (`decodable`).
    pub fn recovery_source<'a>(
        &self,
        holders: impl Iterator<Item = (OsdId, &'a Missing)>,
        object: &ObjectId,
        part: &Part,
        is_tried: impl Fn(OsdId) -> bool,
    ) -> Option<(OsdId, Part)> {
        match self {
            Backend::Replicated => replicated::recovery_source(holders, object, part, is_tried),
            Backend::Erasure(_) => replicated::recovery_source(holders, object, &Part::meta(), is_tried),
        }
    }

    /// What of a part of an object that one holder lacks the primary can give, or compute from what others
    /// have. `own`: what the primary lacks, `shard`: which one is lacking.
    pub fn pushable(
        &self,
        own: &Missing,
        holders: &[Holder<'_>],
        (object, part, shard): (&ObjectId, Part, ShardId),
    ) -> Part {
        match (self, erasure::index(shard)) {
            (Backend::Erasure(geometry), Some(shard)) if !own.lacks_meta(object) => {
                let data = erasure::decodable(&geometry.code, holders, object, &part.data, shard);
                Part { data, ..part }
            }
            (Backend::Replicated, _) if !own.lacks_meta(object) => part.without(&own.part(object)),
            _ => Part::default(),
        }
    }

    /// What of a part of an object none of these holders can give: of an erasure-coded pool, what cannot be
    /// computed from what they have.
    pub fn unavailable<'a>(
        &self,
        part: Part,
        object: &ObjectId,
        holders: impl Iterator<Item = (ShardId, &'a Missing)>,
        shard: ShardId,
    ) -> Part {
        let Backend::Erasure(geometry) = self else {
            return holders.fold(part, |part, (_, missing)| part.intersection(&missing.part(object)));
        };
        let holder = |(shard, missing)| Some(Holder { shard: erasure::index(shard)?, missing });
        let holders: Vec<Holder<'_>> = holders.filter_map(holder).collect();
        let meta = part.meta && holders.iter().all(|holder| holder.missing.lacks_meta(object));
        let shard = erasure::index(shard).unwrap_or_default();
        let mut data = part.data;
        data.subtract(&erasure::decodable(&geometry.code, &holders, object, &data, shard));
        Part { meta, data, ..Part::default() }
    }

    /// None if too few holders have the acknowledged writes.
    pub fn choose_history(&self, candidates: &Candidates<'_>) -> Option<HistoryChoice> {
        match self {
            Backend::Replicated => replicated::choose_history(candidates),
            Backend::Erasure(geometry) => erasure::choice::choose_history(geometry, candidates),
        }
    }

    /// Whether the metadata of all copies shows nothing wrong. It is the same for all shards of an object.
    pub fn is_consistent(&self, copies: &Copies) -> bool {
        scrub_verdict::is_consistent(copies)
    }

    /// What is wrong with an object, and what to replace; None if nothing is.
    pub fn scrub_verdict(
        &self,
        copies: &Copies,
        content: &Content,
        primary: OsdId,
        shard_of: &dyn Fn(OsdId) -> ShardId,
    ) -> Option<(BadObject, RepairPlan)> {
        let (bad, plan) = scrub_verdict::verdict(copies, content, primary)?;
        let Backend::Erasure(geometry) = self else { return Some((bad, plan)) };
        // What is replaced is computed from the shards that stay: there must be enough of them.
        let right = copies.keys().filter(|osd| !plan.stale.contains_key(osd));
        let right: Vec<usize> = right.filter_map(|osd| erasure::index(shard_of(*osd))).collect();
        if geometry.suffice(&right) {
            return Some((bad, plan));
        }
        let RepairPlan { shallow, deep, .. } = plan;
        Some((bad, RepairPlan { unrepairable: true, shallow, deep, ..RepairPlan::default() }))
    }

    /// What the shards of an object are to fulfil, if each is at one of these members. Empty in a replicated
    /// pool. `locate`: so that it shows which one is wrong.
    pub fn equations(&self, held: &[ShardId], locate: bool) -> Vec<Equation> {
        let Backend::Erasure(geometry) = self else { return Vec::new() };
        if (0..geometry.n()).any(|shard| !held.iter().any(|held| erasure::index(*held) == Some(shard))) {
            return Vec::new();
        }
        if locate { locating_equations(geometry) } else { parity_equations(geometry) }
    }

    /// Checksums as they are compared with each other. Those of different shards say nothing of each other:
    /// what counts is whether each can be read, by the checksums of its own store.
    pub fn comparable(&self, mut sums: Sums) -> Sums {
        if self.is_erasure() {
            for sum in sums.values_mut() {
                if let ScrubSum::Of { sum, .. } = sum {
                    *sum = 0;
                }
            }
        }
        sums
    }
}

/// Which shard the primary and the other members hold.
pub struct Shards {
    pub own: ShardId,
    pub others: Vec<(OsdId, ShardId)>,
}
