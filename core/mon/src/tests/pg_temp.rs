//! Which OSDs serve placement groups while their data moves.

use super::*;
use nacre_proto::maps::UpActing;

/// Four OSDs, of which osd.3 is out, and a pool whose placement groups are active.
fn three_of_four() -> (TestMon, Vec<ConnId>, PoolId) {
    let (mut t, conns) = TestMon::with_osds(4);
    t.run(json!({ "prefix": "osd out", "ids": ["3"] }));
    let pool = t.create_pool("p", 8);
    t.activate(&conns, pool);
    (t, conns, pool)
}
fn groups(t: &TestMon, pool: PoolId) -> Vec<(PgId, UpActing)> {
    let map = t.map();
    map.pgs(pool).map(|pg| (pg, map.pg_to_up_acting(pg))).collect()
}
fn wish(t: &TestMon, pg: PgId, acting: Vec<OsdId>) -> DaemonMsg {
    let record = t.mon.state.as_ref().unwrap().pgs.records[&pg].clone();
    DaemonMsg::Rearrange(vec![PgWish { pg, record, acting }])
}

#[test]
fn complete_members_serve_until_their_primary_clears_pg_temp() {
    let (mut t, conns, pool) = three_of_four();
    let before = groups(&t, pool);
    t.run(json!({ "prefix": "osd in", "ids": ["3"] }));
    let after = groups(&t, pool);
    assert!(before.iter().zip(&after).all(|(before, after)| before.1.acting == after.1.acting));
    let (pg, placed) = after.iter().find(|(_, placed)| placed.up != placed.acting).unwrap().clone();
    assert!(placed.up.contains(&OsdId(3)) && t.map().pg_temp[&pg] == placed.acting);
    // A further member; only the primary may ask, and only for what it activated.
    let larger: Vec<OsdId> = placed.acting.iter().copied().chain([OsdId(3)]).collect();
    let primary = placed.acting_primary.unwrap().index();
    let message = wish(&t, pg, larger.clone());
    t.send(conns[(primary + 1) % 3], message.clone());
    assert_eq!(t.map().pg_to_up_acting(pg).acting, placed.acting);
    t.send(conns[primary], message.clone());
    assert_eq!(t.map().pg_to_up_acting(pg).acting, larger);
    t.send(conns[primary], wish(&t, pg, Vec::new()));
    assert_eq!(t.map().pg_to_up_acting(pg).acting, larger, "this was not activated yet");
    let record = PgRecord { interval: t.map().epoch, acting: larger };
    t.send(conns[primary], DaemonMsg::Activate { epoch: t.map().epoch, records: vec![(pg, record)] });
    t.send(conns[primary], wish(&t, pg, Vec::new()));
    assert_eq!((t.map().pg_to_up_acting(pg).acting, t.map().pg_temp.get(&pg)), (placed.up, None));
}

#[test]
fn returning_primary_leads_only_when_complete() {
    let (mut t, mut conns, pool) = three_of_four();
    let gone = groups(&t, pool)[0].1.acting_primary.unwrap();
    t.run(json!({ "prefix": "osd down", "ids": [gone.to_string()] }));
    t.activate(&conns, pool);
    let before = groups(&t, pool);
    assert!(before.iter().all(|(_, placed)| placed.acting.len() == 2));
    conns[gone.index()] = t.boot(gone.0, 6900 + gone.0 as u16, 50);
    for ((pg, before), (_, after)) in before.iter().zip(groups(&t, pool)) {
        assert_eq!(after.acting.len(), 3);
        assert!(before.acting.contains(&after.acting_primary.unwrap()), "{pg}: {after:?}");
    }
    // Only placement groups whose up primary is the returning OSD need an entry.
    let map = t.map();
    let led = groups(&t, pool).iter().filter(|(_, placed)| placed.up_primary == Some(gone)).count();
    assert_eq!(map.pg_temp.len(), led);
}

#[test]
fn dead_member_is_replaced_and_pg_temp_of_removed_pgs_is_dropped() {
    let (mut t, _, pool) = three_of_four();
    t.run(json!({ "prefix": "osd in", "ids": ["3"] }));
    let moving: Vec<PgId> = t.map().pg_temp.keys().copied().collect();
    assert!(!moving.is_empty());
    t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
    for pg in moving {
        let placed = t.map().pg_to_up_acting(pg);
        assert_eq!(placed.acting.len(), 3, "{placed:?}");
        assert_ne!(placed.acting_primary, Some(OsdId(3)));
    }
    t.run(json!({
        "prefix": "osd pool delete", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it": true
    }));
    assert!(t.map().pg_temp.is_empty() && t.map().pool(pool).is_none());
}

#[test]
fn osds_that_are_out_serve_while_crush_finds_too_few() {
    let (mut t, conns, pool) = three_of_four();
    let before = groups(&t, pool);
    t.run(json!({ "prefix": "osd out", "ids": ["2"] }));
    for ((pg, before), (_, after)) in before.iter().zip(groups(&t, pool)) {
        assert_eq!((after.up.len(), &after.acting), (2, &before.acting), "{pg}");
    }
    // Whose leader is out is led by another when that one asks for it.
    let (pg, placed) =
        groups(&t, pool).into_iter().find(|(_, at)| at.acting_primary == Some(OsdId(2))).unwrap();
    let order: Vec<OsdId> = placed.up.iter().copied().chain([OsdId(2)]).collect();
    t.send(conns[2], wish(&t, pg, order.clone()));
    assert_eq!(t.map().pg_to_up_acting(pg).acting, order);
    t.activate(&conns, pool);
    t.run(json!({ "prefix": "osd in", "ids": ["3"] }));
    assert_eq!(t.map().pg_to_up_acting(pg).acting, order);
    t.run(json!({ "prefix": "osd down", "ids": ["2"] }));
    assert!(!t.map().pg_to_up_acting(pg).acting.contains(&OsdId(2)));
}
