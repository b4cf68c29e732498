//! Which data objects of an image exist: two bits each, in an object's data.
//!
//! ```text
//! u32 14 | envelope { u64 count } | states, four to a byte, first in the high bits
//! | u32 length of what follows | u32 crc of the envelope | u32 blocks | u32 crc of each 4 KiB block of states
//! ```
//! The checksums may be left out, down to their length (zero). `update` touches only the blocks
//! that it changes: the map of a 16 TiB image is a megabyte.

use crate::{Context, Reply, Stop, fail, input, ok};
use bytes::Bytes;
use nacre_base::errno::{EINVAL, ENOENT, ERANGE, ESTALE};
use nacre_wire::{Decode, DecodeError, Encode, Reader, crc32c, to_vec, versioned};

const EXISTS: u8 = 1;
/// Exists, and is unchanged since the last snapshot.
const EXISTS_CLEAN: u8 = 3;

/// Ceph: `MAX_OBJECT_MAP_OBJECT_COUNT`.
const COUNT_MAX: u64 = 256_000_000;
const HEADER_LEN: u64 = 18;
const BLOCK: u64 = 4096;
const PER_BYTE: u64 = 4;
/// Read at first: a small map is all there.
const FIRST_READ: u64 = 32 << 10;

struct ObjectMap {
    count: u64,
    states: Vec<u8>,
}

fn states_len(count: u64) -> u64 {
    count.div_ceil(PER_BYTE)
}

fn shift(object: u64) -> u64 {
    (PER_BYTE - 1 - object % PER_BYTE) * 2
}

/// The state of an object in bytes of which the first holds object `base`.
fn state(states: &[u8], base: u64, object: u64) -> u8 {
    (states[((object - base) / PER_BYTE) as usize] >> shift(object)) & 3
}

fn set_state(states: &mut [u8], base: u64, object: u64, state: u8) {
    let byte = &mut states[((object - base) / PER_BYTE) as usize];
    *byte = *byte & !(3 << shift(object)) | (state & 3) << shift(object);
}

fn envelope(count: u64) -> Vec<u8> {
    let mut out = Vec::new();
    versioned(&mut out, 1, 1, |out| count.encode(out));
    out
}

fn decode_count(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let count = Reader::new(r.bytes()?).versioned("BitVector", 1, |r, _| u64::decode(r))?;
    if count > COUNT_MAX {
        return Err(DecodeError::BadValue { what: "object count", value: count });
    }
    Ok(count)
}

impl ObjectMap {
    fn empty() -> ObjectMap {
        ObjectMap { count: 0, states: Vec::new() }
    }

    fn encode(&self, with_checksums: bool) -> Vec<u8> {
        let header = envelope(self.count);
        let mut out = to_vec(&header[..]);
        out.extend_from_slice(&self.states);
        let mut footer = Vec::new();
        if with_checksums {
            crc32c(0, &header).encode(&mut footer);
            let crcs: Vec<u32> = self.states.chunks(BLOCK as usize).map(|block| crc32c(0, block)).collect();
            crcs.encode(&mut footer);
        }
        footer[..].encode(&mut out);
        out
    }

    fn get(&self, object: u64) -> u8 {
        state(&self.states, 0, object)
    }
    fn set(&mut self, object: u64, state: u8) {
        set_state(&mut self.states, 0, object, state);
    }

    fn save(&self, ctx: &mut Context<'_>) -> Result<(), Stop> {
        ctx.write_full(self.encode(true))
    }
}

impl Decode for ObjectMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let header = crc32c(0, Reader::new(r.rest()).bytes()?);
        let count = decode_count(r)?;
        let states = r.take(states_len(count) as usize)?.to_vec();
        let mut footer = Reader::new(r.bytes()?);
        if !footer.is_empty() {
            let bad =
                |value: u32| DecodeError::BadValue { what: "object map's checksum", value: value.into() };
            let crc = u32::decode(&mut footer)?;
            if crc != header {
                return Err(bad(crc));
            }
            let crcs = Vec::<u32>::decode(&mut footer)?;
            let blocks = states.chunks(BLOCK as usize);
            if crcs.len() != blocks.len() {
                return Err(bad(crcs.len() as u32));
            }
            if let Some((crc, _)) = crcs.iter().zip(blocks).find(|(crc, block)| crc32c(0, block) != **crc) {
                return Err(bad(*crc));
            }
        }
        Ok(ObjectMap { count, states })
    }
}

