//! The one binary. `up` and `down` run a whole cluster in one folder; `mon` and `osd` run one daemon.
//!
//! Start at `Command`. `cluster` is what a folder holds, `daemons` makes machines of it and runs them,
//! `up` brings everything together, `processes` is about pid files and child processes. `format` makes
//! OSDs of devices, `monitors` monitors that join, `device` measures them, `store` looks into what they hold. `crashes` is
//! what is left of daemons that panicked, `ask` and `configured` are what the cluster says of itself, `networks` is
//! where OSDs listen, `image_tasks` does what is asked of the manager in the background.

mod admission;
mod ask;
mod check;
mod cluster;
mod configured;
mod crashes;
mod daemons;
mod device;
mod format;
mod host;
mod image_tasks;
mod keyrings;
mod log;
mod monitors;
mod networks;
mod processes;
mod size;
mod store;
mod up;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use daemons::Said;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

const DATA_DEFAULT: &str = "./nacre-data";

/// A storage cluster that unmodified Ceph clients use.
#[derive(Parser)]
#[command(name = "nacre", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster in one folder on this machine, check it, and say how to use it.
    ///
    /// The first time creates the folder; later times find the data in it. Runs until Ctrl-C, or in
    /// the background with --detach. All daemons listen on loopback only.
    Up(up::Options),
    /// Stop the cluster of a folder, wherever its daemons run.
    Down(Folder),
    /// Start one daemon of a cluster that was brought up with --processes.
    Start(OneDaemon),
    /// Stop one daemon of a cluster that was brought up with --processes.
    Stop(OneDaemon),
    /// Run a monitor in the foreground, make a new one, or forget one that was removed.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Mon(MonArgs),
    /// Run an OSD in the foreground, or make one of a device.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Osd(OsdArgs),
    /// Find out what a device can do.
    #[command(subcommand)]
    Device(device::Command),
    /// Look into a store that no daemon uses: check it, list it, copy it.
    #[command(subcommand)]
    Store(store::Command),
    /// Run all daemons of a folder in the foreground, without checks and words.
    #[command(hide = true)]
    All(Folder),
}

#[derive(clap::Args)]
struct Folder {
    /// The folder that holds the cluster.
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
}

#[derive(clap::Args)]
struct OneDaemon {
    /// As in `mon.a` or `osd.0`.
    daemon: cluster::DaemonName,
    #[command(flatten)]
    folder: Folder,
}

#[derive(clap::Args)]
struct Foreground {
    /// The folder that holds the cluster.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Which one: `a` of `mon.a`, `0` of `osd.0`.
    #[arg(long)]
    id: String,
}

#[derive(clap::Args)]
struct MonArgs {
    #[command(flatten)]
    run: Option<Foreground>,
    #[command(subcommand)]
    command: Option<MonCommand>,
}

#[derive(Subcommand)]
enum MonCommand {
    /// Make a monitor that is to join a cluster, or one in the place of a monitor that is lost.
    ///
    /// It joins once it was announced with `ceph mon add` and runs.
    Format(monitors::Format),
    /// Remove what is left of a monitor that was removed from its cluster with `ceph mon rm`.
    Forget(monitors::Forget),
    /// Let the only monitor that is left decide alone, where most are lost for good.
    Alone(monitors::Alone),
}

#[derive(clap::Args)]
struct OsdArgs {
    #[command(flatten)]
    run: Option<Foreground>,
    /// Memory that it may take, at least 128M [default: what `nacre up` was told, or 512M]
    #[arg(long, value_name = "SIZE", value_parser = size::Memory::from_str)]
    memory: Option<size::Memory>,
    #[command(flatten)]
    listen: networks::Listen,
    #[command(subcommand)]
    command: Option<OsdCommand>,
}

#[derive(Subcommand)]
enum OsdCommand {
    /// Add an OSD to a cluster, on a device or file of its own.
    Format(format::Options),
    /// Move the log of an OSD that does not run to another device, or back.
    MoveWal(format::MoveWal),
    /// Remove what is left in the folder of an OSD that was purged.
    Forget(format::Forget),
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Table,
    Json,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Format::Json { "json" } else { "table" })
    }
}

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Auth {
    /// Not at all: everyone who reaches the ports is trusted.
    None,
    /// With keys, which are in the folder.
    Cephx,
}

impl Auth {
    fn name(self) -> &'static str {
        match self {
            Auth::None => "none",
            Auth::Cephx => "cephx",
        }
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads our output had enough of it, as `head` has.
        Err(e) if is_closed_pipe(&e) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("nacre: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Up(options) => up::up(&options),
        Command::Down(Folder { data }) => up::down(&data),
        Command::Start(OneDaemon { daemon, folder }) => up::start(&folder.data, &daemon),
        Command::Stop(OneDaemon { daemon, folder }) => up::stop(&folder.data, &daemon),
        Command::Mon(MonArgs { command: Some(MonCommand::Format(options)), .. }) => {
            monitors::format(&options)
        }
        Command::Mon(MonArgs { command: Some(MonCommand::Forget(options)), .. }) => {
            monitors::forget(&options)
        }
        Command::Mon(MonArgs { command: Some(MonCommand::Alone(options)), .. }) => monitors::alone(&options),
        Command::Mon(MonArgs { run, .. }) => {
            let Foreground { data, id } = run.expect("clap asks for it where there is no subcommand");
            let daemon = cluster::DaemonName::mon(&id)?;
            daemons::foreground(&data, &[daemon], &format!("mon.{id}"), &Said::default())
        }
        Command::Osd(OsdArgs { command: Some(OsdCommand::Format(options)), .. }) => format::format(&options),
        Command::Osd(OsdArgs { command: Some(OsdCommand::Forget(options)), .. }) => format::forget(&options),
        Command::Osd(OsdArgs { command: Some(OsdCommand::MoveWal(options)), .. }) => {
            format::move_wal(&options)
        }
        Command::Osd(OsdArgs { run, memory, listen, .. }) => {
            let Foreground { data, id } = run.expect("clap asks for it where there is no subcommand");
            let said = Said { memory: memory.map(|memory| memory.0), listen };
            daemons::foreground(&data, &[cluster::DaemonName::osd(&id)?], &format!("osd.{id}"), &said)
        }
        Command::Device(command) => device::run(command),
        Command::Store(command) => store::run(command),
        Command::All(Folder { data }) => daemons::all(&data),
    }
}
