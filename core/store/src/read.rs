//! Reading data: the store's thread makes a plan, and any thread carries it out.

use crate::BLOCK;
use crate::aligned::Aligned;
use crate::content::{Content, PatchRange};
use crate::disk::{Disk, DiskError};
use crate::lookup::Found;
use crate::salvaged::{self, BlockState};
use crate::store::Store;
use bytes::Bytes;
use nacre_machine::{ReadError, SalvagedExtents};
use nacre_proto::transaction::StoredId;
use nacre_wire::{crc32c, crc32c_of_blocks};
use std::sync::Arc;

/// Which blocks make up the extents that were asked for. What it refers to is not overwritten as
/// long as it lives, so drop it soon.
#[derive(Debug)]
pub struct ReadPlan {
    id: StoredId,
    extents: Vec<Vec<Piece>>,
    /// What the device itself holds is wanted.
    device: bool,
    /// Keeps the blocks from being reused.
    pin: Arc<()>,
}

/// Blocks that a read brought from the device, verified, for `Store::keep`.
#[derive(Debug)]
pub struct Fetched {
    blocks: Vec<(u32, Bytes)>,
    /// Of each extent the checksum from `u32::MAX`, where that of its blocks says what it is.
    pub sums: Vec<Option<u32>>,
    /// They hold the same as long as this lives.
    _pin: Arc<()>,
}

/// A read of more bytes neither looks into the cache nor leaves anything there: many little reads where one
/// large one does would be slower, and a stream would push out what others come back to.
const CACHED_READ_MAX: usize = 64 << 10;

/// Whether what is asked for is so little that it is looked for in memory first.
pub fn is_small(extents: &[(u64, u64)]) -> bool {
    extents.iter().fold(0, |sum: u64, (_, len)| sum.saturating_add(*len)) <= CACHED_READ_MAX as u64
}

/// A part of one block.
#[derive(Debug)]
struct Piece {
    from: usize,
    to: usize,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Hole,
    /// Not on the device yet.
    MemoryUsage(Bytes),
    /// `at` is the block's position in the object, for the error's text.
    Disk {
        block: u32,
        crc: u32,
        at: u64,
        patches: Vec<PatchRange>,
    },
}

