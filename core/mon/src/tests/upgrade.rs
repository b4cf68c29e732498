//! The cluster's format, and rolling upgrades.

use super::monitors::Group;
use super::*;
use crate::services::pg::stopping::{ActingSets, stopping};
use crate::services::upgrade::{Upgrade, Upgrades};
use nacre_perf::Reading;
use nacre_proto::messages::CounterReport;
use nacre_proto::types::Release;
use std::collections::BTreeSet;

const OLD: Formats = Formats { min: 1, max: 1 };

fn release(version: &str, formats: Formats) -> Release {
    Release { version: version.to_string(), formats }
}

/// A monitor that has this release, with what it has stored.
fn with_release(store: Omaps, now: Now, seed: u64, release: Release) -> TestMon {
    let config = MonConfig { release, ..config(0, 1, seed) };
    let mut t = TestMon::start_with(config, store, now);
    if t.failure.is_none() {
        t.pass(Duration::from_secs(2));
    }
    t
}

fn old_cluster() -> TestMon {
    let now = TestMon::fresh().now;
    with_release(Omaps::default(), now, 7, release("0.0.9", OLD))
}

/// The same monitor with another release.
fn replaced(t: TestMon, release: Release) -> TestMon {
    with_release(t.store, t.now, t.config.seed + 1, release)
}

fn boot_with(t: &mut TestMon, osd: i32, nonce: u32, version: &str, formats: Option<Formats>) -> ConnId {
    let port = 6900 + osd as u16;
    let conn = t.open(EntityType::Osd, osd.into(), addr(port, nonce));
    let DaemonMsg::Boot(boot) = boot(osd, port, nonce) else { unreachable!("it is a boot") };
    let shown = formats.map(|formats| ("nacre_formats".to_string(), formats.to_string()));
    let version = ("nacre_version".to_string(), version.to_string());
    let metadata = shown.into_iter().chain([version]).collect();
    t.send(conn, DaemonMsg::Boot(OsdBoot { formats, metadata, ..boot }));
    // The old incarnation is marked down first.
    t.pass(Duration::from_millis(100));
    conn
}

fn says(t: &mut TestMon, prefix: &str) -> (i32, String) {
    let (code, said, out) = t.command(json!({ "prefix": prefix }));
    (code, said + &out)
}

fn health(t: &mut TestMon) -> Value {
    t.json(json!({ "prefix": "health", "detail": "detail" }))
}

