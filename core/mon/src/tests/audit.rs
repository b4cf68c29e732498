//! The channels of the cluster log, and what commands leave in it.

use super::*;

/// The last lines of the audit channel.
fn audited(t: &mut TestMon) -> String {
    t.pass(Duration::from_secs(2));
    t.run(json!({ "prefix": "log last", "num": 50, "level": "debug", "channel": "audit" }))
}

#[test]
fn commands_are_audited_with_their_callers() {
    let (mut t, _) = TestMon::with_osds(1);
    t.run(json!({ "prefix": "osd set", "key": "noout" }));
    t.run(json!({ "prefix": "osd ls" }));
    let (code, ..) =
        t.command(json!({ "prefix": "osd pool set", "pool": "none", "var": "size", "val": "2" }));
    assert!(code < 0);
    let conn = t.client();
    let mut command =
        MgrCommand { fsid: [0; 16], cmd: vec![r#"{"prefix":"pg stat"}"#.into()], input: Bytes::new() };
    t.ask(conn, command.clone());
    command.cmd = vec![r#"{"prefix":"nosuch"}"#.into()];
    t.ask(conn, command);
    let log = audited(&mut t);
    let from = "from='client.? 127.0.0.1:0/77' entity='client.admin'";
    for line in [
        &*format!(r#"[INF] {from} cmd=[{{"prefix":"osd set","key":"noout"}}]: dispatch"#),
        &*format!(r#"[INF] {from} cmd='[{{"prefix":"osd set","key":"noout"}}]': finished"#),
        &*format!(r#"[DBG] {from} cmd=[{{"prefix":"osd ls"}}]: dispatch"#),
        &*format!(
            r#"[INF] {from} cmd=[{{"prefix":"osd pool set","pool":"none","var":"size","val":"2"}}]: dispatch"#
        ),
        r#"[DBG] from='client.4100 -' entity='client.admin' cmd=[{"prefix":"pg stat"}]: dispatch"#,
    ] {
        assert!(log.contains(line), "{line}\nis not in\n{log}");
    }
    assert!(
        !log.contains("nosuch") && !log.contains("\"none\",\"var\":\"size\",\"val\":\"2\"}]': finished"),
        "{log}"
    );
    assert!(log.lines().any(|line| line.contains(" mgr.a (mgr.") && line.contains("pg stat")), "{log}");
    let info = t.run(json!({ "prefix": "log last", "num": 50, "level": "info", "channel": "audit" }));
    assert!(info.contains("noout") && !info.contains("osd ls"), "{info}");
    let cluster = t.run(json!({ "prefix": "log last", "num": 50 }));
    assert!(!cluster.contains("dispatch"), "{cluster}");
}

#[test]
fn secrets_are_not_in_the_log() {
    let (mut t, _) = TestMon::with_osds(1);
    t.run(json!({ "prefix": "config-key set", "key": "some/key", "val": "hush-1" }));
    t.run(json!({ "prefix": "config set", "who": "client", "name": "rbd_cache_size", "value": "4194304" }));
    t.run(json!({ "prefix": "auth get-or-create", "entity": "client.a", "caps": ["mon", "allow r"] }));
    let key = t.run(json!({ "prefix": "auth get-key", "entity": "client.a" }));
    let log = audited(&mut t);
    assert!(
        log.contains(r#"cmd=[{"prefix": "config-key set", "key": "some/key", "val": "***"}]: dispatch"#),
        "{log}"
    );
    assert!(log.contains("rbd_cache_size") && !log.contains("4194304") && !log.contains("hush-1"), "{log}");
    assert!(!key.is_empty() && !log.contains(&key), "{log}");
}

/// A client that waits for an entry of the log waited forever at this level.
#[test]
fn debug_entries_tell_of_maps_and_placement_groups() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 8);
    t.activate(&conns, pool);
    t.report(&conns, pool);
    t.pass(Duration::from_secs(4));
    let log = t.run(json!({ "prefix": "log last", "num": 100, "level": "debug", "channel": "cluster" }));
    let epoch = t.map().epoch;
    for text in [
        &*format!("[DBG] osdmap e{epoch}: 3 total, 3 up, 3 in\n"),
        "[DBG] mgrmap e1: a(active)\n",
        "[DBG] monmap e1: 1 mons at {a=v2:127.0.0.1:3300/0} removed_ranks: {}\n",
        "[INF] mon.a is new leader, mons a in quorum (ranks 0)\n",
        ": 8 pgs: 8 active+clean; ",
    ] {
        assert!(log.contains(text), "{text} is not in\n{log}");
    }
    assert!(!t.run(json!({ "prefix": "log last", "num": 100 })).contains("[DBG]"));
}

#[test]
fn another_log_level_replaces_the_one_before() {
    let (mut t, _) = TestMon::with_osds(1);
    let conn = t.client();
    t.send(conn, subscribe("log-info", 0, 0));
    t.send(conn, subscribe("log-error", 0, 0));
    t.received(conn);
    t.run(json!({ "prefix": "log", "logtext": ["quiet"] }));
    assert_eq!(t.received(conn), []);
    t.run(json!({ "prefix": "log", "level": "error", "logtext": ["loud"] }));
    let got = t.received(conn);
    let [Message::Log(log)] = &got[..] else { panic!("{got:?}") };
    assert_eq!(log.entries.iter().map(|entry| &*entry.text).collect::<Vec<_>>(), ["loud"]);
    t.send(conn, subscribe("log-debug", 0, 0));
    t.run(json!({ "prefix": "osd ls" }));
    t.pass(Duration::from_secs(2));
    let got = t.received(conn);
    assert!(matches!(&got[..], [Message::Log(log), ..] if log.entries[0].channel == "audit"), "{got:?}");
}

#[test]
fn requests_that_are_passed_on_are_audited_with_their_callers() {
    let mut group = super::monitors::Group::of(3);
    group.pass(3000);
    let leader = group.leader();
    let follower = (leader + 1) % 3;
    let conn = group.mons[follower].client();
    let cmd = vec![r#"{"prefix":"osd set","key":"noout"}"#.to_string()];
    let message = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() };
    group.mons[follower].send(conn, message);
    group.pass(3000);
    let last = json!({ "prefix": "log last", "num": 50, "level": "debug", "channel": "audit" });
    let log = group.mons[leader].run(last);
    let line = r#"from='client.? 127.0.0.1:0/77' entity='client.admin' cmd=[{"prefix":"osd set","key":"noout"}]: dispatch"#;
    assert!(log.contains(line), "{log}");
}
