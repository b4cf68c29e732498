//! Options: which there are, and what those that the monitors themselves use mean.
//!
//! Clients and gateways read many more options of Ceph's than Nacre's daemons have a use for, so
//! every name that Ceph 16 knows can be set (`option_names.txt`); those in `ALL` do something here.

use crate::services::config::ConfigEntity;
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

pub struct ConfigOption {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    /// The smallest and greatest number.
    pub range: Option<(f64, f64)>,
    pub desc: &'static str,
    pub service: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Uint,
    Float,
    Secs,
    /// Bytes; may be set as `2G`.
    Size,
    Text,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Uint => "uint",
            Kind::Float => "float",
            Kind::Secs => "secs",
            Kind::Size => "size",
            Kind::Text => "str",
        }
    }
}

const fn option(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    range: Option<(f64, f64)>,
    desc: &'static str,
) -> ConfigOption {
    ConfigOption { name, kind, default, range, desc, service: "mon" }
}

/// One that OSDs use.
const fn osd_option(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    range: (f64, f64),
    desc: &'static str,
) -> ConfigOption {
    ConfigOption { service: "osd", ..option(name, kind, default, Some(range), desc) }
}

/// One of the manager's.
const fn mgr_option(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    range: Option<(f64, f64)>,
    desc: &'static str,
) -> ConfigOption {
    ConfigOption { service: "mgr", ..option(name, kind, default, range, desc) }
}

