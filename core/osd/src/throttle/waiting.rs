//! PGs that wait for a throttle, each at most once in a lane.

use nacre_base::{PgId, PoolId};
use std::collections::BTreeMap;

/// In which order PGs are woken. Urgent ones come first in either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By id: one PG is finished before the next one starts.
    ByPg,
    /// The one that waits longest first.
    Arrival,
}

/// Lane, not urgent, arrival (0 if it does not count), PG.
type Key = (usize, bool, u64, PgId);

/// Before every PG.
const FIRST: PgId = PgId { pool: PoolId(i64::MIN), seed: 0 };

pub struct WaitList<N> {
    order: Order,
    list: BTreeMap<Key, N>,
    keys: BTreeMap<(usize, PgId), Key>,
    arrivals: u64,
}

impl<N: Copy> WaitList<N> {
    pub fn new(order: Order) -> WaitList<N> {
        WaitList { order, list: BTreeMap::new(), keys: BTreeMap::new(), arrivals: 0 }
    }
    /// A PG that waits already keeps its place. Its need is the new one.
    pub fn join(&mut self, lane: usize, pg: PgId, need: N, urgent: bool) {
        self.arrivals += 1;
        let arrival = if self.order == Order::Arrival { self.arrivals } else { 0 };
        let mut key = (lane, !urgent, arrival, pg);
        if let Some(before) = self.keys.get(&(lane, pg)) {
            key.2 = before.2;
            self.list.remove(before);
        }
        self.keys.insert((lane, pg), key);
        self.list.insert(key, need);
    }
    pub fn leave(&mut self, lane: usize, pg: PgId) {
        if let Some(key) = self.keys.remove(&(lane, pg)) {
            self.list.remove(&key);
        }
    }

    fn first_key(&self, lane: usize) -> Option<(&Key, &N)> {
        self.list.range((lane, false, 0, FIRST)..).next().filter(|(key, _)| key.0 == lane)
    }
    pub fn first(&self, lane: usize) -> Option<&N> {
        self.first_key(lane).map(|(_, need)| need)
    }
    pub fn pop(&mut self, lane: usize) -> Option<PgId> {
        let pg = self.first_key(lane)?.0.3;
        self.leave(lane, pg);
        Some(pg)
    }
    /// Takes out the first PG of which this is so.
    pub fn take_first(&mut self, lane: usize, is_it: impl Fn(&N) -> bool) -> Option<PgId> {
        let found =
            self.list.iter().find(|(key, need)| key.0 == lane && is_it(need)).map(|(key, _)| key.3)?;
        self.leave(lane, found);
        Some(found)
    }
    pub fn get(&self, lane: usize, pg: PgId) -> Option<&N> {
        self.list.get(self.keys.get(&(lane, pg))?)
    }

    pub fn is_empty(&self, lane: usize) -> bool {
        self.first_key(lane).is_none()
    }
    pub fn has_urgent(&self, lane: usize) -> bool {
        self.first_key(lane).is_some_and(|(key, _)| !key.1)
    }
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.list.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pg(seed: u32) -> PgId {
        PgId { pool: PoolId(1), seed }
    }
    fn all(list: &mut WaitList<u8>) -> Vec<u32> {
        std::iter::from_fn(|| list.pop(0)).map(|pg| pg.seed).collect()
    }

    #[test]
    fn urgent_pgs_are_first_and_others_come_by_id_or_by_arrival() {
        for (order, expected) in [(Order::ByPg, [7, 1, 4, 5]), (Order::Arrival, [7, 5, 1, 4])] {
            let mut list = WaitList::new(order);
            [5, 1, 7, 4].into_iter().for_each(|seed| list.join(0, pg(seed), 0, false));
            list.join(1, pg(9), 0, true);
            assert!(!list.has_urgent(0) && list.has_urgent(1));
            list.join(0, pg(7), 0, true);
            list.join(0, pg(5), 1, false);
            assert_eq!(list.get(0, pg(5)), Some(&1));
            assert_eq!(all(&mut list), expected);
            assert!(list.is_empty(0) && !list.is_empty(1));
        }
    }
}
