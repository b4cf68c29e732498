//! Faults of hosts and of the network between them, while a client writes. No acknowledged write is lost,
//! writes go on, health names the fault, elections are few, and OSDs do not flap without end.

use anyhow::Context;
use nacre_base::Rng;
use nacre_interop::hosts::{Family, HostNet};
use nacre_interop::{Load, succeed, wait_until};
use nacre_switch::Link;
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MINUTE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

/// Hosts h1, h2, ... with disks, in racks, and after them a client that writes.
struct Trial {
    net: HostNet,
    hosts: usize,
    disks: usize,
    load: Load,
}

/// How often things happened until now, by the cluster's log.
#[derive(Clone, Copy, Debug)]
struct Counts {
    elections: usize,
    /// OSDs that were marked down.
    failed: usize,
}

impl Trial {
    fn start(racks: &[usize], disks: usize, seed: u64) -> Trial {
        let hosts = racks.len();
        let net = HostNet::with_seed(hosts + 1, seed).unwrap();
        for (host, rack) in (1..).zip(racks) {
            let own: Vec<_> = (0..disks).map(|n| net.disk(&format!("disk{host}.{n}")).unwrap()).collect();
            let own: Vec<&std::path::Path> = own.iter().map(|path| path.as_path()).collect();
            let token = if host > 1 { net.token(1, "").unwrap() } else { String::new() };
            let mut command = match host {
                1 => net.init_command(1, Family::V4.addr(1), Family::V4.network(), &own),
                _ => net.join(host, &token, Family::V4.addr(host), &own),
            };
            let location = format!("rack=r{rack}");
            succeed(command.args(["--name", &format!("h{host}"), "--location", &location])).unwrap();
        }
        let client = hosts + 1;
        let monitors = if hosts < 5 { 3 } else { 5 };
        wait_until("all to be up", MINUTE, || {
            let status = net.json(client, 1, "ceph status")?;
            let quorum = status["quorum_names"].as_array().map_or(0, Vec::len);
            Ok(quorum == monitors && status["osdmap"]["num_up_osds"] == (hosts * disks) as u64)
        })
        .unwrap();
        if racks.iter().max() > Some(&1) {
            succeed(&mut net.nacre(1, "placement failure-domain rack --yes")).unwrap();
        }
        net.run(client, 1, "ceph osd pool create load 16").unwrap();
        net.run(client, 1, "ceph osd pool application enable load test").unwrap();
        let load = net.start_load(client, 1, "load").unwrap();
        let mut trial = Trial { net, hosts, disks, load };
        trial.wait_healthy();
        trial.writes_go_on();
        trial
    }

    fn client(&self) -> usize {
        self.hosts + 1
    }

    fn json(&self, line: &str) -> Value {
        self.net.json(self.client(), 1, line).unwrap()
    }

    /// Until health has nothing but what it says of OSDs and links for ten minutes after a fault.
    fn wait_healthy(&self) {
        wait_until("a healthy cluster", 2 * MINUTE, || {
            let health = self.net.json(self.client(), 1, "ceph health")?;
            let checks = health["checks"].as_object().context("health has checks")?;
            Ok(checks.keys().all(|check| ["OSD_FLAPPING", "OSD_UNRELIABLE_LINK"].contains(&check.as_str())))
        })
        .unwrap_or_else(|e| panic!("{e:#}: {}", self.json("ceph health detail")));
    }

    /// Another thousand writes are acknowledged.
    fn writes_go_on(&mut self) {
        let before = self.load.count().unwrap();
        let mut now = before;
        let done = wait_until("a thousand writes", 2 * MINUTE, || {
            now = self.load.count()?;
            Ok(now >= before + 1000)
        });
        done.unwrap_or_else(|e| panic!("{e:#}: {}, {}", now - before, self.json("ceph health detail")));
    }

    /// Waits until health has a check of that name whose details name this.
    fn wait_for(&self, check: &str, named: &str) {
        let is_named = || {
            let health = self.net.json(self.client(), 1, "ceph health detail")?;
            Ok(health["checks"][check].to_string().contains(named))
        };
        wait_until(&format!("{check} to name {named}"), MINUTE, is_named)
            .unwrap_or_else(|e| panic!("{e:#}: {}", self.json("ceph health detail")));
    }

