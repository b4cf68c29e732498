//! One OSD is away during many scattered writes, then all start at once: how much memory that takes.
//!
//! Everything else is well, so this has a workload of its own, which remembers the last write of each block
//! and nothing else: it can go on for as long as there is patience.

use crate::cluster::{Cluster, Content, Seed};
use crate::script::Shape;
use bytes::Bytes;
use nacre_base::{PoolId, Rng};
use nacre_client::{ObjectRequest, RequestId};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::ops::Range;
use std::time::{Duration, Instant};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Away {
    pub seed: u64,
    /// So many while one OSD is away, 4 KiB each, at random places
    pub writes: u64,
    /// of so many objects of 4 MiB.
    pub objects: u64,
    /// In so many groups, each of which remembers its last writes.
    pub groups: u32,
    /// Bytes that each OSD may take; one that holds more ends the run.
    pub memory: usize,
    /// Stores have next to no caches and short logs, so that what they hold does not grow for long.
    pub small_stores: bool,
    /// Tells on stderr how far it is.
    pub tell: bool,
}

/// What it came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwayReport {
    /// The most bytes of memory that each OSD held while it wrote, and since all of them started again. The
    /// last one was away.
    pub writing: Vec<usize>,
    pub restarted: Vec<usize>,
    /// Virtual time from the start of all until a write to each object was answered, and until all was clean.
    pub writable: Duration,
    pub clean: Duration,
    /// Bytes that were brought to members that lacked them, as far as the monitors were told: not what who led a group for
    /// a while did in the half second before it handed it over.
    pub recovered: u64,
    /// The same twice for the same seed.
    pub hash: u64,
}

const OSDS: usize = 3;
/// The one that is away.
const VICTIM: usize = OSDS - 1;
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 1024;
/// Writes that wait for an answer. With many, one flush of a disk is for many of them.
const IN_FLIGHT: usize = 512;
/// Answers are looked for so often.
const LOOK: Duration = Duration::from_micros(200);
/// Of each disk, beside twice what objects may take: room for logs and sorted runs.
const DISK_MIB: u64 = 1 << 10;
/// Bytes of memory, and of log, of a small store.
const SMALL: usize = 1 << 20;
/// Virtual time without an answer, or without anything recovered.
const PATIENCE: Duration = Duration::from_secs(180);
/// Lines on stderr in all.
const LINES: u64 = 20;

impl Away {
    pub fn new(writes: u64) -> Away {
        Away {
            seed: 1,
            writes,
            objects: 256,
            groups: 32,
            memory: 256 << 20,
            small_stores: false,
            tell: false,
        }
    }

    pub fn run(&self) -> Result<AwayReport, String> {
        Run::new(self).all()
    }
}

impl AwayReport {
    /// The most that an OSD held at any time that was never away, and that was.
    pub fn stayed(&self) -> usize {
        self.most(0..VICTIM)
    }
    pub fn returned(&self) -> usize {
        self.most(VICTIM..OSDS)
    }
    fn most(&self, osds: Range<usize>) -> usize {
        self.writing[osds.clone()].iter().chain(&self.restarted[osds]).copied().max().unwrap_or(0)
    }
}

impl Display for AwayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for osd in 0..OSDS {
            let (writing, restarted) = (self.writing[osd] >> 10, self.restarted[osd] >> 10);
            let away = if osd == VICTIM { ", which was away" } else { "" };
            writeln!(f, "osd.{osd}: at most {writing} KiB while clients wrote, {restarted} KiB since{away}")?;
        }
        let (writable, clean) = (self.writable.as_secs_f64(), self.clean.as_secs_f64());
        writeln!(f, "every object written {writable:.1} s after the start, all clean after {clean:.1} s")?;
        write!(f, "{} KiB recovered, trace hash {:016x}", self.recovered >> 10, self.hash)
    }
}

