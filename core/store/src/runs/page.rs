//! A page of a sorted run: entries in the order of their ids.

use crate::index::Object;
use nacre_proto::transaction::StoredId;
use nacre_wire::{Decode, DecodeError, Encode, Reader};

/// A page takes entries until they have this many bytes: what is read to find one of them.
pub(crate) const PAGE: usize = 16 << 10;

/// An entry has no fewer bytes: its length, its kind, and the shortest id.
pub(crate) const ENTRY_MIN: u64 = 4 + 1 + 5;

/// What a sorted run says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Removed = 0,
    Object = 1,
    Damaged = 2,
    /// An object whose omap has parts.
    WithLeaves = 3,
}

impl Kind {
    pub fn of(object: &Object) -> Kind {
        if object.omap().leaves.is_empty() { Kind::Object } else { Kind::WithLeaves }
    }
}

/// One entry, and what of it is not examined yet.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub kind: Kind,
    pub id: StoredId,
    pub body: &'a [u8],
}

/// An object as a sorted run has it, with its blocks' checksums in their order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub object: Object,
    pub crcs: Vec<u32>,
}

/// Adds an entry.
pub(crate) fn push(page: &mut Vec<u8>, kind: Kind, id: &[u8], body: &[u8]) {
    let len = u32::try_from(1 + id.len() + body.len()).expect("an object is smaller than that");
    len.encode(page);
    page.push(kind as u8);
    page.extend_from_slice(id);
    page.extend_from_slice(body);
}

/// All entries of a page. A length of nothing ends them.
pub(crate) fn entries(page: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, DecodeError>> {
    let mut r = Reader::new(page);
    let mut next = move || {
        if r.remaining() < 4 {
            return Ok(None);
        }
        let mut r2 = Reader::new(r.bytes()?);
        if r2.is_empty() {
            return Ok(None);
        }
        let kind = match u8::decode(&mut r2)? {
            0 => Kind::Removed,
            1 => Kind::Object,
            2 => Kind::Damaged,
            3 => Kind::WithLeaves,
            value => {
                return Err(DecodeError::BadValue { what: "entry of a sorted run", value: value.into() });
            }
        };
        let id = StoredId::decode(&mut r2)?;
        Ok(Some(Entry { kind, id, body: r2.rest() }))
    };
    let mut is_over = false;
    std::iter::from_fn(move || {
        let entry = if is_over { None } else { next().transpose() };
        is_over = !matches!(entry, Some(Ok(_)));
        entry
    })
}

impl Entry<'_> {
    /// Of an object.
    pub fn load(&self) -> Result<Loaded, DecodeError> {
        let mut r = Reader::new(self.body);
        let (object, crcs) = Object::decode(&self.id, self.kind == Kind::WithLeaves, &mut r)?;
        r.finish()?;
        Ok(Loaded { object, crcs })
    }
}

impl Loaded {
    /// Checksum of the block at this position of the object; it has one there.
    pub fn crc(&self, at: u32) -> u32 {
        let mut before = 0;
        for extent in self.object.blocks.extents() {
            if at < extent.at + extent.blocks.len {
                return self.crcs[(before + at - extent.at) as usize];
            }
            before += extent.blocks.len;
        }
        unreachable!("the object has a block there")
    }
}

/// The id's encoding, as a page has it.
pub(crate) fn id_bytes(id: &StoredId) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    id.encode(&mut out);
    out
}