    fn counts(&self) -> Counts {
        let log = self.net.run(self.client(), 1, "ceph log last 10000 info cluster").unwrap();
        let count = |what: &str| log.lines().filter(|line| line.contains(what)).count();
        Counts { elections: count(" is new leader"), failed: count(" failed (root=") }
    }

    /// The host whose monitor leads.
    fn leader(&self) -> usize {
        let name = self.json("ceph quorum_status")["quorum_leader_name"].as_str().unwrap().to_string();
        name.strip_prefix('h').unwrap().parse().unwrap()
    }

    /// What may follow from one fault and its end: each OSD of a host fails once, and once more when it tries
    /// to return too early; the leader is elected, and elected again.
    fn check(&self, what: &str, before: Counts, hosts: usize) {
        let now = self.counts();
        let (elections, failed) = (now.elections - before.elections, now.failed - before.failed);
        println!("{what}: {elections} elections, {failed} OSDs marked down");
        assert!(elections <= 3, "{what}: {elections} elections");
        assert!(failed <= 3 * hosts * self.disks, "{what}: OSDs were marked down {failed} times");
    }

    fn finish(self) {
        self.load.finish().unwrap();
    }
}

#[test]
fn one_way_cut_between_hosts_costs_no_write_and_starts_no_election_storm() {
    let mut t = Trial::start(&[1, 1, 1], 2, 1);
    let leader = t.leader();
    let [a, b] = [1, 2, 3].into_iter().filter(|host| *host != leader).collect::<Vec<_>>()[..] else {
        unreachable!("two of three follow")
    };
    for (what, from, to) in [
        ("from a follower to a follower", a, b),
        ("from the leader", leader, a),
        ("to the leader", b, leader),
    ] {
        let before = t.counts();
        t.net.set_link(from, to, Link::cut());
        // The OSDs that are not heard are marked down by those that do not hear them, also if they return at
        // once, and a monitor that does not hear the leader is out of the quorum.
        wait_until("the cut to be noticed", MINUTE, || {
            let monitors = t.json("ceph health detail")["checks"]["MON_DOWN"].to_string();
            Ok(t.counts().failed > before.failed || monitors.contains(&format!("mon.h{to}")))
        })
        .unwrap();
        if from == leader {
            t.wait_for("MON_DOWN", &format!("mon.h{to}"));
        }
        (0..3).for_each(|_| t.writes_go_on());
        t.net.set_links(Link::default());
        t.wait_healthy();
        t.check(what, before, 2);
    }
    t.finish();
}

#[test]
fn rough_network_and_a_pulled_cable_cost_no_write() {
    let mut t = Trial::start(&[1, 1, 1], 2, 2);
    // All of it is slow and loses frames: nothing is taken for lost.
    let before = t.counts();
    t.net.set_links(Link { loss: 10, delay: 2 * MS, jitter: 2 * MS, ..Link::default() });
    (0..2).for_each(|_| t.writes_go_on());
    t.net.set_links(Link::default());
    t.wait_healthy();
    let now = t.counts();
    assert_eq!((now.elections, now.failed), (before.elections, before.failed));

    t.net.set_cable(2, false).unwrap();
    t.wait_for("OSD_HOST_DOWN", "h2");
    t.wait_for("MON_DOWN", "h2");
    t.writes_go_on();
    t.net.set_cable(2, true).unwrap();
    t.wait_healthy();
    t.check("a pulled cable", now, 1);
    t.finish();
}

#[test]
fn loss_of_a_rack_of_five_hosts_costs_no_write() {
    let mut t = Trial::start(&[1, 1, 2, 2, 3], 1, 3);
    let before = t.counts();
    for host in [3, 4] {
        t.net.kill_all(host).unwrap();
    }
    t.wait_for("OSD_RACK_DOWN", "r2");
    t.wait_for("MON_DOWN", "h4");
    t.writes_go_on();
    for host in [4, 3] {
        succeed(&mut t.net.nacre(host, "host start")).unwrap();
    }
    t.wait_healthy();
    t.check("loss of a rack", before, 2);
    t.finish();
}

