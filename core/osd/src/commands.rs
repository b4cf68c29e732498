//! The commands of `ceph tell osd.N` and `rados_osd_command`.

mod absent;
mod look;

use crate::bench::{self, Bench, BenchError};
use crate::osd::{Osd, OsdConfig};
use crate::pg::{Ctx, Pg};
use nacre_base::errno::{EBUSY, EINVAL, ENOENT, ENOSPC, EOPNOTSUPP};
use nacre_base::{Now, PgId};
use nacre_machine::{ConnId, StoreView};
use nacre_options::Refused;
use nacre_proto::messages::{Command, CommandReply};
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Name, arguments in Ceph's notation, help.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("get_command_descriptions", "", "list available commands"),
    ("version", "", "report version of the daemon"),
    (
        "bench",
        "name=count,type=CephInt,req=false name=size,type=CephInt,req=false",
        "write <count> bytes to the store in pieces of <size>, and report the time",
    ),
    ("config diff", "", "show options whose values are not their defaults"),
    ("config diff get", "name=var,type=CephString", "show options whose values are not their defaults"),
    ("config get", "name=var,type=CephString", "show the value of an option"),
    (
        "config set",
        "name=var,type=CephString name=val,type=CephString,n=N",
        "set an option until the OSD restarts",
    ),
    ("config show", "", "show every option that has a value"),
    ("config unset", "name=var,type=CephString", "undo 'config set'"),
    ("perf dump", PERF_FILTER, "show counters"),
    ("perf histogram dump", PERF_FILTER, "show latency histograms"),
    ("perf histogram schema", "", "describe the histograms"),
    ("perf reset", "name=var,type=CephString", "reset counters: all, or one set by name"),
    ("perf schema", "", "describe the counters"),
    (
        "cluster_log",
        "name=level,type=CephChoices,strings=error name=message,type=CephString,n=N",
        "write a message to the cluster log",
    ),
    ("deep_scrub", "name=pgid,type=CephPgid,req=false", "deep-scrub a placement group"),
    ("dump_blocklist", "", "list blocked clients and networks"),
    ("dump_scrub_reservations", "", "show the number of running scrubs"),
    ("dump_scrubs", "", "show the schedule of scrubs"),
    ("dump_watchers", "", "show clients that watch objects"),
    ("dump_blocked_ops", "", "show slow requests in flight"),
    ("dump_historic_ops", "", "show the last completed requests"),
    ("dump_historic_ops_by_duration", "", "show the last completed requests, slowest first"),
    ("dump_historic_slow_ops", "", "show the last completed slow requests"),
    ("dump_ops_in_flight", "", "show requests in flight"),
    ("injectargs", "name=injected_args,type=CephString,n=N", "set options until the OSD restarts"),
    ("ops", "", "show requests in flight"),
    ("status", "", "show the status of the daemon"),
    ("flush_pg_stats", "", "send statistics of placement groups to the monitors now"),
    ("get_latest_osdmap", "", "wait until the OSD has the newest map"),
    ("get_mapped_pools", "", "show the pools that have placement groups here"),
    ("help", "", "list available commands"),
    ("log flush", "", "flush the log, which is never buffered"),
    ("scrub", "name=pgid,type=CephPgid,req=false", "scrub a placement group"),
    ("send_beacon", "", "send a beacon to the monitors now"),
    // Of `ceph tell PG`, which puts the PG into the command itself.
    ("query", "", "show details of a placement group"),
    (
        "list_unfound",
        "name=pgid,type=CephPgid,req=false name=offset,type=CephString,req=false",
        "list the unfound objects of a placement group",
    ),
    (
        "mark_unfound_lost",
        "name=pgid,type=CephPgid,req=false name=mulcmd,type=CephChoices,strings=revert|delete",
        "mark the unfound objects of a placement group lost",
    ),
    (
        "pg",
        "name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=query|list_unfound",
        "show details of a placement group",
    ),
    (
        "pg",
        "name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=mark_unfound_lost \
         name=mulcmd,type=CephChoices,strings=revert|delete",
        "mark the unfound objects of a placement group lost",
    ),
];
const PERF_FILTER: &str = "name=logger,type=CephString,req=false name=counter,type=CephString,req=false";

