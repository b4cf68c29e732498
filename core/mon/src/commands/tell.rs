//! What one can ask this very process: `ceph tell mon.a ...`.

use super::cluster::{election_epoch, health_json};
use super::{Answer, Args, Call, Format, Layout, Outcome, Signature, prefix_and_args, refuse};
use crate::mon::{CommandRequest, Mon};
use crate::output::{addrvec, uuid};
use nacre_base::errno;
use nacre_command::{CEPH_RELEASE, CEPH_VERSION_SHORT, NACRE_VERSION};
use nacre_options::{Daemon, Opt};
use nacre_proto::messages::Message;
use serde_json::{Map, Value, json};

/// Name, arguments in Ceph's notation, help.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("config get", "name=var,type=CephString", "show the value of an option of this monitor"),
    (
        "config set",
        "name=var,type=CephString name=val,type=CephString,n=N",
        "set an option of this monitor until it restarts",
    ),
    ("config show", "", "show the values of all options of this monitor"),
    ("config unset", "name=var,type=CephString", "undo 'config set'"),
    ("get_command_descriptions", "", "list the commands of this daemon"),
    ("health", "", "show the health checks that failed"),
    ("injectargs", "name=injected_args,type=CephString,n=N", "set options of this monitor until it restarts"),
    ("log flush", "", "flush the log, which is never buffered"),
    ("help", "", "list the commands of this daemon"),
    ("mon_status", "", "show the status of this monitor"),
    ("quorum_status", "", "show the monitors of the quorum"),
    ("sessions", "", "show the connected sessions"),
    ("status", "", "show the status of this monitor"),
    ("version", "", "show the version of this daemon"),
];

pub fn run(call: &mut Call<'_>, prefix: &str) -> Outcome {
    match prefix {
        "get_command_descriptions" => call.show_json(nacre_command::descriptions(&signatures())),
        "help" => call.show_json(nacre_command::help(&signatures())),
        "version" => call.show_json(json!({
            "version": CEPH_VERSION_SHORT,
            "release": CEPH_RELEASE,
            "release_type": "stable",
            "nacre_version": NACRE_VERSION,
        })),
        "mon_status" | "quorum_status" | "status" => call.show_json(mon_status(call.mon)),
        // Lines are written as they come.
        "log flush" => call.show_json(json!({})),
        "health" => call.show_json(health_json(call, true)),
        "config get" => {
            let var = call.args.text("var")?;
            let option = nacre_options::find(&var).ok_or_else(|| nacre_options::no_such(&var))?;
            call.show_json(json!({ var: call.option(option.name).to_string() }))
        }
        "config show" => {
            let shown = |option: &Opt| (option.name.to_string(), json!(call.option(option.name).to_string()));
            let all: Map<String, Value> = nacre_options::all().iter().map(shown).collect();
            call.show_json(all.into())
        }
        "sessions" => call.show_json(sessions(call)),
        _ => Err(refuse(errno::EOPNOTSUPP, format!("not built yet: 'tell ... {prefix}'"))),
    }
}

fn signatures() -> Vec<Signature> {
    COMMANDS.iter().map(|(prefix, args, help)| Signature::new(prefix, args, help, "mon")).collect()
}

impl Mon {
    /// Carries out a command that sets options of this monitor alone; none if it is another one.
    pub(crate) fn override_options(&mut self, command: &CommandRequest) -> Option<Message> {
        let (prefix, args) = prefix_and_args(&command.cmd)?;
        let args = Args::new(&args);
        let outcome = match &*prefix {
            "config set" => self.config_set(args),
            "config unset" => self.config_unset(args),
            "injectargs" => self.inject_args(args),
            _ => return None,
        };
        Some(command.reply(outcome))
    }

    fn config_set(&mut self, args: Args<'_>) -> Outcome {
        let (name, value) = (args.text("var")?, args.list("val").join(" "));
        let said = self.overrides.set(Daemon::Mon, &name, &value);
        Answer::text(rendered(args, &json!({ "success": said? })))
    }

    fn config_unset(&mut self, args: Args<'_>) -> Outcome {
        let name = args.text("var")?;
        let mut overrides = std::mem::take(&mut self.overrides);
        let said = overrides.unset(Daemon::Mon, &name, |option| self.options().configured(option.name));
        self.overrides = overrides;
        Ok(Answer { status: said?, output: rendered(args, &json!({})).into_bytes() })
    }

    fn inject_args(&mut self, args: Args<'_>) -> Outcome {
        let said = self.overrides.inject(Daemon::Mon, &args.list("injected_args").join(" "));
        Ok(Answer { status: said?, output: rendered(args, &json!({})).into_bytes() })
    }
}

/// The value in the format that the command asks for.
fn rendered(args: Args<'_>, value: &Value) -> String {
    Format::of(args).render(value, &Layout::of_daemon(args.prefix().unwrap_or_default()))
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
