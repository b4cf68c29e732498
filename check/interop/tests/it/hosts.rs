//! Clusters of several hosts, each a network namespace.

use nacre_interop::hosts::{Family, HostNet};
use nacre_interop::{kill_and_wait, succeed, text, wait_until};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

const MINUTE: Duration = Duration::from_secs(60);

/// Runs a command that must fail, and gives what it said.
pub fn refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!output.status.success(), "{command:?} succeeded: {said}");
    said
}

/// Three hosts with two disks each.
pub fn three_hosts(net: &HostNet, family: Family) {
    let disks = |host: usize| [1, 2].map(|n| net.disk(&format!("disk{host}.{n}")).unwrap());
    let own = disks(1);
    net.init(1, family.addr(1), family.network(), &[&own[0], &own[1]]).unwrap();
    for host in [2, 3] {
        let token = net.token(1, "").unwrap();
        let own = disks(host);
        succeed(&mut net.join(host, &token, family.addr(host), &[&own[0], &own[1]])).unwrap();
    }
}

pub fn wait_healthy(net: &HostNet, client: usize) {
    let is_healthy = || {
        let status = net.json(client, 1, "ceph status")?;
        let quorum = status["quorum_names"].as_array().map_or(0, Vec::len);
        let up = status["osdmap"]["num_up_osds"].as_u64();
        Ok(status["health"]["status"] == "HEALTH_OK" && quorum == 3 && up == Some(6))
    };
    wait_until("HEALTH_OK with three monitors and six OSDs", MINUTE, is_healthy).unwrap();
}

#[test]
fn three_hosts_serve_a_stock_client_on_a_fourth_and_survive_a_power_cut() {
    let net = HostNet::new(4).unwrap();
    three_hosts(&net, Family::V4);
    wait_healthy(&net, 4);

    // A client elsewhere.
    net.run(4, 1, "ceph osd pool create rbd 16").unwrap();
    net.run(4, 1, "rbd pool init rbd").unwrap();
    net.run(4, 1, "rbd create vm --size 64M").unwrap();
    net.run(4, 1, "rados -p rbd put o /etc/hostname").unwrap();
    net.run(4, 1, "rbd bench --io-type write --io-total 16M vm").unwrap();
    // Copies are on different hosts.
    let up = net.json(4, 1, "ceph osd map rbd o").unwrap();
    let tree = net.json(4, 1, "ceph osd tree").unwrap();
    let hosts: Vec<_> =
        tree["nodes"].as_array().unwrap().iter().filter(|node| node["type"] == "host").collect();
    let mut on: Vec<&str> = up["up"]
        .as_array()
        .unwrap()
        .iter()
        .map(|osd| {
            let host = hosts.iter().find(|host| host["children"].as_array().unwrap().contains(osd)).unwrap();
            host["name"].as_str().unwrap()
        })
        .collect();
    on.sort_unstable();
    on.dedup();
    assert_eq!(on.len(), 3, "{up}");

    // All lose power, and come back in another order with one command each.
    (1..=3).for_each(|host| net.kill_all(host).unwrap());
    for host in [3, 1, 2] {
        succeed(&mut net.nacre(host, "host start")).unwrap();
    }
    wait_healthy(&net, 4);
    assert_eq!(net.run(4, 1, "rados -p rbd get o -").unwrap(), fs::read_to_string("/etc/hostname").unwrap());
    // A daemon that dies is started again.
    let (osd, before) = net.pids(2).unwrap().into_iter().find(|(name, _)| name.starts_with("osd.")).unwrap();
    kill_and_wait(before).unwrap();
    wait_until("the killed OSD to have another process", MINUTE, || {
        Ok(net.pids(2)?.iter().any(|(name, pid)| *name == osd && *pid != before))
    })
    .unwrap();
    wait_healthy(&net, 4);

    // Secrets are for root alone, and in no log.
    let key = net.run(1, 1, "ceph auth get-key client.admin").unwrap();
    for host in 1..=3 {
        for entry in fs::read_dir(net.data(host)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let mode = entry.metadata().unwrap().permissions().mode();
            assert!(!name.ends_with("keyring") || mode & 0o077 == 0, "{name}: {mode:o}");
        }
        for entry in fs::read_dir(net.data(host).join("log")).unwrap().map(Result::unwrap) {
            let log = fs::read_to_string(entry.path()).unwrap();
            assert!(!log.contains(key.trim()) && !log.contains("nacre1."), "{}", entry.path().display());
        }
    }
    // A host that is done says so.
    let again = net.init(1, Family::V4.addr(1), Family::V4.network(), &[]).unwrap();
    assert!(again.contains("is a host of cluster"), "{again}");
    let listed = succeed(&mut net.nacre(1, "host ls")).unwrap();
    assert_eq!(listed.lines().count(), 4, "{listed}");
}

