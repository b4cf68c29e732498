//! Requests that wait until their group serves.

use super::ClientOp;
use crate::throttle::memory::{Held, Memory};
use nacre_machine::ConnId;
use std::collections::{BTreeSet, VecDeque};

/// What a request takes beside its data.
const REQUEST: u64 = 2 << 10;

/// In arrival order, each with the memory that it takes.
#[derive(Default)]
pub struct WaitingForActive(VecDeque<(Box<ClientOp>, Held)>);

impl WaitingForActive {
    pub fn new(ops: impl IntoIterator<Item = Box<ClientOp>>, memory: &Memory) -> WaitingForActive {
        let mut held = WaitingForActive::default();
        ops.into_iter().for_each(|op| held.push(op, memory));
        held
    }
    pub fn push(&mut self, op: Box<ClientOp>, memory: &Memory) {
        let data: usize = op.request.ops.iter().map(|item| item.data.len()).sum();
        let bytes = memory.hold(REQUEST + data as u64);
        self.0.push_back((op, bytes));
    }
    pub fn take(&mut self) -> impl Iterator<Item = Box<ClientOp>> + use<> {
        std::mem::take(&mut self.0).into_iter().map(|(op, _)| op)
    }
    pub fn clear(&mut self) {
        self.0.clear();
    }
    /// What came over one session is over: its client sends it again if it still wants it.
    pub fn drop_session(&mut self, conn: ConnId) {
        self.0.retain(|(op, _)| op.conn != conn);
    }

    pub fn iter(&self) -> impl Iterator<Item = &ClientOp> {
        self.0.iter().map(|(op, _)| &**op)
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn sessions(&self) -> BTreeSet<ConnId> {
        self.iter().map(|op| op.conn).collect()
    }
}
