//! The one binary. `mon` and `osd` run one daemon from its own configuration. `init` and `join` make a
//! cluster of hosts, whose agents run such daemons (`hosts`); `up` and `down` run a development cluster in
//! one folder.
//!
//! Start at `Command`. A daemon: `config` is its configuration, `kinds` makes a machine of it, `fleet` runs
//! it, `addresses` is where it listens. The development cluster: `cluster` is which daemons it has, `folder`
//! where they are on the disk, `up` starts and checks it, `processes` is about pid files and child processes.
//! `format` makes OSDs of devices, `monitors` monitors that join, `device` measures devices, `store` looks
//! into stores. `package_files` writes what a package takes from this program. `admin_sockets` takes commands
//! of this host, `metrics` serves metrics, `crashes` reports panics, `ask` and `configured` are what the
//! cluster says, `image_tasks` does the manager's work in the background.

mod addresses;
mod admin_sockets;
mod admission;
mod ask;
mod check;
mod cluster;
mod config;
mod configured;
mod crashes;
mod device;
mod files;
mod fleet;
mod folder;
mod format;
mod host;
mod hosts;
mod image_tasks;
mod keyrings;
mod kinds;
mod log;
mod loopback;
mod metrics;
mod monitors;
mod name;
mod new_stores;
mod package_files;
mod processes;
mod release;
mod s3;
mod size;
mod stop_signals;
mod store;
mod up;

use anyhow::{Context, Result, ensure};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use config::{Arguments, CommonArguments, DaemonConfig};
use folder::Layout;
use name::DaemonName;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const DATA_DEFAULT: &str = "./nacre-data";

/// Storage cluster for unmodified Ceph clients.
#[derive(Parser)]
#[command(name = "nacre", version = release::version(), propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Begin a cluster on this host.
    ///
    /// Checks the host, shows what will be done and which devices will be formatted, and asks. Other hosts
    /// join with `nacre join`. After an interruption the same command goes on where it stopped.
    Init(hosts::setup::Options),
    /// Add this host to a cluster, with a token from `nacre token new`.
    ///
    /// Checks the host and the network, shows what will be done and which devices will be formatted, and
    /// asks. After an interruption the same command goes on where it stopped.
    Join(hosts::setup::Join),
    /// Create, list and remove the tokens by which hosts join.
    #[command(subcommand)]
    Token(hosts::TokenCommand),
    /// Take this host out of its cluster: its data moves to other hosts first.
    Leave(hosts::leaving::Leave),
    /// Delete what a host that left its cluster kept.
    Uninstall(hosts::leaving::Uninstall),
    /// Start and stop this host; show, move, drain, maintain and remove hosts.
    #[command(subcommand)]
    Host(hosts::HostCommand),
    /// Show and change where copies of data go.
    #[command(subcommand)]
    Placement(hosts::PlacementCommand),
    /// Upgrade all hosts of the cluster to the version that is installed on them.
    #[command(subcommand)]
    Upgrade(hosts::UpgradeCommand),
    /// Print what OpenStack, Proxmox or Kubernetes needs to use the cluster.
    ///
    /// Creates the users that are missing. The pools must exist.
    ClientConfig(hosts::client_config::Options),
    /// Run the agent of this host in the foreground: it runs the host's daemons.
    HostAgent(hosts::Folder),
    /// Start a cluster in a folder on this machine, check it, and print how to use it.
    ///
    /// Creates the folder if it does not exist, and otherwise starts the cluster with its data. Runs until
    /// Ctrl-C, or in the background with --detach. All daemons listen on loopback only.
    Up(up::Options),
    /// Stop all daemons of a folder.
    Down(Folder),
    /// Start one daemon of a host, or of a cluster that runs with --processes.
    Start(OneDaemon),
    /// Stop one daemon of a host, or of a cluster that runs with --processes.
    Stop(OneDaemon),
    /// Run a monitor in the foreground, create one, or delete the files of a removed one.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Mon(MonArgs),
    /// Run an OSD in the foreground, create one on a device, or move its log.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Osd(OsdArgs),
    /// Measure a device, or list the devices of hosts.
    #[command(subcommand)]
    Device(device::Command),
    /// Check, list, export or import the store of a stopped daemon.
    #[command(subcommand)]
    Store(store::Command),
    /// Objects over HTTP: run a gateway.
    #[command(subcommand)]
    S3(s3::Command),
    /// Run all daemons of a folder in the foreground, without checks and messages.
    #[command(hide = true)]
    All(Folder),
    /// Write the files of a package that follow from this program: man pages, completion and units.
    #[command(hide = true)]
    PackageFiles {
        /// The root of the package's files.
        root: PathBuf,
    },
}