struct Run<'a> {
    away: &'a Away,
    c: Cluster,
    pool: PoolId,
    rng: Rng,
    /// Of each block, the number of its last write; 0: none. Requests on an object are carried out in their order.
    last: Vec<u32>,
    written: u32,
    in_flight: BTreeSet<RequestId>,
    began: Instant,
}

impl Run<'_> {
    fn new(away: &Away) -> Run<'_> {
        let objects_mib = away.objects * ((BLOCKS * BLOCK) >> 20);
        // As in the shell, or as small as stores can be.
        let (store_memory, log) =
            if away.small_stores { (SMALL, SMALL as u64 >> 10) } else { (away.memory / 2, 0) };
        let disk = DISK_MIB + 2 * objects_mib;
        let shape = Shape { mons: 1, osds: OSDS, per_host: 1, disk, log, ..Shape::default() };
        let c = Cluster::with_shape(Seed(away.seed), &shape, 1, false);
        let mut c = c.with_memory(away.memory, store_memory).up();
        let rng = c.world.rng.fork();
        let pool = c.pool("away", away.groups);
        Run {
            away,
            c,
            pool,
            rng,
            last: vec![0; (away.objects * BLOCKS) as usize],
            written: 0,
            in_flight: BTreeSet::new(),
            began: Instant::now(),
        }
    }

    fn all(mut self) -> Result<AwayReport, String> {
        self.touch_all()?;
        self.c.wait_clean()?;
        // Nobody takes the place of who is away, however long that is.
        self.c.command(&json!({ "prefix": "osd set", "key": "noout" }));
        self.c.world.kill(self.c.osds[VICTIM], false);
        let each = (self.away.writes / LINES).max(1);
        for n in 1..=self.away.writes {
            let block = self.rng.below(self.away.objects * BLOCKS);
            self.write(block)?;
            if n.is_multiple_of(each) {
                self.tell(&format!("{n} writes"));
            }
        }
        self.answers(0)?;
        let writing = self.peaks();

        let osds = self.c.osds.clone();
        osds.iter().for_each(|osd| self.c.world.kill(*osd, false));
        osds.iter().for_each(|osd| self.c.start(*osd));
        let started = self.c.world.now;
        self.touch_all()?;
        let writable = self.c.world.now.since(started);
        self.tell("every object written");
        self.wait_clean()?;
        let clean = self.c.world.now.since(started);
        self.tell("all clean");
        // What groups have to tell is with the monitors by then, and nothing is on its way to a disk any more.
        self.c.run_for(Duration::from_secs(10));
        let restarted = self.peaks();
        let recovered = self.recovered();
        self.check()?;
        self.c.check_stores()?;
        self.tell("all checked");
        Ok(AwayReport { writing, restarted, writable, clean, recovered, hash: self.c.world.trace.hash() })
    }

    /// Writes the last block of each object.
    fn touch_all(&mut self) -> Result<(), String> {
        (1..=self.away.objects).try_for_each(|object| self.write(object * BLOCKS - 1))?;
        self.answers(0)
    }

    fn write(&mut self, block: u64) -> Result<(), String> {
        self.answers(IN_FLIGHT - 1)?;
        self.written += 1;
        self.last[block as usize] = self.written;
        let data = Bytes::from(content(self.written));
        let request = ObjectRequest::new(self.pool, name(block / BLOCKS));
        let id = self.c.submit(0, request.write(block % BLOCKS * BLOCK, data));
        self.in_flight.insert(id);
        Ok(())
    }

    /// Until no more than so many wait.
    fn answers(&mut self, wait: usize) -> Result<(), String> {
        let deadline = self.c.world.now + PATIENCE;
        while self.in_flight.len() > wait {
            if self.c.world.now > deadline {
                return Err(format!(
                    "{} writes without an answer in {} s",
                    self.in_flight.len(),
                    PATIENCE.as_secs()
                ));
            }
            self.c.run_for(LOOK);
            for id in self.in_flight.iter().copied().collect::<Vec<_>>() {
                let Some(result) = self.c.take(0, id) else { continue };
                result.map_err(|why| format!("a write failed: {why}"))?;
                self.in_flight.remove(&id);
            }
        }
        Ok(())
    }

    fn wait_clean(&mut self) -> Result<(), String> {
        let (mut deadline, mut recovered) = (self.c.world.now + PATIENCE, 0);
        let mut tell_at = self.c.world.now;
        while !self.c.all_clean() {
            let now = self.recovered();
            if now > recovered {
                (deadline, recovered) = (self.c.world.now + PATIENCE, now);
            }
            if self.c.world.now > deadline {
                let pgs = self.c.command(&json!({ "prefix": "pg ls" }));
                return Err(format!("nothing more is recovered in {} s:\n{pgs}", PATIENCE.as_secs()));
            }
            if self.c.world.now > tell_at {
                self.tell(&format!("{} KiB recovered", recovered >> 10));
                tell_at = self.c.world.now + Duration::from_secs(30);
            }
            self.c.run_for(Duration::from_millis(500));
        }
        Ok(())
    }

    fn recovered(&mut self) -> u64 {
        let groups = self.c.command(&json!({ "prefix": "pg ls", "format": "json" }));
        let groups: Value = serde_json::from_str(&groups).expect("the list is JSON");
        let rows = groups["pg_stats"].as_array().into_iter().flatten();
        rows.filter_map(|row| row["stat_sum"]["num_bytes_recovered"].as_u64()).sum()
    }

    /// Everybody holds the same, and that is what was written last.
    fn check(&self) -> Result<(), String> {
        let objects = self.c.objects(0);
        if objects.len() as u64 != self.away.objects || (1..OSDS).any(|osd| self.c.objects(osd) != objects) {
            return Err("OSDs do not hold the same objects".into());
        }
        let numbers: BTreeMap<String, u64> = (0..self.away.objects).map(|n| (name(n), n)).collect();
        for object in objects {
            let here = self.c.content_of(0, &object);
            for osd in 1..OSDS {
                if self.c.content_of(osd, &object) != here {
                    return Err(format!("{object} differs between osd.0 and osd.{osd}"));
                }
            }
            let Some(Content { data: Ok(data), .. }) = here else {
                return Err(format!("nobody can read {object}"));
            };
            let number =
                numbers.get(&object.name.to_string()).ok_or(format!("{object} was never written"))?;
            let last = &self.last[(number * BLOCKS) as usize..][..BLOCKS as usize];
            if data.len() as u64 != BLOCKS * BLOCK {
                return Err(format!("{object} has {} bytes", data.len()));
            }
            for (n, (block, last)) in data.chunks(BLOCK as usize).zip(last).enumerate() {
                if block != content(*last) {
                    return Err(format!("block {n} of {object} is not what was written last"));
                }
            }
        }
        Ok(())
    }

    fn peaks(&mut self) -> Vec<usize> {
        (0..OSDS).map(|osd| self.c.take_memory_peak(osd)).collect()
    }

    fn tell(&self, what: &str) {
        if !self.away.tell {
            return;
        }
        let peaks = self.c.osds.iter().map(|osd| self.c.world.node(*osd).memory_peak >> 20);
        let peaks = peaks.map(|mib| mib.to_string()).collect::<Vec<_>>().join(", ");
        let (wall, virtual_time) = (self.began.elapsed().as_secs(), self.c.world.now.nanos as f64 / 1e9);
        eprintln!("{wall:>5} s, {virtual_time:>8.1} s of virtual time: {what}; at most {peaks} MiB");
    }
}

fn name(object: u64) -> String {
    format!("rbd_data.1234567890ab.{object:016x}")
}

/// Of the write with that number; zeros for none.
fn content(write: u32) -> Vec<u8> {
    u64::from(write).to_le_bytes().repeat(BLOCK as usize / 8)
}
