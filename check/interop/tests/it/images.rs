//! Images through librbd: what drivers of virtual machines do with them.

use nacre_interop::{Cluster, succeed, wait_until};
use std::time::Duration;

#[test]
fn drivers_of_virtual_machines_find_all_that_they_call() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create volumes 8").unwrap();
    c.run("rbd pool init volumes").unwrap();
    c.python("drivers.py", &["volumes"]).unwrap();
}

#[test]
fn no_writer_to_a_clone_loses_what_another_wrote_beside_it() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create images 8").unwrap();
    c.run("rbd pool init images").unwrap();
    let seed = std::process::id().to_string();
    c.python("clones.py", &["images", &seed]).unwrap();
}

#[test]
fn fio_and_qemu_read_from_an_image_what_they_wrote() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create images 8").unwrap();
    c.run("rbd pool init images").unwrap();
    c.run("rbd create --size 64M images/fio").unwrap();
    let mut fio = c.client("fio");
    fio.args(["--name=x", "--ioengine=rbd", "--clientname=admin", "--pool=images", "--rbdname=fio"]);
    fio.args(["--rw=randrw", "--bs=16k", "--iodepth=8", "--size=8M", "--verify=crc32c", "--do_verify=1"]);
    succeed(fio.current_dir(c.folder())).unwrap();

    let file = c.folder().join("raw");
    let content: Vec<u8> = (0..3_000_320_u32).map(|i| (i / 7) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let image = format!("rbd:images/qemu:conf={}", c.conf().display());
    c.run(&format!("qemu-img convert -f raw -O raw {} {image}", file.display())).unwrap();
    let mut io = c.client("qemu-io");
    for line in ["write -P 7 64k 64k", "flush", "read -P 7 64k 64k", "discard 0 1M", "read -P 0 64k 64k"] {
        io.args(["-c", line]);
    }
    let said = succeed(io.args(["-f", "raw", &image])).unwrap();
    assert!(!said.contains("failed"), "{said}");
    c.run("rbd snap create images/qemu@s").unwrap();
    c.run(&format!("qemu-img resize -f raw {image} 8M")).unwrap();
    let back = c.folder().join("back");
    c.run(&format!("qemu-img convert -f raw -O raw {image} {}", back.display())).unwrap();
    let back = std::fs::read(&back).unwrap();
    assert_eq!(back.len(), 8 << 20);
    assert!(back[1 << 20..content.len()] == content[1 << 20..], "what was not discarded is as written");
}

/// The time is a minute's end, so this one takes about two.
#[test]
fn what_schedules_ask_for_is_done() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create images 8").unwrap();
    c.run("rbd pool init images").unwrap();
    c.run("rbd create --size 1M images/gone").unwrap();
    c.run("rbd trash mv images/gone").unwrap();
    c.run("rbd mirror pool enable images image").unwrap();
    c.run("rbd mirror pool peer add images client.nobody@elsewhere").unwrap(); // else there is nobody to make snapshots for
    c.run("rbd create --size 1M images/mirrored").unwrap();
    c.run("rbd mirror image enable images/mirrored snapshot").unwrap();
    let made = || -> anyhow::Result<usize> {
        Ok(c.json("rbd snap ls images/mirrored --all")?.as_array().map_or(0, Vec::len))
    };
    let before = made().unwrap();
    c.run("rbd trash purge schedule add --pool images 1m").unwrap();
    c.run("rbd mirror snapshot schedule add --pool images --image mirrored 1m").unwrap();
    // A pool shows what it inherits.
    c.run("rbd trash purge schedule add 30m").unwrap();
    c.run("ceph osd pool create heir 8").unwrap();
    c.run("rbd pool init heir").unwrap();
    let inherited = c.run("rbd trash purge schedule ls -R --pool heir").unwrap();
    assert!(inherited.contains("every 30m"), "{inherited}");
    c.run("rbd trash purge schedule rm 30m").unwrap();
    let status = c.json("rbd mirror snapshot schedule status").unwrap();
    assert_eq!(status[0]["image"], "images/mirrored", "{status}");
    let done = || Ok(c.run("rbd trash ls images")?.is_empty() && made()? > before);
    wait_until("a purge and a snapshot", Duration::from_secs(150), done).unwrap();
    // No snapshots are made of what is not primary.
    c.run("rbd mirror image demote images/mirrored").unwrap();
    assert_eq!(c.json("rbd mirror snapshot schedule status").unwrap(), serde_json::json!([]));
}