#[test]
fn hosts_join_over_ipv6() {
    let net = HostNet::new(3).unwrap();
    three_hosts(&net, Family::V6);
    wait_healthy(&net, 2);
    net.run(3, 1, "ceph osd pool create p 8").unwrap();
    net.run(3, 1, "rados -p p put o /etc/hostname").unwrap();
}

#[test]
fn host_that_may_not_join_is_told_why_and_changes_nothing() {
    let net = HostNet::new(4).unwrap();
    let addr = |host| Family::V4.addr(host);
    let disk = |name: &str| net.disk(name).unwrap();
    let (first, second) = (disk("a"), disk("b"));
    net.init(1, addr(1), Family::V4.network(), &[&first]).unwrap();
    let token = net.token(1, "").unwrap();

    // Faults that the host finds itself.
    fs::write(disk("data"), vec![7; 8192]).unwrap();
    let data = net.data(1).parent().unwrap().join("data");
    let said = refusal(&mut net.join(2, &token, addr(2), &[&data]));
    assert!(said.contains("rejected: Has data") && said.contains("nothing was changed"), "{said}");
    let said = refusal(&mut net.join(2, &token, addr(3), &[&second]));
    assert!(said.contains("10.9.0.3 is not an address of this host"), "{said}");
    let said = refusal(&mut net.join(2, &token, "127.0.0.1", &[&second]));
    assert!(said.contains("127.0.0.1 is not in the public network 10.9.0.0/24"), "{said}");
    let said = refusal(&mut net.join(2, &token[..token.len() - 9], addr(2), &[&second]));
    assert!(said.contains("incomplete or damaged"), "{said}");
    let said = refusal(&mut net.join(2, "stranger", addr(2), &[&second]));
    assert!(said.contains("not a join token"), "{said}");
    // Faults that the monitors find.
    let late = net.token(1, "--ttl 1s").unwrap();
    thread::sleep(Duration::from_secs(2));
    let said = refusal(&mut net.join(2, &late, addr(2), &[&second]));
    assert!(said.contains("expired at") && said.contains("nacre token new"), "{said}");
    let removed = net.token(1, "").unwrap();
    let tokens = succeed(&mut net.nacre(1, "token ls --format json")).unwrap();
    let tokens: serde_json::Value = serde_json::from_str(&tokens).unwrap();
    let newest = tokens.as_array().unwrap().iter().max_by_key(|token| token["created"].to_string()).unwrap();
    succeed(&mut net.nacre(1, &format!("token rm {}", newest["id"].as_str().unwrap()))).unwrap();
    let said = refusal(&mut net.join(2, &removed, addr(2), &[&second]));
    assert!(said.contains("the monitors do not know it"), "{said}");
    let name = net.json(1, 1, "ceph quorum_status").unwrap()["quorum_names"][0].as_str().unwrap().to_string();
    let said = refusal(net.join(2, &token, addr(2), &[&second]).args(["--name", &name]));
    assert!(said.contains(&format!("the cluster has a host {name} at 10.9.0.1 already")), "{said}");
    net.set_mtu(2, 9000).unwrap();
    let said = refusal(&mut net.join(2, &token, addr(2), &[&second]));
    assert!(said.contains("packets of 9000 bytes") && said.contains("set the same MTU"), "{said}");
    net.set_mtu(2, 1500).unwrap();
    // Only looking does not use the token.
    let checked =
        succeed(net.join(2, &token, addr(2), &[&second]).args(["--check-only", "--format", "json"])).unwrap();
    let checked: serde_json::Value = serde_json::from_str(&checked).unwrap();
    assert_eq!(
        (&checked["ok"], &checked["plan"]["format"][0]),
        (&true.into(), &second.to_str().unwrap().into())
    );
    assert!(!net.data(2).exists(), "nothing was changed");
    assert_eq!(net.json(1, 1, "ceph osd ls").unwrap(), serde_json::json!([0]));

    // None of that used the token. A second host cannot use it.
    succeed(&mut net.join(2, &token, addr(2), &[&second])).unwrap();
    let said = refusal(&mut net.join(3, &token, addr(3), &[&disk("c")]));
    assert!(said.contains("used up by a host") && said.contains("nacre token new"), "{said}");
    let again = succeed(&mut net.join(2, &token, addr(2), &[&second])).unwrap();
    assert!(again.contains("is a host of cluster"), "{again}");

    // A token of another cluster.
    net.init(4, addr(4), Family::V4.network(), &[]).unwrap();
    let foreign = net.token(4, "").unwrap();
    let said = refusal(&mut net.join(2, &foreign, addr(2), &[]));
    assert!(said.contains("the token is of cluster"), "{said}");
}