pub fn version() -> String {
    format!("nacre version {} pacific (stable)", env!("CARGO_PKG_VERSION"))
}

/// The option that shows the memory limit that the OSD was started with.
const MEMORY_TARGET: &str = "osd_memory_target";

/// What `ceph osd metadata` shows.
pub fn metadata(config: &OsdConfig) -> BTreeMap<String, String> {
    [
        ("ceph_version", version()),
        ("ceph_version_short", env!("CARGO_PKG_VERSION").to_string()),
        ("ceph_release", "pacific".to_string()),
        ("hostname", config.host.clone()),
        ("osd_objectstore", "nacre".to_string()),
        ("default_device_class", config.device_class.clone()),
        ("front_addr", config.public.to_string()),
        ("back_addr", config.cluster.to_string()),
        // The same sockets: heartbeats come as datagrams.
        ("hb_front_addr", config.public.to_string()),
        ("hb_back_addr", config.cluster.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_string(), value))
    .chain(config.metadata.clone())
    .collect()
}

/// Why a command was not carried out: a positive errno and a sentence.
pub type Refusal = (i32, String);

/// Text and numbers are what they are; the rest is JSON, which programs get without blanks.
pub fn reply(answer: Result<Value, Refusal>, compact: bool) -> CommandReply {
    let done = |output: String| CommandReply { retval: 0, status: String::new(), output: output.into() };
    match answer {
        Ok(Value::Null) => done(String::new()),
        Ok(Value::Number(number)) => done(number.to_string()),
        Ok(Value::String(text)) => done(text),
        Ok(value) => done(shown(&value, compact)),
        Err((errno, why)) => CommandReply { retval: -errno, status: why, output: Default::default() },
    }
}

fn shown(value: &Value, compact: bool) -> String {
    match compact {
        true => value.to_string(),
        false => {
            let mut out = Vec::new();
            let indented = PrettyFormatter::with_indent(b"    ");
            let mut printer = serde_json::Serializer::with_formatter(&mut out, indented);
            value.serialize(&mut printer).expect("JSON values print");
            out.push(b'\n');
            String::from_utf8(out).expect("JSON is text")
        }
    }
}

/// The command as it was sent.
pub fn words(command: &Command) -> Result<Value, Refusal> {
    nacre_proto::words::parse(&command.cmd).map(Value::Object).map_err(|why| (EINVAL, why))
}
pub fn is_compact(words: &Value) -> bool {
    words["format"] == "json"
}

/// The PG that a command is about.
pub fn group(words: &Value) -> Result<PgId, Refusal> {
    let text = words["pgid"].as_str().unwrap_or_default();
    if text.is_empty() {
        return Err((EINVAL, "no pgid specified".to_string()));
    }
    text.parse().map_err(|()| (EINVAL, format!("'{text}' is not a placement group")))
}

/// None if the answer comes later, to `from`: a bench was begun.
pub fn run(
    osd: &mut Osd,
    now: Now,
    store: &dyn StoreView,
    from: (ConnId, u64),
    words: &Value,
) -> Option<CommandReply> {
    let compact = is_compact(words);
    if let Some(outcome) = change_options(osd, words) {
        return Some(match outcome {
            Ok((status, value)) => CommandReply { status, ..reply(Ok(value), compact) },
            Err(refusal) => reply(Err(refusal), compact),
        });
    }
    if words["prefix"] == "bench" {
        return start_bench(osd, now, store, from, words).err().map(|refusal| reply(Err(refusal), compact));
    }
    Some(reply(answer(osd, now, store, words), compact))
}