/// ENOENT for an object without a map as for none.
fn read(ctx: &mut Context<'_>) -> Result<ObjectMap, Stop> {
    let size = ctx.stat()?;
    if size == 0 {
        return fail(ENOENT);
    }
    let bytes = ctx.read(0, size)?;
    input(&bytes, ObjectMap::decode)
}

pub fn load(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    Ok((0, read(ctx)?.encode(false).into()))
}

pub fn save(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    input(bytes, ObjectMap::decode)?.save(ctx)?;
    ok()
}

pub fn resize(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (count, default) = input(bytes, <(u64, u8)>::decode)?;
    if count > COUNT_MAX {
        return fail(EINVAL);
    }
    let mut map = match read(ctx) {
        Err(Stop::Failed(ENOENT)) => ObjectMap::empty(),
        map => map?,
    };
    let before = map.count;
    if (count..before).any(|object| map.get(object) != default) {
        return fail(ESTALE); // an object beyond the new end is still there
    }
    map.states.resize(states_len(count) as usize, 0);
    map.count = count;
    (before..count).for_each(|object| map.set(object, default));
    map.save(ctx)?;
    ok()
}

/// The blocks that hold some objects, as bytes of the states.
fn blocks_of(start: u64, end: u64, count: u64) -> (u64, u64) {
    let from = start / PER_BYTE / BLOCK * BLOCK;
    let to = ((end - 1) / PER_BYTE / BLOCK + 1) * BLOCK;
    (from, to.min(states_len(count)))
}

pub fn update(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let ((start, end), (new, expected)) = input(bytes, <((u64, u64), (u8, Option<u8>))>::decode)?;
    let size = ctx.stat()?;
    ctx.read(0, size.min(FIRST_READ))?; // what follows mostly lies within this
    let count = input(&ctx.read(0, HEADER_LEN)?, decode_count)?;
    if start >= end || end > count {
        return fail(ERANGE);
    }
    let (from, to) = blocks_of(start, end, count);
    let data = ctx.read(HEADER_LEN + from, to - from)?;
    // After the footer's own length, the envelope's checksum and the count of the blocks'.
    let crcs_at = HEADER_LEN + states_len(count) + 12 + from / BLOCK * 4;
    let crcs_len = (to - from).div_ceil(BLOCK) * 4;
    let crcs = ctx.read(crcs_at, crcs_len)?;
    if data.len() as u64 != to - from {
        return fail(EINVAL);
    }
    let sums = |data: &[u8]| -> Vec<u8> {
        data.chunks(BLOCK as usize).flat_map(|block| crc32c(0, block).to_le_bytes()).collect()
    };
    if !crcs.is_empty() && crcs[..] != sums(&data)[..] {
        return fail(EINVAL);
    }
    let base = from * PER_BYTE;
    let mut states = data.to_vec();
    let mut updated = false;
    for object in start..end {
        let have = state(&states, base, object);
        let as_expected = match expected {
            None => true,
            Some(expected) => have == expected || (expected == EXISTS && have == EXISTS_CLEAN),
        };
        if as_expected && have != new {
            set_state(&mut states, base, object, new);
            updated = true;
        }
    }
    if updated {
        let sums = sums(&states);
        ctx.write(HEADER_LEN + from, Bytes::from(states))?;
        ctx.write(crcs_at, sums)?;
    }
    ok()
}

/// A snapshot was made: nothing has changed since.
pub fn snap_add(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    change_all(ctx, |_, have| if have == EXISTS { EXISTS_CLEAN } else { have })
}

/// A snapshot is gone, whose map the client gives: what changed in it, changed since the one
/// before.
pub fn snap_remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let removed = input(bytes, ObjectMap::decode)?;
    change_all(ctx, |object, have| {
        let changed_before = object >= removed.count || removed.get(object) == EXISTS;
        if have == EXISTS_CLEAN && changed_before { EXISTS } else { have }
    })
}

fn change_all(ctx: &mut Context<'_>, next: impl Fn(u64, u8) -> u8) -> Reply {
    let mut map = read(ctx)?;
    let mut updated = false;
    for object in 0..map.count {
        let have = map.get(object);
        let next = next(object, have);
        if next != have {
            map.set(object, next);
            updated = true;
        }
    }
    if updated {
        map.save(ctx)?;
    }
    ok()
}
