//! A script: the shape of the cluster of one run, and faults at their times.
//!
//! A script is drawn from a seed before the run, so that faults can be left out of it: `shrink` finds
//! those that a failure needs. Scripts of past failures are kept as text in `tests/it/scripts`:
//!
//! ```text
//! seed 0x1d
//! mons 1
//! osds 3
//! 2.450 kill osd.1
//! 3.100 partition osd.0 osd.2
//! 9.000 end
//! ```

use crate::host_faults;
use crate::options;
use nacre_base::Rng;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Mon(usize),
    Osd(usize),
    Client(usize),
    /// The OSDs and monitors of a host.
    Host(usize),
    /// Those of all hosts of a rack.
    Rack(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Processes end at once, as by SIGKILL.
    Kill(Vec<Target>),
    /// Hosts lose power: what was not flushed may be lost, and connection attempts time out.
    PowerOff(Vec<Target>),
    /// A daemon is asked to stop cleanly, as by SIGTERM.
    Stop(Target),
    /// A process stands still, as by SIGSTOP.
    Pause(Target),
    /// A paused process continues; one that ended is started again.
    Resume(Target),
    /// The link between two nodes loses everything.
    Partition(Target, Target),
    /// The link loses what the first sends to the second.
    PartitionOneWay(Target, Target),
    /// Something between them, such as a firewall, resets their sessions and refuses new ones; datagrams
    /// pass.
    Reject(Target, Target),
    /// The network of a host or rack fails: what is on it reaches only what else is on it.
    Isolate(Target),
    /// Every partition and rejection ends.
    Heal,
    /// A daemon is restarted with the newest version, if it had the one before.
    Upgrade(Target),
    /// `nacre upgrade finish`, which is refused while daemons that are up have the version before.
    FinishUpgrade,
    /// The wall clock of a host is ahead by this many seconds, until all faults end.
    Clock(Target, u64),
    /// Bit rot: this many blocks of an OSD's objects change silently on its disk.
    Corrupt(usize, u64),
    /// This many sectors under an OSD's objects become unreadable.
    BadSectors(usize, u64),
    /// Everything that an OSD's disk does takes about this many milliseconds; 0: it is fast again.
    SlowDisk(usize, u64),
    /// `ceph osd out`.
    Out(usize),
    /// `ceph osd in`.
    In(usize),
    /// `ceph osd reweight`, in percent.
    Reweight(usize, u64),
    /// The OSD is marked out; once all faults have ended it is purged.
    Purge(usize),
    /// One more OSD, on a host of its own or the last one.
    AddOsd,
    /// One more monitor.
    AddMon,
    /// `ceph mon rm`: a monitor leaves for good if the others can continue without it.
    RemoveMon(usize),
    /// The first pool gets this many placement groups, more or fewer than it had.
    PgNum(u64),
    /// One more pool.
    CreatePool,
    /// A self-managed snapshot of a random pool.
    CreateSnap,
    /// The removal of such a snapshot.
    RemoveSnap,
    /// Clients write this many more objects of 64 KiB, as far as there is space.
    Fill(u64),
    /// Clients delete all objects that `Fill` wrote.
    DeleteFill,
    /// The last fault; whatever follows is checked, not broken.
    End,
}

/// How daemons and clients authenticate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    #[default]
    Cephx,
    None,
}

