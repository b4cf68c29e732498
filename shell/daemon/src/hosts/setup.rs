//! `nacre init` begins a cluster on a host, `nacre join` adds a host to one.
//!
//! Both look first (`preflight`), show what they would do, and ask. From then on each step is written to
//! `host.json` before the next, and is the same when it is repeated: the command that was interrupted, run
//! again, goes on where it stopped. On a host that is done it says so.

use crate::addresses::{is_own_address, own_address_in};
use crate::ask::{Access, ask, command, tell};
use crate::device::say;
use crate::files::{remove_if_there, write_secret};
use crate::host::hostname;
use crate::hosts::agent;
use crate::hosts::candidates::{Candidate, Devices};
use crate::hosts::devices::make_osds;
use crate::hosts::dir::{DATA_DEFAULT, DeviceState, HostConfig, HostDir, Networks, Setup};
use crate::hosts::monitor::new_monitor;
use crate::hosts::own_address::{own_address, own_address_towards};
use crate::hosts::plan;
use crate::hosts::preflight::{Preflight, networks};
use crate::hosts::systemd;
use crate::keyrings::{self, ALL_CAPS};
use crate::kinds::MonMember;
use crate::name::DaemonName;
use crate::processes::LockFile;
use crate::size::{Memory, Size};
use crate::{Format, processes};
use anyhow::{Context, Result, anyhow, ensure};
use nacre_auth::JoinToken;
use nacre_client::Failure;
use nacre_node::BlockingClient;
use nacre_proto::types::{AuthName, EntityType};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A new monitor leads at once.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// For the monitors to answer a question of the preflight.
const CHECK_TIMEOUT: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(20);
/// For all OSDs of the host to be up.
const UP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(250);

