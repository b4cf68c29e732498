//! Something fails while clients write, and comes back: what do clients notice, how much is copied,
//! how much memory does it take? The same script on Ceph, on Ceph with its monitors' timer tuned, and
//! on Nacre, one after the other.

use crate::cluster::{Cluster, Shape, run};
use crate::plot::{self, Curve};
use crate::{device, nacre, reference};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Options {
    /// The failure to cause.
    #[arg(long, value_enum, default_value_t = Drill::Osd)]
    drill: Drill,
    /// Folder for the clusters' data, on the disk to measure.
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
    /// Folder for the tables per second, the plot and the summaries.
    #[arg(long, default_value = "target/bench-failure")]
    results: PathBuf,
    /// Clusters to measure: ceph, ceph-tuned, nacre.
    #[arg(long, value_delimiter = ',', default_value = "ceph,ceph-tuned,nacre")]
    clusters: Vec<String>,
    /// How OSDs fail: kill, or stop (they hang and continue later).
    #[arg(long, value_delimiter = ',', default_value = "kill")]
    how: Vec<String>,
    /// Seconds for which OSDs are down.
    #[arg(long, default_value_t = 30)]
    away: u32,
    /// Seconds to measure before and after the failure.
    #[arg(long, default_value_t = 20)]
    healthy: u32,
    /// Writes per second; 0 for full speed.
    #[arg(long, value_delimiter = ',', default_value = "200")]
    rate: Vec<u32>,
    /// Maximum number of writes in flight; `restart` has its own.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    depth: u32,
    /// Objects of 4 MiB each.
    #[arg(long, default_value_t = 512)]
    objects: u32,
    /// Instead of `--objects`: use as many objects as get about this many writes each during the failure.
    /// Requires a rate.
    #[arg(long, value_delimiter = ',')]
    per_object: Vec<u32>,
    /// For `memory`: number of writes while the OSD is down, however long they take.
    #[arg(long, default_value_t = 100_000)]
    writes: u64,
    /// Load: objects through librados, or an image of the same size with fio's rbd engine.
    #[arg(long, value_enum, default_value_t = Through::Rados)]
    through: Through,
    /// Number of OSDs; each drill has its own default.
    #[arg(long)]
    osds: Option<u32>,
    /// Memory limit of each of Nacre's OSDs, in MiB.
    #[arg(long, default_value_t = 256)]
    memory: u32,
    /// Placement groups of the pool.
    #[arg(long, default_value_t = 32)]
    pgs: u32,
    /// Number of rounds; each round measures all clusters.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// The first of 300 ports.
    #[arg(long, default_value_t = Shape::default().port_base)]
    port_base: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Drill {
    /// One of three OSDs goes and comes back.
    Osd,
    /// One of three hosts, with five OSDs each, goes and comes back.
    Host,
    /// An OSD is added to three; it is not filled by anything else.
    Add,
    /// One of three OSDs is away during many writes; then all are killed and start at once.
    Memory,
    /// Everything is killed and starts again; then one OSD.
    Restart,
    /// A pool of two copies gets a third one while no client writes, beside what the disk gives to who only
    /// copies.
    Copies,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Through {
    Rados,
    Rbd,
}

impl Through {
    fn name(self) -> &'static str {
        match self {
            Through::Rados => "rados",
            Through::Rbd => "rbd",
        }
    }
}

impl Drill {
    fn osds(self) -> u32 {
        match self {
            Drill::Host => HOSTS * PER_HOST,
            Drill::Add => 4,
            _ => 3,
        }
    }
    fn name(self) -> &'static str {
        match self {
            Drill::Osd => "osd",
            Drill::Host => "host",
            Drill::Add => "add",
            Drill::Memory => "memory",
            Drill::Restart => "restart",
            Drill::Copies => "copies",
        }
    }
}

const POOL: &str = "failure";
/// Which OSD goes, or its host.
const VICTIM: u32 = 1;
const HOSTS: u32 = 3;
const PER_HOST: u32 = 5;

