//! `ceph tell osd.N` shows what an OSD did.

use nacre_interop::{Cluster, wait_until};
use serde_json::Value;
use std::time::Duration;

fn tell(c: &Cluster, osd: u32, words: &str) -> Value {
    let text = c.run(&format!("ceph tell osd.{osd} {words}")).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{words} gave no JSON ({e}): {text}"))
}

#[test]
fn an_osd_counts_what_clients_had_it_do() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.wait_clean().unwrap();
    for osd in 0..3 {
        tell(&c, osd, "perf reset all");
    }
    c.run("rados -p p bench 2 write -b 4096 -t 4 --no-cleanup").unwrap();
    let dumps: Vec<Value> = (0..3).map(|osd| tell(&c, osd, "perf dump")).collect();
    let sum = |set: &str, name: &str| -> u64 {
        dumps.iter().map(|dump| dump[set][name].as_u64().unwrap_or_else(|| panic!("{set}/{name}"))).sum()
    };
    let writes = sum("osd", "op_w");
    assert!(writes > 10);
    assert_eq!(sum("osd", "subop_w"), 2 * writes, "two replicas each");
    assert!(sum("osd", "op_w_in_bytes") >= (writes - 10) * 4096);
    // Each byte that was asked for went to a disk, and so did what proves it.
    assert!(sum("store", "disk_write_bytes") > sum("store", "txn_bytes"));
    assert!(sum("store", "txn_bytes") >= 3 * (writes - 10) * 4096);
    let (flushes, batches) = (sum("store", "disk_flush"), sum("store", "batch"));
    assert!(batches > 0 && flushes <= 4 * batches, "{flushes} flushes, {batches} batches");
    assert!(sum("AsyncMessenger::Worker-0", "msgr_recv_bytes") > writes * 4096);
    // A message takes a call at each end at most, apart from the few that are answered while others come.
    let per_message = |calls: &str| {
        sum("AsyncMessenger::Worker-0", calls) as f64
            / sum("AsyncMessenger::Worker-0", "msgr_recv_messages") as f64
    };
    assert!(per_message("msgr_recv_calls") < 1.25, "{} reads", per_message("msgr_recv_calls"));
    assert!(per_message("msgr_send_calls") < 1.25, "{} writes", per_message("msgr_send_calls"));
    // A small write is one durable write of the log, shared with those that came with it.
    assert!(sum("store", "disk_durable_write") <= sum("store", "txn"));
    for dump in &dumps {
        let mean = |set: &str, name: &str| dump[set][name]["avgtime"].as_f64().unwrap();
        // What is inside takes no longer than what is around it.
        assert!(mean("osd-stages", "commit") > 0.0);
        assert!(mean("osd", "op_w_process_latency") <= mean("osd", "op_w_latency"));
    }

    let historic = tell(&c, 0, "dump_historic_ops");
    let ops = historic["ops"].as_array().unwrap();
    assert!(!ops.is_empty() && ops.len() <= 20);
    assert!(ops[0]["description"].as_str().unwrap().starts_with("osd_op(client."), "{ops:?}");
    assert_eq!(tell(&c, 0, "dump_ops_in_flight")["num_ops"], 0);
    for words in ["perf schema", "perf histogram schema", "perf histogram dump", "config show"] {
        assert!(!tell(&c, 0, words).as_object().unwrap().is_empty(), "{words}");
    }
    let one = tell(&c, 0, "perf dump osd op_w");
    assert_eq!(one["osd"].as_object().unwrap().len(), 1);

    wait_until("ceph osd perf to show that commits take time", Duration::from_secs(20), || {
        c.run("rados -p p bench 1 write -b 4096 -t 1 --no-cleanup")?;
        let perf = c.json("ceph osd perf")?;
        let rows = perf["osdstats"]["osd_perf_infos"].as_array().cloned().unwrap_or_default();
        let nanos = |row: &Value| row["perf_stats"]["commit_latency_ns"].as_u64().unwrap_or(0);
        Ok(rows.len() == 3 && rows.iter().all(|row| nanos(row) > 0))
    })
    .unwrap();
}

#[test]
fn an_osds_store_is_measured_and_its_options_are_set_over_the_network() {
    let c = Cluster::up().unwrap();
    let bench = tell(&c, 1, "bench 1048576 4096");
    assert_eq!((&bench["bytes_written"], &bench["blocksize"]), (&1_048_576.into(), &4096.into()));
    assert!(bench["iops"].as_f64().unwrap() > 0.0);
    assert!(!c.try_run("ceph tell osd.1 bench 99999999999 4096").unwrap().status.success());

    tell(&c, 1, "config set osd_op_history_size 5");
    assert_eq!(tell(&c, 1, "config get osd_op_history_size")["osd_op_history_size"], "5");
    c.run("ceph config set osd osd_op_history_size 7").unwrap();
    wait_until("the monitors' value to reach the other OSD", Duration::from_secs(10), || {
        Ok(tell(&c, 2, "config get osd_op_history_size")["osd_op_history_size"] == "7")
    })
    .unwrap();
    assert_eq!(tell(&c, 1, "config get osd_op_history_size")["osd_op_history_size"], "5");
    assert!(!c.try_run("ceph tell osd.1 config set nonsense 1").unwrap().status.success());
}

#[test]
fn how_much_memory_an_osd_may_take_is_set_in_the_configuration_for_its_next_start() {
    let c = Cluster::up_with(&["--processes", "--memory", "256M"]).unwrap();
    let memory = |osd: u32| {
        let option = c.json(&format!("ceph tell osd.{osd} config get osd_memory_target")).unwrap();
        option["osd_memory_target"].as_str().unwrap().to_string()
    };
    assert_eq!(memory(1), (256 << 20).to_string());
    c.run("ceph config set osd.1 osd_memory_target 1G").unwrap();
    assert_eq!(c.run("ceph config get osd.1 osd_memory_target").unwrap(), format!("{}\n", 1 << 30));
    assert!(!c.try_run("ceph tell osd.1 config set osd_memory_target 2G").unwrap().status.success());
    for osd in ["osd.0", "osd.1"] {
        c.kill(osd).unwrap();
        c.start(osd).unwrap();
    }
    c.wait_clean().unwrap();
    wait_until("osd.1 to be up", Duration::from_secs(60), || {
        Ok(c.json("ceph status")?["osdmap"]["num_up_osds"] == 3)
    })
    .unwrap();
    assert_eq!((memory(0), memory(1)), ((256 << 20).to_string(), (1 << 30).to_string()));
}
