//! Placement groups that are recreated empty, as all their copies are lost: `osd force-create-pg`.

use super::*;

fn force_create(t: &mut TestMon, pg: PgId) -> (i32, String) {
    let command =
        json!({ "prefix": "osd force-create-pg", "pgid": pg.to_string(), "yes_i_really_mean_it": true });
    let (code, said, _) = t.command(command);
    (code, said)
}

fn one_group() -> (TestMon, Vec<ConnId>, PgId) {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 1);
    t.activate(&conns, pool);
    let pg = t.map().pgs(pool).next().unwrap();
    (t, conns, pg)
}

#[test]
fn only_a_pg_without_live_members_is_recreated() {
    let (mut t, conns, pg) = one_group();
    let nowhere = PgId { seed: 9, ..pg };
    assert_eq!(force_create(&mut t, nowhere), (-2, format!("pg {nowhere} should not exist")));
    let (code, said, _) = t.command(json!({ "prefix": "osd force-create-pg", "pgid": pg.to_string() }));
    assert_eq!(code, -1);
    assert!(said.ends_with("pass --yes-i-really-mean-it to proceed."), "{said}");
    let (code, said) = force_create(&mut t, pg);
    assert_eq!(code, -16, "{said}");
    assert!(said.contains("osd.0") && said.contains("osd.2"), "{said}");

    // One of them is back with an empty device, and leads.
    for osd in [0, 1] {
        t.run(json!({ "prefix": "osd down", "ids": [osd.to_string()] }));
    }
    assert_eq!(force_create(&mut t, pg), (-16, format!("pg {pg} is not lost: osd.2 may have it")));
    let map = t.map();
    let say = |t: &mut TestMon, state: u64, epoch: Epoch| {
        let pgs = vec![PgReport { state, ..pg_report(&map, pg) }];
        let report = OsdReport { osd: Some(OsdId(2)), epoch, pgs, ..OsdReport::default() };
        t.send(conns[2], DaemonMsg::Report(report));
    };
    say(&mut t, pg_state::ACTIVE, map.epoch);
    assert_eq!(force_create(&mut t, pg).0, -16);
    // Sent before the OSD booted: by another incarnation.
    say(&mut t, pg_state::DOWN, Epoch(1));
    assert_eq!(force_create(&mut t, pg).0, -16);
    say(&mut t, pg_state::DOWN, map.epoch);
    let before = t.mon.state.as_ref().unwrap().pgs.records[&pg].clone();
    assert_eq!(force_create(&mut t, pg), (0, format!("pg {pg} now creating, ok")));
    assert_eq!(force_create(&mut t, pg), (0, format!("pg {pg} already creating")));
    let record = t.mon.state.as_ref().unwrap().pgs.records[&pg].clone();
    assert_eq!((record.is_void(), record.interval), (true, before.interval));

    // The next acting set is its whole history.
    let record = PgRecord { interval: map.epoch, acting: vec![OsdId(2)] };
    let message = DaemonMsg::Activate { epoch: map.epoch, records: vec![(pg, record.clone())] };
    t.ask(conns[2], message);
    assert_eq!(t.mon.state.as_ref().unwrap().pgs.records[&pg], record);
}

/// Its primary found a copy after it had said that there is none, and has not said so yet.
#[test]
fn recently_activated_pg_is_not_recreated() {
    let (mut t, conns, pg) = one_group();
    for osd in [0, 1] {
        t.run(json!({ "prefix": "osd down", "ids": [osd.to_string()] }));
    }
    let map = t.map();
    let pgs = vec![PgReport { state: pg_state::DOWN, ..pg_report(&map, pg) }];
    let report = OsdReport { osd: Some(OsdId(2)), epoch: map.epoch, pgs, ..OsdReport::default() };
    t.send(conns[2], DaemonMsg::Report(report));
    let record = PgRecord { interval: map.epoch, acting: vec![OsdId(2)] };
    t.ask(conns[2], DaemonMsg::Activate { epoch: map.epoch, records: vec![(pg, record.clone())] });
    assert_eq!(force_create(&mut t, pg), (-16, format!("pg {pg} is not lost: osd.2 may have it")));
    assert_eq!(t.mon.state.as_ref().unwrap().pgs.records[&pg], record);
}
