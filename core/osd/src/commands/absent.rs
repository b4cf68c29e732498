//! Commands of Ceph's OSDs that mean nothing here, or nothing yet, and why.

use nacre_command::Absent;

const STORE: &str = "the store is not BlueStore";
const CACHES: &str = "the store's memory has a fixed size, and is neither counted by kind nor released";
const INJECTIONS: &str = "errors are not injected into a running OSD; the simulator does that";
const MACHINE: &str =
    "no state history is kept; `perf dump` and `ceph pg PGID query` show the current states";
const HEAP: &str = "memory comes from the system's allocator, which has no such statistics";
const SNAPS: &str = "each placement group has its own index of snapshots to trim";
const WAITS: &str = "recovery adapts to client load; see `osd_recovery_sleep`";

pub const ABSENT: Absent = Absent(&[
    ("bluefs", STORE),
    ("bluestore", STORE),
    ("cache drop", CACHES),
    ("cache status", CACHES),
    ("calc_objectstore_db_histogram", STORE),
    ("compact", "the store compacts itself, and compaction cannot be triggered"),
    ("cpu_profiler", "no profiler is built in"),
    ("debug dump_missing", "`ceph pg PGID list_unfound` and `ceph pg PGID query` show what is missing"),
    ("debug kick_recovery_wq", WAITS),
    ("dump_mempools", CACHES),
    ("dump_objectstore_kv_stats", STORE),
    ("dump_op_pq_state", "requests do not wait in queues by priority; `dump_ops_in_flight` shows them"),
    ("dump_osd_network", "heartbeats are not answered, so no round trips are measured"),
    ("dump_pg_recovery_stats", MACHINE),
    ("dump_pgstate_history", MACHINE),
    ("dump_recovery_reservations", "placement groups do not reserve backfill slots on other OSDs"),
    ("flush_journal", "the store's log is a part of it"),
    ("flush_store_cache", CACHES),
    ("get_heap_property", HEAP),
    ("getomap", INJECTIONS),
    ("git_version", "the binary does not contain its commit id"),
    ("heap", HEAP),
    ("injectdataerr", INJECTIONS),
    ("injectfull", INJECTIONS),
    ("injectmdataerr", INJECTIONS),
    ("list_devices", "`ceph device ls-by-daemon` shows the disk"),
    ("log dump", "no log lines are kept in memory"),
    ("log reopen", "the log goes to standard error, which cannot be reopened"),
    ("objecter_requests", "an OSD sends no client requests except for `copy_from`"),
    ("reset_pg_recovery_stats", MACHINE),
    ("reset_purged_snaps_last", SNAPS),
    ("rmomapkey", INJECTIONS),
    ("scrub_purged_snaps", SNAPS),
    ("set_heap_property", HEAP),
    ("set_recovery_delay", WAITS),
    ("setomapheader", INJECTIONS),
    ("setomapval", INJECTIONS),
    ("smart", "disk health is not monitored"),
    ("truncobj", INJECTIONS),
    ("assert", INJECTIONS),
    ("leak_some_memory", INJECTIONS),
    ("rotate-key", "keys are not built yet"),
    ("dump_pool_statfs", "space is not counted by pool on each disk"),
    ("trim stale osdmaps", "old maps are removed when new ones arrive"),
]);
