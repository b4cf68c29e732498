//! What happens to a cluster in one run: its shape, and faults at their times.
//!
//! A script is drawn from a seed before the run, so that faults can be left out of it: `shrink` finds
//! those that a failure needs. As text it is kept with the tests (`tests/it/scripts`):
//!
//! ```text
//! seed 0x1d
//! mons 1
//! osds 3
//! 2.450 kill osd.1
//! 3.100 cut osd.0 osd.2
//! 9.000 end
//! ```

use nacre_base::Rng;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Mon(usize),
    Osd(usize),
    Client(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Processes end at once.
    Kill(Vec<Who>),
    /// Hosts lose power: what was not flushed may be lost, and nobody refuses connections.
    Power(Vec<Who>),
    Stop(Who),
    Pause(Who),
    /// Goes on, or is started again.
    Mend(Who),
    Cut(Who, Who),
    /// Only what the first sends is lost.
    HalfCut(Who, Who),
    /// Something between them refuses sessions in the name of the other one.
    Reject(Who, Who),
    /// All of these end.
    Heal,
    /// So many blocks of an OSD's objects change on its disk, unnoticed.
    Rot(usize, u64),
    /// So many sectors under an OSD's objects cannot be read any more.
    BadSectors(usize, u64),
    /// An OSD's disk takes about so many milliseconds for everything; 0: it is quick again.
    Slow(usize, u64),
    Out(usize),
    In(usize),
    /// An OSD counts so many percent of what it would.
    Reweight(usize, u64),
    /// It gets no data any more, and when all is well again it is removed for good.
    Purge(usize),
    /// One OSD more, on a host of its own or the last one.
    Add,
    /// One monitor more.
    AddMon,
    /// A monitor leaves for good, if the others can go on without it.
    RemoveMon(usize),
    /// The first pool gets that many placement groups, more or fewer.
    Groups(u64),
    Pool,
    /// A snapshot of some pool.
    Snap,
    /// The end of a snapshot.
    RemoveSnap,
    /// So many objects of 64 KiB more, as far as there is room.
    Fill(u64),
    /// All of those are removed.
    Empty,
    End,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    pub mons: usize,
    pub osds: usize,
    /// OSDs on each host.
    pub per_host: usize,
    /// Hosts in each rack; none: no racks.
    pub per_rack: usize,
    /// Of a thousand messages, how many take the time of a retransmission.
    pub loss: u64,
    /// An OSD with a slow disk.
    pub slow: Option<usize>,
    /// Wall clocks differ by up to so many seconds.
    pub skew: u32,
    /// The one OSD whose disk may lose what was durable on it.
    pub frail: Option<usize>,
    /// KiB of log of each OSD's store. A small one makes checkpoints, and things be in their place.
    pub log: u64,
    /// Entries that the log of a group keeps; none: as many as usual.
    pub entries: u64,
    /// MiB of each OSD's disk, if it is small enough to be filled.
    pub disk: u64,
    /// KiB of memory that an OSD may take, if that is little.
    pub memory: u64,
    /// Older maps that daemons keep; none: as many as usual.
    pub maps: u64,
    /// Whether clients keep their requests whenever a group peers; else only if it takes its time.
    pub backoff: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub seed: u64,
    pub shape: Shape,
    /// By time since the work began.
    pub steps: Vec<(Duration, Fault)>,
}

const CLIENTS: usize = 2;
/// With those that were removed.
const MONS_MAX: u64 = 7;
/// KiB of memory that OSDs make do with in some runs.
const MEMORY: [u64; 2] = [6 << 10, 8 << 10];
/// Virtual time of trouble.
const TROUBLE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(45));
const BETWEEN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(1800));

/// What kinds of trouble a seed has, so that each kind is also seen alone.
struct Kinds {
    kill: bool,
    power: bool,
    host: bool,
    pause: bool,
    cut: bool,
    half_cut: bool,
    clean_stop: bool,
    sizes: bool,
    monitor: bool,
    out: bool,
    slow: bool,
    snaps: bool,
}

