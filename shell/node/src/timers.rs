//! A machine's timers, by due time.

use nacre_base::Time;
use nacre_machine::TimerId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Time, TimerId)>,
    armed: BTreeMap<TimerId, Time>,
}

impl Timers {
    pub(crate) fn arm(&mut self, timer: TimerId, at: Time) {
        self.disarm(timer);
        self.armed.insert(timer, at);
        self.due.insert((at, timer));
    }
    pub(crate) fn disarm(&mut self, timer: TimerId) {
        if let Some(at) = self.armed.remove(&timer) {
            self.due.remove(&(at, timer));
        }
    }
    pub(crate) fn next(&self) -> Option<Time> {
        self.due.first().map(|&(at, _)| at)
    }
    /// Takes the first timer that is due.
    pub(crate) fn pop(&mut self, now: Time) -> Option<TimerId> {
        let &(at, timer) = self.due.first()?;
        if at > now {
            return None;
        }
        self.disarm(timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arming_again_replaces_and_timers_fire_in_order_of_time() {
        let at = Time::from_nanos;
        let mut timers = Timers::default();
        timers.arm(1, at(30));
        timers.arm(2, at(20));
        timers.arm(1, at(10));
        timers.arm(3, at(40));
        timers.disarm(3);
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.pop(at(9)), None);
        assert_eq!((timers.pop(at(50)), timers.pop(at(50)), timers.pop(at(50))), (Some(1), Some(2), None));
    }
}
