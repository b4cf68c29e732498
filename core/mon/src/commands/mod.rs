//! Everything that the `ceph` tool can ask for.
//!
//! `signatures.json` holds the shape of each command of Ceph 16: words and arguments, module,
//! permission and flags, one per line. The tool learns them by `get_command_descriptions` and
//! matches what the user typed against them. Those that have a row in `BUILT` work; the rest say
//! that they are not built yet, or why Nacre has nothing like them (`absent.rs`). A command that only
//! reads is answered at once, any other in a `PendingTxn`, whose commit its answer waits for. So each must be
//! repeatable: a client whose connection broke sends it again.

mod absent;
mod auth;
mod autoscale;
mod balancer;
mod blocklist;
mod ciphers;
mod cluster;
mod config;
mod config_file;
pub(crate) mod crash;
mod crush;
mod crush_tune;
mod devices;
pub mod erasure;
mod fs;
mod fs_show;
mod fs_status;
mod host_admin;
mod host_devices;
mod hosts;
mod iostat;
mod mds;
mod modules;
mod monitors;
mod orch;
mod osd;
mod osd_flags;
mod osd_new;
mod osd_removal;
mod osd_show;
mod osdmap_dump;
mod pg;
mod pg_change;
mod pg_force;
mod placement;
mod pool;
mod pool_options;
mod pool_set;
mod progress;
mod reweight;
mod scrub;
pub(crate) mod snaps;
mod tell;
mod upgrade;
mod usage;
mod volumes;
mod weight_set;

use absent::ABSENT;
pub use cluster::{flags_text, ping_text};
pub use monitors::PACIFIC_FEATURES;
pub use pool::pool_op;
pub(crate) use pool_set::set_groups;
pub(crate) use progress::SHOWS_PROGRESS;
pub use usage::{pool_stats, statfs};

use crate::mon::{CommandRequest, Job, Mon};
use crate::pending_txn::PendingTxn;
use crate::services::mgr::image_commands::ImageCommands;
use crate::state::State;
use nacre_auth::caps::Permission;
use nacre_base::{Now, errno};
use nacre_command::{Answer, Args, Format, Layout, Outcome, Refusal, Signature, refuse};
use nacre_machine::Peer;
use nacre_options::Value as OptionValue;
use nacre_proto::messages::Message;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// What clients can have the monitors keep altogether. A monitor that was away gets all of the state in one
/// message, for which there is a limit (`nacre_msgr::Limits::front`), and all monitors have it in memory.
const KEPT_MAX: usize = 32 << 20;

/// A command while it runs.
pub(crate) struct Call<'a> {
    pub mon: &'a Mon,
    pub now: Now,
    pub from: &'a Peer,
    pub state: &'a State,
    pub pending: &'a mut PendingTxn,
    pub args: Args<'a>,
    pub format: Format,
    /// How Ceph lays out the command's output.
    pub layout: Layout,
    /// What `-i` gave.
    pub input: &'a [u8],
}

type Handler = fn(&mut Call<'_>) -> Outcome;

impl Call<'_> {
    /// The value in the format that was asked for, or what `plain` makes when a person reads it.
    pub fn show(&self, value: Value, plain: impl FnOnce() -> String) -> Outcome {
        Answer::text(match self.format {
            Format::Plain => whole_lines(plain()),
            _ => self.render(&value),
        })
    }
    /// For commands whose plain form is indented JSON.
    pub fn show_json(&self, value: Value) -> Outcome {
        Answer::text(self.render(&value))
    }
    /// The value in the format that was asked for.
    pub fn render(&self, value: &Value) -> String {
        self.format.render(value, &self.layout)
    }
    /// With some arguments Ceph lays out what it shows as another command does.
    pub fn lay_out_as(&mut self, command: &str) {
        self.layout = Layout::of_cluster(command);
    }
    pub fn option(&self, name: &str) -> OptionValue {
        self.mon.option(name)
    }
    pub fn option_u64(&self, name: &str) -> u64 {
        self.option(name).as_u64()
    }
    pub fn option_bool(&self, name: &str) -> bool {
        self.option(name).as_bool()
    }
}

/// The tool prints what it gets as it is.
fn whole_lines(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// A row: the command's words, what it does, the code.
type Row = (&'static str, &'static str, Handler);

/// All commands that work, each module with its own rows.
fn built() -> &'static BTreeMap<&'static str, (&'static str, Handler)> {
    static BUILT: OnceLock<BTreeMap<&'static str, (&'static str, Handler)>> = OnceLock::new();
    BUILT.get_or_init(|| {
        let tables: &[&[Row]] = &[
            cluster::COMMANDS,
            usage::COMMANDS,
            monitors::COMMANDS,
            ciphers::COMMANDS,
            osd_show::COMMANDS,
            osd::COMMANDS,
            osd_flags::COMMANDS,
            blocklist::COMMANDS,
            osd_removal::COMMANDS,
            pool::COMMANDS,
            snaps::COMMANDS,
            pool_set::COMMANDS,
            crush::COMMANDS,
            crush_tune::COMMANDS,
            erasure::COMMANDS,
            reweight::COMMANDS,
            pg::COMMANDS,
            scrub::COMMANDS,
            config::COMMANDS,
            config_file::COMMANDS,
            crash::COMMANDS,
            fs_show::COMMANDS,
            fs_status::COMMANDS,
            fs::COMMANDS,
            mds::COMMANDS,
            volumes::COMMANDS,
            modules::COMMANDS,
            balancer::COMMANDS,
            autoscale::COMMANDS,
            pg_change::COMMANDS,
            pg_force::COMMANDS,
            iostat::COMMANDS,
            devices::COMMANDS,
            progress::COMMANDS,
            weight_set::COMMANDS,
            auth::COMMANDS,
            hosts::COMMANDS,
            host_admin::COMMANDS,
            host_devices::COMMANDS,
            orch::COMMANDS,
            placement::COMMANDS,
            upgrade::COMMANDS,
        ];
        tables.iter().copied().flatten().map(|&(prefix, help, handler)| (prefix, (help, handler))).collect()
    })
}