impl Shape {
    fn draw(rng: &mut Rng) -> Shape {
        // Mostly small, and mostly one monitor: what goes wrong is then easier to read from a trace.
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
        let (loss, slow, skew) = (often(), often(), often());
        Shape {
            mons,
            osds,
            per_host,
            per_rack,
            loss: if loss { rng.below(30) } else { 0 },
            slow: slow.then(|| rng.below(osds as u64) as usize),
            skew: if skew { 1 + rng.below(3600) as u32 } else { 0 },
            frail: rng.chance(400).then(|| rng.below(osds as u64) as usize),
            disk: if osds < 5 && rng.chance(120) { 40 } else { 0 },
            log: if rng.chance(700) { *rng.pick(&[128, 256, 1024]).expect("some") } else { 0 },
            entries: if rng.chance(600) { 3 + rng.below(30) } else { 0 },
            memory: if rng.chance(300) { *rng.pick(&MEMORY).expect("some") } else { 0 },
            maps: if rng.chance(400) { 3 + rng.below(20) } else { 0 },
            backoff: false,
        }
    }
}

impl Script {
    pub fn draw(seed: u64) -> Script {
        let rng = &mut Rng::new(seed ^ 0x5c21_97b0_0000_0000);
        // Drawn for itself: without it a seed's faults are what they were before there were backoffs.
        let backoff = Rng::new(seed ^ 0x0bac_c0ff_0000_0000).chance(350);
        let shape = Shape { backoff, ..Shape::draw(rng) };
        let mut often = || rng.chance(550);
        let kinds = Kinds {
            kill: often(),
            power: often(),
            host: often(),
            pause: often(),
            cut: often(),
            half_cut: often(),
            clean_stop: often(),
            sizes: often(),
            monitor: often(),
            out: often(),
            slow: often(),
            snaps: often(),
        };
        let mut steps = Vec::new();
        let end = rng.duration(TROUBLE.0, TROUBLE.1);
        let mut at = rng.duration(BETWEEN.0, BETWEEN.1);
        while at < end {
            steps.extend(draw_faults(rng, &shape, &kinds).into_iter().map(|fault| (at, fault)));
            at += rng.duration(BETWEEN.0, BETWEEN.1);
        }
        // Drawn for themselves, too.
        let rng = &mut Rng::new(seed ^ 0x0a0d_d0a0_0000_0000);
        if rng.chance(250) {
            steps.extend(draw_monitors(rng, &shape, end));
            steps.sort_by_key(|(at, _)| *at);
        }
        steps.push((end, Fault::End));
        Script { seed, shape, steps }
    }
}

/// Monitors that come and go, and of which some are killed meanwhile.
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
                4 => Fault::Kill(vec![Who::Mon(any)]),
                _ => Fault::Mend(Who::Mon(any)),
            },
        ));
        at += rng.duration(BETWEEN.0, BETWEEN.1 * 3);
    }
    steps
}

