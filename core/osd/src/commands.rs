//! The commands of `ceph tell osd.N` and `rados_osd_command`.

mod absent;
mod look;

use crate::bench::{self, Bench, BenchError};
use crate::osd::{Osd, OsdConfig};
use crate::pg::{Ctx, Pg};
use absent::ABSENT;
use nacre_base::errno::{EAGAIN, EBUSY, EINVAL, ENOENT, ENOSPC, EOPNOTSUPP};
use nacre_base::{Now, PgId};
use nacre_command::{Answer, Args, CEPH_RELEASE, CEPH_VERSION_SHORT, Format, Layout};
use nacre_command::{Outcome, Refusal, Signature, ceph_version, option_of, refuse, reply};
use nacre_machine::{ConnId, StoreView};
use nacre_options::Refused;
use nacre_proto::messages::CommandReply;
use serde_json::{Value, json};
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
    ("config help", "name=var,type=CephString,req=false", "describe one option, or all"),
    ("config get", "name=var,type=CephString", "show the value of an option"),
    (
        "config set",
        "name=var,type=CephString name=val,type=CephString,n=N",
        "set an option until the OSD restarts",
    ),
    ("config show", "", "show every option that has a value"),
    ("config unset", "name=var,type=CephString", "undo 'config set'"),
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

/// The option that shows the memory limit that the OSD was started with.
const MEMORY_TARGET: &str = "osd_memory_target";

