//! A store as a stream: everything in it, independent of the layout on the device.
//!
//! `docs/formats/export.md` draws the format. `export` writes it and `Import` reads it into a store; the
//! caller reads and writes files. Damage is preserved: an OSD that took a damaged object for a deleted one
//! would tell clients so, although other members have it.

use crate::BLOCK;
use crate::disk::Disk;
use crate::store::Store;
use bytes::Bytes;
use nacre_base::Name;
use nacre_machine::{ReadError, SalvagedExtents, StoreView, given_up};
use nacre_proto::transaction::StoredId;
use nacre_wire::{Decode, DecodeError, Encode, Reader, crc32c};
use std::collections::BTreeMap;
use std::ops::Range;

pub(crate) const MAGIC: [u8; 8] = *b"NacreExp";
/// Since 2 it says which blocks are damaged, and whether the store had losses. An import reads 1 as well.
pub(crate) const VERSION: u32 = 3;
/// Magic, version, and the id of the store that was exported.
pub const EXPORT_HEADER: usize = 8 + 4 + 16;
/// Length and checksum of a record.
pub const RECORD_HEADER: usize = 8;
/// A record holds one value of an omap at least, which is as large as a client's write may be.
pub(crate) const RECORD_MAX: u32 = 128 << 20;
/// Data and omaps are cut into records of about this many bytes.
const PIECE: usize = 1 << 20;

/// One piece of an export. All but `Thing` and `End` belong to the last `Thing`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Object {
        id: StoredId,
        size: u64,
    },
    Attrs(BTreeMap<Name, Bytes>),
    OmapHeader(Bytes),
    Omap(BTreeMap<Name, Bytes>),
    Data {
        offset: u64,
        data: Bytes,
    },
    /// It could not be read, apart from its data.
    Damaged,
    End {
        objects: u64,
        /// How often the store lost what it had acknowledged; also if it could not list all that it has.
        losses: u64,
    },
    /// This block of its data could not be read, except for what is salvaged of it.
    BadBlock {
        block: u64,
        salvaged: SalvagedExtents,
    },
}

impl Record {
    fn frame(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; RECORD_HEADER]);
        match self {
            Record::Object { id, size } => {
                out.push(1);
                id.encode(out);
                size.encode(out);
            }
            Record::Attrs(pairs) => {
                out.push(2);
                pairs.encode(out);
            }
            Record::OmapHeader(header) => {
                out.push(3);
                header.encode(out);
            }
            Record::Omap(pairs) => {
                out.push(4);
                pairs.encode(out);
            }
            Record::Data { offset, data } => {
                out.push(5);
                offset.encode(out);
                data.encode(out);
            }
            Record::Damaged => out.push(6),
            Record::End { objects, losses } => {
                out.push(7);
                (*objects, *losses).encode(out);
            }
            Record::BadBlock { block, salvaged } => {
                out.push(8);
                block.encode(out);
                salvaged.0.encode(out);
            }
        }
        let payload = &out[start + RECORD_HEADER..];
        let (len, crc) = (payload.len() as u32, crc32c(u32::MAX, payload));
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        out[start + 4..start + RECORD_HEADER].copy_from_slice(&crc.to_le_bytes());
    }

    pub(crate) fn decode(payload: &[u8], version: u32) -> Result<Record, DecodeError> {
        let mut r = Reader::new(payload);
        let record = match u8::decode(&mut r)? {
            1 => Record::Object { id: Decode::decode(&mut r)?, size: Decode::decode(&mut r)? },
            2 => Record::Attrs(Decode::decode(&mut r)?),
            3 => Record::OmapHeader(Decode::decode(&mut r)?),
            4 => Record::Omap(Decode::decode(&mut r)?),
            5 => Record::Data { offset: Decode::decode(&mut r)?, data: Decode::decode(&mut r)? },
            6 => Record::Damaged,
            7 => Record::End {
                objects: Decode::decode(&mut r)?,
                losses: if version < 2 { 0 } else { Decode::decode(&mut r)? },
            },
            8 if version >= 2 => Record::BadBlock {
                block: Decode::decode(&mut r)?,
                salvaged: SalvagedExtents(Decode::decode(&mut r)?),
            },
            value => {
                return Err(DecodeError::BadValue { what: "kind of export record", value: value.into() });
            }
        };
        r.finish()?;
        Ok(record)
    }
}