#[test]
fn format_is_raised_only_when_every_daemon_can_use_it() {
    let mut t = old_cluster();
    boot_with(&mut t, 0, 1, "0.0.9", None);
    assert_eq!(t.mon.format(), 1);
    let mut t = replaced(t, release("0.1.0", Formats::ALL));
    assert_eq!(t.mon.format(), 1, "a newer monitor keeps the format");
    let (code, said) = says(&mut t, "upgrade finish");
    assert!(code == -16 && said.contains("cannot use format 3") && said.contains("osd.0"), "{said}");
    let status = t.json(json!({ "prefix": "upgrade status" }));
    assert_eq!((&status["format"], &status["newest_format"]), (&json!(1), &json!(3)));

    let conn = boot_with(&mut t, 0, 2, "0.1.0", Some(Formats::ALL));
    assert!(t.map().is_up(OsdId(0)));
    t.run(json!({ "prefix": "upgrade finish" }));
    assert_eq!(t.mon.format(), 3);
    assert!(t.run(json!({ "prefix": "upgrade finish" })).contains("there is no newer one"));
    assert_eq!(t.json(json!({ "prefix": "upgrade status" }))["past"][0]["format"], 3);
    // The OSD is told with its next report.
    t.received(conn);
    t.send(conn, DaemonMsg::Report(OsdReport { osd: Some(OsdId(0)), format: 1, ..OsdReport::default() }));
    let told = t.received(conn);
    assert!(told.contains(&DaemonMsg::Format { format: 3 }.into()), "{told:?}");
    t.send(conn, DaemonMsg::Report(OsdReport { osd: Some(OsdId(0)), format: 3, ..OsdReport::default() }));
    assert!(t.received(conn).is_empty());

    // It stays, and the old monitor cannot use it any more.
    let t = replaced(t, release("0.1.0", Formats::ALL));
    assert_eq!(t.mon.format(), 3);
    let t = replaced(t, release("0.0.9", OLD));
    let reason = t.failure.unwrap();
    let expected = "mon.a can use the formats 1 to 1, and the cluster has format 3: install a newer version";
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn osd_that_cannot_use_the_format_is_refused_and_named() {
    let mut t = TestMon::fresh();
    for (osd, formats) in [(0, None), (1, Some(OLD)), (2, Some(Formats { min: 4, max: 5 }))] {
        let conn = boot_with(&mut t, osd, 1, "0.0.9", formats);
        assert!(!t.map().exists(OsdId(osd)));
        let told: Vec<Message> = t.received(conn);
        // One that does not know of formats would not understand that.
        let expected = formats.map(|_| DaemonMsg::Format { format: 3 }.into());
        assert_eq!(told, expected.into_iter().collect::<Vec<Message>>());
    }
    let check = health(&mut t)["checks"]["INCOMPATIBLE_DAEMON"].clone();
    assert_eq!(check["summary"]["message"], "3 daemons cannot use the cluster's format");
    let detail = |n: usize| check["detail"][n]["message"].as_str().unwrap();
    assert!(detail(0).starts_with("osd.0 can use the formats 1 to 1, and the cluster has format 3: install"));
    assert!(detail(2).contains("its version is too new for this cluster"), "{check}");
    // With the right version it is let in.
    boot_with(&mut t, 0, 2, "0.1.0", Some(Formats::ALL));
    assert!(t.map().is_up(OsdId(0)));
    t.pass(Duration::from_secs(61));
    assert_eq!(health(&mut t)["checks"].get("INCOMPATIBLE_DAEMON"), None);
}

#[test]
fn monitor_that_cannot_use_the_format_is_refused_by_name() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let place = (group.leader() + 1) % 3;
    group.kill(place);
    group.pass(3000);
    let old = MonConfig { release: release("0.0.9", OLD), ..config(place, 3, 90) };
    group.mons[place] = TestMon::start_with(old, Omaps::default(), group.mons[place].now);
    group.revive(place);
    group.pass(5000);
    assert!(group.mons[place].mon.state.is_none(), "it learns nothing");
    let leader = group.leader();
    let name = ["a", "b", "c"][place];
    let check = health(&mut group.mons[leader])["checks"]["INCOMPATIBLE_DAEMON"].clone();
    let detail = check["detail"][0]["message"].as_str().unwrap();
    assert!(detail.starts_with(&format!("mon.{name} can use the formats 1 to 1")), "{check}");
    let said = &group.mons[place].logged;
    assert!(said.iter().any(|text| text.contains("is of a cluster that this one cannot be in")), "{said:?}");
    // It continues when it has the right version.
    group.mons[place] = TestMon::start_with(config(place, 3, 91), Omaps::default(), group.mons[place].now);
    group.kill(place);
    group.revive(place);
    group.pass(5000);
    assert_eq!(group.mons[leader].mon.quorum().len(), 3);
}

#[test]
fn format_is_not_raised_in_the_batch_in_which_an_old_osd_boots() {
    for boot_is_first in [true, false] {
        let mut t = replaced(old_cluster(), release("0.1.0", Formats::ALL));
        let osd = t.open(EntityType::Osd, 0, addr(6900, 1));
        let command = |t: &mut TestMon, words: Value| {
            let (conn, cmd) = (t.client(), vec![words.to_string()]);
            t.send(conn, MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() });
        };
        let DaemonMsg::Boot(boot) = boot(0, 6900, 1) else { unreachable!("it is a boot") };
        let boot = DaemonMsg::Boot(OsdBoot { formats: Some(OLD), ..boot });
        // The disk is slow: what comes after the first command is one batch.
        t.unheard = Some(Vec::new());
        command(&mut t, json!({ "prefix": "osd set", "key": "noout" }));
        if boot_is_first {
            t.send(osd, boot.clone());
        }
        command(&mut t, json!({ "prefix": "upgrade finish" }));
        if !boot_is_first {
            t.send(osd, boot);
        }
        let unheard = t.unheard.take().unwrap_or_default();
        unheard.into_iter().for_each(|event| t.event(event));
        t.pass(Duration::from_secs(1));
        let expected = if boot_is_first { (1, true) } else { (3, false) };
        assert_eq!((t.mon.format(), t.map().is_up(OsdId(0))), expected);
    }
}

