//! Objects through the stock `rados` and through python3-rados.

use nacre_interop::{Cluster, wait_until};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

#[test]
fn rados_does_its_everyday_work() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("ceph osd pool application enable p test").unwrap();
    let file = c.folder().join("in");
    let back = c.folder().join("out");
    std::fs::write(&file, "hello nacre\n").unwrap();
    let (file, back) = (file.to_str().unwrap(), back.to_str().unwrap());
    let get = |name: &str| {
        c.run(&format!("rados -p p get {name} {back}")).unwrap();
        std::fs::read_to_string(back).unwrap()
    };

    c.run(&format!("rados -p p put one {file}")).unwrap();
    assert_eq!(get("one"), "hello nacre\n");
    assert_eq!(c.run("rados -p p ls").unwrap(), "one\n");
    assert!(c.run("rados -p p stat one").unwrap().contains("size 12"));

    c.run("rados -p p cp one two").unwrap();
    assert_eq!(get("two"), "hello nacre\n");
    c.run(&format!("rados -p p append two {file}")).unwrap();
    assert_eq!(get("two"), "hello nacre\nhello nacre\n");
    c.run("rados -p p truncate two 5").unwrap();
    assert_eq!(get("two"), "hello");

    c.run("rados -p p setxattr one color blue").unwrap();
    assert_eq!(c.run("rados -p p getxattr one color").unwrap().trim_end(), "blue");
    assert_eq!(c.run("rados -p p listxattr one").unwrap(), "color\n");
    c.run("rados -p p rmxattr one color").unwrap();
    assert_eq!(c.run("rados -p p listxattr one").unwrap(), "");

    c.run("rados -p p setomapval one key value").unwrap();
    c.run("rados -p p setomapval one other x").unwrap();
    assert_eq!(c.run("rados -p p listomapkeys one").unwrap(), "key\nother\n");
    assert!(c.run("rados -p p getomapval one key").unwrap().contains("value"));
    c.run("rados -p p rmomapkey one other").unwrap();
    assert_eq!(c.run("rados -p p listomapkeys one").unwrap(), "key\n");
    c.run("rados -p p clearomap one").unwrap();
    assert_eq!(c.run("rados -p p listomapkeys one").unwrap(), "");

    c.run(&format!("rados -p p -N space put three {file}")).unwrap();
    assert_eq!(c.run("rados -p p -N space ls").unwrap(), "three\n");
    let mut all: Vec<String> = c.run("rados -p p --all ls").unwrap().lines().map(str::to_owned).collect();
    all.sort();
    assert_eq!(all, ["\tone", "\ttwo", "space\tthree"]);
    c.run(&format!("rados -p p --object-locator where put four {file}")).unwrap();
    assert!(c.run("rados -p p ls").unwrap().contains("four\twhere"));

    c.run("rados -p p rm one").unwrap();
    assert!(!c.try_run("rados -p p stat one").unwrap().status.success());
    assert!(!c.try_run("rados -p p get one /dev/null").unwrap().status.success());
    assert!(!c.try_run("rados -p nosuchpool ls").unwrap().status.success());

    let df = c.json("rados df").unwrap();
    let pool = df["pools"].as_array().unwrap().iter().find(|pool| pool["name"] == "p").unwrap();
    assert!(pool["num_objects"].is_string() || pool["num_objects"].is_number(), "{df}");
}

#[test]
fn rados_bench_writes_and_reads_back() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create b 16").unwrap();
    let wrote = c.run("rados -p b bench 2 write -b 65536 -t 16 --no-cleanup").unwrap();
    assert!(wrote.contains("Total writes made"), "{wrote}");
    let read = c.run("rados -p b bench 1 seq -t 16").unwrap();
    assert!(read.contains("Total reads made"), "{read}");
    c.run("rados -p b bench 1 rand -t 16").unwrap();
    c.run("rados -p b cleanup").unwrap();
    assert_eq!(c.run("rados -p b ls").unwrap(), "");
}

/// What one client removes in the moment in which another makes one is the removed one's alone.
#[test]
fn snapshots_that_are_made_while_others_are_removed_keep_what_was() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.python("snaps_at_once.py", &["p", "4"]).unwrap();
}

#[test]
fn python_bindings_find_cephs_results_and_error_numbers() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create py 8").unwrap();
    let said = c.python("basic_io.py", &["py"]).unwrap();
    assert!(said.ends_with("all good\n"), "{said}");
}

/// What is kept for it is seen by no `rados rm`, and was there for good.
#[test]
fn clones_made_for_a_removed_snapshot_are_trimmed() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    let mut command = c.python_command("late_writer.py");
    let mut writer = command.arg("p").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(writer.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "removed\n");
    let forgotten = || Ok(c.json("ceph osd dump")?["removed_snaps_queue"] == serde_json::json!([]));
    wait_until("the snapshot to be forgotten", Duration::from_secs(60), forgotten).unwrap();
    writer.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert!(writer.wait().unwrap().success());
    let gone = || Ok(c.run("rados -p p ls")?.is_empty());
    wait_until("nothing to be left", Duration::from_secs(60), gone).unwrap();
}