/// How the cluster of a run is built, and what is unreliable about it throughout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    pub mons: usize,
    pub osds: usize,
    /// OSDs on each host.
    pub per_host: usize,
    /// Hosts in each rack; 0: no racks.
    pub per_rack: usize,
    /// Of a thousand messages, how many take the time of a retransmission.
    pub loss: u64,
    /// An OSD with a slow disk.
    pub slow_osd: Option<usize>,
    /// Wall clocks differ by up to this many seconds.
    pub clock_skew: u32,
    /// The only OSD whose disk may lose durable data: `Corrupt` and `BadSectors` name it.
    pub unreliable: Option<usize>,
    /// KiB of write-ahead log of each OSD's store; 0: the default. A small one forces checkpoints.
    pub wal_kib: u64,
    /// `osd_min_pg_log_entries` and `osd_max_pg_log_entries`; 0: the defaults.
    pub pg_log_entries: u64,
    /// MiB of each OSD's disk, small enough to be filled; 0: large.
    pub disk_mib: u64,
    /// KiB of memory that an OSD may use; 0: the default.
    pub memory_kib: u64,
    /// `mon_min_osdmap_epochs`; 0: the default.
    pub osdmaps: u64,
    /// `osd_backoff_on_peering`.
    pub backoff_on_peering: bool,
    /// There is an erasure-coded pool beside the others.
    pub erasure: bool,
    pub auth: Auth,
    /// `auth_service_ticket_ttl` in seconds; 0: the default. Rotating keys change as often.
    pub ticket_ttl: u64,
    /// Daemons begin with the version before, which uses an older format of the cluster.
    pub old_release: bool,
    /// Whether bytes travel, through the messengers of both ends, instead of messages.
    pub frames: bool,
    /// Of ten thousand pieces of these bytes, how many end with a reset of their session.
    pub resets: u64,
    /// Options with values other than their defaults, as an administrator sets them.
    pub options: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub seed: u64,
    pub shape: Shape,
    /// In order of their time since the workload began.
    pub steps: Vec<(Duration, Fault)>,
}

const CLIENTS: usize = 2;
/// Options of one run that do not have their defaults.
const OPTIONS_MAX: u64 = 4;
/// Monitors of one run, including removed ones.
const MONS_MAX: u64 = 7;
/// KiB of memory of OSDs in some runs.
const MEMORY: [u64; 2] = [6 << 10, 8 << 10];
/// Virtual time during which faults happen.
const FAULTS_LAST: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(45));
pub(crate) const BETWEEN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(1800));

/// Which kinds of faults a run has, so that each kind is also seen without the others.
struct Kinds {
    kill: bool,
    power_off: bool,
    host: bool,
    pause: bool,
    partition: bool,
    one_way: bool,
    clean_stop: bool,
    sizes: bool,
    monitor: bool,
    out: bool,
    slow: bool,
    snaps: bool,
}

impl Shape {
    pub(crate) fn hosts(&self) -> usize {
        self.osds.div_ceil(self.per_host)
    }

    fn draw(rng: &mut Rng) -> Shape {
        // Mostly small, and mostly one monitor: traces of small clusters are easier to read.
        let mons = if rng.chance(250) { 3 } else { 1 };
        let (osds, per_host, per_rack) = match rng.below(20) {
            0..=9 => (3, 1, 0),
            10..=13 => (4, 1, 0),
            14..=15 => (5, 1, 0),
            16..=17 => (6, 2, 0),
            18 => (8, 2, 2),
            _ => (12, 3, 2),
        };
        let mut often = || rng.chance(500);
        let (loss, slow, clock_skew) = (often(), often(), often());
        Shape {
            mons,
            osds,
            per_host,
            per_rack,
            loss: if loss { rng.below(30) } else { 0 },
            slow_osd: slow.then(|| rng.below(osds as u64) as usize),
            clock_skew: if clock_skew { 1 + rng.below(3600) as u32 } else { 0 },
            unreliable: rng.chance(400).then(|| rng.below(osds as u64) as usize),
            disk_mib: if osds < 5 && rng.chance(120) { 40 } else { 0 },
            wal_kib: if rng.chance(700) { *rng.pick(&[128, 256, 1024]).expect("some") } else { 0 },
            pg_log_entries: if rng.chance(600) { 3 + rng.below(30) } else { 0 },
            memory_kib: if rng.chance(300) { *rng.pick(&MEMORY).expect("some") } else { 0 },
            osdmaps: if rng.chance(400) { 3 + rng.below(20) } else { 0 },
            ..Shape::default()
        }
    }
}