/// A fault, or the end of some.
fn draw_faults(rng: &mut Rng, shape: &Shape, kinds: &Kinds) -> Vec<Fault> {
    let osds: Vec<Who> = (0..shape.osds).map(Who::Osd).collect();
    let mut daemons = osds.clone();
    if kinds.monitor {
        daemons.extend((0..shape.mons).map(Who::Mon));
    }
    let victim = *rng.pick(&daemons).expect("there are daemons");
    let other = |rng: &mut Rng| {
        let everyone: Vec<Who> = daemons
            .iter()
            .copied()
            .chain((0..CLIENTS).map(Who::Client))
            .filter(|who| *who != victim)
            .collect();
        *rng.pick(&everyone).expect("there are others")
    };
    let any_osd = |rng: &mut Rng| rng.below(shape.osds as u64) as usize;
    let fault = match rng.below(26) {
        0 if kinds.kill => Fault::Kill(vec![victim]),
        1 if kinds.power => Fault::Power(vec![victim]),
        2 if kinds.pause => Fault::Pause(victim),
        3 if kinds.cut => Fault::Cut(victim, other(rng)),
        4 if kinds.half_cut => match (victim, other(rng)) {
            (a, b) if rng.chance(500) => Fault::HalfCut(b, a),
            (a, b) => Fault::HalfCut(a, b),
        },
        22 if kinds.cut => Fault::Reject(victim, other(rng)),
        5 if kinds.clean_stop => Fault::Stop(victim),
        // Everything at once.
        6 if (kinds.kill || kinds.power) && rng.chance(200) => match kinds.power {
            true => Fault::Power(daemons),
            false => Fault::Kill(daemons),
        },
        7 if kinds.host => {
            let racks = shape.per_rack > 0 && rng.chance(500);
            let size = shape.per_host * if racks { shape.per_rack } else { 1 };
            let first = rng.below(shape.osds.div_ceil(size) as u64) as usize * size;
            Fault::Power((first..shape.osds.min(first + size)).map(Who::Osd).collect())
        }
        8 if kinds.sizes && rng.chance(500) => Fault::Groups(1 + rng.below(11)),
        9 if kinds.sizes && rng.chance(150) => Fault::Pool,
        10 if kinds.out && rng.chance(400) => Fault::Reweight(any_osd(rng), 10 + rng.below(91)),
        10 if kinds.out => Fault::Out(any_osd(rng)),
        11 if kinds.out => Fault::In(any_osd(rng)),
        24 if kinds.out && rng.chance(400) => Fault::Add,
        25 if kinds.out => Fault::Purge(any_osd(rng)),
        12 | 13 => Fault::Heal,
        14 | 15 if let Some(frail) = shape.frail => match rng.chance(500) {
            true => Fault::Rot(frail, 1 + rng.below(4)),
            false => Fault::BadSectors(frail, 1 + rng.below(4)),
        },
        17 | 18 if kinds.snaps => Fault::Snap,
        // While one is made the others wait, and go into one batch of the monitors.
        19 if kinds.snaps && rng.chance(500) => return vec![Fault::Snap, Fault::RemoveSnap, Fault::Snap],
        19 if kinds.snaps => Fault::RemoveSnap,
        20 | 21 if shape.disk > 0 && rng.chance(250) => Fault::Empty,
        20 | 21 if shape.disk > 0 => Fault::Fill(100 + rng.below(800)),
        16 if kinds.slow => Fault::Slow(any_osd(rng), *rng.pick(&[0, 20, 200, 2000]).expect("some")),
        _ => return daemons.into_iter().filter(|_| rng.chance(600)).map(Fault::Mend).collect(),
    };
    vec![fault]
}

impl Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Mon(n) => write!(f, "mon.{n}"),
            Who::Osd(n) => write!(f, "osd.{n}"),
            Who::Client(n) => write!(f, "client.{n}"),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all =
            |f: &mut fmt::Formatter<'_>, who: &[Who]| who.iter().try_for_each(|who| write!(f, " {who}"));
        match self {
            Fault::Kill(who) => f.write_str("kill").and_then(|()| all(f, who)),
            Fault::Power(who) => f.write_str("power").and_then(|()| all(f, who)),
            Fault::Stop(who) => write!(f, "stop {who}"),
            Fault::Pause(who) => write!(f, "pause {who}"),
            Fault::Mend(who) => write!(f, "mend {who}"),
            Fault::Cut(a, b) => write!(f, "cut {a} {b}"),
            Fault::HalfCut(a, b) => write!(f, "half-cut {a} {b}"),
            Fault::Reject(a, b) => write!(f, "reject {a} {b}"),
            Fault::Heal => f.write_str("heal"),
            Fault::Rot(osd, blocks) => write!(f, "rot osd.{osd} {blocks}"),
            Fault::BadSectors(osd, sectors) => write!(f, "bad-sectors osd.{osd} {sectors}"),
            Fault::Slow(osd, millis) => write!(f, "slow osd.{osd} {millis}"),
            Fault::Out(osd) => write!(f, "out osd.{osd}"),
            Fault::In(osd) => write!(f, "in osd.{osd}"),
            Fault::Purge(osd) => write!(f, "purge osd.{osd}"),
            Fault::Add => f.write_str("add"),
            Fault::AddMon => f.write_str("add-mon"),
            Fault::RemoveMon(mon) => write!(f, "remove mon.{mon}"),
            Fault::Reweight(osd, percent) => write!(f, "reweight osd.{osd} {percent}"),
            Fault::Groups(pg_num) => write!(f, "groups {pg_num}"),
            Fault::Pool => f.write_str("pool"),
            Fault::Fill(objects) => write!(f, "fill {objects}"),
            Fault::Empty => f.write_str("empty"),
            Fault::Snap => f.write_str("snap"),
            Fault::RemoveSnap => f.write_str("remove-snap"),
            Fault::End => f.write_str("end"),
        }
    }
}

