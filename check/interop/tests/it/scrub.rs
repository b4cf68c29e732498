//! A copy that becomes corrupt on its disk is found, shown to operators as Ceph shows it, and made right.

use nacre_interop::{Cluster, wait_until};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Flips a bit of the first place in a store's file where these bytes are.
fn damage(store: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new().read(true).write(true).open(store).unwrap();
    let (mut at, mut block) = (0, vec![0; 4096]);
    loop {
        file.read_exact(&mut block).expect("the bytes are on the device");
        if block.starts_with(bytes) {
            break;
        }
        at += 4096;
    }
    file.write_all_at(&[block[100] ^ 1], at + 100).unwrap();
    file.sync_all().unwrap();
}

fn stamp(c: &Cluster, pg: &str, which: &str) -> String {
    let all = c.json("ceph pg ls").unwrap();
    let all = all["pg_stats"].as_array().unwrap().iter();
    let row = all.clone().find(|row| row["pgid"] == pg).unwrap();
    row[which].as_str().unwrap().to_string()
}

/// Has a group looked through, and waits until it was.
fn scrub(c: &Cluster, pg: &str, command: &str) -> String {
    let before = stamp(c, pg, "last_deep_scrub_stamp");
    let output = c.try_run(&format!("ceph pg {command} {pg}")).unwrap();
    wait_until("a deep scrub", MINUTE, || Ok(stamp(c, pg, "last_deep_scrub_stamp") != before)).unwrap();
    nacre_interop::text(&output.stderr)
}

fn checks(c: &Cluster) -> Value {
    c.json("ceph health detail").unwrap()["checks"].clone()
}

#[test]
fn a_rotten_copy_is_found_listed_and_repaired() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 1").unwrap();
    c.run("ceph osd pool application enable p test").unwrap();
    c.wait_clean().unwrap();
    let content: Vec<u8> = (0..1 << 20).map(|n: u32| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let file = c.folder().join("content");
    std::fs::write(&file, &content).unwrap();
    c.run(&format!("rados -p p put rotten {}", file.display())).unwrap();
    c.run("rados -p p put sound /etc/os-release").unwrap();
    c.run("rados -p p setomapval sound key value").unwrap();
    let placed = c.json("ceph osd map p rotten").unwrap();
    let pg = placed["pgid"].as_str().unwrap().to_string();
    let acting: Vec<i64> = placed["acting"].as_array().unwrap().iter().filter_map(Value::as_i64).collect();
    let (primary, replica) = (acting[0], acting[1]);

    let said = scrub(&c, &pg, "deep-scrub");
    assert_eq!(said, format!("instructing pg {pg} on osd.{primary} to deep-scrub\n"));
    assert_eq!(c.json("rados list-inconsistent-pg p").unwrap(), json!([]));
    assert_eq!(c.json(&format!("rados list-inconsistent-obj {pg}")).unwrap()["inconsistents"], json!([]));

    c.run("ceph osd set noout").unwrap();
    c.kill(&format!("osd.{replica}")).unwrap();
    damage(&c.folder().join(format!("osd.{replica}/store")), &content[..64]);
    c.start(&format!("osd.{replica}")).unwrap();
    c.run("ceph osd unset noout").unwrap();
    c.wait_clean().unwrap();

    scrub(&c, &pg, "deep-scrub");
    wait_until("health to know", MINUTE, || Ok(!checks(&c)["PG_DAMAGED"].is_null())).unwrap();
    let health = checks(&c);
    assert_eq!(health["OSD_SCRUB_ERRORS"]["summary"]["message"], "1 scrub errors");
    assert_eq!(health["PG_DAMAGED"]["summary"]["message"], "Possible data damage: 1 pg inconsistent");
    assert_eq!(c.json("rados list-inconsistent-pg p").unwrap(), json!([pg]));
    let found = c.json(&format!("rados list-inconsistent-obj {pg}")).unwrap();
    let [bad] = &found["inconsistents"].as_array().unwrap()[..] else { panic!("{found:#}") };
    assert_eq!(bad["object"]["name"], "rotten");
    assert_eq!((&bad["errors"], &bad["union_shard_errors"]), (&json!([]), &json!(["read_error"])));
    assert_eq!(bad["selected_object_info"]["oid"]["oid"], "rotten");
    assert_eq!(bad["selected_object_info"]["size"], 1 << 20);
    for shard in bad["shards"].as_array().unwrap() {
        let wrong = shard["osd"] == replica;
        assert_eq!(shard["errors"], if wrong { json!(["read_error"]) } else { json!([]) });
        assert_eq!(shard["primary"], shard["osd"] == primary);
        assert_eq!((&shard["size"], shard["data_digest"].is_null()), (&json!(1 << 20), wrong));
    }
    let clones = c.json(&format!("rados list-inconsistent-snapset {pg}")).unwrap();
    assert_eq!(clones["inconsistents"], json!([]));

    let said = scrub(&c, &pg, "repair");
    assert_eq!(said, format!("instructing pg {pg} on osd.{primary} to repair\n"));
    c.wait_clean().unwrap();
    wait_until("health to forget", MINUTE, || {
        let checks = checks(&c);
        Ok(checks["PG_DAMAGED"].is_null() && checks["OSD_SCRUB_ERRORS"].is_null())
    })
    .unwrap();
    scrub(&c, &pg, "deep-scrub");
    assert_eq!(c.json(&format!("rados list-inconsistent-obj {pg}")).unwrap()["inconsistents"], json!([]));
    let back = c.folder().join("back");
    c.run(&format!("rados -p p get rotten {}", back.display())).unwrap();
    assert!(std::fs::read(&back).unwrap() == content);
}