impl Shape {
    /// How sessions are authenticated and carried, from a generator of its own.
    fn with_sessions(self, seed: u64) -> Shape {
        let rng = &mut Rng::new(seed ^ 0x5e55_1045_0000_0000);
        let auth = if rng.chance(100) { Auth::None } else { Auth::Cephx };
        let ticket_ttl = *rng.pick(&[0, 5, 7, 15]).expect("some");
        let frames = rng.chance(500);
        let resets = if frames && rng.chance(600) { 1 + rng.below(10) } else { 0 };
        Shape { auth, ticket_ttl, frames, resets, ..self }
    }

    /// Values from the ranges that the options table gives for simulations, from a generator of its own.
    fn with_options(self, seed: u64) -> Shape {
        let rng = &mut Rng::new(seed ^ 0x0971_0950_0000_0000);
        if !rng.chance(400) {
            return self;
        }
        let ranges = options::simulated();
        let mut options = BTreeMap::new();
        for _ in 0..1 + rng.below(OPTIONS_MAX) {
            let (option, min, max) = *rng.pick(&ranges).expect("options have ranges");
            options.insert(option.name.to_string(), options::draw(rng, option.kind, min, max));
        }
        Shape { options: options.into_iter().collect(), ..self }
    }
}

impl Script {
    pub fn draw(seed: u64) -> Script {
        let rng = &mut Rng::new(seed ^ 0x5c21_97b0_0000_0000);
        // From a generator of its own: a seed's faults stay what they were before this option.
        let backoff_on_peering = Rng::new(seed ^ 0x0bac_c0ff_0000_0000).chance(350);
        let erasure = Rng::new(seed ^ 0xe2a5_0000_0000_0000).chance(420);
        let shape = Shape { backoff_on_peering, erasure, ..Shape::draw(rng) };
        let shape = shape.with_sessions(seed).with_options(seed);
        // Likewise.
        let host_rng = &mut Rng::new(seed ^ 0x4057_5000_0000_0000);
        let of_hosts = host_rng.chance(250);
        let shape = match of_hosts && host_rng.chance(400) {
            // As a small cluster of real hosts is.
            true => Shape { mons: 3, osds: 10, per_host: 2, per_rack: 2, ..shape },
            false => shape,
        };
        let mut often = || rng.chance(550);
        let kinds = Kinds {
            kill: often(),
            power_off: often(),
            host: often(),
            pause: often(),
            partition: often(),
            one_way: often(),
            clean_stop: often(),
            sizes: often(),
            monitor: often(),
            out: often(),
            slow: often(),
            snaps: often(),
        };
        let mut steps = Vec::new();
        let end = rng.duration(FAULTS_LAST.0, FAULTS_LAST.1);
        let mut at = rng.duration(BETWEEN.0, BETWEEN.1);
        while at < end {
            steps.extend(draw_faults(rng, &shape, &kinds).into_iter().map(|fault| (at, fault)));
            at += rng.duration(BETWEEN.0, BETWEEN.1);
        }
        // Likewise from a generator of its own.
        let rng = &mut Rng::new(seed ^ 0x0a0d_d0a0_0000_0000);
        if rng.chance(250) {
            steps.extend(draw_monitors(rng, &shape, end));
        }
        if of_hosts {
            let faults = host_faults::draw(host_rng, &shape, end);
            steps.extend(faults.into_iter().filter(|(at, _)| *at < end));
        }
        // Likewise.
        let upgrade_rng = &mut Rng::new(seed ^ 0x0b9a_de00_0000_0000);
        let old_release = upgrade_rng.chance(60);
        // Older OSDs cannot hold such a pool.
        let shape = Shape { old_release, erasure: shape.erasure && !old_release, ..shape };
        if shape.old_release {
            steps.extend(draw_upgrade(upgrade_rng, &shape, end));
        }
        steps.sort_by_key(|(at, _)| *at);
        steps.push((end, Fault::End));
        Script { seed, shape, steps }
    }
}