/// If the command declares something lost: the answer, and the PG to tell and whether to delete.
pub fn mark_lost(osd: &Osd, words: &Value) -> Option<(CommandReply, Option<(PgId, bool)>)> {
    let asked = words["prefix"] == "mark_unfound_lost"
        || (words["prefix"] == "pg" && words["cmd"] == "mark_unfound_lost");
    if !asked {
        return None;
    }
    let said = |retval, status: String| CommandReply { retval, status, output: Default::default() };
    let refused = |errno: i32, why: String| Some((said(-errno, why), None));
    let Some(id) = words["pgid"].as_str().and_then(|text| text.parse::<PgId>().ok()) else {
        return refused(EINVAL, "no pgid specified".to_string());
    };
    let delete = match words["mulcmd"].as_str() {
        Some("delete") => true,
        Some("revert") => false,
        _ => return refused(EINVAL, "mode must be 'revert' or 'delete'".to_string()),
    };
    let (Some(pg), Some(map)) = (osd.pg(id), osd.map()) else {
        return refused(ENOENT, format!("i don't have pgid {id}"));
    };
    match pg.lost_objects(map) {
        Err(error) => refused(EINVAL, error.to_string()),
        Ok(0) => Some((said(0, "pg has no unfound objects".to_string()), None)),
        Ok(count) => {
            let status = format!("pg has {count} objects unfound and apparently lost marking");
            Some((said(0, status), Some((id, delete))))
        }
    }
}

fn start_bench(
    osd: &mut Osd,
    now: Now,
    store: &dyn StoreView,
    (conn, tid): (ConnId, u64),
    words: &Value,
) -> Result<(), Refusal> {
    let number = |name: &str| words[name].as_u64().unwrap_or(0);
    let refused = |error: BenchError| match error {
        BenchError::Bounds => (EINVAL, error.to_string()),
        BenchError::Busy => (EBUSY, error.to_string()),
        BenchError::NoSpace => (ENOSPC, error.to_string()),
    };
    if osd.bench.is_some() {
        return Err(refused(BenchError::Busy));
    }
    let bounds = bench::bounds(number("count"), number("size"), store.statfs().available).map_err(refused)?;
    osd.bench = Some(Bench::new(now.mono, bounds, conn, tid));
    Ok(())
}

