//! Writes for which there is no room: refused, if the client wants to hear of it, or kept until there is.

use super::active::reply_to;
use super::{ClientOp, Ctx, Pg, Phase};
use crate::ops::ObjectChange;
use crate::room::{Verdict, bytes_for};
use nacre_base::Epoch;
use nacre_base::errno::{EDQUOT, ENOSPC};
use nacre_proto::maps::{OsdMap, Pool, map_flags, pool_flags};
use nacre_proto::messages::OsdOpReply;
use nacre_proto::types::{ObjectId, Op, op_flags};
use std::collections::{BTreeMap, VecDeque};

/// Writes that wait for room, in order for each object.
#[derive(Default)]
pub struct Unplaced {
    ops: BTreeMap<ObjectId, VecDeque<ClientOp>>,
    /// Some of them wait only for others that are on their way.
    soon: bool,
    /// By which word of other OSDs and of the map there was no room.
    judged: (u64, Epoch),
}

impl Unplaced {
    pub fn ops(&self) -> impl Iterator<Item = &ClientOp> {
        self.ops.values().flatten()
    }
    pub fn into_ops(self) -> impl Iterator<Item = ClientOp> {
        self.ops.into_values().flatten()
    }
    /// Whether the request has to wait behind one on the same object.
    pub fn is_before(&self, op: &ClientOp) -> bool {
        op.is_write() && !wants_to_know(op) && self.ops.contains_key(&op.object)
    }
    pub fn push(&mut self, op: ClientOp) {
        self.ops.entry(op.object.clone()).or_default().push_back(op);
    }
}

impl Pg {
    /// Gives the request back if its changes may be made.
    pub fn place(&mut self, ctx: &mut Ctx<'_>, op: ClientOp, change: &ObjectChange) -> Option<ClientOp> {
        let Phase::Active(active) = &mut self.phase else { return None };
        let writes = || op.ops.iter().filter(|op| op.is_write);
        // A snapshot may keep what it was, and still it takes no room for data.
        let deletes = writes().all(|op| op.op == Op::Delete);
        if deletes && change.others.is_empty() || change.txn.is_empty() {
            return Some(op);
        }
        let grows = !deletes && (change.objects > 0 || change.bytes > 0);
        let force = op.request.has_flag(op_flags::message::FULL_FORCE);
        let pool = ctx.map.pool(self.id.pool);
        let errno = pool.and_then(|pool| full(&ctx.map, pool)).filter(|_| grows && !force);
        let members = active.members.keys().copied().chain([self.me]);
        let verdict = ctx.budget.rooms.verdict(members, bytes_for(&change.txn), grows && !force);
        let errno = match (errno, verdict) {
            (None, Verdict::Yes) => return Some(op),
            (None, Verdict::No) if wants_to_know(&op) => ENOSPC,
            (None, _) => {
                if verdict == Verdict::Soon {
                    active.unplaced.soon = true;
                    ctx.budget.rooms.wait(self.id);
                }
                active.unplaced.judged = (ctx.budget.rooms.changes(), ctx.map.epoch);
                active.unplaced.push(op);
                return None;
            }
            // The client has that map soon, waits until there is room, and sends it again.
            (Some(_), _) if !wants_to_know(&op) => return None,
            (Some(errno), _) => errno,
        };
        let reply = OsdOpReply::to(&op.request, -errno, ctx.map.epoch);
        ctx.out.push(reply_to(&op, Box::new(reply)));
        None
    }

    /// There may be room now for what had none.
    pub fn place_again(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Active(active) = &mut self.phase else { return };
        let unplaced = &mut active.unplaced;
        let due = unplaced.soon || unplaced.judged != (ctx.budget.rooms.changes(), ctx.map.epoch);
        if unplaced.ops.is_empty() || !due {
            return;
        }
        for (object, ops) in std::mem::take(unplaced).ops {
            if let Phase::Active(active) = &mut self.phase {
                active.put_first(&object, ops);
            }
            self.pump(ctx, &object);
        }
    }
}

/// Whether the client rather hears that there is no room than wait.
fn wants_to_know(op: &ClientOp) -> bool {
    op.request.has_flag(op_flags::message::FULL_TRY)
}

/// Why the monitors want no writes to the pool that make something larger.
pub fn full(map: &OsdMap, pool: &Pool) -> Option<i32> {
    if pool.flags & pool_flags::FULL_QUOTA != 0 {
        Some(EDQUOT)
    } else if map.has(map_flags::FULL) || pool.flags & pool_flags::FULL != 0 {
        Some(ENOSPC)
    } else {
        None
    }
}
