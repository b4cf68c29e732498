//! When a client gets a backoff for a PG that does not serve, and when the backoff ends.
//! (`docs/decisions/0046-backoff.md`)
//!
//! Peering usually takes less time than sending backoffs would, so a PG holds requests at first. But held
//! requests take memory that clients of other PGs need, and a PG that lacks members may wait for hours.

use super::{Osd, TICK_EVERY};
use crate::pg::Pg;
use nacre_base::{Now, PgId, SpgId, Time};
use nacre_machine::{ConnId, Effect};
use nacre_proto::messages::{BackoffOp, OsdBackoff, RADOS_BACKOFF};
use nacre_proto::types::EntityType;
use std::time::Duration;

/// A PG that has not served for this time holds no requests.
const PATIENCE: Duration = Duration::from_secs(2);

impl Osd {
    /// Whether a new request on a PG that has not served since then gets a backoff.
    pub(super) fn is_to_be_kept(&self, now: Now, conn: ConnId, since: Time) -> bool {
        let is_much = self.budget.waiting.held() >= self.budget.waiting.most();
        let wanted = is_much || now.mono.since(since) >= PATIENCE || self.options.backs_off_at_once();
        wanted && self.may_block(conn)
    }
    fn may_block(&self, conn: ConnId) -> bool {
        let knows_how = self.links.sessions.get(&conn).is_some_and(|session| {
            // OSDs read for `copy-from`, and do not support backoffs.
            session.peer.kind != EntityType::Osd && session.peer.features & RADOS_BACKOFF == RADOS_BACKOFF
        });
        knows_how && self.backoffs.has_capacity()
    }

    /// Drops the held requests of the session for the PG: the client resends them after the unblock.
    pub(super) fn block(&mut self, conn: ConnId, spg: SpgId, out: &mut Vec<Effect>) {
        let at = self.shard_of(spg.pg);
        let Some(pg) = self.shards[at].pgs.get_mut(&spg.pg) else { return };
        pg.drop_waiting(conn, Some(spg));
        let range = *pg.range();
        self.waiting_for_map
            .ops
            .retain(|(from, _, op)| *from != conn || op.spg != spg || !range.contains_hash(op.hash));
        let message = self.backoffs.begin(conn, spg, range, self.maps.epoch());
        self.counted.backoffs.blocks.inc();
        out.push(Effect::Send { conn, tid: 0, message: message.into() });
    }

    /// A few times a second: replaces requests that were held for long by backoffs; earlier when they take
    /// much memory.
    pub(super) fn look_at_held(&mut self, now: Now, out: &mut Vec<Effect>) {
        let is_much = self.budget.waiting.held() >= self.budget.waiting.most();
        let patience = if is_much { TICK_EVERY } else { PATIENCE };
        let give_back: Vec<(ConnId, SpgId)> = self
            .pgs()
            .filter(|pg| pg.waits_since().is_some_and(|since| now.mono.since(since) >= patience))
            .flat_map(Pg::sessions_waiting)
            .collect();
        for (conn, spg) in give_back {
            if self.may_block(conn) {
                self.block(conn, spg, out);
            }
        }
    }

    pub(super) fn on_backoff(&mut self, conn: ConnId, message: &OsdBackoff) {
        if message.op == BackoffOp::AckBlock {
            self.backoffs.acknowledged(conn, message.spg, message.id);
        }
    }

    /// Ends backoffs of PGs that serve now, and of PGs that are no longer ours or were split or merged:
    /// clients find the new primary by their maps.
    pub(super) fn end_backoffs(&mut self, out: &mut Vec<Effect>) {
        let pgs: Vec<PgId> = self.backoffs.pgs().collect();
        for id in pgs {
            let waits = self.pg(id).filter(|pg| pg.waits_since().is_some()).map(|pg| *pg.range());
            for (conn, message) in self.backoffs.end(id, waits, self.maps.epoch()) {
                out.push(Effect::Send { conn, tid: 0, message: message.into() });
            }
        }
    }
}
