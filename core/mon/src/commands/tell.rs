//! The commands of one monitor: `ceph tell mon.a ...`, and those of its admin socket.
//!
//! They are answered by this very process, also while there is no leader or, where they allow it, before the
//! monitor has joined.

use super::cluster::{election_epoch, health_json};
use super::monitors::quorum_json;
use super::{Answer, Args, Call, Format, Layout, Outcome, Signature, refuse};
use crate::mon::Mon;
use crate::output::{addrvec, uuid};
use crate::pending_txn::PendingTxn;
use nacre_base::{Now, errno};
use nacre_command::{Absent, option_diff, option_of};
use nacre_machine::Peer;
use nacre_options::{Daemon, Opt};
use nacre_proto::messages::CommandReply;
use serde_json::{Map, Value, json};

/// Name, arguments in Ceph's notation, help.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("config diff", "", "show options whose values are not their defaults"),
    ("config diff get", "name=var,type=CephString", "show an option whose value is not its default"),
    ("config get", "name=var,type=CephString", "show the value of an option of this monitor"),
    ("config help", "name=var,type=CephString,req=false", "describe one option, or all"),
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

/// Commands of Ceph's monitors that nothing answers here, and why.
const ABSENT: Absent = Absent(&[
    ("dump_historic_ops", REQUESTS),
    ("dump_historic_slow_ops", REQUESTS),
    ("git_version", "the binary does not contain its commit id"),
    ("log dump", "no log lines are kept in memory"),
    ("log reopen", "the log goes to standard error, which cannot be reopened"),
    ("ops", REQUESTS),
]);
const REQUESTS: &str = "a monitor answers each request at once or with its commit, and keeps no list of them";

fn signatures() -> Vec<Signature> {
    let all = COMMANDS.iter().chain(nacre_command::PERF_COMMANDS);
    let built = all.map(|(prefix, args, help)| Signature::new(prefix, args, help, "mon"));
    built.chain(ABSENT.signatures("mon")).collect()
}

impl Mon {
    /// Carries out a command of this monitor alone.
    pub(crate) fn run_tell(&mut self, now: Now, from: &Peer, cmd: &[String]) -> CommandReply {
        nacre_command::reply(self.tell(now, from, cmd))
    }

    fn tell(&mut self, now: Now, from: &Peer, cmd: &[String]) -> Outcome {
        let args = super::parse(cmd)?;
        let args = Args::new(&args);
        let prefix = args.prefix().ok_or_else(|| refuse(errno::EINVAL, "command prefix not found"))?;
        let show = |value: &Value| Answer::text(rendered(args, value));
        match prefix {
            "config set" => self.config_set(args),
            "config unset" => self.config_unset(args),
            "injectargs" => self.inject_args(args),
            "health" | "quorum_status" => {
                let Some(state) = &self.state else {
                    return Err(refuse(errno::EAGAIN, "this monitor has not joined its cluster yet"));
                };
                let pending = &mut PendingTxn::new(state, now.wall);
                let (format, layout) = (Format::of(args), Layout::of_daemon(prefix));
                let call = Call { mon: self, now, from, state, pending, args, format, layout, input: &[] };
                let value = if prefix == "health" { health_json(&call, true) } else { quorum_json(&call) };
                show(&value)
            }
            _ => match nacre_command::perf(prefix, args, &self.config.perf) {
                Some(found) => show(&found?),
                None => show(&self.look(prefix, args)?),
            },
        }
    }

    fn look(&self, prefix: &str, args: Args<'_>) -> Result<Value, nacre_command::Refusal> {
        Ok(match prefix {
            "get_command_descriptions" => nacre_command::descriptions(&signatures()),
            "help" => nacre_command::help(&signatures()),
            "version" => nacre_command::version(),
            "mon_status" | "status" => mon_status(self),
            // Lines are written as they come.
            "log flush" => json!({}),
            "config get" => {
                // By the name that the caller used, which may have blanks.
                let value = self.option(option_of(args)?.name).to_string();
                json!({ args.text("var")?: value })
            }
            "config show" => {
                let shown =
                    |option: &Opt| (option.name.to_string(), json!(self.option(option.name).to_string()));
                nacre_options::all().iter().map(shown).collect::<Map<String, Value>>().into()
            }
            "config diff" => json!({ "diff": self.differing(|_| true) }),
            "config diff get" => {
                let wanted = option_of(args)?;
                json!({ "diff": self.differing(|option| option.name == wanted.name) })
            }
            "config help" => nacre_command::config_help(args)?,
            "sessions" => sessions(self),
            _ => {
                let unknown =
                    || refuse(errno::EINVAL, format!("a monitor does not know the command '{prefix}'"));
                let absent = ABSENT.refusal(prefix).or_else(|| super::ABSENT.refusal(prefix));
                return Err(absent.unwrap_or_else(unknown));
            }
        })
    }

    /// Options whose values are not their defaults, with what sets them.
    fn differing(&self, wanted: impl Fn(&Opt) -> bool) -> Value {
        let options = self.options();
        let row = |option: &Opt| {
            let default = option.daemon_default.as_ref().unwrap_or(&option.default).to_string();
            let value = options.get(option.name).to_string();
            if value == default || !wanted(option) {
                return None;
            }
            let file = options.file.get(option.name).cloned();
            let configured = options.configured(option.name).to_string();
            let in_cluster = configured != default && file.as_ref() != Some(&configured);
            let overridden = options.overrides.get(option.name).map(ToString::to_string);
            let sources =
                [("file", file), ("mon", in_cluster.then_some(configured)), ("override", overridden)];
            Some((option.name.to_string(), option_diff(default, sources, value)))
        };
        Value::Object(nacre_options::all().iter().filter_map(row).collect())
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

fn sessions(mon: &Mon) -> Value {
    let rows = mon.sessions.iter().map(|(_, session)| {
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
