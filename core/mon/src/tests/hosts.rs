//! Hosts register with tokens; monitors are placed on them.

use super::monitors::Group;
use super::*;
use nacre_auth::JoinToken;
use nacre_proto::types::AuthName;

/// A session of a token's or a host's entity.
fn enter(t: &mut TestMon, name: &AuthName) -> ConnId {
    let proved = Some(Proved { name: name.clone(), service: 1, caps: String::new(), global_id: 4100 });
    t.open_as(EntityType::Client, 4200, addr(0, 78), proved)
}

fn told(t: &mut TestMon, conn: ConnId, words: Value, input: &'static str) -> (i32, String, Value) {
    let cmd = vec![words.to_string()];
    let message = MonCommand {
        version: PaxosVersion(0),
        fsid: [9; 16],
        cmd,
        input: Bytes::from_static(input.as_bytes()),
    };
    match t.ask(conn, message) {
        Message::MonCommandAck(ack) => {
            (ack.retval, ack.status, serde_json::from_slice(&ack.output).unwrap_or_default())
        }
        other => panic!("{other:?}"),
    }
}

fn new_token(t: &mut TestMon, words: Value) -> JoinToken {
    let mut command = json!({ "prefix": "token new" });
    words.as_object().unwrap().iter().for_each(|(key, value)| command[key] = value.clone());
    t.run(command).parse().unwrap()
}

fn applicant(name: &str, n: u8) -> Value {
    json!({
        "name": name, "uuid": format!("{n:02x}111111-1111-1111-1111-111111111111"),
        "addr": format!("10.0.0.{n}:3300"), "machine": format!("boot{n}"),
    })
}

fn register(t: &mut TestMon, token: &JoinToken, host: &Value) -> (i32, String, Value) {
    let conn = enter(t, &token.entity);
    let mut command = host.clone();
    command["prefix"] = json!("host register");
    told(t, conn, command, "")
}

pub(super) fn report(t: &mut TestMon, name: &str, facts: &'static str, want: &str) -> (i32, String, Value) {
    let conn = enter(t, &AuthName::parse(&format!("client.host.{name}")).unwrap());
    told(t, conn, json!({ "prefix": "host report", "name": name, "want": want }), facts)
}

#[test]
fn token_admits_as_many_hosts_as_it_has_uses_and_a_repeat_counts_once() {
    let mut t = TestMon::fresh();
    let token = new_token(&mut t, json!({ "uses": 2 }));
    let (code, said, first) = register(&mut t, &token, &applicant("one", 1));
    assert_eq!((code, &*said, &first["name"]), (0, "", &json!("one")));
    assert!(first["keyring"].as_str().unwrap().starts_with("[client.host.one]\n\tkey = "));
    // The answer was lost, or the join was interrupted: the host gets the same again.
    let mut again = register(&mut t, &token, &applicant("one", 1)).2;
    again["time"] = first["time"].clone();
    assert_eq!(again, first);
    assert_eq!(register(&mut t, &token, &applicant("two", 2)).0, 0);
    let (code, said, _) = register(&mut t, &token, &applicant("three", 3));
    assert_eq!(code, -13);
    assert!(said.contains("used up by 2 hosts") && said.contains("nacre token new"), "{said}");
    t = t.restart();
    assert_eq!(register(&mut t, &token, &applicant("three", 3)).0, -13);
    assert_eq!(register(&mut t, &token, &applicant("two", 2)).0, 0, "a finished host may ask again");
    assert_eq!(t.json(json!({ "prefix": "token ls" }))[0]["uses_left"], 0);
    assert_eq!(t.json(json!({ "prefix": "host ls" })).as_array().unwrap().len(), 2);
}

#[test]
fn failed_registration_does_not_use_a_token_up() {
    let mut t = TestMon::fresh();
    let token = new_token(&mut t, json!({}));
    for (bad, code, text) in [
        (json!({ "name": "a b" }), -22, "cannot be the name of a host"),
        (json!({ "addr": "0.0.0.0" }), -22, "not an address"),
        (json!({ "location": ["rack"] }), -22, "no location"),
        (json!({ "location": ["cupboard=3"] }), -22, "no location"),
        (json!({ "name": "default" }), -22, "something else called default"),
    ] {
        let mut host = applicant("one", 1);
        bad.as_object().unwrap().iter().for_each(|(key, value)| host[key] = value.clone());
        let (have, said, _) = register(&mut t, &token, &host);
        assert!(have == code && said.contains(text), "{bad}: {have} {said}");
    }
    assert_eq!(register(&mut t, &token, &applicant("one", 1)).0, 0);
}

#[test]
fn expired_and_removed_tokens_admit_no_host() {
    let mut t = TestMon::fresh();
    let short = new_token(&mut t, json!({ "ttl": 60, "uses": 9 }));
    let long = new_token(&mut t, json!({ "ttl": 0, "uses": 9, "id": "keep" }));
    assert_eq!((short.expires.is_some(), long.expires), (true, None));
    assert_eq!(register(&mut t, &short, &applicant("one", 1)).0, 0);
    t.pass(Duration::from_secs(61));
    let (code, said, _) = register(&mut t, &short, &applicant("two", 2));
    assert!(code == -13 && said.contains("expired at"), "{said}");
    assert_eq!(register(&mut t, &long, &applicant("two", 2)).0, 0);
    // A command that is sent again gives the same token.
    assert_eq!(new_token(&mut t, json!({ "id": "keep", "ttl": 0, "uses": 9 })), long);
    t.run(json!({ "prefix": "token rm", "id": "keep" }));
    let (code, said, _) = register(&mut t, &long, &applicant("three", 3));
    assert!(code == -13, "{said}");
}