impl ReadPlan {
    /// One result per extent, short or empty where the data ends. Every block is verified whole.
    pub fn run(&self, disk: &(impl Disk + ?Sized)) -> Result<Vec<Bytes>, ReadError> {
        self.run_extents(&mut |reads| self.read_from(disk, reads), None)
    }
    /// Reads some of the plan's blocks.
    pub fn read_from(
        &self,
        disk: &(impl Disk + ?Sized),
        reads: &mut [(u64, &mut [u8])],
    ) -> Result<(), DiskError> {
        match self.device {
            true => reads.iter_mut().try_for_each(|(offset, into)| disk.read_device_at(*offset, into)),
            false => disk.read_many(reads),
        }
    }
    /// What `run` gives, and what of it is worth keeping in memory. The way to read blocks may be another
    /// than the device's own: one that gives what is in a cache and otherwise an error, for instance.
    pub fn run_fetching(
        &self,
        mut read: impl FnMut(&mut [(u64, &mut [u8])]) -> Result<(), DiskError>,
    ) -> Result<(Vec<Bytes>, Fetched), ReadError> {
        let sums = self.extents.iter().map(|pieces| sum(pieces)).collect();
        let mut fetched = Fetched { blocks: Vec::new(), sums, _pin: self.pin.clone() };
        let keeps = if self.is_small() && !self.device { Some(&mut fetched.blocks) } else { None };
        let extents = self.run_extents(&mut read, keeps)?;
        Ok((extents, fetched))
    }
    fn run_extents(
        &self,
        read: &mut impl FnMut(&mut [(u64, &mut [u8])]) -> Result<(), DiskError>,
        mut fetched: Option<&mut Vec<(u32, Bytes)>>,
    ) -> Result<Vec<Bytes>, ReadError> {
        let one = |pieces: &Vec<Piece>| self.run_extent(read, pieces, fetched.as_deref_mut());
        self.extents.iter().map(one).collect()
    }
    /// What it takes from the device: (offset, length), neighbours as one.
    pub fn spans(&self) -> Vec<(u64, usize)> {
        let mut spans: Vec<(u64, usize)> = Vec::new();
        for piece in self.extents.iter().flatten() {
            let Source::Disk { block, .. } = piece.source else { continue };
            let offset = u64::from(block) * BLOCK as u64;
            match spans.last_mut() {
                Some((from, len)) if *from + *len as u64 == offset => *len += BLOCK,
                _ => spans.push((offset, BLOCK)),
            }
        }
        spans
    }
    /// Bytes that `run` gives.
    pub fn len(&self) -> usize {
        self.extents.iter().flatten().map(|piece| piece.to - piece.from).sum()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// So little that it may be read at once, if that takes only memory.
    pub fn is_small(&self) -> bool {
        self.len() <= CACHED_READ_MAX
    }
    /// What the device itself holds is wanted, past all that is kept in memory of it.
    pub fn is_of_device(&self) -> bool {
        self.device
    }
    /// False if all of it is in memory.
    pub fn needs_device(&self) -> bool {
        self.extents.iter().flatten().any(|piece| matches!(piece.source, Source::Disk { .. }))
    }

    /// Gathers whole blocks, and gives of the first and the last what was asked for.
    fn run_extent(
        &self,
        read: &mut impl FnMut(&mut [(u64, &mut [u8])]) -> Result<(), DiskError>,
        pieces: &[Piece],
        fetched: Option<&mut Vec<(u32, Bytes)>>,
    ) -> Result<Bytes, ReadError> {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
            return Ok(Bytes::new());
        };
        if let ([_], Source::MemoryUsage(bytes)) = (pieces, &first.source) {
            return Ok(bytes.slice(first.from..first.to));
        }
        let mut out = Aligned::unwritten(pieces.len() * BLOCK);
        let (mut spans, mut reads) = (Vec::new(), Vec::new());
        let (mut left, mut rest) = (pieces, out.as_mut());
        while let Some(piece) = left.first() {
            let count = match &piece.source {
                Source::Hole | Source::MemoryUsage(_) => 1,
                Source::Disk { block, .. } => {
                    left.iter().zip(*block..).take_while(|(piece, next)| piece.is_on(*next)).count()
                }
            };
            let span = left.split_off(..count).expect("no more than are left");
            let into = rest.split_off_mut(..count * BLOCK).expect("as much room as pieces");
            match &piece.source {
                Source::Hole => into.fill(0),
                Source::MemoryUsage(bytes) => into.copy_from_slice(bytes),
                Source::Disk { block, .. } => {
                    let offset = u64::from(*block) * BLOCK as u64;
                    match span.len() == pieces.len() {
                        true => self.read_span(read, offset, span, into)?, // as nearly always
                        false => {
                            spans.push(span);
                            reads.push((offset, into));
                        }
                    }
                }
            }
        }
        self.read_spans(read, &spans, &mut reads)?;
        let end = (pieces.len() - 1) * BLOCK + last.to;
        let out = Bytes::from_owner(out);
        if let Some(fetched) = fetched {
            let as_on_device = |(at, piece): (usize, &Piece)| match &piece.source {
                Source::Disk { block, patches, .. } if patches.is_empty() => {
                    Some((*block, out.slice(at * BLOCK..(at + 1) * BLOCK)))
                }
                _ => None,
            };
            fetched.extend(pieces.iter().enumerate().filter_map(as_on_device));
        }
        Ok(out.slice(first.from..end))
    }

    /// Several spans of pieces whose blocks are neighbours, together.
    fn read_spans(
        &self,
        read: &mut impl FnMut(&mut [(u64, &mut [u8])]) -> Result<(), DiskError>,
        spans: &[&[Piece]],
        reads: &mut [(u64, &mut [u8])],
    ) -> Result<(), ReadError> {
        if reads.len() > 1 && read(reads).is_ok() {
            return spans.iter().zip(reads).try_for_each(|(span, (_, bytes))| self.verify(span, bytes));
        }
        spans
            .iter()
            .zip(reads)
            .try_for_each(|(span, (offset, into))| self.read_span(read, *offset, span, into))
    }

    /// Pieces of neighbouring blocks, in one read.
    fn read_span(
        &self,
        read: &mut impl FnMut(&mut [(u64, &mut [u8])]) -> Result<(), DiskError>,
        offset: u64,
        pieces: &[Piece],
        into: &mut [u8],
    ) -> Result<(), ReadError> {
        if let Err(error) = read(&mut [(offset, &mut *into)]) {
            // One bad sector fails the whole read: which block it is in is found by halves.
            let half = pieces.len() / 2;
            if half == 0 {
                let [Piece { source: Source::Disk { at, patches, .. }, .. }] = pieces else {
                    unreachable!("a span has only pieces on the device");
                };
                let (id, why) = (self.id.clone(), error.to_string());
                return Err(ReadError::Unreadable { id, block: *at, why, salvaged: in_data(*at, patches) });
            }
            let (left, right) = into.split_at_mut(half * BLOCK);
            self.read_span(read, offset, &pieces[..half], left)?;
            return self.read_span(read, offset + (half * BLOCK) as u64, &pieces[half..], right);
        }
        self.verify(pieces, into)
    }

