//! Stock clients of newer releases of Ceph, unpacked from other suites of Debian.

use anyhow::{Context, Result};
use nacre_interop::{Cluster, scripts, skip, succeed, text, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// A newer release's programs.
struct Release {
    root: PathBuf,
}

impl Release {
    /// None, and the test is skipped, where apt's mirror does not serve the suite or the machine lets no test
    /// change its mounts. Made once for a target folder.
    fn of_suite(suite: &str) -> Option<Release> {
        if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
            skip("`unshare --mount` is not permitted");
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(suite);
        let made = Command::new(scripts().join("client_root.sh")).arg(suite).arg(&folder).output().unwrap();
        match made.status.code() {
            Some(0) => Some(Release { root: folder.join("root") }),
            Some(3) => {
                skip(&format!("apt's mirror does not serve {suite}"));
                None
            }
            _ => panic!("{}{}", text(&made.stdout), text(&made.stderr)),
        }
    }

    /// One of its programs, on this cluster.
    fn client(&self, c: &Cluster, words: &[&str]) -> Command {
        let mut command = c.client("timeout");
        command.args(["--kill-after=5", "60"]).arg(scripts().join("in_root.sh")).arg(&self.root);
        command.arg(format!("/usr/bin/{}", words[0])).args(&words[1..]);
        command
    }
    fn try_run(&self, c: &Cluster, line: &str) -> Output {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.client(c, &words).output().unwrap()
    }
    fn run(&self, c: &Cluster, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        succeed(&mut self.client(c, &words)).unwrap()
    }
}

/// The number of the key that seals the tickets for OSDs, which a client's log tells.
fn osd_key(c: &Cluster) -> Result<u64> {
    let output = c.try_run("rados --debug-auth=10 --log-to-stderr=true lspools")?;
    let log = text(&output.stderr);
    let number =
        log.split("service osd secret_id ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    number.with_context(|| format!("no number of a key in {log}"))
}

/// What is done every day with `ceph`, `rados` and `rbd`.
fn use_daily(release: &Release, c: &Cluster) {
    let run = |line: &str| release.run(c, line);
    let file = c.folder().join("file");
    let file = file.to_str().unwrap();
    std::fs::write(file, b"content".repeat(1_000_000)).unwrap();
    let back = format!("{file}.back");
    let is_back = || {
        assert!(std::fs::read(file).unwrap() == std::fs::read(&back).unwrap());
        std::fs::remove_file(&back).unwrap();
    };

    assert!(run("ceph -s").contains("HEALTH_OK"));
    run("ceph osd pool create data 8");
    run("ceph osd pool create images 8");
    run("ceph osd df tree");
    run("ceph config set global rbd_cache false");
    run("ceph tell osd.0 version");
    run("ceph pg dump pgs_brief");
    run(&format!("rados -p data put object {file}"));
    run("rados -p data setxattr object name value");
    run("rados -p data setomapval object key value");
    run(&format!("rados -p data get object {back}"));
    is_back();
    run("rados -p data mksnap before");
    run("rados -p data rm object");
    run("rados -p data rollback object before");
    assert_eq!(run("rados -p data ls"), "object\n");
    run("rados -p data bench 1 write -b 4096 -t 4");
    run("rados df");

    run("rbd pool init images");
    run(&format!("rbd import --no-progress {file} images/one"));
    run("rbd snap create --no-progress images/one@s");
    run("rbd clone --rbd-default-clone-format 2 images/one@s images/two");
    run("rbd bench images/two --io-type write --io-size 4096 --io-total 65536");
    run("rbd flatten --no-progress images/two");
    run(&format!("rbd export --no-progress images/one {back}"));
    is_back();
    run("rbd group create images/group");
    run("rbd group image add images/group images/one");
    run("rbd group snap create images/group@b");
    run("rbd group snap create images/group@a");
    // As they were made.
    let listed = run("rbd group snap ls images/group");
    let words = listed.split_whitespace().filter(|word| ["a", "b"].contains(word));
    assert_eq!(words.collect::<Vec<_>>(), ["b", "a"], "{listed}");
    run("rbd trash mv images/two");
    run("rbd trash purge --no-progress images");
    run("rbd mirror pool enable images image");
    run("rbd mirror pool info images");
    assert_eq!(run("rbd du -p images").lines().filter(|line| line.contains("one")).count(), 2);
}

#[test]
fn client_of_ceph_18_works() {
    let Some(release) = Release::of_suite("trixie") else { return };
    let c = Cluster::up().unwrap();
    assert!(release.run(&c, "ceph --version").starts_with("ceph version 18.2."));
    use_daily(&release, &c);
}

#[test]
fn client_of_ceph_20_works_with_keys_of_both_kinds() {
    let Some(release) = Release::of_suite("forky") else { return };
    let c = Cluster::up().unwrap();
    let run = |line: &str| release.run(&c, line);
    assert!(run("ceph --version").starts_with("ceph version 20.2."));
    use_daily(&release, &c);
    // Namespaces are mirrored with those of other names.
    run("rbd namespace create images/here");
    run("rbd mirror pool disable images");
    run("rbd mirror pool enable images init-only");
    run("rbd mirror pool enable images/here image --remote-namespace there");
    assert!(run("rbd mirror pool info images/here").contains("there"));

    // A key of the newer kind, which this release makes.
    let keyring = c.folder().join("newer.keyring");
    let keyring = keyring.to_str().unwrap();
    run(&format!("ceph-authtool --create-keyring {keyring} --gen-key -n client.newer"));
    let mut caps = release.client(&c, &["ceph-authtool", keyring, "-n", "client.newer"]);
    for daemon in ["mon", "osd", "mgr"] {
        caps.args(["--cap", daemon, "allow *"]);
    }
    succeed(&mut caps).unwrap();
    run(&format!("ceph auth import -i {keyring}"));
    let is_newer = |key: &str| key.trim().starts_with("Ag");
    assert!(is_newer(&run("ceph auth get-key client.newer")));
    let newer = format!("--name client.newer --keyring {keyring}");
    run(&format!("ceph {newer} -s"));
    run(&format!("rados {newer} -p data put newer {keyring}"));
    run(&format!("rbd {newer} ls images"));
    run(&format!("ceph {newer} tell osd.0 version"));
    let secure = "--ms_mon_client_mode secure --ms_client_mode secure";
    run(&format!("rados {newer} {secure} -p data get newer -"));
    // An older release cannot even read it, and its users go on.
    assert!(!c.try_run(&format!("ceph {newer} -s")).unwrap().status.success());
    c.run("rados -p data get newer -").unwrap();

    // New keys are of the kind that was asked for, else of that of the asking client's own key.
    let make = |options: &[&str], name: &str, more: &[&str]| {
        let words = [&["ceph"][..], options, &["auth", "get-or-create-key", name, "mon", "allow r"], more];
        succeed(&mut release.client(&c, &words.concat())).unwrap()
    };
    let as_newer = ["--name", "client.newer", "--keyring", keyring];
    assert!(!is_newer(&make(&[], "client.a", &[])));
    assert!(is_newer(&make(&[], "client.b", &["--key-type", "aes256k"])));
    assert!(is_newer(&make(&as_newer, "client.c", &[])));
    assert!(!is_newer(&make(&as_newer, "client.d", &["--key-type", "aes"])));
    let refused = release.try_run(&c, "ceph auth get-or-create-key client.e --key-type des");
    assert!(text(&refused.stderr).contains("invalid key type: des"), "{}", text(&refused.stderr));

    // Another key in place of the one that an entity has.
    let rotated = run("ceph auth rotate client.newer");
    assert!(rotated.contains("key = AQ") && rotated.contains("caps mon = \"allow *\""), "{rotated}");
    assert!(!release.try_run(&c, &format!("ceph {newer} -s")).status.success());
    std::fs::write(keyring, rotated).unwrap();
    assert!(!is_newer(&run("ceph auth get-key client.newer")));
    c.run(&format!("ceph {newer} -s")).unwrap();
    let rotated = run("ceph auth rotate client.newer --key-type aes256k");
    std::fs::write(keyring, rotated).unwrap();
    run(&format!("ceph {newer} -s"));

    // The monitor map says of which kinds keys are, and clients of all releases read it.
    run("ceph mon set auth_preferred_cipher aes256k");
    run("ceph mon set auth_service_cipher aes256k");
    assert!(is_newer(&make(&[], "client.f", &[])));
    let dumped = run("ceph mon dump --format json");
    assert!(dumped.contains(r#""auth_service_cipher":{"name":"aes256k""#), "{dumped}");
    // All keys of OSDs are replaced: they have three at a time, which are used one after the other.
    let before = osd_key(&c).unwrap();
    run("ceph config set mon auth_service_ticket_ttl 4");
    wait_until("all keys of OSDs to be replaced", Duration::from_secs(60), || Ok(osd_key(&c)? >= before + 3))
        .unwrap();
    run("ceph config rm mon auth_service_ticket_ttl");
    run(&format!("rados {newer} -p data get newer -"));
    run("rados -p data get newer -");
    c.run("rados -p data get newer -").unwrap();
    c.run("ceph tell osd.0 version").unwrap();

    // A daemon's own key.
    let osd = c.folder().join("osd.1/keyring");
    std::fs::write(&osd, run("ceph auth rotate osd.1 --key-type aes256k")).unwrap();
    c.kill("osd.1").unwrap();
    c.start("osd.1").unwrap();
    c.wait_clean().unwrap();
    run(&format!("rados {newer} -p data get object -"));
}
