//! Which OSD holds which shard of an erasure-coded placement group.
//!
//! The place in the acting set is the shard. CRUSH may move an OSD to another place; but an OSD keeps the
//! shard that it has, as moving data would gain nothing. So `pg_temp` names the members by their shards.
//! Places behind the last shard are for second holders: place `n + i` holds shard `i`, and takes part in
//! writes while it is filled.

use super::{OsdMap, UpActing};
use nacre_base::{OsdId, PgId};

/// The `pg_temp` entry of a placement group whose members were `last` when it was activated last; empty for
/// none. None: as it is, which its primary decided.
pub fn shard_members(map: &OsdMap, pg: PgId, last: &[OsdId], placed: &UpActing) -> Option<Vec<OsdId>> {
    let shards = usize::from(map.pool(pg.pool)?.size);
    let entry = map.pg_temp.get(&pg);
    let is_up = |osd: &OsdId| osd.is_some() && map.is_up(*osd);
    let is_full = |entry: &&Vec<OsdId>| {
        entry.len() >= shards
            && entry[..shards].iter().all(|osd| osd.is_some())
            && entry.iter().all(|osd| !osd.is_some() || is_up(osd))
    };
    if entry.filter(is_full).is_some() {
        return None;
    }
    match entry.is_none() && serves_its_shards(map, shards, last, &placed.up) {
        true => Some(Vec::new()),
        false => Some(holders(map, shards, (last, entry.map_or(&[], |entry| entry)), &placed.up)),
    }
}

/// Whether the OSDs that CRUSH chose served last with just the shards of their places, and no other OSD that
/// is up has a shard which they lack.
fn serves_its_shards(map: &OsdMap, shards: usize, last: &[OsdId], up: &[OsdId]) -> bool {
    let has = |osd: OsdId, shard: usize| {
        last.iter().enumerate().any(|(at, member)| *member == osd && at % shards == shard)
    };
    let is_lacking = |shard: usize| !up.get(shard).is_some_and(|osd| osd.is_some());
    let mut holders = last.iter().enumerate();
    up.iter().enumerate().all(|(shard, osd)| !osd.is_some() || has(*osd, shard))
        && !holders.any(|(at, osd)| osd.is_some() && map.is_up(*osd) && is_lacking(at % shards))
}