#[test]
fn entity_of_a_token_may_only_register_and_an_agent_speaks_for_its_own_host() {
    let mut t = TestMon::fresh();
    let token = new_token(&mut t, json!({ "uses": 2 }));
    register(&mut t, &token, &applicant("one", 1));
    register(&mut t, &token, &applicant("two", 2));
    let conn = enter(&mut t, &token.entity);
    for words in ["status", "osd dump", "mon dump", "auth ls", "token ls", "host ls", "osd new", "token new"]
    {
        assert_eq!(told(&mut t, conn, json!({ "prefix": words }), "").0, -13, "{words}");
    }
    assert_eq!(report(&mut t, "one", "", "").0, 0);
    let one = AuthName::parse("client.host.one").unwrap();
    let conn = enter(&mut t, &one);
    let (code, said, _) = told(&mut t, conn, json!({ "prefix": "host report", "name": "two" }), "");
    assert!(code == -13 && said.contains("not the agent of host two"), "{said}");
    for words in ["auth ls", "token new", "osd pool create", "host register"] {
        assert_eq!(told(&mut t, conn, json!({ "prefix": words }), "").0, -13, "{words}");
    }
    let uuid = "55111111-1111-1111-1111-111111111111";
    assert_eq!(told(&mut t, conn, json!({ "prefix": "osd new", "uuid": uuid }), "").0, 0);
}

#[test]
fn second_host_of_a_name_is_refused_unless_it_is_on_the_same_machine() {
    let mut t = TestMon::fresh();
    let token = new_token(&mut t, json!({ "uses": 9 }));
    register(&mut t, &token, &applicant("one", 1));
    let mut twin = applicant("one", 2);
    let (code, said, _) = register(&mut t, &token, &twin);
    assert!(code == -17 && said.contains("a host one at 10.0.0.1 already"), "{said}");
    twin["machine"] = json!("boot1");
    assert_eq!(register(&mut t, &token, &twin).2["name"], "one-2");
    let mut third = applicant("one", 3);
    third["machine"] = json!("boot1");
    third["exact"] = json!(true);
    assert_eq!(register(&mut t, &token, &third).0, -17);
    third["name"] = json!("three");
    third["addr"] = json!("10.0.0.1:3300");
    let (code, said, _) = register(&mut t, &token, &third);
    assert!(code == -17 && said.contains("10.0.0.1:3300 is the address of host one"), "{said}");
}

#[test]
fn third_host_makes_three_monitors_in_different_racks() {
    let mut t = TestMon::fresh();
    let token = new_token(&mut t, json!({ "uses": 9 }));
    let in_rack = |name: &str, n: u8, rack: &str| {
        let mut host = applicant(name, n);
        host["location"] = json!([format!("rack={rack}")]);
        host
    };
    // The first host has the first monitor.
    let mut first = in_rack("one", 1, "r1");
    first["addr"] = json!("127.0.0.1:3300");
    register(&mut t, &token, &first);
    assert_eq!(register(&mut t, &token, &in_rack("two", 2, "r1")).1, "");
    t.pass(Duration::from_secs(2));
    let monitor = |t: &mut TestMon, name: &str| report(t, name, "", "").2["monitor"]["name"].clone();
    assert_eq!(monitor(&mut t, "one"), "a");
    assert_eq!(monitor(&mut t, "two"), Value::Null, "two monitors would not survive more than one does");
    let only_osds = new_token(&mut t, json!({ "roles": ["osd"] }));
    register(&mut t, &only_osds, &in_rack("three", 3, "r2"));
    t.pass(Duration::from_secs(2));
    assert_eq!(monitor(&mut t, "two"), Value::Null);
    register(&mut t, &token, &in_rack("five", 5, "r2"));
    register(&mut t, &token, &in_rack("four", 4, "r1"));
    t.pass(Duration::from_secs(2));
    let (code, said, five) = report(&mut t, "five", "", "monitor");
    assert_eq!((code, &*said), (0, ""));
    let five = five["monitor"].clone();
    let have = ["two", "three", "four", "five"].map(|name| monitor(&mut t, name));
    assert_eq!(have, [json!("two"), Value::Null, Value::Null, json!("five")]);
    assert_eq!((&five["name"], &five["members"][0]["addr"]), (&json!("five"), &json!("127.0.0.1:3300")));
    let tree = t.json(json!({ "prefix": "host show", "name": "five" }));
    assert_eq!(tree["location"], json!({ "rack": "r2", "root": "default" }));
}

