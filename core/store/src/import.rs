//! Reads an export (`export.rs`) into a store.
//!
//! Damaged blocks are made in a way that the log does not record; they are durable with the checkpoint at
//! the end. Until then a marker says that an import is under way, and no daemon may use the store.

use crate::BLOCK;
use crate::disk::{Disk, DiskError};
use crate::export::{EXPORT_HEADER, MAGIC, RECORD_HEADER, RECORD_MAX, Record, VERSION};
use crate::format::COUNTER_MAX;
use crate::index::omap::is_reserved;
use crate::store::{Store, SubmitError};
use bytes::Bytes;
use nacre_machine::{ReadError, SalvagedExtents, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_wire::{DecodeError, crc32c};
use std::ops::Range;

/// Why a stream cannot be imported.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("this is not an export of a store")]
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
    #[error("export ends early: {objects} objects and no end")]
    NoEnd { objects: u64 },
    #[error("the store has no room for that: {0}")]
    Submit(#[from] SubmitError),
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Reads an export, record by record.
#[derive(Debug)]
pub struct Import {
    version: u32,
    /// The one at hand, and its size.
    object: Option<(StoredId, u64)>,
    records: u64,
    objects: u64,
    losses: Option<u64>,
}

impl Import {
    pub fn begin(header: &[u8; EXPORT_HEADER]) -> Result<Import, ImportError> {
        if header[..8] != MAGIC {
            return Err(ImportError::NotAnExport);
        }
        let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        if version == 0 || version > VERSION {
            return Err(ImportError::Version { found: version });
        }
        Ok(Import { version, object: None, records: 0, objects: 0, losses: None })
    }

    /// How long the next record is, without this header.
    pub fn record_len(&self, header: &[u8; RECORD_HEADER]) -> Result<u32, ImportError> {
        let len = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
        if len > RECORD_MAX {
            return Err(ImportError::TooLong { number: self.records, len });
        }
        Ok(len)
    }

    /// Brings one into the store, and to the disk what it needs there. `payload` has the announced length.
    pub fn record(
        &mut self,
        header: &[u8; RECORD_HEADER],
        payload: &[u8],
        store: &mut Store,
        disk: &(impl Disk + ?Sized),
    ) -> Result<(), ImportError> {
        let number = self.records;
        let expected = u32::from_le_bytes(header[4..].try_into().expect("four bytes"));
        let found = crc32c(u32::MAX, payload);
        if found != expected {
            return Err(ImportError::Checksum { number, expected, found });
        }
        let record =
            Record::decode(payload, self.version).map_err(|error| ImportError::Decode { number, error })?;
        let wrong = |what| Err(ImportError::Order { number, what });
        self.records += 1;
        if self.is_finished() {
            return wrong("something after the end");
        }
        let mut txn = Transaction::new();
        match record {
            Record::Object { id, .. } if is_reserved(&id) => {
                return wrong("an object that only a store makes");
            }
            Record::Object { id, size } => {
                if self.objects == 0 {
                    txn.push(under_way(), Change::Touch);
                    store.submit(std::mem::take(&mut txn))?;
                    store.settle(disk)?;
                }
                self.objects += 1;
                // What is there of it is replaced, whole.
                txn.push(id.clone(), Change::Remove);
                txn.push(id.clone(), Change::Touch);
                txn.push(id.clone(), Change::Truncate { size });
                self.object = Some((id, size));
                store.submit(txn)?;
                return Ok(());
            }
            Record::End { objects, losses } => {
                if objects != self.objects {
                    return wrong("another number of objects than there were");
                }
                if losses > COUNTER_MAX {
                    return wrong("more losses than a store counts");
                }
                self.losses = Some(losses);
                return Ok(());
            }
            _ => {}
        }
        let Some((id, size)) = self.object.clone() else { return wrong("content of nothing") };
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
            Record::BadBlock { block, salvaged } => {
                let start = block.saturating_mul(BLOCK as u64);
                let end = size.min(start.saturating_add(BLOCK as u64));
                let is_in =
                    |range: &Range<u64>| range.start < range.end && start <= range.start && range.end <= end;
                if start >= end || !salvaged.ranges().all(|range| is_in(&range)) {
                    return wrong(
                        "a bad block, or what is salvaged of it, past the end of what it belongs to",
                    );
                }
                return store.condemn(disk, &id, start..end, salvaged);
            }
            Record::Damaged => {
                self.object = None;
                store.lose(&id);
                return Ok(());
            }
            Record::Object { .. } | Record::End { .. } => unreachable!("they are handled above"),
        }
        store.submit(txn)?;
        Ok(())
    }

    /// At the end of the stream: makes it durable, and the store one that a daemon may use. Gives how many
    /// objects it had.
    pub fn finish(self, store: &mut Store, disk: &(impl Disk + ?Sized)) -> Result<u64, ImportError> {
        let Some(losses) = self.losses else { return Err(ImportError::NoEnd { objects: self.objects }) };
        // What an OSD noted of losses came with the rest: it looks whether there was one since.
        store.losses = store.losses.max(losses);
        store.checkpoint_all(disk)?;
        let mut txn = Transaction::new();
        txn.push(under_way(), Change::Remove);
        store.submit(txn)?;
        store.settle(disk)?;
        Ok(self.objects)
    }
    pub fn is_finished(&self) -> bool {
        self.losses.is_some()
    }
}

/// There while an import is under way.
fn under_way() -> StoredId {
    StoredId::meta("import under way")
}

impl Store {
    /// Some of what should be in it is not: an import did not come to its end.
    pub fn is_half_imported(&self) -> Result<bool, ReadError> {
        Ok(self.stat(&under_way())?.is_some())
    }

    /// A part of a block's length of an object, or all of it, cannot be read from now on, except for what is
    /// salvaged.
    fn condemn(
        &mut self,
        disk: &(impl Disk + ?Sized),
        id: &StoredId,
        range: Range<u64>,
        salvaged: SalvagedExtents,
    ) -> Result<(), ImportError> {
        let write = |store: &mut Store, offset, data| {
            let mut txn = Transaction::new();
            txn.push(id.clone(), Change::Write { offset, data });
            store.submit(txn)
        };
        let block = (range.start / BLOCK as u64) as u32;
        let zeros = Bytes::from(vec![0; (range.end - range.start) as usize]);
        write(self, range.start, zeros)?;
        // Then it is in its place, and has a checksum.
        self.checkpoint_all(disk)?;
        let mut txn = Transaction::new();
        txn.push(id.clone(), Change::Touch); // or the next checkpoint would leave it as it is
        self.submit(txn)?;
        // A damaged object has none.
        if let Some(at) = self.index.get(id).and_then(|object| object.blocks.get(block))
            && let Some(info) = self.blocks.table.get_mut(at)
        {
            info.crc = !info.crc;
        }
        for (offset, bytes) in salvaged.0 {
            write(self, offset, bytes)?;
        }
        Ok(())
    }
}
