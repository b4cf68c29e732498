//! Disks in memory, for tests and for the simulator.

use crate::BLOCK;
use crate::disk::{Disk, DiskError};
use crate::format::{ChunkHeader, Superblock};
use crate::runs;
use crate::runs::directory::Directory;
use crate::store::Store;
use nacre_base::Rng;
use nacre_proto::transaction::StoredId;
use nacre_wire::{crc32c, from_slice, to_vec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// A device of this many bytes that keeps nothing, for counting what comes before it.
#[derive(Debug)]
pub struct Sink(pub u64);

impl Disk for Sink {
    fn read_at(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
        into.fill(0);
        Ok(())
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DiskError> {
        Ok(())
    }
    fn flush(&self) -> Result<(), DiskError> {
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0
    }
}

/// A block of an object's data.
#[derive(Debug)]
pub struct DataBlock {
    pub id: StoredId,
    /// In the object, in blocks.
    pub at: u64,
    /// On the device, in bytes.
    pub offset: u64,
}

/// Where objects' data is: for tests that damage some.
pub fn data_blocks(store: &Store) -> Vec<DataBlock> {
    let mut all = Vec::new();
    for id in store.ids().filter_map(Result::ok) {
        let (Some(_), Ok(Some(found))) = (id.as_object(), store.find(&id)) else { continue };
        all.extend(found.object().blocks.iter().map(|(at, block)| DataBlock {
            id: id.clone(),
            at: at.into(),
            offset: u64::from(block) * BLOCK as u64,
        }));
    }
    all
}

/// Where pages of metadata are on the device, in bytes: the same, for those.
pub fn metadata_blocks(store: &Store) -> Vec<u64> {
    let extents = store.runs.iter().flat_map(|run| run.extents.iter());
    extents.flat_map(|extent| extent.blocks()).map(|block| u64::from(block) * BLOCK as u64).collect()
}

/// Puts the checksums of a checkpoint's pages right, for tests that change what is in them.
pub fn seal_pages(disk: &impl Disk) -> Option<()> {
    let mut block = vec![0; BLOCK];
    disk.read_at(0, &mut block).ok()?;
    let superblock = Superblock::decode(&block).ok()?;
    for named in superblock.runs {
        let (payload, extents) = runs::read_chunks(disk, &superblock.geometry, named).ok()?;
        let mut directory: Directory = from_slice(&payload).ok()?;
        let (run, _) = runs::open(disk, &superblock.geometry, named).ok()?;
        for page in 0..run.fences.len() {
            let bytes = run.read_page_as_it_is(page, disk).ok()?;
            directory.fences.set_crc(page, crc32c(u32::MAX, bytes.as_ref()));
        }
        let mut chunk = vec![0; named.last_chunk.len as usize * BLOCK];
        let [extent] = extents[..] else { return None };
        disk.read_at(u64::from(extent.start) * BLOCK as u64, &mut chunk).ok()?;
        let (header, _) = ChunkHeader::decode(&chunk)?;
        let chunk = header.encode(&to_vec(&directory), extent);
        disk.write_at(u64::from(extent.start) * BLOCK as u64, &chunk).ok()?;
    }
    Some(())
}

/// What a drive writes whole or not at all.
const SECTOR: usize = 512;

/// A sparse disk in memory that behaves like a drive with a volatile cache: what was not flushed
/// may be lost, sector by sector, when the power goes.
#[derive(Debug)]
pub struct SimDisk {
    len: u64,
    state: Mutex<State>,
    power: Arc<Mutex<Power>>,
    /// One that is for a store's log. What a crash keeps of it has nothing to do with what it keeps of this.
    log: Option<Box<SimDisk>>,
}

/// Of a disk, and of the one for its log.
#[derive(Debug, Default)]
struct Power {
    /// Calls that still succeed before the one in which the power goes.
    fuse: Option<u64>,
    is_gone: bool,
    calls: u64,
}

/// How it is when something is written.
#[derive(PartialEq, Eq)]
enum Burnt {
    Powered,
    /// The power goes just now.
    Going,
    Gone,
}

/// What a block holds. One that is the same eight bytes over and over takes no more than these: what a long
/// run writes would not fit into memory otherwise.
#[derive(Clone, Debug)]
enum BlockContent {
    Same([u8; 8]),
    Bytes(Box<[u8; BLOCK]>),
}

#[derive(Debug)]
struct State {
    /// What reads see of each block.
    now: BTreeMap<u64, BlockContent>,
    /// For each block written since the last flush: all that any sector of it may be after a crash, from what
    /// was durable to just before what it is now.
    unflushed: BTreeMap<u64, Vec<BlockContent>>,
    /// Sectors that cannot be read before they are written again.
    broken: BTreeSet<u64>,
    rng: Rng,
}

impl SimDisk {
    /// `seed` decides what a crash keeps.
    pub fn new(len: u64, seed: u64) -> SimDisk {
        let state = State {
            now: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            broken: BTreeSet::new(),
            rng: Rng::new(seed),
        };
        let len = len / BLOCK as u64 * BLOCK as u64;
        SimDisk { len, state: Mutex::new(state), power: Arc::default(), log: None }
    }
    /// With another one for a log.
    pub fn with_log(self, len: u64, seed: u64) -> SimDisk {
        let log = SimDisk { power: self.power.clone(), ..SimDisk::new(len, seed) };
        SimDisk { log: Some(Box::new(log)), ..self }
    }
    /// The power goes and comes back: each sector written since the last flush is what it was, what
    /// it became, or anything that was written to it in between.
    pub fn crash(&self) {
        (self.power().fuse, self.power().is_gone) = (None, false);
        if let Some(log) = &self.log {
            log.crash();
        }
        let state = &mut *self.state();
        // Not always half of them: also (nearly) nothing and (nearly) everything survives.
        let kept = [0, 30, 500, 970, 1000][state.rng.below(5) as usize];
        for (block, versions) in std::mem::take(&mut state.unflushed) {
            let mut now = state.get(block).bytes();
            for at in (0..BLOCK).step_by(SECTOR) {
                if !state.rng.chance(kept) {
                    let version = state.rng.pick(&versions).expect("there is one at least");
                    now[at..at + SECTOR].copy_from_slice(&version.bytes()[at..at + SECTOR]);
                }
            }
            state.put(block, BlockContent::new(&now));
        }
    }
    /// The power goes after this many more writes and flushes; the one in which it goes may be
    /// carried out in part. Every call fails from then on, until `crash`.
    pub fn lose_power_after(&self, calls: u64) {
        self.power().fuse = Some(calls);
    }
    pub fn is_powered(&self) -> bool {
        !self.power().is_gone
    }
    /// Writes and flushes so far.
    pub fn calls(&self) -> u64 {
        self.power().calls
    }
    /// Changes one byte, durably and unnoticed.
    pub fn corrupt(&self, offset: u64) {
        let state = &mut *self.state();
        let block = offset / BLOCK as u64;
        let mut bytes = state.get(block).bytes();
        bytes[offset as usize % BLOCK] ^= 0x40;
        state.put(block, BlockContent::new(&bytes));
    }

    /// The sector there cannot be read until something is written to it.
    pub fn break_sector(&self, offset: u64) {
        self.state().broken.insert(offset / SECTOR as u64);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no one panics with the lock content")
    }
    fn power(&self) -> MutexGuard<'_, Power> {
        self.power.lock().expect("no one panics with the lock content")
    }
    fn check_range(&self, op: &'static str, offset: u64, len: usize) -> Result<(), DiskError> {
        assert!(offset.is_multiple_of(BLOCK as u64) && len.is_multiple_of(BLOCK), "{op} is not aligned");
        if offset + len as u64 > self.len {
            return Err(DiskError { op, offset, len: len as u64, why: "past the end".into() });
        }
        Ok(())
    }
}

impl BlockContent {
    const NOTHING: BlockContent = BlockContent::Same([0; 8]);

    fn new(bytes: &[u8; BLOCK]) -> BlockContent {
        match bytes.first_chunk() {
            Some(first) if bytes[8..] == bytes[..BLOCK - 8] => BlockContent::Same(*first),
            _ => BlockContent::Bytes(Box::new(*bytes)),
        }
    }
    fn bytes(&self) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        self.copy_to(&mut bytes);
        bytes
    }
    fn copy_to(&self, into: &mut [u8]) {
        match self {
            BlockContent::Same(same) => {
                into.chunks_exact_mut(same.len()).for_each(|part| part.copy_from_slice(same))
            }
            BlockContent::Bytes(bytes) => into.copy_from_slice(&bytes[..]),
        }
    }
}