impl Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { mons, osds, per_host, per_rack, loss, slow, skew, frail, .. } = &self.shape;
        let Shape { log, entries, disk, memory, maps, backoff, .. } = &self.shape;
        writeln!(f, "seed {:#x}\nmons {mons}\nosds {osds}\nper-host {per_host}", self.seed)?;
        if *per_rack > 0 {
            writeln!(f, "per-rack {per_rack}")?;
        }
        if *loss > 0 {
            writeln!(f, "loss {loss}")?;
        }
        if let Some(slow) = slow {
            writeln!(f, "slow {slow}")?;
        }
        if *skew > 0 {
            writeln!(f, "skew {skew}")?;
        }
        if let Some(frail) = frail {
            writeln!(f, "frail {frail}")?;
        }
        if *log > 0 {
            writeln!(f, "log {log}")?;
        }
        if *entries > 0 {
            writeln!(f, "entries {entries}")?;
        }
        if *disk > 0 {
            writeln!(f, "disk {disk}")?;
        }
        if *memory > 0 {
            writeln!(f, "memory {memory}")?;
        }
        if *maps > 0 {
            writeln!(f, "maps {maps}")?;
        }
        if *backoff {
            writeln!(f, "backoff 1")?;
        }
        for (at, fault) in &self.steps {
            writeln!(f, "{:.6} {fault}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

/// A line that says nothing known.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no line of a script")]
pub struct BadLine(String);

impl FromStr for Who {
    type Err = BadLine;
    fn from_str(text: &str) -> Result<Who, BadLine> {
        let bad = || BadLine(text.into());
        let (kind, n) = text.split_once('.').ok_or_else(bad)?;
        let n = n.parse().map_err(|_| bad())?;
        match kind {
            "mon" => Ok(Who::Mon(n)),
            "osd" => Ok(Who::Osd(n)),
            "client" => Ok(Who::Client(n)),
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
        let mut who = words.collect::<Vec<_>>();
        let amount = who.pop_if(|last| last.parse::<u64>().is_ok()).and_then(|last| last.parse().ok());
        let who = who.into_iter().map(str::parse).collect::<Result<Vec<Who>, BadLine>>()?;
        if let Some(amount) = amount {
            return Ok(match (verb, &who[..]) {
                ("groups", []) => Fault::Groups(amount),
                ("fill", []) => Fault::Fill(amount),
                ("rot", [Who::Osd(osd)]) => Fault::Rot(*osd, amount),
                ("bad-sectors", [Who::Osd(osd)]) => Fault::BadSectors(*osd, amount),
                ("slow", [Who::Osd(osd)]) => Fault::Slow(*osd, amount),
                ("reweight", [Who::Osd(osd)]) => Fault::Reweight(*osd, amount),
                _ => return Err(bad()),
            });
        }
        Ok(match (verb, &who[..]) {
            ("kill", [_, ..]) => Fault::Kill(who),
            ("power", [_, ..]) => Fault::Power(who),
            ("stop", [who]) => Fault::Stop(*who),
            ("pause", [who]) => Fault::Pause(*who),
            ("mend", [who]) => Fault::Mend(*who),
            ("cut", [a, b]) => Fault::Cut(*a, *b),
            ("half-cut", [a, b]) => Fault::HalfCut(*a, *b),
            ("reject", [a, b]) => Fault::Reject(*a, *b),
            ("heal", []) => Fault::Heal,
            ("out", [Who::Osd(osd)]) => Fault::Out(*osd),
            ("in", [Who::Osd(osd)]) => Fault::In(*osd),
            ("purge", [Who::Osd(osd)]) => Fault::Purge(*osd),
            ("add", []) => Fault::Add,
            ("add-mon", []) => Fault::AddMon,
            ("remove", [Who::Mon(mon)]) => Fault::RemoveMon(*mon),
            ("pool", []) => Fault::Pool,
            ("empty", []) => Fault::Empty,
            ("snap", []) => Fault::Snap,
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
                "slow" => shape.slow = Some(small),
                "skew" => shape.skew = number as u32,
                "frail" => shape.frail = Some(small),
                "log" => shape.log = number,
                "entries" => shape.entries = number,
                "disk" => shape.disk = number,
                "memory" => shape.memory = number,
                "maps" => shape.maps = number,
                "backoff" => shape.backoff = number > 0,
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
    fn a_script_reads_as_it_is_written() {
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