#[test]
fn osd_that_is_up_and_cannot_use_the_format_is_named() {
    let mut t = TestMon::fresh();
    boot_with(&mut t, 0, 1, "0.1.0", Some(Formats::ALL));
    assert_eq!(health(&mut t)["checks"].get("INCOMPATIBLE_DAEMON"), None);
    let metadata = &mut t.mon.state.as_mut().unwrap().osdmap.metadata;
    metadata.get_mut(&OsdId(0)).unwrap().insert("nacre_formats".to_string(), OLD.to_string());
    let detail = health(&mut t)["checks"]["INCOMPATIBLE_DAEMON"]["detail"][0]["message"].to_string();
    assert!(detail.contains("osd.0 can use the formats 1 to 1, and the cluster has format 3"), "{detail}");
}

// ---- rolling upgrades ----

/// One monitor and three OSDs, each with a host of its own, and a pool with data.
struct Rolling {
    t: TestMon,
    osds: Vec<ConnId>,
    pool: PoolId,
    nonce: u32,
    /// Requests that each OSD has served, and the nanoseconds that they took.
    served: (u64, u64),
}

impl Rolling {
    fn new() -> Rolling {
        let mut t = old_cluster();
        let osds = (0..3).map(|osd| boot_with(&mut t, osd, 1, "0.0.9", Some(OLD))).collect();
        let mut rolling = Rolling { t, osds, pool: PoolId(1), nonce: 1, served: (0, 0) };
        let t = &mut rolling.t;
        let words = |host: usize| {
            let uuid = format!("0{host}111111-1111-1111-1111-111111111111");
            let addr = format!("10.0.0.{host}:3300");
            json!({ "prefix": "host register", "name": format!("h{host}"), "uuid": uuid, "addr": addr })
        };
        (0..3).for_each(|host| drop(t.run(words(host + 1))));
        rolling.pool = t.create_pool("p", 8);
        rolling.all_clean();
        rolling.report_hosts("0.0.9");
        rolling.t.pass(Duration::from_secs(15));
        rolling
    }
    /// An upgrade whose monitor is restarted, and that has just begun with the OSDs.
    fn at_osds() -> Rolling {
        Rolling::new().started().with_new_monitor()
    }
    fn started(mut self) -> Rolling {
        self.report_hosts("9.9");
        self.t.run(json!({ "prefix": "upgrade start", "ceph_version": "9.9" }));
        self.t.pass(Duration::from_secs(20));
        assert_eq!(self.report_hosts("9.9"), ["mon.a"]);
        self
    }
    fn with_new_monitor(self) -> Rolling {
        let mut r = Rolling { t: replaced(self.t, release("9.9", Formats::ALL)), ..self };
        for (osd, conn) in r.osds.iter_mut().enumerate() {
            *conn = r.t.open(EntityType::Osd, osd as i64, addr(6900 + osd as u16, 1));
        }
        r.all_clean();
        r.t.pass(Duration::from_secs(25));
        r
    }
    fn stop_osd(&mut self, osd: usize) {
        let message = DaemonMsg::MarkMeDown { osd: OsdId(osd as i32), epoch: Epoch(1), is_over: true };
        self.t.send(self.osds[osd], message);
        assert!(!self.t.map().is_up(OsdId(osd as i32)));
    }
    fn message(&mut self) -> String {
        self.status()["message"].as_str().unwrap_or_default().to_string()
    }
    fn current(&self) -> Upgrade {
        self.t.mon.state.as_ref().unwrap().upgrades.current.clone().unwrap()
    }
    fn all_clean(&mut self) {
        self.t.activate(&self.osds, self.pool);
        self.t.report(&self.osds, self.pool);
    }
    fn report_host(&mut self, host: usize, installed: &str) -> Vec<String> {
        let mut daemons = vec![json!({ "name": format!("osd.{host}"), "state": "running" })];
        if host == 0 {
            daemons.push(json!({ "name": "mon.a", "state": "running" }));
        }
        let facts = json!({ "installed": installed, "daemons": json!(daemons).to_string() }).to_string();
        let words = json!({ "prefix": "host report", "name": format!("h{}", host + 1) });
        let (code, said, out) = self.t.command_with(words, facts.into());
        assert_eq!(code, 0, "{said}");
        let orders: Value = serde_json::from_str(&out).unwrap();
        serde_json::from_value(orders["restart"].clone()).unwrap()
    }
    fn report_hosts(&mut self, installed: &str) -> Vec<String> {
        (0..3).flat_map(|host| self.report_host(host, installed)).collect()
    }
    /// The order of the agents is carried out.
    fn restart_osd(&mut self, osd: usize) {
        self.nonce += 1;
        self.stop_osd(osd);
        let (t, nonce) = (&mut self.t, self.nonce);
        self.osds[osd] = boot_with(t, osd as i32, nonce, "9.9", Some(Formats::ALL));
    }
    fn status(&mut self) -> Value {
        self.t.json(json!({ "prefix": "upgrade status" }))
    }
    /// For some seconds, every OSD serves a hundred requests a second that take so long.
    fn serve(&mut self, seconds: u32, each: Duration) {
        for _ in 0..seconds {
            self.served.0 += 100;
            self.served.1 += 100 * each.as_nanos() as u64;
            let value = Reading::Mean { count: self.served.0, nanos: self.served.1 };
            let counters = vec![CounterReport { set: "osd".into(), name: "op_latency".into(), value }];
            for (osd, conn) in self.osds.clone().into_iter().enumerate() {
                let osd = Some(OsdId(osd as i32));
                let space = OsdSpace { total: 10 << 30, available: 9 << 30, ..OsdSpace::default() };
                let epoch = self.t.map().epoch;
                let counters = counters.clone();
                let report = OsdReport { osd, epoch, space, counters, ..OsdReport::default() };
                self.t.send(conn, DaemonMsg::Report(report));
            }
            self.t.pass(Duration::from_secs(1));
        }
    }
}