/// The load and the figures of `cargo xtask bench failure`, over links of namespaces: no write may wait for
/// long. Prints one line of JSON.
#[test]
#[ignore = "takes minutes: cargo xtask soak host-away"]
fn host_of_five_osds_is_away_for_minutes_and_returns() {
    let t = Trial::start(&[1, 1, 1], 5, 4);
    let seconds = from_environment("NACRE_AWAY_SECONDS", 190).to_string();
    t.net.run(t.client(), 1, "ceph osd pool create drill 32").unwrap();
    t.net.run(t.client(), 1, "ceph osd pool application enable drill test").unwrap();
    t.wait_healthy();
    // The drill has its own load.
    t.load.signal("KILL").unwrap();
    let namespace = t.net.namespace(2).file_name().unwrap().to_string_lossy().into_owned();
    let start = t.net.nacre(2, "host start");
    let words: Vec<_> = std::iter::once(start.get_program()).chain(start.get_args()).collect();
    let back = words.join(" ".as_ref()).into_string().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/scripts/failure.py");
    let mut drill = t.net.on(4, "/usr/bin/python3");
    let folder = t.net.data(1).parent().unwrap().to_path_buf();
    drill.arg(script).args(["--pool", "drill", "--folder"]).arg(&folder);
    drill.arg("--csv").arg(folder.join("drill.csv")).args(["--away", &seconds]);
    drill.args(["--fail", &format!("for n in 1 2 3; do kill -KILL $(ip netns pids {namespace}); done")]);
    drill.args(["--back", &back]).env("CEPH_CONF", t.net.data(1).join("ceph.conf"));
    println!("{}", succeed(&mut drill).unwrap());
    t.wait_healthy();
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Drawn from a seed: what happens to which hosts, one after the other. The moments differ.
#[test]
#[ignore = "takes minutes: cargo xtask soak hosts"]
fn random_faults_of_hosts_and_links_cost_no_write() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let seed = from_environment("NACRE_HOSTS_SEED", now.into());
    println!("again: NACRE_HOSTS_SEED={seed}");
    let rng = &mut Rng::new(seed);
    let racks = [1, 1, 2, 2, 3];
    let mut t = Trial::start(&racks, 1, seed);
    for episode in 1..=from_environment("NACRE_HOSTS_EPISODES", 10) {
        let before = t.counts();
        let host = 1 + rng.below(5) as usize;
        let other = 1 + (host + rng.below(4) as usize) % 5;
        let mut down = Vec::new();
        let what = match rng.below(8) {
            0 | 1 => {
                t.net.set_link(host, other, Link::cut());
                format!("a cut from h{host} to h{other}")
            }
            2 => {
                t.net.set_link(host, other, Link::cut());
                t.net.set_link(other, host, Link::cut());
                format!("a cut between h{host} and h{other}")
            }
            3 => {
                let link = Link { loss: 50, delay: 5 * MS, jitter: 5 * MS, ..Link::default() };
                (1..=5).filter(|to| *to != host).for_each(|to| t.net.set_link(host, to, link));
                format!("a bad link from h{host}")
            }
            4 => {
                let link = Link { rate: Some(2 << 20), ..Link::default() };
                (1..=5).filter(|to| *to != host).for_each(|to| t.net.set_link(to, host, link));
                format!("a slow link to h{host}")
            }
            5 => {
                t.net.set_cable(host, false).unwrap();
                format!("a pulled cable of h{host}")
            }
            6 => {
                down.push(host);
                format!("loss of h{host}")
            }
            _ if rng.chance(300) => {
                down.extend(1..=5);
                "loss of all hosts".to_string()
            }
            _ => {
                let rack = racks[host - 1];
                down.extend((1..=5).filter(|host| racks[host - 1] == rack));
                format!("loss of rack r{rack}")
            }
        };
        println!("episode {episode}: {what}");
        down.iter().for_each(|host| t.net.kill_all(*host).unwrap());
        std::thread::sleep(rng.duration(Duration::from_secs(5), Duration::from_secs(40)));
        if down.len() < 5 {
            t.writes_go_on();
        }
        t.net.set_links(Link::default());
        t.net.set_cable(host, true).unwrap();
        while !down.is_empty() {
            let next = down.swap_remove(rng.below(down.len() as u64) as usize);
            succeed(&mut t.net.nacre(next, "host start")).unwrap();
        }
        t.wait_healthy();
        t.writes_go_on();
        t.check(&what, before, 5);
    }
    t.finish();
}