/// Killed at any moment, the same command goes on where it stopped.
#[test]
fn interrupted_join_is_completed_by_running_it_again() {
    let net = HostNet::new(2).unwrap();
    let addr = |host| Family::V4.addr(host);
    let run_and_kill = |command: &mut Command, after: Duration| {
        let mut child =
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        thread::sleep(after);
        // The child is `ip`, which became `nacre`.
        let _ = child.kill();
        child.wait().unwrap();
    };
    let steps = |n: u64| Duration::from_millis(25 * n);
    let first = net.disk("a").unwrap();
    let init = || {
        let mut init = net.nacre(1, "init --no-systemd --yes --no-device-check");
        init.args(["--addr", "10.9.0.1", "--network", "10.9.0.0/24", "--devices"]).arg(&first);
        init
    };
    (1..12).for_each(|n| run_and_kill(&mut init(), steps(n)));
    succeed(&mut init()).unwrap();
    let token = net.token(1, "").unwrap();
    let disks = ["b", "c"].map(|name| net.disk(name).unwrap());
    let disks: Vec<&Path> = disks.iter().map(|path| path.as_path()).collect();
    (1..16).for_each(|n| run_and_kill(&mut net.join(2, &token, addr(2), &disks), steps(n)));
    succeed(&mut net.join(2, &token, addr(2), &disks)).unwrap();
    let status = net.json(1, 1, "ceph status").unwrap();
    assert_eq!((&status["osdmap"]["num_osds"], &status["osdmap"]["num_up_osds"]), (&3.into(), &3.into()));
    assert_eq!(net.json(1, 1, "ceph host ls").unwrap().as_array().unwrap().len(), 2);
}

