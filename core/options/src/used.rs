//! The options that Nacre's daemons use: what they do here, and where they differ from Ceph's.

use Daemon::{Mgr, Mon, Osd};

/// A daemon that reads an option. The leading monitor reads those of the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    Mon,
    Mgr,
    Osd,
}

impl Daemon {
    pub fn name(self) -> &'static str {
        match self {
            Daemon::Mon => "mon",
            Daemon::Mgr => "mgr",
            Daemon::Osd => "osd",
        }
    }
}

/// What Nacre does with an option.
#[derive(Debug)]
pub struct Used {
    pub name: &'static str,
    pub daemons: &'static [Daemon],
    /// Shown by `ceph config help`.
    pub doc: &'static str,
    /// The unit of its values; empty for a switch, a name or a plain number.
    pub unit: &'static str,
    /// Nacre's default, where it is not Ceph's.
    pub default: Option<&'static str>,
    /// The least and the greatest value, where they are not Ceph's.
    pub range: Option<(&'static str, &'static str)>,
    /// The permitted values, where they are not Ceph's.
    pub choices: &'static [&'static str],
    /// Whether a running daemon takes a new value.
    pub runtime: bool,
    /// The values between which a simulation may choose; none if it keeps the default.
    pub sim: Option<(&'static str, &'static str)>,
}

const fn used(name: &'static str, daemons: &'static [Daemon], doc: &'static str) -> Used {
    Used { name, daemons, doc, unit: "", default: None, range: None, choices: &[], runtime: true, sim: None }
}

impl Used {
    /// The leading monitor reads the manager's options.
    pub fn is_read_by(&self, daemon: Daemon) -> bool {
        self.daemons.contains(&daemon) || (daemon == Mon && self.daemons.contains(&Mgr))
    }

    const fn unit(mut self, unit: &'static str) -> Used {
        self.unit = unit;
        self
    }
    const fn default(mut self, default: &'static str) -> Used {
        self.default = Some(default);
        self
    }
    const fn range(mut self, min: &'static str, max: &'static str) -> Used {
        self.range = Some((min, max));
        self
    }
    const fn choices(mut self, choices: &'static [&'static str]) -> Used {
        self.choices = choices;
        self
    }
    const fn at_start(mut self) -> Used {
        self.runtime = false;
        self
    }
    const fn sim(mut self, min: &'static str, max: &'static str) -> Used {
        self.sim = Some((min, max));
        self
    }
}

/// 366 days, in seconds.
const YEAR: &str = "31622400";
const DAY: &str = "86400";

pub fn find(name: &str) -> Option<&'static Used> {
    ALL.iter().find(|used| used.name == name)
}

