//! What one can ask this very process: `ceph tell mon.a ...`.

use super::cluster::{VERSION, election_epoch, health_json};
use super::{Call, Outcome, refuse};
use crate::mon::Mon;
use crate::options;
use crate::present::{addrvec, uuid};
use nacre_base::errno;
use serde_json::{Map, Value, json};

/// The words, required arguments and help of each command.
const COMMANDS: &[(&str, &[&str], &str)] = &[
    ("config get", &["var"], "show the value of an option here"),
    ("config show", &[], "show the values of all options here"),
    ("get_command_descriptions", &[], "list the commands that this daemon takes"),
    ("health", &[], "show what is wrong, if anything"),
    ("help", &[], "list the commands that this daemon takes"),
    ("mon_status", &[], "show how this monitor is"),
    ("quorum_status", &[], "show who takes part in decisions"),
    ("sessions", &[], "show who is connected"),
    ("status", &[], "show how this monitor is"),
    ("version", &[], "show the version of this daemon"),
];

pub fn run(call: &mut Call<'_>, prefix: &str) -> Outcome {
    match prefix {
        "get_command_descriptions" => call.show_json(descriptions()),
        "help" => {
            let help: Map<String, Value> =
                COMMANDS.iter().map(|(words, _, help)| (words.to_string(), json!(help))).collect();
            call.show_json(help.into())
        }
        "version" => {
            call.show_json(json!({ "version": VERSION, "release": "pacific", "release_type": "stable" }))
        }
        "mon_status" | "quorum_status" | "status" => call.show_json(mon_status(call.mon)),
        "health" => call.show_json(health_json(call, true)),
        "config get" => {
            let var = call.args.text("var")?;
            if !options::exists(&var) {
                return Err(refuse(errno::ENOENT, format!("no option '{var}'")));
            }
            call.show_json(json!({ var.clone(): call.option(&var) }))
        }
        "config show" => {
            let all: Map<String, Value> =
                options::ALL.iter().map(|o| (o.name.to_string(), json!(call.option(o.name)))).collect();
            call.show_json(all.into())
        }
        "sessions" => call.show_json(sessions(call)),
        _ => Err(refuse(errno::EOPNOTSUPP, format!("not built yet: 'tell ... {prefix}'"))),
    }
}

fn descriptions() -> Value {
    let rows = COMMANDS.iter().enumerate().map(|(at, (words, args, help))| {
        let mut sig: Vec<Value> = words.split(' ').map(|word| json!(word)).collect();
        sig.extend(args.iter().map(|name| json!({ "name": name, "type": "CephString" })));
        (format!("cmd{at:03}"), json!({ "sig": sig, "help": help, "module": "mon", "perm": "r", "flags": 0 }))
    });
    Value::Object(rows.collect())
}

fn sessions(call: &Call<'_>) -> Value {
    let rows = call.mon.sessions.iter().map(|(_, session)| {
        json!({
            "name": format!("{}.{}", session.peer.kind, session.peer.num),
            "addrs": addrvec(&session.peer.addrs),
            "con_type": session.peer.kind.to_string(),
            "con_features": session.peer.features,
            "host": session.host,
            "open": true,
        })
    });
    rows.collect()
}

pub fn mon_status(mon: &Mon) -> Value {
    let state = match (mon.leading.is_some(), mon.leader_rank()) {
        (true, _) => "leader",
        (false, Some(_)) => "peon",
        (false, None) => "electing",
    };
    let (fsid, mons) = match &mon.state {
        None => (None, Vec::new()),
        Some(s) => {
            let mons = s.monmap.by_rank().enumerate().map(
                |(rank, m)| json!({ "rank": rank, "name": m.name, "public_addrs": addrvec(&m.public_addrs) }),
            );
            (Some(uuid(&s.fsid)), mons.collect())
        }
    };
    json!({
        "name": mon.config.name,
        "rank": mon.rank(),
        "state": state,
        "election_epoch": election_epoch(mon),
        "quorum": mon.quorum(),
        "outside_quorum": [],
        "extra_probe_peers": [],
        "sync_provider": [],
        "monmap": {
            "epoch": mon.state.as_ref().map_or(0, |s| s.monmap.epoch.0),
            "fsid": fsid,
            "mons": Value::Array(mons),
        },
    })
}