/// What `ceph osd metadata` shows.
pub fn metadata(config: &OsdConfig) -> BTreeMap<String, String> {
    [
        ("ceph_version", ceph_version(&config.release.version)),
        ("ceph_version_short", CEPH_VERSION_SHORT.to_string()),
        ("ceph_release", CEPH_RELEASE.to_string()),
        ("nacre_version", config.release.version.clone()),
        ("nacre_formats", config.release.formats.to_string()),
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

/// The value in the format that the command asks for. Text is what it is, and numbers are so too but in XML.
fn shown(value: &Value, args: Args<'_>) -> String {
    match (value, Format::of(args)) {
        (Value::Null, _) => String::new(),
        (Value::Number(number), Format::Plain | Format::Json | Format::JsonPretty) => number.to_string(),
        (Value::String(text), _) => text.clone(),
        (value, format) => format.render(value, &Layout::of_daemon(args.prefix().unwrap_or_default())),
    }
}

/// The reply to a command that found this value.
pub fn found(value: Result<Value, Refusal>, args: Args<'_>) -> CommandReply {
    reply(value.and_then(|value| Answer::text(shown(&value, args))))
}

/// The PG that a command is about.
pub fn group(args: Args<'_>) -> Result<PgId, Refusal> {
    let text = args.str("pgid");
    if text.is_empty() {
        return Err(refuse(EINVAL, "no pgid specified"));
    }
    text.parse().map_err(|()| refuse(EINVAL, format!("'{text}' is not a placement group")))
}

/// None if the answer comes later, to `from`: a bench was begun.
pub fn run(
    osd: &mut Osd,
    now: Now,
    store: &dyn StoreView,
    from: (ConnId, u64),
    args: Args<'_>,
) -> Option<CommandReply> {
    if let Some(outcome) = change_options(osd, args) {
        return Some(reply(outcome));
    }
    if args.prefix() == Some("bench") {
        return start_bench(osd, now, store, from, args).err().map(|refusal| reply(Err(refusal)));
    }
    Some(found(answer(osd, now, store, args), args))
}

/// Whether the command declares objects lost.
pub fn is_mark_lost(args: Args<'_>) -> bool {
    const NAME: &str = "mark_unfound_lost";
    args.prefix() == Some(NAME) || (args.prefix() == Some("pg") && args.str("cmd") == NAME)
}

/// The answer to a command that declares objects lost, and the PG to tell and whether to delete.
pub fn mark_lost(osd: &Osd, args: Args<'_>) -> Result<(String, Option<(PgId, bool)>), Refusal> {
    let id: PgId = args.str("pgid").parse().map_err(|()| refuse(EINVAL, "no pgid specified"))?;
    let delete = match args.str("mulcmd") {
        "delete" => true,
        "revert" => false,
        _ => return Err(refuse(EINVAL, "mode must be 'revert' or 'delete'")),
    };
    let (Some(pg), Some(map)) = (osd.pg(id), osd.map()) else {
        return Err(not_here(id));
    };
    if !delete && map.pool(id.pool).is_some_and(|pool| pool.is_erasure()) {
        return Err(refuse(EINVAL, "mode must be 'delete' for ec pool"));
    }
    match pg.lost_objects(map) {
        Err(error) => Err(refuse(EINVAL, error.to_string())),
        Ok(0) => Ok(("pg has no unfound objects".to_string(), None)),
        Ok(count) => {
            let status = format!("pg has {count} objects unfound and apparently lost marking");
            Ok((status, Some((id, delete))))
        }
    }
}

/// The refusal of a command about a PG that is not on this OSD.
pub fn not_here(id: PgId) -> Refusal {
    refuse(ENOENT, format!("i don't have pgid {id}"))
}

fn start_bench(
    osd: &mut Osd,
    now: Now,
    store: &dyn StoreView,
    (conn, tid): (ConnId, u64),
    args: Args<'_>,
) -> Result<(), Refusal> {
    let number = |name: &str| -> Result<u64, Refusal> {
        Ok(args.int_opt(name)?.and_then(|number| number.try_into().ok()).unwrap_or(0))
    };
    let refused = |error: BenchError| {
        let code = match error {
            BenchError::Size(_) | BenchError::Count { .. } => EINVAL,
            BenchError::Busy => EBUSY,
            BenchError::NoSpace => ENOSPC,
        };
        refuse(code, error.to_string())
    };
    if osd.bench.is_some() {
        return Err(refused(BenchError::Busy));
    }
    let (count, size) = (number("count")?, number("size")?);
    let bounds = bench::bounds(count, size, store.statfs().available, osd.options.bench());
    let bounds = bounds.map_err(refused)?;
    osd.bench = Some(Bench::new(now.mono, bounds, conn, tid));
    Ok(())
}

fn answer(osd: &mut Osd, now: Now, store: &dyn StoreView, args: Args<'_>) -> Result<Value, Refusal> {
    let prefix = match (args.str("prefix"), args.str("cmd")) {
        // `ceph pg ID query` wraps the command.
        ("pg", cmd) => cmd,
        (prefix, _) => prefix,
    };
    if prefix.starts_with("perf") {
        set_gauges(osd, store);
    }
    if let Some(found) = nacre_command::perf(prefix, args, &osd.counted.registry) {
        return found;
    }
    let keep = osd.options.keep();
    match prefix {
        "get_command_descriptions" => {
            Ok(nacre_command::descriptions(&signatures().chain(ABSENT.signatures("osd")).collect::<Vec<_>>()))
        }
        "version" => Ok(nacre_command::version()),
        "help" => Ok(nacre_command::help(&signatures().collect::<Vec<_>>())),
        "config show" => {
            let memory = (MEMORY_TARGET.to_string(), osd.config.memory.to_string());
            Ok(json!(osd.options.show().into_iter().chain([memory]).collect::<BTreeMap<_, _>>()))
        }
        "config diff" => Ok(json!({ "diff": osd.options.differing(|_| true) })),
        "config diff get" => {
            let wanted = option_of(args)?;
            Ok(json!({ "diff": osd.options.differing(|option| option.name == wanted.name) }))
        }
        "config help" => nacre_command::config_help(args),
        "config get" => {
            let name = args.str("var");
            let memory = (name == MEMORY_TARGET).then(|| osd.config.memory.to_string());
            let value = memory.or_else(|| osd.options.get(name));
            let value = value.ok_or_else(|| nacre_options::no_such(name))?;
            Ok(json!({ name: value }))
        }
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
            let [entries, ranges] = look::fences(osd);
            let layout = Layout::of_daemon("dump_blocklist");
            let ranged = layout.clone().with_root("range_blocklist");
            let format = Format::of(args);
            Ok(Value::String(format.render(&entries, &layout) + &format.render(&ranges, &ranged)))
        }
        "dump_scrub_reservations" => Ok(look::scrub_slots(osd)),
        "dump_scrubs" => look::scrub_plans(osd, now),
        "query" | "list_unfound" => {
            let id = group(args)?;
            with_ctx(osd, now, store, |ctx| {
                let pg = osd.pg(id).ok_or_else(|| not_here(id))?;
                Ok(if prefix == "query" { pg.query(ctx) } else { pg.list_unfound(&ctx.map) })
            })
        }
        "" => Err(refuse(EINVAL, "no command given")),
        other => {
            let unknown =
                || refuse(EINVAL, format!("osd.{} does not know the command '{other}'", osd.me().0));
            Err(ABSENT.refusal(other).unwrap_or_else(unknown))
        }
    }
}

/// Carries out a command that sets options until the OSD restarts; none if it is another one. The status says
/// what changed.
fn change_options(osd: &mut Osd, args: Args<'_>) -> Option<Outcome> {
    Some(match args.prefix()? {
        "config set" => set_option(osd, args),
        "config unset" => changed(osd.options.unset(args.str("var")), args),
        "injectargs" => changed(osd.options.inject(&args.list("injected_args").join(" ")), args),
        _ => return None,
    })
}

fn set_option(osd: &mut Osd, args: Args<'_>) -> Outcome {
    let (name, value) = (args.str("var"), args.list("val").join(" "));
    if name == MEMORY_TARGET {
        let me = osd.me();
        let text =
            format!("it takes effect when the OSD starts: ceph config set osd.{me} {MEMORY_TARGET} {value}");
        return Err(refuse(EOPNOTSUPP, text));
    }
    let said = osd.options.set(name, &value)?;
    Answer::text(shown(&json!({ "success": said }), args))
}

fn changed(said: Result<String, Refused>, args: Args<'_>) -> Outcome {
    Ok(Answer { status: said?, output: shown(&json!({}), args).into_bytes() })
}

fn with_ctx<T>(
    osd: &Osd,
    now: Now,
    store: &dyn StoreView,
    run: impl FnOnce(&Ctx<'_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let Some(map) = osd.map().cloned() else {
        return Err(no_map());
    };
    let mut out = Vec::new();
    let (format, budget) = (osd.format(), &osd.budget);
    run(&Ctx { now, turn: 0, store, map, format, budget, out: &mut out })
}

fn no_map() -> Refusal {
    refuse(EAGAIN, "there is no map yet")
}

fn signatures() -> impl Iterator<Item = Signature> {
    let all = COMMANDS.iter().chain(nacre_command::PERF_COMMANDS);
    all.map(|(prefix, args, help)| Signature::new(prefix, args, help, "osd"))
}

/// Gauges: computed when they are read.
pub fn set_gauges(osd: &Osd, store: &dyn StoreView) {
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
