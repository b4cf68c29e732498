//! The command `nacre up`.

use crate::check::Proof;
use crate::cluster::{Cluster, Monitor, PORT_BASE_DEFAULT, Requested, S3Tls};
use crate::fleet::{self, Fleet};
use crate::folder::Layout;
use crate::loopback::LoopbackNetwork;
use crate::name::DaemonName;
use crate::processes::{self, ALL, LockFile, State};
use crate::size::{Memory, Size};
use crate::stop_signals::StopSignals;
use crate::{Auth, DATA_DEFAULT, check, keyrings, log, monitors, new_stores, s3};
use anyhow::{Context, Result, bail, ensure};
use nacre_gateway::{Tls, TlsFiles};
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::str::FromStr;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Options {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
    /// Number of OSDs [default: 3, or the number in the folder]
    #[arg(long, value_name = "N")]
    osds: Option<u32>,
    /// Number of monitors; additional ones join [default: 1, or the number in the folder]
    #[arg(long, value_name = "N")]
    mons: Option<u32>,
    /// Authentication of clients and daemons [default: cephx, or the setting of the folder]
    #[arg(long, value_enum, hide_default_value = true)]
    auth: Option<Auth>,
    /// First port: monitors use it and the following ones, OSDs the ports from P+20 on [default: 20300]
    #[arg(long, value_name = "P")]
    port_base: Option<u16>,
    /// Size of each new OSD's file, which is sparse [default: 10G]
    #[arg(long, value_name = "SIZE")]
    osd_size: Option<Size>,
    /// Allocate the files of new OSDs completely, so that no write waits for the file system
    #[arg(long)]
    preallocate: bool,
    /// Network for traffic among OSDs, such as 127.2.0.0/24
    #[arg(long, value_name = "NET")]
    cluster_network: Option<LoopbackNetwork>,
    /// Memory limit of each OSD, at least 128M [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = Memory::from_str)]
    memory: Option<Memory>,
    #[command(flatten)]
    gateway: GatewayOptions,
    /// Run each daemon as a separate process, so that it can be stopped and started
    #[arg(long)]
    processes: bool,
    /// Return when the cluster serves, and leave it running in the background
    #[arg(long)]
    detach: bool,
}

/// What `nacre up` is asked about the S3 gateway.
#[derive(clap::Args)]
pub struct GatewayOptions {
    /// Run an S3 gateway [default, except in a folder without]
    #[arg(long, overrides_with = "no_s3")]
    s3: bool,
    /// Run no S3 gateway
    #[arg(long)]
    no_s3: bool,
    /// Encrypt the S3 gateway's connections with this certificate, in PEM; remembered for later starts
    #[arg(long, value_name = "FILE", requires = "s3_tls_key")]
    s3_tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE", requires = "s3_tls_cert")]
    s3_tls_key: Option<PathBuf>,
    /// Serve S3 without TLS again
    #[arg(long, conflicts_with = "s3_tls_cert")]
    no_s3_tls: bool,
}

/// What is asked about TLS of the S3 gateway. Files that cannot be used are refused before anything starts.
fn s3_tls(options: &GatewayOptions) -> Result<Option<Option<S3Tls>>> {
    let (Some(certificate), Some(key)) = (&options.s3_tls_cert, &options.s3_tls_key) else {
        return Ok(options.no_s3_tls.then_some(None));
    };
    let (certificate, key) = (std::path::absolute(certificate)?, std::path::absolute(key)?);
    Tls::read(TlsFiles { certificate: certificate.clone(), key: key.clone() })?;
    Ok(Some(Some(S3Tls { certificate, key })))
}

/// The cluster as this command started it.
enum Started {
    Here(Fleet),
    Children(Vec<(String, Child)>),
}