#[test]
fn host_is_maintained_leaves_and_is_removed_when_it_is_lost() {
    let net = HostNet::new(5).unwrap();
    let addr = |host| Family::V4.addr(host);
    let disk = |host: usize| net.disk(&format!("disk{host}")).unwrap();
    net.init(1, addr(1), Family::V4.network(), &[&disk(1)]).unwrap();
    let token = net.token(1, "--uses 4").unwrap();
    for host in [2, 3, 4, 5] {
        succeed(net.join(host, &token, addr(host), &[&disk(host)]).args(["--name", &format!("h{host}")]))
            .unwrap();
    }
    net.run(1, 1, "ceph osd pool create p 8").unwrap();
    net.run(1, 1, "rados -p p put o /etc/hostname").unwrap();
    let status = || net.json(1, 1, "ceph status").unwrap();
    let all_clean = |osds: u64, mons: usize| {
        let status = status();
        let clean = status["pgmap"]["pgs_by_state"]
            .as_array()
            .is_some_and(|states| states.len() == 1 && states[0]["state_name"] == "active+clean");
        let quorum = status["quorum_names"].as_array().map_or(0, Vec::len);
        clean && status["osdmap"]["num_up_osds"] == osds && quorum == mons
    };
    wait_until("five hosts with five monitors", MINUTE, || Ok(all_clean(5, 5))).unwrap();

    // Maintenance: the daemons stop, and start again.
    succeed(&mut net.nacre(1, "host maintenance h3 --for 30m")).unwrap();
    let runs = |host: usize| {
        net.pids(host)
            .unwrap()
            .iter()
            .any(|(name, pid)| name != "host" && Path::new(&format!("/proc/{pid}")).exists())
    };
    wait_until("the daemons of h3 to stop", MINUTE, || Ok(!runs(3))).unwrap();
    let listed = succeed(&mut net.nacre(1, "host ls")).unwrap();
    assert!(listed.lines().any(|line| line.starts_with("h3 ") && line.contains("maintenance")), "{listed}");
    succeed(&mut net.nacre(1, "host maintenance h3 --end")).unwrap();
    wait_until("h3 to be back", MINUTE, || Ok(all_clean(5, 5))).unwrap();

    // One daemon that is stopped stays stopped.
    let (osd, _) = net.pids(2).unwrap().into_iter().find(|(name, _)| name.starts_with("osd.")).unwrap();
    succeed(&mut net.nacre(2, &format!("stop {osd}"))).unwrap();
    // The agent looks every 0.2 s, and would start a daemon that ended by itself again after 1 s.
    thread::sleep(Duration::from_secs(3));
    assert!(!net.pids(2).unwrap().iter().any(|(name, _)| *name == osd));
    succeed(&mut net.nacre(2, &format!("start {osd}"))).unwrap();
    wait_until("the stopped daemon to be back", MINUTE, || Ok(all_clean(5, 5))).unwrap();

    // A host leaves with nothing lost, and its disk can be used again.
    succeed(&mut net.nacre(4, "leave --yes")).unwrap();
    assert!(!runs(4));
    let said = refusal(&mut net.nacre(2, "uninstall --yes --wipe"));
    assert!(said.contains("nacre leave"), "{said}");
    succeed(&mut net.nacre(4, "uninstall --yes --wipe")).unwrap();
    assert!(!net.data(4).exists());
    // An even number of monitors survives no more failures than one less.
    wait_until("four hosts with three monitors", MINUTE, || Ok(all_clean(4, 3))).unwrap();
    let again = net.token(1, "").unwrap();
    let path = net.data(1).parent().unwrap().join("disk4");
    succeed(net.join(4, &again, addr(4), &[&path]).args(["--name", "h4"])).unwrap();
    wait_until("the host to be back", MINUTE, || Ok(all_clean(5, 5))).unwrap();

    // Its system is installed anew, and its disk is kept: the OSD goes on with its data.
    let before = net.json(1, 1, "ceph osd dump").unwrap()["osds"].to_string();
    succeed(&mut net.nacre(4, "host stop")).unwrap();
    fs::remove_dir_all(net.data(4)).unwrap();
    let four = net.token(1, "").unwrap();
    let said = refusal(net.join(4, &four, addr(4), &[&path]).args(["--name", "h4"]));
    assert!(said.contains("a host h4 at 10.9.0.4 already"), "{said}");
    wait_until("the OSD to be down", MINUTE, || Ok(status()["osdmap"]["num_up_osds"] == 4)).unwrap();
    let free = net.token(1, "--uses 9").unwrap();
    let said = succeed(
        net.nacre(4, "join --addr 10.9.0.4:3301 --name h4b --no-systemd --yes")
            .arg("--devices")
            .arg(&path)
            .arg(&free),
    )
    .unwrap();
    assert!(said.contains("To take over with their OSDs"), "{said}");
    let after = net.json(1, 1, "ceph osd dump").unwrap()["osds"].to_string();
    assert_eq!(before.matches("\"uuid\"").count(), after.matches("\"uuid\"").count());
    wait_until("the OSD to be back", MINUTE, || Ok(status()["osdmap"]["num_up_osds"] == 5)).unwrap();
    succeed(&mut net.nacre(1, "host rm h4 --lost --yes")).unwrap();
    wait_until("the cluster to be whole", MINUTE, || Ok(all_clean(5, 5))).unwrap();

    // A host is lost for good.
    net.kill_all(5).unwrap();
    let lost = || Ok(status()["osdmap"]["num_up_osds"] == 4);
    wait_until("the lost OSD to be down", MINUTE, lost).unwrap();
    let said = refusal(&mut net.nacre(1, "host rm h5"));
    assert!(said.contains("--lost"), "{said}");
    succeed(&mut net.nacre(1, "host rm h5 --lost --yes")).unwrap();
    wait_until("the cluster to be whole without it", MINUTE, || Ok(all_clean(4, 3))).unwrap();
    assert_eq!(net.run(1, 1, "rados -p p get o -").unwrap(), fs::read_to_string("/etc/hostname").unwrap());
    assert!(!net.run(1, 1, "ceph osd tree").unwrap().contains("h5"));
}