#[test]
fn rolling_upgrade_restarts_monitors_then_one_failure_domain_after_the_other() {
    let mut r = Rolling::new();
    // Idle.
    let (_, idle) = says(&mut r.t, "orch upgrade status");
    assert_eq!(serde_json::from_str::<Value>(&idle).unwrap()["in_progress"], false);
    let start = json!({ "prefix": "upgrade start", "ceph_version": "9.9" });
    r.report_host(0, "9.9");
    let (code, said, _) = r.t.command(start.clone());
    assert!(code == -16 && said.contains("host h2 has 0.0.9 installed, and not 9.9"), "{said}");
    assert!(!said.contains("h1"), "{said}");
    r.report_hosts("9.9");
    r.t.run(start.clone());
    assert!(r.t.run(start).contains("in progress"), "a repeat is no error");
    r.t.pass(Duration::from_secs(20));
    assert_eq!(r.report_hosts("9.9"), ["mon.a"]);

    let mut r = r.with_new_monitor();
    for osd in 0..3 {
        assert_eq!(r.report_hosts("9.9"), [format!("osd.{osd}")], "{}", r.status());
        r.restart_osd(osd);
        r.t.activate(&r.osds, r.pool);
        r.t.pass(Duration::from_secs(20));
        // Nothing has reported since then that it serves again.
        assert!(r.report_hosts("9.9").is_empty());
        assert!(r.status()["message"].as_str().unwrap().contains("placement groups"), "{}", r.status());
        r.all_clean();
        r.t.pass(Duration::from_secs(3));
    }
    assert_eq!(r.status()["in_progress"], false);
    let log = r.t.run(json!({ "prefix": "log last", "num": 50 }));
    assert!(log.contains("all daemons run 9.9; `nacre upgrade finish`"), "{log}");
    r.t.run(json!({ "prefix": "upgrade finish" }));
}

#[test]
fn resumed_upgrade_leaves_a_daemon_that_did_not_come_back() {
    let mut r = Rolling::at_osds();
    assert_eq!(r.report_hosts("9.9"), ["osd.0"]);
    r.stop_osd(0);
    r.t.pass(Duration::from_secs(303));
    assert!(r.message().contains("halted: it waited 300 s for osd.0"), "{}", r.message());
    let before = (r.current().inactive_pgs, r.current().unclean_pgs);
    let resume = json!({ "prefix": "upgrade resume" });
    r.t.run(resume.clone());
    let Upgrade { step, inactive_pgs, unclean_pgs, .. } = r.current();
    assert_eq!((step, inactive_pgs, unclean_pgs), (None, before.0, before.1));
    // What the step left behind is waited for, until it is taken as given.
    r.t.pass(Duration::from_secs(10));
    assert!(r.message().contains("placement groups to be clean"), "{}", r.message());
    r.t.run(resume);
    r.t.pass(Duration::from_secs(10));
    assert!(r.message().contains("would not serve without osd."), "{}", r.message());
    assert!(r.report_hosts("9.9").is_empty());
}