/// In the order of their names.
pub const ALL: &[ConfigOption] = &[
    mgr_option(
        "mgr/balancer/active",
        Kind::Bool,
        "true",
        None,
        "whether groups are moved so that each OSD has its share of them",
    ),
    mgr_option(
        "mgr/balancer/mode",
        Kind::Text,
        "upmap",
        None,
        "how: upmap, by exceptions from CRUSH's rules; or none",
    ),
    mgr_option(
        "mgr/balancer/pool_ids",
        Kind::Text,
        "",
        None,
        "the numbers of the pools whose groups are balanced, with commas; all of them if there is none",
    ),
    mgr_option(
        "mgr/balancer/sleep_interval",
        Kind::Uint,
        "10",
        Some((0.0, 86_400.0)),
        "seconds without a change of the map before groups are moved",
    ),
    mgr_option(
        "mgr/balancer/upmap_max_deviation",
        Kind::Uint,
        "1",
        Some((1.0, 1000.0)),
        "groups that an OSD may have beyond or short of its share",
    ),
    mgr_option(
        "mgr/pg_autoscaler/noautoscale",
        Kind::Bool,
        "false",
        None,
        "whether `ceph osd pool set noautoscale` was said",
    ),
    mgr_option(
        "mgr/pg_autoscaler/sleep_interval",
        Kind::Uint,
        "60",
        Some((0.0, 86_400.0)),
        "seconds between two looks at whether pools have as many groups as they should",
    ),
    mgr_option(
        "mgr/progress/enabled",
        Kind::Bool,
        "true",
        None,
        "whether it is watched how far recovery is, for `ceph progress` and `ceph -s`",
    ),
    mgr_option(
        "mgr_service_beacon_grace",
        Kind::Secs,
        "60",
        Some((1.0, 1e9)),
        "how long a service's daemon may be silent before it is no longer among those that are active",
    ),
    option("mon_allow_pool_delete", Kind::Bool, "false", None, "whether pools may be removed at all"),
    option("mon_allow_pool_size_one", Kind::Bool, "false", None, "whether a pool may have a single copy"),
    option(
        "mon_max_pg_per_osd",
        Kind::Uint,
        "250",
        None,
        "placement groups that an OSD should have at most; 0 for no limit. More cost memory and time after failures",
    ),
    option(
        "mon_osd_auto_mark_auto_out_in",
        Kind::Bool,
        "true",
        None,
        "whether an OSD that was marked out because it was down is in again when it is back",
    ),
    option("mon_osd_auto_mark_in", Kind::Bool, "false", None, "whether every OSD that starts is marked in"),
    option("mon_osd_auto_mark_new_in", Kind::Bool, "true", None, "whether a new OSD is marked in"),
    option(
        "mon_osd_blocklist_default_expire",
        Kind::Secs,
        "3600",
        None,
        "how long a client stays fenced if nobody says",
    ),
    option(
        "auth_mon_ticket_ttl",
        Kind::Secs,
        "259200",
        None,
        "how long a client's session with the monitors is good, and what it may do in it, also after its key was removed",
    ),
    option(
        "auth_service_ticket_ttl",
        Kind::Secs,
        "3600",
        None,
        "how long a ticket is good: for so long a client whose key was removed, or who may do less, goes on as before with OSDs",
    ),
    option(
        "mon_osd_down_out_interval",
        Kind::Secs,
        "600",
        None,
        "how long an OSD is down before its data is placed elsewhere; 0 for never. Shorter repairs sooner after a loss, \
         and moves more data for a mere reboot",
    ),
    option(
        "mon_osd_down_out_subtree_limit",
        Kind::Text,
        "rack",
        None,
        "OSDs are not marked out while everything in their bucket of this kind, or a greater one, is down: that is \
         repaired sooner than copied",
    ),
    option(
        "mon_osd_min_down_reporters",
        Kind::Uint,
        "2",
        Some((1.0, 1000.0)),
        "how many OSDs must miss another's heartbeats until it is down",
    ),
    option(
        "target_max_misplaced_ratio",
        Kind::Float,
        "0.05",
        Some((0.0, 1.0)),
        "of a pool's groups, which part may move at a time while pgp_num is lowered",
    ),
    option(
        "mon_osd_min_in_ratio",
        Kind::Float,
        "0.75",
        Some((0.0, 1.0)),
        "of all OSDs, which part stays in although more are down for long: the rest would fill up",
    ),
    option(
        "mon_pg_warn_max_object_skew",
        Kind::Float,
        "10",
        None,
        "how many times as many objects for each group as on average make a warning; 0 for none",
    ),
    option(
        "mon_pg_warn_min_objects",
        Kind::Uint,
        "10000",
        None,
        "with fewer objects in the cluster pools are not compared by how many each of their groups has",
    ),
    option(
        "mon_pg_warn_min_per_osd",
        Kind::Uint,
        "0",
        None,
        "warn when OSDs have fewer placement groups than this, on average",
    ),
    option(
        "mon_pg_warn_min_pool_objects",
        Kind::Uint,
        "1000",
        None,
        "pools with fewer objects are not compared with others by how many each group has",
    ),
    option(
        "mon_pg_stuck_threshold",
        Kind::Secs,
        "60",
        None,
        "after how long a group that is not as it should be counts as stuck",
    ),
    option(
        "mon_target_pg_per_osd",
        Kind::Uint,
        "100",
        Some((1.0, 10_000.0)),
        "copies of groups that each OSD is to have when the number of groups follows what pools hold",
    ),
    option(
        "mon_warn_on_misplaced",
        Kind::Bool,
        "false",
        None,
        "warn while there are objects that are to be on other OSDs",
    ),
    option("mon_warn_on_pool_no_app", Kind::Bool, "true", None, "warn of used pools without an application"),
    option("mon_warn_on_pool_no_redundancy", Kind::Bool, "true", None, "warn of pools with a single copy"),
    option(
        "mon_warn_on_too_few_osds",
        Kind::Bool,
        "true",
        None,
        "warn when there are fewer OSDs than copies",
    ),
    option(
        "osd_crush_chooseleaf_type",
        Kind::Uint,
        "1",
        Some((0.0, 11.0)),
        "what a new cluster's copies are spread over: 0 OSDs, 1 hosts, 3 racks",
    ),
    option(
        "osd_crush_update_on_start",
        Kind::Bool,
        "true",
        None,
        "whether OSDs are placed below their host when they start",
    ),
    osd_option(
        "osd_deep_scrub_interval",
        Kind::Float,
        "604800",
        (0.0, 366.0 * 86_400.0),
        "seconds after which the content of a group's copies is read and compared again",
    ),
    option(
        "mon_min_osdmap_epochs",
        Kind::Uint,
        "500",
        Some((1.0, 100_000.0)),
        "older OSD maps that monitors keep, and OSDs if it is set in the section global: whoever is further behind gets a \
         whole one",
    ),
    ConfigOption {
        service: "osd",
        ..option(
            "osd_backoff_on_peering",
            Kind::Bool,
            "false",
            None,
            "whether clients are told at once to keep requests to themselves while a group peers",
        )
    },
    osd_option(
        "osd_max_backfills",
        Kind::Uint,
        "1",
        (1.0, 1000.0),
        "groups that an OSD fills again at a time, for members that are empty or were away too long for the log",
    ),
    osd_option(
        "osd_memory_target",
        Kind::Size,
        "536870912",
        (134_217_728.0, 1e15),
        "bytes of memory that an OSD may take, from its next start on; what its command line says goes before",
    ),
    osd_option(
        "osd_op_history_duration",
        Kind::Uint,
        "600",
        (0.0, 86_400.0),
        "seconds for which `dump_historic_ops` remembers a request",
    ),
    osd_option(
        "osd_op_history_size",
        Kind::Uint,
        "20",
        (0.0, 1000.0),
        "requests that `dump_historic_ops` remembers",
    ),
    osd_option(
        "osd_op_history_slow_op_size",
        Kind::Uint,
        "20",
        (0.0, 1000.0),
        "requests that `dump_historic_slow_ops` remembers",
    ),
    osd_option(
        "osd_op_history_slow_op_threshold",
        Kind::Uint,
        "10",
        (0.0, 86_400.0),
        "seconds after which `dump_historic_slow_ops` calls a request slow",
    ),
    osd_option(
        "osd_max_pg_log_entries",
        Kind::Uint,
        "500",
        (1.0, 100_000.0),
        "writes that the log of a group holds for members that were away, as long as all logs of an OSD take less than \
         three parts in 32 of its memory (48 MiB of 512)",
    ),
    osd_option(
        "osd_max_scrubs",
        Kind::Uint,
        "1",
        (0.0, 100.0),
        "groups whose copies a primary compares at a time",
    ),
    option(
        "osd_pool_default_crush_rule",
        Kind::Text,
        "-1",
        None,
        "the number of the rule that new pools get; -1 for the first",
    ),
    option(
        "osd_pool_default_flag_bulk",
        Kind::Bool,
        "false",
        None,
        "whether a new pool is taken for one that will hold much",
    ),
    option(
        "osd_pool_default_min_size",
        Kind::Uint,
        "0",
        Some((0.0, 255.0)),
        "copies without which a new pool does no I/O; 0 for more than half",
    ),
    option(
        "osd_pool_default_pg_autoscale_mode",
        Kind::Text,
        "off",
        None,
        "whether the number of a new pool's groups follows its size",
    ),
    option(
        "osd_pool_default_pg_num",
        Kind::Uint,
        "32",
        Some((1.0, 65536.0)),
        "placement groups of a new pool",
    ),
    option("osd_pool_default_size", Kind::Uint, "3", Some((0.0, 10.0)), "copies in a new pool"),
    osd_option(
        "osd_recovery_max_active",
        Kind::Uint,
        "0",
        (0.0, 1000.0),
        "transfers of at most 512 KiB that an OSD has under way at most for recovery and backfill together; 0 for ten. \
         It has fewer while clients wait longer for it",
    ),
    osd_option(
        "osd_recovery_op_priority",
        Kind::Uint,
        "3",
        (1.0, 63.0),
        "how much longer clients may wait for the sake of recovery: a twelfth of what they wait without it for each \
         point, and half a millisecond",
    ),
    osd_option(
        "osd_recovery_sleep",
        Kind::Float,
        "0",
        (0.0, 60.0),
        "seconds between the starts of two transfers of an OSD's recovery at least",
    ),
    ConfigOption {
        range: None,
        ..osd_option(
            "osd_scrub_auto_repair",
            Kind::Bool,
            "false",
            (0.0, 0.0),
            "whether a deep scrub that finds few wrong copies replaces them",
        )
    },
    osd_option(
        "osd_scrub_auto_repair_num_errors",
        Kind::Uint,
        "5",
        (0.0, 1000.0),
        "how many wrong copies are few for osd_scrub_auto_repair",
    ),
    osd_option(
        "osd_scrub_begin_hour",
        Kind::Uint,
        "0",
        (0.0, 23.0),
        "from which hour of the day (UTC) on scrubs may begin; the same as the end: always",
    ),
    osd_option(
        "osd_scrub_chunk_max",
        Kind::Uint,
        "25",
        (1.0, 100.0),
        "objects whose metadata is compared in one step",
    ),
    osd_option(
        "osd_scrub_end_hour",
        Kind::Uint,
        "0",
        (0.0, 23.0),
        "up to which hour of the day (UTC) scrubs may begin",
    ),
    osd_option(
        "osd_scrub_max_interval",
        Kind::Float,
        "604800",
        (0.0, 366.0 * 86_400.0),
        "seconds after which the metadata of a group's copies is compared again whatever clients do",
    ),
    osd_option(
        "osd_scrub_min_interval",
        Kind::Float,
        "86400",
        (0.0, 366.0 * 86_400.0),
        "seconds after which it is compared again once nobody asked for anything for a second",
    ),
    osd_option(
        "osd_scrub_sleep",
        Kind::Float,
        "0",
        (0.0, 60.0),
        "seconds between two steps of comparing copies at least",
    ),
    osd_option(
        "osd_max_trimming_pgs",
        Kind::Uint,
        "2",
        (1.0, 1000.0),
        "times osd_pg_max_concurrent_snap_trims, the clones that an OSD removes at a time at most, over all its groups. \
         It removes fewer, and rests in between, while clients wait longer for it",
    ),
    osd_option(
        "osd_min_pg_log_entries",
        Kind::Uint,
        "250",
        (1.0, 100_000.0),
        "and that it holds however much the logs take",
    ),
    osd_option(
        "osd_pg_log_dups_tracked",
        Kind::Uint,
        "3000",
        (0.0, 100_000.0),
        "how many writes of its group back a client that sends one again gets the answer that it got; 1000 when the \
         logs of an OSD take more than 48 MiB",
    ),
    osd_option(
        "osd_pg_max_concurrent_snap_trims",
        Kind::Uint,
        "2",
        (1.0, 1000.0),
        "times osd_max_trimming_pgs, the clones that an OSD removes at a time at most, over all its groups",
    ),
    osd_option(
        "osd_snap_trim_priority",
        Kind::Uint,
        "1",
        (1.0, 63.0),
        "how much longer clients may wait while clones of removed snapshots go: a twelfth of what they wait otherwise \
         for each point, and half a millisecond",
    ),
    osd_option(
        "osd_snap_trim_sleep",
        Kind::Float,
        "0",
        (0.0, 60.0),
        "seconds between one clone that an OSD removes and the next at least",
    ),
];

