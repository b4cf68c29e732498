//! Stock `rbd-mirror` between two clusters.

use anyhow::{Context, Result, ensure};
use nacre_interop::background::Background;
use nacre_interop::{Cluster, wait_until};
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(120);
const IMAGES: [&str; 3] = ["journaled", "parent", "child"];

/// The daemon that brings a cluster's images up to date with another's; killed when dropped.
struct Mirror(#[expect(dead_code, reason = "it is there to be dropped")] Background);

impl Mirror {
    fn of(cluster: &Cluster) -> Result<Mirror> {
        let mut command = cluster.client("rbd-mirror");
        command.arg("--foreground");
        command.arg(format!("--admin-socket={}", cluster.folder().join("rbd-mirror.asok").display()));
        command.arg(format!("--log-file={}", cluster.folder().join("log/rbd-mirror.log").display()));
        // It polls each half minute, and waits 45 s for a daemon that was killed before it.
        command.args(["--rbd-mirror-leader-heartbeat-interval=1"]);
        command.args(["--rbd-mirror-pool-replayers-refresh-interval=2"]);
        command.args(["--rbd-mirror-image-state-check-interval=2", "--rbd-mirror-journal-poll-age=1"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Mirror(Background::start(&mut command)?))
    }
}

/// A cluster with a pool whose images are mirrored one by one.
fn site(name: &str) -> Result<Cluster> {
    let c = Cluster::up()?;
    c.run("ceph osd pool create disks 8")?;
    c.run("rbd pool init disks")?;
    c.run(&format!("rbd mirror pool enable disks image --site-name {name}"))?;
    Ok(c)
}

fn add_peer(c: &Cluster, other: &Cluster, name: &str) -> Result<()> {
    let conf = std::fs::read_to_string(other.conf())?;
    let mons = conf.lines().find_map(|line| line.strip_prefix("mon host = ")).context("no monitors")?;
    let key = c.folder().join(format!("key-of-{name}"));
    std::fs::write(&key, other.run("ceph auth print-key client.admin")?)?;
    let how = format!("--remote-mon-host {mons} --remote-key-file {}", key.display());
    c.run(&format!("rbd mirror pool peer add disks client.admin@{name} {how}"))?;
    Ok(())
}

fn bench(c: &Cluster, image: &str) -> Result<()> {
    let how = "--io-type write --io-size 16K --io-total 256K --io-pattern rand";
    c.run(&format!("rbd bench disks/{image} {how}")).map(drop)
}

/// Writes, and lets the other site have it.
fn write(c: &Cluster, image: &str) -> Result<()> {
    bench(c, image)?;
    if image != "journaled" {
        c.run(&format!("rbd mirror image snapshot disks/{image}"))?;
    }
    Ok(())
}

fn content(c: &Cluster, image: &str) -> Result<Vec<u8>> {
    let file = c.folder().join("exported");
    let _ = std::fs::remove_file(&file);
    let exported = c.try_run(&format!("rbd export --no-progress disks/{image} {}", file.display()))?;
    // One that does not exist yet has none.
    Ok(if exported.status.success() { std::fs::read(&file)? } else { Vec::new() })
}

fn wait_same(one: &Cluster, other: &Cluster, image: &str) -> Result<()> {
    let wanted = content(one, image)?;
    ensure!(wanted.iter().any(|&byte| byte != 0), "{image} is empty");
    wait_until(&format!("{image} to be the same at the other site"), SOON, || {
        Ok(content(other, image)? == wanted)
    })
}

/// Refused until the other site's demotion has arrived.
fn promote(c: &Cluster, image: &str) -> Result<()> {
    wait_until(&format!("{image} to be promoted"), SOON, || {
        Ok(c.try_run(&format!("rbd mirror image promote disks/{image}"))?.status.success())
    })
}

fn status(c: &Cluster) -> Result<Value> {
    c.json("rbd mirror pool status disks --verbose")
}

fn wait_states(c: &Cluster, state: &str) -> Result<()> {
    wait_until(&format!("all images to be {state}"), SOON, || {
        let status = status(c)?;
        let images = status["images"].as_array().context("no images")?;
        let all = images.iter().all(|image| image["state"] == state && image.get("daemon_service").is_some());
        Ok(all && images.len() == IMAGES.len())
    })
}

#[test]
fn images_are_mirrored_to_another_cluster_which_takes_over_and_hands_back() {
    let (a, b) = (site("a").unwrap(), site("b").unwrap());
    add_peer(&a, &b, "b").unwrap();
    add_peer(&b, &a, "a").unwrap();
    let (_at_a, at_b) = (Mirror::of(&a).unwrap(), Mirror::of(&b).unwrap());

    a.run("rbd create disks/journaled --size 4M --image-feature exclusive-lock,journaling").unwrap();
    a.run("rbd mirror image enable disks/journaled journal").unwrap();
    a.run("rbd create disks/parent --size 4M").unwrap();
    a.run("rbd mirror image enable disks/parent snapshot").unwrap();
    write(&a, "parent").unwrap();
    for line in [
        "rbd snap create --no-progress disks/parent@base",
        "rbd snap protect disks/parent@base",
        "rbd mirror image snapshot disks/parent",
        "rbd clone disks/parent@base disks/child",
    ] {
        a.run(line).unwrap();
    }
    // An object of a clone that the other site knows without it would arrive without what is its parent's:
    // Ceph 16.2 does so too (`docs/images.md`).
    bench(&a, "child").unwrap();
    a.run("rbd mirror image enable disks/child snapshot").unwrap();
    write(&a, "journaled").unwrap();
    // What changes beside the contents arrives in order with them.
    a.run("rbd snap create --no-progress disks/journaled@before").unwrap();
    a.run("rbd resize --no-progress disks/journaled --size 6M").unwrap();
    a.run("rbd image-meta set disks/journaled owner me").unwrap();
    // Whoever copies meets a dead OSD, and another daemon that takes its place.
    b.kill("osd.1").unwrap();
    for image in ["journaled", "child"] {
        write(&a, image).unwrap();
    }
    drop(at_b);
    let at_b = Mirror::of(&b).unwrap();
    for image in IMAGES {
        wait_same(&a, &b, image).unwrap();
    }
    b.start("osd.1").unwrap();
    wait_same(&a, &b, "journaled@before").unwrap();
    assert_eq!(b.run("rbd image-meta get disks/journaled owner").unwrap().trim(), "me");
    let child = b.json("rbd info disks/child").unwrap();
    assert_eq!((&child["parent"]["image"], &child["parent"]["snapshot"]), (&"parent".into(), &"base".into()));

    wait_states(&b, "up+replaying").unwrap();
    wait_states(&a, "up+stopped").unwrap();
    // What the other site's daemon says of an image counts here, too, and it may be at a second attempt.
    let well = || {
        let status = status(&a)?;
        Ok(status["summary"]["health"] == "OK" && status["daemons"][0]["health"] == "OK")
    };
    wait_until("images and daemon to be well", SOON, well).unwrap();
    assert!(a.run("ceph -s").unwrap().contains("    rbd-mirror: 1 daemon active (1 hosts)\n"));

    // In good order: one demotes, the other promotes.
    for image in IMAGES {
        a.run(&format!("rbd mirror image demote disks/{image}")).unwrap();
        promote(&b, image).unwrap();
        // The daemon that mirrored it keeps its lock for a moment longer.
        wait_until("the image to be let go of", SOON, || Ok(bench(&b, image).is_ok())).unwrap();
        write(&b, image).unwrap();
        wait_same(&b, &a, image).unwrap();
    }
    // The primary's site is lost, as a whole. What it had not sent when it returns is given up.
    drop(at_b);
    let daemons = b.daemons().unwrap();
    write(&b, "journaled").unwrap();
    daemons.iter().for_each(|daemon| b.kill(daemon).unwrap());
    for image in IMAGES {
        a.run(&format!("rbd mirror image promote --force disks/{image}")).unwrap();
        write(&a, image).unwrap();
    }
    daemons.iter().for_each(|daemon| b.start(daemon).unwrap());
    let _at_b = Mirror::of(&b).unwrap();
    for image in IMAGES {
        b.run(&format!("rbd mirror image demote disks/{image}")).unwrap();
        b.run(&format!("rbd mirror image resync disks/{image}")).unwrap();
    }
    for image in IMAGES {
        wait_same(&a, &b, image).unwrap();
    }
    wait_states(&b, "up+replaying").unwrap();

    // Gone at one site is gone at the other.
    a.run("rbd rm --no-progress disks/child").unwrap();
    wait_until("the removed image to be gone", SOON, || {
        Ok(!b.run("rbd ls disks")?.lines().any(|name| name == "child"))
    })
    .unwrap();
}