#[derive(clap::Args)]
pub struct Options {
    /// Folder of the host, in which it keeps everything
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
    /// Address or name of this host for clients and other hosts; with a port, that of its monitor
    #[arg(long, value_name = "ADDR")]
    addr: Option<String>,
    /// Network of clients and hosts, such as 10.0.0.0/24
    #[arg(long, value_name = "CIDR")]
    network: Option<String>,
    /// Network for traffic among OSDs, if that is another
    #[arg(long, value_name = "CIDR")]
    cluster_network: Option<String>,
    /// Devices or files for OSDs, separated by commas; `auto`: all blank disks; `none`
    #[arg(long, value_name = "PATH,...", default_value = "auto", value_parser = Devices::from_str)]
    devices: Devices,
    /// Faster devices for the logs of these OSDs: blank devices or partitions for one log each, or folders,
    /// in which files are made
    #[arg(long, value_name = "PATH,...", value_delimiter = ',')]
    wal_devices: Vec<PathBuf>,
    /// Size of each of these logs [default: 1G]
    #[arg(long, value_name = "SIZE", requires = "wal_devices")]
    wal_size: Option<Size>,
    /// Do not measure the devices
    #[arg(long)]
    no_device_check: bool,
    /// Place of this host, such as rack=r1
    #[arg(long, value_name = "TYPE=NAME", value_delimiter = ',')]
    location: Vec<String>,
    /// Name of this host in the cluster [default: the system's]
    #[arg(long)]
    name: Option<String>,
    /// Memory limit of each OSD, at least 128M [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = Memory::from_str)]
    memory: Option<Memory>,
    /// Run the daemons without systemd
    #[arg(long)]
    no_systemd: bool,
    /// Check and show the plan, and change nothing
    #[arg(long)]
    check_only: bool,
    /// Do not ask before the plan is carried out
    #[arg(long)]
    yes: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
pub struct Join {
    /// The line that `nacre token new` printed; `-` to read it from standard input, so that other users of
    /// this machine do not see it in the list of processes
    token: String,
    #[command(flatten)]
    options: Options,
}

/// A command's folder, and what it holds.
struct Begun {
    dir: HostDir,
    config: HostConfig,
    _lock: LockFile,
}

pub fn init(options: &Options) -> Result<()> {
    let dir = HostDir::at(&options.data)?;
    if let Some(config) = dir.load()? {
        if options.check_only {
            return show_setup(&config, options);
        }
        if config.setup == Setup::Done {
            return already_done(&dir, &config, options);
        }
        ensure!(
            config.founder,
            "{} belongs to a host that is joining a cluster: run `nacre join` again, or `nacre uninstall`",
            dir.root().display()
        );
        ensure_same_plan(&config, options)?;
        return found(&mut resume(dir)?, options);
    }
    let (config, preflight) = plan_cluster(&dir, options)?;
    if !accepted(&preflight, &config, options)? {
        return Ok(());
    }
    found(&mut begin(dir, config)?, options)
}

pub fn join(command: &Join) -> Result<()> {
    let options = &command.options;
    let token: JoinToken = read_token(&command.token)?.parse()?;
    let dir = HostDir::at(&options.data)?;
    if let Some(config) = dir.load()? {
        ensure!(
            config.fsid.as_bytes() == &token.fsid,
            "{} belongs to a host of cluster {}, and the token is of cluster {}: `nacre leave` and `nacre uninstall` come \
             first, or --data names another folder",
            dir.root().display(),
            config.fsid,
            Uuid::from_bytes(token.fsid)
        );
        if options.check_only {
            return show_setup(&config, options);
        }
        if config.setup == Setup::Done {
            return already_done(&dir, &config, options);
        }
        ensure!(!config.founder, "{}: run `nacre init` again, it was interrupted", dir.root().display());
        ensure_same_plan(&config, options)?;
        return admit(&mut resume(dir)?, &token, options);
    }
    let (config, preflight) = plan_host(&dir, &token, options)?;
    if !accepted(&preflight, &config, options)? {
        return Ok(());
    }
    admit(&mut begin(dir, config)?, &token, options)
}

/// Locks the folder against other commands, and writes down what is to be done.
fn begin(dir: HostDir, config: HostConfig) -> Result<Begun> {
    dir.make()?;
    let lock = dir.lock()?;
    ensure!(dir.load()?.is_none(), "another `nacre` command has set up {} meanwhile", dir.root().display());
    dir.save(&config)?;
    Ok(Begun { dir, config, _lock: lock })
}

/// Locks the folder of a setup that was interrupted.
fn resume(dir: HostDir) -> Result<Begun> {
    let lock = dir.lock()?;
    // Read again: another command may have gone on with it until now.
    let config = dir.load()?.context("the host's configuration is gone")?;
    Ok(Begun { dir, config, _lock: lock })
}

/// What `--check-only` says of a host whose setup has begun. Nothing is changed.
fn show_setup(config: &HostConfig, options: &Options) -> Result<()> {
    if options.format == Format::Json {
        let value = json!({
            "ok": true, "name": config.name, "fsid": config.fsid.to_string(), "addr": config.addr.to_string(),
            "setup": config.setup,
        });
        say(format_args!("{}", serde_json::to_string_pretty(&value)?));
        return Ok(());
    }
    let what = match config.setup {
        Setup::Done => "is a host of cluster",
        Setup::Registered => "is registered, and its setup was interrupted, in cluster",
        Setup::Founding => "was interrupted while it began cluster",
        Setup::Joining => "was interrupted while it joined cluster",
    };
    say(format_args!("{} {what} {}.", config.name, config.fsid));
    if config.setup != Setup::Done {
        say(format_args!("The same command without --check-only goes on."));
    }
    Ok(())
}

/// An interrupted command goes on with its own plan. Refuses options that say something else.
fn ensure_same_plan(config: &HostConfig, options: &Options) -> Result<()> {
    let networks_of = |text: &Option<String>| text.as_deref().map(networks).transpose();
    // The networks of a host that joins are the cluster's, so its address counts.
    let differs = |text: &Option<String>, planned: &Option<String>, ip: Option<IpAddr>| {
        let Some(given) = networks_of(text)? else { return Ok(false) };
        let has_ip = ip.is_some_and(|ip| given.iter().any(|network| network.contains(ip)));
        anyhow::Ok(if config.founder { text != planned } else { !has_ip })
    };
    let other_devices = match &options.devices {
        Devices::Auto => false,
        Devices::None => !config.devices.is_empty(),
        Devices::List(paths) => {
            let given = paths.iter().map(std::path::absolute).collect::<io::Result<BTreeSet<_>>>()?;
            given != config.devices.iter().map(|osd| osd.path.clone()).collect()
        }
    };
    let wal_devices = options.wal_devices.iter().map(std::path::absolute).collect::<io::Result<Vec<_>>>()?;
    let other_addr = match &options.addr {
        None => false,
        Some(_) => {
            let network = options.network.as_deref().or(config.networks.public.as_deref());
            own_address(options.addr.as_deref(), network)? != config.addr
        }
    };
    let Networks { public, cluster } = &config.networks;
    let others = [
        ("--devices", other_devices),
        ("--wal-devices", !wal_devices.is_empty() && wal_devices != config.wal_devices),
        ("--memory", options.memory.is_some_and(|memory| Some(memory.0) != config.memory)),
        ("--location", !options.location.is_empty() && options.location != config.location),
        ("--name", options.name.as_ref().is_some_and(|name| *name != config.name)),
        ("--addr", other_addr),
        ("--network", differs(&options.network, public, Some(config.addr.ip()))?),
        ("--cluster-network", differs(&options.cluster_network, cluster, config.cluster_addr)?),
        ("--no-systemd", options.no_systemd && config.systemd),
    ];
    let others: Vec<&str> = others.iter().filter(|(_, is_other)| *is_other).map(|(name, _)| *name).collect();
    ensure!(
        others.is_empty(),
        "the setup of {} was interrupted, and goes on as it was planned, with another {}: repeat the command as it was, \
         or begin again after `nacre uninstall --force`",
        config.name,
        others.join(", ")
    );
    Ok(())
}

// ---- what is to be done ----

fn plan_cluster(dir: &HostDir, options: &Options) -> Result<(HostConfig, Preflight)> {
    let mut preflight = Preflight::default();
    let addr = own_address(options.addr.as_deref(), options.network.as_deref())?;
    let mut config = new_config(dir, Uuid::new_v4(), addr, options, Setup::Founding)?;
    config.mons = vec![addr];
    config.networks.public.clone_from(&options.network);
    config.networks.cluster.clone_from(&options.cluster_network);
    let mut candidates = options.devices.candidates()?;
    preflight_host(&mut preflight, dir, &mut config, options, &mut candidates, true)?;
    Ok((config, preflight))
}

fn plan_host(dir: &HostDir, token: &JoinToken, options: &Options) -> Result<(HostConfig, Preflight)> {
    let mut preflight = Preflight::default();
    let mons: Vec<SocketAddr> = token.mons.iter().filter_map(|addr| addr.sock).collect();
    let fsid = Uuid::from_bytes(token.fsid);
    // The cluster's network, if the command line names none, comes with the monitors' answer.
    let guess = own_address_towards(&mons);
    let mut config = new_config(dir, fsid, guess, options, Setup::Joining)?;
    config.mons = mons;
    preflight.monitors(guess, &config.mons);
    let mut candidates = options.devices.candidates()?;
    let about = (preflight.faults() == 0).then(|| check_with_monitors(token, &config, options, &candidates));
    let public =
        |about: &Value| about["public_network"].as_str().filter(|text| !text.is_empty()).map(String::from);
    match about {
        Some(Ok(about)) => {
            let known: Vec<&str> =
                about["known_osds"].as_array().into_iter().flatten().flat_map(Value::as_str).collect();
            for candidate in &mut candidates {
                if candidate.holds.is_some_and(|uuid| known.contains(&uuid.to_string().as_str())) {
                    candidate.rejected = None;
                }
            }
            let registered = about["registered"] == json!(true);
            let name = about["name"].as_str().unwrap_or_default();
            preflight.ok("token", if registered { "good: this host used it before" } else { "good" });
            preflight.ok("name", name);
            config.name = name.to_string();
            config.networks.public = public(&about);
            let cluster = about["cluster_network"].as_str().filter(|text| !text.is_empty()).map(String::from);
            config.networks.cluster = cluster;
            let wall = nacre_node::now().wall;
            let here = f64::from(wall.sec) + f64::from(wall.nsec) / 1e9;
            preflight.clock(here - about["time"].as_f64().unwrap_or(here));
        }
        Some(Err(refused)) => preflight.fail(refused.check, refused.why, refused.cure),
        None => {}
    }
    let network = options.network.clone().or(config.networks.public.clone());
    config.addr = own_address(options.addr.as_deref(), network.as_deref())?;
    // Without an address of this host there is nothing to send from.
    if preflight.faults() == 0 && is_own_address(config.addr.ip()) {
        preflight.network(config.addr.ip(), &config.mons, fsid);
    }
    let roles = &token.roles;
    if !roles.contains("osd") && options.devices != Devices::None {
        preflight.fail(
            "roles",
            "the token does not allow OSDs",
            "make one with `nacre token new --roles osd`, or use --devices none",
        );
    }
    preflight_host(&mut preflight, dir, &mut config, options, &mut candidates, roles.contains("mon"))?;
    Ok((config, preflight))
}

fn new_config(
    dir: &HostDir,
    fsid: Uuid,
    addr: SocketAddr,
    options: &Options,
    setup: Setup,
) -> Result<HostConfig> {
    let name = options.name.clone().unwrap_or_else(hostname);
    // The keys of monitors are in DIR/mon.keyring, and a monitor's folder is DIR/mon.NAME.
    let is_taken = name == "keyring";
    DaemonName::mon(&name).ok().filter(|_| !is_taken).ok_or_else(|| {
        anyhow!("`{name}` cannot be the name of a host, which has letters, digits, dots and dashes: give one with --name")
    })?;
    let mut config = HostConfig::new(fsid, name, addr, setup);
    config.location.clone_from(&options.location);
    config.memory = options.memory.map(|memory| memory.0);
    config.systemd = dir.is_default() && !options.no_systemd && systemd::is_running();
    Ok(config)
}

/// What does not depend on the cluster, and the devices.
fn preflight_host(
    preflight: &mut Preflight,
    dir: &HostDir,
    config: &mut HostConfig,
    options: &Options,
    candidates: &mut [Candidate],
    may_have_monitor: bool,
) -> Result<()> {
    let network = options.network.as_deref().or(config.networks.public.as_deref());
    preflight.address(config.addr, network);
    let cluster = options.cluster_network.clone().or(config.networks.cluster.clone());
    if let Some(text) = cluster {
        config.cluster_addr = own_address_in(&networks(&text)?, Some(config.addr.ip()));
        preflight.cluster_address(config.cluster_addr, &text);
    }
    let request = plan::Request {
        named: matches!(options.devices, Devices::List(_)),
        wal_devices: &options.wal_devices,
        wal_size: options.wal_size,
        // Nothing is written, not even zeros, where the setup cannot go on.
        measures: !options.no_device_check && preflight.faults() == 0,
    };
    plan::judge_devices(preflight, config, &request, candidates, |line| print_progress(options, line))?;
    let osds = config.devices.len();
    preflight.ports(config.addr, may_have_monitor, osds + usize::from(may_have_monitor));
    preflight.memory(osds, config.memory);
    match dir.has_other_content() {
        true => preflight.fail(
            "folder",
            format!("{} is not empty, and not that of a host", dir.root().display()),
            "empty it, or name another folder with --data",
        ),
        false => preflight.ok("folder", dir.root().display().to_string()),
    }
    if dir.is_default()
        && let Ok(text) = fs::read_to_string(dir.client_conf())
        && !text.contains(&config.fsid.to_string())
    {
        let what = format!("{} is of another cluster", dir.client_conf().display());
        preflight.fail("ceph.conf", what, "move it away, if this host no longer uses that cluster");
    }
    Ok(())
}

// ---- the monitors' part ----

/// Why a host may not join.
struct NotAdmitted {
    check: &'static str,
    why: String,
    cure: String,
}

/// Which boot of which kernel this is. Hosts with the same are on one machine.
pub fn machine() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}