#[test]
fn who_uses_which_image_how_much_is_shown() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create images 8").unwrap();
    c.run("ceph osd pool create fast 8").unwrap();
    c.run("rbd pool init images").unwrap();
    c.run("rbd namespace create images/ns").unwrap();
    c.run("rbd create --size 64M --data-pool fast images/ns/busy").unwrap();
    c.run("rbd create --size 64M images/idle").unwrap();
    assert_eq!(c.json("ceph rbd perf image counters").unwrap()["counters"], serde_json::json!([]));
    let written = || {
        let mut bench = c.client("rbd");
        bench.args(
            "bench --io-type write --io-size 16K --io-total 4M --rbd-cache=false images/ns/busy".split(' '),
        );
        succeed(&mut bench)
    };
    written().unwrap();
    // All of it, once the OSDs have told.
    let counted = || {
        let all = c.json("ceph rbd perf image counters images/ns")?;
        assert_eq!(all["counter_descriptors"][0], "write_ops", "{all}");
        Ok(all["counters"][0]["0/busy"][2] == 4 << 20 && all["pool_descriptors"]["0"] == "images/ns")
    };
    wait_until("4 MiB to be counted", Duration::from_secs(30), counted).unwrap();
    let default = c.json("ceph rbd perf image counters images").unwrap();
    assert_eq!(default["counters"], serde_json::json!([]), "not those of its namespaces");
    assert_eq!(
        c.json("ceph rbd perf image counters images/other").unwrap()["counters"],
        serde_json::json!([])
    );
    written().unwrap();
    let mut shown = c.client("rbd");
    shown.args("perf image iostat --iterations 1 --format json --pool images --namespace ns".split(' '));
    let shown: serde_json::Value = serde_json::from_str(&succeed(&mut shown).unwrap()).unwrap();
    assert_eq!((&shown[0]["image"], &shown[0]["pool_namespace"]), (&"busy".into(), &"ns".into()), "{shown}");
}

#[test]
fn tasks_outlive_the_monitor_that_took_them_and_the_next_leader_does_them() {
    let c = Cluster::up_with(&["--processes", "--mons", "3"]).unwrap();
    c.run("ceph osd pool create images 8").unwrap();
    c.run("rbd pool init images").unwrap();
    c.run("rbd create --size 64M images/base").unwrap();
    c.run("rbd bench --io-type write --io-size 1M --io-total 64M images/base").unwrap();
    c.run("rbd snap create images/base@s").unwrap();
    c.run("rbd clone --rbd-default-clone-format 2 images/base@s images/kid").unwrap();
    // One that cannot be done before its time, and one that can.
    c.run("rbd create --size 8M images/kept").unwrap();
    let kept = c.json("rbd info images/kept").unwrap()["id"].as_str().unwrap().to_owned();
    c.run("rbd trash mv --expires-at tomorrow images/kept").unwrap();
    let task = c.json(&format!("ceph rbd task add trash remove images/{kept}")).unwrap();
    c.run("ceph rbd task add flatten images/kid").unwrap();
    let leader = c.json("ceph mgr dump").unwrap()["active_name"].as_str().unwrap().to_owned();
    c.kill(&format!("mon.{leader}")).unwrap();

    let flat = || Ok(c.json("rbd children images/base --all")?.as_array().is_some_and(Vec::is_empty));
    wait_until("the next leader to have flattened it", Duration::from_secs(60), flat).unwrap();
    c.start(&format!("mon.{leader}")).unwrap();
    let id = task["id"].as_str().unwrap();
    assert_eq!(c.json(&format!("ceph rbd task list {id}")).unwrap()["refs"], task["refs"]);
    c.run(&format!("ceph rbd task cancel {id}")).unwrap();
    assert_eq!(c.json("ceph rbd task list").unwrap(), serde_json::json!([]));
    c.run(&format!("rbd trash rm --force --no-progress images/{kept}")).unwrap();
    c.run("rbd info images/kid").unwrap();
}

#[test]
fn encrypted_image_is_readable_only_with_its_passphrase() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create images 8").unwrap();
    c.run("rbd pool init images").unwrap();
    let phrase = c.folder().join("phrase");
    std::fs::write(&phrase, "open sesame").unwrap();
    // qemu has the encryption loaded by librbd.
    for (format, name_in_qemu) in [("luks1", "luks"), ("luks2", "luks2")] {
        c.run(&format!("rbd create --size 64M images/{format}")).unwrap();
        c.run(&format!("rbd encryption format images/{format} {format} {}", phrase.display())).unwrap();
        let io = |secret: String, lines: &[&str]| {
            let mut io = c.client("qemu-io");
            io.args(["--object", &format!("secret,id=key,{secret}")]);
            for line in lines {
                io.args(["-c", line]);
            }
            let conf = c.conf();
            let image = format!("driver=rbd,pool=images,image={format},conf={}", conf.display());
            let key = format!("encrypt.format={name_in_qemu},encrypt.key-secret=key");
            succeed(io.args(["--image-opts", &format!("{image},{key}")]))
        };
        let key = || format!("file={}", phrase.display());
        // The second one lies in two objects.
        io(key(), &["write -P 0x41 1M 64k", "write -P 0x42 4093k 8k", "flush"]).unwrap();
        let said = io(key(), &["read -P 0x41 1M 64k", "read -P 0x42 4093k 8k"]).unwrap();
        assert!(!said.contains("failed"), "{said}");
        let refused = io("data=wrong".to_owned(), &["read 1M 64k"]).unwrap_err();
        assert!(refused.to_string().contains("encryption load fail"), "{refused}");
        let raw = c.folder().join(format);
        c.run(&format!("rbd export --no-progress images/{format} {}", raw.display())).unwrap();
        let raw = std::fs::read(raw).unwrap();
        assert!(raw.starts_with(b"LUKS"), "there is a header");
        assert!(!raw.windows(32).any(|bytes| bytes == [0x41; 32] || bytes == [0x42; 32]));
    }
}
