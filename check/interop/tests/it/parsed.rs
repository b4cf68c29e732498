//! What programs read of the output of the stock `ceph` command: versions, formats, and the cluster log.

use nacre_interop::{Cluster, send_signal, wait_until};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A command that prints what happens, until this is dropped.
struct Watcher {
    process: Child,
    said: Arc<Mutex<String>>,
}

impl Watcher {
    fn start(c: &Cluster, line: &str) -> Watcher {
        let mut command = c.client("timeout");
        command.args(["--kill-after=5", "120"]).args(line.split(' ')).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (output, lines) = (BufReader::new(process.stdout.take().unwrap()), said.clone());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| *lines.lock().unwrap() += &(line + "\n"));
        });
        Watcher { process, said }
    }

    /// What it has printed so far.
    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // `timeout` is the leader of a group of its own.
        let _ = send_signal(format_args!("-{}", self.process.id()), "KILL");
        let _ = self.process.wait();
    }
}

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
    let [audit, debug] = ["ceph -W audit", "ceph -w --watch-debug"].map(|line| Watcher::start(&c, line));
    // One that has subscribed shows a change of the map.
    wait_until("both to have subscribed", Duration::from_secs(60), || {
        c.run("ceph osd set noin")?;
        c.run("ceph osd unset noin")?;
        Ok(audit.said().contains("noin") && debug.said().contains("[DBG] osdmap e"))
    })
    .unwrap();
    c.run("ceph osd set noout").unwrap();
    let epoch = c.json("ceph osd dump").unwrap()["epoch"].to_string();
    c.run("ceph config-key set a/key hush-hush").unwrap();
    let finished = r#"entity='client.admin' cmd='[{"prefix": "osd set", "key": "noout"}]': finished"#;
    let mut log = String::new();
    wait_until("the log to have the command", Duration::from_secs(10), || {
        log = c.run("ceph log last 50 info audit")?;
        Ok(log.contains(finished) && log.contains("a/key"))
    })
    .unwrap();
    assert!(!log.contains("hush-hush"), "{log}");
    let map = format!("[DBG] osdmap e{epoch}: ");
    wait_until("the watchers to show the command and the map", Duration::from_secs(20), || {
        Ok(audit.said().contains(finished) && debug.said().contains(&map))
    })
    .unwrap();
    assert!(!audit.said().contains("osdmap e"), "{}", audit.said());
    assert!(!debug.said().contains("finished"), "{}", debug.said());
}
