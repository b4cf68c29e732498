//! Files on Ceph's own metadata server: the same `ceph-mds` and client, on Ceph's OSDs and on Nacre's.
//!
//! Each file is created and flushed, so that each operation waits for the data's write, and often for the
//! metadata server's journal. A failover is the longest time without an operation after the active server was
//! killed, with Ceph's default of 15 s until a server counts as dead.

use crate::beside::Beside;
use crate::cluster::{Cluster, run};
use crate::report::median;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    beside: Beside,
}

const FILE_SYSTEM: &str = "files";
/// One works, the other stands by.
const SERVERS: [&str; 2] = ["one", "two"];
/// For a server to become active, and for an operation to end.
const PATIENCE: Duration = Duration::from_secs(180);

enum Work {
    /// By this many processes.
    Create(u32),
    Failover,
}

const WORKLOADS: [(&str, Work); 3] = [
    ("create + fsync, 1 process", Work::Create(1)),
    ("create + fsync, 8 processes", Work::Create(8)),
    ("failover", Work::Failover),
];

/// What is shown of one run, by its heading.
type Figures = BTreeMap<&'static str, f64>;

pub fn measure(options: &Options) -> Result<()> {
    let beside = &options.beside;
    let is_there = Path::new("/usr/bin/ceph-mds").exists();
    ensure!(is_there, "ceph-mds is missing: apt-get install ceph-mds python3-cephfs");
    let mut all = beside.clusters()?.into_iter().map(Served::start).collect::<Result<Vec<_>>>()?;
    for (name, work) in WORKLOADS.iter().filter(|(name, _)| beside.wants(name)) {
        let mut runs: BTreeMap<&str, Vec<Figures>> = BTreeMap::new();
        for round in 0..beside.rounds {
            for served in &mut all {
                let on = served.cluster.name;
                eprintln!("{name} on {on}, round {}/{}", round + 1, beside.rounds);
                let figures = match work {
                    Work::Create(processes) => served.create(*processes, beside.seconds)?,
                    Work::Failover => served.fail_over()?,
                };
                runs.entry(on).or_default().push(figures);
            }
        }
        show(name, &runs);
    }
    Ok(())
}

/// Medians, and Nacre's divided by Ceph's.
fn show(name: &str, runs: &BTreeMap<&str, Vec<Figures>>) {
    println!("{name} (medians)");
    let heads: Vec<&str> =
        runs.values().flatten().next().map_or_else(Vec::new, |f| f.keys().copied().collect());
    for head in heads {
        let of =
            |on: &str| Some(median(runs.get(on)?.iter().filter_map(|figures| figures.get(head).copied())));
        let values = ["ceph", "nacre"].map(&of);
        let text = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.2}"));
        let ratio = values[1].zip(values[0]).map(|(nacre, ceph)| nacre / ceph);
        let [ceph, nacre] = values.map(text);
        println!("  {head:<16}ceph {ceph:>10}  nacre {nacre:>10}  ratio {:>7}", text(ratio));
    }
}

/// A cluster with a file system and its servers, which end before the cluster does.
struct Served {
    servers: BTreeMap<&'static str, Server>,
    cluster: Cluster,
}

/// Killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(cluster: &Cluster, name: &str) -> Result<Server> {
        let folder = cluster.folder();
        let mut command = Command::new("ceph-mds");
        command.arg("-c").arg(&cluster.conf).args(["-f", "-i", name]);
        command.arg(format!("--log-file={}", folder.join(format!("mds.{name}.log")).display()));
        command.arg(format!("--admin-socket={}", folder.join(format!("mds.{name}.asok")).display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Server(command.spawn().context("cannot start ceph-mds")?))
    }
}

impl Served {
    fn start(cluster: Cluster) -> Result<Served> {
        let pools = ["meta", "data"].map(|kind| format!("{FILE_SYSTEM}-{kind}"));
        for pool in &pools {
            cluster.run(&format!("ceph osd pool create {pool} 32 32"))?;
        }
        cluster.run(&format!("ceph fs new {FILE_SYSTEM} {}", pools.join(" ")))?;
        cluster.wait_healthy()?;
        let mut served = Served { servers: BTreeMap::new(), cluster };
        for name in SERVERS {
            served.servers.insert(name, Server::start(&served.cluster, name)?);
        }
        served.wait_active()?;
        Ok(served)
    }

    /// Until one server works and the others stand by. Gives the one's name.
    fn wait_active(&self) -> Result<String> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let dump: Value = serde_json::from_str(&self.cluster.run("ceph fs dump --format json")?)?;
            let standbys = dump["standbys"].as_array().map_or(0, Vec::len);
            let infos = dump["filesystems"][0]["mdsmap"]["info"].as_object().context("no servers")?;
            let active = infos.values().find(|info| info["state"] == "up:active");
            if let Some(name) = active.filter(|_| standbys == SERVERS.len() - 1) {
                return Ok(name["name"].as_str().unwrap_or_default().to_owned());
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        bail!("{} has no active and no standby metadata server", self.cluster.name)
    }

    /// What the script measures.
    fn script(&self, arguments: &[&str], seconds: u32) -> Result<Value> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/files.py");
        let mut command = self.cluster.client("timeout");
        command.arg((PATIENCE.as_secs() + u64::from(seconds)).to_string()).arg("/usr/bin/python3");
        let said = run(command.arg(script).arg(FILE_SYSTEM).args(arguments))?;
        serde_json::from_str(&said).with_context(|| format!("not JSON: {said}"))
    }

    fn create(&self, processes: u32, seconds: u32) -> Result<Figures> {
        let before = self.cluster.cpu()?;
        let said = self.script(&[&processes.to_string(), &seconds.to_string()], seconds)?;
        let cpu = (self.cluster.cpu()? - before).as_secs_f64();
        let of = |key: &str| said[key].as_f64().with_context(|| format!("no {key} in {said}"));
        Ok([
            ("ops/s", of("ops_per_second")?),
            ("p50 ms", of("p50")?),
            ("p99 ms", of("p99")?),
            ("OSD CPU s/1000", cpu / of("ops")? * 1000.0),
        ]
        .into())
    }

    fn fail_over(&mut self) -> Result<Figures> {
        let active = self.wait_active()?;
        let (name, server) =
            self.servers.remove_entry(active.as_str()).context("an unknown server is active")?;
        let said = self.script(&["failover", &server.0.id().to_string()], 0)?;
        drop(server);
        self.servers.insert(name, Server::start(&self.cluster, name)?);
        self.wait_active()?;
        let seconds = said["seconds"].as_f64().with_context(|| format!("no seconds in {said}"))?;
        Ok([("pause s", seconds)].into())
    }
}