#[test]
fn step_is_given_up_when_its_daemons_may_not_stop_any_more() {
    let mut r = Rolling::at_osds();
    assert_eq!(r.current().step.unwrap().daemons, ["osd.0"]);
    // The agent has not begun yet when another OSD fails.
    r.stop_osd(1);
    r.t.pass(Duration::from_secs(2));
    assert!(r.report_hosts("9.9").is_empty(), "{}", r.message());
    assert_eq!(r.current().step, None);
    let log = r.t.run(json!({ "prefix": "log last", "num": 50 }));
    assert!(log.contains("no longer restarts osd.0: placement groups would not serve"), "{log}");
}

#[test]
fn new_health_code_halts_after_a_minute_however_long_recovery_took() {
    let mut r = Rolling::at_osds();
    r.restart_osd(0);
    r.t.activate(&r.osds, r.pool);
    r.t.pass(Duration::from_secs(100));
    assert!(r.message().contains("placement groups"), "{}", r.message());
    r.t.run(json!({ "prefix": "osd set", "key": "noout" }));
    r.all_clean();
    r.t.pass(Duration::from_secs(50));
    assert!(r.message().contains("waits for new health codes: OSDMAP_FLAGS"), "{}", r.message());
    assert_eq!(r.current().halted, None);
    r.t.pass(Duration::from_secs(15));
    assert!(r.current().halted.is_some(), "{}", r.message());
}

#[test]
fn paused_upgrade_restarts_nothing_until_it_is_resumed() {
    let mut r = Rolling::at_osds();
    assert_eq!(r.report_hosts("9.9"), ["osd.0"]);
    r.t.run(json!({ "prefix": "upgrade pause" }));
    assert!(r.report_hosts("9.9").is_empty(), "not even what has begun");
    let orch: Value = serde_json::from_str(&r.t.run(json!({ "prefix": "orch upgrade status" }))).unwrap();
    assert_eq!((&orch["is_paused"], &orch["message"]), (&json!(true), &json!("paused")));
    // It was told before.
    r.restart_osd(0);
    r.all_clean();
    r.t.pass(Duration::from_secs(60));
    assert_eq!(
        (r.message(), r.current().step.unwrap().daemons),
        ("paused".into(), vec!["osd.0".to_string()])
    );
    r.t.run(json!({ "prefix": "upgrade resume" }));
    r.t.pass(Duration::from_secs(10));
    assert_eq!(r.report_hosts("9.9"), ["osd.1"], "{}", r.message());
}

#[test]
fn latency_halts_when_it_is_twice_what_it_was_and_5_ms_more_for_a_minute() {
    let millis = |millis: f64| Duration::from_secs_f64(millis / 1000.0);
    for (before, after, halts) in
        [(4.0, 8.9, false), (0.1, 4.9, false), (4.0, 9.5, true), (20.0, 39.0, false)]
    {
        let mut r = Rolling::new();
        r.serve(10, millis(before));
        let mut r = r.started().with_new_monitor();
        assert_eq!(r.current().latency_us, (before * 1000.0) as u64);
        r.restart_osd(0);
        r.all_clean();
        r.t.pass(Duration::from_secs(1));
        r.serve(3, millis(after));
        let worse =
            format!("the latency of requests is {} us, and was {} us", after * 1000.0, before * 1000.0);
        if !halts {
            r.serve(5, millis(after));
            assert_eq!(r.report_hosts("9.9"), ["osd.1"], "{before} {after}: {}", r.message());
            continue;
        }
        r.serve(50, millis(after));
        assert!(r.message().contains(&format!("waits for {worse}")), "{}", r.message());
        r.serve(15, millis(after));
        assert_eq!(r.message(), format!("halted: {worse}"));
        assert!(r.report_hosts("9.9").is_empty());
        assert!(health(&mut r.t)["checks"].get("UPGRADE_HALTED").is_some());
        r.t.run(json!({ "prefix": "upgrade resume" }));
        r.serve(10, millis(after));
        assert_eq!(r.report_hosts("9.9"), ["osd.1"], "it is taken as given: {}", r.message());
        assert_eq!(health(&mut r.t)["checks"].get("UPGRADE_HALTED"), None);
    }
}

