//! Measures memory: one OSD is down during many random writes, then all OSDs restart at once.
//!
//! Nothing else fails. The workload remembers only the last write of each block, so that a run may be long.

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

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Outage {
    pub seed: u64,
    /// Writes of 4 KiB at random offsets while one OSD is down.
    pub writes: u64,
    /// Number of objects, of 4 MiB each.
    pub objects: u64,
    /// Number of placement groups, each of which has a log of its own.
    pub pgs: u32,
    /// Bytes of memory that each OSD may use; an OSD that uses more ends the run.
    pub memory: usize,
    /// Stores get next to no caches and short logs, so that their memory reaches its bound early.
    pub small_stores: bool,
    /// Prints progress on stderr.
    pub tell: bool,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutageReport {
    /// Peak memory of each OSD in bytes, during the writes and since the restart. The last OSD was down.
    pub writing: Vec<usize>,
    pub restarted: Vec<usize>,
    /// Virtual time from the restart until each object was written once more, and until all placement groups
    /// were clean.
    pub writable: Duration,
    pub clean: Duration,
    /// Bytes recovered, as reported to the monitors: without what a temporary primary recovered in its last
    /// half second.
    pub recovered: u64,
    /// Equal for runs with equal seeds.
    pub hash: u64,
}

const OSDS: usize = 3;
/// The OSD that is down.
const VICTIM: usize = OSDS - 1;
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 1024;
/// Writes in flight. With many, one flush of a disk serves many of them.
const IN_FLIGHT: usize = 512;
/// Interval between checks of replies.
const LOOK: Duration = Duration::from_micros(200);
/// MiB of each disk beside twice the size of all objects, for the write-ahead log and the sorted runs.
const DISK_MIB: u64 = 1 << 10;
/// Bytes of memory, and of log, of a small store.
const SMALL: usize = 1 << 20;
/// Virtual time without any reply, or without any recovery, after which the run fails.
const PATIENCE: Duration = Duration::from_secs(180);
/// Progress lines in all.
const LINES: u64 = 20;

impl Outage {
    pub fn new(writes: u64) -> Outage {
        Outage { seed: 1, writes, objects: 256, pgs: 32, memory: 256 << 20, small_stores: false, tell: false }
    }

    pub fn run(&self) -> Result<OutageReport, String> {
        Run::new(self).all()
    }
}

impl OutageReport {
    /// The peak memory of the OSDs that stayed up, and of the one that was down.
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

impl Display for OutageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for osd in 0..OSDS {
            let (writing, restarted) = (self.writing[osd] >> 10, self.restarted[osd] >> 10);
            let down = if osd == VICTIM { ", which was down" } else { "" };
            writeln!(f, "osd.{osd}: at most {writing} KiB while clients wrote, {restarted} KiB since{down}")?;
        }
        let (writable, clean) = (self.writable.as_secs_f64(), self.clean.as_secs_f64());
        writeln!(f, "every object written {writable:.1} s after the start, all clean after {clean:.1} s")?;
        write!(f, "{} KiB recovered, trace hash {:016x}", self.recovered >> 10, self.hash)
    }
}

struct Run<'a> {
    outage: &'a Outage,
    c: Cluster,
    pool: PoolId,
    rng: Rng,
    /// Of each block, the number of its last write; 0: none. Requests on one object are executed in order.
    last: Vec<u32>,
    written: u32,
    in_flight: BTreeSet<RequestId>,
    began: Instant,
}

impl Run<'_> {
    fn new(outage: &Outage) -> Run<'_> {
        let objects_mib = outage.objects * ((BLOCKS * BLOCK) >> 20);
        // The shell's share, or as little as a store can use.
        let (store_memory, wal_kib) =
            if outage.small_stores { (SMALL, SMALL as u64 >> 10) } else { (outage.memory / 2, 0) };
        let disk_mib = DISK_MIB + 2 * objects_mib;
        let shape = Shape { mons: 1, osds: OSDS, per_host: 1, disk_mib, wal_kib, ..Shape::default() };
        let c = Cluster::with_shape(Seed(outage.seed), &shape, 1, false);
        let mut c = c.with_memory(outage.memory, store_memory).up();
        let rng = c.world.rng.fork();
        let pool = c.pool("away", outage.pgs);
        Run {
            outage,
            c,
            pool,
            rng,
            last: vec![0; (outage.objects * BLOCKS) as usize],
            written: 0,
            in_flight: BTreeSet::new(),
            began: Instant::now(),
        }
    }

    fn all(mut self) -> Result<OutageReport, String> {
        self.touch_all()?;
        self.c.wait_clean()?;
        // The OSD is not marked out, however long it is down.
        self.c.command(&json!({ "prefix": "osd set", "key": "noout" }));
        self.c.world.kill(self.c.osds[VICTIM], false);
        let each = (self.outage.writes / LINES).max(1);
        for n in 1..=self.outage.writes {
            let block = self.rng.below(self.outage.objects * BLOCKS);
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
        // By then all reports have reached the monitors and all writes are on disk.
        self.c.run_for(Duration::from_secs(10));
        let restarted = self.peaks();
        let recovered = self.recovered();
        self.check()?;
        self.c.check_stores()?;
        self.tell("all checked");
        Ok(OutageReport { writing, restarted, writable, clean, recovered, hash: self.c.world.trace.hash() })
    }

    /// Writes the last block of each object.
    fn touch_all(&mut self) -> Result<(), String> {
        (1..=self.outage.objects).try_for_each(|object| self.write(object * BLOCKS - 1))?;
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

    /// Waits until at most `wait` writes are in flight.
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
                return Err(format!("nothing was recovered in {} s:\n{pgs}", PATIENCE.as_secs()));
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
        let pgs = self.c.command(&json!({ "prefix": "pg ls", "format": "json" }));
        let pgs: Value = serde_json::from_str(&pgs).expect("the list is JSON");
        let rows = pgs["pg_stats"].as_array().into_iter().flatten();
        rows.filter_map(|row| row["stat_sum"]["num_bytes_recovered"].as_u64()).sum()
    }

    /// All OSDs store the same, and each block is as it was written last.
    fn check(&self) -> Result<(), String> {
        let objects = self.c.objects(0);
        if objects.len() as u64 != self.outage.objects || (1..OSDS).any(|osd| self.c.objects(osd) != objects)
        {
            return Err("OSDs do not store the same objects".into());
        }
        let numbers: BTreeMap<String, u64> = (0..self.outage.objects).map(|n| (name(n), n)).collect();
        for (shard, object) in objects {
            let here = self.c.content_of(0, shard, &object);
            for osd in 1..OSDS {
                if self.c.content_of(osd, shard, &object) != here {
                    return Err(format!("{object} differs between osd.0 and osd.{osd}"));
                }
            }
            let Some(Content { data: Ok(data), .. }) = here else {
                return Err(format!("no OSD can read {object}"));
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
        if !self.outage.tell {
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

/// The block that this write writes; zeros for none.
fn content(write: u32) -> Vec<u8> {
    u64::from(write).to_le_bytes().repeat(BLOCK as usize / 8)
}
