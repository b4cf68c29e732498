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

/// Storage cluster for unmodified Ceph clients.
#[derive(Parser)]
#[command(name = "nacre", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster in a folder on this machine, check it, and print how to use it.
    ///
    /// Creates the folder if it does not exist, and otherwise starts the cluster with its data. Runs until
    /// Ctrl-C, or in the background with --detach. All daemons listen on loopback only.
    Up(up::Options),
    /// Stop all daemons of a folder.
    Down(Folder),
    /// Start one daemon of a cluster that runs with --processes.
    Start(OneDaemon),
    /// Stop one daemon of a cluster that runs with --processes.
    Stop(OneDaemon),
    /// Run a monitor in the foreground, create one, or delete the files of a removed one.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Mon(MonArgs),
    /// Run an OSD in the foreground, create one on a device, or move its log.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Osd(OsdArgs),
    /// Measure a device.
    #[command(subcommand)]
    Device(device::Command),
    /// Check, list, export or import the store of a stopped daemon.
    #[command(subcommand)]
    Store(store::Command),
    /// Run all daemons of a folder in the foreground, without checks and messages.
    #[command(hide = true)]
    All(Folder),
}

#[derive(clap::Args)]
struct Folder {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
}

#[derive(clap::Args)]
struct OneDaemon {
    /// Name of the daemon, such as `mon.a` or `osd.0`.
    daemon: cluster::DaemonName,
    #[command(flatten)]
    folder: Folder,
}

#[derive(clap::Args)]
struct Foreground {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Id of the daemon: `a` for `mon.a`, `0` for `osd.0`.
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
    /// Create a monitor for a running cluster, or a replacement for a lost one.
    ///
    /// It joins after it was announced with `ceph mon add` and started.
    Format(monitors::Format),
    /// Delete the files of a monitor that was removed with `ceph mon rm`.
    Forget(monitors::Forget),
    /// Let one monitor decide alone, when most monitors are lost for good.
    Alone(monitors::Alone),
}

#[derive(clap::Args)]
struct OsdArgs {
    #[command(flatten)]
    run: Option<Foreground>,
    /// Memory limit, at least 128M [default: the value given to `nacre up`, or 512M]
    #[arg(long, value_name = "SIZE", value_parser = size::Memory::from_str)]
    memory: Option<size::Memory>,
    #[command(flatten)]
    listen: networks::Listen,
    #[command(subcommand)]
    command: Option<OsdCommand>,
}

#[derive(Subcommand)]
enum OsdCommand {
    /// Add an OSD to a cluster, on a device or a file.
    Format(format::Options),
    /// Move the write-ahead log of a stopped OSD to another device, or back.
    MoveWal(format::MoveWal),
    /// Delete the files of a purged OSD.
    Forget(format::Forget),
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Human-readable.
    #[default]
    Table,
    Json,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Format::Json { "json" } else { "table" })
    }
}

/// Authentication of clients and daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Auth {
    /// No authentication: every client that reaches the ports is trusted.
    None,
    /// Authentication with the keys in the folder.
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
        // The reader of our output, such as `head`, closed the pipe.
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