fn register_words(prefix: &str, config: &HostConfig, exact: bool) -> Value {
    json!({
        "prefix": prefix, "format": "json", "name": config.name, "uuid": config.uuid.to_string(),
        "addr": config.addr.to_string(), "machine": machine(), "exact": exact, "location": config.location,
    })
}

/// The token of the command line, or a line of standard input.
fn read_token(argument: &str) -> Result<String> {
    if argument != "-" {
        return Ok(argument.to_string());
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("no token on standard input")?;
    Ok(line.trim().to_string())
}

fn connect(token: &JoinToken) -> BlockingClient {
    Access { name: token.entity.clone(), mons: token.mons.clone(), key: Some(token.key.clone()) }.connect()
}

/// Asks whether the host may join, which changes nothing.
fn check_with_monitors(
    token: &JoinToken,
    config: &HostConfig,
    options: &Options,
    candidates: &[Candidate],
) -> Result<Value, NotAdmitted> {
    // The address is not settled yet: it may follow from the cluster's network.
    let given = options
        .addr
        .as_ref()
        .and_then(|_| own_address(options.addr.as_deref(), options.network.as_deref()).ok());
    let mut config = config.clone();
    config.addr = given.unwrap_or(config.addr);
    let client = connect(token);
    let mut words = register_words("host check", &config, options.name.is_some());
    words["holds"] = candidates.iter().filter_map(|found| Some(found.holds?.to_string())).collect();
    let answer = command(&client, &words, CHECK_TIMEOUT);
    let answer = answer.map_err(|e| why_not(token, &client, &e))?;
    serde_json::from_slice(&answer).map_err(|e| NotAdmitted {
        check: "monitors",
        why: format!("their reply is not understood: {e}"),
        cure: "install the version of Nacre that the other hosts have".to_string(),
    })
}

fn why_not(token: &JoinToken, client: &BlockingClient, error: &anyhow::Error) -> NotAdmitted {
    let again = "make another token with `nacre token new` on a host of the cluster".to_string();
    if let Some(trouble) = client.trouble().filter(|text| text.contains("refused authentication")) {
        let is_late = token.expires.is_some_and(|expires| expires <= nacre_node::now().wall);
        let why = match is_late {
            true => "it expired, and the monitors do not know it any more".to_string(),
            false => format!(
                "the monitors do not know it: it was removed, or it is of another cluster ({trouble})"
            ),
        };
        return NotAdmitted { check: "token", why, cure: again };
    }
    match error.downcast_ref::<Failure>() {
        // Their texts say what to do.
        Some(refused) if !refused.text.is_empty() && client.trouble().is_none() => {
            let (why, cure) = refused.text.split_once(": ").unwrap_or((&refused.text, ""));
            NotAdmitted { check: "admission", why: why.to_string(), cure: cure.to_string() }
        }
        _ => {
            let why = client.trouble().unwrap_or_else(|| format!("{error:#}"));
            let cure = "check that a majority of them runs: `ceph -s` on a host of the cluster".to_string();
            NotAdmitted { check: "monitors", why, cure }
        }
    }
}

// ---- the person's part ----

/// Shows the table and the plan, and asks. False if nothing is to be done.
fn accepted(preflight: &Preflight, config: &HostConfig, options: &Options) -> Result<bool> {
    let in_state = |formatted: bool| -> Vec<String> {
        let osds = config.devices.iter().filter(|osd| (osd.state == DeviceState::Formatted) == formatted);
        osds.map(|osd| osd.path.display().to_string()).collect()
    };
    let (devices, taken_over) = (in_state(false), in_state(true));
    let faults = preflight.faults();
    if options.format == Format::Json && options.check_only {
        let mut value: Value = serde_json::from_str(&preflight.show(Format::Json)?)?;
        value["ok"] = json!(faults == 0);
        let details: Vec<Value> = config.devices.iter().map(plan::planned_json).collect();
        value["plan"] = json!({
            "name": config.name, "addr": config.addr.to_string(), "format": devices, "take_over": taken_over,
            "devices": details,
        });
        say(format_args!("{}", serde_json::to_string_pretty(&value)?));
    } else {
        print_progress(options, format_args!("{}", preflight.show(Format::Table)?));
        ensure!(faults == 0, "{faults} checks failed, and nothing was changed");
        let what = match config.setup {
            Setup::Founding => "will begin cluster",
            _ => "will join cluster",
        };
        print_progress(
            options,
            format_args!("{} at {} {what} {}.", config.name, config.addr.ip(), config.fsid),
        );
        match devices.is_empty() {
            true => print_progress(options, format_args!("Devices to format, each for one OSD: none.")),
            false => {
                print_progress(options, format_args!("Devices to format, each for one OSD:"));
                print_progress(options, format_args!("{}", plan::planned_table(&config.devices)));
            }
        }
        if !taken_over.is_empty() {
            print_progress(options, format_args!("To take over with their OSDs: {}.", taken_over.join(", ")));
        }
    }
    ensure!(faults == 0, "{faults} checks failed, and nothing was changed");
    if options.check_only {
        return Ok(false);
    }
    if options.yes {
        return Ok(true);
    }
    ensure!(io::stdin().is_terminal(), "nothing was changed: confirm the plan with --yes");
    eprint!("Go on? [y/N] ");
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let is_yes = matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !is_yes {
        print_progress(options, format_args!("Nothing was changed."));
    }
    Ok(is_yes)
}

/// Progress goes to standard error where standard output is JSON.
fn print_progress(options: &Options, line: std::fmt::Arguments) {
    match options.format {
        Format::Table => say(line),
        Format::Json => eprintln!("{line}"),
    }
}

fn already_done(dir: &HostDir, config: &HostConfig, options: &Options) -> Result<()> {
    agent::start(dir, config)?;
    print_progress(options, format_args!("{} is a host of cluster {} already.", config.name, config.fsid));
    show_result(dir, config, options)
}

// ---- the steps ----

fn found(begun: &mut Begun, options: &Options) -> Result<()> {
    let Begun { dir, config, .. } = begun;
    let dir = &*dir;
    let client_entity = |id: &str| AuthName::new(EntityType::Client, id);
    keyrings::make_once(&dir.layout().admin_keyring(), &[(keyrings::admin(), &ALL_CAPS)])?;
    keyrings::make_once(&dir.layout().mon_keyring(), &[(keyrings::monitors(), &[("mon", "allow *")])])?;
    // As Ceph's own tools for new daemons look for them.
    let bootstrap: Vec<(AuthName, &[(&str, &str)])> =
        BOOTSTRAP.iter().map(|(id, caps)| (client_entity(id), std::slice::from_ref(caps))).collect();
    keyrings::make_once(&dir.bootstrap_keyring(), &bootstrap)?;
    let monitor = DaemonName::mon(&config.name)?;
    if !dir.layout().data_dir(&monitor).join("daemon.json").exists() {
        let own = MonMember { name: config.name.clone(), id: 1, addr: config.addr, founder: true };
        // Copies go to different OSDs until there are three hosts.
        let options = BTreeMap::from([("osd_crush_chooseleaf_type".to_string(), "0".to_string())]);
        new_monitor(dir, config, vec![own], &config.name, options)?;
    }
    dir.save_client_conf(config)?;
    agent::start(dir, config)?;
    print_progress(options, format_args!("Waiting for {monitor} ..."));
    let client = dir.admin_access(config)?.connect();
    command(&client, &json!({ "prefix": "status", "format": "json" }), FIRST_ANSWER_TIMEOUT).with_context(
        || format!("{monitor} does not answer: see {}", dir.layout().log(&monitor.to_string()).display()),
    )?;
    for (option, network) in
        [("public_network", &config.networks.public), ("cluster_network", &config.networks.cluster)]
    {
        if let Some(network) = network {
            tell(
                &client,
                &json!({ "prefix": "config set", "who": "global", "name": option, "value": network }),
            )?;
        }
    }
    let words = register_words("host register", config, options.name.is_some());
    take_admission(dir, config, &ask(&client, &words)?)?;
    finish(dir, config, &client, options)
}

/// Ceph's keys for making daemons. They are read from `DIR/bootstrap.keyring`.
const BOOTSTRAP: [(&str, (&str, &str)); 6] = [
    ("bootstrap-mds", ("mon", "allow profile bootstrap-mds")),
    ("bootstrap-mgr", ("mon", "allow profile bootstrap-mgr")),
    ("bootstrap-osd", ("mon", "allow profile bootstrap-osd")),
    ("bootstrap-rbd", ("mon", "allow profile bootstrap-rbd")),
    ("bootstrap-rbd-mirror", ("mon", "allow profile bootstrap-rbd-mirror")),
    ("bootstrap-rgw", ("mon", "allow profile bootstrap-rgw")),
];

fn admit(begun: &mut Begun, token: &JoinToken, options: &Options) -> Result<()> {
    let Begun { dir, config, .. } = begun;
    let dir = &*dir;
    if config.setup == Setup::Joining {
        let client = connect(token);
        let words = register_words("host register", config, options.name.is_some());
        let answer = command(&client, &words, PATIENCE).map_err(|e| {
            let NotAdmitted { why, cure, .. } = why_not(token, &client, &e);
            if cure.is_empty() { anyhow!("{why}") } else { anyhow!("{why}: {cure}") }
        })?;
        take_admission(dir, config, &serde_json::from_slice(&answer).context("the reply is not JSON")?)?;
        print_progress(options, format_args!("{} is registered.", config.name));
    }
    dir.save_client_conf(config)?;
    agent::start(dir, config)?;
    let client = dir.agent_access(config)?.connect();
    finish(dir, config, &client, options)
}

/// Keeps what the monitors gave to a host that they registered.
fn take_admission(dir: &HostDir, config: &mut HostConfig, answer: &Value) -> Result<()> {
    let text = |key: &str| answer[key].as_str().with_context(|| format!("the monitors' answer has no {key}"));
    write_secret(&dir.host_keyring(), text("keyring")?)?;
    config.name = text("name")?.to_string();
    let network = |key: &str| answer[key].as_str().filter(|text| !text.is_empty()).map(String::from);
    config.networks.public = network("public_network");
    config.networks.cluster = network("cluster_network");
    let mons = answer["mons"].as_array().into_iter().flatten().filter_map(|mon| mon.as_str()?.parse().ok());
    config.mons = mons.collect();
    ensure!(!config.mons.is_empty(), "the monitors' answer names no monitor");
    config.setup = Setup::Registered;
    dir.save(config)
}

/// Makes the OSDs, and waits until they are up.
fn finish(dir: &HostDir, config: &mut HostConfig, client: &BlockingClient, options: &Options) -> Result<()> {
    make_osds(dir, config, client, |id, path| {
        print_progress(options, format_args!("osd.{id} is on {}.", path.display()));
    })?;
    agent::wait_running(dir)?;
    wait_up(client, config)?;
    config.setup = Setup::Done;
    dir.save(config)?;
    show_result(dir, config, options)
}

fn wait_up(client: &BlockingClient, config: &HostConfig) -> Result<()> {
    let deadline = Instant::now() + UP_TIMEOUT;
    let wanted: Vec<u32> = config.devices.iter().filter_map(|osd| osd.id).collect();
    loop {
        let map = ask(client, &json!({ "prefix": "osd dump", "format": "json" }))?;
        let osds = map["osds"].as_array().cloned().unwrap_or_default();
        let is_up = |id: &u32| osds.iter().any(|osd| osd["osd"] == json!(id) && osd["up"] == json!(1));
        let missing: Vec<String> =
            wanted.iter().filter(|id| !is_up(id)).map(|id| format!("osd.{id}")).collect();
        if missing.is_empty() {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "after {} s these are not up: {}. Their logs say why; run this command again afterwards",
            UP_TIMEOUT.as_secs(),
            missing.join(", ")
        );
        std::thread::sleep(POLL);
    }
}

fn show_result(dir: &HostDir, config: &HostConfig, options: &Options) -> Result<()> {
    let has_admin = dir.layout().admin_keyring().exists();
    let (conf, keyring) = (dir.client_conf(), dir.client_keyring());
    if options.format == Format::Json {
        let osds: Vec<u32> = config.devices.iter().filter_map(|osd| osd.id).collect();
        let value = json!({
            "name": config.name, "fsid": config.fsid.to_string(), "addr": config.addr.to_string(),
            "osds": osds, "ceph_conf": conf.display().to_string(),
            "keyring": has_admin.then(|| keyring.display().to_string()),
        });
        say(format_args!("{}", serde_json::to_string_pretty(&value)?));
        return Ok(());
    }
    say(format_args!("\n{} is ready. It has {} OSDs.", config.name, config.devices.len()));
    if has_admin {
        say(format_args!(
            "\nCeph's own commands use the cluster after\n\n    export CEPH_CONF={}\n\nOn another machine they need that \
             file and {}.\n\nMore hosts join with a token, which `nacre token new{}` prints:\n\n    nacre join TOKEN\n",
            conf.display(),
            keyring.display(),
            dir.option()
        ));
    }
    if !config.systemd {
        say(format_args!(
            "`nacre host stop{0}` stops this host, `nacre host start{0}` starts it again.",
            dir.option()
        ));
    }
    Ok(())
}

/// `nacre host start`.
pub fn start(dir: &HostDir, config: &HostConfig) -> Result<()> {
    // All monitors may be on hosts in maintenance, so none could end it.
    remove_if_there(&dir.in_maintenance()).context("cannot end the maintenance")?;
    agent::start(dir, config)?;
    agent::wait_running(dir)?;
    let names: Vec<String> = agent::running(dir)?.into_iter().map(|(name, _)| name).collect();
    say(format_args!(
        "Running: {}.",
        if names.is_empty() { "no daemon".to_string() } else { names.join(", ") }
    ));
    Ok(())
}

/// `nacre host stop`.
pub fn stop(dir: &HostDir, config: &HostConfig) -> Result<()> {
    match agent::stop(dir, config)? {
        true => say(format_args!("Stopped. `nacre host start{}` starts this host again.", dir.option())),
        false => say(format_args!("Nothing runs in {}.", dir.root().display())),
    }
    let left = processes::state(&dir.layout().pid(agent::AGENT))?;
    ensure!(left == processes::State::Gone, "the agent still runs");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Init {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &str) -> Options {
        Init::parse_from(["init"].into_iter().chain(words.split_whitespace())).options
    }

    #[test]
    fn interrupted_setup_goes_on_with_the_same_options_only() {
        let addr = "127.0.0.9:3300".parse().unwrap();
        let mut config = HostConfig::new(Uuid::from_u128(7), "h1".to_string(), addr, Setup::Founding);
        config.networks.public = Some("127.0.0.0/8".to_string());
        config.memory = Some(crate::size::Size(1 << 30));
        config.location = vec!["rack=r1".to_string()];
        let planned = |path: &str| Candidate::blank(path.into(), 0).plan();
        config.devices = vec![planned("/dev/vda"), planned("/dev/vdb")];
        for same in [
            "",
            "--devices /dev/vdb,/dev/vda --memory 1G --location rack=r1 --name h1 --network 127.0.0.0/8",
            "--addr 127.0.0.9 --network 127.0.0.0/8 --no-systemd",
        ] {
            ensure_same_plan(&config, &options(same)).unwrap();
        }
        for (other, option) in [
            ("--devices /dev/vda", "--devices"),
            ("--devices none", "--devices"),
            ("--wal-devices /dev/vdc", "--wal-devices"),
            ("--memory 2G", "--memory"),
            ("--location rack=r2", "--location"),
            ("--name h2", "--name"),
            ("--addr 127.0.0.8", "--addr"),
            ("--network 127.0.0.0/16", "--network"),
            ("--cluster-network 127.1.0.0/16", "--cluster-network"),
        ] {
            let refused = ensure_same_plan(&config, &options(other)).unwrap_err().to_string();
            assert!(refused.contains(&format!("another {option}:")), "{other}: {refused}");
        }
        // The network of a host that joins is the cluster's.
        config.founder = false;
        ensure_same_plan(&config, &options("--network 127.0.0.0/16")).unwrap();
        assert!(ensure_same_plan(&config, &options("--network 127.1.0.0/16")).is_err());
    }

    #[test]
    fn check_of_an_interrupted_setup_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let dir = HostDir::at(folder.path()).unwrap();
        let addr = "127.0.0.9:3300".parse().unwrap();
        dir.save(&HostConfig::new(Uuid::from_u128(7), "h1".to_string(), addr, Setup::Founding)).unwrap();
        for format in ["table", "json"] {
            let words = format!("--check-only --format {format} --data {}", folder.path().display());
            init(&options(&words)).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
