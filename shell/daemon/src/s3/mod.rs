//! `nacre s3`: the gateway for objects over HTTP, as a process of its own.
//!
//! It is a client of a cluster and has no state: it needs a `ceph.conf` and a keyring.
//! `nacre up` starts one for its folder, with the keys of a first user in `s3.env`.

use crate::cluster::Cluster;
use crate::files::write_secret;
use crate::fleet;
use crate::folder::Layout;
use crate::log;
use crate::processes::{self, LockFile};
use crate::size::Size;
use crate::stop_signals::StopSignals;
use accounts::Account;
use admin::{Bucket, Caps, Key, Quota, Subuser, User};
use anyhow::{Context, Result};
use check::Check;
use kms::Kms;
use nacre_gateway::{FirstUser, Gateway, Options, Tls, TlsFiles};
use nacre_rados::{Config, RadosClient};
use placement::Placement;
use rates::{Global, RateLimit};
use roles::{Role, RolePolicy};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use usage::Usage;

mod accounts;
mod admin;
mod check;
mod keystone;
mod kms;
mod placement;
mod rates;
mod roles;
mod shown;
mod usage;
mod vault;

/// The name of the process in a folder.
pub const GATEWAY: &str = "s3";
/// Where gateways listen unless they are told otherwise. As radosgw's examples.
pub const PORT_DEFAULT: u16 = 7480;
const REGION_DEFAULT: &str = "us-east-1";
const CONNECTIONS_MAX: usize = 10_000;

/// `nacre s3 ...`
#[derive(clap::Subcommand)]
pub enum Command {
    /// Serve a cluster's objects over HTTP, in the foreground.
    ///
    /// Any number of gateways serve the same buckets. The cluster can be a Ceph cluster.
    Serve(Box<Serve>),
    /// Users of the gateways.
    User(Admin<User>),
    /// Further keys of users.
    Key(Admin<Key>),
    /// Keys with fewer rights.
    Subuser(Admin<Subuser>),
    /// What users may administer.
    Caps(Admin<Caps>),
    /// Limits of what users and buckets may have.
    Quota(Admin<Quota>),
    /// Buckets of all users.
    Bucket(Admin<Bucket>),
    /// Rights that others may take for a time.
    Role(Admin<Role>),
    /// Print what the gateway has, and what it does not have.
    Features,
    /// Policies of roles.
    RolePolicy(Admin<RolePolicy>),
    /// How much users and buckets may be asked for in a minute.
    #[command(name = "ratelimit")]
    RateLimit(Admin<RateLimit>),
    /// What holds for all users and buckets that have nothing of their own.
    Global(Admin<Global>),
    /// What users did, and how many bytes it took.
    Usage(Admin<Usage>),
    /// Keys with which objects are encrypted at rest.
    Kms(Admin<Kms>),
    /// Compare the data of all gateways with what the index says of it.
    Check(Check),
    /// Accounts, whose users own buckets together.
    Account(Admin<Account>),
    /// Storage classes, and the pools that have their data.
    Placement(Admin<Placement>),
}

/// A command that administers a cluster.
#[derive(clap::Args)]
pub struct Admin<C: clap::Subcommand> {
    #[command(flatten)]
    cluster: admin::Cluster,
    #[command(subcommand)]
    command: C,
}

/// `nacre s3 serve`
#[derive(clap::Args)]
pub struct Serve {
    /// The cluster's configuration for clients.
    #[arg(long, value_name = "FILE", default_value = "/etc/ceph/ceph.conf", conflicts_with = "data")]
    conf: PathBuf,
    /// Folder of a cluster that `nacre up` made.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The name under which the gateway is known to the cluster.
    #[arg(long, value_name = "NAME", default_value = "client.admin")]
    name: String,
    /// Where to listen [default: port 7480 of all addresses, or the port in the folder]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The name of the region that clients are told.
    #[arg(long, value_name = "NAME", default_value = REGION_DEFAULT)]
    region: String,
    /// Domain under which buckets are found as `BUCKET.DOMAIN`. May be given several times.
    #[arg(long = "domain", value_name = "NAME")]
    domains: Vec<String>,
    /// Domain under which buckets are web sites, as `BUCKET.DOMAIN`. May be given several times.
    #[arg(long = "website-domain", value_name = "NAME")]
    website_domains: Vec<String>,
    /// Memory for bodies on their way.
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    memory: Size,
    /// How many seconds the data of a replaced object is kept for those that read it.
    #[arg(long, value_name = "SECONDS", default_value = "600")]
    grace: u64,
    /// File with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of a user to create.
    #[arg(long, value_name = "FILE")]
    first_user: Option<PathBuf>,
    /// File with the certificate to show, and those of the authorities that gave it, in PEM. Connections are
    /// encrypted then. Changed files are read again, also at SIGHUP.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File with the certificate's key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// File to which administration, and requests without the rights for them, are written as lines of JSON.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// How many seconds lines of buckets' access logs wait at most before they are written.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "60",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    access_log_interval: u64,
    /// Count this many seconds as a day of lifecycle rules, to test rules.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    lc_debug_interval: Option<u64>,
    #[command(flatten)]
    keystone: keystone::Keystone,
    #[command(flatten)]
    vault: vault::Vault,
}

