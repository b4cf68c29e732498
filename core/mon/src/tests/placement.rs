//! Pools for which CRUSH finds too few OSDs.

use super::*;

fn detail(t: &mut TestMon, code: &str) -> Vec<String> {
    let checks = t.json(json!({ "prefix": "health", "detail": "detail" }))["checks"].clone();
    let lines = checks[code]["detail"].as_array().cloned().unwrap_or_default();
    lines.iter().map(|line| line["message"].as_str().unwrap().to_string()).collect()
}

fn summary(t: &mut TestMon, code: &str) -> Option<String> {
    let checks = t.json(json!({ "prefix": "health" }))["checks"].clone();
    checks[code]["summary"]["message"].as_str().map(String::from)
}

fn rule(t: &mut TestMon, name: &str, kind: &str) {
    t.run(json!({ "prefix": "osd crush rule create-replicated", "name": name, "root": "default", "type": kind }));
}

fn pool_with_rule(t: &mut TestMon, name: &str, rule: &str) {
    t.run(json!({ "prefix": "osd pool create", "pool": name, "pg_num": 8, "rule": rule }));
}

pub(super) fn move_to(t: &mut TestMon, name: &str, place: &str) {
    t.run(json!({ "prefix": "osd crush move", "name": name, "args": [place] }));
}

/// Four OSDs in racks: 0 and 1 in `left`, 2 and 3 in `right`.
pub(super) fn in_two_racks() -> TestMon {
    let (mut t, _) = TestMon::with_osds(4);
    for rack in ["left", "right"] {
        t.run(json!({ "prefix": "osd crush add-bucket", "name": rack, "type": "rack" }));
        move_to(&mut t, rack, "root=default");
    }
    for (osd, rack) in ["left", "left", "right", "right"].iter().enumerate() {
        move_to(&mut t, &format!("osd.{osd}"), &format!("rack={rack}"));
    }
    t
}

#[test]
fn pool_whose_rule_chooses_nothing_is_a_warning_at_once_and_its_pgs_after_a_minute() {
    let (mut t, conns) = TestMon::with_osds(3);
    rule(&mut t, "dc", "datacenter");
    let fine = t.create_pool("fine", 8);
    t.activate(&conns, fine);
    t.report(&conns, fine);
    pool_with_rule(&mut t, "lost", "dc");
    assert_eq!(
        summary(&mut t, "POOL_NOT_PLACEABLE").unwrap(),
        "Redundancy of 1 pool(s) cannot be restored: CRUSH places too few copies"
    );
    assert_eq!(
        detail(&mut t, "POOL_NOT_PLACEABLE"),
        [
            "pool 'lost' has size 3, and its CRUSH rule 'dc' can choose no OSD: below 'default' no datacenter has \
          OSDs that are in"
        ]
    );
    t.pass(Duration::from_secs(30));
    assert_eq!(summary(&mut t, "PG_AVAILABILITY"), None, "a new pool may take that long");
    t.pass(Duration::from_secs(35));
    let text = summary(&mut t, "PG_AVAILABILITY").unwrap();
    assert_eq!(text, "Reduced data availability: 8 pgs inactive");
    let line = &detail(&mut t, "PG_AVAILABILITY")[0];
    assert!(
        line.starts_with("pg 2.0 is stuck inactive for 6")
            && line.ends_with("s, current state unknown, last acting []"),
        "{line}"
    );
    let stuck = t.json(json!({ "prefix": "pg dump_stuck", "stuckops": ["inactive"] }));
    assert_eq!(stuck["stuck_pg_stats"].as_array().unwrap().len(), 8);
    // The cure.
    t.run(json!({ "prefix": "osd pool set", "pool": "lost", "var": "crush_rule", "val": "replicated_rule" }));
    assert_eq!(summary(&mut t, "POOL_NOT_PLACEABLE"), None);
    let lost = t.map().pool_by_name("lost").unwrap();
    t.activate(&conns, lost);
    t.report(&conns, lost);
    t.pass(Duration::from_secs(2));
    assert_eq!(summary(&mut t, "PG_AVAILABILITY"), None);
}

