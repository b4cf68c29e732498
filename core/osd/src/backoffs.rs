//! Backoffs: clients that were asked not to send requests to certain PGs until those serve. When clients are asked is in `osd/backoffs.rs`.
//!
//! What a client sends before it heard of it is still in flight. It sends all of that again when it hears that the backoff
//! is over, so all that arrives before its answer to `Block` is dropped, even if it is over by then: what was in flight would
//! else come before what was dropped already. What arrives after the acknowledgement was sent by a client that knew of the backoff.

use crate::pg::PgRange;
use nacre_base::{Epoch, PgId};
use nacre_machine::ConnId;
use nacre_proto::messages::{BackoffOp, OsdBackoff};
use nacre_proto::types::SpgId;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that one takes, roughly.
const COST: usize = 96;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client has not said yet that it heard of it.
    Sent,
    Heard,
    /// It is over, and the client has not said yet that it heard of its beginning.
    Over,
}

struct Backoff {
    range: PgRange,
    state: State,
}

pub struct Backoffs {
    /// Those of each session, by PG and number.
    of: BTreeMap<ConnId, BTreeMap<(PgId, u64), Backoff>>,
    /// With all PGs of which some are not over, and maybe others.
    groups: BTreeSet<PgId>,
    len: usize,
    most: usize,
    last: u64,
}

impl Backoffs {
    /// `memory`: bytes.
    pub fn new(memory: usize) -> Backoffs {
        Backoffs { of: BTreeMap::new(), groups: BTreeSet::new(), len: 0, most: memory / COST, last: 0 }
    }
    pub fn len(&self) -> usize {
        self.len
    }
    pub fn has_room(&self) -> bool {
        self.len < self.most
    }
    pub fn groups(&self) -> impl Iterator<Item = PgId> {
        self.groups.iter().copied()
    }

    /// Asks a client to keep its requests on objects of a PG. Its PG has no other one with it for any of them.
    pub fn begin(&mut self, conn: ConnId, pg: PgId, range: PgRange, epoch: Epoch) -> OsdBackoff {
        self.last += 1;
        self.len += 1;
        self.groups.insert(pg);
        self.of.entry(conn).or_default().insert((pg, self.last), Backoff { range, state: State::Sent });
        message(BackoffOp::Block, pg, self.last, range, epoch)
    }

    /// Whether what comes over the session about such an object is to be dropped: the client sends it again when it is told to.
    pub fn covers(&self, conn: ConnId, pg: PgId, hash: u32) -> bool {
        let Some(of) = self.of.get(&conn) else { return false };
        of.range((pg, 0)..=(pg, u64::MAX)).any(|(_, backoff)| backoff.range.contains_hash(hash))
    }

    /// The client heard of it.
    pub fn heard(&mut self, conn: ConnId, pg: PgId, id: u64) {
        let Some(of) = self.of.get_mut(&conn) else { return };
        match of.get_mut(&(pg, id)).map(|backoff| &mut backoff.state) {
            Some(State::Over) => {
                of.remove(&(pg, id));
                self.len -= 1;
                if of.is_empty() {
                    self.of.remove(&conn);
                }
            }
            Some(state) => *state = State::Heard,
            None => {}
        }
    }

    /// Ends those of a PG that are not about `still`, and says to whom what is to be sent.
    pub fn end(&mut self, pg: PgId, still: Option<PgRange>, epoch: Epoch) -> Vec<(ConnId, OsdBackoff)> {
        let mut messages = Vec::new();
        for (&conn, of) in &mut self.of {
            let ending = of
                .range_mut((pg, 0)..=(pg, u64::MAX))
                .filter(|(_, backoff)| backoff.state != State::Over && Some(backoff.range) != still);
            let mut heard = Vec::new();
            for (&(pg, id), backoff) in ending {
                messages.push((conn, message(BackoffOp::Unblock, pg, id, backoff.range, epoch)));
                match backoff.state {
                    State::Heard => heard.push((pg, id)),
                    _ => backoff.state = State::Over,
                }
            }
            self.len -= heard.len();
            of.retain(|key, _| !heard.contains(key));
        }
        self.of.retain(|_, of| !of.is_empty());
        if still.is_none() {
            self.groups.remove(&pg);
        }
        messages
    }

    /// They end with the session, on both sides.
    pub fn forget(&mut self, conn: ConnId) {
        self.len -= self.of.remove(&conn).map_or(0, |of| of.len());
    }
}

fn message(op: BackoffOp, pg: PgId, id: u64, range: PgRange, epoch: Epoch) -> OsdBackoff {
    OsdBackoff { spg: SpgId::replicated(pg), epoch, op, id, begin: range.start(), end: range.next() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::PoolId;

    const CONN: ConnId = ConnId::Accepted(1);
    const PG: PgId = PgId { pool: PoolId(1), seed: 1 };
    const EPOCH: Epoch = Epoch(9);

    fn range() -> PgRange {
        PgRange::new(PG, 4)
    }
    fn unblocked(backoffs: &mut Backoffs, still: Option<PgRange>) -> Vec<u64> {
        backoffs.end(PG, still, EPOCH).into_iter().map(|(_, message)| message.id).collect()
    }

    #[test]
    fn requests_are_dropped_until_the_block_is_acknowledged_even_if_unblocked() {
        let mut backoffs = Backoffs::new(2 * COST);
        let block = backoffs.begin(CONN, PG, range(), EPOCH);
        assert!(backoffs.covers(CONN, PG, 5) && !backoffs.covers(CONN, PG, 4));
        assert!(!backoffs.covers(ConnId::Accepted(2), PG, 5));
        assert_eq!(unblocked(&mut backoffs, Some(range())), [0; 0]);
        assert_eq!(unblocked(&mut backoffs, None), [block.id]);
        assert_eq!(unblocked(&mut backoffs, None), [0; 0], "it is told once");
        assert!(backoffs.covers(CONN, PG, 5));
        backoffs.heard(CONN, PG, block.id);
        backoffs.heard(CONN, PG, block.id);
        assert!(!backoffs.covers(CONN, PG, 5));

        let block = backoffs.begin(CONN, PG, range(), EPOCH);
        backoffs.heard(CONN, PG, block.id);
        assert!(backoffs.covers(CONN, PG, 5));
        assert_eq!(unblocked(&mut backoffs, None), [block.id]);
        assert!(!backoffs.covers(CONN, PG, 5));
        assert_eq!((backoffs.len(), backoffs.groups().count()), (0, 0));
    }

    /// As after a merge: a client that kept two with the same begin would mistake one for the other.
    #[test]
    fn one_that_is_about_another_range_ends_before_the_next_begins() {
        let mut backoffs = Backoffs::new(2 * COST);
        let first = backoffs.begin(CONN, PG, range(), EPOCH);
        let wider = PgRange::new(PG, 2);
        assert_eq!(unblocked(&mut backoffs, Some(wider)), [first.id]);
        assert!(!backoffs.covers(CONN, PG, 3));
        let second = backoffs.begin(CONN, PG, wider, EPOCH);
        assert!(backoffs.covers(CONN, PG, 3) && !backoffs.has_room());
        backoffs.heard(CONN, PG, first.id);
        assert_eq!(unblocked(&mut backoffs, Some(wider)), [0; 0]);
        assert_eq!(unblocked(&mut backoffs, None), [second.id]);
        backoffs.forget(CONN);
        assert_eq!((backoffs.len(), backoffs.has_room()), (0, true));
    }
}
