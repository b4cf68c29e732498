//! Options of Ceph for which Nacre has another way.

pub const ALL: &[(&str, &str)] = &[
    (
        "mon_clock_drift_warn_backoff",
        "the cluster log has one line when a clock differs, and one when none does",
    ),
    ("mon_osd_adjust_down_out_interval", "mon_osd_down_out_interval is what it says"),
    (
        "mon_osd_adjust_heartbeat_grace",
        "each OSD learns how long its peers are silent while they are healthy",
    ),
    ("mon_osd_report_timeout", "an OSD without a session with the monitors is down after 15 s of silence"),
    (
        "mon_osd_reporter_subtree_level",
        "failure reports count from the highest level that has enough reporters",
    ),
    ("osd_backfill_retry_interval", "a transfer starts as soon as another ends"),
    ("osd_beacon_report_interval", "OSDs report when something changed, and every 5 s"),
    ("osd_deep_scrub_stride", "copies are compared in pieces of 512 KiB"),
    ("osd_fast_fail_on_connection_refused", "a refused connection always marks an OSD down"),
    ("osd_heartbeat_grace", "1.2 s, or three times the longest silence of late, at most 3 s"),
    ("osd_heartbeat_interval", "ten datagrams a second"),
    ("osd_heartbeat_min_peers", "each OSD watches those it shares placement groups with, and three more"),
    (
        "osd_max_markdown_count",
        "an OSD that returns for the third time within ten minutes is delayed, at most a minute",
    ),
    (
        "osd_max_markdown_period",
        "an OSD that returns for the third time within ten minutes is delayed, at most a minute",
    ),
    ("osd_memory_cache_min", "a fixed part of osd_memory_target is the cache"),
    ("osd_memory_target_autotune", "osd_memory_target is what it says"),
    ("osd_recovery_max_active_hdd", "osd_recovery_max_active counts on every device"),
    ("osd_recovery_max_active_ssd", "osd_recovery_max_active counts on every device"),
    ("osd_recovery_max_chunk", "a transfer has at most 512 KiB of data"),
    ("osd_recovery_max_omap_entries_per_chunk", "a transfer has at most 4096 keys, or 1 MiB of them"),
    ("osd_recovery_max_single_start", "osd_recovery_max_active counts over all placement groups of an OSD"),
    ("osd_recovery_retry_interval", "a transfer starts as soon as another ends"),
    ("osd_recovery_sleep_hdd", "osd_recovery_sleep counts on every device"),
    ("osd_recovery_sleep_hybrid", "osd_recovery_sleep counts on every device"),
    ("osd_recovery_sleep_ssd", "osd_recovery_sleep counts on every device"),
    (
        "osd_scrub_chunk_min",
        "osd_scrub_chunk_max counts, more only to compare an object together with its clones",
    ),
    ("osd_scrub_during_recovery", "a placement group with missing objects is not scrubbed until it has them"),
    (
        "osd_scrub_load_threshold",
        "each step of a scrub is followed by a pause in proportion to it while clients are active",
    ),
    ("osd_snap_trim_cost", "osd_snap_trim_priority and the latency of clients decide"),
    ("osd_snap_trim_sleep_hdd", "osd_snap_trim_sleep counts on every device"),
    ("osd_snap_trim_sleep_hybrid", "osd_snap_trim_sleep counts on every device"),
    ("osd_snap_trim_sleep_ssd", "osd_snap_trim_sleep counts on every device"),
    ("paxos_propose_interval", "a change of a map is proposed when its cause arrives"),
];

pub fn find(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(have, _)| *have == name).map(|(_, how)| *how)
}
