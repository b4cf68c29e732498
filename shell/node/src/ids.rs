//! Global ids for clients, out of the ranges that a monitor's machine grants.

use std::collections::VecDeque;
use std::ops::Range;

#[derive(Default)]
pub(crate) struct IdPool {
    ranges: VecDeque<Range<u64>>,
    left: u64,
    /// Length of the last grant.
    granted: u64,
    /// The machine got the event that ids are low, and has not granted since.
    asked: bool,
}

impl IdPool {
    pub(crate) fn grant(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.granted = range.end - range.start;
        self.left += self.granted;
        self.ranges.push_back(range);
        self.asked = false;
    }
    pub(crate) fn take(&mut self) -> Option<u64> {
        let first = self.ranges.front_mut()?;
        let id = first.start;
        first.start += 1;
        self.left -= 1;
        if first.is_empty() {
            self.ranges.pop_front();
        }
        Some(id)
    }
    /// True once when fewer than half of the last grant are left.
    pub(crate) fn must_ask(&mut self) -> bool {
        let low = !self.asked && self.granted > 0 && self.left * 2 < self.granted;
        self.asked |= low;
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_given_once_and_asked_for_once_when_half_is_gone() {
        let mut pool = IdPool::default();
        assert_eq!(pool.take(), None);
        pool.grant(10..14);
        let taken: Vec<_> = (0..2).map(|_| pool.take().unwrap()).collect();
        assert_eq!((taken, pool.must_ask()), (vec![10, 11], false));
        assert_eq!((pool.take(), pool.must_ask(), pool.must_ask()), (Some(12), true, false));
        pool.grant(20..22);
        assert_eq!(
            (pool.take(), pool.take(), pool.take(), pool.take()),
            (Some(13), Some(20), Some(21), None)
        );
        assert!(pool.must_ask());
    }
}
