use super::*;
use nacre_base::Utime;
use nacre_proto::maps::osd_state;

/// A map with `hosts` hosts of `each` OSDs, two hosts in a rack.
fn map(hosts: i32, each: i32) -> OsdMap {
    let mut crush = CrushMap::fresh(1);
    for osd in 0..hosts * each {
        let host = osd / each;
        let place = [
            ("root", "default".to_string()),
            ("rack", format!("r{}", host / 2)),
            ("host", format!("h{host}")),
        ];
        let place = place.map(|(kind, name)| (kind.to_string(), name)).into();
        crush.create_or_move_item(osd, 1 << 16, &format!("osd.{osd}"), &place).unwrap();
    }
    let mut map = OsdMap::new([1; 16], Utime::ZERO, crush);
    map.set_max_osd((hosts * each) as u32);
    for osd in 0..hosts * each {
        map.osd_mut(OsdId(osd)).unwrap().state = osd_state::EXISTS | osd_state::UP;
    }
    map
}

fn at(millis: u64) -> Time {
    Time::from_nanos(1_000_000 * (100_000 + millis))
}

/// The OSDs that are down after these reports were repeated until `end`, each by (reporter, target).
fn down_at(failures: &mut FailureReports, map: &OsdMap, reports: &[(i32, i32)], end: u64) -> Vec<i32> {
    let mut map = map.clone();
    let mut down = Vec::new();
    for now in (0..=end).step_by(50) {
        for (n, &(reporter, target)) in reports.iter().enumerate() {
            let (reporter, target) = (OsdId(reporter), OsdId(target));
            // Each speaks at his own time.
            if now % 500 == (n as u64 % 3) * 50 && map.is_up(reporter) && map.is_up(target) {
                failures.report_silence(at(now), reporter, target, None, Duration::from_millis(1200 + now));
            }
        }
        for decision in failures.check_reports(at(now), &map, 2) {
            let target = decision.target;
            failures.note_marked_down(at(now), decision);
            map.osd_mut(target).unwrap().state &= !osd_state::UP;
            down.push(target.0);
        }
    }
    down.sort_unstable();
    down
}

#[track_caller]
fn check(map: &OsdMap, reports: &[(i32, i32)], end: u64, expected: &[i32]) {
    assert_eq!(down_at(&mut FailureReports::default(), map, reports, end), expected);
}

/// Every OSD on one side misses every OSD on the other, and the reverse.
fn split(one: &[i32], other: &[i32]) -> Vec<(i32, i32)> {
    one.iter().flat_map(|&a| other.iter().flat_map(move |&b| [(a, b), (b, a)])).collect()
}

#[test]
fn two_witnesses_are_enough_and_one_is_not() {
    let map = map(1, 4);
    check(&map, &[(0, 3), (1, 3)], 400, &[3]);
    check(&map, &[(0, 3)], 4_000, &[]);
}

#[test]
fn reporters_must_be_in_different_failure_domains() {
    let map = map(4, 3); // hosts of three, racks of two hosts
    check(&map, &[(3, 0), (6, 0)], 400, &[0]);
    check(&map, &[(3, 0), (4, 0), (5, 0)], 2_000, &[]); // all in one rack, and the other rack hears it
    check(&map, &[(3, 0), (4, 0)], 3_000, &[0]); // unless that continues
}

#[test]
fn when_a_rack_dies_the_other_rack_is_believed() {
    let map = map(4, 2); // 0..4 | 4..8
    let dead = [4, 5, 6, 7];
    let all: Vec<(i32, i32)> = (0..4).flat_map(|reporter| dead.map(|target| (reporter, target))).collect();
    check(&map, &all, 600, &dead);
}

#[test]
fn lower_osd_id_stays_up_when_two_lose_each_other() {
    check(&map(1, 2), &split(&[0], &[1]), 600, &[1]);
}

#[test]
fn isolated_osd_is_marked_down_and_no_other() {
    check(&map(3, 1), &split(&[0], &[1, 2]), 20_000, &[0]);
    check(&map(3, 2), &split(&[3], &[0, 1, 2, 4, 5]), 20_000, &[3]);
}

#[test]
fn larger_side_of_a_partition_stays_up() {
    check(&map(6, 1), &split(&[0, 1], &[2, 3, 4, 5]), 20_000, &[0, 1]);
    check(&map(6, 1), &split(&[0, 2, 4], &[1, 3, 5]), 20_000, &[1, 3, 5]);
}