/// Monitors that are added and removed, some of them killed meanwhile.
fn draw_monitors(rng: &mut Rng, shape: &Shape, end: Duration) -> Vec<(Duration, Fault)> {
    let mut steps = Vec::new();
    let mut mons = shape.mons as u64;
    let mut at = rng.duration(BETWEEN.0, BETWEEN.1);
    while at < end {
        let any = rng.below(mons) as usize;
        steps.push((
            at,
            match rng.below(6) {
                0 | 1 if mons < MONS_MAX => {
                    mons += 1;
                    Fault::AddMon
                }
                2 | 3 => Fault::RemoveMon(any),
                4 => Fault::Kill(vec![Target::Mon(any)]),
                _ => Fault::Resume(Target::Mon(any)),
            },
        ));
        at += rng.duration(BETWEEN.0, BETWEEN.1 * 3);
    }
    steps
}

/// Daemons get the newest version in any order, and the cluster its newest format when all have it; some
/// tries come too early.
fn draw_upgrade(rng: &mut Rng, shape: &Shape, end: Duration) -> Vec<(Duration, Fault)> {
    let daemons = (0..shape.mons).map(Target::Mon).chain((0..shape.osds).map(Target::Osd));
    let upgrades = daemons.map(Fault::Upgrade).chain([Fault::FinishUpgrade, Fault::FinishUpgrade]);
    upgrades.map(|fault| (rng.duration(BETWEEN.0, end), fault)).collect()
}

/// One fault, or the end of several.
fn draw_faults(rng: &mut Rng, shape: &Shape, kinds: &Kinds) -> Vec<Fault> {
    let osds: Vec<Target> = (0..shape.osds).map(Target::Osd).collect();
    let mut daemons = osds.clone();
    if kinds.monitor {
        daemons.extend((0..shape.mons).map(Target::Mon));
    }
    let victim = *rng.pick(&daemons).expect("there are daemons");
    let other = |rng: &mut Rng| {
        let nodes: Vec<Target> = daemons
            .iter()
            .copied()
            .chain((0..CLIENTS).map(Target::Client))
            .filter(|target| *target != victim)
            .collect();
        *rng.pick(&nodes).expect("there are others")
    };
    let any_osd = |rng: &mut Rng| rng.below(shape.osds as u64) as usize;
    let fault = match rng.below(26) {
        0 if kinds.kill => Fault::Kill(vec![victim]),
        1 if kinds.power_off => Fault::PowerOff(vec![victim]),
        2 if kinds.pause => Fault::Pause(victim),
        3 if kinds.partition => Fault::Partition(victim, other(rng)),
        4 if kinds.one_way => match (victim, other(rng)) {
            (a, b) if rng.chance(500) => Fault::PartitionOneWay(b, a),
            (a, b) => Fault::PartitionOneWay(a, b),
        },
        22 if kinds.partition => Fault::Reject(victim, other(rng)),
        5 if kinds.clean_stop => Fault::Stop(victim),
        // All daemons at once.
        6 if (kinds.kill || kinds.power_off) && rng.chance(200) => match kinds.power_off {
            true => Fault::PowerOff(daemons),
            false => Fault::Kill(daemons),
        },
        7 if kinds.host => {
            let racks = shape.per_rack > 0 && rng.chance(500);
            let size = shape.per_host * if racks { shape.per_rack } else { 1 };
            let first = rng.below(shape.osds.div_ceil(size) as u64) as usize * size;
            Fault::PowerOff((first..shape.osds.min(first + size)).map(Target::Osd).collect())
        }
        8 if kinds.sizes && rng.chance(500) => Fault::PgNum(1 + rng.below(11)),
        9 if kinds.sizes && rng.chance(150) => Fault::CreatePool,
        10 if kinds.out && rng.chance(400) => Fault::Reweight(any_osd(rng), 10 + rng.below(91)),
        10 if kinds.out => Fault::Out(any_osd(rng)),
        11 if kinds.out => Fault::In(any_osd(rng)),
        24 if kinds.out && rng.chance(400) => Fault::AddOsd,
        25 if kinds.out => Fault::Purge(any_osd(rng)),
        12 | 13 => Fault::Heal,
        14 | 15 if let Some(osd) = shape.unreliable => match rng.chance(500) {
            true => Fault::Corrupt(osd, 1 + rng.below(4)),
            false => Fault::BadSectors(osd, 1 + rng.below(4)),
        },
        17 | 18 if kinds.snaps => Fault::CreateSnap,
        // The second and third wait while the first is made, and share one transaction of the monitors.
        19 if kinds.snaps && rng.chance(500) => {
            return vec![Fault::CreateSnap, Fault::RemoveSnap, Fault::CreateSnap];
        }
        19 if kinds.snaps => Fault::RemoveSnap,
        20 | 21 if shape.disk_mib > 0 && rng.chance(250) => Fault::DeleteFill,
        20 | 21 if shape.disk_mib > 0 => Fault::Fill(100 + rng.below(800)),
        16 if kinds.slow => Fault::SlowDisk(any_osd(rng), *rng.pick(&[0, 20, 200, 2000]).expect("some")),
        _ => return daemons.into_iter().filter(|_| rng.chance(600)).map(Fault::Resume).collect(),
    };
    vec![fault]
}

