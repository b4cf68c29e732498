//! Which placement groups the map places on this OSD.
//!
//! CRUSH is the expensive part, and an epoch that only marks OSDs up or down changes none of its results. So
//! the results that name this OSD are kept, and CRUSH runs again for the pools whose placement may have
//! changed.

use nacre_base::{OsdId, PgId, PoolId};
use nacre_proto::maps::{OsdMap, UpActing};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The placement groups that CRUSH places on one OSD.
#[derive(Default)]
pub struct OwnPlacements {
    /// The map that the rest is from.
    map: Option<Arc<OsdMap>>,
    /// Where CRUSH places the placement groups that it places here.
    crush: BTreeMap<PgId, Vec<OsdId>>,
    /// How often CRUSH ran.
    pub crush_runs: u64,
}

impl OwnPlacements {
    /// By a new map: the placement groups in `held`, and all others that `me` is to serve. A placement group
    /// that is not in the map is not in the result.
    pub fn update(
        &mut self,
        me: OsdId,
        map: &Arc<OsdMap>,
        held: &BTreeSet<PgId>,
    ) -> BTreeMap<PgId, UpActing> {
        self.run_crush(me, map);
        let mut pgs: BTreeSet<PgId> = self.crush.keys().copied().chain(by_exception(me, map)).collect();
        pgs.extend(held);
        let mut placed = BTreeMap::new();
        for pg in pgs {
            let Some(pool) = map.pool(pg.pool).filter(|pool| pg.seed < pool.pg_num) else { continue };
            let crush = self.crush.get(&pg).cloned().unwrap_or_else(|| {
                self.crush_runs += 1;
                map.crush_placement(pg)
            });
            let here = map.up_acting_from(pool, pg, crush);
            if held.contains(&pg) || here.acting.contains(&me) {
                placed.insert(pg, here);
            }
        }
        placed
    }

    fn run_crush(&mut self, me: OsdId, map: &Arc<OsdMap>) {
        let old = self.map.replace(map.clone());
        let all = old.as_ref().is_none_or(|old| map.moves_all(old));
        let moves = |pool: PoolId| all || old.as_ref().is_some_and(|old| map.moves_pool(old, pool));
        self.crush.retain(|pg, _| !moves(pg.pool));
        for (&pool, info) in map.pools.iter().filter(|(pool, _)| moves(**pool)) {
            for pg in (0..info.pg_num).map(|seed| PgId { pool, seed }) {
                self.crush_runs += 1;
                let osds = map.crush_placement(pg);
                if osds.contains(&me) {
                    self.crush.insert(pg, osds);
                }
            }
        }
    }
}