    /// Each as the device should have it; then what is put over it.
    fn verify(&self, pieces: &[Piece], into: &mut [u8]) -> Result<(), ReadError> {
        for (piece, bytes) in pieces.iter().zip(into.chunks_exact_mut(BLOCK)) {
            let Source::Disk { crc, at, patches, .. } = &piece.source else {
                unreachable!("a span has only pieces on the device");
            };
            match salvaged::look(bytes, *crc) {
                BlockState::Whole => patches.iter().for_each(|range| range.apply(bytes)),
                BlockState::Salvaged(parts) => {
                    let parts = salvaged::joined(parts, patches);
                    let Some(all) = salvaged::whole(&parts) else {
                        let (id, found) = (self.id.clone(), crc32c(u32::MAX, bytes));
                        let salvaged = in_data(*at, &parts);
                        return Err(ReadError::Checksum { id, block: *at, expected: *crc, found, salvaged });
                    };
                    bytes.copy_from_slice(all);
                }
            }
        }
        Ok(())
    }
}

/// Parts of block `at` of an object, by where they are in its data.
fn in_data(at: u64, parts: &[PatchRange]) -> SalvagedExtents {
    let part = |range: &PatchRange| (at * BLOCK as u64 + u64::from(range.at), range.bytes.clone());
    SalvagedExtents(parts.iter().map(part).collect())
}

/// The checksum of all that these pieces hold, if they are whole blocks as they are on the device.
fn sum(pieces: &[Piece]) -> Option<u32> {
    let crc = |piece: &Piece| match &piece.source {
        Source::Disk { crc, patches, .. } if patches.is_empty() && piece.to - piece.from == BLOCK => {
            Some(*crc)
        }
        _ => None,
    };
    Some(crc32c_of_blocks(pieces.iter().map(crc).collect::<Option<Vec<u32>>>()?))
}

impl Piece {
    fn is_on(&self, block: u32) -> bool {
        matches!(self.source, Source::Disk { block: this, .. } if this == block)
    }
}

impl Store {
    /// Plans to read (offset, length) extents of one object's data as it is now, durable or not.
    /// Errors: `NotFound`, or what is known of it cannot be read.
    pub fn plan_read(&self, id: &StoredId, extents: &[(u64, u64)]) -> Result<ReadPlan, ReadError> {
        self.plan_extents(id, extents, false)
    }
    /// The same, past all that is kept in memory of what the device holds.
    pub fn plan_device_read(&self, id: &StoredId, extents: &[(u64, u64)]) -> Result<ReadPlan, ReadError> {
        self.plan_extents(id, extents, true)
    }
    fn plan_extents(
        &self,
        id: &StoredId,
        extents: &[(u64, u64)],
        device: bool,
    ) -> Result<ReadPlan, ReadError> {
        let found = self.find(id)?.ok_or_else(|| ReadError::NotFound(id.clone()))?;
        let object = found.object();
        let block_len = BLOCK as u64;
        let wanted = |&(offset, len): &(u64, u64)| object.size.saturating_sub(offset).min(len);
        let is_small =
            !device && extents.iter().map(wanted).fold(0, u64::saturating_add) <= CACHED_READ_MAX as u64;
        let plan = |&(offset, len): &(u64, u64)| {
            let end = offset.saturating_add(len).min(object.size);
            let mut pieces = Vec::new();
            let mut from = offset;
            while from < end {
                let at = from / block_len;
                let to = end.min((at + 1) * block_len);
                let source = match object.blocks.get(at as u32) {
                    None => Source::Hole,
                    Some(block) => self.source(&found, block, at, is_small),
                };
                let start = at * block_len;
                pieces.push(Piece { from: (from - start) as usize, to: (to - start) as usize, source });
                from = to;
            }
            pieces
        };
        Ok(ReadPlan { id: id.clone(), extents: extents.iter().map(plan).collect(), device, pin: self.pin() })
    }

    fn source(&self, found: &Found, block: u32, at: u64, is_small: bool) -> Source {
        let (block, crc, patches) = match self.pending.get(&block).map(|pending| &pending.content) {
            Some(Content::Whole(bytes)) => return Source::MemoryUsage(bytes.clone()),
            Some(Content::Patch { base, ranges }) => (base.block, base.crc, ranges.clone()),
            None => match found {
                Found::Here(_) => (block, self.blocks.table[block].crc, Vec::new()),
                Found::Stored(loaded) => (block, loaded.crc(at as u32), Vec::new()),
            },
        };
        if is_small && let Some(bytes) = self.cache.borrow_mut().get(block) {
            let mut bytes = bytes.to_vec();
            patches.iter().for_each(|range| range.apply(&mut bytes));
            return Source::MemoryUsage(bytes.into());
        }
        Source::Disk { block, crc, at, patches }
    }

    /// Keeps in memory what a read brought from the device, if it is worth it.
    pub fn keep(&self, fetched: Fetched) {
        let mut cache = self.cache.borrow_mut();
        fetched.blocks.iter().for_each(|(block, bytes)| cache.insert(*block, bytes));
    }
}