/// Three monitors on hosts with agents.
struct Monitors(Group);

impl Monitors {
    fn new() -> Monitors {
        let mut group = Group::of(3);
        group.pass(10_000);
        for n in 0..3 {
            let uuid = format!("0{n}111111-1111-1111-1111-111111111111");
            let addr = format!("127.0.0.1:{}", 3300 + n);
            let name = Monitors::name(n);
            let words = json!({ "prefix": "host register", "name": name, "uuid": uuid, "addr": addr });
            assert_eq!(group.run(words).0, 0);
        }
        let mut monitors = Monitors(group);
        (0..3).for_each(|n| drop(monitors.report(n)));
        monitors
    }
    fn name(n: usize) -> &'static str {
        ["a", "b", "c"][n]
    }
    /// What the leader tells the agent of a host.
    fn report(&mut self, n: usize) -> Vec<String> {
        let daemons = json!([{ "name": format!("mon.{}", Monitors::name(n)), "state": "running" }]);
        let facts = json!({ "installed": "9.9", "daemons": daemons.to_string() });
        let words = json!({ "prefix": "host report", "name": Monitors::name(n) });
        let (input, cmd) = (Bytes::from(facts.to_string()), vec![words.to_string()]);
        let leader = self.0.leader();
        let conn = self.0.mons[leader].client();
        self.0.mons[leader].send(conn, MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input });
        self.0.pass(200);
        let answers = self.0.mons[leader].received(conn).into_iter();
        let ack = answers.into_iter().find_map(|message| match message {
            Message::MonCommandAck(ack) => Some(ack),
            _ => None,
        });
        let orders: Value = serde_json::from_slice(&ack.expect("an answer").output).unwrap();
        serde_json::from_value(orders["restart"].clone()).unwrap()
    }
    fn reports(&mut self) -> Vec<String> {
        let alive = (0..3).filter(|n| self.0.is_alive(*n)).collect::<Vec<_>>();
        alive.into_iter().flat_map(|n| self.report(n)).collect()
    }
    fn upgrades(&self) -> Upgrades {
        self.0.mons[self.0.leader()].mon.state.as_ref().unwrap().upgrades.clone()
    }
    fn step(&self) -> Vec<String> {
        self.upgrades().current.and_then(|current| current.step).unwrap_or_default().daemons
    }
    /// A monitor is restarted with another version.
    fn replace(&mut self, n: usize, version: &str) {
        self.0.kill(n);
        let store = std::mem::take(&mut self.0.mons[n].store);
        let config = MonConfig { release: release(version, Formats::ALL), ..config(n, 3, 60 + n as u64) };
        self.0.mons[n] = TestMon::start_with(config, store, self.0.mons[n].now);
        self.0.revive(n);
    }
}

#[test]
fn new_leader_in_the_middle_of_a_step_looks_first_whether_its_daemons_may_stop() {
    let mut m = Monitors::new();
    assert_eq!(m.0.run(json!({ "prefix": "upgrade start" })).0, 0);
    m.0.pass(16_000);
    let old = m.0.leader();
    let step = m.step();
    assert!(step.len() == 1 && step[0] != format!("mon.{}", Monitors::name(old)), "{step:?}");
    assert_eq!(m.reports(), step);
    m.0.kill(old);
    m.0.pass(5000);
    // The step goes on, and its monitor is needed now.
    assert_eq!((m.step(), m.reports()), (step.clone(), Vec::new()));
    m.0.pass(10_000);
    assert_eq!((m.step(), m.reports()), (Vec::new(), Vec::new()));
    assert!(m.upgrades().current.is_some());
    m.0.revive(old);
    m.0.pass(20_000);
    assert_eq!((m.step().len(), m.reports()), (1, m.step()));
}

