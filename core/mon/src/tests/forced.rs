//! `ceph pg force-recovery`: the primaries are notified.

use super::*;

fn orders(messages: &[Message]) -> Vec<(Vec<PgId>, bool, bool)> {
    let of = |message: &Message| match message {
        Message::Daemon(DaemonMsg::Force { pgs, backfill, on }) => Some((pgs.clone(), *backfill, *on)),
        _ => None,
    };
    messages.iter().filter_map(of).collect()
}

#[test]
fn force_recovery_reaches_primaries_and_prints_cephs_text() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 1);
    t.activate(&conns, pool);
    let map = t.map();
    let pg = map.pgs(pool).next().unwrap();
    let primary = map.pg_to_up_acting(pg).acting_primary.unwrap();
    let conn = conns[primary.index()];
    let report = |t: &mut TestMon, state: u64| {
        let pgs = vec![PgReport { state: pg_state::ACTIVE | state, ..pg_report(&map, pg) }];
        let report = OsdReport { osd: Some(primary), epoch: map.epoch, pgs, ..OsdReport::default() };
        t.send(conn, DaemonMsg::Report(report));
        t.received(conn);
    };
    let ask = |t: &mut TestMon, prefix: &str, pgs: &[&str]| {
        let (code, said, _) = t.command(json!({ "prefix": prefix, "pgid": pgs }));
        (code, said)
    };
    let id = pg.to_string();
    report(&mut t, pg_state::CLEAN);
    let said = format!("pg {id} doesn't require recovery; pg 9.9 does not exist; ");
    assert_eq!(ask(&mut t, "pg force-recovery", &[&id, "9.9"]), (-2, said));
    let said = format!("pg {id} doesn't require backfilling; ");
    assert_eq!(ask(&mut t, "pg force-backfill", &[&id]), (0, said));
    let said = format!("pg {id} recovery not forced; ");
    assert_eq!(ask(&mut t, "pg cancel-force-recovery", &[&id]), (0, said));
    assert_eq!(orders(&t.received(conn)), []);

    report(&mut t, pg_state::DEGRADED | pg_state::RECOVERY_WAIT);
    let said =
        format!("pg 9.9 does not exist; instructing pg(s) [{id}] on osd.{primary} to force-recovery; ");
    assert_eq!(ask(&mut t, "pg force-recovery", &[&id, "9.9"]), (0, said));
    assert_eq!(orders(&t.received(conn)), [(vec![pg], false, true)]);
    let said = t.run(json!({ "prefix": "osd pool force-backfill", "who": ["p"] }));
    assert_eq!(said, format!("instructing pg(s) [{id}] on osd.{primary} to force-backfill; "));
    assert_eq!(orders(&t.received(conn)), [(vec![pg], true, true)]);

    report(&mut t, pg_state::DEGRADED | pg_state::RECOVERING | pg_state::FORCED_RECOVERY);
    let said = format!("pg {id} recovery already forced; ");
    assert_eq!(ask(&mut t, "pg force-recovery", &[&id]), (-22, said));
    let said = format!("instructing pg(s) [{id}] on osd.{primary} to cancel-force-recovery; ");
    assert_eq!(ask(&mut t, "pg cancel-force-recovery", &[&id]), (0, said));
    assert_eq!(orders(&t.received(conn)), [(vec![pg], false, false)]);
    let (code, said, _) = t.command(json!({ "prefix": "osd pool force-recovery", "who": ["nosuch"] }));
    assert_eq!((code, &*said), (-2, "unrecognized pool 'nosuch'"));
}