impl State {
    fn get(&self, block: u64) -> &BlockContent {
        self.now.get(&block).unwrap_or(&BlockContent::NOTHING)
    }
    /// Gives what it was.
    fn put(&mut self, block: u64, content: BlockContent) -> BlockContent {
        self.now.insert(block, content).unwrap_or(BlockContent::NOTHING)
    }
}

impl Power {
    fn burn(&mut self) -> Burnt {
        self.calls += 1;
        match &mut self.fuse {
            _ if self.is_gone => return Burnt::Gone,
            Some(0) => {
                self.is_gone = true;
                return Burnt::Going;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        Burnt::Powered
    }
}

fn no_power(op: &'static str, offset: u64, len: usize) -> DiskError {
    DiskError { op, offset, len: len as u64, why: "the power is gone".into() }
}

impl Disk for SimDisk {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.check_range("read", offset, into.len())?;
        if !self.is_powered() {
            return Err(no_power("read", offset, into.len()));
        }
        let state = self.state();
        let sectors = offset / SECTOR as u64..(offset + into.len() as u64) / SECTOR as u64;
        if let Some(bad) = state.broken.range(sectors).next() {
            let why = format!("sector {bad} is bad");
            return Err(DiskError { op: "read", offset, len: into.len() as u64, why });
        }
        for (block, part) in (offset / BLOCK as u64..).zip(into.chunks_exact_mut(BLOCK)) {
            state.get(block).copy_to(part);
        }
        Ok(())
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.check_range("write", offset, bytes.len())?;
        // The write in which the power goes still reaches the cache, and a part of it the medium.
        let burnt = self.power().burn();
        if burnt == Burnt::Gone {
            return Err(no_power("write", offset, bytes.len()));
        }
        let state = &mut *self.state();
        for (block, part) in (offset / BLOCK as u64..).zip(bytes.chunks_exact(BLOCK)) {
            let old = state.put(block, BlockContent::new(part.try_into().expect("a whole block")));
            state.unflushed.entry(block).or_default().push(old);
        }
        if !state.broken.is_empty() {
            let sectors = offset / SECTOR as u64..(offset + bytes.len() as u64) / SECTOR as u64;
            state.broken.retain(|sector| !sectors.contains(sector));
        }
        if burnt == Burnt::Powered { Ok(()) } else { Err(no_power("write", offset, bytes.len())) }
    }
    fn flush(&self) -> Result<(), DiskError> {
        if self.power().burn() != Burnt::Powered {
            return Err(no_power("flush", 0, 0));
        }
        self.state().unflushed.clear();
        Ok(())
    }
    /// At once, durably, and so that a use of it afterwards is noticed.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_range("discard", offset, len as usize)?;
        if self.power().burn() != Burnt::Powered {
            return Err(no_power("discard", offset, len as usize));
        }
        let state = &mut *self.state();
        for block in offset / BLOCK as u64..(offset + len) / BLOCK as u64 {
            state.unflushed.remove(&block);
            state.put(block, BlockContent::Same([0xdd; 8]));
        }
        Ok(())
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn log(&self) -> Option<&dyn Disk> {
        self.log.as_deref().map(|log| log as &dyn Disk)
    }
}