fn answer(osd: &mut Osd, now: Now, store: &dyn StoreView, words: &Value) -> Result<Value, Refusal> {
    let word = |name: &str| words.get(name).and_then(Value::as_str).unwrap_or_default();
    let prefix = match (word("prefix"), word("cmd")) {
        // `ceph pg ID query` wraps the command.
        ("pg", cmd) => cmd,
        (prefix, _) => prefix,
    };
    let keep = osd.options.keep();
    match prefix {
        "get_command_descriptions" => Ok(descriptions()),
        "version" => Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "release": "pacific",
            "release_type": "stable",
        })),
        "help" => Ok(COMMANDS.iter().map(|(name, _, help)| (name.to_string(), json!(help))).collect()),
        "config show" => {
            let memory = (MEMORY_TARGET.to_string(), osd.config.memory.to_string());
            Ok(json!(osd.options.show().into_iter().chain([memory]).collect::<BTreeMap<_, _>>()))
        }
        "config diff" | "config diff get" => Ok(json!({ "diff": osd.options.differing() })),
        "config get" => {
            let name = word("var");
            let memory = (name == MEMORY_TARGET).then(|| osd.config.memory.to_string());
            let value = memory.or_else(|| osd.options.get(name));
            let value = value.ok_or_else(|| refused(nacre_options::no_such(name)))?;
            Ok(json!({ name: value }))
        }
        "perf dump" | "perf counters_dump" => {
            set_gauges(osd, store);
            Ok(osd.counted.registry.dump(word("logger"), word("counter")))
        }
        "perf schema" => Ok(osd.counted.registry.schema()),
        "perf histogram dump" => Ok(osd.counted.registry.histograms(word("logger"), word("counter"))),
        "perf histogram schema" => Ok(osd.counted.registry.histogram_schema()),
        "perf reset" if word("var").is_empty() => {
            Err((EINVAL, "'perf reset' requires the name of a set, or 'all'".to_string()))
        }
        "perf reset" => Ok(match osd.counted.registry.reset(word("var")) {
            true => json!({ "success": format!("perf reset {}", word("var")) }),
            false => json!({ "error": format!("Not find: {}", word("var")) }),
        }),
        "dump_ops_in_flight" | "ops" => Ok(ops_in_flight(osd, now)),
        "dump_blocked_ops" => Ok(blocked_ops(osd, now, keep.slow)),
        "dump_historic_ops" => Ok(osd.history.recent(now, &keep, false)),
        "dump_historic_ops_by_duration" => Ok(osd.history.recent(now, &keep, true)),
        "dump_historic_slow_ops" => Ok(osd.history.slow(now, &keep)),
        "status" => Ok(status(osd)),
        "flush_pg_stats" => Ok(json!(osd.report_at_once(now))),
        "send_beacon" => {
            osd.report_at_once(now);
            Ok(Value::Null)
        }
        // Lines are written as they come.
        "log flush" => Ok(json!({})),
        "get_mapped_pools" => Ok(look::pools(osd)),
        "dump_watchers" => Ok(look::watchers(osd)),
        "dump_blocklist" => {
            Ok(Value::String(look::fences(osd).iter().map(|list| shown(list, is_compact(words))).collect()))
        }
        "dump_scrub_reservations" => Ok(look::scrub_slots(osd)),
        "dump_scrubs" => look::scrub_plans(osd, now),
        "query" | "list_unfound" => {
            let id = group(words)?;
            with_ctx(osd, now, store, |ctx| {
                let pg = osd.pg(id).ok_or_else(|| (ENOENT, format!("i don't have pgid {id}")))?;
                Ok(if prefix == "query" { pg.query(ctx) } else { pg.list_unfound(&ctx.map) })
            })
        }
        "" => Err((EINVAL, "no command given".to_string())),
        other => Err(match absent::why(other) {
            Some(why) => (EOPNOTSUPP, format!("not in Nacre: {why}")),
            None => (EINVAL, format!("osd.{} does not know the command '{other}'", osd.me().0)),
        }),
    }
}

/// The words of an argument that may come several times.
pub fn many<'a>(words: &'a Value, name: &str) -> Vec<&'a str> {
    match &words[name] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn refused(refused: Refused) -> Refusal {
    (refused.errno, refused.text)
}

/// Carries out a command that sets options until the OSD restarts; none if it is another one. The text says
/// what changed.
fn change_options(osd: &mut Osd, words: &Value) -> Option<Result<(String, Value), Refusal>> {
    let name = words["var"].as_str().unwrap_or_default();
    let done = |said: Result<String, Refused>| Ok((said.map_err(refused)?, json!({})));
    Some(match words["prefix"].as_str()? {
        "config set" if name == MEMORY_TARGET => {
            let (me, value) = (osd.me(), many(words, "val").join(" "));
            let text = format!(
                "it takes effect when the OSD starts: ceph config set osd.{me} {MEMORY_TARGET} {value}"
            );
            Err((EOPNOTSUPP, text))
        }
        "config set" => {
            let said = osd.options.set(name, &many(words, "val").join(" ")).map_err(refused);
            said.map(|said| (String::new(), json!({ "success": said })))
        }
        "config unset" => done(osd.options.unset(name)),
        "injectargs" => done(osd.options.inject(&many(words, "injected_args").join(" "))),
        _ => return None,
    })
}

