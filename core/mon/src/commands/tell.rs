//! What one can ask this very process: `ceph tell mon.a ...`.

use super::cluster::{VERSION, election_epoch, health_json};
use super::{Answer, Args, Call, Outcome, prefix_and_args, refuse};
use crate::mon::{CommandRequest, Mon};
use crate::options;
use crate::output::{addrvec, uuid};
use nacre_base::errno;
use nacre_proto::messages::Message;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The words, required arguments and help of each command. Arguments that may come several times end with `*`.
const COMMANDS: &[(&str, &[&str], &str)] = &[
    ("config get", &["var"], "show the value of an option of this monitor"),
    ("config set", &["var", "val*"], "set an option of this monitor until it restarts"),
    ("config show", &[], "show the values of all options of this monitor"),
    ("config unset", &["var"], "undo 'config set'"),
    ("get_command_descriptions", &[], "list the commands of this daemon"),
    ("health", &[], "show the health checks that failed"),
    ("injectargs", &["injected_args*"], "set options of this monitor until it restarts"),
    ("log flush", &[], "flush the log, which is never buffered"),
    ("help", &[], "list the commands of this daemon"),
    ("mon_status", &[], "show the status of this monitor"),
    ("quorum_status", &[], "show the monitors of the quorum"),
    ("sessions", &[], "show the connected sessions"),
    ("status", &[], "show the status of this monitor"),
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
        // Lines are written as they come.
        "log flush" => call.show_json(json!({})),
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

/// Carries out what sets options of this monitor alone; None if the command is another one.
pub(crate) fn inject(injected: &mut BTreeMap<String, String>, command: &CommandRequest) -> Option<Message> {
    let (prefix, args) = prefix_and_args(&command.cmd)?;
    let args = Args::new(&args);
    let outcome = match &*prefix {
        "config set" => config_set(injected, &args),
        "config unset" => config_unset(injected, &args),
        "injectargs" => inject_args(injected, &args.list("injected_args").join(" ")),
        _ => return None,
    };
    Some(match outcome {
        Ok(answer) => command.reply(0, answer.status, answer.output.into()),
        Err(refusal) => command.reply(-refusal.code, refusal.text, refusal.output.into()),
    })
}

fn config_set(injected: &mut BTreeMap<String, String>, args: &Args<'_>) -> Outcome {
    let (name, value) = (args.text("var")?, args.list("val").join(" "));
    let failed = |code, why| refuse(code, format!("error setting '{name}' to '{value}': {why}"));
    if !options::exists(&name) {
        return Err(failed(errno::ENOENT, "(2) No such file or directory"));
    }
    let kept = options::normalize(&name, &value);
    let kept = kept.map_err(|_| failed(errno::EINVAL, "(22) Invalid argument"))?;
    let said = format!("{name} = '{kept}' ");
    injected.insert(name, kept);
    Answer::text(format!("{:#}\n", json!({ "success": said })))
}

fn config_unset(injected: &mut BTreeMap<String, String>, args: &Args<'_>) -> Outcome {
    let name = args.text("var")?;
    if !options::exists(&name) {
        return Err(refuse(errno::EINVAL, format!("error unsetting '{name}': (22) Invalid argument")));
    }
    injected.remove(&name);
    Answer::text("{}\n")
}

/// `--name value` and `--name=value`, with dashes or underscores: all of them, or none.
fn inject_args(injected: &mut BTreeMap<String, String>, text: &str) -> Outcome {
    let (mut wanted, mut said) = (Vec::new(), String::new());
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let unknown = || refuse(errno::EINVAL, format!(" failed to parse arguments: {word}\n"));
        let option = word.strip_prefix("--").ok_or_else(unknown)?;
        let (name, value) = match option.split_once('=') {
            Some(pair) => pair,
            None => (option, words.next().unwrap_or_default()),
        };
        let name = name.replace('-', "_");
        if !options::exists(&name) {
            return Err(unknown());
        }
        let value = options::normalize(&name, value).map_err(|why| {
            let text = format!("Parse error setting {name} to '{value}' using injectargs ({why}).\n");
            refuse(errno::EINVAL, text)
        })?;
        said += &format!("{name} = '{value}' ");
        wanted.push((name, value));
    }
    injected.extend(wanted);
    Ok(Answer { status: said, output: b"{}\n".to_vec() })
}

fn descriptions() -> Value {
    let rows = COMMANDS.iter().enumerate().map(|(at, (words, args, help))| {
        let mut sig: Vec<Value> = words.split(' ').map(|word| json!(word)).collect();
        sig.extend(args.iter().map(|name| match name.strip_suffix('*') {
            Some(name) => json!({ "name": name, "type": "CephString", "n": "N" }),
            None => json!({ "name": name, "type": "CephString" }),
        }));
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
            let mons = s.monmap.map.by_rank().enumerate().map(
                |(rank, m)| json!({ "rank": rank, "name": m.name, "public_addrs": addrvec(&m.public_addrs) }),
            );
            (Some(uuid(&s.fsid())), mons.collect())
        }
    };
    json!({
        "name": mon.config.name,
        "rank": mon.rank().map_or(-1, |rank| rank as i64),
        "state": state,
        "election_epoch": election_epoch(mon),
        "quorum": mon.quorum(),
        "outside_quorum": [],
        "extra_probe_peers": [],
        "sync_provider": [],
        "monmap": {
            "epoch": mon.state.as_ref().map_or(0, |s| s.monmap.map.epoch.0),
            "fsid": fsid,
            "mons": Value::Array(mons),
        },
    })
}
