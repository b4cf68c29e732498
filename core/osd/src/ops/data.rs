//! Operations on an object's bytes, and on its existence.

use super::draft::Draft;
use super::{OBJECT_SIZE_MAX, OpResult, Stop, fail, ok, output};
use bytes::Bytes;
use nacre_base::errno::{EEXIST, EFBIG, EINVAL, ENOENT};
use nacre_proto::types::Extent;
use nacre_wire::{Encode, to_vec};

/// A comparison that fails at byte `i` is reported as `-(4095 + i)`. Ceph: `MAX_ERRNO`.
const MISMATCH: i32 = 4095;

/// The part of an extent that lies within the object.
fn clipped(draft: &Draft<'_>, extent: &Extent) -> (u64, u64) {
    let mut size = draft.size;
    // The client knows of a truncation that has not arrived here.
    if extent.truncate_seq > draft.info.truncate_seq && size > extent.truncate_size {
        size = extent.truncate_size;
    }
    let len = if extent.len == 0 { u64::MAX } else { extent.len };
    let start = extent.off.min(size);
    (start, len.min(size - start))
}

/// Nothing begins at the limit, be it of no bytes.
pub fn check_range(off: u64, len: u64) -> Result<(), Stop> {
    match off.checked_add(len) {
        Some(end) if off < OBJECT_SIZE_MAX && end <= OBJECT_SIZE_MAX => Ok(()),
        _ => fail(EFBIG),
    }
}

pub fn read(draft: &mut Draft<'_>, extent: &Extent) -> OpResult {
    let (off, len) = clipped(draft, extent);
    output(draft.read(off, len)?)
}

pub fn stat(draft: &mut Draft<'_>) -> OpResult {
    if !draft.exists {
        return fail(ENOENT);
    }
    output(to_vec(&(draft.size, draft.info.mtime)))
}

pub fn map_extents(draft: &mut Draft<'_>, extent: &Extent) -> OpResult {
    output(to_vec(&extents(draft, extent)?))
}

/// Of no bytes there are none: only a plain read takes that for all bytes.
fn extents(draft: &Draft<'_>, extent: &Extent) -> Result<Vec<(u64, u64)>, Stop> {
    let (off, len) = clipped(draft, extent);
    if len == 0 || extent.len == 0 { Ok(Vec::new()) } else { draft.extents(off, len) }
}

pub fn sparse_read(draft: &mut Draft<'_>, extent: &Extent) -> OpResult {
    let extents = extents(draft, extent)?;
    let mut bytes = Vec::new();
    let (mut from, mut need) = (None, Vec::new());
    for &(off, len) in &extents {
        match draft.read(off, len) {
            Ok(part) => bytes.extend_from_slice(&part),
            Err(Stop::Need(source, more)) => {
                from = Some(source);
                need.extend(more);
            }
            Err(stop) => return Err(stop),
        }
    }
    if let Some(source) = from {
        return Err(Stop::Need(source, need));
    }
    let mut out = to_vec(&extents);
    bytes[..].encode(&mut out);
    output(out)
}

pub fn compare(draft: &mut Draft<'_>, off: u64, expected: &Bytes) -> OpResult {
    let end = off.saturating_add(expected.len() as u64);
    let start = off.min(draft.size);
    let have = match draft.read(start, end.min(draft.size) - start) {
        Err(Stop::Failed(_)) => Bytes::new(), // it is new
        have => have?,
    };
    let zeros = std::iter::repeat(&0_u8);
    match have.iter().chain(zeros).zip(expected).position(|(a, b)| a != b) {
        None => ok(),
        Some(at) => Err(Stop::Failed(-MISMATCH - at as i32)),
    }
}

pub fn write(draft: &mut Draft<'_>, extent: &Extent, data: &Bytes) -> OpResult {
    check_range(extent.off, extent.len)?;
    let mut data = data.clone();
    if extent.truncate_seq != 0 && extent.truncate_seq < draft.info.truncate_seq {
        // Sent before a truncation that is already applied here: data beyond the new size is dropped.
        data.truncate(draft.size.saturating_sub(extent.off).min(data.len() as u64) as usize);
    }
    if extent.truncate_seq > draft.info.truncate_seq {
        // Sent after a truncation that has not arrived yet. The kernel's client names the largest number as
        // the size of a file that was never truncated.
        if draft.exists && draft.size > extent.truncate_size {
            draft.truncate(extent.truncate_size);
        }
        draft.touch();
        draft.info.truncate_seq = extent.truncate_seq;
        draft.info.truncate_size = extent.truncate_size;
    }
    if extent.len == 0 && draft.size < extent.off {
        // No data is written, but the object extends to that offset.
        draft.touch();
        draft.truncate(extent.off);
    }
    draft.write(extent.off, data);
    ok()
}

pub fn write_full(draft: &mut Draft<'_>, data: &Bytes) -> OpResult {
    check_range(0, data.len() as u64)?;
    let len = data.len() as u64;
    if draft.exists && draft.size == 0 && len == 0 {
        return ok(); // as it was, and as old
    }
    if draft.size > len {
        draft.truncate(len);
    }
    draft.write(0, data.clone());
    ok()
}

pub fn append(draft: &mut Draft<'_>, data: &Bytes) -> OpResult {
    check_range(draft.size, data.len() as u64)?;
    draft.write(draft.size, data.clone());
    ok()
}

pub fn write_same(draft: &mut Draft<'_>, off: u64, len: u64, data: &Bytes) -> OpResult {
    if len == 0 {
        return ok();
    }
    if data.is_empty() || !len.is_multiple_of(data.len() as u64) {
        return fail(EINVAL);
    }
    draft.rules.check_write(draft, off)?;
    check_range(off, len)?;
    draft.write(off, data.repeat((len / data.len() as u64) as usize).into());
    ok()
}

/// On an object that does not exist this does nothing, and succeeds.
pub fn truncate(draft: &mut Draft<'_>, size: u64, truncate_size: u64, truncate_seq: u32) -> OpResult {
    if !draft.exists {
        return ok();
    }
    check_range(size, 0)?;
    if truncate_seq != 0 {
        if size != truncate_size {
            return fail(EINVAL);
        }
        if truncate_seq <= draft.info.truncate_seq {
            return ok(); // an old one, overtaken
        }
        draft.info.truncate_seq = truncate_seq;
        draft.info.truncate_size = truncate_size;
    }
    draft.truncate(size);
    ok()
}

/// Never grows the object. What is zeroed up to its end is cut off.
pub fn zero(draft: &mut Draft<'_>, off: u64, len: u64) -> OpResult {
    let beyond = draft.exists && (draft.size..OBJECT_SIZE_MAX).contains(&off);
    if beyond && (1..=OBJECT_SIZE_MAX).contains(&len) {
        return ok();
    }
    draft.rules.check_overwrite()?;
    check_range(off, len)?;
    if len == 0 || off >= draft.size {
        return ok();
    }
    if off + len < draft.size {
        draft.zero(off, len);
    } else {
        draft.truncate(off);
    }
    ok()
}

pub fn delete(draft: &mut Draft<'_>) -> OpResult {
    if !draft.exists {
        return fail(ENOENT);
    }
    draft.remove();
    ok()
}

pub fn create(draft: &mut Draft<'_>, exclusive: bool) -> OpResult {
    if draft.exists && exclusive {
        return fail(EEXIST);
    }
    draft.touch();
    ok()
}
