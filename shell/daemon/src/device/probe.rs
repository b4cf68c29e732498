//! Measures a device or file, in bounded time and bytes. What was in the measured part is lost.

use super::verdict::{Claims, Measured, Spread};
use anyhow::{Context, Result, ensure};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const LARGE: usize = 1 << 20;
const DEPTH: usize = 16;
/// Small I/O is spread over at most this much of the device.
const SPAN_MAX: u64 = 4 << 30;
/// Below, there is nothing to measure.
pub const LEN_MIN: u64 = 64 << 20;

/// How long each part may take, and how much may be written in large pieces.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub part: Duration,
    pub stream: Duration,
    pub stream_bytes: u64,
    /// Only zeros are written, so that a blank device is blank whenever the measurement ends, and reads are
    /// spread over all of it. Otherwise what is written cannot be compressed.
    pub zeros: bool,
}

impl Effort {
    pub const FULL: Effort = Effort {
        part: Duration::from_secs(3),
        stream: Duration::from_secs(30),
        stream_bytes: 64 << 30,
        zeros: false,
    };
    /// A few seconds in all: what `osd format` does.
    pub const SHORT: Effort = Effort {
        part: Duration::from_millis(500),
        stream: Duration::from_secs(2),
        stream_bytes: 1 << 30,
        zeros: false,
    };
    /// About a second in all: what `nacre init` and `nacre join` do with each device.
    pub const BRIEF: Effort = Effort {
        part: Duration::from_millis(120),
        stream: Duration::from_millis(400),
        stream_bytes: 256 << 20,
        zeros: true,
    };
}

/// Parts of the time of large writes that are distinguished.
const STREAM_PARTS: u32 = 20;

/// Bytes that begin where a device can take them from.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Filled with what no device can compress.
    fn random(len: usize, seed: u64) -> Aligned {
        let mut rng = nacre_base::Rng::new(seed);
        let bytes: Vec<u8> = (0..(len + BLOCK) / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let start = bytes.as_ptr().align_offset(BLOCK);
        Aligned { bytes, start, len }
    }
    fn of(effort: Effort, len: usize, seed: u64) -> Aligned {
        let mut aligned = Aligned::random(len, seed);
        if effort.zeros {
            aligned.bytes.fill(0);
        }
        aligned
    }
    fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Measures the first `len` bytes of `file`, which is open for reading and writing: of these, it writes to as
/// many as large writes may be. `say` is told what comes next.
pub fn measure(file: &File, len: u64, effort: Effort, mut say: impl FnMut(&str)) -> Result<Measured> {
    ensure!(len >= LEN_MIN, "{len} bytes are too few to measure, the minimum is {LEN_MIN}");
    let direct = go_direct(file)?;
    let mut measured = Measured { direct, claims: claims(file), ..Measured::default() };
    // The rest needs blocks that exist: writing where a file has none makes the file system work.
    say("large writes");
    stream(file, len, effort, &mut measured)?;
    let written = measured.stream_bytes.min(len).min(SPAN_MAX);
    let span = written / BLOCK as u64;
    ensure!(span > 0, "no write completed within the time limit");
    say("flushes");
    measured.flush = flushes(file, span, effort)?;
    say("durable writes, one at a time");
    measured.sync1 = Spread::of(sync_writes(file, span, effort, 1)?);
    say("durable writes, 16 at a time");
    let start = Instant::now();
    let taken = at_depth(file, span, effort)?;
    measured.sync16_rate = (taken.len() as f64 / start.elapsed().as_secs_f64()) as u64;
    measured.sync16 = Spread::of(taken);
    say("reads");
    let is_device = file.metadata()?.file_type().is_block_device();
    let everywhere = if effort.zeros && is_device { len / BLOCK as u64 } else { span };
    measured.read = reads(file, everywhere, effort.part)?;
    Ok(measured)
}

/// False where the file system has none.
fn go_direct(file: &File) -> Result<bool> {
    let flags = fcntl_getfl(file)?;
    match fcntl_setfl(file, flags | OFlags::DIRECT) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(e) => Err(e).context("cannot open it for direct access"),
    }
}

fn write(file: &File, offset: u64, bytes: &[u8], how: ReadWriteFlags) -> Result<()> {
    let written = pwritev2(file, &[IoSlice::new(bytes)], offset, how).context("cannot write")?;
    ensure!(written == bytes.len(), "only {written} of {} bytes were written", bytes.len());
    Ok(())
}

