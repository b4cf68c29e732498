//! The gateways that are measured: radosgw, and Nacre's.

use super::client::Endpoint;
use crate::cluster::{Cluster, cpu_of, resident_of, run};
use anyhow::{Context, Result, bail};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Radosgw's; no daemon of the cluster beside it is there.
const PORT: u16 = 27_299;
const REGION: &str = "us-east-1";
const ACCESS_KEY: &str = "BENCHACCESSKEY";
const SECRET_KEY: &str = "benchsecretkey";
const START_MAX: Duration = Duration::from_secs(120);

/// A gateway that serves.
pub struct Gateway {
    pub endpoint: Arc<Endpoint>,
    pid: u32,
    /// Ended by us; the other one ends with its cluster.
    child: Option<Child>,
}

impl Gateway {
    /// CPU time that it has used so far.
    pub fn cpu(&self) -> Result<Duration> {
        cpu_of(&[self.pid])
    }
    /// Its resident memory in MiB.
    pub fn resident(&self) -> Result<f64> {
        resident_of(self.pid)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The gateway that `nacre up` has started.
pub fn nacre(cluster: &Cluster) -> Result<Gateway> {
    let env = std::fs::read_to_string(cluster.folder().join("s3.env")).context("no s3.env")?;
    let value = |name: &str| -> Result<String> {
        let value = env.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        Ok(value.with_context(|| format!("no {name} in s3.env"))?.to_owned())
    };
    let addr = value("AWS_ENDPOINT_URL")?.trim_start_matches("http://").parse()?;
    let endpoint = Endpoint {
        addr,
        access_key: value("AWS_ACCESS_KEY_ID")?,
        secret_key: value("AWS_SECRET_ACCESS_KEY")?,
        region: value("AWS_REGION")?,
    };
    let pid = std::fs::read_to_string(cluster.folder().join("run/s3.pid"))?.trim().parse()?;
    Ok(Gateway { endpoint: Arc::new(endpoint), pid, child: None })
}

/// Starts radosgw with what makes it fast: no delay of small answers, no logs in memory.
pub fn radosgw(cluster: &Cluster, tcmalloc: bool) -> Result<Gateway> {
    if !Path::new("/usr/bin/radosgw").exists() {
        bail!("radosgw is missing: apt-get install radosgw");
    }
    let folder = cluster.folder();
    let (data, log) = (folder.join("rgw"), folder.join("rgw.log"));
    std::fs::create_dir_all(&data)?;
    let program = |name: &str| {
        let mut command = Command::new(name);
        command.arg("-c").arg(&cluster.conf).args(["--name", "client.rgw"]);
        // With authentication `none`, there is nothing to encrypt with.
        command.args(["--ms_mon_client_mode", "crc", "--log_file"]).arg(&log);
        command
    };
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let mut start = program("radosgw");
    start.arg("-f").args(["--rgw_frontends", &format!("beast endpoint={addr} tcp_nodelay=1")]);
    start.args(["--debug_rgw", "0/0", "--debug_ms", "0/0", "--debug_objclass", "0/0"]);
    start.arg("--rgw_data").arg(&data).stdin(Stdio::null());
    if tcmalloc {
        start.env("LD_PRELOAD", crate::reference::TCMALLOC);
    }
    let out = std::fs::File::create(folder.join("rgw.out"))?;
    let child = start.stdout(out.try_clone()?).stderr(out).spawn().context("cannot start radosgw")?;
    let endpoint = Endpoint {
        addr,
        access_key: ACCESS_KEY.into(),
        secret_key: SECRET_KEY.into(),
        region: REGION.into(),
    };
    let pid = child.id();
    let gateway = Gateway { endpoint: Arc::new(endpoint), pid, child: Some(child) };
    let begun = Instant::now();
    while TcpStream::connect(addr).is_err() {
        if begun.elapsed() > START_MAX {
            bail!("radosgw does not listen after two minutes: see {}", folder.join("rgw.out").display());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut user = program("radosgw-admin");
    user.args(["user", "create", "--uid", "bench", "--display-name", "bench"]);
    run(user.args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]))?;
    Ok(gateway)
}
