//! Snapshots of images of the first format, whose header is the object's data.
//!
//! ```text
//! text[40] prefix[24] signature[4] version[8] order u8, crypt u8, comp u8, unused u8
//! u64 image size | u64 newest snapshot | u32 count | u32 reserved | u64 length of all names
//! count x { u64 id, u64 image size } | names, each with a zero behind it; newest first
//! ```

use crate::{Context, Reply, Stop, fail, input, ok};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::{EDQUOT, EEXIST, EINVAL, EIO, ENOENT, ESTALE};
use nacre_wire::{Decode, DecodeError, Encode, Reader};

const FIXED_LEN: usize = 40 + 24 + 4 + 8 + 4;
const HEADER_LEN: u64 = FIXED_LEN as u64 + 8 + 8 + 4 + 4 + 8;
/// More than any client makes of snapshots and their names.
const SIZE_MAX: u64 = 16 << 20;

struct Snap {
    id: u64,
    image_size: u64,
    name: Name,
}

struct Header {
    fixed: Vec<u8>,
    image_size: u64,
    seq: u64,
    reserved: u32,
    snaps: Vec<Snap>,
}

impl Header {
    fn decode(r: &mut Reader<'_>) -> Result<Header, DecodeError> {
        let fixed = r.take(FIXED_LEN)?.to_vec();
        let (image_size, seq) = <(u64, u64)>::decode(r)?;
        let (count, reserved) = <(u32, u32)>::decode(r)?;
        let names_len = u64::decode(r)?;
        if u64::from(count).saturating_mul(16).saturating_add(names_len) > r.remaining() as u64 {
            return Err(DecodeError::Short { needed: names_len as usize, left: r.remaining() });
        }
        let ids: Result<Vec<(u64, u64)>, _> = (0..count).map(|_| <(u64, u64)>::decode(r)).collect();
        let mut names = r.take(names_len as usize)?.split(|&byte| byte == 0);
        let snaps: Option<Vec<Snap>> = ids?
            .into_iter()
            .map(|(id, image_size)| Some(Snap { id, image_size, name: Name::copy_from(names.next()?) }))
            .collect();
        let what = "count of snapshot names";
        let snaps = snaps.ok_or(DecodeError::BadValue { what, value: count.into() })?;
        Ok(Header { fixed, image_size, seq, reserved, snaps })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = self.fixed.clone();
        self.image_size.encode(&mut out);
        self.seq.encode(&mut out);
        (self.snaps.len() as u32).encode(&mut out);
        self.reserved.encode(&mut out);
        self.snaps.iter().map(|snap| snap.name.len() as u64 + 1).sum::<u64>().encode(&mut out);
        for snap in &self.snaps {
            (snap.id, snap.image_size).encode(&mut out);
        }
        for snap in &self.snaps {
            out.extend_from_slice(snap.name.as_bytes());
            out.push(0);
        }
        out
    }
}

fn load(ctx: &mut Context<'_>) -> Result<Header, Stop> {
    let bytes = read(ctx)?.ok_or(Stop::Failed(EINVAL))?;
    Header::decode(&mut Reader::new(&bytes)).map_err(|_| Stop::Failed(EINVAL))
}

fn read(ctx: &mut Context<'_>) -> Result<Option<Bytes>, Stop> {
    match ctx.stat() {
        Ok(size) if size >= HEADER_LEN => Ok(Some(ctx.read(0, size.min(SIZE_MAX))?)),
        Ok(_) | Err(Stop::Failed(ENOENT)) => Ok(None),
        Err(stop) => Err(stop),
    }
}

/// How many snapshots there are; None if this is no image of the first format.
pub fn count(ctx: &mut Context<'_>) -> Result<Option<u64>, Stop> {
    let Some(bytes) = read(ctx)? else { return Ok(None) };
    let header = Header::decode(&mut Reader::new(&bytes)).map_err(|_| Stop::Failed(EIO))?;
    Ok(Some(header.snaps.len() as u64))
}

/// Names end at a zero, as C's do.
fn until_zero(name: Name) -> Name {
    match name.as_bytes().iter().position(|&byte| byte == 0) {
        Some(end) => Name::copy_from(&name.as_bytes()[..end]),
        None => name,
    }
}

pub fn list(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let header = load(ctx)?;
    let mut out = Vec::new();
    header.seq.encode(&mut out);
    (header.snaps.len() as u32).encode(&mut out);
    for snap in header.snaps {
        (snap.id, (snap.image_size, snap.name)).encode(&mut out);
    }
    Ok((0, out.into()))
}

pub fn add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let mut header = load(ctx)?;
    let (name, id) = input(bytes, <(Name, u64)>::decode)?;
    let name = until_zero(name);
    if header.seq > id {
        return fail(ESTALE);
    }
    let limit = ctx.get(&Name::from("snap_limit"))?.unwrap_or(u64::MAX);
    if header.snaps.len() as u64 >= limit {
        return fail(EDQUOT);
    }
    if header.snaps.iter().any(|snap| snap.name == name) {
        return fail(EEXIST);
    }
    header.seq = id;
    header.snaps.insert(0, Snap { id, image_size: header.image_size, name });
    ctx.write_full(header.encode())?;
    ok()
}

pub fn remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let mut header = load(ctx)?;
    let name = until_zero(input(bytes, Name::decode)?);
    let at = header.snaps.iter().position(|snap| snap.name == name).ok_or(Stop::Failed(ENOENT))?;
    header.snaps.remove(at);
    ctx.write_full(header.encode())?;
    ok()
}

pub fn rename(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let mut header = load(ctx)?;
    let (id, name) = input(bytes, <(u64, Name)>::decode)?;
    let name = until_zero(name);
    if header.snaps.iter().any(|snap| snap.name == name) {
        return fail(EEXIST);
    }
    let snap = header.snaps.iter_mut().find(|snap| snap.id == id).ok_or(Stop::Failed(ENOENT))?;
    snap.name = name;
    ctx.write_full(header.encode())?;
    ok()
}