/// An OSD that served last, and is up, keeps the place that its shard has; other OSDs take the places that
/// are free: those in the entry the ones that they have there, as they may hold these shards by now. Empty if
/// nothing is left of the last members: then CRUSH's choice is as good as any.
fn holders(map: &OsdMap, shards: usize, (last, entry): (&[OsdId], &[OsdId]), up: &[OsdId]) -> Vec<OsdId> {
    let is_up = |osd: &OsdId| osd.is_some() && map.is_up(*osd);
    if shards == 0 || !last.iter().any(is_up) {
        return Vec::new();
    }
    let mut acting = vec![OsdId::NONE; shards];
    // Second holders stay behind while there is a first one.
    for (at, osd) in last.iter().enumerate().filter(|(_, osd)| is_up(osd)) {
        if !acting[at % shards].is_some() {
            acting[at % shards] = *osd;
        } else if at >= shards {
            acting.resize(acting.len().max(at + 1), OsdId::NONE);
            acting[at] = *osd;
        }
    }
    for (at, osd) in entry.iter().enumerate().filter(|(_, osd)| is_up(osd)) {
        if acting.contains(osd) || at >= 2 * shards {
            continue;
        }
        acting.resize(2 * shards, OsdId::NONE);
        if let Some(at) = [at % shards, at % shards + shards].into_iter().find(|at| !acting[*at].is_some()) {
            acting[at] = *osd;
        }
    }
    while acting.len() > shards && acting.last() == Some(&OsdId::NONE) {
        acting.pop();
    }
    let mut left: Vec<OsdId> = up.iter().copied().filter(|osd| is_up(osd) && !acting.contains(osd)).collect();
    for (at, place) in acting.iter_mut().enumerate().take(shards).filter(|(_, place)| !place.is_some()) {
        if let Some(own) = left.iter().position(|osd| up.get(at) == Some(osd)) {
            *place = left.remove(own);
        }
    }
    for place in acting.iter_mut().take(shards).filter(|place| !place.is_some()) {
        if left.is_empty() {
            break;
        }
        *place = left.remove(0);
    }
    acting
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::{Pool, osd_state};
    use nacre_base::{PoolId, Utime};
    use nacre_crush::CrushMap;
    use std::sync::Arc;

    const PG: PgId = PgId { pool: PoolId(1), seed: 0 };

    /// What comes of these members, with those OSDs up and that placement; holes are -1.
    fn members(last: &[i32], up: &[i32], down: &[i32], entry: Option<&[i32]>) -> Option<Vec<i32>> {
        let osds = |ids: &[i32]| -> Vec<OsdId> {
            ids.iter().map(|id| if *id < 0 { OsdId::NONE } else { OsdId(*id) }).collect()
        };
        let mut map = OsdMap::new([1; 16], Utime::ZERO, CrushMap::default());
        map.set_max_osd(9);
        for n in 0..9 {
            let state = if down.contains(&n) { osd_state::EXISTS } else { osd_state::EXISTS | osd_state::UP };
            map.osd_mut(OsdId(n)).unwrap().state = state;
        }
        let pool = Pool::erasure(3, 2, 1, 0, "p", 8192, Utime::ZERO);
        map.pools.insert(PG.pool, Arc::new(pool));
        if let Some(entry) = entry {
            Arc::make_mut(&mut map.pg_temp).insert(PG, osds(entry));
        }
        let placed = UpActing { up: osds(up), ..UpActing::default() };
        let members = shard_members(&map, PG, &osds(last), &placed)?;
        Some(members.iter().map(|osd| if osd.is_some() { osd.0 } else { -1 }).collect())
    }

    #[test]
    fn members_stay_where_their_shards_are() {
        assert_eq!(members(&[1, 2, 3], &[1, 2, 3], &[], None), Some(vec![]));
        // CRUSH moves them among the places, or finds fewer.
        assert_eq!(members(&[1, 2, 3], &[3, 1, 2], &[], None), Some(vec![1, 2, 3]));
        assert_eq!(members(&[1, 2, 3], &[1, -1, 3], &[], None), Some(vec![1, 2, 3]));
        // One is down, with or without another in its place.
        assert_eq!(members(&[1, 2, 3], &[1, -1, 3], &[2], None), Some(vec![]));
        assert_eq!(members(&[1, 2, 3], &[4, 1, 3], &[2], None), Some(vec![1, 4, 3]));
        assert_eq!(members(&[1, 2, 3], &[4, 5, 6], &[1, 2, 3], None), Some(vec![]));
    }

    #[test]
    fn newcomers_wait_for_the_primary_and_second_holders_stay_behind() {
        assert_eq!(members(&[1, 2, 3], &[1, 2, 4], &[], None), Some(vec![1, 2, 3]));
        let with_second = [1, 2, 3, -1, -1, 4];
        assert_eq!(members(&with_second, &[1, 2, 4], &[], Some(&with_second)), None);
        assert_eq!(members(&with_second, &[1, 2, 4], &[], None), Some(vec![]));
        assert_eq!(members(&with_second, &[1, 2, 4], &[3], Some(&with_second)), Some(vec![1, 2, 4]));
        assert_eq!(members(&with_second, &[1, 2, 4], &[4], Some(&with_second)), Some(vec![1, 2, 3]));
    }

    #[test]
    fn a_member_that_did_not_serve_last_stays_at_its_place() {
        let last = [1, -1, -1];
        assert_eq!(members(&last, &[1, 4, 5], &[], Some(&[1, -1, 4])), Some(vec![1, 5, 4]));
        // Nor does it go while CRUSH chose others.
        assert_eq!(members(&last, &[1, 5, 6], &[], Some(&[1, -1, 4])), Some(vec![1, 5, 4]));
        assert_eq!(members(&last, &[1, -1, -1], &[4], Some(&[1, -1, 4])), Some(vec![1, -1, -1]));
        // One that served last comes before it.
        let both = [1, 3, -1];
        assert_eq!(members(&both, &[1, 3, 5], &[], Some(&[1, 4, -1])), Some(vec![1, 3, 5, -1, 4]));
    }
}