/// Options of Ceph's for which Nacre has another way, and which.
const SUPERSEDED: [(&str, &str); 33] = [
    ("mon_osd_adjust_down_out_interval", "mon_osd_down_out_interval is what it says"),
    ("mon_osd_adjust_heartbeat_grace", "each OSD learns how long its peers are silent when they are well"),
    ("mon_osd_report_timeout", "an OSD without a session with the monitors is down after 15 s of silence"),
    ("mon_osd_reporter_subtree_level", "witnesses come from the highest level that has enough of them"),
    ("osd_backfill_retry_interval", "a transfer starts as soon as another ends"),
    ("osd_beacon_report_interval", "OSDs report when something changed, and every 5 s"),
    ("osd_deep_scrub_stride", "copies are compared in pieces of 512 KiB"),
    ("osd_fast_fail_on_connection_refused", "a refused connection is always proof enough"),
    ("osd_heartbeat_grace", "1.2 s, or three times the longest silence of late, at most 3 s"),
    ("osd_heartbeat_interval", "ten datagrams a second"),
    ("osd_heartbeat_min_peers", "each OSD watches those it shares groups with, and three more"),
    ("osd_markdown_log", "who returns for the third time within ten minutes waits, at most a minute"),
    ("osd_max_markdown_count", "who returns for the third time within ten minutes waits, at most a minute"),
    ("osd_max_markdown_period", "who returns for the third time within ten minutes waits, at most a minute"),
    ("osd_memory_cache_min", "a part of an OSD's memory, as `nacre osd --memory` gives it, is its cache"),
    ("osd_memory_target_autotune", "osd_memory_target is what it says"),
    ("osd_recovery_max_active_hdd", "osd_recovery_max_active counts on every device"),
    ("osd_recovery_max_active_ssd", "osd_recovery_max_active counts on every device"),
    ("osd_recovery_max_chunk", "a transfer has at most 512 KiB of data"),
    ("osd_recovery_max_omap_entries_per_chunk", "a transfer has at most 4096 keys, or 1 MiB of them"),
    ("osd_recovery_max_single_start", "osd_recovery_max_active counts over all groups of an OSD"),
    ("osd_recovery_retry_interval", "a transfer starts as soon as another ends"),
    ("osd_recovery_sleep_hdd", "osd_recovery_sleep counts on every device"),
    ("osd_recovery_sleep_hybrid", "osd_recovery_sleep counts on every device"),
    ("osd_recovery_sleep_ssd", "osd_recovery_sleep counts on every device"),
    ("osd_scrub_chunk_min", "osd_scrub_chunk_max counts, more only to look at an object with its clones"),
    ("osd_scrub_during_recovery", "a group that lacks something waits until it does not"),
    (
        "osd_scrub_load_threshold",
        "after each step a pause follows while clients are there, in proportion to it",
    ),
    ("osd_snap_trim_cost", "osd_snap_trim_priority and how long clients wait decide"),
    ("osd_snap_trim_sleep_hdd", "osd_snap_trim_sleep counts on every device"),
    ("osd_snap_trim_sleep_hybrid", "osd_snap_trim_sleep counts on every device"),
    ("osd_snap_trim_sleep_ssd", "osd_snap_trim_sleep counts on every device"),
    ("paxos_propose_interval", "a change of a map is proposed when its cause arrives"),
];