impl Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Mon(n) => write!(f, "mon.{n}"),
            Target::Osd(n) => write!(f, "osd.{n}"),
            Target::Client(n) => write!(f, "client.{n}"),
            Target::Host(n) => write!(f, "host.{n}"),
            Target::Rack(n) => write!(f, "rack.{n}"),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |f: &mut fmt::Formatter<'_>, target: &[Target]| {
            target.iter().try_for_each(|target| write!(f, " {target}"))
        };
        match self {
            Fault::Kill(target) => f.write_str("kill").and_then(|()| all(f, target)),
            Fault::PowerOff(target) => f.write_str("power-off").and_then(|()| all(f, target)),
            Fault::Stop(target) => write!(f, "stop {target}"),
            Fault::Pause(target) => write!(f, "pause {target}"),
            Fault::Resume(target) => write!(f, "resume {target}"),
            Fault::Partition(a, b) => write!(f, "partition {a} {b}"),
            Fault::PartitionOneWay(a, b) => write!(f, "partition-one-way {a} {b}"),
            Fault::Reject(a, b) => write!(f, "reject {a} {b}"),
            Fault::Isolate(target) => write!(f, "isolate {target}"),
            Fault::Upgrade(target) => write!(f, "upgrade {target}"),
            Fault::FinishUpgrade => f.write_str("finish-upgrade"),
            Fault::Heal => f.write_str("heal"),
            Fault::Clock(target, seconds) => write!(f, "clock {target} {seconds}"),
            Fault::Corrupt(osd, blocks) => write!(f, "corrupt osd.{osd} {blocks}"),
            Fault::BadSectors(osd, sectors) => write!(f, "bad-sectors osd.{osd} {sectors}"),
            Fault::SlowDisk(osd, millis) => write!(f, "slow-disk osd.{osd} {millis}"),
            Fault::Out(osd) => write!(f, "out osd.{osd}"),
            Fault::In(osd) => write!(f, "in osd.{osd}"),
            Fault::Purge(osd) => write!(f, "purge osd.{osd}"),
            Fault::AddOsd => f.write_str("add-osd"),
            Fault::AddMon => f.write_str("add-mon"),
            Fault::RemoveMon(mon) => write!(f, "remove-mon mon.{mon}"),
            Fault::Reweight(osd, percent) => write!(f, "reweight osd.{osd} {percent}"),
            Fault::PgNum(pg_num) => write!(f, "pg-num {pg_num}"),
            Fault::CreatePool => f.write_str("create-pool"),
            Fault::Fill(objects) => write!(f, "fill {objects}"),
            Fault::DeleteFill => f.write_str("delete-fill"),
            Fault::CreateSnap => f.write_str("create-snap"),
            Fault::RemoveSnap => f.write_str("remove-snap"),
            Fault::End => f.write_str("end"),
        }
    }
}

