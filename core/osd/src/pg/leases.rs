//! Read leases. A replica that grants one takes no part in a later interval before the lease ends, so the
//! primary of this interval may answer reads meanwhile.

use nacre_base::{Epoch, OsdId, Time};
use nacre_proto::maps::OsdMap;
use std::time::Duration;

/// How long a lease lasts, counted from when the primary asked for it.
pub const LEASE: Duration = Duration::from_millis(800);

/// The primary that holds a lease: an OSD, and the epoch in which this incarnation of it came up. None: not
/// known any more.
type Holder = Option<(OsdId, Epoch)>;

/// The leases that this OSD granted for one placement group, and whether it still uses those that it holds.
///
/// A primary may be succeeded before it knows it. Each lease counts by itself: the death of one holder does
/// not end the lease of another.
#[derive(Debug, Default)]
pub struct Leases {
    granted: Vec<(Holder, Time)>,
    given_up: bool,
}

impl Leases {
    pub fn grant(&mut self, now: Time, to: Holder, until: Time) {
        self.granted.retain(|(holder, end)| *end > now && *holder != to);
        self.granted.push((to, until));
    }
    /// After a restart of the daemon the granted leases are not known, so the worst case counts.
    pub fn assume_granted(&mut self, now: Time) {
        self.grant(now, None, now + LEASE);
    }
    /// Takes over the leases that were granted for a placement group that merges into this one.
    pub fn join(&mut self, other: &Leases) {
        self.granted.extend(&other.granted);
    }
    /// The leases that bind the child of a split.
    pub fn for_child(&self) -> Leases {
        Leases { granted: self.granted.clone(), given_up: false }
    }
    /// When the last granted lease ends. A holder that is known to be dead relies on none.
    pub fn end(&self, map: &OsdMap) -> Time {
        self.end_unless(|(osd, up_from)| map.osd(osd).is_some_and(|osd| osd.xinfo.dead_epoch > up_from))
    }
    fn end_unless(&self, dead: impl Fn((OsdId, Epoch)) -> bool) -> Time {
        let binding = self.granted.iter().filter(|(holder, _)| !holder.is_some_and(&dead));
        binding.map(|(_, until)| *until).max().unwrap_or(Time::ZERO)
    }

    /// The OSD is about to stop: from now on it sends no reply that needs a lease.
    pub fn give_up(&mut self) {
        self.given_up = true;
    }
    pub fn is_given_up(&self) -> bool {
        self.given_up
    }
    pub fn check(&self, now: Time) {
        debug_assert!(self.granted.iter().all(|(_, until)| *until <= now + LEASE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The second primary died at once, and the third took the first, which knew of neither, for gone: the
    /// first could have answered reads that missed the third one's writes.
    #[test]
    fn death_of_one_holder_does_not_end_another_lease() {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let (first, second) = ((OsdId(1), Epoch(3)), (OsdId(2), Epoch(4)));
        let mut granted = Leases::default();
        granted.grant(at(0), Some(first), at(800));
        granted.grant(at(10), Some(second), at(810));
        assert_eq!(granted.end_unless(|_| false), at(810));
        assert_eq!(granted.end_unless(|holder| holder == second), at(800));
        assert_eq!(granted.end_unless(|_| true), Time::ZERO);
        granted.grant(at(805), Some(second), at(1605));
        assert_eq!(granted.end_unless(|holder| holder == second), Time::ZERO);
    }

    #[test]
    fn unknown_lease_holder_counts_as_alive() {
        let mut granted = Leases::default();
        granted.grant(Time::ZERO, None, Time::from_nanos(7));
        assert_eq!(granted.end_unless(|_| true), Time::from_nanos(7));
    }
}