#[test]
fn facts_of_a_host_are_kept_and_its_absence_is_seen() {
    let mut t = TestMon::fresh();
    let token = new_token(&mut t, json!({}));
    register(&mut t, &token, &applicant("one", 1));
    report(&mut t, "one", r#"{ "kernel": "6.1", "daemons": "[{\"name\":\"osd.0\"}]" }"#, "");
    t = t.restart();
    let show = |t: &mut TestMon| t.json(json!({ "prefix": "host show", "name": "one" }));
    let host = show(&mut t);
    assert_eq!((&host["facts"]["kernel"], &host["daemons"][0]["name"]), (&json!("6.1"), &json!("osd.0")));
    report(&mut t, "one", r#"{ "kernel": "" }"#, "");
    assert_eq!(show(&mut t)["facts"], json!({}));
    assert_eq!(show(&mut t)["status"], "");
    t.pass(Duration::from_secs(300));
    assert_eq!(show(&mut t)["status"], "offline");
    report(&mut t, "one", "", "");
    assert_eq!(show(&mut t)["status"], "");
    let gone = json!({ "prefix": "host report", "name": "none" });
    assert_eq!(t.command(gone).0, -2);
}

/// Boots an OSD on each of three hosts.
fn three_hosts(t: &mut TestMon) -> Vec<ConnId> {
    let token = new_token(t, json!({ "uses": 3 }));
    let hosts = ["one", "two", "three"];
    for (n, name) in (1..).zip(hosts) {
        register(t, &token, &applicant(name, n));
    }
    (0..).zip(hosts).map(|(osd, host)| boot_on(t, osd, host)).collect()
}

fn domain(t: &TestMon) -> i32 {
    t.map().crush.rules[0].as_ref().unwrap().steps[1].arg2
}

#[test]
fn copies_go_to_different_hosts_from_the_third_host_on() {
    let mut t = TestMon::fresh();
    assert_eq!(domain(&t), 0);
    three_hosts(&mut t);
    t.pass(Duration::from_secs(6));
    assert_eq!(domain(&t), 1);
    let pool = t.create_pool("p", 8);
    let map = t.map();
    assert!(map.pgs(pool).all(|pg| map.pg_to_up_acting(pg).up.len() == 3));
}

#[test]
fn data_is_not_moved_when_the_third_host_joins() {
    let mut t = TestMon::fresh();
    let pool = t.create_pool("p", 8);
    let mut osds = hosts_in_racks(&mut t, &["", "", ""]);
    osds.push(boot_on(&mut t, 3, "h0"));
    t.pass(Duration::from_secs(6));
    assert_eq!(domain(&t), 0, "the pool has not reported yet whether it is empty");
    t.activate(&osds, pool);
    t.report(&osds, pool);
    t.pass(Duration::from_secs(2));
    assert_eq!(domain(&t), 0);
    let lines = t.run(json!({ "prefix": "log last" }));
    assert!(lines.contains("`nacre placement failure-domain host`"), "{lines}");
    // The warning stays until the administrator has decided.
    assert_eq!(
        health(&mut t)["POOL_FAILURE_DOMAIN"]["detail"][0]["message"],
        "pool p: there are 3 hosts, and copies may share one. `nacre placement failure-domain host` says how much data \
         moves if each copy is to be on another host",
    );
}

#[test]
fn copies_that_are_on_different_hosts_stay_there_also_with_data() {
    let mut t = TestMon::fresh();
    let pool = t.create_pool("p", 8);
    let osds = three_hosts(&mut t);
    t.activate(&osds, pool);
    t.report(&osds, pool);
    t.pass(Duration::from_secs(6));
    assert_eq!(domain(&t), 1);
}

#[test]
fn failure_domain_waits_for_a_host_for_each_copy() {
    let mut t = TestMon::fresh();
    t.run(json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8, "size": 4 }));
    hosts_in_racks(&mut t, &["", "", ""]);
    boot_on(&mut t, 3, "h0");
    t.pass(Duration::from_secs(6));
    assert_eq!(domain(&t), 0);
    t.run(json!({ "prefix": "osd pool rm", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it": true }));
    t.pass(Duration::from_secs(2));
    assert_eq!(domain(&t), 1);
}

pub(super) fn boot_on(t: &mut TestMon, osd: i32, host: &str) -> ConnId {
    let port = 6900 + osd as u16;
    let conn = t.open(EntityType::Osd, osd.into(), addr(port, 1));
    let DaemonMsg::Boot(mut message) = boot(osd, port, 1) else { unreachable!("it is one") };
    message.host = host.to_string();
    t.send(conn, DaemonMsg::Boot(message));
    conn
}

fn health(t: &mut TestMon) -> Value {
    t.json(json!({ "prefix": "health", "detail": "detail" }))["checks"].clone()
}

fn failure_domain(t: &mut TestMon, kind: &str, yes: bool) -> (i32, String) {
    let words = json!({ "prefix": "placement failure-domain", "type": kind, "yes_i_really_mean_it": yes });
    let (code, said, out) = t.command(words);
    (code, said + &out)
}

/// Boots an OSD on each of several hosts, which are in these racks, or in none.
pub(super) fn hosts_in_racks(t: &mut TestMon, racks: &[&str]) -> Vec<ConnId> {
    let token = new_token(t, json!({ "uses": racks.len() }));
    let mut conns = Vec::new();
    for (n, rack) in racks.iter().enumerate() {
        let name = format!("h{n}");
        let mut host = applicant(&name, n as u8 + 1);
        if !rack.is_empty() {
            host["location"] = json!([format!("rack={rack}")]);
        }
        assert_eq!(register(t, &token, &host).0, 0);
        conns.push(boot_on(t, n as i32, &name));
    }
    conns
}

#[test]
fn failure_domain_grows_to_hosts_when_told_and_says_how_much_moves() {
    let mut t = TestMon::fresh();
    let pool = t.create_pool("p", 32);
    let mut osds = hosts_in_racks(&mut t, &["", "", ""]);
    osds.push(boot_on(&mut t, 3, "h0"));
    t.activate(&osds, pool);
    let (code, said) = failure_domain(&mut t, "host", false);
    assert!(code == -1 && said.contains("32 placement groups have not reported"), "{said}");
    t.report(&osds, pool);
    t.pass(Duration::from_secs(6));
    let before = t.map();
    let (code, said) = failure_domain(&mut t, "host", false);
    let both = |map: &OsdMap, pg| {
        let up = map.pg_to_up_acting(pg).up;
        up.contains(&OsdId(0)) && up.contains(&OsdId(3))
    };
    // 8 KiB each; those with two copies on the first host have one of them moved, others may have.
    let shared = before.pgs(pool).filter(|pg| both(&before, *pg)).count();
    assert!(shared > 0 && code == -1, "{said}");
    assert!(said.contains(" of 768 KiB (") && said.contains("Confirm with --yes"), "{said}");
    assert_eq!(domain(&t), 0);
    let (code, said) = failure_domain(&mut t, "host", true);
    assert!(code == 0 && said.contains("is to be on another host"), "{said}");
    let after = t.map();
    assert_eq!((domain(&t), after.pgs(pool).filter(|pg| both(&after, *pg)).count()), (1, 0));
    let new = |pg| {
        let old = before.pg_to_up_acting(pg).up;
        after.pg_to_up_acting(pg).up.into_iter().filter(|osd| !old.contains(osd)).count()
    };
    let moved: usize = before.pgs(pool).map(new).sum();
    assert!(said.contains(&format!("{} KiB of 768 KiB", moved * 8)), "{moved}: {said}");
    assert_eq!(health(&mut t)["POOL_FAILURE_DOMAIN"], Value::Null);
    let show = t.json(json!({ "prefix": "placement show" }));
    assert_eq!((&show["failure_domain"], &show["pools"]), (&json!("host"), &json!(["p"])));
    assert_eq!(
        failure_domain(&mut t, "host", true),
        (0, "Each copy is on another host already.\n".to_string())
    );
}

#[test]
fn failure_domain_without_a_place_for_all_copies_is_refused() {
    let mut t = TestMon::fresh();
    hosts_in_racks(&mut t, &["r1", "r1", "r2", "r2"]);
    t.pass(Duration::from_secs(6));
    let (code, said) = failure_domain(&mut t, "rack", true);
    assert!(code == -16 && said.contains("2 racks have OSDs that are in"), "{said}");
    t.run(json!({ "prefix": "config set", "who": "global", "name": "osd_pool_default_size", "value": "2" }));
    t.run(json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8, "size": 3 }));
    let (code, said) = failure_domain(&mut t, "rack", true);
    assert!(code == -16 && said.contains("pool 'p' has size 3") && said.contains("2 racks"), "{said}");
    assert_eq!(domain(&t), 1);
    let (code, said) = failure_domain(&mut t, "cupboard", true);
    assert!(code == -22 && said.contains("is no kind of bucket"), "{said}");
}

#[test]
fn racks_are_proposed_when_hosts_share_them_and_all_hosts_are_in_one() {
    let mut t = TestMon::fresh();
    let osds = hosts_in_racks(&mut t, &["r1", "r2", "r3", ""]);
    t.pass(Duration::from_secs(6));
    assert_eq!(domain(&t), 1, "no pool has data");
    let pool = t.create_pool("p", 8);
    t.activate(&osds, pool);
    t.report(&osds, pool);
    let checks = health(&mut t);
    assert_eq!(checks["HOST_NOT_IN_RACK"]["summary"]["message"], "1 host is in no rack, and others are");
    assert_eq!(checks["POOL_FAILURE_DOMAIN"], Value::Null);
    t.run(json!({ "prefix": "host set-location", "hostname": "h3", "location": ["rack=r1"] }));
    let checks = health(&mut t);
    assert_eq!(checks["HOST_NOT_IN_RACK"], Value::Null);
    assert_eq!(checks["POOL_FAILURE_DOMAIN"]["summary"]["message"], "Copies of 1 pool may be on one rack");
    assert_eq!(checks["RACK_TOO_LARGE"], Value::Null, "one of three racks always holds more than 30 %");
    assert_eq!(failure_domain(&mut t, "rack", true).0, 0);
    assert_eq!((domain(&t), &health(&mut t)["POOL_FAILURE_DOMAIN"]), (3, &Value::Null));
    t.run(json!({ "prefix": "osd pool set", "pool": "p", "var": "size", "val": "2" }));
    let back = failure_domain(&mut t, "host", true);
    assert!(back.0 == 0 && domain(&t) == 1, "{back:?}");
}

#[test]
fn rack_that_holds_more_than_three_tenths_of_four_is_a_warning() {
    let mut t = TestMon::fresh();
    hosts_in_racks(&mut t, &["r1", "r1", "r2", "r3", "r4"]);
    let check = health(&mut t)["RACK_TOO_LARGE"].clone();
    assert_eq!(check["summary"]["message"], "1 rack holds more than 30% of the weight");
    let line = check["detail"][0]["message"].as_str().unwrap();
    assert!(
        line.starts_with("rack r1 holds 40.0% of the weight below 'default', which has 4 racks"),
        "{line}"
    );
    t.run(json!({ "prefix": "health mute", "code": "RACK_TOO_LARGE" }));
    assert_eq!(t.json(json!({ "prefix": "health" }))["mutes"][0]["code"], "RACK_TOO_LARGE");
    t.run(json!({ "prefix": "host set-location", "hostname": "h1", "location": ["rack=r5"] }));
    assert_eq!(health(&mut t)["RACK_TOO_LARGE"], Value::Null);
}

#[test]
fn exceptions_of_the_old_rule_end_with_its_failure_domain() {
    let mut t = TestMon::fresh();
    hosts_in_racks(&mut t, &["r1", "r2", "r3", "r1"]);
    t.pass(Duration::from_secs(6));
    let pool = t.create_pool("p", 8);
    let pg = PgId { pool, seed: 0 };
    t.run(json!({ "prefix": "osd pg-upmap", "pgid": pg.to_string(), "id": ["osd.0", "osd.3", "osd.1"] }));
    assert!(t.map().pg_upmap.contains_key(&pg));
    assert_eq!(failure_domain(&mut t, "rack", true).0, 0);
    let map = t.map();
    assert!(map.pg_upmap.is_empty());
    let up = map.pg_to_up_acting(pg).up;
    assert!(up.contains(&OsdId(0)) != up.contains(&OsdId(3)), "{up:?}");
}

fn are_in(t: &TestMon) -> [bool; 3] {
    [0, 1, 2].map(|osd| t.map().is_in(OsdId(osd)))
}

#[test]
fn drained_host_holds_no_data_and_its_monitor_is_placed_elsewhere() {
    let mut t = TestMon::fresh();
    let token = new_token(&mut t, json!({ "uses": 1 }));
    three_hosts(&mut t);
    t.pass(Duration::from_secs(2));
    register(&mut t, &token, &applicant("four", 4));
    let monitors = |t: &TestMon| {
        let hosts = &t.mon.state.as_ref().unwrap().hosts.hosts;
        hosts
            .iter()
            .filter(|(_, host)| host.monitor.is_some())
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    // The cluster began without hosts, so all three monitors of hosts are new.
    assert_eq!(monitors(&t), ["one", "three", "two"]);
    let said = t.run(json!({ "prefix": "host drain", "hostname": "two" }));
    assert!(said.contains("`ceph osd safe-to-destroy 1` succeeds"), "{said}");
    assert_eq!(are_in(&t), [true, false, true]);
    t.pass(Duration::from_secs(2));
    assert_eq!(monitors(&t), ["four", "one", "three", "two"]);
    assert_eq!(t.json(json!({ "prefix": "host show", "name": "two" }))["status"], "drained");
    t.run(json!({ "prefix": "host undrain", "hostname": "two" }));
    assert_eq!(are_in(&t), [true; 3]);
}

#[test]
fn maintenance_keeps_osds_in_until_it_ends_by_itself_or_by_command() {
    let mut t = TestMon::fresh();
    three_hosts(&mut t);
    let noout = |t: &TestMon| t.map().osds.iter().map(|osd| osd.has(osd_state::NOOUT)).collect::<Vec<_>>();
    let runs = |t: &mut TestMon| report(t, "two", "", "").2["run"] == true;
    let enter = |t: &mut TestMon, seconds: u64| {
        t.run(json!({ "prefix": "host maintenance enter", "hostname": "two", "seconds": seconds }))
    };
    enter(&mut t, 60);
    assert_eq!((noout(&t), runs(&mut t)), (vec![false, true, false], false));
    t = t.restart();
    assert!(!runs(&mut t));
    t.run(json!({ "prefix": "orch host maintenance exit", "hostname": "two" }));
    assert_eq!((noout(&t), runs(&mut t)), (vec![false; 3], true));
    enter(&mut t, 60);
    t.pass(Duration::from_secs(62));
    assert_eq!((noout(&t), runs(&mut t)), (vec![false; 3], true));
}

#[test]
fn noout_that_an_administrator_set_outlives_a_maintenance() {
    let mut t = TestMon::fresh();
    three_hosts(&mut t);
    boot_on(&mut t, 3, "two");
    t.run(json!({ "prefix": "osd add-noout", "ids": ["1"] }));
    let noout = |t: &TestMon| t.map().osds.iter().map(|osd| osd.has(osd_state::NOOUT)).collect::<Vec<_>>();
    for _ in 0..2 {
        // The second one extends it.
        t.run(json!({ "prefix": "host maintenance enter", "hostname": "two", "seconds": 60 }));
        assert_eq!(noout(&t), [false, true, false, true]);
    }
    t = t.restart();
    t.run(json!({ "prefix": "host maintenance exit", "hostname": "two" }));
    assert_eq!(noout(&t), [false, true, false, false]);
}

#[test]
fn host_whose_daemons_are_about_to_stop_counts_as_stopped() {
    let mut t = TestMon::fresh();
    let osds = three_hosts(&mut t);
    t.pass(Duration::from_secs(6));
    let pool = t.create_pool("p", 8);
    t.activate(&osds, pool);
    t.report(&osds, pool);
    let maintain = |t: &mut TestMon, host: &str| {
        t.command(json!({ "prefix": "host maintenance enter", "hostname": host })).0
    };
    let order = |t: &mut TestMon, action: &str, osd: &str| {
        t.command(json!({ "prefix": "orch daemon", "action": action, "name": osd })).0
    };
    let ok_to_stop =
        |t: &mut TestMon, osd: &str| t.command(json!({ "prefix": "osd ok-to-stop", "ids": [osd] })).0;
    assert_eq!([maintain(&mut t, "one"), ok_to_stop(&mut t, "0")], [0, 0]);
    // The OSD of the first host is up still.
    assert!(t.map().is_up(OsdId(0)));
    assert_eq!(
        [maintain(&mut t, "two"), ok_to_stop(&mut t, "1"), order(&mut t, "restart", "osd.2")],
        [-16; 3]
    );
    t.run(json!({ "prefix": "host maintenance exit", "hostname": "one" }));
    assert_eq!(
        [order(&mut t, "stop", "osd.2"), order(&mut t, "stop", "osd.1"), maintain(&mut t, "two")],
        [0, -16, -16]
    );
    // The agent of its host has done that.
    let conn = enter(&mut t, &AuthName::parse("client.host.three").unwrap());
    told(&mut t, conn, json!({ "prefix": "host report", "name": "three", "done": 1 }), "");
    assert_eq!(maintain(&mut t, "two"), 0);
}

/// Hosts `a`, `b` and `c`, each with the monitor of its name.
fn three_hosts_with_monitors() -> Group {
    let mut group = Group::of(3);
    group.pass(10_000);
    for (n, name) in ["a", "b", "c"].iter().enumerate() {
        let mut host = applicant(name, n as u8 + 1);
        host["prefix"] = json!("host register");
        host["addr"] = json!(format!("127.0.0.1:{}", 3300 + n));
        assert_eq!(group.run(host).0, 0);
    }
    group
}

#[test]
fn monitor_whose_host_is_about_to_stop_counts_as_stopped() {
    let mut group = three_hosts_with_monitors();
    let mut enter = |host: &str| group.run(json!({ "prefix": "host maintenance enter", "hostname": host }));
    assert_eq!(enter("a").0, 0);
    let (code, said) = enter("b");
    assert!(code == -16 && said.contains("would have no majority"), "{said}");
}

#[test]
fn lost_host_is_removed_with_its_osds_and_key() {
    let mut t = TestMon::fresh();
    let osds = three_hosts(&mut t);
    t.pass(Duration::from_secs(2));
    let rm = |words: Value| {
        let mut command = json!({ "prefix": "host rm", "hostname": "two" });
        words.as_object().unwrap().iter().for_each(|(key, value)| command[key] = value.clone());
        command
    };
    let (code, said, _) = t.command(rm(json!({})));
    assert!(code == -16 && said.contains("`nacre leave` on that host"), "{said}");
    let lost = json!({ "offline": true, "yes_i_really_mean_it": true });
    assert_eq!(t.command(rm(json!({ "offline": true }))).0, -1);
    let (code, said, _) = t.command(rm(lost.clone()));
    assert!(code == -16 && said.contains("osd.1 is up"), "{said}");
    t.event(Event::Closed { conn: osds[1], why: Closed::Reset });
    t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
    let said = t.run(rm(lost));
    assert_eq!(said, "Removed host two with osd 1\n");
    assert!(!t.map().exists(OsdId(1)) && t.map().crush.item_by_name("two").is_none());
    assert_eq!(t.command(json!({ "prefix": "auth get-key", "entity": "client.host.two" })).0, -2);
    assert_eq!(t.json(json!({ "prefix": "orch host ls" })).as_array().unwrap().len(), 2);
    // It may come back as another host.
    let token = new_token(&mut t, json!({}));
    assert_eq!(register(&mut t, &token, &applicant("two", 9)).0, 0);
}

#[test]
fn host_leaves_when_its_osds_are_not_needed() {
    let mut t = TestMon::fresh();
    let osds = three_hosts(&mut t);
    let agent = AuthName::parse("client.host.three").unwrap();
    let leave = |t: &mut TestMon, name: &str, stage: &str| {
        let conn = enter(t, &agent);
        told(t, conn, json!({ "prefix": "host leave", "hostname": name, "stage": stage }), "")
    };
    assert_eq!(leave(&mut t, "one", "drain").0, -13, "an agent speaks for its own host");
    assert_eq!(leave(&mut t, "three", "drain").2, json!({ "osds": [2] }));
    assert_eq!(leave(&mut t, "three", "finish").0, -16, "its OSD is up");
    t.event(Event::Closed { conn: osds[2], why: Closed::Reset });
    t.run(json!({ "prefix": "osd down", "ids": ["2"] }));
    assert_eq!(leave(&mut t, "three", "finish").0, 0);
    assert!(!t.map().exists(OsdId(2)));
    assert_eq!(t.json(json!({ "prefix": "host ls" })).as_array().unwrap().len(), 2);
}

#[test]
fn labels_and_places_of_hosts_change() {
    let mut t = TestMon::fresh();
    three_hosts(&mut t);
    t.run(json!({ "prefix": "host label add", "hostname": "one", "label": "fast" }));
    t.run(json!({ "prefix": "orch host label add", "hostname": "two", "label": "fast" }));
    t.run(json!({ "prefix": "host set-location", "hostname": "one", "location": ["rack=r7"] }));
    let one = t.json(json!({ "prefix": "host show", "name": "one" }));
    assert_eq!((&one["labels"], &one["location"]["rack"]), (&json!(["fast"]), &json!("r7")));
    let fast = t.json(json!({ "prefix": "orch host ls", "label": "fast" }));
    assert_eq!(fast[1], json!({ "hostname": "two", "addr": "10.0.0.2", "labels": ["fast"], "status": "" }));
    t.run(json!({ "prefix": "host label rm", "hostname": "one", "label": "fast" }));
    assert_eq!(t.command(json!({ "prefix": "host label rm", "hostname": "one", "label": "fast" })).0, -2);
    let daemons = r#"{ "daemons": "[{\"name\":\"osd.0\",\"state\":\"running\",\"memory\":3145728}]" }"#;
    report(&mut t, "one", daemons, "");
    let ps = t.json(json!({ "prefix": "orch ps", "hostname": "one" }));
    assert_eq!((&ps[0]["daemon_name"], &ps[0]["status"]), (&json!("osd.0"), &json!(1)));
    assert_eq!(ps[0]["memory_usage"], 3 << 20);
    let ps = t.run(json!({ "prefix": "orch ps" }));
    assert!(ps.contains("MEM USE") && ps.contains("3 MiB"), "{ps}");
    assert_eq!(t.json(json!({ "prefix": "orch status" }))["available"], true);
    let ls = t.json(json!({ "prefix": "orch ls" }));
    assert_eq!((&ls[0]["service_name"], &ls[0]["status"]["running"]), (&json!("osd"), &json!(1)));
    let upgrade: Value = serde_json::from_str(&t.run(json!({ "prefix": "orch upgrade status" }))).unwrap();
    assert_eq!(upgrade["in_progress"], false);
    t.run(json!({ "prefix": "orch host ok-to-stop", "hostname": "two" }));
    let (code, said, _) = t.command(json!({ "prefix": "orch host add", "hostname": "five" }));
    assert!(code == -95 && said.contains("nacre token new"), "{said}");
    let (code, said, _) = t.command(json!({ "prefix": "orch apply", "args": ["mon", "3"] }));
    assert!(code == -95 && said.contains("no specifications of services"), "{said}");
}

#[test]
fn host_with_the_disk_of_an_osd_gets_its_identity_unless_it_runs() {
    let mut t = TestMon::fresh();
    let osds = three_hosts(&mut t);
    let uuid = "02020202-0202-0202-0202-020202020202"; // of osd.1
    let key = "AQDQjwBrERI2MBAAKeVq3JrjKEFzKUQUolM8CQ==";
    t.run(json!({ "prefix": "auth get-or-create", "entity": "osd.1", "caps": ["osd", "allow *"] }));
    let have = t.run(json!({ "prefix": "auth get-key", "entity": "osd.1" }));
    assert_ne!(have, key);
    let agent = AuthName::parse("client.host.three").unwrap();
    let ask = |t: &mut TestMon, uuid: &str| {
        let conn = enter(t, &agent);
        told(t, conn, json!({ "prefix": "host osd", "name": "three", "uuid": uuid }), "")
    };
    let (code, said, _) = ask(&mut t, uuid);
    assert!(code == -16 && said.contains("osd.1 is up"), "{said}");
    t.event(Event::Closed { conn: osds[1], why: Closed::Reset });
    t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
    assert_eq!(ask(&mut t, uuid).0, -11, "the host did not report the disk");
    let disk = json!({ "path": "/dev/vdb", "store": uuid });
    let facts = json!({ "devices": json!([disk]).to_string() }).to_string();
    assert_eq!(report(&mut t, "three", facts.leak(), "").0, 0);
    assert_eq!(ask(&mut t, uuid).2, json!({ "osdid": 1, "key": have }));
    assert_eq!(ask(&mut t, "09090909-0202-0202-0202-020202020202").0, -2);
    assert_eq!(ask(&mut t, "00000000-0000-0000-0000-000000000000").0, -22);
}

/// The monitor of the host was removed, and then the command refused.
#[test]
fn refused_removal_of_a_host_leaves_its_monitor() {
    let mut group = monitors::Group::of(3);
    group.pass(10_000);
    let leader = group.leader();
    let follower = (leader + 1) % 3;
    let mut host = applicant("one", 1);
    host["addr"] = json!(format!("127.0.0.1:{}", 3300 + follower));
    host["prefix"] = json!("host register");
    group.mons[leader].run_later(host);
    group.pass(1000);
    let conn = group.mons[leader].open(EntityType::Osd, 0, addr(6900, 1));
    let DaemonMsg::Boot(mut message) = boot(0, 6900, 1) else { unreachable!("it is one") };
    message.host = "one".to_string();
    group.mons[leader].send(conn, DaemonMsg::Boot(message));
    group.pass(1000);
    let state = |group: &monitors::Group| {
        let state = group.mons[leader].mon.state.as_ref().unwrap();
        let monitor = state.hosts.hosts["one"].monitor.is_some();
        (monitor, state.monmap.map.mons.len(), state.osdmap.map.is_up(OsdId(0)))
    };
    assert_eq!(state(&group), (true, 3, true));
    group.mons[leader].run_later(json!({
        "prefix": "host rm", "hostname": "one", "offline": true, "yes_i_really_mean_it": true,
    }));
    group.pass(3000);
    assert_eq!(state(&group), (true, 3, true));
}

#[test]
fn facts_of_a_host_are_limited_however_many_reports_bring_them() {
    let mut t = TestMon::fresh();
    let token = new_token(&mut t, json!({}));
    let mut long = applicant("one", 1);
    long["machine"] = json!("m".repeat(200));
    assert_eq!(register(&mut t, &token, &long).0, -22);
    register(&mut t, &token, &applicant("one", 1));
    let bring = |t: &mut TestMon, n: usize| {
        let facts = json!({ format!("fact{n}"): "x".repeat(100_000) }).to_string();
        report(t, "one", facts.leak(), "").0
    };
    assert_eq!([1, 2, 2, 3].map(|n| bring(&mut t, n)), [0, 0, 0, -7]);
}

#[test]
fn keys_of_hosts_and_tokens_are_of_the_preferred_kind() {
    let mut t = TestMon::fresh();
    for (name, value) in [
        ("auth_allowed_ciphers", "aes,aes256k"),
        ("auth_preferred_cipher", "aes256k"),
        ("auth_allowed_ciphers", "aes256k"),
    ] {
        let set = json!({ "prefix": "mon set", "name": name, "value": value });
        let (code, said, _) = t.command(set);
        assert!(code == 0, "{name} {value}: {said}");
    }
    let token = new_token(&mut t, json!({}));
    let (code, said, told) = register(&mut t, &token, &applicant("one", 1));
    assert!(code == 0 && told["keyring"].as_str().unwrap().contains("key = Ag"), "{said} {told}");
}

#[test]
fn undrained_host_has_the_reweights_that_it_had() {
    let mut t = TestMon::fresh();
    three_hosts(&mut t);
    t.run(json!({ "prefix": "osd reweight", "id": 1, "weight": 0.5 }));
    t.run(json!({ "prefix": "host drain", "hostname": "two" }));
    assert_eq!(t.map().weight(OsdId(1)), 0);
    t.run(json!({ "prefix": "host undrain", "hostname": "two" }));
    assert_eq!(t.map().weight(OsdId(1)), 0x8000);
}

#[test]
fn existing_token_is_shown_again_but_not_changed() {
    let mut t = TestMon::fresh();
    let token = new_token(&mut t, json!({ "id": "a", "uses": 2 }));
    assert_eq!(new_token(&mut t, json!({ "id": "a" })), token);
    for words in [json!({ "uses": 3 }), json!({ "ttl": 7200 }), json!({ "roles": ["osd"] })] {
        let mut command = json!({ "prefix": "token new", "id": "a" });
        words.as_object().unwrap().iter().for_each(|(key, value)| command[key] = value.clone());
        let (code, said, _) = t.command(command);
        assert!(code == -17 && said.contains("token rm a"), "{words}: {said}");
    }
}

#[test]
fn lists_of_the_orchestrator_take_their_filters() {
    let mut t = TestMon::fresh();
    three_hosts(&mut t);
    for (name, daemons) in [
        (
            "one",
            r#"{ "daemons": "[{\"name\":\"osd.0\",\"state\":\"running\"},{\"name\":\"mon.one\",\"state\":\"running\"}]" }"#,
        ),
        ("two", r#"{ "daemons": "[{\"name\":\"osd.1\",\"state\":\"stopped\"}]" }"#),
    ] {
        assert_eq!(report(&mut t, name, daemons, "").0, 0);
    }
    let names = |t: &mut TestMon, mut command: Value, key: &str| {
        command["format"] = json!("json");
        let rows = t.json(command);
        rows.as_array().unwrap().iter().map(|row| row[key].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let ps = json!({ "prefix": "orch ps", "service_name": "osd" });
    assert_eq!(names(&mut t, ps, "daemon_name"), ["osd.0", "osd.1"]);
    let ls = json!({ "prefix": "orch ls", "service_type": "mon" });
    assert_eq!(names(&mut t, ls, "service_name"), ["mon"]);
    let specs = t.run(json!({ "prefix": "orch ls", "export": true }));
    assert!(
        specs.starts_with("service_type: mon\nservice_name: mon\nplacement:\n  count: 1\n---\n"),
        "{specs}"
    );
    for (pattern, expected) in [
        ("t*", &["three", "two"][..]),
        ("*o*", &["one", "two"]),
        ("t*r*e", &["three"]),
        ("o*e*e", &[]),
        ("two", &["two"]),
        ("tw", &[]),
    ] {
        let hosts = json!({ "prefix": "orch host ls", "host_pattern": pattern });
        assert_eq!(names(&mut t, hosts, "hostname"), expected, "{pattern}");
    }
    t.run(json!({ "prefix": "host maintenance enter", "hostname": "two", "force": true }));
    let hosts = json!({ "prefix": "orch host ls", "host_status": "maintenance" });
    assert_eq!(names(&mut t, hosts, "hostname"), ["two"]);
}

#[test]
fn second_monitor_stays_when_two_hosts_are_left() {
    let mut group = three_hosts_with_monitors();
    let lost = (group.leader() + 1) % 3;
    group.kill(lost);
    group.pass(10_000);
    let name = ["a", "b", "c"][lost];
    let rm = json!({
        "prefix": "host rm", "hostname": name, "offline": true, "yes_i_really_mean_it": true,
    });
    let (code, said) = group.run(rm);
    assert_eq!(code, 0, "{said}");
    group.pass(10_000);
    let left = group.members(group.leader());
    assert_eq!(left.len(), 2, "the second one has the only other copy of the state: {left:?}");
}