fn signatures() -> &'static [Signature] {
    static SIGNATURES: OnceLock<Vec<Signature>> = OnceLock::new();
    SIGNATURES.get_or_init(|| {
        let rows: Vec<(Value, String, String, u64)> =
            serde_json::from_str(include_str!("signatures.json")).expect("the file is part of the program");
        let signature = |(sig, module, perm, flags)| {
            let prefix = Signature::prefix_of(&sig);
            let help = help(&prefix);
            Signature { prefix, sig, help, module, perm, flags }
        };
        rows.into_iter().map(signature).chain(hosts::signatures()).collect()
    })
}

fn help(prefix: &str) -> &'static str {
    let built = built().get(prefix).map(|(help, _)| *help).or_else(|| ImageCommands::help(prefix));
    let absent = if ABSENT.contains(prefix) { "not in Nacre" } else { "not built yet in Nacre" };
    built.unwrap_or(absent)
}

fn parse(cmd: &[String]) -> Result<Map<String, Value>, Refusal> {
    match cmd {
        [] => Err(refuse(errno::EINVAL, "no command specified")),
        _ => nacre_command::parse(cmd),
    }
}

/// What a command is called, and its arguments; none if it is no command.
pub(crate) fn prefix_and_args(cmd: &[String]) -> Option<(String, Map<String, Value>)> {
    let args = parse(cmd).ok()?;
    let prefix = Args::new(&args).prefix()?.to_string();
    Some((prefix, args))
}

/// Some drivers of images do themselves what a manager that says this does not do.
pub(crate) fn no_handler(prefix: &str) -> String {
    format!("not built yet in Nacre: No handler found for '{prefix}'")
}

/// Whether a command that was sent to this daemon alone means the whole cluster: clients of managers
/// without Octopus' features send everything this way.
pub(crate) fn is_for_cluster(cmd: &[String]) -> bool {
    parse(cmd).is_ok_and(|args| args.get("target").is_some_and(|target| target[0] == "mon-mgr"))
}

/// The module that a command belongs to, and the permission that it needs; none if it is no command.
pub(crate) fn needs(prefix: &str) -> Option<(&'static str, Permission)> {
    let signature = signatures().iter().find(|s| s.prefix == prefix)?;
    let has = |letter| signature.perm.contains(letter);
    Some((&signature.module, Permission { read: has('r'), write: has('w'), exec: has('x') }))
}

/// Whether a command changes nothing, also because it is none.
pub(crate) fn is_read_only(command: &CommandRequest) -> bool {
    let Ok(args) = parse(&command.cmd) else { return true };
    let Some(prefix) = Args::new(&args).prefix() else { return true };
    if !built().contains_key(prefix) {
        return true;
    }
    signatures().iter().filter(|s| s.prefix == prefix).all(|s| !s.perm.contains('w'))
}

/// Runs a command; what it changes goes into `pending`.
pub(crate) fn run(
    mon: &Mon,
    now: Now,
    job: &Job,
    command: &CommandRequest,
    pending: &mut PendingTxn,
) -> Message {
    command.reply(dispatch(mon, now, job, command, pending))
}

fn no_room() -> Refusal {
    let mib = KEPT_MAX >> 20;
    let text = format!(
        "the limit of {mib} MiB for options and config keys is reached: remove some (`ceph config-key rm`)"
    );
    refuse(errno::ENOSPC, text)
}

fn dispatch(mon: &Mon, now: Now, job: &Job, command: &CommandRequest, pending: &mut PendingTxn) -> Outcome {
    let args = parse(&command.cmd)?;
    let args = Args::new(&args);
    let Some(prefix) = args.prefix() else {
        return Err(refuse(errno::EINVAL, "command prefix not found"));
    };
    let layout = Layout::of_cluster(prefix);
    let format = Format::of(args).for_layout(&layout);
    let state = mon.state.as_ref().expect("only a leader that has the state runs commands");
    let call =
        &mut Call { mon, now, from: &job.from, state, pending, args, format, layout, input: &command.input };
    if prefix == "get_command_descriptions" {
        return Answer::text(nacre_command::descriptions(signatures()).to_string());
    }
    match built().get(prefix) {
        Some((_, handler)) => {
            let (kv, config) = (call.pending.batch.kv.len(), call.pending.batch.config.len());
            let outcome = handler(call)?;
            let batch = &mut call.pending.batch;
            let adds = batch.kv[kv..].iter().any(|(_, value)| value.is_some())
                || batch.config[config..].iter().any(|(_, value)| value.is_some());
            if adds && state.client_bytes() + batch.client_bytes() > KEPT_MAX {
                batch.kv.truncate(kv);
                batch.config.truncate(config);
                return Err(no_room());
            }
            Ok(outcome)
        }
        None if signatures().iter().any(|s| s.prefix == prefix) => {
            let not_built = || refuse(errno::EOPNOTSUPP, no_handler(prefix));
            Err(ABSENT.refusal(prefix).unwrap_or_else(not_built))
        }
        None => Err(refuse(errno::EINVAL, "command not known")),
    }
}
