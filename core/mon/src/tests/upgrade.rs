//! The cluster's format, and rolling upgrades.

use super::monitors::Group;
use super::*;
use crate::services::pg::stopping::{ActingSets, stopping};
use crate::services::upgrade::Upgrade;
use nacre_proto::types::Release;

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
    assert!(code == -16 && said.contains("cannot use format 2") && said.contains("osd.0"), "{said}");
    let status = t.json(json!({ "prefix": "upgrade status" }));
    assert_eq!((&status["format"], &status["newest_format"]), (&json!(1), &json!(2)));

    let conn = boot_with(&mut t, 0, 2, "0.1.0", Some(Formats::ALL));
    assert!(t.map().is_up(OsdId(0)));
    t.run(json!({ "prefix": "upgrade finish" }));
    assert_eq!(t.mon.format(), 2);
    assert!(t.run(json!({ "prefix": "upgrade finish" })).contains("there is no newer one"));
    assert_eq!(t.json(json!({ "prefix": "upgrade status" }))["past"][0]["format"], 2);
    // The OSD is told with its next report.
    t.received(conn);
    t.send(conn, DaemonMsg::Report(OsdReport { osd: Some(OsdId(0)), format: 1, ..OsdReport::default() }));
    let told = t.received(conn);
    assert!(told.contains(&DaemonMsg::Format { format: 2 }.into()), "{told:?}");
    t.send(conn, DaemonMsg::Report(OsdReport { osd: Some(OsdId(0)), format: 2, ..OsdReport::default() }));
    assert!(t.received(conn).is_empty());

    // It stays, and the old monitor cannot use it any more.
    let t = replaced(t, release("0.1.0", Formats::ALL));
    assert_eq!(t.mon.format(), 2);
    let t = replaced(t, release("0.0.9", OLD));
    let reason = t.failure.unwrap();
    let expected = "mon.a can use the formats 1 to 1, and the cluster has format 2: install a newer version";
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn osd_that_cannot_use_the_format_is_refused_and_named() {
    let mut t = TestMon::fresh();
    for (osd, formats) in [(0, None), (1, Some(OLD)), (2, Some(Formats { min: 3, max: 4 }))] {
        let conn = boot_with(&mut t, osd, 1, "0.0.9", formats);
        assert!(!t.map().exists(OsdId(osd)));
        let told: Vec<Message> = t.received(conn);
        // One that does not know of formats would not understand that.
        let expected = formats.map(|_| DaemonMsg::Format { format: 2 }.into());
        assert_eq!(told, expected.into_iter().collect::<Vec<Message>>());
    }
    let check = health(&mut t)["checks"]["INCOMPATIBLE_DAEMON"].clone();
    assert_eq!(check["summary"]["message"], "3 daemons cannot use the cluster's format");
    let detail = |n: usize| check["detail"][n]["message"].as_str().unwrap();
    assert!(detail(0).starts_with("osd.0 can use the formats 1 to 1, and the cluster has format 2: install"));
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
        let expected = if boot_is_first { (1, true) } else { (2, false) };
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
    assert!(detail.contains("osd.0 can use the formats 1 to 1, and the cluster has format 2"), "{detail}");
}

// ---- rolling upgrades ----

/// One monitor and three OSDs, each with a host of its own, and a pool with data.
struct Rolling {
    t: TestMon,
    osds: Vec<ConnId>,
    pool: PoolId,
    nonce: u32,
}

impl Rolling {
    fn new() -> Rolling {
        let mut t = old_cluster();
        let osds = (0..3).map(|osd| boot_with(&mut t, osd, 1, "0.0.9", Some(OLD))).collect();
        let mut rolling = Rolling { t, osds, pool: PoolId(1), nonce: 1 };
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
        acting.stopping(state, &t.mon.services.pgs, &[OsdId(0), OsdId(1)].into()).stopped.len()
    };
    assert_eq!(stopped(&t, &acting), 8);
    let mut same_epoch = OsdMap::clone(&t.map());
    same_epoch.pools.clear();
    acting.update(&same_epoch);
    assert_eq!(stopped(&t, &acting), 8);
    t.create_pool("q", 8);
    acting.update(&t.map());
    let state = t.mon.state.as_ref().unwrap();
    let all = stopping(state, &t.mon.services.pgs, &[OsdId(0), OsdId(1)].into()).stopped;
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
