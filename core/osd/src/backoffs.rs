//! Backoffs: clients that hold requests for certain PGs until those serve. When a backoff is sent:
//! `osd/backoffs.rs`.
//!
//! Requests may be in flight when a backoff is sent. The client resends all of them when the backoff ends. So
//! each request that arrives before the acknowledgement of `Block` is dropped, even if the backoff has ended
//! by then: otherwise it would overtake requests that were dropped already. Requests after the
//! acknowledgement were sent with knowledge of the backoff.
//!
//! A client looks for the requests of a backoff by the shard, too, to which it sent them: the primary's place
//! in an erasure-coded PG.

use crate::pg::PgRange;
use nacre_base::{Epoch, PgId, ShardId};
use nacre_machine::ConnId;
use nacre_proto::messages::{BackoffOp, OsdBackoff};
use nacre_proto::types::SpgId;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that one takes, roughly.
const COST: usize = 96;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client has not acknowledged the block yet.
    Sent,
    Acknowledged,
    /// The backoff has ended, but the client has not acknowledged its block yet.
    Over,
}

struct Backoff {
    range: PgRange,
    state: State,
}

pub struct Backoffs {
    /// The backoffs of each session, by PG and number.
    of: BTreeMap<ConnId, BTreeMap<(SpgId, u64), Backoff>>,
    /// All PGs with a backoff that has not ended, and maybe others.
    pgs: BTreeSet<PgId>,
    len: usize,
    most: usize,
    last: u64,
}

impl Backoffs {
    /// `memory`: bytes.
    pub fn new(memory: usize) -> Backoffs {
        Backoffs { of: BTreeMap::new(), pgs: BTreeSet::new(), len: 0, most: memory / COST, last: 0 }
    }
    pub fn len(&self) -> usize {
        self.len
    }
    pub fn has_capacity(&self) -> bool {
        self.len < self.most
    }
    pub fn pgs(&self) -> impl Iterator<Item = PgId> {
        self.pgs.iter().copied()
    }

    /// Begins a backoff for a client. It must not overlap with another backoff of that client for the PG.
    pub fn begin(&mut self, conn: ConnId, spg: SpgId, range: PgRange, epoch: Epoch) -> OsdBackoff {
        self.last += 1;
        self.len += 1;
        self.pgs.insert(spg.pg);
        self.of.entry(conn).or_default().insert((spg, self.last), Backoff { range, state: State::Sent });
        message(BackoffOp::Block, spg, self.last, range, epoch)
    }

    /// Whether a request from the session on such an object is dropped: the client resends it after the
    /// unblock.
    pub fn covers(&self, conn: ConnId, spg: SpgId, hash: u32) -> bool {
        let Some(of) = self.of.get(&conn) else { return false };
        of.range((spg, 0)..=(spg, u64::MAX)).any(|(_, backoff)| backoff.range.contains_hash(hash))
    }

    /// The client acknowledged the block.
    pub fn acknowledged(&mut self, conn: ConnId, spg: SpgId, id: u64) {
        let Some(of) = self.of.get_mut(&conn) else { return };
        match of.get_mut(&(spg, id)).map(|backoff| &mut backoff.state) {
            Some(State::Over) => {
                of.remove(&(spg, id));
                self.len -= 1;
                if of.is_empty() {
                    self.of.remove(&conn);
                }
            }
            Some(state) => *state = State::Acknowledged,
            None => {}
        }
    }

    /// Ends the backoffs of a PG outside `still`, and returns the messages to send.
    pub fn end(&mut self, pg: PgId, still: Option<PgRange>, epoch: Epoch) -> Vec<(ConnId, OsdBackoff)> {
        let mut messages = Vec::new();
        let of_shard = |shard, id| (SpgId { pg, shard: ShardId(shard) }, id);
        let all = of_shard(i8::MIN, 0)..=of_shard(i8::MAX, u64::MAX);
        for (&conn, of) in &mut self.of {
            let ending = of
                .range_mut(all.clone())
                .filter(|(_, backoff)| backoff.state != State::Over && Some(backoff.range) != still);
            let mut heard = Vec::new();
            for (&(spg, id), backoff) in ending {
                messages.push((conn, message(BackoffOp::Unblock, spg, id, backoff.range, epoch)));
                match backoff.state {
                    State::Acknowledged => heard.push((spg, id)),
                    _ => backoff.state = State::Over,
                }
            }
            self.len -= heard.len();
            of.retain(|key, _| !heard.contains(key));
        }
        self.of.retain(|_, of| !of.is_empty());
        if still.is_none() {
            self.pgs.remove(&pg);
        }
        messages
    }

    /// They end with the session, on both sides.
    pub fn forget(&mut self, conn: ConnId) {
        self.len -= self.of.remove(&conn).map_or(0, |of| of.len());
    }
}

fn message(op: BackoffOp, spg: SpgId, id: u64, range: PgRange, epoch: Epoch) -> OsdBackoff {
    OsdBackoff { spg, epoch, op, id, begin: range.start(), end: range.next() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::PoolId;

    const CONN: ConnId = ConnId::Accepted(1);
    const PG: PgId = PgId { pool: PoolId(1), seed: 1 };
    const SPG: SpgId = SpgId { pg: PG, shard: ShardId::NONE };
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
        let block = backoffs.begin(CONN, SPG, range(), EPOCH);
        assert!(backoffs.covers(CONN, SPG, 5) && !backoffs.covers(CONN, SPG, 4));
        assert!(!backoffs.covers(ConnId::Accepted(2), SPG, 5));
        assert_eq!(unblocked(&mut backoffs, Some(range())), [0; 0]);
        assert_eq!(unblocked(&mut backoffs, None), [block.id]);
        assert_eq!(unblocked(&mut backoffs, None), [0; 0], "it is told once");
        assert!(backoffs.covers(CONN, SPG, 5));
        backoffs.acknowledged(CONN, SPG, block.id);
        backoffs.acknowledged(CONN, SPG, block.id);
        assert!(!backoffs.covers(CONN, SPG, 5));

        let block = backoffs.begin(CONN, SPG, range(), EPOCH);
        backoffs.acknowledged(CONN, SPG, block.id);
        assert!(backoffs.covers(CONN, SPG, 5));
        assert_eq!(unblocked(&mut backoffs, None), [block.id]);
        assert!(!backoffs.covers(CONN, SPG, 5));
        assert_eq!((backoffs.len(), backoffs.pgs().count()), (0, 0));
    }

    /// As after a merge: a client that kept two with the same begin would mistake one for the other.
    #[test]
    fn one_that_is_about_another_range_ends_before_the_next_begins() {
        let mut backoffs = Backoffs::new(2 * COST);
        let first = backoffs.begin(CONN, SPG, range(), EPOCH);
        let wider = PgRange::new(PG, 2);
        assert_eq!(unblocked(&mut backoffs, Some(wider)), [first.id]);
        assert!(!backoffs.covers(CONN, SPG, 3));
        let second = backoffs.begin(CONN, SPG, wider, EPOCH);
        assert!(backoffs.covers(CONN, SPG, 3) && !backoffs.has_capacity());
        backoffs.acknowledged(CONN, SPG, first.id);
        assert_eq!(unblocked(&mut backoffs, Some(wider)), [0; 0]);
        assert_eq!(unblocked(&mut backoffs, None), [second.id]);
        backoffs.forget(CONN);
        assert_eq!((backoffs.len(), backoffs.has_capacity()), (0, true));
    }
}