fn stream(file: &File, len: u64, effort: Effort, measured: &mut Measured) -> Result<()> {
    let data = Aligned::of(effort, LARGE, 1);
    let limit = effort.stream_bytes;
    let slots = len / LARGE as u64;
    let (start, part) = (Instant::now(), effort.stream / STREAM_PARTS);
    let (mut part_start, mut part_bytes) = (start, 0_u64);
    while start.elapsed() < effort.stream && measured.stream_bytes < limit {
        let slot = measured.stream_bytes / LARGE as u64 % slots;
        write(file, slot * LARGE as u64, data.get(), ReadWriteFlags::empty())?;
        measured.stream_bytes += LARGE as u64;
        part_bytes += LARGE as u64;
        let took = part_start.elapsed();
        if took >= part {
            measured.stream.push((part_bytes as f64 / took.as_secs_f64()) as u64);
            (part_start, part_bytes) = (Instant::now(), 0);
        }
    }
    file.sync_data().context("cannot flush")?;
    // Until the flush is done the last of it is not written.
    let whole = (measured.stream_bytes as f64 / start.elapsed().as_secs_f64()) as u64;
    if !measured.direct || measured.stream.is_empty() {
        measured.stream = vec![whole];
    }
    Ok(())
}

fn flushes(file: &File, span: u64, effort: Effort) -> Result<Spread> {
    let data = Aligned::of(effort, BLOCK, 2);
    let mut rng = nacre_base::Rng::new(2);
    let (start, mut taken) = (Instant::now(), Vec::new());
    while start.elapsed() < effort.part || taken.is_empty() {
        write(file, rng.below(span) * BLOCK as u64, data.get(), ReadWriteFlags::empty())?;
        let before = Instant::now();
        file.sync_data().context("cannot flush")?;
        taken.push(before.elapsed().as_nanos() as u64);
    }
    Ok(Spread::of(taken))
}

fn sync_writes(file: &File, span: u64, effort: Effort, seed: u64) -> Result<Vec<u64>> {
    let data = Aligned::of(effort, BLOCK, seed);
    let mut rng = nacre_base::Rng::new(seed);
    let (start, mut taken) = (Instant::now(), Vec::new());
    while start.elapsed() < effort.part || taken.is_empty() {
        let before = Instant::now();
        write(file, rng.below(span) * BLOCK as u64, data.get(), ReadWriteFlags::DSYNC)?;
        taken.push(before.elapsed().as_nanos() as u64);
    }
    Ok(taken)
}

fn at_depth(file: &File, span: u64, effort: Effort) -> Result<Vec<u64>> {
    std::thread::scope(|scope| {
        let work = |seed: usize| move || sync_writes(file, span, effort, 100 + seed as u64);
        let workers: Vec<_> = (0..DEPTH).map(|seed| scope.spawn(work(seed))).collect();
        let mut taken = Vec::new();
        for worker in workers {
            taken.extend(worker.join().expect("a worker does not panic")?);
        }
        Ok(taken)
    })
}

fn reads(file: &File, span: u64, time: Duration) -> Result<Spread> {
    let mut into = Aligned::random(BLOCK, 3);
    let mut rng = nacre_base::Rng::new(3);
    let (start, mut taken) = (Instant::now(), Vec::new());
    while start.elapsed() < time || taken.is_empty() {
        let before = Instant::now();
        let offset = rng.below(span) * BLOCK as u64;
        let mut pieces = [IoSliceMut::new(into.get_mut())];
        let read = preadv2(file, &mut pieces, offset, ReadWriteFlags::empty()).context("cannot read")?;
        ensure!(read == BLOCK, "only {read} bytes could be read at {offset}");
        taken.push(before.elapsed().as_nanos() as u64);
    }
    Ok(Spread::of(taken))
}

/// What the kernel knows of the disk that a file or device is on.
pub fn claims(file: &File) -> Claims {
    let Ok(metadata) = file.metadata() else { return Claims::default() };
    let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let Ok(mut path) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
        return Claims::default();
    };
    // A partition has no queue of its own, the disk around it has.
    if !path.join("queue").exists() {
        path.pop();
    }
    let text = |name: &str| fs::read_to_string(path.join(name)).ok().map(|text| text.trim().to_string());
    Claims {
        name: path.file_name().map(|name| name.to_string_lossy().into_owned()),
        model: text("device/model").filter(|model| !model.is_empty()),
        serial: text("serial").or_else(|| text("device/serial")).filter(|serial| !serial.is_empty()),
        rotational: text("queue/rotational").map(|text| text == "1"),
        volatile_cache: text("queue/write_cache").map(|text| text == "write back"),
    }
}
