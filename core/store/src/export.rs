//! A store as a stream: everything in it, independent of where it lies on the device.
//!
//! The format is drawn in `docs/formats/export.md`. `export` writes it, `Import` makes transactions of
//! it again; whoever calls them does the reading and writing of files.

use crate::disk::Disk;
use crate::index::omap::is_reserved;
use crate::store::Store;
use bytes::Bytes;
use nacre_base::Name;
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_wire::{Decode, DecodeError, Encode, Reader, crc32c};
use std::collections::BTreeMap;

const MAGIC: [u8; 8] = *b"NacreExp";
const VERSION: u32 = 1;
/// Magic, version, and the id of the store that was exported.
pub const EXPORT_HEADER: usize = 8 + 4 + 16;
/// Length and checksum of a record.
pub const RECORD_HEADER: usize = 8;
/// A record holds one value of an omap at least, which is as large as a client's write may be.
const RECORD_MAX: u32 = 128 << 20;
/// Data and omaps are cut into records of about so many bytes.
const PIECE: usize = 1 << 20;

/// Why a stream cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("this is no export of a store")]
    NotAnExport,
    #[error("export has version {found}, this program knows {VERSION}")]
    Version { found: u32 },
    #[error("record {number}: {len} bytes, limit {RECORD_MAX}")]
    TooLong { number: u64, len: u32 },
    #[error("record {number}: checksum is {found:08x}, not {expected:08x}")]
    Checksum { number: u64, expected: u32, found: u32 },
    #[error("record {number}: {error}")]
    Decode { number: u64, error: DecodeError },
    #[error("record {number}: {what}")]
    Order { number: u64, what: &'static str },
    #[error("export ends early: {things} things and no end")]
    NoEnd { things: u64 },
}

/// One piece of an export. All but `Thing` and `End` belong to the last `Thing`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Record {
    Thing {
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
    /// It could not be read to its end.
    Damaged,
    End {
        things: u64,
    },
}

impl Record {
    fn frame(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; RECORD_HEADER]);
        match self {
            Record::Thing { id, size } => {
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
            Record::End { things } => {
                out.push(7);
                things.encode(out);
            }
        }
        let payload = &out[start + RECORD_HEADER..];
        let (len, crc) = (payload.len() as u32, crc32c(u32::MAX, payload));
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        out[start + 4..start + RECORD_HEADER].copy_from_slice(&crc.to_le_bytes());
    }

    fn decode(payload: &[u8]) -> Result<Record, DecodeError> {
        let mut r = Reader::new(payload);
        let record = match u8::decode(&mut r)? {
            1 => Record::Thing { id: Decode::decode(&mut r)?, size: Decode::decode(&mut r)? },
            2 => Record::Attrs(Decode::decode(&mut r)?),
            3 => Record::OmapHeader(Decode::decode(&mut r)?),
            4 => Record::Omap(Decode::decode(&mut r)?),
            5 => Record::Data { offset: Decode::decode(&mut r)?, data: Decode::decode(&mut r)? },
            6 => Record::Damaged,
            7 => Record::End { things: Decode::decode(&mut r)? },
            value => {
                return Err(DecodeError::BadValue { what: "kind of export record", value: value.into() });
            }
        };
        r.finish()?;
        Ok(record)
    }
}

/// What an export left out.
pub type Damage = Vec<(StoredId, ReadError)>;

