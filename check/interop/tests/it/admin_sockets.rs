//! `ceph daemon`, and other programs that use a daemon's admin socket.

use nacre_interop::{Cluster, exchange, text, wait_until};
use serde_json::Value;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn socket(c: &Cluster, daemon: &str) -> PathBuf {
    c.folder().join("run").join(format!("ceph-{daemon}.asok"))
}

fn ask(c: &Cluster, words: &str) -> Value {
    let output = c.run(words).unwrap();
    serde_json::from_str(&output).unwrap_or_else(|e| panic!("{words}: {e}: {output}"))
}

/// Sends bytes, and gives what comes back until the daemon hangs up.
fn raw(path: &Path, request: &[u8]) -> Vec<u8> {
    exchange(UnixStream::connect(path).unwrap(), request, |stream| {
        let _ = stream.shutdown(Shutdown::Write);
    })
}

#[test]
fn daemons_answer_on_their_admin_sockets_what_they_answer_to_tell() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.wait_clean().unwrap();
    c.run("rados -p p put a /etc/hostname").unwrap();

    // Where Ceph's own programs look for them, and for their owner alone.
    for daemon in ["osd.0", "mon.a"] {
        let conf = format!("ceph-conf --name {daemon} --show-config-value admin_socket");
        let path = socket(&c, daemon);
        assert_eq!(c.run(&conf).unwrap().trim(), path.display().to_string());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let osd = socket(&c, "osd.0");
    let dump = ask(&c, "ceph daemon osd.0 perf dump");
    assert!(dump["osd"]["op_latency"]["avgcount"].is_u64(), "{dump}");
    let one = ask(&c, &format!("ceph daemon {} perf dump osd op_w", osd.display()));
    assert_eq!(one["osd"].as_object().unwrap().len(), 1);
    let status = ask(&c, &format!("ceph --admin-daemon {} status", osd.display()));
    assert_eq!((&status["whoami"], &status["state"]), (&0.into(), &"active".into()));
    // The `ceph` tool answers `tell ... help` itself.
    assert!(ask(&c, "ceph daemon osd.0 help")["perf dump"].is_string());
    for words in [
        "version",
        "perf schema",
        "perf histogram dump",
        "config show",
        "config diff",
        "dump_ops_in_flight",
        "ops",
        "dump_historic_ops",
        "log flush",
    ] {
        let (socket, tell) = (format!("ceph daemon osd.0 {words}"), format!("ceph tell osd.0 {words}"));
        let keys = |value: Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(ask(&c, &socket)), keys(ask(&c, &tell)), "{words}");
    }
    assert_eq!(ask(&c, "ceph daemon osd.0 config get debug_ms")["debug_ms"], "0/0");
    ask(&c, "ceph daemon osd.0 config set osd_op_history_size 7");
    assert_eq!(ask(&c, "ceph tell osd.0 config get osd_op_history_size")["osd_op_history_size"], "7");
    let diff = ask(&c, "ceph daemon osd.0 config diff get osd_op_history_size");
    assert_eq!(diff["diff"]["osd_op_history_size"]["override"], "7");
    c.run("ceph daemon osd.0 config unset osd_op_history_size").unwrap();
    assert_eq!(ask(&c, "ceph daemon osd.0 config help osd_op_history_size")["type"], "uint");
    let refused = c.run("ceph daemon osd.0 config get no_such_option").unwrap();
    assert!(refused.starts_with("ERROR: (2) No such file or directory\n"), "{refused}");

    assert_eq!(ask(&c, "ceph daemon mon.a mon_status")["state"], "leader");
    assert_eq!(ask(&c, "ceph daemon mon.a quorum_status")["quorum_names"][0], "a");
    assert!(!ask(&c, "ceph daemon mon.a sessions").as_array().unwrap().is_empty());
    for words in ["ceph daemon mon.a perf dump", "ceph tell mon.a perf dump"] {
        let dump = ask(&c, words);
        assert!(dump["AsyncMessenger::Worker-0"]["msgr_recv_messages"].as_u64() > Some(0), "{dump}");
        assert!(dump["mon"]["num_sessions"].as_u64() > Some(0), "{dump}");
    }
    assert_eq!(ask(&c, "ceph daemon mon.a perf schema")["mon"]["num_sessions"]["type"], 2);
}

#[test]
fn admin_socket_survives_bad_requests_and_serves_many_clients() {
    let c = Cluster::up().unwrap();
    let osd = socket(&c, "osd.1");
    assert_eq!(raw(&osd, b"{\"prefix\": \"0\"}\0"), b"\0\0\0\x012");
    assert_eq!(raw(&osd, &[0; 4]), b"\0\0\0\x012");
    assert_eq!(raw(&osd, b""), b"");
    assert_eq!(raw(&osd, b"{\"prefix\": \"status\""), b"");
    assert_eq!(raw(&osd, &vec![b'x'; 1 << 20]), b"");
    assert_eq!(raw(&osd, b"\xff\xff\0"), b"");
    for bad in ["nonsense", "[1]", "{}", "{\"prefix\": 7}", "{\"prefix\": \"nonsense\"}"] {
        let answer = raw(&osd, format!("{bad}\0").as_bytes());
        assert!(answer[4..].starts_with(b"ERROR: (22) Invalid argument\n"), "{bad}: {}", text(&answer));
        assert_eq!(u32::from_be_bytes(answer[..4].try_into().unwrap()) as usize, answer.len() - 4);
    }
    // Idle clients keep no other client waiting, as long as they are not too many.
    let idle: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&osd).unwrap()).collect();
    let askers: Vec<_> = (0..40)
        .map(|_| {
            let osd = osd.clone();
            std::thread::spawn(move || raw(&osd, b"{\"prefix\": \"status\"}\0"))
        })
        .collect();
    for asker in askers {
        assert!(text(&asker.join().unwrap()[4..]).contains("active"));
    }
    drop(idle);
}

#[test]
fn admin_sockets_come_and_go_with_their_daemons() {
    let c = Cluster::up_with(&["--processes", "--mons", "3"]).unwrap();
    assert!(socket(&c, "osd.1").exists());
    assert!(c.nacre("stop").arg("osd.1").status().unwrap().success());
    assert!(!socket(&c, "osd.1").exists());
    // A killed daemon leaves its socket. The next incarnation replaces it.
    c.kill("osd.2").unwrap();
    assert!(socket(&c, "osd.2").exists());
    assert!(UnixStream::connect(socket(&c, "osd.2")).is_err());
    c.start("osd.2").unwrap();
    wait_until("osd.2 to answer on its socket", Duration::from_secs(20), || {
        Ok(c.try_run("ceph daemon osd.2 status")?.status.success())
    })
    .unwrap();
    // A monitor alone has no quorum, and says so.
    for mon in ["mon.b", "mon.c"] {
        c.kill(mon).unwrap();
    }
    wait_until("mon.a to be without a quorum", Duration::from_secs(30), || {
        Ok(ask(&c, "ceph daemon mon.a mon_status")["state"] == "electing")
    })
    .unwrap();
    assert_eq!(ask(&c, "ceph daemon mon.a mon_status")["quorum"].as_array().unwrap().len(), 1);
}
