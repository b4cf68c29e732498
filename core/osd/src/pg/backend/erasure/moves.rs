//! Which OSD comes to which shard. An OSD holds one shard of a placement group, and keeps it: where CRUSH
//! only changes places, nothing moves, and `pg_temp` says which place is which. An OSD that is new gets the
//! shard of one that goes. While it is filled it is at a further place of the acting set, behind all shards:
//! place `n + i` is a second holder of shard `i`.

use super::index;
use crate::pg::Interval;
use nacre_base::{OsdId, ShardId};

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
/// the shards of their places. `is_spare`: another member has all of that one's shard. No other leaves.
pub fn with_newcomers(interval: &Interval, is_spare: &dyn Fn(OsdId) -> bool) -> Vec<OsdId> {
    let n = interval.shards;
    let destination = destination(interval);
    let mut acting = interval.acting.clone();
    acting.resize(2 * n, OsdId::NONE);
    for (at, osd) in acting.iter_mut().enumerate().skip(n).filter(|(_, osd)| osd.is_some()) {
        if destination[at - n] != *osd && is_spare(*osd) {
            *osd = OsdId::NONE;
        }
    }
    for (at, osd) in destination.into_iter().enumerate() {
        if osd.is_some() && !interval.acting.contains(&osd) {
            place(&mut acting, n, at, osd);
        }
    }
    without_end(acting, n)
}

/// Puts an OSD where it holds that shard: at the first place, or else at the further one. False if neither is
/// free. `acting` has all places.
fn place(acting: &mut [OsdId], n: usize, shard: usize, osd: OsdId) -> bool {
    let free = [shard, n + shard].into_iter().find(|at| !acting[*at].is_some());
    free.inspect(|at| acting[*at] = osd).is_some()
}
fn without_end(mut acting: Vec<OsdId>, n: usize) -> Vec<OsdId> {
    while acting.len() > n && acting.last() == Some(&OsdId::NONE) {
        acting.pop();
    }
    acting
}

/// The acting set in which these OSDs are at places of the shards that they hold. One for whose shard no
/// place is free is left out: it keeps what it has until it can come back.
pub fn at_their_shards(interval: &Interval, held: &[(OsdId, ShardId)]) -> Vec<OsdId> {
    let n = interval.shards;
    let mut acting = interval.acting.clone();
    acting.resize(2 * n, OsdId::NONE);
    for osd in acting.iter_mut().filter(|osd| held.iter().any(|(moved, _)| moved == *osd)) {
        *osd = OsdId::NONE;
    }
    for (osd, shard) in held {
        if let Some(shard) = index(*shard).filter(|shard| *shard < n) {
            place(&mut acting, n, shard, *osd);
        }
    }
    without_end(acting, n)
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
        assert_eq!(with_newcomers(&moved, &|_| true), osds(&[1, 2, 3]));
    }

    #[test]
    fn a_newcomer_gets_the_shard_of_the_one_that_goes() {
        let moved = interval(&[1, 4, 2], &[1, 2, 3]);
        assert!(!moved.is_settled());
        assert_eq!(with_newcomers(&moved, &|_| true), osds(&[1, 2, 3, -1, -1, 4]));
        assert_eq!(destination(&moved), osds(&[1, 2, 4]));
        let filled = interval(&[1, 4, 2], &[1, 2, 3, -1, -1, 4]);
        assert_eq!(destination(&filled), osds(&[1, 2, 4]));
        let hole = interval(&[1, 4, 2], &[1, 2, -1]);
        assert_eq!(with_newcomers(&hole, &|_| true), osds(&[1, 2, 4]));
        // Its shard has another holder: it leaves before it comes back with another one.
        let second = interval(&[1, 4, 2], &[1, 2, 3, 4]);
        assert_eq!(destination(&second), osds(&[1, 2, 4]));
        assert!(
            is_misplaced(&second, &destination(&second)) && !is_misplaced(&filled, &destination(&filled))
        );
        assert_eq!(with_newcomers(&second, &|_| true), osds(&[1, 2, 3]));
        // Not while no other member has all of it.
        assert_eq!(with_newcomers(&second, &|_| false), osds(&[1, 2, 3, 4]));
        let too_few = interval(&[1, -1, 2], &[1, 2, 3]);
        assert_eq!(destination(&too_few), osds(&[1, 2, 3]));
    }

    #[test]
    fn an_osd_at_the_place_of_another_shard_goes_to_a_place_of_its_own() {
        let moved = |acting: &[i32], held: &[(i32, i8)]| {
            let held: Vec<_> = held.iter().map(|(osd, shard)| (OsdId(*osd), ShardId(*shard))).collect();
            at_their_shards(&interval(&[1, 2, 3], acting), &held)
        };
        assert_eq!(moved(&[1, 2, -1], &[(2, 2)]), osds(&[1, -1, 2]));
        assert_eq!(moved(&[1, 2, 3], &[(2, 2), (3, 1)]), osds(&[1, 3, 2]));
        assert_eq!(moved(&[1, 2, 3], &[(3, 0)]), osds(&[1, 2, -1, 3]));
        assert_eq!(moved(&[1, 2, 3, 4], &[(3, 0)]), osds(&[1, 2, -1, 4]));
        // One that is not a member yet.
        assert_eq!(moved(&[1, 2, 3], &[(5, 1)]), osds(&[1, 2, 3, -1, 5]));
    }
}
