//! Authentication and capabilities of stock clients.

use nacre_interop::{Cluster, succeed, text, wait_until};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A user of the cluster, with a keyring of its own.
struct User<'a> {
    c: &'a Cluster,
    how: String,
}

impl<'a> User<'a> {
    /// `caps` as in `mon=allow r`.
    fn make(c: &'a Cluster, name: &str, caps: &[&str]) -> User<'a> {
        let keyring = c.folder().join(format!("{name}.keyring"));
        let mut make = c.client("ceph");
        make.args(["auth", "get-or-create", name, "-o"]).arg(&keyring);
        for caps in caps {
            let (service, caps) = caps.split_once('=').unwrap();
            make.args([service, caps]);
        }
        succeed(&mut make).unwrap();
        User { c, how: format!("--name {name} --keyring {}", keyring.display()) }
    }
    /// What was said if it works, else which error.
    fn run(&self, line: &str) -> Result<String, String> {
        let (program, rest) = line.split_once(' ').unwrap();
        let output = self.c.try_run(&format!("{program} {} {rest}", self.how)).unwrap();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
    fn is_denied(&self, line: &str) -> bool {
        self.run(line).is_err_and(|said| {
            ["Operation not permitted", "access denied", "EACCES", "(1)", "(13)"]
                .iter()
                .any(|why| said.contains(why))
        })
    }
}

#[test]
fn users_do_what_they_may_and_nothing_else() {
    let c = Cluster::up().unwrap();
    for pool in ["mine", "theirs"] {
        c.run(&format!("ceph osd pool create {pool} 8")).unwrap();
        c.run(&format!("rados -p {pool} put there /etc/hostname")).unwrap();
    }
    let user = User::make(&c, "client.one", &["mon=allow r", "osd=allow rw pool=mine"]);
    user.run("rados -p mine put a /etc/hostname").unwrap();
    assert_eq!(user.run("rados -p mine ls").unwrap().lines().count(), 2);
    for denied in ["rados -p theirs get there -", "rados -p theirs put a /etc/hostname", "rados -p theirs ls"]
    {
        assert!(user.is_denied(denied), "{denied}");
    }
    user.run("ceph -s").unwrap();
    for denied in
        ["ceph osd pool create more 8", "ceph osd set noout", "ceph auth ls", "ceph tell osd.0 version"]
    {
        assert!(user.is_denied(denied), "{denied}");
    }
    let reader = User::make(
        &c,
        "client.reader",
        &["mon=allow r", "osd=allow r pool=mine namespace=n, allow r pool=theirs"],
    );
    reader.run("rados -p theirs get there -").unwrap();
    reader.run("rados -p mine -N n ls").unwrap();
    for denied in ["rados -p theirs put a /etc/hostname", "rados -p theirs rm there", "rados -p mine ls"] {
        assert!(reader.is_denied(denied), "{denied}");
    }
    // An unknown entity, an entity with another's key, and a client without a key.
    let key = c.folder().join("client.reader.keyring");
    let forged = std::fs::read_to_string(&key).unwrap().replace("client.reader", "client.admin");
    std::fs::write(&key, forged).unwrap();
    for how in [format!("--keyring {}", key.display()), "--auth_client_required none".to_string()] {
        let output = c.try_run(&format!("ceph {how} --connect-timeout 20 -s")).unwrap();
        assert!(!output.status.success(), "{how}: {}", text(&output.stdout));
    }
    // A client with the key of the monitors may do everything.
    c.run(&format!("ceph -n mon. --keyring {} auth ls", c.folder().join("mon.keyring").display())).unwrap();
    // Who is removed begins no other session.
    user.run("ceph -s").unwrap();
    c.run("ceph auth rm client.one").unwrap();
    assert!(user.run("ceph --connect-timeout 20 -s").is_err());
}

#[test]
fn users_of_images_need_no_more_than_ceph_says() {
    let c = Cluster::up().unwrap();
    for pool in ["mine", "theirs"] {
        c.run(&format!("ceph osd pool create {pool} 8")).unwrap();
        c.run(&format!("rbd pool init {pool}")).unwrap();
        c.run(&format!("rbd create {pool}/there --size 4M")).unwrap();
    }
    let caps = [
        "mon=profile rbd",
        "mgr=profile rbd pool=mine",
        "osd=profile rbd pool=mine, profile rbd-read-only pool=theirs",
    ];
    let user = User::make(&c, "client.vm", &caps);
    for works in [
        "rbd create mine/disk --size 16M",
        "rbd bench mine/disk --io-type write --io-size 4096 --io-total 65536",
        "rbd snap create mine/disk@s",
        "rbd snap protect mine/disk@s",
        "rbd clone mine/disk@s mine/child",
        "rbd flatten --no-progress mine/child",
        "rbd snap unprotect mine/disk@s",
        "rbd snap purge --no-progress mine/disk",
        "rbd rm --no-progress mine/child",
        "rbd lock add mine/disk l",
        "rbd info theirs/there",
        "ceph rbd task add remove mine/disk",
        "ceph rbd task add flatten mine/there",
    ] {
        let said = user.run(works);
        // There is nothing to flatten, which is not to say that one may not.
        assert!(
            said.is_ok() || works.ends_with("flatten mine/there") && !user.is_denied(works),
            "{works}: {said:?}"
        );
    }
    for denied in [
        "rbd create theirs/disk --size 16M",
        "rbd snap create theirs/there@s",
        "rbd rm --no-progress theirs/there",
        "ceph rbd task add remove theirs/there",
        "ceph osd pool create more 8",
    ] {
        assert!(user.is_denied(denied), "{denied}: {:?}", user.run(denied));
    }
    c.run("rbd info theirs/there").unwrap();

    // As ceph-csi has it: one namespace for each user.
    c.run("rbd namespace create mine/n").unwrap();
    let caps = ["mon=profile rbd", "mgr=profile rbd pool=mine", "osd=profile rbd pool=mine namespace=n"];
    let tenant = User::make(&c, "client.tenant", &caps);
    for works in [
        "rbd create mine/n/disk --size 16M",
        "rbd snap create mine/n/disk@s",
        "rbd snap rm --no-progress mine/n/disk@s",
        "rbd rm --no-progress mine/n/disk",
    ] {
        tenant.run(works).unwrap_or_else(|said| panic!("{works}: {said}"));
    }
    for denied in ["rbd create mine/disk2 --size 16M", "rbd snap create mine/disk@t"] {
        assert!(tenant.is_denied(denied), "{denied}: {:?}", tenant.run(denied));
    }
}

/// Tickets last for five seconds here. A client that continues for longer gets others, and OSDs know them,
/// also those that come back in between.
#[test]
fn clients_go_on_when_tickets_end_and_keys_change() {
    let c = Cluster::up().unwrap();
    c.run("ceph config set mon auth_service_ticket_ttl 5").unwrap();
    c.run("ceph osd pool create load 8").unwrap();
    let load = c.start_load("load").unwrap();
    for osd in ["osd.0", "osd.1", "osd.2"] {
        std::thread::sleep(Duration::from_secs(6));
        c.kill(osd).unwrap();
        c.start(osd).unwrap();
        let all_up = || Ok(c.json("ceph status")?["osdmap"]["num_up_osds"] == 3);
        wait_until("all OSDs are up", MINUTE, all_up).unwrap();
        c.wait_clean().unwrap();
    }
    load.finish().unwrap();
}

#[test]
fn all_that_is_said_can_be_encrypted() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    let secure = "--ms_client_mode secure --ms_mon_client_mode secure";
    c.run(&format!("rados {secure} -p p bench 1 write -b 65536 -t 8 --no-cleanup")).unwrap();
    c.run(&format!("rados {secure} -p p bench 1 seq -t 8")).unwrap();
    let file = c.folder().join("in");
    std::fs::write(&file, vec![7; 5 << 20]).unwrap();
    c.run(&format!("rados {secure} -p p put large {}", file.display())).unwrap();
    let back = c.folder().join("out");
    c.run(&format!("rados -p p get large {}", back.display())).unwrap();
    assert!(std::fs::read(&back).unwrap() == vec![7; 5 << 20]);
    // Who wants no encryption gets none.
    let plain = "--ms_client_mode crc --ms_mon_client_mode crc";
    c.run(&format!("rados {plain} -p p get large {}", back.display())).unwrap();
}

/// A cluster from before keys were used.
#[test]
fn a_cluster_may_ask_nobody_for_proof() {
    let c = Cluster::up_with(&["--processes", "--auth", "none"]).unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("rados -p p put a /etc/hostname").unwrap();
    c.run("rados -p p --name client.anybody get a -").unwrap();
    succeed(&mut c.nacre("down")).unwrap();
    let refused = c.nacre("up").args(["--auth", "cephx", "--detach"]).output().unwrap();
    assert!(text(&refused.stderr).contains("was created with --auth none"), "{}", text(&refused.stderr));
}
