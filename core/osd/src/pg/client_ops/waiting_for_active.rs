//! Requests that wait until their placement group is active.

use crate::pg::ClientOp;
use crate::throttle::memory::{Held, Memory};
use nacre_base::{SpgId, Time};
use nacre_machine::ConnId;
use std::collections::VecDeque;

/// Memory for a request beside its data.
const REQUEST: u64 = 2 << 10;

#[derive(Default)]
pub struct WaitingForActive {
    /// In arrival order, each with the memory that it takes.
    ops: VecDeque<(Box<ClientOp>, Held)>,
    /// Since when this OSD is the primary without serving.
    since: Option<Time>,
}

impl WaitingForActive {
    /// Requests that an interval that ended left without a reply.
    pub fn refill(&mut self, ops: impl IntoIterator<Item = Box<ClientOp>>, memory: &Memory) {
        self.ops.clear();
        ops.into_iter().for_each(|op| self.push(op, memory));
    }
    pub fn push(&mut self, op: Box<ClientOp>, memory: &Memory) {
        let data: usize = op.request.ops.iter().map(|item| item.data.len()).sum();
        let bytes = memory.hold(REQUEST + data as u64);
        self.ops.push_back((op, bytes));
    }
    pub fn take(&mut self) -> impl Iterator<Item = Box<ClientOp>> + use<> {
        std::mem::take(&mut self.ops).into_iter().map(|(op, _)| op)
    }
    pub fn clear(&mut self) {
        self.ops.clear();
    }
    /// The requests of a session that ended, or those to one shard: the client sends again those that it
    /// still wants.
    pub fn drop_session(&mut self, conn: ConnId, spg: Option<SpgId>) {
        self.ops.retain(|(op, _)| op.conn != conn || spg.is_some_and(|spg| op.request.spg != spg));
    }

    pub fn iter(&self) -> impl Iterator<Item = &ClientOp> {
        self.ops.iter().map(|(op, _)| &**op)
    }
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    pub fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }
    /// The placement group serves, or another OSD is its primary.
    pub fn end(&mut self) {
        self.since = None;
    }
    pub fn since(&self) -> Option<Time> {
        self.since
    }
}
