//! What a replica promised: to take no part in a later interval for a while, so that the primary of
//! this one may answer reads meanwhile.

use nacre_base::{Epoch, OsdId, Time};

/// Who relies on it: an OSD, and since when that life of it was up. None: not known any more.
type Holder = Option<(OsdId, Epoch)>;

/// A primary may follow upon another that does not know it yet. Each promise counts by itself: the
/// end of one holder does not end what another still relies on.
#[derive(Clone, Debug, Default)]
pub struct GrantedLeases {
    leases: Vec<(Holder, Time)>,
}

impl GrantedLeases {
    pub fn grant(&mut self, now: Time, to: Holder, until: Time) {
        self.leases.retain(|(holder, end)| *end > now && *holder != to);
        self.leases.push((to, until));
    }
    /// Takes over what was promised for another group.
    pub fn join(&mut self, other: &GrantedLeases) {
        self.leases.extend(&other.leases);
    }
    /// Until when some promise binds: whose process has `ended` relies on nothing any more.
    pub fn end(&self, ended: impl Fn((OsdId, Epoch)) -> bool) -> Time {
        let bind = self.leases.iter().filter(|(holder, _)| !holder.is_some_and(&ended));
        bind.map(|(_, until)| *until).max().unwrap_or(Time::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The second primary died at once, and the third took the first, which did not know of either,
    /// for gone: it could have answered reads that missed the third one's writes.
    #[test]
    fn the_death_of_one_holder_does_not_end_what_another_was_promised() {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let (first, second) = ((OsdId(1), Epoch(3)), (OsdId(2), Epoch(4)));
        let mut granted = GrantedLeases::default();
        granted.grant(at(0), Some(first), at(800));
        granted.grant(at(10), Some(second), at(810));
        assert_eq!(granted.end(|_| false), at(810));
        assert_eq!(granted.end(|holder| holder == second), at(800));
        assert_eq!(granted.end(|_| true), Time::ZERO);
        granted.grant(at(805), Some(second), at(1605));
        assert_eq!(granted.end(|holder| holder == second), Time::ZERO);
    }

    #[test]
    fn a_holder_that_is_not_known_may_be_alive() {
        let mut granted = GrantedLeases::default();
        granted.grant(Time::ZERO, None, Time::from_nanos(7));
        assert_eq!(granted.end(|_| true), Time::from_nanos(7));
    }
}