pub fn up(options: &Options) -> Result<()> {
    let layout = Layout::at(&options.data)?;
    let requested = Requested {
        osds: options.osds,
        mons: options.mons,
        auth: options.auth,
        port_base: options.port_base,
        osd_size: options.osd_size,
        preallocate: options.preallocate,
        cluster_network: options.cluster_network,
        memory: options.memory.map(|memory| memory.0),
        s3: (options.gateway.s3 || options.gateway.no_s3).then_some(options.gateway.s3),
        s3_tls: s3_tls(&options.gateway)?,
    };
    let (mut renewed, mut more_mons) = (Vec::new(), Vec::new());
    let (cluster, is_new) = match layout.load()? {
        Some(mut cluster) => {
            renewed = new_stores::renew_lost_monitors(&layout, &mut cluster)?;
            let had = cluster.mons.len();
            cluster.adjust(&requested)?;
            more_mons = cluster.mons[had..].to_vec();
            (cluster, false)
        }
        None => (Cluster::new(&requested)?, true),
    };
    if is_new {
        warn_of_outgoing_ports(&cluster);
    }
    layout.make()?;
    let _lock = LockFile::take(layout.lock())?
        .with_context(|| format!("another `nacre up` is working on {}", options.data.display()))?;
    ensure_stopped(&layout, &cluster)?;
    for mon in renewed {
        let (name, addr) = (&mon.name, cluster.mon_addr(&mon));
        say(format_args!(
            "mon.{name} has lost its store and gets a new one. To let it join, run `ceph mon rm {name}` and \
             `ceph mon add {name} {addr}`."
        ));
    }
    layout.save(&cluster)?;
    keyrings::make(&layout, &cluster, is_new)?;
    new_stores::make(&layout, &cluster)?;
    say(format_args!("{} a cluster in {}", if is_new { "Made" } else { "Found" }, layout.root().display()));

    let in_this_process = !options.processes && !options.detach;
    if in_this_process {
        log::to_file(&layout.log(ALL))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stop = StopSignals::new()?;
        let mut started = start_all(&layout, &cluster, options)?;
        let checked = tokio::select! {
            checked = check_all(&layout, &cluster, is_new, more_mons) => checked,
            () = stop.wait() => Err(anyhow::anyhow!("interrupted")),
        };
        let serves = match checked {
            Ok(proof) => {
                say(format_args!("{}", proof.text));
                proof.serves
            }
            Err(e) => {
                stop_all(&layout, started)?;
                return Err(e.context(format!(
                    "the cluster did not come up (logs: {})",
                    layout.root().join("log").display()
                )));
            }
        };
        let mut gateway = match cluster.s3_port {
            None => None,
            Some(_) => match s3::spawn(&layout, &cluster) {
                Ok(gateway) => Some(gateway),
                Err(e) => {
                    stop_all(&layout, started)?;
                    return Err(e);
                }
            },
        };
        print_how_to_go_on(&layout, &cluster, options, serves);
        if options.detach {
            return Ok(());
        }
        tokio::select! {
            () = stop.wait() => say(format_args!("\nStopping ...")),
            () = all_gone(&mut started) => {}
        }
        if let Some(gateway) = &mut gateway {
            processes::stop_child(s3::GATEWAY, gateway)?;
        }
        stop_all(&layout, started)?;
        say(format_args!(
            "Stopped. The data is in {}; start it again with `nacre up`.",
            layout.root().display()
        ));
        Ok(())
    })
}

/// Waits, off this thread, until the cluster is healthy and has stored a file and given it back.
async fn check_all(
    layout: &Layout,
    cluster: &Cluster,
    is_new: bool,
    more_mons: Vec<Monitor>,
) -> Result<Proof> {
    let (layout, cluster) = (layout.clone(), cluster.clone());
    let check = move || {
        monitors::admit(&layout, &cluster, &more_mons)?;
        check::prove(&layout, &cluster, is_new)
    };
    tokio::task::spawn_blocking(check).await.context("the check ended in a panic")?
}

fn start_all(layout: &Layout, cluster: &Cluster, options: &Options) -> Result<Started> {
    if options.processes {
        let mut children = Vec::new();
        for daemon in cluster.daemons() {
            match spawn_daemon(layout, cluster, &daemon) {
                Ok(child) => children.push((daemon.to_string(), child)),
                Err(e) => {
                    stop_all(layout, Started::Children(children))?;
                    return Err(e);
                }
            }
        }
        Ok(Started::Children(children))
    } else if options.detach {
        Ok(Started::Children(vec![(
            ALL.to_string(),
            processes::spawn(layout, ALL, &["all"], layout.root())?,
        )]))
    } else {
        let lock = fleet::lock(&layout.run(), ALL)?;
        Ok(Started::Here(Fleet::start(&layout.configs(cluster)?, lock)?))
    }
}

fn stop_all(layout: &Layout, started: Started) -> Result<()> {
    match started {
        Started::Here(fleet) => fleet.stop(),
        Started::Children(mut children) => {
            let names = children.iter().map(|(name, child)| (name.clone(), child.id() as i32)).collect();
            stop_in_order(layout, names)?;
            children.iter_mut().try_for_each(|(_, child)| child.wait().map(drop)).context("cannot wait")
        }
    }
}

/// The gateway first, as it needs all others, and monitors last, so that stopping OSDs can report to them.
pub fn stop_in_order(layout: &Layout, names: Vec<(String, i32)>) -> Result<()> {
    let (gateways, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|(name, _)| name == s3::GATEWAY);
    let (mons, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|(name, _)| name.starts_with("mon."));
    for group in [gateways, others, mons] {
        for (name, pid) in &group {
            processes::signal(layout, name, *pid)?;
        }
        for (name, pid) in &group {
            processes::wait_gone(layout, name, *pid)?;
        }
    }
    Ok(())
}

