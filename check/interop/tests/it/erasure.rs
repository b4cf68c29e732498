//! Erasure-coded pools with stock clients, while OSDs are killed.

use crate::model::Work;
use nacre_interop::{Cluster, succeed, text, wait_until};
use std::time::Duration;

/// `count` pseudo-random bytes in a file of the cluster's folder.
fn file(c: &Cluster, name: &str, count: usize) -> String {
    let mut state = 0x9e37_79b9_u32 ^ count as u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    let path = c.folder().join(name);
    std::fs::write(&path, std::iter::repeat_with(next).take(count).collect::<Vec<u8>>()).unwrap();
    path.display().to_string()
}

#[test]
fn objects_and_images_survive_the_loss_of_osds() {
    let c = Cluster::up_with(&["--processes", "--osds", "4"]).unwrap();
    c.run("ceph osd erasure-code-profile set code k=2 m=1 crush-failure-domain=osd").unwrap();
    c.run("ceph osd pool create plain 4 4 erasure code").unwrap();
    c.run("ceph osd pool create data 4 4 erasure code").unwrap();
    c.run("ceph osd pool set data allow_ec_overwrites true").unwrap();
    c.run("ceph osd pool create rbd 4").unwrap();
    let pools = c.json("ceph osd pool ls detail").unwrap();
    let plain = pools.as_array().unwrap().iter().find(|pool| pool["pool_name"] == "plain").unwrap();
    assert_eq!(
        (&plain["size"], &plain["min_size"], &plain["stripe_width"]),
        (&3.into(), &2.into(), &8192.into())
    );
    c.wait_clean().unwrap();

    let (large, small) = (file(&c, "large", 3_000_000), file(&c, "small", 5_000));
    c.run(&format!("rados -p plain put large {large}")).unwrap();
    c.run(&format!("rados -p plain put small {small}")).unwrap();
    let refused = c.try_run("rados -p plain truncate large 1000").unwrap();
    assert!(text(&refused.stderr).contains("Operation not supported"), "{}", text(&refused.stderr));
    let refused = c.try_run("rados -p data setomapval o key value").unwrap();
    assert!(text(&refused.stderr).contains("Operation not supported"), "{}", text(&refused.stderr));

    c.run("rbd create --size 8M --data-pool data rbd/image").unwrap();
    c.run("rbd bench --io-type write --io-size 4096 --io-total 256K --io-pattern rand rbd/image").unwrap();
    c.run("rbd snap create rbd/image@first").unwrap();
    let before = c.folder().join("before").display().to_string();
    c.run(&format!("rbd export --no-progress rbd/image@first {before}")).unwrap();

    // With holes, which are discarded.
    let image = format!("rbd:rbd/disk:conf={}:rbd_default_data_pool=data", c.conf().display());
    let raw = c.folder().join("raw").display().to_string();
    std::fs::write(
        &raw,
        [std::fs::read(&large).unwrap(), vec![0; 3 << 20], std::fs::read(&small).unwrap()].concat(),
    )
    .unwrap();
    c.run(&format!("qemu-img convert -f raw -O raw {raw} {image}")).unwrap();
    let io = |lines: &[&str]| {
        let mut io = c.client("qemu-io");
        io.args(lines.iter().flat_map(|line| ["-c", line]));
        let said = succeed(io.args(["-f", "raw", &image])).unwrap();
        assert!(!said.contains("failed"), "{said}");
    };
    io(&["write -P 7 70k 9k", "write -z 1M 100k", "discard 2M 128k", "flush", "read -P 0 1M 100k"]);
    let model = Work::start(&c, "model_images.py", &["rbd", "41", "data"]);

    for (round, osd) in ["osd.0", "osd.2"].into_iter().enumerate() {
        c.kill(osd).unwrap();
        let is_down = || Ok(c.json("ceph osd stat")?["num_up_osds"] == 3);
        wait_until("the OSD to be down", Duration::from_secs(60), is_down).unwrap();
        let check = |name: &str, original: &str| {
            let read = c.folder().join("read").display().to_string();
            c.run(&format!("rados -p plain get {name} {read}")).unwrap();
            assert!(
                std::fs::read(&read).unwrap() == std::fs::read(original).unwrap(),
                "{name} without {osd}"
            );
        };
        check("large", &large);
        check("small", &small);
        c.run(&format!("rados -p plain put round{round} {large}")).unwrap();
        c.run("rbd bench --io-type write --io-size 4096 --io-total 64K --io-pattern rand rbd/image").unwrap();
        c.start(osd).unwrap();
        c.wait_clean().unwrap();
        check(&format!("round{round}"), &large);
        io(&["read -P 7 70k 9k", "read -P 0 1M 100k", "read -P 0 2M 128k", "read -P 0 3M 2M"]);
    }
    model.stop();
    let after = c.folder().join("after").display().to_string();
    c.run(&format!("rbd export --no-progress rbd/image@first {after}")).unwrap();
    assert!(std::fs::read(&after).unwrap() == std::fs::read(&before).unwrap(), "the snapshot changed");
    c.run("rbd snap rm --no-progress rbd/image@first").unwrap();
    c.run("rbd rm --no-progress rbd/image").unwrap();
}
