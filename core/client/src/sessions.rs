//! One session with one OSD, and the objects that it does not want requests about.

use nacre_base::Time;
use nacre_machine::ConnId;
use nacre_proto::types::{EntityAddr, ObjectId, SpgId};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) addr: EntityAddr,
    /// None while waiting to dial again.
    pub(crate) conn: Option<ConnId>,
    /// The peer's, once the session is open.
    pub(crate) features: Option<u64>,
    /// Closed sessions since the OSD last said something.
    pub(crate) failures: u32,
    /// When it may be dialled again.
    pub(crate) redial_at: Option<Time>,
    backoffs: BTreeMap<(SpgId, u64), Backoff>,
}

/// Objects that an OSD does not want requests about: from `begin` up to and without `end`, or just one.
#[derive(Debug)]
pub(crate) struct Backoff {
    begin: ObjectId,
    end: ObjectId,
}

impl Backoff {
    pub(crate) fn covers(&self, id: &ObjectId) -> bool {
        *id == self.begin || (self.begin < *id && *id < self.end)
    }
}

impl Session {
    pub(crate) fn dialling(addr: EntityAddr, conn: ConnId) -> Session {
        let backoffs = BTreeMap::new();
        Session { addr, conn: Some(conn), features: None, failures: 0, redial_at: None, backoffs }
    }

    /// The connection is gone, and with it what the OSD asked for on it.
    pub(crate) fn closed(&mut self) {
        (self.conn, self.features) = (None, None);
        self.backoffs.clear();
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) fn block(&mut self, spg: SpgId, id: u64, begin: ObjectId, end: ObjectId) {
        self.backoffs.insert((spg, id), Backoff { begin, end });
    }
    pub(crate) fn unblock(&mut self, spg: SpgId, id: u64) -> Option<Backoff> {
        self.backoffs.remove(&(spg, id))
    }
    pub(crate) fn is_blocked(&self, spg: SpgId, object: &ObjectId) -> bool {
        let in_pg = (spg, 0)..=(spg, u64::MAX);
        !self.backoffs.is_empty() && self.backoffs.range(in_pg).any(|(_, backoff)| backoff.covers(object))
    }
}