impl Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { mons, osds, per_host, per_rack, loss, slow_osd, clock_skew, unreliable, .. } =
            &self.shape;
        let Shape { wal_kib, pg_log_entries, disk_mib, memory_kib, osdmaps, backoff_on_peering, .. } =
            &self.shape;
        let Shape { auth, ticket_ttl, old_release, frames, resets, options, erasure, .. } = &self.shape;
        writeln!(f, "seed {:#x}\nmons {mons}\nosds {osds}\nper-host {per_host}", self.seed)?;
        if *per_rack > 0 {
            writeln!(f, "per-rack {per_rack}")?;
        }
        if *loss > 0 {
            writeln!(f, "loss {loss}")?;
        }
        if let Some(slow_osd) = slow_osd {
            writeln!(f, "slow-osd {slow_osd}")?;
        }
        if *clock_skew > 0 {
            writeln!(f, "clock-skew {clock_skew}")?;
        }
        if let Some(unreliable) = unreliable {
            writeln!(f, "unreliable-disk {unreliable}")?;
        }
        if *wal_kib > 0 {
            writeln!(f, "wal-kib {wal_kib}")?;
        }
        if *pg_log_entries > 0 {
            writeln!(f, "pg-log-entries {pg_log_entries}")?;
        }
        if *disk_mib > 0 {
            writeln!(f, "disk-mib {disk_mib}")?;
        }
        if *memory_kib > 0 {
            writeln!(f, "memory-kib {memory_kib}")?;
        }
        if *osdmaps > 0 {
            writeln!(f, "osdmaps {osdmaps}")?;
        }
        if *backoff_on_peering {
            writeln!(f, "backoff-on-peering 1")?;
        }
        if *erasure {
            writeln!(f, "erasure 1")?;
        }
        if *auth == Auth::None {
            writeln!(f, "auth none")?;
        }
        if *ticket_ttl > 0 {
            writeln!(f, "ticket-ttl {ticket_ttl}")?;
        }
        if *old_release {
            writeln!(f, "old-release 1")?;
        }
        if *frames {
            writeln!(f, "frames 1")?;
        }
        if *resets > 0 {
            writeln!(f, "resets {resets}")?;
        }
        for (name, value) in options {
            writeln!(f, "option {name} {value}")?;
        }
        for (at, fault) in &self.steps {
            writeln!(f, "{:.6} {fault}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

/// A line that is no directive.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a directive of a script")]
pub struct BadLine(String);

impl FromStr for Target {
    type Err = BadLine;
    fn from_str(text: &str) -> Result<Target, BadLine> {
        let bad = || BadLine(text.into());
        let (kind, n) = text.split_once('.').ok_or_else(bad)?;
        let n = n.parse().map_err(|_| bad())?;
        match kind {
            "mon" => Ok(Target::Mon(n)),
            "osd" => Ok(Target::Osd(n)),
            "client" => Ok(Target::Client(n)),
            "host" => Ok(Target::Host(n)),
            "rack" => Ok(Target::Rack(n)),
            _ => Err(bad()),
        }
    }
}

impl FromStr for Fault {
    type Err = BadLine;
    fn from_str(text: &str) -> Result<Fault, BadLine> {
        let bad = || BadLine(text.into());
        let mut words = text.split_whitespace();
        let verb = words.next().ok_or_else(bad)?;
        let mut target = words.collect::<Vec<_>>();
        let amount = target.pop_if(|last| last.parse::<u64>().is_ok()).and_then(|last| last.parse().ok());
        let target = target.into_iter().map(str::parse).collect::<Result<Vec<Target>, BadLine>>()?;
        if let Some(amount) = amount {
            return Ok(match (verb, &target[..]) {
                ("pg-num", []) => Fault::PgNum(amount),
                ("fill", []) => Fault::Fill(amount),
                ("corrupt", [Target::Osd(osd)]) => Fault::Corrupt(*osd, amount),
                ("bad-sectors", [Target::Osd(osd)]) => Fault::BadSectors(*osd, amount),
                ("clock", [target]) => Fault::Clock(*target, amount),
                ("slow-disk", [Target::Osd(osd)]) => Fault::SlowDisk(*osd, amount),
                ("reweight", [Target::Osd(osd)]) => Fault::Reweight(*osd, amount),
                _ => return Err(bad()),
            });
        }
        Ok(match (verb, &target[..]) {
            ("kill", [_, ..]) => Fault::Kill(target),
            ("power-off", [_, ..]) => Fault::PowerOff(target),
            ("stop", [target]) => Fault::Stop(*target),
            ("pause", [target]) => Fault::Pause(*target),
            ("resume", [target]) => Fault::Resume(*target),
            ("partition", [a, b]) => Fault::Partition(*a, *b),
            ("partition-one-way", [a, b]) => Fault::PartitionOneWay(*a, *b),
            ("reject", [a, b]) => Fault::Reject(*a, *b),
            ("isolate", [target]) => Fault::Isolate(*target),
            ("upgrade", [target]) => Fault::Upgrade(*target),
            ("finish-upgrade", []) => Fault::FinishUpgrade,
            ("heal", []) => Fault::Heal,
            ("out", [Target::Osd(osd)]) => Fault::Out(*osd),
            ("in", [Target::Osd(osd)]) => Fault::In(*osd),
            ("purge", [Target::Osd(osd)]) => Fault::Purge(*osd),
            ("add-osd", []) => Fault::AddOsd,
            ("add-mon", []) => Fault::AddMon,
            ("remove-mon", [Target::Mon(mon)]) => Fault::RemoveMon(*mon),
            ("create-pool", []) => Fault::CreatePool,
            ("delete-fill", []) => Fault::DeleteFill,
            ("create-snap", []) => Fault::CreateSnap,
            ("remove-snap", []) => Fault::RemoveSnap,
            ("end", []) => Fault::End,
            _ => return Err(bad()),
        })
    }
}

impl FromStr for Script {
    type Err = BadLine;
    fn from_str(text: &str) -> Result<Script, BadLine> {
        let shape = Shape { mons: 1, osds: 3, per_host: 1, ..Shape::default() };
        let mut script = Script { seed: 1, shape, steps: Vec::new() };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let bad = || BadLine(line.into());
            let (first, rest) = line.split_once(' ').ok_or_else(bad)?;
            if let Ok(at) = first.parse::<f64>() {
                let at = Duration::try_from_secs_f64(at).map_err(|_| bad())?;
                script.steps.push((at, rest.parse()?));
                continue;
            }
            if (first, rest) == ("auth", "none") {
                script.shape.auth = Auth::None;
                continue;
            }
            if first == "option" {
                let (name, value) = rest.split_once(' ').ok_or_else(bad)?;
                script.shape.options.push((name.into(), value.into()));
                continue;
            }
            let hex = rest.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16));
            let number = hex.unwrap_or_else(|| rest.parse()).map_err(|_| bad())?;
            let small = number as usize;
            let shape = &mut script.shape;
            match first {
                "seed" => script.seed = number,
                "mons" => shape.mons = small,
                "osds" => shape.osds = small,
                "per-host" => shape.per_host = small.max(1),
                "per-rack" => shape.per_rack = small,
                "loss" => shape.loss = number,
                "slow-osd" => shape.slow_osd = Some(small),
                "clock-skew" => shape.clock_skew = number as u32,
                "unreliable-disk" => shape.unreliable = Some(small),
                "wal-kib" => shape.wal_kib = number,
                "pg-log-entries" => shape.pg_log_entries = number,
                "disk-mib" => shape.disk_mib = number,
                "memory-kib" => shape.memory_kib = number,
                "osdmaps" => shape.osdmaps = number,
                "backoff-on-peering" => shape.backoff_on_peering = number > 0,
                "erasure" => shape.erasure = number > 0,
                "ticket-ttl" => shape.ticket_ttl = number,
                "old-release" => shape.old_release = number > 0,
                "frames" => shape.frames = number > 0,
                "resets" => shape.resets = number,
                _ => return Err(bad()),
            }
        }
        Ok(script)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_script_parses_back() {
        for seed in 0..200 {
            let script = Script::draw(seed);
            let again: Script = script.to_string().parse().unwrap();
            assert_eq!(again.to_string(), script.to_string());
            assert_eq!(again.shape, script.shape);
        }
        assert!("2.0 kill".parse::<Script>().is_err());
        assert!("2.0 explode osd.1".parse::<Script>().is_err());
        assert!("colour 7".parse::<Script>().is_err());
    }
}
