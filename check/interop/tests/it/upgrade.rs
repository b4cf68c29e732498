//! Upgrades from one version to the next. The older one is the same program that may use fewer formats.

use crate::hosts::{three_hosts, wait_healthy};
use nacre_interop::hosts::{Family, HostNet};
use nacre_interop::{kill_and_wait, succeed, wait_until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const OLDER: (&str, &str) = ("NACRE_FORMAT_MAX", "1");
const MINUTE: Duration = Duration::from_secs(60);

/// Random reads and writes on an image, verified. Gives the slowest percentile in microseconds.
fn fio(net: &HostNet, seconds: u32) -> f64 {
    let mut fio = net.on(4, "timeout");
    fio.env("CEPH_CONF", net.data(1).join("ceph.conf")).args(["120", "fio", "--name=x", "--ioengine=rbd"]);
    fio.args(["--clientname=admin", "--pool=p", "--rbdname=vm", "--rw=randrw", "--bs=4k", "--iodepth=4"]);
    fio.args(["--time_based", &format!("--runtime={seconds}"), "--output-format=json"]);
    let said = succeed(&mut fio).unwrap();
    let said: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    let job = &said["jobs"][0];
    assert_eq!(job["error"], 0, "{said}");
    let p99 = |kind: &str| job[kind]["clat_ns"]["percentile"]["99.000000"].as_f64().unwrap() / 1000.0;
    p99("read").max(p99("write"))
}

/// Pids of the daemons of all hosts.
fn pids(net: &HostNet) -> BTreeMap<String, u32> {
    (1..=3).flat_map(|host| net.pids(host).unwrap()).filter(|(name, _)| name != "host").collect()
}

#[test]
fn rolling_upgrade_restarts_every_daemon_under_load_without_an_error() {
    let mut net = HostNet::new(4).unwrap();
    net.install(Some(OLDER)).unwrap();
    three_hosts(&net, Family::V4);
    wait_healthy(&net, 4);
    net.run(4, 1, "ceph osd pool create p 8").unwrap();
    net.run(4, 1, "rbd pool init p").unwrap();
    net.run(4, 1, "rbd create p/vm --size 64M").unwrap();
    let versions = |net: &HostNet| net.json(4, 1, "ceph versions").unwrap()["overall"].clone();
    assert!(versions(&net).to_string().contains("-format1"), "{}", versions(&net));
    let status = |net: &HostNet| net.json(4, 1, "ceph upgrade status").unwrap();
    assert_eq!(status(&net)["format"], 1);
    let before = fio(&net, 10);
    let old = pids(&net);

    // The new version is installed. Agents go on with it, here without the limit of the older version, which
    // they have in their environment. Daemons are left alone.
    let said = net.try_run(4, 1, "ceph orch upgrade start --ceph-version 9.9").unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("installed, and not 9.9"), "{said:?}");
    for host in 1..=3 {
        let agent = net.pids(host).unwrap().into_iter().find(|(name, _)| name == "host").unwrap().1;
        kill_and_wait(agent).unwrap();
    }
    net.install(None).unwrap();
    for host in 1..=3 {
        succeed(&mut net.nacre(host, "host start")).unwrap();
    }
    assert_eq!(pids(&net), old);

    let done = AtomicBool::new(false);
    let during = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut worst = 0.0_f64;
            while !done.load(Ordering::Relaxed) {
                worst = worst.max(fio(&net, 10));
                net.run(4, 1, "rados -p p bench 3 write -b 65536 -t 4").unwrap();
            }
            worst
        });
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/upgrade.md"));
        let page = page.unwrap();
        let block = page.split("```console\n").nth(1).unwrap().split("```").next().unwrap();
        let mut lines = block.lines().map(|line| line.strip_prefix("host1$ ").unwrap());
        let mut next = |expected: &str| {
            let line = lines.next().unwrap();
            assert!(line.contains(expected), "{line}");
            net.in_system(1, line).unwrap()
        };
        wait_until("the agents to say what is installed", MINUTE, || {
            let said = succeed(&mut net.nacre(1, "upgrade check"))?;
            Ok(!said.contains("obstacle"))
        })
        .unwrap();
        assert!(next("upgrade check").contains("-format1: mon."));
        assert!(next("upgrade start").contains("Initiating upgrade"));
        assert_eq!(net.json(4, 1, "ceph orch upgrade status").unwrap()["in_progress"], true);
        wait_until("the upgrade to be over", 5 * MINUTE, || {
            let status = status(&net);
            assert!(status["halted"].is_null(), "{status}");
            Ok(status["in_progress"] == false)
        })
        .unwrap();
        next("while");
        let during = pids(&net);
        assert_eq!(during.len(), old.len());
        assert!(during.iter().all(|(name, pid)| old[name] != *pid), "{old:?} {during:?}");
        assert!(next("upgrade finish").contains("format 3 now"));
        done.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    eprintln!("p99 before {before:.0} us, during the upgrade {during:.0} us: {:.1} times", during / before);
    assert!(!versions(&net).to_string().contains("-format1"), "{}", versions(&net));
    assert_eq!(status(&net)["format"], 3);
    wait_healthy(&net, 4);

    // The agent takes up a new program by itself, and touches no daemon. The older version is refused.
    let (agents, daemons) = (net.pids(1).unwrap(), pids(&net));
    net.install(Some(OLDER)).unwrap();
    let log = net.data(1).join("log").join("host.log");
    wait_until("the agent to use the new program", MINUTE, || {
        Ok(std::fs::read_to_string(&log)?.contains("is installed now: the agent continues with it"))
    })
    .unwrap();
    wait_until("the agent to run", MINUTE, || Ok(net.pids(1)? == agents)).unwrap();
    assert_eq!(pids(&net), daemons);
    let agent = agents.iter().find(|(name, _)| name == "host").unwrap().1;
    kill_and_wait(agent).unwrap();
    succeed(&mut net.nacre(1, "host start")).unwrap();
    let (osd, pid) = net.pids(1).unwrap().into_iter().find(|(name, _)| name.starts_with("osd.")).unwrap();
    kill_and_wait(pid).unwrap();
    let refused = format!("{osd} can use the formats 1 to 1, and the cluster has format 3");
    wait_until("the older version to be refused", MINUTE, || {
        Ok(net.run(4, 1, "ceph health detail")?.contains(&refused))
    })
    .unwrap();
}