/// What does the work of an option that does nothing here.
pub fn superseded(name: &str) -> Option<&'static str> {
    SUPERSEDED.iter().find(|(have, _)| *have == name).map(|(_, how)| *how)
}

pub fn find(name: &str) -> Option<&'static ConfigOption> {
    ALL.iter().find(|option| option.name == name)
}

/// Every name that can be set.
pub fn names() -> &'static BTreeSet<&'static str> {
    static NAMES: OnceLock<BTreeSet<&'static str>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let ceph = include_str!("option_names.txt").lines().filter(|line| !line.is_empty());
        ceph.chain(ALL.iter().map(|option| option.name)).collect()
    })
}

pub fn exists(name: &str) -> bool {
    names().contains(name)
}

/// Of `2G`, in steps of 1024.
fn bytes(value: &str) -> Option<f64> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let power = match unit.trim_end_matches("B").trim_end_matches('i') {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << (10 * power)).map(|bytes| bytes as f64)
}

/// The value in the form in which it is kept.
pub fn normalize(name: &str, value: &str) -> Result<String, String> {
    let Some(option) = find(name) else {
        // Debug levels are pairs: what is written, and what is kept in memory for a crash.
        if name.starts_with("debug_") && value.parse::<u8>().is_ok() {
            return Ok(format!("{value}/{value}"));
        }
        return Ok(value.to_string());
    };
    let number = match option.kind {
        Kind::Text => return Ok(value.to_string()),
        Kind::Bool => {
            return match value {
                "true" | "1" | "yes" | "on" => Ok("true".to_string()),
                "false" | "0" | "no" | "off" => Ok("false".to_string()),
                _ => Err(format!(
                    "error parsing value: '{value}' is not one of the permitted values: true, false"
                )),
            };
        }
        Kind::Float => value
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite())
            .ok_or_else(|| format!("error parsing value: '{value}' is not a number"))?,
        Kind::Size => bytes(value).ok_or_else(|| format!("error parsing value: '{value}' is not a size"))?,
        Kind::Uint | Kind::Secs => {
            let digits = value.strip_suffix('s').filter(|_| option.kind == Kind::Secs).unwrap_or(value);
            digits
                .parse::<u32>()
                .map(f64::from)
                .map_err(|_| format!("error parsing value: '{value}' is not a number"))?
        }
    };
    if let Some((min, max)) = option.range
        && !(min..=max).contains(&number)
    {
        return Err(format!("error parsing value: {name} must be from {min} to {max}"));
    }
    Ok(number.to_string())
}

/// For the monitors: from the cluster's configuration, else from the file, else the default.
pub fn value(state: Option<&State>, file: &BTreeMap<String, String>, name: &str) -> String {
    // What Ceph's manager does, the leader does.
    let kind = find(name).filter(|option| option.service == "mgr").map_or("mon", |option| option.service);
    let who = ConfigEntity { kind: kind.to_string(), ..ConfigEntity::default() };
    let set = state.and_then(|state| state.config.effective(&who).remove(name)).map(|(value, _)| value);
    let default = || find(name).map_or(String::new(), |option| option.default.to_string());
    set.or_else(|| file.get(name).and_then(|value| normalize(name, value).ok())).unwrap_or_else(default)
}