/// Placement groups that an exception from CRUSH places here.
fn by_exception(me: OsdId, map: &OsdMap) -> impl Iterator<Item = PgId> {
    let temp = map.pg_temp.iter().filter(move |(_, osds)| osds.contains(&me)).map(|(pg, _)| *pg);
    let whole = map.pg_upmap.iter().filter(move |(_, osds)| osds.contains(&me)).map(|(pg, _)| *pg);
    let items = map.pg_upmap_items.iter().filter(move |(_, pairs)| pairs.iter().any(|(_, to)| *to == me));
    temp.chain(whole).chain(items.map(|(pg, _)| *pg))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{Rng, Utime};
    use nacre_crush::CrushMap;
    use nacre_proto::maps::{Pool, osd_state};

    /// Hosts of ten OSDs, and one pool.
    fn cluster(osds: i32, pg_num: u32) -> OsdMap {
        let mut crush = CrushMap::fresh(1);
        for osd in 0..osds {
            let place = [("root", "default".to_string()), ("host", format!("h{}", osd / 10))];
            let place = place.map(|(kind, name)| (kind.to_string(), name)).into();
            crush.create_or_move_item(osd, 1 << 16, &format!("osd.{osd}"), &place).unwrap();
        }
        let mut map = OsdMap::new([1; 16], Utime::ZERO, crush);
        map.set_max_osd(osds as u32);
        for osd in 0..osds {
            map.osd_mut(OsdId(osd)).unwrap().state = osd_state::EXISTS | osd_state::UP;
            map.weights[osd as usize] = 0x10000;
        }
        let pool = Pool::replicated(3, 2, pg_num, 0, Utime::ZERO);
        map.pools.insert(PoolId(1), Arc::new(pool));
        map
    }

    fn by_all(me: OsdId, map: &OsdMap, held: &BTreeSet<PgId>) -> BTreeMap<PgId, UpActing> {
        let pgs =
            map.pools.iter().flat_map(|(&pool, info)| (0..info.pg_num).map(move |seed| PgId { pool, seed }));
        let placed = pgs.map(|pg| (pg, map.pg_to_up_acting(pg)));
        placed.filter(|(pg, here)| held.contains(pg) || here.acting.contains(&me)).collect()
    }

    #[test]
    fn an_osd_that_goes_down_costs_no_run_of_crush() {
        let mut map = cluster(450, 16384);
        let (me, mut own) = (OsdId(7), OwnPlacements::default());
        let placed = own.update(me, &Arc::new(map.clone()), &BTreeSet::new());
        let mut held: BTreeSet<PgId> = placed.into_keys().collect();
        assert_eq!(own.crush_runs, 16384);
        assert!((60..200).contains(&held.len()), "{}", held.len());
        map.osd_mut(OsdId(100)).unwrap().state = osd_state::EXISTS;
        assert_eq!(own.update(me, &Arc::new(map.clone()), &held).len(), held.len());
        assert_eq!(own.crush_runs, 16384);
        // A stray is held, but CRUSH does not place it here.
        let stray = (0..).map(|seed| PgId { pool: PoolId(1), seed }).find(|pg| !held.contains(pg));
        held.extend(stray);
        assert_eq!(own.update(me, &Arc::new(map.clone()), &held).len(), held.len());
        assert_eq!(own.crush_runs, 16385);
    }

    #[test]
    fn whatever_changes_the_result_is_that_of_all_placement_groups() {
        let mut rng = Rng::new(5);
        let mut map = cluster(30, 64);
        let (me, mut own) = (OsdId(3), OwnPlacements::default());
        let mut held = BTreeSet::new();
        for _ in 0..300 {
            let osd = OsdId(rng.below(30) as i32);
            let pg = PgId { pool: PoolId(1), seed: rng.below(64) as u32 };
            match rng.below(9) {
                0 | 1 => map.osd_mut(osd).unwrap().state ^= osd_state::UP,
                2 => map.weights[osd.0 as usize] = *rng.pick(&[0, 0x8000, 0x10000]).unwrap(),
                3 => {
                    let temp = Arc::make_mut(&mut map.pg_temp);
                    temp.insert(pg, vec![osd, me]);
                }
                4 => Arc::make_mut(&mut map.pg_temp).clear(),
                5 => {
                    let upmap = Arc::make_mut(&mut map.pg_upmap_items);
                    upmap.insert(pg, vec![(osd, me)]);
                }
                6 => drop(Arc::make_mut(&mut map.pg_upmap).insert(pg, vec![osd, me])),
                7 => {
                    let pool = Arc::make_mut(map.pools.get_mut(&PoolId(1)).unwrap());
                    pool.pg_num = 32 + rng.below(64) as u32;
                    pool.pgp_num = pool.pg_num;
                }
                _ => {
                    let weight = 1 << (15 + rng.below(3));
                    Arc::make_mut(&mut map.crush).reweight_item(&format!("osd.{}", osd.0), weight).unwrap();
                }
            }
            let placed = own.update(me, &Arc::new(map.clone()), &held);
            assert_eq!(placed, by_all(me, &map, &held));
            held = placed.into_keys().filter(|_| rng.chance(900)).collect();
        }
    }
}