/// Carries out a command.
pub fn run(command: &Command) -> Result<()> {
    let (cluster, asked) = match command {
        Command::Serve(arguments) => return run_gateway(arguments),
        Command::Check(check) => return check.run(config_of(&check.cluster)?),
        Command::Features => {
            print_features();
            return Ok(());
        }
        Command::User(it) => (&it.cluster, it.command.asked()),
        Command::Key(it) => (&it.cluster, it.command.asked()),
        Command::Subuser(it) => (&it.cluster, it.command.asked()),
        Command::Caps(it) => (&it.cluster, it.command.asked()),
        Command::Quota(it) => (&it.cluster, it.command.asked()?),
        Command::Bucket(it) => (&it.cluster, it.command.asked()),
        Command::Role(it) => (&it.cluster, it.command.asked()),
        Command::RolePolicy(it) => (&it.cluster, it.command.asked()),
        Command::Placement(it) => (&it.cluster, it.command.asked()),
        Command::RateLimit(it) => (&it.cluster, it.command.asked()),
        Command::Global(it) => (&it.cluster, it.command.asked()),
        Command::Usage(it) => (&it.cluster, it.command.asked()),
        Command::Kms(it) => (&it.cluster, it.command.asked()),
        Command::Account(it) => (&it.cluster, it.command.asked()),
    };
    let audit = cluster.audit_log.as_deref().map(admin::audit_log).transpose()?;
    admin::run(config_of(cluster)?, asked, audit)
}

/// Of the cluster that a command names.
fn config_of(cluster: &admin::Cluster) -> Result<Config> {
    let conf = match &cluster.data {
        Some(data) => Layout::open(data)?.0.ceph_conf(),
        None => cluster.conf.clone(),
    };
    Ok(Config::read(conf, &cluster.name)?)
}

fn print_features() {
    let width = nacre_gateway::FEATURES.iter().map(|feature| feature.name.chars().count()).max();
    let mut area = "";
    for feature in nacre_gateway::FEATURES {
        if feature.area != area {
            area = feature.area;
            println!("{area}");
        }
        let line = format!(
            "  {:width$}  {:6}  {}",
            feature.name,
            feature.support.name(),
            feature.note,
            width = width.unwrap_or_default()
        );
        println!("{}", line.trim_end());
    }
}

/// Runs until a signal comes.
fn run_gateway(arguments: &Serve) -> Result<()> {
    log::to_stderr();
    let folder = arguments.data.as_ref().map(|data| Layout::open(data)).transpose()?;
    let conf = folder.as_ref().map_or(arguments.conf.clone(), |(layout, _)| layout.ceph_conf());
    let lock = folder.as_ref().map(|(layout, _)| fleet::lock(&layout.run(), GATEWAY)).transpose()?;
    let listen = arguments.listen.unwrap_or_else(|| match &folder {
        Some((_, cluster)) => cluster.s3_addr(),
        None => SocketAddr::from(([0, 0, 0, 0], PORT_DEFAULT)),
    });
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        _ => {
            let of_folder = folder.as_ref().and_then(|(_, cluster)| cluster.s3_tls.clone());
            of_folder.map(|tls| (tls.certificate, tls.key))
        }
    };
    let env = arguments.first_user.clone().or_else(|| folder.as_ref().map(|(layout, _)| layout.s3_env()));
    let options = Options {
        listen,
        region: arguments.region.clone(),
        domains: arguments.domains.clone(),
        website_domains: arguments.website_domains.clone(),
        memory: arguments.memory.0,
        connections_max: CONNECTIONS_MAX,
        grace: Duration::from_secs(arguments.grace),
        first_user: env.map(|path| first_user(&path)).transpose()?,
        shown: shown::daemon(listen, &arguments.region, if tls.is_some() { "https" } else { "http" }),
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        keystone: arguments.keystone.options()?,
        vault: arguments.vault.options(),
        audit: arguments.audit_log.as_deref().map(admin::audit_log).transpose()?,
        log_interval: Duration::from_secs(arguments.access_log_interval),
        lifecycle_day: arguments.lc_debug_interval.map(Duration::from_secs),
    };
    let config = Config::read(conf, &arguments.name)?;
    nacre_node::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("s3").build()?;
    let run = folder.map(|(layout, _)| layout.run());
    runtime.block_on(serve(config, options, lock, run))
}