fn with_ctx<T>(
    osd: &Osd,
    now: Now,
    store: &dyn StoreView,
    run: impl FnOnce(&Ctx<'_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let Some(map) = osd.map().cloned() else {
        return Err((nacre_base::errno::EAGAIN, "there is no map yet".to_string()));
    };
    let mut out = Vec::new();
    run(&Ctx { now, turn: 0, store, map, budget: &osd.budget, out: &mut out })
}

/// In the form that the `ceph` command builds its parser from.
fn descriptions() -> Value {
    let mut all = Map::new();
    // Commands without effect are listed, too: otherwise the tool would refuse them without a reason.
    let absent =
        absent::names().map(|name| (name, "name=args,type=CephString,n=N,req=false", "not in Nacre"));
    for (n, (name, args, help)) in COMMANDS.iter().copied().chain(absent).enumerate() {
        let mut sig: Vec<Value> = name.split(' ').map(|word| json!(word)).collect();
        for arg in args.split_whitespace() {
            let fields = arg.split(',').filter_map(|field| field.split_once('='));
            sig.push(
                fields.map(|(key, value)| (key.to_string(), json!(value))).collect::<Map<_, _>>().into(),
            );
        }
        let entry = json!({"sig": sig, "help": help, "module": "osd", "perm": "r", "flags": 0});
        all.insert(format!("cmd{n:03}"), entry);
    }
    Value::Object(all)
}

/// Gauges: computed when they are read.
fn set_gauges(osd: &Osd, store: &dyn StoreView) {
    let counted = &osd.counted.osd;
    let count = |of: fn(&Pg) -> bool| osd.pgs().filter(|pg| of(pg)).count() as u64;
    let (primary, replica) = (count(Pg::is_primary), count(Pg::is_replica));
    let all = osd.pgs().count() as u64;
    counted.numpg.set(all);
    counted.numpg_primary.set(primary);
    counted.numpg_replica.set(replica);
    counted.numpg_stray.set(all - primary - replica);
    let backoffs = &osd.counted.backoffs;
    backoffs.waiting.set(osd.backoffs.len() as u64);
    backoffs.held_bytes.set(osd.budget.waiting.held());
    counted.op_wip.set(osd.pgs().map(|pg| pg.ops_in_flight_len() as u64).sum());
    counted.recovery_ops.set(osd.pgs().map(|pg| pg.counts().work.recovered_objects).sum());
    counted.recovery_bytes.set(osd.pgs().map(|pg| pg.counts().work.recovered_bytes).sum());
    let statfs = store.statfs();
    counted.stat_bytes.set(statfs.total);
    counted.stat_bytes_used.set(statfs.total.saturating_sub(statfs.available));
    counted.stat_bytes_avail.set(statfs.available);
}

fn ops_in_flight(osd: &Osd, now: Now) -> Value {
    let ops: Vec<Value> = osd.pgs().flat_map(|pg| pg.ops_in_flight(now)).collect();
    json!({"ops": ops, "num_ops": ops.len()})
}

fn blocked_ops(osd: &Osd, now: Now, slow: Duration) -> Value {
    let is_slow = |op: &Value| op["age"].as_f64().is_some_and(|age| age >= slow.as_secs_f64());
    let ops: Vec<Value> = osd.pgs().flat_map(|pg| pg.ops_in_flight(now)).filter(is_slow).collect();
    json!({"ops": ops, "complaint_time": slow.as_secs_f64(), "num_blocked_ops": ops.len()})
}

fn status(osd: &Osd) -> Value {
    json!({
        "cluster_fsid": osd.map().map_or(String::new(), |map| uuid(&map.fsid)),
        "osd_fsid": uuid(&osd.config.uuid),
        "whoami": osd.me().0,
        "state": if osd.is_serving() { "active" } else { "booting" },
        "oldest_map": osd.maps.oldest().0,
        "cluster_osdmap_trim_lower_bound": osd.maps.oldest().0,
        "newest_map": osd.maps.epoch().0,
        "num_pgs": osd.pgs().count(),
    })
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