/// Writes everything that `wanted` picks to `sink`, in pieces; stops at the first error of the sink.
/// Things that cannot be read are left out of an import, and returned here.
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
    let (mut things, mut damage) = (0, Damage::new());
    for id in store.ids() {
        let id = match &id {
            Ok(id) if wanted(id) => id,
            Ok(_) => continue,
            Err(error) => {
                damage.push((StoredId::meta("everything behind it"), error.clone()));
                break;
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
        things += 1;
        if let Err(error) = export_one(store, disk, id, &mut put)? {
            put(Record::Damaged)?;
            damage.push((id.clone(), error));
        }
    }
    Record::End { things }.frame(&mut out);
    sink(&out)?;
    Ok((things, damage))
}

fn export_one<E>(
    store: &Store,
    disk: &(impl Disk + ?Sized),
    id: &StoredId,
    put: &mut impl FnMut(Record) -> Result<(), E>,
) -> Result<Result<(), ReadError>, E> {
    // What cannot be read ends this thing, what cannot be written ends it all.
    macro_rules! read {
        ($result:expr) => {
            match $result {
                Ok(value) => value,
                Err(error) => return Ok(Err(error)),
            }
        };
    }
    let size = read!(store.stat(id)).unwrap_or_default().size;
    put(Record::Thing { id: id.clone(), size })?;
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
    for (offset, len) in read!(store.extents(id, 0, u64::MAX)) {
        for at in (offset..offset + len).step_by(PIECE) {
            let part = (offset + len - at).min(PIECE as u64);
            let plan = read!(store.plan_read(id, &[(at, part)]));
            for data in read!(plan.run(disk)) {
                put(Record::Data { offset: at, data })?;
            }
        }
    }
    Ok(Ok(()))
}

/// Makes an export's transactions, record by record.
#[derive(Debug, Default)]
pub struct Import {
    /// The one at hand, and its size.
    thing: Option<(StoredId, u64)>,
    records: u64,
    things: u64,
    ended: bool,
}

impl Import {
    /// The id of the store that was exported.
    pub fn check_header(header: &[u8; EXPORT_HEADER]) -> Result<[u8; 16], ImportError> {
        if header[..8] != MAGIC {
            return Err(ImportError::NotAnExport);
        }
        let found = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        if found != VERSION {
            return Err(ImportError::Version { found });
        }
        Ok(header[12..].try_into().expect("sixteen bytes"))
    }

    /// How long the next record is, without this header.
    pub fn record_len(&self, header: &[u8; RECORD_HEADER]) -> Result<u32, ImportError> {
        let len = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
        if len > RECORD_MAX {
            return Err(ImportError::TooLong { number: self.records, len });
        }
        Ok(len)
    }

    /// What to submit for it. `payload` has the announced length.
    pub fn record(
        &mut self,
        header: &[u8; RECORD_HEADER],
        payload: &[u8],
    ) -> Result<Transaction, ImportError> {
        let number = self.records;
        let expected = u32::from_le_bytes(header[4..].try_into().expect("four bytes"));
        let found = crc32c(u32::MAX, payload);
        if found != expected {
            return Err(ImportError::Checksum { number, expected, found });
        }
        let record = Record::decode(payload).map_err(|error| ImportError::Decode { number, error })?;
        let wrong = |what| Err(ImportError::Order { number, what });
        self.records += 1;
        if self.ended {
            return wrong("something after the end");
        }
        let mut txn = Transaction::new();
        match record {
            Record::Thing { id, .. } if is_reserved(&id) => return wrong("a thing that only a store makes"),
            Record::Thing { id, size } => {
                self.things += 1;
                txn.push(id.clone(), Change::Touch);
                txn.push(id.clone(), Change::Truncate { size });
                self.thing = Some((id, size));
                return Ok(txn);
            }
            Record::End { things } => {
                if things != self.things {
                    return wrong("another number of things than there were");
                }
                self.ended = true;
                return Ok(txn);
            }
            _ => {}
        }
        let Some((id, size)) = self.thing.clone() else { return wrong("content of nothing") };
        match record {
            Record::Attrs(pairs) => txn.push(id, Change::SetAttrs(pairs)),
            Record::OmapHeader(header) => txn.push(id, Change::OmapSetHeader(header)),
            Record::Omap(pairs) => txn.push(id, Change::OmapSet(pairs)),
            Record::Data { offset, data } => {
                if offset.checked_add(data.len() as u64).is_none_or(|end| end > size) {
                    return wrong("data past the end of what they belong to");
                }
                txn.push(id, Change::Write { offset, data });
            }
            Record::Damaged => {
                self.thing = None;
                txn.push(id, Change::Remove);
            }
            Record::Thing { .. } | Record::End { .. } => unreachable!("they are handled above"),
        }
        Ok(txn)
    }

    /// At the end of the stream: how many things it had.
    pub fn finish(&self) -> Result<u64, ImportError> {
        if self.ended { Ok(self.things) } else { Err(ImportError::NoEnd { things: self.things }) }
    }
    pub fn is_finished(&self) -> bool {
        self.ended
    }
}
