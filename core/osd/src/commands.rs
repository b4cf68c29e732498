//! What `ceph tell osd.N` and `rados_osd_command` can ask.

use crate::osd::{Osd, OsdConfig};
use crate::pg::Ctx;
use nacre_base::errno::{EINVAL, ENOENT, EOPNOTSUPP};
use nacre_base::{Now, PgId};
use nacre_machine::StoreView;
use nacre_proto::messages::{Command, CommandReply};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Name, arguments in Ceph's notation, help.
const COMMANDS: [(&str, &str, &str); 12] = [
    ("get_command_descriptions", "", "list available commands"),
    ("version", "", "report version of the daemon"),
    ("config get", "name=key,type=CephString", "show one option that is set"),
    ("config show", "", "show the options that are set"),
    ("perf dump", "", "dump counters"),
    ("dump_ops_in_flight", "", "show requests that were not answered yet"),
    ("ops", "", "show requests that were not answered yet"),
    ("status", "", "show what the daemon is and does"),
    ("flush_pg_stats", "", "report placement groups to the monitors now"),
    // Of `ceph tell PG`, which puts the group into the command itself.
    ("query", "", "show details of a placement group"),
    ("list_unfound", "", "list objects of a placement group that nobody has"),
    (
        "pg",
        "name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=query|list_unfound",
        "show details of a placement group",
    ),
];

pub fn version() -> String {
    format!("nacre version {} pacific (stable)", env!("CARGO_PKG_VERSION"))
}

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
    ]
    .into_iter()
    .map(|(key, value)| (key.to_string(), value))
    .collect()
}

/// Why a command was not carried out: a positive errno and a sentence.
type Refusal = (i32, String);

pub fn run(osd: &Osd, now: Now, store: &dyn StoreView, command: &Command) -> CommandReply {
    let answer = command
        .cmd
        .first()
        .and_then(|text| serde_json::from_str::<Value>(text).ok())
        .ok_or_else(|| (EINVAL, "the command is not JSON".to_string()))
        .and_then(|words| answer(osd, now, store, &words));
    match answer {
        Ok(Value::Null) => CommandReply { retval: 0, status: String::new(), output: Default::default() },
        Ok(value) => {
            let text = serde_json::to_string_pretty(&value).expect("JSON values print") + "\n";
            CommandReply { retval: 0, status: String::new(), output: text.into() }
        }
        Err((errno, why)) => CommandReply { retval: -errno, status: why, output: Default::default() },
    }
}

fn answer(osd: &Osd, now: Now, store: &dyn StoreView, words: &Value) -> Result<Value, Refusal> {
    let word = |name: &str| words.get(name).and_then(Value::as_str).unwrap_or_default();
    let prefix = match (word("prefix"), word("cmd")) {
        // `ceph pg ID query` wraps the command.
        ("pg", cmd) => cmd,
        (prefix, _) => prefix,
    };
    match prefix {
        "get_command_descriptions" => Ok(descriptions()),
        "version" => Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "release": "pacific",
            "release_type": "stable",
        })),
        "config show" => Ok(json!(osd.options)),
        "config get" => {
            let (name, key) = (word("key"), word("var"));
            let name = if name.is_empty() { key } else { name };
            let value = osd.options.get(name);
            value.map(|value| json!({name: value})).ok_or_else(|| {
                (ENOENT, format!("option '{name}' is not set here; what is not set has its default"))
            })
        }
        "config set" | "injectargs" => Err((
            EOPNOTSUPP,
            "options are not changed in a running daemon; set them with 'ceph config set'".to_string(),
        )),
        "perf dump" | "perf counters_dump" => Ok(counters(osd, store)),
        "dump_ops_in_flight" | "ops" => Ok(ops_in_flight(osd, now, store)),
        "status" => Ok(status(osd)),
        "flush_pg_stats" => Ok(Value::Null),
        "query" | "list_unfound" => {
            if word("pgid").is_empty() {
                return Err((EINVAL, "no pgid specified".to_string()));
            }
            let id: PgId = word("pgid")
                .parse()
                .map_err(|()| (EINVAL, format!("'{}' is not a placement group", word("pgid"))))?;
            with_ctx(osd, now, store, |ctx| {
                let pg = osd.pg(id).ok_or_else(|| (ENOENT, format!("i don't have pgid {id}")))?;
                Ok(if prefix == "query" { pg.query(ctx) } else { pg.list_unfound() })
            })
        }
        "" => Err((EINVAL, "no command given".to_string())),
        other => Err((EOPNOTSUPP, format!("osd.{} does not know the command '{other}'", osd.me().0))),
    }
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
    run(&Ctx { now, turn: 0, store, map, out: &mut out })
}

/// In the form that the `ceph` command builds its parser from.
fn descriptions() -> Value {
    let mut all = Map::new();
    for (n, (name, args, help)) in COMMANDS.iter().enumerate() {
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

fn counters(osd: &Osd, store: &dyn StoreView) -> Value {
    let reports = || osd.pgs().map(|pg| pg.counts());
    let sum = |of: fn(&nacre_proto::messages::PgCounts) -> u64| reports().map(|c| of(&c)).sum::<u64>();
    let statfs = store.statfs();
    json!({
        "osd": {
            "op": osd.ops_served,
            "op_r": sum(|c| c.reads),
            "op_r_out_bytes": sum(|c| c.read_bytes),
            "op_w": sum(|c| c.writes),
            "op_w_in_bytes": sum(|c| c.write_bytes),
            "recovery_ops": sum(|c| c.recovered_objects),
            "recovery_bytes": sum(|c| c.recovered_bytes),
            "numpg": osd.pgs().count(),
            "stat_bytes": statfs.total,
            "stat_bytes_used": statfs.total.saturating_sub(statfs.available),
            "stat_bytes_avail": statfs.available,
        },
    })
}

fn ops_in_flight(osd: &Osd, now: Now, store: &dyn StoreView) -> Value {
    let ops = with_ctx(osd, now, store, |ctx| {
        Ok(osd.pgs().flat_map(|pg| pg.ops_in_flight(ctx)).collect::<Vec<_>>())
    });
    let ops = ops.unwrap_or_default();
    json!({"num_ops": ops.len(), "ops": ops})
}

fn status(osd: &Osd) -> Value {
    json!({
        "cluster_fsid": osd.map().map_or(String::new(), |map| uuid(&map.fsid)),
        "osd_fsid": uuid(&osd.config.uuid),
        "whoami": osd.me().0,
        "state": if osd.is_serving() { "active" } else { "booting" },
        "newest_map": osd.maps.epoch().0,
        "num_pgs": osd.pgs().count(),
    })
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
