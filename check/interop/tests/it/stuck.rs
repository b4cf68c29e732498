//! Groups that do not serve, and clients that want nothing of them.

use nacre_interop::background::Background;
use nacre_interop::{Cluster, wait_until};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What the OSD that is left says of clients that keep requests to themselves.
fn backoffs(c: &Cluster, name: &str) -> u64 {
    let counted = c.json("ceph tell osd.0 perf dump osd-backoffs").unwrap();
    counted["osd-backoffs"][name].as_u64().unwrap()
}

#[test]
fn requests_that_wait_for_members_keep_no_other_pool_from_being_served() {
    let c = Cluster::up_with(&["--processes", "--memory", "128M"]).unwrap();
    for pool in ["stuck", "other"] {
        c.run(&format!("ceph osd pool create {pool} 8")).unwrap();
    }
    c.run("ceph osd pool set other min_size 1").unwrap();
    c.wait_clean().unwrap();
    for osd in ["osd.1", "osd.2"] {
        c.kill(osd).unwrap();
    }
    let alone = || Ok(c.json("ceph status")?["osdmap"]["num_up_osds"] == 1);
    wait_until("one OSD to be left", Duration::from_secs(30), alone).unwrap();

    let mut command = c.python_command("stuck.py");
    // It waits forever if the test fails.
    let mut stuck =
        Background::start(command.arg("stuck").stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    let mut said = BufReader::new(stuck.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "queued\n");

    // Three times what an OSD of this size has for requests of clients waits: it continues with others.
    for n in 0..30 {
        let start = Instant::now();
        c.run(&format!("rados -p other put o{n} /etc/os-release")).unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "write {n} took {:?}", start.elapsed());
    }
    // Each of its clients was asked for each group by now, and nothing of theirs is here.
    wait_until("nothing to be held", Duration::from_secs(30), || Ok(backoffs(&c, "held_bytes") == 0))
        .unwrap();
    assert_eq!((backoffs(&c, "waiting"), backoffs(&c, "blocks")), (3 * 8, 3 * 8));

    for osd in ["osd.1", "osd.2"] {
        c.start(osd).unwrap();
    }
    stuck.stdin.take().unwrap().write_all(b"look\n").unwrap();
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut said, &mut rest).unwrap();
    assert!(stuck.wait().unwrap().success(), "{}", String::from_utf8_lossy(&rest));
    c.wait_clean().unwrap();
    wait_until("nobody to wait", Duration::from_secs(30), || Ok(backoffs(&c, "waiting") == 0)).unwrap();
}
