//! Commands of Ceph's OSDs that mean nothing here, or nothing yet, and why.

use nacre_base::words::begins_with;

const STORE: &str = "the store is not BlueStore";
const CACHES: &str = "the store's memory has a fixed size, and is neither counted by kind nor given back";
const INJECTIONS: &str = "errors and changes to single objects are not injected; the simulator does that";
const MACHINE: &str =
    "no history of the states of groups is kept; `perf dump` and `ceph pg PGID query` show how they are";
const HEAP: &str = "memory comes from the system's allocator, which has no such numbers";
const SNAPS: &str = "removed snapshots are trimmed from each group's own index";
const WAITS: &str = "recovery goes by what clients leave; see `osd_recovery_sleep`";

/// The first words of a command, and why it does nothing.
const ABSENT: [(&str, &str); 45] = [
    ("bluefs", STORE),
    ("bluestore", STORE),
    ("cache drop", CACHES),
    ("cache status", CACHES),
    ("calc_objectstore_db_histogram", STORE),
    ("compact", "the store makes its checkpoints by itself, in layers, and cannot be told to"),
    ("config help", "the monitors describe options: `ceph config help NAME`"),
    ("cpu_profiler", "no profiler is built in"),
    ("debug dump_missing", "`ceph pg PGID list_unfound` and `ceph pg PGID query` show what is missing"),
    ("debug kick_recovery_wq", WAITS),
    ("dump_mempools", CACHES),
    ("dump_objectstore_kv_stats", STORE),
    ("dump_op_pq_state", "requests do not wait in queues by priority; `dump_ops_in_flight` shows them"),
    ("dump_osd_network", "heartbeats are not answered, so that no round trips are measured"),
    ("dump_pg_recovery_stats", MACHINE),
    ("dump_pgstate_history", MACHINE),
    ("dump_recovery_reservations", "groups take no reservations from each other"),
    ("flush_journal", "the store's log is a part of it"),
    ("flush_store_cache", CACHES),
    ("get_heap_property", HEAP),
    ("getomap", INJECTIONS),
    ("git_version", "the program does not know the commit that it was built from"),
    ("heap", HEAP),
    ("injectdataerr", INJECTIONS),
    ("injectfull", INJECTIONS),
    ("injectmdataerr", INJECTIONS),
    ("list_devices", "`ceph device ls-by-daemon` shows the disk"),
    ("log dump", "no lines are kept besides those that were written"),
    ("log reopen", "the log goes to the standard error, which cannot be opened again"),
    ("objecter_requests", "an OSD sends no requests of a client's kind but those of `copy_from`"),
    ("reset_pg_recovery_stats", MACHINE),
    ("reset_purged_snaps_last", SNAPS),
    ("rmomapkey", INJECTIONS),
    ("scrub_purged_snaps", SNAPS),
    ("set_heap_property", HEAP),
    ("set_recovery_delay", WAITS),
    ("setomapheader", INJECTIONS),
    ("setomapval", INJECTIONS),
    ("smart", "disks are not asked how they are"),
    ("truncobj", INJECTIONS),
    ("assert", INJECTIONS),
    ("leak_some_memory", INJECTIONS),
    ("rotate-key", "keys are not built yet"),
    ("dump_pool_statfs", "space is not counted by pool on each disk"),
    ("trim stale osdmaps", "older maps are removed as new ones come"),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    ABSENT.iter().map(|(words, _)| *words)
}

/// Why this does nothing; None if it is no command of Ceph's.
pub fn why(prefix: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(words, _)| begins_with(prefix, words)).map(|(_, why)| *why)
}
