//! Write admission: writes for which there is no space are refused, if the client asks for that (FULL_TRY),
//! or wait until there is.

use super::{ClientOps, Scope, reply_to};
use crate::ops::ObjectChange;
use crate::pg::{ClientOp, Ctx};
use crate::throttle::write_credit::{Growth, SMALL, Verdict, bytes_for};
use nacre_base::Epoch;
use nacre_base::errno::{EDQUOT, ENOSPC};
use nacre_proto::maps::{OsdMap, Pool, map_flags, pool_flags};
use nacre_proto::messages::OsdOpReply;
use nacre_proto::transaction::Change;
use nacre_proto::types::{ObjectId, Op, op_flags};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most that a new object of keys alone may take on a full disk.
const KEYS_MAX: u64 = 16 << 10;

/// Writes that wait for space, in order for each object.
#[derive(Default)]
pub struct OpsWaitingForSpace {
    ops: BTreeMap<ObjectId, VecDeque<Box<ClientOp>>>,
    /// Objects to try again when writes in flight are done, by the arrival of their first waiting write:
    /// where that one is small, and where it is large.
    soon: [BTreeMap<u64, ObjectId>; 2],
    /// The state of other OSDs and of the map by which there was no space.
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

impl ClientOps {
    /// Gives the request back if it is admitted.
    pub(super) fn admit_write(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        op: Box<ClientOp>,
        change: &ObjectChange,
    ) -> Option<Box<ClientOp>> {
        let writes = || op.ops.iter().filter(|op| op.is_write);
        // A snapshot may keep what it was, and still it takes no space for data.
        let deletes = writes().all(|op| op.op == Op::Delete);
        let force = op.request.has_flag(op_flags::message::FULL_FORCE);
        let growth = if deletes && change.others.is_empty() || change.txn.is_empty() {
            Growth::Less
        } else if !deletes
            && (change.objects > 0 || change.bytes > 0)
            && !force
            && !helps_removal(&op, change)
        {
            Growth::More
        } else {
            Growth::Same
        };
        let pool = ctx.map.pool(pg.history.pg.pool);
        // A limit of objects counts those, too.
        let adds_object =
            !force && !deletes && change.objects > 0 && pool.is_some_and(|pool| pool.quota_max_objects > 0);
        let errno = pool.and_then(|pool| full(&ctx.map, pool));
        let errno = errno.filter(|errno| growth == Growth::More || *errno == EDQUOT && adds_object);
        let members = pg.members.keys().copied().chain([pg.history.me]);
        let bytes = bytes_for(&change.txn);
        let verdict = ctx.budget.credits.verdict(members, bytes, growth);
        let errno = match (errno, verdict) {
            (None, Verdict::Yes) => return Some(op),
            (None, Verdict::No) if has_full_try(&op) => ENOSPC,
            (None, _) => {
                if verdict == Verdict::Soon {
                    let kind = usize::from(bytes > SMALL);
                    self.waiting_for_space.soon[kind].insert(op.seq, op.object.clone());
                    ctx.budget.credits.wait(pg.history.pg);
                }
                if self.waiting_for_space.ops.is_empty() {
                    self.waiting_for_space.judged = (ctx.budget.credits.changes(), ctx.map.epoch);
                }
                self.waiting_for_space.push(op);
                return None;
            }
            // The client has that map soon, waits until there is space, and sends it again.
            (Some(_), _) if !has_full_try(&op) => return None,
            (Some(errno), _) => errno,
        };
        let reply = OsdOpReply::to(&op.request, -errno, ctx.map.epoch);
        ctx.out.push(reply_to(&op, Box::new(reply)));
        None
    }

    /// There may be space now. Writes continue in the order of their arrival while there is; those behind one
    /// that has to go on waiting are not tried, but for small ones behind large ones.
    pub(super) fn readmit_writes(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        let waiting_for_space = &mut self.waiting_for_space;
        let now = (ctx.budget.credits.changes(), ctx.map.epoch);
        if waiting_for_space.judged != now {
            waiting_for_space.judged = now;
            let [small, large] = &mut waiting_for_space.soon;
            let known: BTreeSet<u64> = large.keys().copied().collect();
            let all = waiting_for_space.ops.iter().map(|(object, ops)| (ops[0].seq, object.clone()));
            small.extend(all.filter(|(seq, _)| !known.contains(seq)));
        }
        for kind in 0..2 {
            while let Some((seq, object)) = self.waiting_for_space.soon[kind].pop_first() {
                let Some(ops) = self.waiting_for_space.ops.remove(&object) else { continue };
                self.put_first(&object, ops);
                self.pump(pg, ctx, &object);
                if self.waiting_for_space.soon[kind].contains_key(&seq) {
                    break;
                }
            }
        }
    }
}

/// Whether a write creates a small object of keys alone, without data, for a client that does not wait for
/// space. librbd does that to remove an image: it first moves it into the pool's trash, `rbd_trash`, which
/// may not exist yet. Keys of existing objects are admitted as well.
fn helps_removal(op: &ClientOp, change: &ObjectChange) -> bool {
    let sets_keys = change.txn.changes.iter().any(|(_, change)| matches!(change, Change::OmapSet(_)));
    has_full_try(op) && sets_keys && change.bytes <= 0 && bytes_for(&change.txn) <= KEYS_MAX
}

/// Whether the client wants an error rather than to wait for space.
fn has_full_try(op: &ClientOp) -> bool {
    op.request.has_flag(op_flags::message::FULL_TRY)
}

/// The errno for writes that make something larger, if the map forbids them in the pool.
pub fn full(map: &OsdMap, pool: &Pool) -> Option<i32> {
    if pool.flags & pool_flags::FULL_QUOTA != 0 {
        Some(EDQUOT)
    } else if map.has(map_flags::FULL) || pool.flags & pool_flags::FULL != 0 {
        Some(ENOSPC)
    } else {
        None
    }
}
