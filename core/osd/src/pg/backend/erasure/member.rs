//! A member of an erasure-coded placement group: which code the pool has, which shard the member holds, and
//! when it need not be able to undo writes any more.

use super::Geometry;
use crate::pg::backend::Backend;
use crate::pg::record::Record;
use crate::pg::replica::Stray;
use crate::pg::{ClientOp, Ctx, Pg, PgEffect, Phase};
use nacre_base::{Epoch, OsdId, ShardId, SpgId, Version};
use nacre_machine::Level;
use nacre_proto::messages::peer::{PgInfo, PgMsg};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use std::sync::Arc;

impl Pg {
    /// Which shard of each object is here.
    pub fn shard(&self) -> ShardId {
        self.history.info.shard
    }

    /// An erasure-coded pool has a code, and a member of it a shard.
    pub fn take_backend(&mut self, ctx: &mut Ctx<'_>) {
        let pool = ctx.map.pool(self.id.pool).filter(|pool| pool.is_erasure());
        if let Some(pool) = pool
            && !self.backend.is_erasure()
        {
            match Geometry::of(&ctx.map, pool) {
                Ok(geometry) => self.backend = Backend::Erasure(Arc::new(geometry)),
                Err(why) => ctx.log(Level::Error, format!("pg {}: {why}", self.id)),
            }
        }
        self.history.undo.told_to = Version::ZERO;
        let shard = self.interval.shard_of(self.me);
        // Before it took part in an interval nothing is here of any shard.
        if shard.is_some() && self.history.info.interval_started == Epoch(0) {
            self.history.info.shard = shard;
        }
    }
    /// What is here is of another shard than the one that this OSD is to hold.
    pub fn holds_another_shard(&self) -> bool {
        let shard = self.interval.shard_of(self.me);
        shard.is_some() && self.shard().is_some() && shard != self.shard()
    }

    /// Entries up to this one are on all members: nothing of them is undone any more.
    pub fn on_committed(&mut self, ctx: &mut Ctx<'_>, from: OsdId, to: Version) {
        let is_ours = self.interval.primary == Some(from) && self.is_replica_with_log();
        if is_ours && to <= self.history.info.last_update {
            self.drop_undo(ctx, to);
        }
    }
    /// The same, on any member.
    pub fn drop_undo(&mut self, ctx: &mut Ctx<'_>, to: Version) {
        if self.history.undo.is_dropped(to) {
            return;
        }
        let mut txn = Transaction::new();
        self.history.info.committed_to = self.history.info.committed_to.max(to);
        self.history.drop_undo(ctx.store, to, &mut txn);
        self.history.record_info(&mut txn);
        self.store(ctx, txn);
    }

    /// While no writes come that would say it: what is undone no more.
    pub fn tell_committed(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Active(active) = &self.phase else { return };
        let to = self.history.info.last_update;
        let is_idle = active.ops.is_drained() && active.ops.is_all_committed();
        if !self.backend.is_erasure() || !is_idle || to <= self.history.undo.told_to {
            return;
        }
        self.history.undo.told_to = to;
        let members = active.members.keys();
        ctx.out.extend(members.map(|osd| PgEffect::ask(*osd, PgMsg::Committed { to })));
        self.drop_undo(ctx, to);
    }

    /// Deletes a shard that is not to be here any more. A member begins anew afterwards, with its own one.
    pub fn delete_other_shard(&mut self, ctx: &mut Ctx<'_>) {
        let has = self.shard().0;
        ctx.log(Level::Info, format!("pg {}: deletes shard {has}, which other OSDs hold", self.id));
        // Clients do not send them again.
        let ops: Vec<Box<ClientOp>> = self.waiting_for_active.take().collect();
        self.start_deleting(ctx);
        self.waiting_for_active.refill(ops, &ctx.budget.waiting);
    }
    /// The other shard is deleted.
    pub fn begin_with_own_shard(&mut self, ctx: &mut Ctx<'_>) {
        let (pg_num, shard) = (self.history.info.pg_num, self.interval.shard_of(self.me));
        let record = Record::new(PgInfo { pg_num, shard, ..PgInfo::default() });
        let mut txn = Transaction::new();
        txn.push(StoredId::Pg(SpgId::replicated(self.id)), Change::Remove);
        record.store(self.id, &mut txn);
        self.history.replace(record);
        self.store(ctx, txn);
        let (interval, serving) = (self.interval.clone(), true);
        let ops: Vec<Box<ClientOp>> = self.waiting_for_active.take().collect();
        self.phase = Phase::Stray(Stray::default());
        self.start_interval(ctx, interval, serving);
        if self.interval.primary == Some(self.me) {
            self.waiting_for_active.refill(ops, &ctx.budget.waiting);
        }
    }
}