/// Data that was there before the hosts were.
#[test]
fn copies_go_to_other_hosts_and_racks_when_an_administrator_says_so() {
    let net = HostNet::new(4).unwrap();
    let addr = |host| Family::V4.addr(host);
    let disks: Vec<_> = (0..6).map(|n| net.disk(&format!("disk{n}")).unwrap()).collect();
    net.init(1, addr(1), Family::V4.network(), &[&disks[0], &disks[1], &disks[2]]).unwrap();
    net.run(1, 1, "ceph osd pool create p 16").unwrap();
    net.run(1, 1, "ceph osd pool application enable p rados").unwrap();
    net.run(1, 1, "rados -p p bench 1 write -b 65536 --no-cleanup").unwrap();
    let token = net.token(1, "--uses 3").unwrap();
    for host in [2, 3, 4] {
        let rack = format!("rack=r{}", host - 1);
        succeed(net.join(host, &token, addr(host), &[&disks[host + 1]]).args(["--location", &rack])).unwrap();
    }
    let health = || net.json(1, 1, "ceph health detail").unwrap()["checks"].clone();
    let message =
        |code: &str| health()[code]["detail"][0]["message"].as_str().unwrap_or_default().to_string();
    let host = "nacre placement failure-domain host";
    wait_until("a proposal", MINUTE, || Ok(message("POOL_FAILURE_DOMAIN").contains(host))).unwrap();
    let first = net.json(1, 1, "ceph osd crush ls default").unwrap()[0].as_str().unwrap().to_string();
    assert!(message("HOST_NOT_IN_RACK").contains("is in no rack"), "{first}");
    let all_in_place = || {
        let is_clean = |states: &serde_json::Value| {
            let states = states.as_array().unwrap();
            states.len() == 1 && states[0]["state_name"] == "active+clean"
        };
        Ok(is_clean(&net.json(1, 1, "ceph status")?["pgmap"]["pgs_by_state"]))
    };
    wait_until("all placement groups to be clean", MINUTE, all_in_place).unwrap();

    let said = refusal(&mut net.nacre(1, "placement failure-domain host"));
    assert!(said.contains("move to other OSDs, in") && said.contains("Confirm with --yes"), "{said}");
    succeed(&mut net.nacre(1, "placement failure-domain host --yes")).unwrap();
    let outside = message("HOST_NOT_IN_RACK");
    let outside = outside.strip_prefix("host ").unwrap().split_once(' ').unwrap().0.to_string();
    succeed(&mut net.nacre(1, &format!("host set-location {outside} rack=r1"))).unwrap();
    let rack = "nacre placement failure-domain rack";
    wait_until("a proposal", MINUTE, || Ok(message("POOL_FAILURE_DOMAIN").contains(rack))).unwrap();
    succeed(&mut net.nacre(1, "placement failure-domain rack --yes")).unwrap();
    wait_until("HEALTH_OK", MINUTE, || Ok(health() == serde_json::json!({}))).unwrap();
    let rule = net.json(1, 1, "ceph osd crush rule dump replicated_rule").unwrap();
    assert!(rule.to_string().contains("\"rack\""), "{rule}");
    let shown = succeed(&mut net.nacre(1, "placement show")).unwrap();
    assert!(shown.contains("each copy on another rack"), "{shown}");
    net.run(4, 1, "rados -p p bench 1 seq").unwrap();
}

