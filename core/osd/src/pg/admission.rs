//! Writes for which there is no room: refused, if the client wants to hear of it, or kept until there is.

use super::active::reply_to;
use super::{ClientOp, Ctx, Pg, Phase};
use crate::ops::ObjectChange;
use crate::throttle::write_credit::{Growth, SMALL, Verdict, bytes_for};
use nacre_base::Epoch;
use nacre_base::errno::{EDQUOT, ENOSPC};
use nacre_proto::maps::{OsdMap, Pool, map_flags, pool_flags};
use nacre_proto::messages::OsdOpReply;
use nacre_proto::types::{ObjectId, Op, op_flags};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Writes that wait for room, in order for each object.
#[derive(Default)]
pub struct OpsWaitingForSpace {
    ops: BTreeMap<ObjectId, VecDeque<Box<ClientOp>>>,
    /// Objects to look at when writes that are on their way have arrived, by when the first of those that wait came:
    /// where that one is small, and where it is large.
    soon: [BTreeMap<u64, ObjectId>; 2],
    /// By which word of other OSDs and of the map there was no room.
    judged: (u64, Epoch),
}

impl OpsWaitingForSpace {
    pub fn ops(&self) -> impl Iterator<Item = &ClientOp> {
        self.ops.values().flatten().map(|op| &**op)
    }
    pub fn into_ops(self) -> impl Iterator<Item = Box<ClientOp>> {
        self.ops.into_values().flatten()
    }
    /// Whether the request has to wait behind one on the same object.
    pub fn is_before(&self, op: &ClientOp) -> bool {
        op.is_write() && !has_full_try(op) && self.ops.contains_key(&op.object)
    }
    pub fn push(&mut self, op: Box<ClientOp>) {
        self.ops.entry(op.object.clone()).or_default().push_back(op);
    }
}

impl Pg {
    /// Gives the request back if its changes may be made.
    pub fn place(
        &mut self,
        ctx: &mut Ctx<'_>,
        op: Box<ClientOp>,
        change: &ObjectChange,
    ) -> Option<Box<ClientOp>> {
        let Phase::Active(active) = &mut self.phase else { return None };
        let writes = || op.ops.iter().filter(|op| op.is_write);
        // A snapshot may keep what it was, and still it takes no room for data.
        let deletes = writes().all(|op| op.op == Op::Delete);
        let force = op.request.has_flag(op_flags::message::FULL_FORCE);
        let growth = if deletes && change.others.is_empty() || change.txn.is_empty() {
            Growth::Less
        } else if !deletes && (change.objects > 0 || change.bytes > 0) && !force {
            Growth::More
        } else {
            Growth::Same
        };
        let pool = ctx.map.pool(self.id.pool);
        let errno = pool.and_then(|pool| full(&ctx.map, pool)).filter(|_| growth == Growth::More);
        let members = active.members.keys().copied().chain([self.me]);
        let bytes = bytes_for(&change.txn);
        let verdict = ctx.budget.credits.verdict(members, bytes, growth);
        let errno = match (errno, verdict) {
            (None, Verdict::Yes) => return Some(op),
            (None, Verdict::No) if has_full_try(&op) => ENOSPC,
            (None, _) => {
                if verdict == Verdict::Soon {
                    let kind = usize::from(bytes > SMALL);
                    active.waiting_for_space.soon[kind].insert(op.seq, op.object.clone());
                    ctx.budget.credits.wait(self.id);
                }
                if active.waiting_for_space.ops.is_empty() {
                    active.waiting_for_space.judged = (ctx.budget.credits.changes(), ctx.map.epoch);
                }
                active.waiting_for_space.push(op);
                return None;
            }
            // The client has that map soon, waits until there is room, and sends it again.
            (Some(_), _) if !has_full_try(&op) => return None,
            (Some(errno), _) => errno,
        };
        let reply = OsdOpReply::to(&op.request, -errno, ctx.map.epoch);
        ctx.out.push(reply_to(&op, Box::new(reply)));
        None
    }

    /// There may be room now for what had none. As much goes on as there is room for, those first that came first; who
    /// waits behind one that has to go on waiting is not even looked at, but for small ones behind large ones.
    pub fn readmit_writes(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Active(active) = &mut self.phase else { return };
        let waiting_for_space = &mut active.waiting_for_space;
        let now = (ctx.budget.credits.changes(), ctx.map.epoch);
        if waiting_for_space.judged != now {
            waiting_for_space.judged = now;
            let [small, large] = &mut waiting_for_space.soon;
            let known: BTreeSet<u64> = large.keys().copied().collect();
            let all = waiting_for_space.ops.iter().map(|(object, ops)| (ops[0].seq, object.clone()));
            small.extend(all.filter(|(seq, _)| !known.contains(seq)));
        }
        for kind in 0..2 {
            loop {
                let Phase::Active(active) = &mut self.phase else { return };
                let Some((seq, object)) = active.waiting_for_space.soon[kind].pop_first() else { break };
                let Some(ops) = active.waiting_for_space.ops.remove(&object) else { continue };
                active.put_first(&object, ops);
                self.pump(ctx, &object);
                let Phase::Active(active) = &self.phase else { return };
                if active.waiting_for_space.soon[kind].contains_key(&seq) {
                    break;
                }
            }
        }
    }
}

/// Whether the client rather hears that there is no room than wait.
fn has_full_try(op: &ClientOp) -> bool {
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
