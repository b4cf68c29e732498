//! What stock clients say line by line, compared with what they say of a real Ceph.
//!
//! `check/interop/record.sh` records that again.

use nacre_interop::{Cluster, scripts};
use std::fmt::Write as _;
use std::process::Command;

fn recorded(script: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(format!("{script}.txt"))
}

/// Lines that differ, with the last line before them that does not.
fn difference(theirs: &str, ours: &str) -> String {
    let mut out = String::new();
    let (mut a, mut b) = (theirs.lines(), ours.lines());
    let mut before = "";
    loop {
        match (a.next(), b.next()) {
            (None, None) => return out,
            (Some(a), Some(b)) if a == b => before = a,
            (a, b) => {
                let end = "(the end)";
                let (a, b) = (a.unwrap_or(end), b.unwrap_or(end));
                writeln!(out, "after:  {before}\n  ceph:  {a}\n  nacre: {b}").expect("text in memory");
            }
        }
    }
}

fn compare(script: &str) {
    // An entity without a key.
    let options = if script == "auth" { &["--processes", "--auth", "none"][..] } else { &["--processes"] };
    let c = Cluster::up_with(options).unwrap();
    c.run("ceph osd pool create transcript 8").unwrap();
    if script == "images" {
        c.run("ceph osd pool create transcript-data 8").unwrap();
    }
    if matches!(script, "images" | "images_more" | "python_rbd" | "tasks") {
        c.run("rbd pool init transcript").unwrap();
    }
    let ours = c.python(&format!("{script}.py"), &["transcript"]).unwrap();
    let theirs = std::fs::read_to_string(recorded(script)).unwrap();
    assert!(ours == theirs, "{}", difference(&theirs, &ours));
}

/// They leave no letter of an id that librbd made up, and no number that it did not.
#[test]
fn transcripts_know_ids_of_images_however_short_they_are() {
    let said = "100ead2620 100e5f3 123456789012 4194304 18446744073709551615 facade";
    let script = format!("from ids import without_ids; print(without_ids('{said}'), end='')");
    let done = Command::new("python3").args(["-c", &script]).current_dir(scripts()).output().unwrap();
    let told = String::from_utf8(done.stdout).unwrap();
    assert_eq!(told, "ID ID ID 4194304 18446744073709551615 facade");
}

#[test]
fn every_call_of_librados_gives_what_it_gives_on_ceph() {
    compare("librados");
}

/// What is asynchronous, watches, older kinds of listings, commands, full pools, the blocklist.
#[test]
fn the_rest_of_librados_gives_what_it_gives_on_ceph() {
    compare("librados_rest");
}

/// The whole `rados` command: contents, attributes, omaps, snapshots, locks, dumps of pools, benches, and
/// what it says of all that is wrong.
#[test]
fn the_rados_command_says_what_it_says_on_ceph() {
    compare("rados_tool");
}

/// Every method of python3-rados.
#[test]
fn rados_for_python_gives_what_it_gives_on_ceph() {
    compare("python_rados");
}

/// Every method of python3-rbd, LUKS and mirroring too.
#[test]
fn images_for_python_are_what_they_are_on_ceph() {
    compare("python_rbd");
}

/// Random changes of a few objects under random snapshots, 220 of them, with all that there is to
/// see after each.
#[test]
fn snapshots_are_what_they_are_on_ceph() {
    compare("snaps");
}

/// Clones of both kinds, differences, groups and migration too.
#[test]
fn snapshots_of_images_are_what_they_are_on_ceph() {
    compare("rbd_snaps");
}

/// 414 command lines: contents, layouts, features, locks, trash, groups, namespaces, migration,
/// snapshots, clones, encryption, settings, journals and mirroring.
#[test]
fn the_rbd_command_says_what_it_says_of_images_on_ceph() {
    compare("images");
}

/// Names, errors, forms of output, differences put together, imports in parts, watches, schedules, devices.
#[test]
fn the_rest_of_the_rbd_command_says_what_it_says_on_ceph() {
    compare("images_more");
}

#[test]
fn what_the_manager_does_to_images_in_the_background_is_what_it_is_on_ceph() {
    compare("tasks");
}

/// Values that are taken and refused, defaults, scopes of clients, options of single daemons, `config help`.
#[test]
fn the_configuration_takes_and_refuses_what_it_does_on_ceph() {
    compare("config");
}

/// Commands to monitors and managers: codes, sentences and output.
#[test]
fn operators_are_answered_as_on_ceph() {
    compare("commands");
}

/// Users, keys and capabilities: names, texts that are none, keyrings, and keys of OSDs that come and go.
#[test]
fn users_and_their_capabilities_are_kept_as_on_ceph() {
    compare("auth");
}