/// What could not be read.
pub type Damage = Vec<(StoredId, ReadError)>;

/// Writes everything that `wanted` picks to `sink`, in pieces; stops at the first error of the sink.
/// What cannot be read is marked as such, and returned here.
pub fn export<E>(
    store: &Store,
    disk: &(impl Disk + ?Sized),
    wanted: impl Fn(&StoredId) -> bool,
    mut sink: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(u64, Damage), E> {
    let mut out = Vec::with_capacity(2 * PIECE);
    out.extend(MAGIC);
    VERSION.encode(&mut out);
    out.extend(store.uuid());
    let (mut objects, mut losses, mut damage) = (0, store.losses, Damage::new());
    for id in store.ids() {
        let id = match &id {
            // That is about the store, and not of what is in it.
            Ok(id) if *id == given_up() => continue,
            Ok(id) if wanted(id) => id,
            Ok(_) => continue,
            Err(error) => {
                damage.push((StoredId::meta("a page of metadata"), error.clone()));
                losses = store.losses + 1;
                continue;
            }
        };
        let mut put = |record: Record| {
            record.frame(&mut out);
            if out.len() >= PIECE {
                sink(&out)?;
                out.clear();
            }
            Ok(())
        };
        objects += 1;
        if let Err(error) = export_one(store, disk, id, &mut damage, &mut put)? {
            put(Record::Damaged)?;
            damage.push((id.clone(), error));
        }
    }
    Record::End { objects, losses }.frame(&mut out);
    sink(&out)?;
    Ok((objects, damage))
}

fn export_one<E>(
    store: &Store,
    disk: &(impl Disk + ?Sized),
    id: &StoredId,
    damage: &mut Damage,
    put: &mut impl FnMut(Record) -> Result<(), E>,
) -> Result<Result<(), ReadError>, E> {
    // What cannot be read ends this object, what cannot be written ends it all.
    macro_rules! read {
        ($result:expr) => {
            match $result {
                Ok(value) => value,
                Err(error) => return Ok(Err(error)),
            }
        };
    }
    let stat = store.stat(id);
    let size = stat.as_ref().ok().copied().flatten().unwrap_or_default().size;
    put(Record::Object { id: id.clone(), size })?;
    read!(stat);
    let attrs = read!(store.attrs(id));
    if !attrs.is_empty() {
        put(Record::Attrs(attrs))?;
    }
    let header = read!(store.omap_header(id));
    if !header.is_empty() {
        put(Record::OmapHeader(header))?;
    }
    let mut from = Some(Bytes::new());
    while let Some(start) = from.take() {
        let (mut pairs, mut len) = (BTreeMap::new(), 0);
        read!(store.omap_walk(id, &start, &mut |key, value| {
            if len >= PIECE {
                from = Some(Bytes::copy_from_slice(key.as_bytes()));
                return false;
            }
            len += key.len() + value.len();
            pairs.insert(key.clone(), value.clone());
            true
        }));
        if !pairs.is_empty() {
            put(Record::Omap(pairs))?;
        }
    }
    let read = |range: Range<u64>| {
        let plan = store.plan_read(id, &[(range.start, range.end - range.start)])?;
        Ok::<_, ReadError>(Bytes::from(plan.run(disk)?.concat()))
    };
    let mut first_bad = None;
    for (offset, len) in read!(store.extents(id, 0, u64::MAX)) {
        let end = offset + len;
        for from in (offset..end).step_by(PIECE) {
            let to = end.min(from + PIECE as u64);
            if let Ok(data) = read(from..to) {
                put(Record::Data { offset: from, data })?;
                continue;
            }
            for block in from / BLOCK as u64..to.div_ceil(BLOCK as u64) {
                let start = block * BLOCK as u64;
                let part = from.max(start)..to.min(start + BLOCK as u64);
                let offset = part.start;
                match read(part) {
                    Ok(data) => put(Record::Data { offset, data })?,
                    Err(error) => {
                        let salvaged = match &error {
                            ReadError::Checksum { salvaged, .. } | ReadError::Unreadable { salvaged, .. } => {
                                salvaged.clone()
                            }
                            _ => SalvagedExtents::default(),
                        };
                        put(Record::BadBlock { block, salvaged })?;
                        first_bad.get_or_insert(error);
                    }
                }
            }
        }
    }
    damage.extend(first_bad.map(|error| (id.clone(), error)));
    Ok(Ok(()))
}