pub const ALL: &[Used] = &[
    // ---- the manager's modules ----
    used(
        "mgr/balancer/active",
        &[Mgr],
        "whether placement groups are remapped until each OSD holds its share of them",
    ),
    used("mgr/balancer/mode", &[Mgr], "how the balancer moves data: upmap, by exceptions from CRUSH; or none")
        .choices(&["none", "upmap"]),
    used("mgr/balancer/pool_ids", &[Mgr], "ids of the pools that are balanced, separated by commas; empty: all pools"),
    used("mgr/balancer/sleep_interval", &[Mgr], "how long the OSD map must stay unchanged before the balancer acts")
        .unit("seconds")
        .default("10")
        .range("0", DAY)
        .sim("0", "60"),
    used(
        "mgr/balancer/upmap_max_deviation",
        &[Mgr],
        "how many placement groups an OSD may hold above or below its share",
    )
    .unit("placement groups")
    .default("1")
    .range("1", "1000")
    .sim("1", "5"),
    used(
        "mgr/pg_autoscaler/noautoscale",
        &[Mgr],
        "whether the autoscaler is switched off for all pools (`ceph osd pool set noautoscale`)",
    ),
    used("mgr/pg_autoscaler/sleep_interval", &[Mgr], "how often the autoscaler looks at the pools")
        .unit("seconds")
        .range("0", DAY)
        .sim("1", "120"),
    used("mgr/progress/enabled", &[Mgr], "whether `ceph progress` and `ceph -s` show how far recovery is"),
    used(
        "mgr/prometheus/rbd_stats_pools",
        &[Mgr],
        "pools whose images have metrics, as POOL or POOL/NAMESPACE, separated by commas; * is all pools",
    ),
    used(
        "mgr/prometheus/server_addr",
        &[Mgr],
        "the address at which each monitor serves metrics; empty: its own. One that it cannot listen on leaves it without",
    ),
    used("mgr/prometheus/server_port", &[Mgr], "the port at which each monitor serves metrics; 0: none are served")
        .range("0", "65535"),
    used(
        "mgr/prometheus/standby_behaviour",
        &[Mgr],
        "how monitors answer that do not lead: `default`, with an empty page, so that all monitors may be collected from; \
         `redirect`, with the leader's address; `error`, with mgr/prometheus/standby_error_status_code",
    )
    .choices(&["default", "error", "redirect"]),
    used(
        "mgr/prometheus/standby_error_status_code",
        &[Mgr],
        "the HTTP status with which monitors answer that do not lead, if mgr/prometheus/standby_behaviour is `error`",
    )
    .range("400", "599"),
    used(
        "mgr_service_beacon_grace",
        &[Mgr],
        "how long a service daemon may be silent before it is no longer listed as active",
    )
    .unit("seconds")
    .range("1", "1000000000"),
    // ---- monitors ----
    used("mon_allow_pool_delete", &[Mon], "whether pools may be removed at all"),
    used("mon_allow_pool_size_one", &[Mon], "whether a pool may keep a single copy"),
    used(
        "mon_clock_drift_allowed",
        &[Mon],
        "how far another monitor's clock may be from the leader's before MON_CLOCK_SKEW warns of it",
    )
    .unit("seconds")
    .range("0", DAY),
    used(
        "mon_max_pg_per_osd",
        &[Mon],
        "placement groups that an OSD should hold at most; 0: no limit. A higher limit costs memory, and time after failures",
    )
    .unit("placement groups")
    .range("0", "4294967295"),
    used(
        "mon_osd_auto_mark_auto_out_in",
        &[Mon],
        "whether an OSD that was marked out because it was down is marked in when it returns",
    ),
    used("mon_osd_auto_mark_in", &[Mon], "whether every OSD that starts is marked in"),
    used("mon_osd_auto_mark_new_in", &[Mon], "whether a new OSD is marked in"),
    used(
        "mon_osd_blocklist_default_expire",
        &[Mon],
        "how long a client stays on the blocklist if the command gives no time",
    )
    .unit("seconds").range("0", "4294967295"),
    used(
        "auth_mon_ticket_ttl",
        &[Mon],
        "how long a client's session with the monitors, and what it may do there, stay valid after its key was removed",
    )
    .unit("seconds").range("0", "4294967295"),
    used(
        "auth_service_ticket_ttl",
        &[Mon],
        "how long a ticket is valid: OSDs serve a client that long after its key was removed or its capabilities reduced",
    )
    .unit("seconds").range("0", "4294967295"),
    used(
        "mon_osd_down_out_interval",
        &[Mon],
        "how long an OSD is down before its data is placed elsewhere; 0: never. A shorter time restores redundancy sooner \
         after a loss, and moves more data for a reboot",
    )
    .unit("seconds")
    .range("0", "4294967295")
    .sim("1", "1200"),
    used(
        "mon_osd_down_out_subtree_limit",
        &[Mon],
        "OSDs are not marked out while all OSDs of their bucket of this type, or of a larger one, are down: such a bucket is \
         repaired sooner than its data is copied",
    ),
    used("mon_osd_min_down_reporters", &[Mon], "how many OSDs must report another OSD's failure before it is marked down")
        .unit("OSDs")
        .range("1", "1000"),
    used(
        "target_max_misplaced_ratio",
        &[Mon],
        "the share of a pool's placement groups that may move at a time while pgp_num is lowered or data is balanced",
    )
    .range("0", "1")
    .sim("0.01", "1"),
    used(
        "mon_osd_min_in_ratio",
        &[Mon],
        "the share of OSDs that stay in although more of them are down: the rest would fill up",
    )
    .range("0", "1"),
    used(
        "mon_pg_warn_max_object_skew",
        &[Mon],
        "warn of a pool whose placement groups hold this many times the average number of objects; 0: never",
    ),
    used("mon_pg_warn_min_objects", &[Mon], "pools are not compared by objects per placement group below this many objects in the cluster")
        .unit("objects")
        .range("0", "4294967295"),
    used("mon_pg_warn_min_per_osd", &[Mon], "warn when OSDs hold fewer placement groups than this on average")
        .unit("placement groups")
        .range("0", "4294967295"),
    used("mon_pg_warn_min_pool_objects", &[Mon], "pools with fewer objects are not compared by objects per placement group")
        .unit("objects")
        .range("0", "4294967295"),
    used("mon_pg_stuck_threshold", &[Mon], "how long a placement group may be unclean, inactive or stale before it is stuck")
        .unit("seconds")
        .range("0", "4294967295"),
    used(
        "mon_pool_quota_crit_threshold",
        &[Mon],
        "an error is shown for pools that have reached this part of a quota of theirs; 0: never",
    )
    .unit("percent")
    .range("0", "100"),
    used(
        "mon_pool_quota_warn_threshold",
        &[Mon],
        "warn of pools that have reached this part of a quota of theirs; 0: never",
    )
    .unit("percent")
    .range("0", "100"),
    used("mon_timecheck_interval", &[Mon], "how often the leader compares the clocks of the monitors with its own")
        .unit("seconds")
        .default("60")
        .range("1", DAY),
    used(
        "mon_timecheck_skew_interval",
        &[Mon],
        "how often it does so while a clock differs by more than mon_clock_drift_allowed",
    )
    .unit("seconds")
    .default("10")
    .range("1", DAY),
    used("mon_target_pg_per_osd", &[Mon], "copies of placement groups that the autoscaler plans for each OSD")
        .unit("placement groups")
        .range("1", "10000")
        .sim("1", "200"),
    used(
        "mon_warn_pg_not_deep_scrubbed_ratio",
        &[Mon],
        "warn of placement groups whose deep scrub is overdue by this part of osd_deep_scrub_interval; 0: never",
    ),
    used(
        "mon_warn_pg_not_scrubbed_ratio",
        &[Mon],
        "warn of placement groups whose scrub is overdue by this part of osd_scrub_max_interval; 0: never",
    ),
    used("mon_warn_on_misplaced", &[Mon], "warn while objects are stored on other OSDs than they should be"),
    used("mon_warn_on_pool_no_app", &[Mon], "warn of pools in use that no application is enabled for"),
    used("mon_warn_on_pool_no_redundancy", &[Mon], "warn of pools with a single copy"),
    used("mon_warn_on_too_few_osds", &[Mon], "warn when there are fewer OSDs than copies"),
    used(
        "osd_crush_chooseleaf_type",
        &[Mon],
        "the failure domain of a new cluster's first rule: 0 OSD, 1 host, 3 rack",
    )
    .range("0", "11")
    .at_start(),
    used(
        "crush_location",
        &[Mon],
        "where an OSD that starts is placed in the CRUSH map, as `root=default rack=a host=b`; unless set, below its host, \
         or where it is already",
    )
    .at_start(),
    used(
        "osd_crush_initial_weight",
        &[Mon],
        "the CRUSH weight of an OSD that starts for the first time; negative: its capacity in TiB",
    ),
    used("osd_crush_update_on_start", &[Mon], "whether an OSD that starts is placed in the CRUSH map"),
    used(
        "mon_min_osdmap_epochs",
        &[Mon, Osd],
        "older OSD maps that monitors keep, and OSDs too if it is set for all daemons; a daemon that is further behind is sent \
         a full map",
    )
    .unit("epochs")
    .range("1", "100000")
    .sim("1", "500"),
    // ---- new pools ----
    used("osd_pool_default_crush_rule", &[Mon], "the id of a new pool's rule; -1: the first rule").range("-1", "4294967295"),
    used("osd_pool_default_flag_bulk", &[Mon], "whether a new pool is expected to hold much of the data"),
    used("osd_pool_default_min_size", &[Mon], "copies that a new pool needs to serve I/O; 0: more than half of its size")
        .unit("copies"),
    used("osd_pool_default_pg_autoscale_mode", &[Mon], "whether the autoscaler changes pg_num of a new pool").default("off"),
    used("osd_pool_default_pg_num", &[Mon], "placement groups of a new pool").unit("placement groups").range("1", "65536"),
    used("osd_pool_default_size", &[Mon], "copies in a new pool").unit("copies"),
    // ---- OSDs ----
    used(
        "osd_backoff_on_peering",
        &[Osd],
        "whether clients are sent a backoff as soon as a placement group peers, and not only when that takes long",
    ),
    used("osd_bench_duration", &[Osd], "how long `ceph tell osd.N bench` may take by the other limits")
        .unit("seconds")
        .range("1", DAY),
    used(
        "osd_bench_large_size_max_throughput",
        &[Osd],
        "bytes per second by which `ceph tell osd.N bench` limits its bytes, for writes of 1 MiB and more",
    )
    .range("1", "1099511627776"),
    // The OSD does nothing else while its store takes one write.
    used("osd_bench_max_block_size", &[Osd], "the largest writes of `ceph tell osd.N bench`").range("1", "67108864"),
    used(
        "osd_bench_small_size_max_iops",
        &[Osd],
        "writes per second by which `ceph tell osd.N bench` limits its bytes, for writes below 1 MiB",
    )
    .range("1", "1000000000"),
    used("osd_deep_scrub_interval", &[Osd], "how often the data of a placement group's copies is read and compared")
        .unit("seconds")
        .range("0", YEAR)
        .sim("10", "604800"),
    used("osd_max_backfills", &[Osd], "placement groups that an OSD backfills at a time")
        .unit("placement groups")
        .range("1", "1000")
        .sim("1", "10"),
    // Short by default: a member that returns takes all of the log before the placement group serves, and
    // what the log no longer holds is remembered by object (the dirty map).
    used(
        "osd_max_pg_log_entries",
        &[Osd],
        "writes that a placement group's log keeps for members that were away, while all logs of an OSD take less than 3/32 of \
         its memory (48 MiB of 512)",
    )
    .unit("log entries")
    .default("200")
    .range("1", "100000")
    .sim("1", "1000"),
    used("osd_max_scrubs", &[Osd], "placement groups that a primary OSD scrubs at a time")
        .unit("placement groups")
        .range("0", "100"),
    used(
        "osd_max_trimming_pgs",
        &[Osd],
        "the product with osd_pg_max_concurrent_snap_trims limits the clones that an OSD trims at a time; it trims fewer, with \
         pauses, while that slows clients down",
    )
    .range("1", "1000")
    .sim("1", "10"),
    used(
        "osd_memory_target",
        &[Osd],
        "memory that an OSD may take. It takes effect when the OSD starts; the OSD's command line takes precedence",
    )
    .unit("bytes")
    .default("536870912")
    .range("134217728", "1000000000000000")
    .at_start(),
    used("osd_min_pg_log_entries", &[Osd], "writes that a placement group's log keeps however much memory the logs take")
        .unit("log entries")
        .default("100")
        .range("1", "100000")
        .sim("1", "500"),
    used("osd_op_history_duration", &[Osd], "how long `dump_historic_ops` keeps a request")
        .unit("seconds")
        .range("0", DAY),
    used("osd_op_history_size", &[Osd], "requests that `dump_historic_ops` keeps").unit("requests").range("0", "1000"),
    used("osd_op_history_slow_op_size", &[Osd], "requests that `dump_historic_slow_ops` keeps")
        .unit("requests")
        .range("0", "1000"),
    used("osd_op_history_slow_op_threshold", &[Osd], "how long a request takes before it counts as slow")
        .unit("seconds")
        .range("0", DAY),
    used(
        "osd_pg_log_dups_tracked",
        &[Osd],
        "for how many later writes of a placement group a client that repeats a write gets its first answer; 1000 once the logs \
         of an OSD take more than 48 MiB",
    )
    .unit("log entries")
    .range("0", "100000"),
    used(
        "osd_pg_max_concurrent_snap_trims",
        &[Osd],
        "the product with osd_max_trimming_pgs limits the clones that an OSD trims at a time",
    )
    .range("1", "1000")
    .sim("1", "10"),
    used(
        "osd_recovery_max_active",
        &[Osd],
        "transfers of up to 512 KiB that an OSD runs at a time for recovery and backfill; 0: ten. It runs fewer while they slow \
         clients down",
    )
    .unit("transfers")
    .range("0", "1000")
    .sim("0", "20"),
    used(
        "osd_recovery_op_priority",
        &[Osd],
        "how much recovery may slow clients down: by a twelfth of their latency for each point, and half a millisecond",
    )
    .range("1", "63")
    .sim("1", "63"),
    used("osd_recovery_sleep", &[Osd], "the least pause between two transfers of an OSD's recovery")
        .unit("seconds")
        .range("0", "60")
        .sim("0", "0.5"),
    used("osd_scrub_auto_repair", &[Osd], "whether a deep scrub that finds few errors repairs them"),
    used("osd_scrub_auto_repair_num_errors", &[Osd], "the most errors that osd_scrub_auto_repair repairs")
        .unit("errors")
        .range("0", "1000"),
    used(
        "osd_scrub_begin_hour",
        &[Osd],
        "the hour of the day (UTC) from which scrubs may start; equal to osd_scrub_end_hour: at any time",
    )
    .unit("hours"),
    used("osd_scrub_chunk_max", &[Osd], "objects whose metadata is compared in one step")
        .unit("objects")
        .range("1", "100")
        .sim("1", "100"),
    used("osd_scrub_end_hour", &[Osd], "the hour of the day (UTC) until which scrubs may start").unit("hours"),
    used(
        "osd_scrub_max_interval",
        &[Osd],
        "how often the metadata of a placement group's copies is compared, whatever clients do",
    )
    .unit("seconds")
    .range("0", YEAR)
    .sim("10", "604800"),
    used(
        "osd_scrub_min_interval",
        &[Osd],
        "how often the metadata of a placement group's copies is compared while clients have been idle for a second",
    )
    .unit("seconds")
    .range("0", YEAR)
    .sim("1", "86400"),
    used("osd_scrub_sleep", &[Osd], "the least pause between two steps of a scrub")
        .unit("seconds")
        .range("0", "60")
        .sim("0", "1"),
    used(
        "osd_snap_trim_priority",
        &[Osd],
        "how much snapshot trimming may slow clients down: by a twelfth of their latency for each point, and half a millisecond",
    )
    .default("1")
    .range("1", "63")
    .sim("1", "63"),
    used("osd_snap_trim_sleep", &[Osd], "the least pause between two clones that an OSD trims")
        .unit("seconds")
        .range("0", "60")
        .sim("0", "0.5"),
];
