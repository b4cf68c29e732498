//! A cluster on many hosts: `nacre init`, `join`, `token`, `host`, and the agent that runs on each host.
//!
//! `setup` has init and join, with `preflight` before and `devices` in them. `dir` is what a host keeps.
//! `agent` keeps the host's daemons running. The monitors' part is `core/mon/src/services/hosts.rs`.

pub mod agent;
mod candidates;
pub mod client_config;
mod devices;
mod dir;
mod echo;
mod inventory;
pub mod judge;
pub mod leaving;
mod monitor;
mod own_address;
mod plan;
mod preflight;
mod program;
pub mod recovery;
pub mod setup;
pub mod systemd;
mod upgrade;

pub use dir::DATA_DEFAULT;
pub use upgrade::{UpgradeCommand, upgrade};

use crate::Format;
use crate::ask::command;
use crate::device::say;
use crate::size::Size;
use anyhow::{Context, Result, ensure};
use dir::{HostConfig, HostDir};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(20);

/// The folder of a host.
#[derive(clap::Args)]
pub struct Folder {
    /// Folder of the host
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

#[derive(clap::Subcommand)]
pub enum TokenCommand {
    /// Create a join token and print it, alone on standard output.
    New(NewToken),
    /// List the join tokens.
    Ls(Shown),
    /// Remove a join token: no more hosts join with it.
    Rm {
        /// Its id, as `nacre token ls` shows it
        id: String,
        #[command(flatten)]
        folder: Folder,
    },
}

#[derive(clap::Args)]
pub struct NewToken {
    /// How long it is good: 30m, 1h, 7d or `never`
    #[arg(long, default_value = "1h", value_parser = Ttl::from_str)]
    ttl: Ttl,
    /// How many hosts may join with it
    #[arg(long, value_name = "N", default_value_t = 1)]
    uses: u32,
    /// What these hosts may run
    #[arg(long, value_name = "ROLE,...", value_delimiter = ',', default_value = "osd,mon")]
    roles: Vec<String>,
    #[command(flatten)]
    shown: Shown,
}

#[derive(clap::Args)]
pub struct Shown {
    #[command(flatten)]
    folder: Folder,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Subcommand)]
pub enum HostCommand {
    /// Start all daemons of this host, as after a power cut.
    Start(Folder),
    /// Stop all daemons of this host.
    Stop(Folder),
    /// List the hosts of the cluster.
    Ls(Shown),
    /// Show a host of the cluster with its daemons.
    Show {
        host: String,
        #[command(flatten)]
        shown: Shown,
    },
    /// Give a host a label, or take one from it.
    Label {
        #[arg(value_enum)]
        action: LabelAction,
        host: String,
        label: String,
        #[command(flatten)]
        folder: Folder,
    },
    /// Move a host to another place, such as rack=r1.
    SetLocation {
        host: String,
        #[arg(required = true, value_name = "TYPE=NAME")]
        location: Vec<String>,
        #[command(flatten)]
        folder: Folder,
    },
    /// Move all data and the monitor away from a host.
    Drain(Named),
    /// Use a drained host again.
    Undrain(Named),
    /// Stop the daemons of a host for some time; its data is not copied elsewhere meanwhile.
    Maintenance {
        host: String,
        /// For how long: 30m, 2h
        #[arg(long = "for", value_name = "TIME", default_value = "2h", value_parser = Ttl::from_str)]
        time: Ttl,
        /// End it: the daemons start again
        #[arg(long, conflicts_with_all = ["time", "force"])]
        end: bool,
        /// Also if data cannot be reached meanwhile
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        folder: Folder,
    },
    /// Make an OSD of each of some blank devices of a host, which `nacre device ls` lists as available.
    AddOsd {
        host: String,
        #[arg(required = true, value_name = "PATH")]
        devices: Vec<String>,
        /// Faster devices of that host for the logs: blank devices or partitions for one log each, or folders
        #[arg(long, value_name = "PATH,...", value_delimiter = ',')]
        wal_devices: Vec<String>,
        /// Size of each of these logs [default: 1G]
        #[arg(long, value_name = "SIZE", requires = "wal_devices")]
        wal_size: Option<Size>,
        /// Do not measure the devices
        #[arg(long)]
        no_device_check: bool,
        /// Do not ask before the plan is carried out
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        folder: Folder,
    },
    /// Remove a host from the cluster. `nacre leave` on the host moves its data away first.
    Rm {
        host: String,
        /// The machine is lost for good, and so is what only its OSDs have
        #[arg(long)]
        lost: bool,
        /// Do not ask first
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        folder: Folder,
    },
}