async fn serve(
    config: Config,
    options: Options,
    mut lock: Option<LockFile>,
    run: Option<PathBuf>,
) -> Result<()> {
    let mut stop = StopSignals::new()?;
    let client = RadosClient::start(config);
    let name = options.shown.name.clone();
    let gateway = Gateway::bind(&client, options).await?;
    let socket = run.map(|dir| shown::admin_socket(&dir, &name, gateway.perf()));
    let scheme = if gateway.tls().is_some() { "https" } else { "http" };
    tracing::info!("serving S3 at {scheme}://{}", gateway.addr()?);
    if let Some(tls) = gateway.tls() {
        tokio::spawn(reload_at_hangup(tls, signal(SignalKind::hangup())?));
    }
    if let Some(lock) = &mut lock {
        lock.clear()?;
        lock.write_pid()?;
    }
    gateway.serve(stop.wait()).await;
    if let Some(socket) = socket {
        socket.close();
    }
    tracing::info!("stopped");
    if let Some(lock) = lock {
        lock.remove();
    }
    Ok(())
}

async fn reload_at_hangup(tls: Arc<Tls>, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        match tls.reload() {
            Ok(()) => tracing::info!("the certificate was read again"),
            Err(e) => tracing::warn!("the old certificate stays in use: {e:#}"),
        }
    }
}

fn first_user(path: &Path) -> Result<FirstUser> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    FirstUser::parse(&text).with_context(|| format!("{} has no access key", path.display()))
}

/// Writes the first user's keys, unless they are there, and where the gateway is.
pub fn make_env(layout: &Layout, cluster: &Cluster) -> Result<()> {
    let path = layout.s3_env();
    if path.exists() {
        let before = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // What was written by hand there stays.
        let own =
            ["http", "https"].map(|scheme| format!("AWS_ENDPOINT_URL={scheme}://{}", cluster.s3_addr()));
        let line = |line: &str| match own.iter().any(|own| own == line) {
            true => format!("AWS_ENDPOINT_URL={}\n", cluster.s3_url()),
            false => format!("{line}\n"),
        };
        let text: String = before.lines().map(line).collect();
        return if text == before { Ok(()) } else { write_secret(&path, &text) };
    }
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    const MORE: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let text = format!(
        "AWS_ACCESS_KEY_ID=NACRE{}\nAWS_SECRET_ACCESS_KEY={}\nAWS_ENDPOINT_URL={}\nAWS_REGION={}\n",
        random_text(DIGITS, 15),
        random_text(MORE, 40),
        cluster.s3_url(),
        REGION_DEFAULT
    );
    write_secret(&path, &text)
}

fn random_text(digits: &[u8], len: usize) -> String {
    let mut text = String::with_capacity(len);
    while text.len() < len {
        // Bytes 6 and 8 of a random UUID are not random.
        let bytes = uuid::Uuid::new_v4().into_bytes();
        for byte in bytes.into_iter().enumerate().filter(|(at, _)| *at != 6 && *at != 8).map(|(_, byte)| byte)
        {
            // Larger values would make some digits more likely than others.
            let fair = 256 - 256 % digits.len();
            if text.len() < len && usize::from(byte) < fair {
                text.push(digits[usize::from(byte) % digits.len()].into());
            }
        }
    }
    text
}

/// Starts the gateway of a folder, and waits until it listens.
pub fn spawn(layout: &Layout, cluster: &Cluster) -> Result<Child> {
    make_env(layout, cluster)?;
    processes::spawn(layout, GATEWAY, &["s3", "serve"], layout.root()).with_context(|| {
        format!("the S3 gateway at {} did not start; `nacre up --no-s3` leaves it out", cluster.s3_addr())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Requested;

    #[test]
    fn keys_of_the_first_user_are_made_once_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::at(dir.path()).unwrap();
        let mut cluster = Cluster::new(&Requested::default()).unwrap();
        make_env(&layout, &cluster).unwrap();
        let user = first_user(&layout.s3_env()).unwrap();
        assert_eq!((user.access_key.len(), user.secret_key.len()), (20, 40));
        make_env(&layout, &cluster).unwrap();
        assert_eq!(first_user(&layout.s3_env()).unwrap().secret_key, user.secret_key);
        let files = ["c", "k"].map(std::path::PathBuf::from);
        cluster.s3_tls = Some(crate::cluster::S3Tls { certificate: files[0].clone(), key: files[1].clone() });
        make_env(&layout, &cluster).unwrap();
        let text = fs::read_to_string(layout.s3_env()).unwrap();
        assert!(text.contains("AWS_ENDPOINT_URL=https://127.0.0.1:7480\n"), "{text}");
        assert_eq!(first_user(&layout.s3_env()).unwrap().secret_key, user.secret_key);
    }
}