#[test]
fn leader_hands_over_and_is_restarted_last() {
    let mut m = Monitors::new();
    assert_eq!(m.0.run(json!({ "prefix": "upgrade start" })).0, 0);
    m.0.pass(16_000);
    let first = m.0.leader();
    let mut restarted = Vec::new();
    while m.upgrades().current.is_some() && restarted.len() < 4 {
        let orders = m.reports();
        if let [daemon] = &orders[..] {
            let n = (0..3).find(|n| *daemon == format!("mon.{}", Monitors::name(*n))).unwrap();
            assert_ne!(n, m.0.leader(), "{restarted:?}");
            restarted.push(n);
            m.replace(n, "9.9");
        }
        m.0.pass(5000);
    }
    assert_eq!((restarted.len(), restarted.last()), (3, Some(&first)));
    assert_eq!(m.upgrades().past.last().map(|past| past.version.as_str()), Some("9.9"));
}

#[test]
fn status_shows_nothing_that_is_not_waited_for_any_more() {
    let mut r = Rolling::at_osds();
    r.t.pass(Duration::from_secs(1));
    assert!(r.message().contains("osd.0 to run 9.9"), "{}", r.message());
    r.stop_osd(1);
    for _ in 0..30 {
        if r.current().step.is_some() {
            r.t.pass(Duration::from_millis(100));
        }
    }
    assert_eq!(r.current().step, None);
    assert!(!r.message().contains("to run"), "{}", r.message());
    r.t.mon.services.upgrade.waits_for = "a daemon".to_string();
    r.t.mon.services.step_down();
    assert_eq!(r.t.mon.services.upgrade.waits_for, "");
}

#[test]
fn acting_sets_are_computed_once_for_each_epoch() {
    let (mut t, _) = TestMon::with_osds(3);
    t.create_pool("p", 8);
    let mut acting = ActingSets::default();
    acting.update(&t.map());
    let stopped = |t: &TestMon, acting: &ActingSets| {
        let state = t.mon.state.as_ref().unwrap();
        let both = [OsdId(0), OsdId(1)].into();
        acting.stopping(state, &t.mon.services.pgs, &both, &BTreeSet::new()).stopped.len()
    };
    assert_eq!(stopped(&t, &acting), 8);
    let mut same_epoch = OsdMap::clone(&t.map());
    same_epoch.pools.clear();
    acting.update(&same_epoch);
    assert_eq!(stopped(&t, &acting), 8);
    t.create_pool("q", 8);
    acting.update(&t.map());
    let state = t.mon.state.as_ref().unwrap();
    let all = stopping(state, &t.mon.services.pgs, &[OsdId(0), OsdId(1)].into(), Utime::ZERO).stopped;
    assert_eq!((all.len(), stopped(&t, &acting)), (16, 16));
}

#[test]
fn failure_domain_that_may_not_stop_does_not_keep_the_others_from_it() {
    let mut r = Rolling::new();
    // Without osd.0 a pool of two copies would not serve.
    let needs = |t: &TestMon, pool| t.map().pg_to_up_acting(PgId { pool, seed: 0 }).acting;
    let pool = (0..10).find_map(|n| {
        let (t, name) = (&mut r.t, format!("q{n}"));
        let pool = t.create_pool(&name, 1);
        for (var, val) in [("size", "2"), ("min_size", "2"), ("pg_autoscale_mode", "off")] {
            t.run(json!({ "prefix": "osd pool set", "pool": name, "var": var, "val": val }));
        }
        let is_on_first = needs(t, pool).contains(&OsdId(0));
        if !is_on_first {
            let yes = "yes_i_really_really_mean_it";
            t.run(json!({ "prefix": "osd pool rm", "pool": name, "pool2": name, yes: true }));
        }
        is_on_first.then_some(pool)
    });
    let pool = pool.unwrap();
    r.all_clean();
    r.t.activate(&r.osds, pool);
    r.t.report(&r.osds, pool);
    let free = (1..3).find(|osd| !needs(&r.t, pool).contains(&OsdId(*osd))).unwrap();
    let mut r = r.started().with_new_monitor();
    r.t.report(&r.osds, pool);
    r.t.pass(Duration::from_secs(25));
    assert_eq!(r.report_hosts("9.9"), [format!("osd.{free}")], "{}", r.message());
}