/// Where copies of data go.
#[derive(clap::Subcommand)]
pub enum PlacementCommand {
    /// Show the failure domain of the default CRUSH rule.
    Show(Shown),
    /// Have each copy on another host or rack, or on another OSD.
    ///
    /// Says how much data moves, and changes nothing then unless --yes is given. Refused if some copy would
    /// have no place.
    FailureDomain {
        /// osd, host, rack or another type of the CRUSH map
        #[arg(value_name = "TYPE")]
        kind: String,
        /// Also if data moves
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        folder: Folder,
    },
}

#[derive(clap::Args)]
pub struct Named {
    host: String,
    #[command(flatten)]
    folder: Folder,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum LabelAction {
    Add,
    Rm,
}

/// Seconds; 0 is without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl(u64);

impl FromStr for Ttl {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Ttl> {
        if text == "never" {
            return Ok(Ttl(0));
        }
        let bad = || format!("`{text}` is no time such as 30m, 1h, 7d or `never`");
        let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
        let (number, unit) = units
            .iter()
            .find_map(|(unit, secs)| Some((text.strip_suffix(unit)?, *secs)))
            .unwrap_or((text, 1));
        let number: u64 = number.parse().with_context(bad)?;
        ensure!(number > 0, bad());
        Ok(Ttl(number.saturating_mul(unit)))
    }
}

pub fn token(words: &TokenCommand) -> Result<()> {
    match words {
        TokenCommand::New(NewToken { ttl, uses, roles, shown }) => {
            let id: String = Uuid::new_v4().simple().to_string().chars().take(10).collect();
            let words =
                json!({ "prefix": "token new", "id": id, "ttl": ttl.0, "uses": uses, "roles": roles });
            show(words, shown)
        }
        TokenCommand::Ls(shown) => show(json!({ "prefix": "token ls" }), shown),
        TokenCommand::Rm { id, folder } => {
            let (dir, config) = HostDir::open(&folder.data)?;
            ask(&dir, &config, &json!({ "prefix": "token rm", "id": id }))?;
            say(format_args!("No more hosts join with token {id}."));
            Ok(())
        }
    }
}

pub fn host(words: &HostCommand) -> Result<()> {
    match words {
        HostCommand::Start(folder) => {
            let (dir, config) = HostDir::open(&folder.data)?;
            let _lock = dir.lock()?;
            setup::start(&dir, &config)
        }
        HostCommand::Stop(folder) => {
            let (dir, config) = HostDir::open(&folder.data)?;
            let _lock = dir.lock()?;
            setup::stop(&dir, &config)
        }
        HostCommand::Ls(shown) => show(json!({ "prefix": "host ls" }), shown),
        HostCommand::Show { host, shown } => show(json!({ "prefix": "host show", "name": host }), shown),
        HostCommand::Label { action, host, label, folder } => {
            let prefix = match action {
                LabelAction::Add => "host label add",
                LabelAction::Rm => "host label rm",
            };
            change(json!({ "prefix": prefix, "hostname": host, "label": label }), folder)
        }
        HostCommand::SetLocation { host, location, folder } => {
            change(json!({ "prefix": "host set-location", "hostname": host, "location": location }), folder)
        }
        HostCommand::Drain(Named { host, folder }) => {
            change(json!({ "prefix": "host drain", "hostname": host }), folder)
        }
        HostCommand::Undrain(Named { host, folder }) => {
            change(json!({ "prefix": "host undrain", "hostname": host }), folder)
        }
        HostCommand::Maintenance { host, end: true, folder, .. } => {
            change(json!({ "prefix": "host maintenance exit", "hostname": host }), folder)
        }
        HostCommand::Maintenance { host, time, force, folder, .. } => {
            let words = json!({
                "prefix": "host maintenance enter", "hostname": host, "seconds": time.0, "force": force,
            });
            change(words, folder)
        }
        HostCommand::AddOsd { host, devices, wal_devices, wal_size, no_device_check, yes, folder } => {
            show_devices(host, devices, folder)?;
            leaving::confirm(*yes, &format!("Each of these devices of {host} is formatted for one OSD"))?;
            let mut what = format!("{host}:{}", devices.join(","));
            if !wal_devices.is_empty() {
                what += &format!(",wal_devices={}", wal_devices.join(","));
            }
            if let Some(size) = wal_size {
                what += &format!(",wal_size={}", size.0);
            }
            if *no_device_check {
                what += ",no_device_check=true";
            }
            change(json!({ "prefix": "orch daemon add osd", "svc_arg": what }), folder)
        }
        HostCommand::Rm { host, lost, yes, folder } => {
            let words = json!({
                "prefix": "host rm", "hostname": host, "offline": lost, "yes_i_really_mean_it": yes,
            });
            change(words, folder)
        }
    }
}

/// Shows what is known of some devices of a host.
fn show_devices(host: &str, paths: &[String], folder: &Folder) -> Result<()> {
    let (dir, config) = HostDir::open(&folder.data)?;
    let words = json!({ "prefix": "host device ls", "hostname": [host], "format": "json" });
    let all: Vec<Value> =
        serde_json::from_slice(&ask(&dir, &config, &words)?).context("the reply is not JSON")?;
    for path in paths {
        let found = all.iter().find(|device| device["path"] == path.as_str());
        let device = found.with_context(|| {
            format!("host {host} has no {path}: `nacre device ls {host}` lists what it has")
        })?;
        let text = |key: &str| device[key].as_str().unwrap_or_default();
        let reasons: Vec<&str> =
            device["rejected_reasons"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let is = if reasons.is_empty() {
            "available".to_string()
        } else {
            format!("rejected: {}", reasons.join(", "))
        };
        let size = Size(device["size"].as_u64().unwrap_or_default());
        say(format_args!("{path}  {}  {size}  {} {}  {is}", text("type"), text("model"), text("serial")));
    }
    Ok(())
}

/// `nacre device ls`.
#[derive(clap::Args)]
pub struct DeviceLs {
    /// Hosts [default: all]
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,
    #[command(flatten)]
    shown: Shown,
}

/// `nacre device ls`.
pub fn device_ls(DeviceLs { hosts, shown }: &DeviceLs) -> Result<()> {
    show(json!({ "prefix": "host device ls", "hostname": hosts }), shown)
}

/// `nacre placement`.
pub fn placement(words: &PlacementCommand) -> Result<()> {
    match words {
        PlacementCommand::Show(shown) => show(json!({ "prefix": "placement show" }), shown),
        PlacementCommand::FailureDomain { kind, yes, folder } => {
            let words = json!({
                "prefix": "placement failure-domain", "type": kind, "yes_i_really_mean_it": yes,
            });
            change(words, folder)
        }
    }
}

/// Has the monitors change something, and prints what they say of it.
fn change(words: Value, folder: &Folder) -> Result<()> {
    let (dir, config) = HostDir::open(&folder.data)?;
    let answer = ask(&dir, &config, &words)?;
    if !answer.is_empty() {
        say(format_args!("{}", String::from_utf8_lossy(&answer).trim_end()));
    }
    Ok(())
}

/// Prints what the monitors answer.
fn show(mut words: Value, shown: &Shown) -> Result<()> {
    let (dir, config) = HostDir::open(&shown.folder.data)?;
    if shown.format == Format::Json {
        words["format"] = json!("json-pretty");
    }
    let answer = ask(&dir, &config, &words)?;
    say(format_args!("{}", String::from_utf8_lossy(&answer).trim_end()));
    Ok(())
}

/// Asks the monitors, as `client.admin`.
fn ask(dir: &HostDir, config: &HostConfig, words: &Value) -> Result<bytes::Bytes> {
    let client = dir.admin_access(config)?.connect();
    command(&client, words, PATIENCE).map_err(|e| match client.trouble() {
        Some(trouble) => e.context(format!("no monitor answers ({trouble})")),
        None => e,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_token_has_a_unit() {
        for (text, seconds) in
            [("30m", 1800), ("1h", 3600), ("7d", 604_800), ("90s", 90), ("90", 90), ("never", 0)]
        {
            assert_eq!(text.parse::<Ttl>().unwrap(), Ttl(seconds), "{text}");
        }
        for bad in ["", "h", "-1h", "0", "soon"] {
            assert!(bad.parse::<Ttl>().is_err(), "{bad}");
        }
    }
}