#[test]
fn pool_with_more_copies_than_failure_domains_is_a_warning() {
    let mut t = in_two_racks();
    rule(&mut t, "racks", "rack");
    rule(&mut t, "osds", "osd");
    pool_with_rule(&mut t, "p", "racks");
    pool_with_rule(&mut t, "q", "osds");
    assert_eq!(
        detail(&mut t, "POOL_NOT_PLACEABLE"),
        [
            "pool 'p' has size 3, and its CRUSH rule 'racks' can choose only 2 OSDs: below 'default' 2 racks have OSDs \
          that are in"
        ]
    );
    t.run(json!({ "prefix": "osd out", "ids": ["2", "3"] }));
    assert_eq!(
        detail(&mut t, "POOL_NOT_PLACEABLE"),
        [
            "pool 'p' has size 3, and its CRUSH rule 'racks' can choose only 1 OSD: below 'default' 1 rack has OSDs \
             that are in",
            "pool 'q' has size 3, and its CRUSH rule 'osds' can choose only 2 OSDs: below 'default' 2 OSDs are in",
        ]
    );
    t.run(json!({ "prefix": "osd in", "ids": ["2", "3"] }));
    move_to(&mut t, "osd.3", "rack=third");
    move_to(&mut t, "third", "root=default");
    assert_eq!(summary(&mut t, "POOL_NOT_PLACEABLE"), None);
}

#[test]
fn rule_of_several_steps_is_counted_as_it_chooses() {
    let mut t = in_two_racks();
    rule(&mut t, "two", "rack");
    let mut crush = t.map().crush.as_ref().clone();
    let id = crush.rule_by_name("two").unwrap();
    let rack = crush.type_by_name("rack").unwrap();
    let rule = crush.rules[id as usize].as_mut().unwrap();
    let (take, emit) = (rule.steps[0], *rule.steps.last().unwrap());
    let choose = |n, kind| nacre_crush::Op::ChooseFirstN.step(n, kind);
    rule.steps = vec![take, choose(2, rack), choose(2, 0), emit];
    let bytes = nacre_wire::to_vec(&crush);
    let (code, said, _) = t.command_with(json!({ "prefix": "osd setcrushmap" }), bytes.into());
    assert_eq!(code, 0, "{said}");
    pool_with_rule(&mut t, "p", "two");
    let size = |t: &mut TestMon, n: &str| {
        t.run(json!({ "prefix": "osd pool set", "pool": "p", "var": "size", "val": n }));
        summary(t, "POOL_NOT_PLACEABLE").is_some()
    };
    assert!(!size(&mut t, "4"));
    assert!(size(&mut t, "5"));
    t.run(json!({ "prefix": "osd out", "ids": ["2"] }));
    assert!(size(&mut t, "4"));
    assert!(!size(&mut t, "3"));
}

/// CRUSH may choose the same rack twice, and here it has one try.
#[test]
fn placement_group_for_which_crush_gives_up_is_a_warning() {
    let mut t = in_two_racks();
    rule(&mut t, "racks", "rack");
    t.run(json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 64, "rule": "racks", "size": 2 }));
    let mut crush = t.map().crush.as_ref().clone();
    crush.tunables.choose_total_tries = 1;
    let (code, said, _) =
        t.command_with(json!({ "prefix": "osd setcrushmap" }), nacre_wire::to_vec(&crush).into());
    assert_eq!(code, 0, "{said}");
    let map = t.map();
    let short = |pg: &PgId| map.crush_placement(*pg).len() == 1;
    let pg = map.pgs(map.pool_by_name("p").unwrap()).find(short).expect("CRUSH gives up for some");
    let primary = map.pg_to_up_acting(pg).acting_primary.unwrap();
    let report = PgReport { state: pg_state::ACTIVE | pg_state::UNDERSIZED, ..pg_report(&map, pg) };
    let conn = t.open(EntityType::Osd, primary.0.into(), addr(6900 + primary.0 as u16, 1));
    let report =
        OsdReport { osd: Some(primary), epoch: map.epoch, pgs: vec![report], ..OsdReport::default() };
    t.send(conn, DaemonMsg::Report(report));
    t.pass(Duration::from_secs(55));
    assert_eq!(summary(&mut t, "POOL_NOT_PLACEABLE"), None);
    t.pass(Duration::from_secs(10));
    let expected = format!(
        "pool 'p' has size 2, and its CRUSH rule 'racks' found only 1 for pg {pg} in 1 tries (choose_total_tries)"
    );
    assert_eq!(detail(&mut t, "POOL_NOT_PLACEABLE"), [expected]);
}