/// One run of the drill on one cluster.
struct Case<'a> {
    how: &'a str,
    rate: u32,
    objects: u32,
    /// Names its files.
    name: String,
}

pub fn measure(options: &Options) -> Result<()> {
    match (options.through, options.drill) {
        (Through::Rbd, Drill::Memory | Drill::Restart) => {
            bail!("how many writes fio has done is not known while it runs, so it cannot do this drill")
        }
        (Through::Rbd, Drill::Copies) => {
            bail!("this drill has no writes, so there is nothing for fio to do")
        }
        _ => {}
    }
    std::fs::create_dir_all(&options.folder)?;
    std::fs::create_dir_all(&options.results)?;
    for round in 0..options.rounds {
        for case in &cases(options, round)? {
            let mut curves = Vec::new();
            for cluster in &options.clusters {
                eprintln!("{cluster}, {}", case.name);
                let summary = on_one(options, case, cluster)?;
                println!("{cluster} {} {summary}", case.name);
                let csv = options.results.join(format!("{cluster}-{}.csv", case.name));
                if csv.exists() {
                    curves.push(Curve::load(cluster, &csv)?);
                }
            }
            if !curves.is_empty() {
                let picture =
                    plot::picture(&format!("{} drill, {}", options.drill.name(), case.name), &curves);
                plot::save(&options.results.join(&case.name), &picture)?;
            }
        }
    }
    Ok(())
}

fn cases(options: &Options, round: u32) -> Result<Vec<Case<'_>>> {
    let mut cases = Vec::new();
    for how in &options.how {
        for &rate in &options.rate {
            let mut sizes = vec![(options.objects, String::new())];
            if !options.per_object.is_empty() {
                if rate == 0 {
                    bail!("how many writes an object gets cannot be told without a rate");
                }
                let objects = |each: u32| (rate * options.away / each.max(1)).max(1);
                sizes =
                    options.per_object.iter().map(|&each| (objects(each), format!("-{each}each"))).collect();
            }
            for (objects, suffix) in sizes {
                let again = if round > 0 { format!("-round{}", round + 1) } else { String::new() };
                let through = if options.through == Through::Rbd { "-rbd" } else { "" };
                let name = format!("{}-{how}-{rate}{suffix}{through}{again}", options.drill.name());
                cases.push(Case { how, rate, objects, name });
            }
        }
    }
    Ok(cases)
}

fn on_one(options: &Options, case: &Case<'_>, name: &str) -> Result<String> {
    let folder = options.folder.canonicalize()?;
    let shape = Shape {
        osds: options.osds.unwrap_or(options.drill.osds()),
        port_base: options.port_base,
        memory_mib: Some(options.memory),
    };
    let cluster = match name {
        "ceph" => reference::up_with(&folder.join("ceph"), shape, false, false)?,
        "ceph-tuned" => {
            let cluster = reference::up_with(&folder.join("ceph"), shape, false, false)?;
            cluster.run("ceph config set mon paxos_propose_interval 0.02")?;
            cluster
        }
        "nacre" => nacre::up_with(&folder.join("nacre"), shape, false)?,
        other => bail!("no cluster is called '{other}'"),
    };
    // Else whole groups that it moves, once all is clean, count as what the return cost.
    cluster.run("ceph balancer off")?;
    if options.drill == Drill::Host {
        make_hosts(&cluster)?;
    }
    if options.drill == Drill::Add {
        cluster.run(&format!("ceph osd out {}", shape.osds - 1))?;
    }
    let rule = if options.drill == Drill::Host { " replicated by-host" } else { "" };
    cluster.run(&format!("ceph osd pool create {POOL} {pgs} {pgs}{rule}", pgs = options.pgs))?;
    cluster.wait_healthy()?;
    let file = |ending: &str| options.results.join(format!("{name}-{}.{ending}", case.name));
    let mut script = match options.drill {
        Drill::Restart => restart(options, &cluster),
        Drill::Copies => python(&cluster, "copies.py"),
        _ => failure(options, case, &cluster, &file("csv"))?,
    };
    script.args(["--pool", POOL, "--objects", &case.objects.to_string()]);
    script.arg("--folder").arg(cluster.folder());
    let mut summary: Value = serde_json::from_str(&run(&mut script)?).context("the script said no JSON")?;
    if options.drill == Drill::Copies {
        // In the same minute, as a disk differs.
        let disk = device::copies(&folder)?;
        let done = summary["mib_per_second"].as_f64().context("no speed")?;
        summary["disk_mib_per_second"] =
            json!({ "plain": round(disk.plain), "flushed": round(disk.flushed) });
        summary["of_disk"] =
            json!({ "plain": round(done / disk.plain), "flushed": round(done / disk.flushed) });
    }
    std::fs::write(file("json"), summary.to_string())?;
    Ok(summary.to_string())
}

fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// OSDs 0 to 4 on the first, and so on; and a rule that puts copies on different ones.
fn make_hosts(cluster: &Cluster) -> Result<()> {
    // Else they move to the host that they are really on when they start again.
    cluster.run("ceph config set global osd_crush_update_on_start false")?;
    for host in 0..HOSTS {
        cluster.run(&format!("ceph osd crush add-bucket host-{host} host"))?;
        cluster.run(&format!("ceph osd crush move host-{host} root=default"))?;
        for osd in host * PER_HOST..(host + 1) * PER_HOST {
            cluster.run(&format!("ceph osd crush move osd.{osd} host=host-{host}"))?;
        }
    }
    cluster.run("ceph osd crush rule create-replicated by-host default host")?;
    Ok(())
}

fn python(cluster: &Cluster, script: &str) -> std::process::Command {
    let mut command = cluster.client("/usr/bin/python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(script));
    command
}

fn failure(
    options: &Options,
    case: &Case<'_>,
    cluster: &Cluster,
    csv: &Path,
) -> Result<std::process::Command> {
    let all = 0..cluster.osds.len() as u32;
    let victims = match options.drill {
        Drill::Host => VICTIM * PER_HOST..(VICTIM + 1) * PER_HOST,
        _ => VICTIM..VICTIM + 1,
    };
    let (fail, back) = match (options.drill, case.how) {
        (Drill::Add, _) => (format!("ceph osd in {}", all.end - 1), String::new()),
        (Drill::Memory, _) => {
            let others = all.clone().filter(|osd| !victims.contains(osd));
            let back = format!("{}; {}", cluster.signal_osds("KILL", others), cluster.start_osds(all));
            (cluster.signal_osds("KILL", victims), back)
        }
        (_, "kill") => (cluster.signal_osds("KILL", victims.clone()), cluster.start_osds(victims)),
        (_, "stop") => (cluster.signal_osds("STOP", victims.clone()), cluster.signal_osds("CONT", victims)),
        (_, other) => bail!("an OSD cannot go by '{other}'"),
    };
    let mut command = python(cluster, "failure.py");
    command.args(["--fail", &fail, "--back", &back]).arg("--csv").arg(csv);
    command.args(["--through", options.through.name()]);
    command.args(["--rate", &case.rate.to_string(), "--healthy", &options.healthy.to_string()]);
    command.args(["--depth", &options.depth.to_string()]);
    match options.drill {
        Drill::Memory => command.args(["--away-writes", &options.writes.to_string()]),
        // All that follows is the change.
        Drill::Add => command.args(["--away", "0"]),
        _ => command.args(["--away", &options.away.to_string()]),
    };
    Ok(command)
}

fn restart(options: &Options, cluster: &Cluster) -> std::process::Command {
    let all = 0..cluster.osds.len() as u32;
    let mons: Vec<String> = cluster.mons.iter().map(u32::to_string).collect();
    let kill = format!("{} {}", cluster.signal_osds("KILL", all.clone()), mons.join(" "));
    let start = format!("({}) & {}", cluster.start_mons(), cluster.start_osds(all));
    let mut command = python(cluster, "restart.py");
    command.args(["--kill", &kill, "--start", &start, "--start-one", &cluster.start_osds([VICTIM])]);
    command.args(["--writes", &options.writes.to_string(), "--one", &VICTIM.to_string()]);
    command
}