#[test]
fn persistently_broken_link_marks_one_end_down() {
    check(&map(3, 1), &split(&[0], &[1]), 4_900, &[]);
    check(&map(3, 1), &split(&[0], &[1]), 20_000, &[1]);
    // Only one direction; but osd.0 has another one.
    check(&map(4, 1), &[(0, 1), (0, 2)], 20_000, &[0]);
}

#[test]
fn flapping_link_marks_no_osd_down_and_is_reported() {
    let map = map(3, 1);
    let mut failures = FailureReports::default();
    for n in 0..20 {
        let begin = n * 6_000;
        for now in (begin..begin + 2_000).step_by(500) {
            failures.report_silence(at(now), OsdId(0), OsdId(1), None, Duration::from_millis(1_200));
            failures.report_silence(at(now), OsdId(1), OsdId(0), None, Duration::from_millis(1_200));
            assert_eq!(failures.check_reports(at(now + 200), &map, 2), []);
        }
        failures.cancel(at(begin + 3_000), OsdId(0), OsdId(1));
        failures.cancel(at(begin + 3_100), OsdId(1), OsdId(0));
        let mut checks = Checks::new();
        failures.checks(at(begin + 4_000), &map, &mut checks);
        assert_eq!(checks.contains_key("OSD_UNRELIABLE_LINK"), n >= 2);
        if n == 4 {
            let detail = &checks["OSD_UNRELIABLE_LINK"].detail;
            assert!(detail[0].starts_with("osd.0 (root=default,rack=r0,host=h0) and osd.1"), "{detail:?}");
            assert!(detail[0].ends_with("lost each other 5 times in 10 minutes"), "{detail:?}");
        }
    }
    assert_eq!(failures.check_reports(at(20 * 6_000 + 700_000), &map, 2), []);
    let mut checks = Checks::new();
    failures.checks(at(20 * 6_000 + 700_000), &map, &mut checks);
    assert!(checks.is_empty(), "{checks:?}");
}

#[test]
fn wrong_reporters_count_later_and_flapping_osds_boot_later() {
    let map = map(1, 3);
    let mut failures = FailureReports::default();
    let both = [(0, 2), (1, 2)];
    assert_eq!(down_at(&mut failures, &map, &both, 400), [2]);
    assert!(failures.may_return(at(500), OsdId(2), true));
    assert!(failures.may_trust(OsdId(0), OsdId(2)), "it did not speak of a refused connection");
    // `down_at` speaks of silences of 1.2 s and more: now it takes 3 s.
    assert_eq!(down_at(&mut failures, &map, &both, 1_500), [0; 0]);
    assert_eq!(down_at(&mut failures, &map, &both, 2_500), [2]);
    assert!(failures.may_return(at(2_600), OsdId(2), true));
    let refused = |failures: &mut FailureReports, now| {
        let (target, reporters) = (OsdId(2), vec![OsdId(0)]);
        let decision =
            MarkDown { target, why: String::new(), reporters, evidence: Evidence::Refused, network: None };
        failures.note_marked_down(at(now), decision);
    };
    refused(&mut failures, 3_000);
    assert!(!failures.may_return(at(7_000), OsdId(2), true));
    assert!(failures.may_return(at(8_100), OsdId(2), true));
    assert!(failures.may_trust(OsdId(0), OsdId(2)), "it came so late that it may have been gone");
    let mut checks = Checks::new();
    failures.checks(at(9_000), &map, &mut checks);
    assert_eq!(checks["OSD_FLAPPING"].count, 1);
    refused(&mut failures, 10_000);
    assert!(!failures.may_return(at(19_000), OsdId(2), true));
    // A new process has not flapped, and was not wrongly marked down.
    assert!(failures.may_return(at(19_000), OsdId(2), false));
    assert_eq!(down_at(&mut failures, &map, &both, 400), [2]);
}

#[test]
fn wrongly_marked_down_osd_needs_more_evidence_next_time() {
    let mut failures = FailureReports::default();
    let (target, reporters) = (OsdId(2), vec![OsdId(0)]);
    let decision =
        MarkDown { target, why: String::new(), reporters, evidence: Evidence::Refused, network: None };
    failures.note_marked_down(at(0), decision);
    assert!(failures.may_return(at(1_000), OsdId(2), true));
    assert!(!failures.may_trust(OsdId(0), OsdId(2)));
    assert!(failures.may_trust(OsdId(1), OsdId(2)));
}