#[derive(clap::Args)]
struct Folder {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
}

#[derive(clap::Args)]
struct OneDaemon {
    /// Such as mon.a or osd.0.
    daemon: DaemonName,
    /// Folder of the cluster or the host [default: ./nacre-data if it exists, else that of this host]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl OneDaemon {
    fn folder(&self) -> PathBuf {
        let default = || default_folder(Path::new(DATA_DEFAULT), Path::new(hosts::DATA_DEFAULT));
        self.data.clone().unwrap_or_else(default)
    }
}

/// A development cluster in the working directory comes before the host that this system is.
fn default_folder(cluster: &Path, host: &Path) -> PathBuf {
    let is_host = !cluster.exists() && host.join("host.json").exists();
    if is_host { host } else { cluster }.to_path_buf()
}

#[derive(clap::Args)]
struct Foreground {
    /// The daemon's data directory, with its daemon.json. With --id, the folder of the cluster.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Which daemon of the folder: a for mon.a, 0 for osd.0.
    #[arg(long)]
    id: Option<String>,
}

impl Foreground {
    /// The configuration in a data directory, or of a daemon in a cluster's folder.
    fn config(&self, name: impl Fn(&str) -> Result<DaemonName>) -> Result<DaemonConfig> {
        match &self.id {
            None => DaemonConfig::load(&self.data),
            Some(id) => {
                let (layout, cluster) = Layout::open(&self.data)?;
                layout.config(&cluster, &name(id)?)
            }
        }
    }
}

#[derive(clap::Args)]
struct MonArgs {
    #[command(flatten)]
    run: Option<Foreground>,
    #[command(flatten)]
    arguments: CommonArguments,
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
    /// Let one monitor of a cluster of `nacre up` decide alone, when most monitors are lost for good.
    Alone(monitors::Alone),
    /// Write all that the monitors agree on into a file, while they run.
    Backup(hosts::recovery::BackupArgs),
    /// Make the monitor of this host from a backup, when all monitors are lost.
    Restore(hosts::recovery::RestoreArgs),
    /// Continue with the stopped monitor of this host alone, when most monitors are lost for good.
    Recover(hosts::recovery::RecoverArgs),
    /// Write what this host has of the cluster into a file, for `nacre mon recover --from-osds`.
    ///
    /// For when all monitors are lost, and there is no backup. The host must be stopped.
    Collect(hosts::recovery::CollectArgs),
}

