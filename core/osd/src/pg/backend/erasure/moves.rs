//! Which OSD comes to which shard. An OSD holds one shard of a placement group, and keeps it: where CRUSH
//! only changes places, nothing moves, and `pg_temp` says which place is which. An OSD that is new gets the
//! shard of one that goes. While it is filled it is at a further place of the acting set, behind all shards:
//! place `n + i` is a second holder of shard `i`.

use crate::pg::Interval;
use nacre_base::OsdId;

/// The acting set in which CRUSH's OSDs alone serve.
pub fn destination(interval: &Interval) -> Vec<OsdId> {
    let Interval { up, acting, shards, .. } = interval;
    let n = *shards;
    let mut places = vec![OsdId::NONE; n];
    let is_up = |osd: &OsdId| osd.is_some() && up.contains(osd);
    for (at, osd) in acting.iter().enumerate().filter(|(_, osd)| is_up(osd)) {
        // The first holder of a shard; a second one takes its place only where the first one goes.
        if !places[at % n].is_some() {
            places[at % n] = *osd;
        }
    }
    let mut left: Vec<OsdId> =
        up.iter().copied().filter(|osd| osd.is_some() && !places.contains(osd)).collect();
    for (at, place) in places.iter_mut().enumerate().filter(|(_, place)| !place.is_some()) {
        let of_place = left.iter().position(|osd| up.get(at) == Some(osd));
        if let Some(found) = of_place {
            *place = left.remove(found);
        }
    }
    for place in places.iter_mut().filter(|place| !place.is_some()) {
        if !left.is_empty() {
            *place = left.remove(0);
        }
    }
    // Where CRUSH finds too few, those that serve stay.
    for (at, place) in places.iter_mut().enumerate().filter(|(_, place)| !place.is_some()) {
        *place = acting.get(at).copied().unwrap_or(OsdId::NONE);
    }
    places
}

/// Whether a member is to have another shard than the one that it holds: it leaves first, and comes back as a
/// newcomer.
pub fn is_misplaced(interval: &Interval, destination: &[OsdId]) -> bool {
    let mut places = destination.iter().enumerate().filter(|(_, osd)| interval.acting.contains(osd));
    places.any(|(place, osd)| osd.is_some() && interval.shard_of(*osd).0 as usize != place)
}

/// The acting set with OSDs that are to come at further places, and without those there that are not to have
/// the shards of their places.
pub fn with_newcomers(interval: &Interval) -> Vec<OsdId> {
    let n = interval.shards;
    let destination = destination(interval);
    let mut acting = interval.acting.clone();
    acting.resize(2 * n, OsdId::NONE);
    for (at, osd) in acting.iter_mut().enumerate().skip(n) {
        if destination[at - n] != *osd {
            *osd = OsdId::NONE;
        }
    }
    for (at, osd) in destination.into_iter().enumerate() {
        if osd.is_some() && !interval.acting.contains(&osd) {
            let place = if acting[at].is_some() { n + at } else { at };
            acting[place] = osd;
        }
    }
    while acting.len() > n && acting.last() == Some(&OsdId::NONE) {
        acting.pop();
    }
    acting
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Epoch;

    fn osds(numbers: &[i32]) -> Vec<OsdId> {
        numbers.iter().map(|n| if *n < 0 { OsdId::NONE } else { OsdId(*n) }).collect()
    }
    fn interval(up: &[i32], acting: &[i32]) -> Interval {
        Interval {
            start: Epoch(1),
            up: osds(up),
            up_primary: None,
            acting: osds(acting),
            primary: None,
            size: up.len(),
            min_size: 2,
            earliest: Epoch(1),
            shards: up.len(),
        }
    }

    #[test]
    fn an_osd_keeps_its_shard_wherever_crush_places_it() {
        let moved = interval(&[3, 1, 2], &[1, 2, 3]);
        assert_eq!(destination(&moved), osds(&[1, 2, 3]));
        assert!(moved.is_settled());
        assert_eq!(with_newcomers(&moved), osds(&[1, 2, 3]));
    }

    #[test]
    fn a_newcomer_gets_the_shard_of_the_one_that_goes() {
        let moved = interval(&[1, 4, 2], &[1, 2, 3]);
        assert!(!moved.is_settled());
        assert_eq!(with_newcomers(&moved), osds(&[1, 2, 3, -1, -1, 4]));
        assert_eq!(destination(&moved), osds(&[1, 2, 4]));
        let filled = interval(&[1, 4, 2], &[1, 2, 3, -1, -1, 4]);
        assert_eq!(destination(&filled), osds(&[1, 2, 4]));
        let hole = interval(&[1, 4, 2], &[1, 2, -1]);
        assert_eq!(with_newcomers(&hole), osds(&[1, 2, 4]));
        // Its shard has another holder: it leaves before it comes back with another one.
        let second = interval(&[1, 4, 2], &[1, 2, 3, 4]);
        assert_eq!(destination(&second), osds(&[1, 2, 4]));
        assert!(
            is_misplaced(&second, &destination(&second)) && !is_misplaced(&filled, &destination(&filled))
        );
        assert_eq!(with_newcomers(&second), osds(&[1, 2, 3]));
        let too_few = interval(&[1, -1, 2], &[1, 2, 3]);
        assert_eq!(destination(&too_few), osds(&[1, 2, 3]));
    }
}