/// Ends when nothing is left to watch, for instance after `nacre down` elsewhere.
async fn all_gone(started: &mut Started) {
    loop {
        let gone = match started {
            Started::Here(fleet) => fleet.is_finished(),
            // This also collects those that were stopped one by one.
            Started::Children(children) => {
                let running = children.iter_mut().map(|(_, child)| matches!(child.try_wait(), Ok(None)));
                running.filter(|runs| *runs).count() == 0
            }
        };
        if gone {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A port that the kernel gave to an outgoing connection cannot be listened on.
fn warn_of_outgoing_ports(cluster: &Cluster) {
    let outgoing = nacre_node::outgoing_ports();
    let (first, last) = cluster.ports();
    if first <= *outgoing.end() && last >= *outgoing.start() {
        eprintln!(
            "nacre: the kernel gives ports {} to {} to outgoing connections, and the daemons use {first} to {last}: one of them \
             may fail to start. Use a --port-base outside, such as {PORT_BASE_DEFAULT}",
            outgoing.start(),
            outgoing.end()
        );
    }
}

fn ensure_stopped(layout: &Layout, cluster: &Cluster) -> Result<()> {
    let running = processes::running(layout, &cluster.daemons())?;
    ensure!(
        running.is_empty(),
        "the cluster in {} is already running ({}): stop it with `nacre down`",
        layout.root().display(),
        describe(&running)
    );
    Ok(())
}

fn describe(running: &[(String, State)]) -> String {
    let one = |(name, state): &(String, State)| match state {
        State::Runs(pid) => format!("{name} is pid {pid}"),
        State::Waits(pid) => format!("{name} waits for memory as pid {pid}"),
        _ => format!("{name} is starting"),
    };
    running.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Starts a daemon from its own configuration, which a folder of an earlier version does not have yet.
fn spawn_daemon(layout: &Layout, cluster: &Cluster, daemon: &DaemonName) -> Result<Child> {
    layout.config(cluster, daemon)?.save()?;
    let command = if daemon.is_mon() { "mon" } else { "osd" };
    processes::spawn(layout, &daemon.to_string(), &[command], &layout.data_dir(daemon))
}

pub fn down(data: &Path) -> Result<()> {
    let (layout, cluster) = Layout::open(data)?;
    let mut pids = Vec::new();
    for (name, state) in processes::running(&layout, &cluster.daemons())? {
        match state {
            State::Runs(pid) | State::Waits(pid) => pids.push((name, pid)),
            _ => bail!("{name} is starting: try again"),
        }
    }
    if pids.is_empty() {
        say(format_args!("Nothing runs in {}.", layout.root().display()));
        return Ok(());
    }
    stop_in_order(&layout, pids)?;
    say(format_args!("Stopped. The data is in {}; start it again with `nacre up`.", layout.root().display()));
    Ok(())
}

pub fn start(data: &Path, daemon: &DaemonName) -> Result<()> {
    let (layout, cluster) = Layout::open(data)?;
    cluster.ensure_has(daemon)?;
    ensure_own_process(&layout, daemon)?;
    if let State::Runs(pid) | State::Waits(pid) = processes::settled(&layout.pid(&daemon.to_string()))? {
        bail!("{daemon} is already running as pid {pid}");
    }
    let child = spawn_daemon(&layout, &cluster, daemon)?;
    say(format_args!("{daemon} runs, as pid {}", child.id()));
    Ok(())
}

pub fn stop(data: &Path, daemon: &DaemonName) -> Result<()> {
    let (layout, cluster) = Layout::open(data)?;
    cluster.ensure_has(daemon)?;
    ensure_own_process(&layout, daemon)?;
    let name = daemon.to_string();
    match processes::state(&layout.pid(&name))? {
        State::Runs(pid) | State::Waits(pid) => processes::stop(&layout, &name, pid)?,
        State::Starting => bail!("{daemon} is starting: try again"),
        State::Gone => bail!("{daemon} is not running"),
    }
    say(format_args!("{daemon} stopped"));
    Ok(())
}

fn ensure_own_process(layout: &Layout, daemon: &DaemonName) -> Result<()> {
    if let State::Runs(pid) = processes::state(&layout.pid(ALL))? {
        bail!(
            "{daemon} shares one process with all other daemons (pid {pid}): run separate processes with \
             `nacre up --processes`"
        );
    }
    Ok(())
}

fn print_how_to_go_on(layout: &Layout, cluster: &Cluster, options: &Options, serves: bool) {
    let conf = layout.ceph_conf();
    let state =
        if serves { "The cluster serves." } else { "The cluster is up, and does not serve all of its data." };
    say(format_args!(
        "\n{state} Ceph's own commands use it after\n\
         \n    export CEPH_CONF={}\n\
         \nfor instance\n\
         \n    ceph -s\
         \n    ceph osd pool create mypool\
         \n    rados -p mypool put hello /etc/hostname\
         \n    rados -p mypool ls\
         \n    ceph df\n",
        conf.display()
    ));
    if cluster.s3_port.is_some() {
        say(format_args!(
            "It serves S3 at {}. Clients use it after\n\n    set -a; . {}; set +a\n",
            cluster.s3_url(),
            layout.s3_env().display()
        ));
    }
    let data = match options.data == Path::new(DATA_DEFAULT) {
        true => String::new(),
        false => format!(" --data {}", options.data.display()),
    };
    if options.detach {
        say(format_args!("It runs in the background. Stop it with `nacre down{data}`."));
    } else {
        say(format_args!("Stop it with Ctrl-C. Start it again with `nacre up{data}`; the data is kept."));
    }
}

/// Prints a line. A closed pipe must not end a cluster.
fn say(line: fmt::Arguments) {
    let _ = writeln!(io::stdout(), "{line}");
}
