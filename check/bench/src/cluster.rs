//! A running cluster: how clients find it, and what its daemons cost.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Of an OSD's file that is written full before it is used.
pub const OSD_BYTES: u64 = 8 << 30;

/// How large a cluster is, and where it listens.
#[derive(Clone, Copy)]
pub struct Shape {
    pub osds: u32,
    /// The first of 300 ports.
    pub port_base: u16,
    /// What each OSD may take, if not what is usual. Nacre's only.
    pub memory_mib: Option<u32>,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { osds: 3, port_base: 27_300, memory_mib: None }
    }
}

/// Shell commands that start daemons that have died. In the OSDs', `{id}` stands for the number.
pub struct Starts {
    pub osd: String,
    pub mon: String,
}

pub struct Cluster {
    pub name: &'static str,
    pub conf: PathBuf,
    /// Process ids of the OSDs.
    pub osds: Vec<u32>,
    /// And of the monitors, and of the manager if there is one.
    pub mons: Vec<u32>,
    start: Starts,
    stop: Option<Box<dyn FnOnce()>>,
}

impl Cluster {
    pub fn new(
        name: &'static str,
        conf: PathBuf,
        (mons, osds): (Vec<u32>, Vec<u32>),
        start: Starts,
        stop: impl FnOnce() + 'static,
    ) -> Cluster {
        Cluster { name, conf, osds, mons, start, stop: Some(Box::new(stop)) }
    }

    /// A shell line that starts these OSDs, all at once.
    pub fn start_osds(&self, ids: impl IntoIterator<Item = u32>) -> String {
        let one = |id: u32| format!("({}) & ", self.start.osd.replace("{id}", &id.to_string()));
        ids.into_iter().map(one).collect::<String>() + "wait"
    }
    /// A shell line that starts the monitors.
    pub fn start_mons(&self) -> &str {
        &self.start.mon
    }
    /// A shell line that sends a signal to these OSDs, all at once.
    pub fn signal_osds(&self, signal: &str, ids: impl IntoIterator<Item = u32>) -> String {
        let pids = ids.into_iter().filter_map(|id| self.osds.get(id as usize));
        format!("kill -{signal} {}", pids.map(u32::to_string).collect::<Vec<_>>().join(" "))
    }
    /// What stands in the command line of each of its daemons, and in no other.
    pub fn folder(&self) -> &Path {
        self.conf.parent().unwrap_or(&self.conf)
    }

    pub fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("CEPH_CONF", &self.conf).env_remove("CEPH_ARGS");
        command
    }

    pub fn run(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        run(self.client(words.next().context("an empty command line")?).args(words))
    }

    /// CPU time that the OSDs have used so far.
    pub fn cpu(&self) -> Result<Duration> {
        cpu_of(&self.osds)
    }

    /// How often the OSDs' threads have given up a processor so far, to wait for something.
    pub fn switches(&self) -> Result<u64> {
        let mut total = 0;
        for pid in &self.osds {
            for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
                let status = std::fs::read_to_string(thread?.path().join("status"))?;
                let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
                total += line.context("no count of switches")?.trim().parse::<u64>()?;
            }
        }
        Ok(total)
    }

    /// Mean resident memory of an OSD, in MiB.
    pub fn resident(&self) -> Result<f64> {
        let total: f64 = self.osds.iter().map(|pid| resident_of(*pid)).sum::<Result<f64>>()?;
        Ok(total / self.osds.len() as f64)
    }

    pub fn wait_healthy(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let status = self.run("ceph status --format json").unwrap_or_default();
            if let Ok(status) = serde_json::from_str::<serde_json::Value>(&status) {
                let pgs = &status["pgmap"];
                let clean = pgs["pgs_by_state"]
                    .as_array()
                    .is_some_and(|states| states.iter().all(|state| state["state_name"] == "active+clean"));
                if clean && status["osdmap"]["num_up_osds"] == self.osds.len() {
                    return Ok(());
                }
            }
            if start.elapsed() > Duration::from_secs(120) {
                bail!("{} is not healthy after two minutes: {status}", self.name);
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}

/// Resident memory of a process, in MiB.
pub fn resident_of(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.split_whitespace().nth(1).context("no number in VmRSS")?.parse()?;
    Ok(kib / 1024.0)
}

/// CPU time that these processes have used so far.
pub fn cpu_of(pids: &[u32]) -> Result<Duration> {
    pids.iter().map(|pid| Ok(cpu(&pid.to_string())?.0)).sum()
}

/// The same of this process.
pub fn own_cpu() -> Result<Duration> {
    Ok(cpu("self")?.0)
}
/// And of all clients that it ran, and that have ended.
pub fn clients_cpu() -> Result<Duration> {
    Ok(cpu("self")?.1)
}

/// A process's own CPU time, and that of its children that ended.
fn cpu(pid: &str) -> Result<(Duration, Duration)> {
    // Fields 14 to 17, counted after the name in parentheses, in clock ticks of 10 ms.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit_once(')').context("no name in /proc/PID/stat")?.1;
    let ticks: Vec<u64> =
        rest.split_whitespace().skip(11).take(4).map(str::parse).collect::<Result<_, _>>()?;
    let [user, system, childrens_user, childrens_system] = ticks[..] else {
        bail!("/proc/{pid}/stat has too little");
    };
    let time = |ticks: u64| Duration::from_millis(ticks * 10);
    Ok((time(user + system), time(childrens_user + childrens_system)))
}

/// How `timeout` ends when it has ended its command.
const TIMED_OUT: i32 = 124;

pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.code() == Some(TIMED_OUT) {
        bail!("{command:?} did not end in time: is its cluster full, or are its OSDs gone?");
    }
    if !output.status.success() {
        bail!("{command:?}: {}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
    }
    Ok(text(&output.stdout))
}