#[test]
fn monitors_are_recovered_from_one_that_is_left_and_from_a_backup() {
    let net = HostNet::new(3).unwrap();
    three_hosts(&net, Family::V4);
    wait_healthy(&net, 3);
    net.run(3, 1, "ceph osd pool create p 8").unwrap();
    net.run(3, 1, "ceph osd pool application enable p rados").unwrap();
    net.run(3, 1, "rados -p p put o /etc/hostname").unwrap();
    let file = net.data(1).with_file_name("backup");
    succeed(net.nacre(1, "mon backup").arg(&file)).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    net.run(3, 1, "ceph osd pool create later 8").unwrap();

    // The monitors of two hosts lose their stores; their OSDs and agents go on.
    let monitor = |host: usize| {
        net.pids(host).unwrap().into_iter().find(|(name, _)| name.starts_with("mon.")).unwrap().0
    };
    let lose = |host: usize| {
        let name = monitor(host);
        succeed(&mut net.nacre(host, &format!("stop {name}"))).unwrap();
        fs::remove_file(net.data(host).join(&name).join("store")).unwrap();
    };
    let left = monitor(1);
    let said = refusal(&mut net.nacre(1, "mon recover --yes-i-really-mean-it"));
    assert!(said.contains(&format!("nacre stop {left}")), "{said}");
    [2, 3].into_iter().for_each(lose);
    succeed(&mut net.nacre(1, &format!("stop {left}"))).unwrap();
    let said = refusal(&mut net.nacre(1, "mon recover"));
    assert!(said.contains("6 OSDs") && said.contains("Nothing was changed"), "{said}");
    succeed(&mut net.nacre(1, "mon recover --yes-i-really-mean-it")).unwrap();
    succeed(&mut net.nacre(1, &format!("start {left}"))).unwrap();
    // The other hosts get new monitors in place of the lost ones.
    wait_healthy(&net, 3);
    assert_eq!(net.run(3, 1, "rados -p p get o -").unwrap(), fs::read_to_string("/etc/hostname").unwrap());
    assert!(net.run(3, 1, "ceph osd pool ls").unwrap().contains("later"));

    // All are lost: the cluster is as it was at the backup.
    [1, 2, 3].into_iter().for_each(lose);
    let said = refusal(net.nacre(1, "mon restore --yes-i-really-mean-it").arg(&file));
    assert!(said.contains("nacre mon recover"), "{said}");
    fs::remove_dir_all(net.data(1).join(monitor_dir(&net, 1))).unwrap();
    succeed(net.nacre(1, "mon restore --yes-i-really-mean-it").arg(&file)).unwrap();
    wait_healthy(&net, 3);
    assert_eq!(net.run(3, 1, "rados -p p get o -").unwrap(), fs::read_to_string("/etc/hostname").unwrap());
    assert!(!net.run(3, 1, "ceph osd pool ls").unwrap().contains("later"));
}

/// The folder of the monitor of a host.
fn monitor_dir(net: &HostNet, host: usize) -> String {
    let names = fs::read_dir(net.data(host)).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.into_iter().find(|name| name.starts_with("mon.") && !name.ends_with("keyring")).unwrap()
}
