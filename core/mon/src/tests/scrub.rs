//! Scrub commands are sent to OSDs, and inconsistencies appear in health.

use super::*;

fn orders(messages: &[Message]) -> Vec<(Vec<PgId>, bool, bool)> {
    let of = |message: &Message| match message {
        Message::Daemon(DaemonMsg::Scrub { pgs, deep, repair }) => Some((pgs.clone(), *deep, *repair)),
        _ => None,
    };
    messages.iter().filter_map(of).collect()
}

#[test]
fn scrub_command_reaches_the_primary_and_prints_cephs_text() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 1);
    let pg = t.map().pgs(pool).next().unwrap();
    let primary = t.map().pg_to_up_acting(pg).acting_primary.unwrap();
    let others: Vec<OsdId> = t.map().up_osds().filter(|osd| *osd != primary).collect();
    conns.iter().for_each(|conn| drop(t.received(*conn)));
    let said = t.run(json!({ "prefix": "pg deep-scrub", "pgid": pg.to_string() }));
    assert_eq!(said, format!("instructing pg {pg} on osd.{primary} to deep-scrub"));
    assert_eq!(orders(&t.received(conns[primary.index()])), [(vec![pg], true, false)]);
    let said = t.run(json!({ "prefix": "osd repair", "who": "all" }));
    assert_eq!(said, "instructed osd(s) 0,1,2 to repair");
    assert_eq!(orders(&t.received(conns[primary.index()])), [(vec![pg], true, true)]);
    assert_eq!(t.run(json!({ "prefix": "osd pool scrub", "who": ["p"] })), "");
    assert_eq!(orders(&t.received(conns[primary.index()])), [(vec![pg], false, false)]);
    for osd in others {
        assert_eq!(orders(&t.received(conns[osd.index()])), []);
    }
    let mut refused = |command: Value| {
        let (code, said, _) = t.command(command);
        (code, said)
    };
    assert_eq!(refused(json!({ "prefix": "pg scrub", "pgid": "9.9" })), (-2, "pg 9.9 does not exist".into()));
    assert_eq!(refused(json!({ "prefix": "osd scrub", "who": "77" })), (-11, "osd.77 is not up".into()));
    let said = "Expected option value to be integer, got 'xx'invalid osd 'xx'".to_string();
    assert_eq!(refused(json!({ "prefix": "osd scrub", "who": "xx" })), (-22, said));
}

#[test]
fn health_reports_inconsistent_and_unscrubbed_pgs() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 1);
    t.activate(&conns, pool);
    let map = t.map();
    let pg = map.pgs(pool).next().unwrap();
    let primary = map.pg_to_up_acting(pg).acting_primary.unwrap();
    let report = |t: &mut TestMon, state: u64, errors: u64, age: u32| {
        let plain = pg_report(&map, pg);
        let counts = PgCounts { deep_errors: errors, ..plain.counts };
        let stamp = Utime { sec: t.now.wall.sec - age, nsec: 0 };
        let scrub = ScrubState { last_stamp: stamp, last_deep_stamp: stamp, ..plain.scrub };
        let pgs = vec![PgReport { state: plain.state | state, counts, scrub, ..plain }];
        let report = OsdReport { osd: Some(primary), epoch: map.epoch, pgs, ..OsdReport::default() };
        t.send(conns[primary.index()], DaemonMsg::Report(report));
        t.json(json!({ "prefix": "health", "detail": "detail" }))["checks"].clone()
    };
    let checks = report(&mut t, pg_state::INCONSISTENT, 3, 0);
    assert_eq!(checks["OSD_SCRUB_ERRORS"]["summary"]["message"], "3 scrub errors");
    assert_eq!(checks["OSD_SCRUB_ERRORS"]["severity"], "HEALTH_ERR");
    assert_eq!(checks["PG_DAMAGED"]["summary"]["message"], "Possible data damage: 1 pg inconsistent");
    let eleven_days = 11 * 86_400;
    let checks = report(&mut t, 0, 0, eleven_days);
    assert!(checks["OSD_SCRUB_ERRORS"].is_null() && checks["PG_DAMAGED"].is_null());
    assert_eq!(checks["PG_NOT_SCRUBBED"]["summary"]["message"], "1 pgs not scrubbed in time");
    assert!(checks["PG_NOT_DEEP_SCRUBBED"].is_null());
    let checks = report(&mut t, 0, 0, eleven_days + 2 * 86_400);
    assert_eq!(checks["PG_NOT_DEEP_SCRUBBED"]["summary"]["message"], "1 pgs not deep-scrubbed in time");
    let checks = report(&mut t, 0, 0, 0);
    assert!(checks["PG_NOT_SCRUBBED"].is_null() && checks["PG_NOT_DEEP_SCRUBBED"].is_null());
}