#[derive(clap::Args)]
struct OsdArgs {
    #[command(flatten)]
    run: Option<Foreground>,
    #[command(flatten)]
    arguments: Arguments,
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
        Command::Init(options) => hosts::setup::init(&options),
        Command::Join(options) => hosts::setup::join(&options),
        Command::Token(command) => hosts::token(&command),
        Command::Host(command) => hosts::host(&command),
        Command::Placement(command) => hosts::placement(&command),
        Command::ClientConfig(options) => hosts::client_config::run(&options),
        Command::Leave(options) => hosts::leaving::leave(&options),
        Command::Uninstall(options) => hosts::leaving::uninstall(&options),
        Command::Upgrade(command) => hosts::upgrade(&command),
        Command::HostAgent(folder) => hosts::agent::run(&folder.data),
        Command::Up(options) => up::up(&options),
        Command::Down(Folder { data }) => up::down(&data),
        Command::Start(one) => match hosts::agent::set_stopped(&one.folder(), &one.daemon, false)? {
            Some(()) => Ok(()),
            None => up::start(&one.folder(), &one.daemon),
        },
        Command::Stop(one) => match hosts::agent::set_stopped(&one.folder(), &one.daemon, true)? {
            Some(()) => Ok(()),
            None => up::stop(&one.folder(), &one.daemon),
        },
        Command::Mon(MonArgs { command: Some(MonCommand::Format(options)), .. }) => {
            monitors::format(&options)
        }
        Command::Mon(MonArgs { command: Some(MonCommand::Forget(options)), .. }) => {
            monitors::forget(&options)
        }
        Command::Mon(MonArgs { command: Some(MonCommand::Alone(options)), .. }) => monitors::alone(&options),
        Command::Mon(MonArgs { command: Some(MonCommand::Backup(options)), .. }) => {
            hosts::recovery::backup(&options)
        }
        Command::Mon(MonArgs { command: Some(MonCommand::Restore(options)), .. }) => {
            hosts::recovery::restore(&options)
        }
        Command::Mon(MonArgs { command: Some(MonCommand::Recover(options)), .. }) => {
            hosts::recovery::recover(&options)
        }
        Command::Mon(MonArgs { command: Some(MonCommand::Collect(options)), .. }) => {
            hosts::recovery::collect(&options)
        }
        Command::Mon(MonArgs { run, arguments, .. }) => {
            run_one(run, DaemonName::mon, &Arguments { common: arguments, ..Arguments::default() })
        }
        Command::Osd(OsdArgs { command: Some(OsdCommand::Format(options)), .. }) => format::format(&options),
        Command::Osd(OsdArgs { command: Some(OsdCommand::Forget(options)), .. }) => format::forget(&options),
        Command::Osd(OsdArgs { command: Some(OsdCommand::MoveWal(options)), .. }) => {
            format::move_wal(&options)
        }
        Command::Osd(OsdArgs { run, arguments, .. }) => run_one(run, DaemonName::osd, &arguments),
        Command::Device(command) => device::run(command),
        Command::Store(command) => store::run(command),
        Command::S3(command) => s3::run(&command),
        Command::All(Folder { data }) => run_all(&data),
        Command::PackageFiles { root } => package_files::write(Cli::command(), &root),
    }
}

/// Runs one daemon from its own configuration; `name` makes the name of such a daemon.
fn run_one(
    run: Option<Foreground>,
    name: impl Fn(&str) -> Result<DaemonName>,
    arguments: &Arguments,
) -> Result<()> {
    // clap asks for it where there is no subcommand.
    let config = run.context("--data is missing")?.config(&name)?;
    let found = config.name();
    let id = found.to_string();
    let id = id.split_once('.').map_or("", |(_, id)| id);
    ensure!(name(id).is_ok_and(|expected| expected == found), "this is the data directory of {found}");
    fleet::foreground(vec![config], &found.to_string(), Some(arguments))
}

fn run_all(data: &Path) -> Result<()> {
    let (layout, cluster) = Layout::open(data)?;
    fleet::foreground(layout.configs(&cluster)?, processes::ALL, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_is_in_the_cluster_of_the_working_directory_or_on_this_host() {
        let folder = tempfile::tempdir().unwrap();
        let (cluster, host) = (folder.path().join("nacre-data"), folder.path().join("host"));
        assert_eq!(default_folder(&cluster, &host), cluster);
        std::fs::create_dir(&host).unwrap();
        assert_eq!(default_folder(&cluster, &host), cluster, "there is no host");
        std::fs::write(host.join("host.json"), "{}").unwrap();
        assert_eq!(default_folder(&cluster, &host), host);
        std::fs::create_dir(&cluster).unwrap();
        assert_eq!(default_folder(&cluster, &host), cluster);
    }
}
