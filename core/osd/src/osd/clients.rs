//! A client's request in flight to its PG: what is refused, what waits for a map, what is a resend.

use super::{OURSELVES, Osd, WAITING_OPS_MAX};
use crate::op_tracker::Steps;
use crate::ops::{FlaggedOp, WRITE_SIZE_MAX, check_request, hash_of};
use crate::pg::admission::full;
use crate::pg::{ClientOp, PgEvent};
use crate::snap_set::SnapContext;
use nacre_base::errno::{EAGAIN, EINVAL, EIO, EMSGSIZE, ENOENT, ENXIO, EPERM, ESHUTDOWN};
use nacre_base::{Epoch, Now, SnapId};
use nacre_machine::{Closed, ConnId, Effect, StoreView};
use nacre_proto::maps::pool_flags;
use nacre_proto::messages::{OsdOp, OsdOpReply};
use nacre_proto::types::{EntityAddr, EntityName, EntityType, op_flags};
use std::sync::Arc;

impl Osd {
    pub(super) fn on_op(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        conn: ConnId,
        tid: u64,
        op: Box<OsdOp>,
        out: &mut Vec<Effect>,
    ) {
        if self.backoffs.covers(conn, op.spg, op.hash) {
            return; // the client sends it again
        }
        // Copies are read for OSDs, of which one may be ourselves.
        let (client, sender_addr, is_blocked, for_copy) = match self.links.sessions.get(&conn) {
            Some(session) => {
                let peer = &session.peer;
                let addr = peer.addrs.0.first().copied().unwrap_or(peer.observed);
                let is_blocked = self.map().is_some_and(|map| map.is_blocklisted(&peer.addrs));
                (peer.num, addr, is_blocked, peer.kind == EntityType::Osd)
            }
            None if conn == OURSELVES => (self.me().0.into(), EntityAddr::default(), false, true),
            None => return,
        };
        let epoch = self.maps.epoch();
        if op.epoch > epoch || self.map().is_none() {
            self.counted.osd.messages_delayed_for_map.inc();
            if self.waiting_for_map.ops.len() < WAITING_OPS_MAX {
                self.waiting_for_map.ops.push_back((conn, tid, op));
            } else if !for_copy {
                // It sends them again, all of them, over its next session.
                out.push(Effect::Hangup { conn });
                self.on_closed(now, store, conn, &Closed::Reset, out);
            }
            return;
        }
        let Some(map) = self.maps.current.clone() else { return };
        if !for_copy {
            self.share_map(conn, Some(op.epoch), out);
        }
        let refuse = |errno: i32, out: &mut Vec<Effect>| {
            let reply = Box::new(OsdOpReply::to(&op, -errno, epoch));
            out.push(Effect::Send { conn, tid, message: reply.into() });
        };
        if is_blocked {
            return refuse(ESHUTDOWN, out);
        }
        let Some(pool) = map.pool(op.spg.pg.pool) else {
            return refuse(ENOENT, out);
        };
        let id = op.spg.pg;
        let primary =
            self.presence.serving && self.pg(id).is_some_and(|pg| pg.interval().primary == Some(self.me()));
        if !primary {
            // Clients that may read from replicas are sent to the primary: only the primary has a lease.
            let anywhere = op_flags::message::BALANCE_READS | op_flags::message::LOCALIZE_READS;
            if op.has_flag(anywhere) && op.epoch >= epoch {
                return refuse(EAGAIN, out);
            }
            // A client with our map should have known better; one with an older map learns.
            if op.epoch >= epoch && map.pg_exists(id) && self.presence.serving {
                refuse(ENXIO, out);
            }
            return;
        }
        let (since, waits_since) =
            self.pg(id).map_or((Epoch(0), None), |pg| (pg.last_primary_change(), pg.waits_since()));
        if op.epoch < since || op.epoch < pool.last_force_op_resend {
            return; // the client sends it again when it has that map
        }
        if op.has_flag(op_flags::message::PARALLELEXEC) {
            return refuse(EINVAL, out);
        }
        let mut ops = Vec::with_capacity(op.ops.len());
        for item in &op.ops {
            let Ok(parsed) = item.parse() else { return refuse(EINVAL, out) };
            ops.push(FlaggedOp::new(parsed, item.op.flags, item.op.code.is_write()));
        }
        let object = op.object();
        let writes = ops.iter().any(|op| op.is_write);
        let lists = ops.iter().any(|op| op.op.is_about_group());
        if let Err(error) = check_request(&object, &ops) {
            return refuse(-error, out);
        }
        // Clients since Quincy see the flag in the map, and do not send anything.
        if pool.has(pool_flags::EIO) {
            return refuse(EIO, out);
        }
        let session = self.links.sessions.get(&conn);
        if session.is_some_and(|session| !session.access.allows(&op, &ops, &map, (id.pool, pool))) {
            return refuse(EPERM, out);
        }
        if !lists && op.hash != hash_of(&op.locator, &op.name) {
            return refuse(EINVAL, out);
        }
        if writes {
            // Snapshots do not change, and a write knows which there are.
            let context = SnapContext { seq: op.snap_seq, snaps: op.snaps.clone() };
            if object.snap != SnapId::HEAD || !context.is_valid() {
                return refuse(EINVAL, out);
            }
            if op.ops.iter().map(|item| item.data.len()).sum::<usize>() > WRITE_SIZE_MAX {
                return refuse(EMSGSIZE, out);
            }
            // The client waits until the pool is no longer full, and resends it then.
            let insists = op_flags::message::FULL_TRY | op_flags::message::FULL_FORCE;
            if full(&map, pool).is_some() && !op.has_flag(insists) {
                return;
            }
        }
        if waits_since.is_some_and(|since| self.is_to_be_kept(now, conn, since)) {
            return self.block(conn, op.spg, out);
        }
        self.numbers.op += 1;
        self.ops_served += 1;
        let reqid = op.request_id(EntityName::client(client as u64), tid);
        let (object, snap) = (object.to_head(), object.snap);
        let seq = self.numbers.op;
        let request: Arc<OsdOp> = Arc::from(op);
        let sender = (EntityName::client(client as u64), sender_addr);
        let steps = Steps::new(now.mono);
        let op = ClientOp { seq, conn, tid, sender, reqid, object, snap, ops, request, steps, for_copy };
        self.tell_pg(now, store, id, PgEvent::Op(Box::new(op)), out);
    }
}
