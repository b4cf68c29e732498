//! What programs read of the output of the stock `ceph` command: versions, formats, and the cluster log.

use nacre_interop::{Cluster, wait_until};
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn programs_read_versions_xml_and_all_monitors() {
    let c = Cluster::up_with(&["--mons", "3"]).unwrap();
    let versions = c.json("ceph versions").unwrap();
    let overall: Vec<&String> = versions["overall"].as_object().unwrap().keys().collect();
    assert!(overall.len() == 1 && overall[0].starts_with("ceph version 16.2.15 ("), "{versions}");
    assert_eq!((&versions["mon"][overall[0]], &versions["mgr"][overall[0]]), (&3.into(), &3.into()));
    assert_eq!(c.json("ceph tell osd.0 version").unwrap()["version"], "16.2.15");

    let mons = c.json("ceph mon metadata").unwrap();
    for key in
        ["arch", "cpu", "distro", "kernel_version", "mem_total_kb", "ceph_version_short", "hostname", "os"]
    {
        let has = |row: &serde_json::Value| row[key].as_str().is_some_and(|value| !value.is_empty());
        assert!(mons.as_array().unwrap().iter().all(has), "{key}: {mons}");
    }
    assert_eq!(c.json("ceph mgr stat").unwrap()["num_standby"], 2);
    assert!(c.run("ceph -s").unwrap().contains("(active, since "));
    assert!(c.run("ceph -s").unwrap().contains("), standbys: "));
    let osd = c.json("ceph osd metadata 0").unwrap();
    assert!(osd["front_iface"].is_string() && osd["back_iface"].is_string(), "{osd}");

    // The tool begins with a line feed, unless output is plain.
    let xml = c.run("ceph osd ls -f xml").unwrap();
    assert_eq!(xml.trim_start(), "<osds><osd>0</osd><osd>1</osd><osd>2</osd></osds>\n");
    let status = c.run("ceph status -f xml-pretty").unwrap();
    assert!(status.contains("\n <quorum_names>\n  <id>a</id>\n  <id>b</id>"), "{status}");
    assert_eq!(c.run("ceph osd ls -f yaml").unwrap(), "0\n1\n2\n");
    assert!(c.run("ceph tell osd.0 config get osd_max_backfills -f xml").unwrap().contains("<config_get>"));
}

#[test]
fn operators_follow_the_audit_log_and_debug_lines() {
    let c = Cluster::up().unwrap();
    let watch = |line: &str| {
        let mut words = line.split(' ');
        let mut command = c.client(words.next().unwrap());
        command.args(words).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut watchers = [watch("ceph -W audit"), watch("ceph -w --watch-debug")];
    // They show the status first, which is in the log when they are about to subscribe.
    wait_until("both to ask for the status", Duration::from_secs(20), || {
        let log = c.run("ceph log last 100 debug audit")?;
        Ok(log.matches(r#""prefix": "status""#).count() >= 2)
    })
    .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    c.run("ceph osd set noout").unwrap();
    c.run("ceph config-key set a/key hush-hush").unwrap();
    let finished = r#"entity='client.admin' cmd='[{"prefix": "osd set", "key": "noout"}]': finished"#;
    let mut log = String::new();
    wait_until("the log to have the command", Duration::from_secs(10), || {
        log = c.run("ceph log last 50 info audit")?;
        Ok(log.contains(finished) && log.contains("a/key"))
    })
    .unwrap();
    assert!(!log.contains("hush-hush"), "{log}");
    std::thread::sleep(Duration::from_secs(2));
    let [audit, debug] = watchers.each_mut().map(|watcher| {
        watcher.kill().unwrap();
        let mut said = String::new();
        watcher.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        watcher.wait().unwrap();
        said
    });
    assert!(audit.contains(finished) && !audit.contains("osdmap e"), "{audit}");
    assert!(debug.contains("[DBG] osdmap e") && !debug.contains("finished"), "{debug}");
}
