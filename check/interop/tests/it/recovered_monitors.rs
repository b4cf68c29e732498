//! All monitors are lost, and there is no backup: the OSDs have what is needed.

use crate::hosts::refusal;
use nacre_interop::hosts::{Family, HostNet};
use nacre_interop::{succeed, wait_until};
use std::fs;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const OBJECTS: usize = 8;

fn wait_healthy(net: &HostNet) {
    let is_healthy = || {
        let status = net.json(1, 1, "ceph status")?;
        let states = status["pgmap"]["pgs_by_state"].clone();
        let is_clean =
            states.as_array().is_some_and(|all| all.iter().all(|one| one["state_name"] == "active+clean"));
        Ok(is_clean && status["osdmap"]["num_up_osds"] == 3)
    };
    wait_until("three OSDs with clean data", 2 * MINUTE, is_healthy).unwrap();
}

#[test]
fn monitors_are_recovered_from_osds_and_every_object_is_there() {
    let net = HostNet::new(3).unwrap();
    let disk = |host: usize| net.disk(&format!("disk{host}")).unwrap();
    net.init(1, Family::V4.addr(1), Family::V4.network(), &[&disk(1)]).unwrap();
    let token = net.token(1, "--uses 2").unwrap();
    for host in [2, 3] {
        succeed(&mut net.join(host, &token, Family::V4.addr(host), &[&disk(host)])).unwrap();
    }
    wait_healthy(&net);
    net.run(1, 1, "ceph osd pool create p 8").unwrap();
    net.run(1, 1, "ceph osd pool application enable p rados").unwrap();
    let source = net.data(1).with_file_name("source");
    let content = |n: usize| format!("object {n}\n");
    for n in 0..OBJECTS {
        fs::write(&source, content(n)).unwrap();
        net.run(1, 1, &format!("rados -p p put o{n} {}", source.display())).unwrap();
    }

    let file = |host: usize| net.data(host).with_file_name(format!("collected{host}"));
    let said = refusal(net.nacre(1, "mon collect").arg(file(1)));
    assert!(said.contains("nacre host stop"), "{said}");
    for host in 1..=3 {
        succeed(&mut net.nacre(host, "host stop")).unwrap();
        succeed(net.nacre(host, "mon collect").arg(file(host))).unwrap();
    }
    let recover = |options: &str, hosts: &[usize]| {
        let mut recover = net.nacre(1, &format!("mon recover {options}"));
        recover.arg("--from-osds").args(hosts.iter().map(|host| file(*host)));
        recover
    };
    let said = refusal(&mut recover("", &[1, 2, 3]));
    assert!(said.contains("if its store can be used"), "{said}");
    for host in 1..=3 {
        let names = fs::read_dir(net.data(host)).unwrap().map(|entry| entry.unwrap());
        let is_mon = |name: &str| name.starts_with("mon.") && name != "mon.keyring";
        names
            .filter(|entry| is_mon(&entry.file_name().to_string_lossy()))
            .for_each(|entry| fs::remove_dir_all(entry.path()).unwrap());
    }
    // Two of three have too little: the writes of an interval may be on the two others alone.
    let said = refusal(&mut recover("", &[1]));
    assert!(said.contains("may have later writes of pg") && said.contains("Nothing was changed"), "{said}");
    let said = refusal(&mut recover("", &[1, 2, 3]));
    assert!(said.contains("3 OSDs and") && !said.contains("later writes"), "{said}");
    succeed(&mut recover("--yes-i-really-mean-it", &[1, 2, 3])).unwrap();
    for host in 1..=3 {
        succeed(&mut net.nacre(host, "host start")).unwrap();
    }
    wait_healthy(&net);
    for n in 0..OBJECTS {
        assert_eq!(net.run(1, 1, &format!("rados -p p get o{n} -")).unwrap(), content(n));
    }
    // It is a whole cluster: objects are written, and hosts join.
    net.run(1, 1, &format!("rados -p p put later {}", source.display())).unwrap();
    assert_eq!(net.json(1, 1, "ceph host ls").unwrap().as_array().unwrap().len(), 3);
    assert_eq!(net.run(1, 1, "ceph config get mon public_network").unwrap().trim(), Family::V4.network());
    net.token(1, "").unwrap();
}
