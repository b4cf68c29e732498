//! A write of whole objects becomes one write for each shard.
//!
//! `encode` follows the changes of each object on a list of its pieces (`Content`), and finds which columns
//! differ afterwards. There are two ways to write them, and `needed` says which old bytes are read first.
//!
//! - *Absolute*: all of the data in these columns is needed, old bytes too. Every shard that changes, or that
//!   some member lacks there, gets all its bytes of these columns: so what a member lacks it lacks no more
//!   where a write was, whatever it had.
//! - *Delta*: only the old bytes of what changes are needed. The data shards that change get their new bytes,
//!   and parity gets the difference, which its store XORs into what it has. No member may lack any of these
//!   columns.
//!
//! What takes fewer reads on other members is chosen.

use super::Geometry;
use crate::object_info::{ATTR, ObjectInfo, Sharded};
use crate::ops::Fetched;
use bytes::Bytes;
use nacre_base::{IntervalSet, SnapId};
use nacre_erasure::code::Code;
use nacre_erasure::layout::Layout;
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_wire::from_slice;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A write as the members carry it out.
pub struct ShardWrites {
    /// What every shard does, with zeros for the bytes: the log entry is made of this.
    pub columns: Transaction,
    /// For each shard.
    pub shards: Vec<Transaction>,
}

/// Extents of an object or a clone.
pub type Needed = (ObjectId, Vec<(u64, u64)>);

/// What the members of a placement group have of these objects.
pub struct Members<'a> {
    /// Whether a member with that shard lacks some of these columns.
    pub lacks: &'a dyn Fn(usize, &ObjectId, &IntervalSet) -> bool,
    /// What reading a shard costs: nothing on this OSD, one on another member, and more if it has to be
    /// computed.
    pub read_cost: &'a dyn Fn(usize) -> usize,
    /// All of them know differences of parity.
    pub take_deltas: bool,
}

/// A write of more columns is absolute: XORed blocks are in the store's log.
const DELTA_MAX: u64 = 32 << 10;

/// Of an object during a transaction.
#[derive(Clone, Default)]
struct Content {
    /// What is stored under which name, and how it is divided: bytes in `kept` are still as there.
    base: Option<(ObjectId, Layout)>,
    kept: IntervalSet,
    /// Of what is stored.
    old_size: u64,
    /// New bytes, which do not overlap.
    written: BTreeMap<u64, Bytes>,
    size: u64,
    /// Where the content differs from the shard that is changed.
    dirty: IntervalSet,
    /// Of the shard before its bytes are changed.
    shard_size: u64,
    hint: u64,
}

impl Content {
    fn load(code: &Code, store: &dyn StoreView, object: &ObjectId) -> Result<Content, ReadError> {
        let Some(info) = ObjectInfo::load(store, object)? else { return Ok(Content::default()) };
        let Some(Sharded { size, unit }) = info.erasure else { return Ok(Content::default()) };
        let layout = Layout::new(code.data_shards(), unit)
            .ok_or_else(|| ReadError::Device(format!("{object}: its unit of {unit} bytes cannot be")))?;
        Ok(Content {
            base: Some((object.clone(), layout)),
            kept: (0..size).into(),
            old_size: size,
            size,
            shard_size: layout.parity_len(size),
            hint: info.expected_object_size,
            ..Content::default()
        })
    }
    fn cut(&mut self, range: Range<u64>) {
        self.kept.remove(range.clone());
        let first = self.written.range(..range.start).next_back().map_or(range.start, |(at, _)| *at);
        let touched: Vec<u64> = self.written.range(first..range.end).map(|(at, _)| *at).collect();
        for at in touched {
            let bytes = self.written.remove(&at).expect("just seen");
            let end = at + bytes.len() as u64;
            if at < range.start {
                self.written.insert(at, bytes.slice(..(range.start.min(end) - at) as usize));
            }
            if end > range.end {
                self.written.insert(range.end.max(at), bytes.slice((range.end.max(at) - at) as usize..));
            }
        }
    }
    fn write(&mut self, offset: u64, data: &Bytes) {
        let end = offset + data.len() as u64;
        self.cut(offset..end);
        if !data.is_empty() {
            self.written.insert(offset, data.clone());
        }
        self.dirty.insert(offset..end);
        self.size = self.size.max(end);
    }
    fn zero(&mut self, offset: u64, len: u64) {
        self.cut(offset..offset + len);
        self.dirty.insert(offset..offset + len);
        self.size = self.size.max(offset + len);
    }
    fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.cut(size..u64::MAX);
            self.dirty.insert(size..self.size);
        }
        self.size = size;
    }
    fn layout(&self, code: &Code) -> Layout {
        match &self.base {
            Some((_, layout)) if self.shard_size > 0 => *layout,
            _ => Layout::for_size(code.data_shards(), self.size.max(self.hint)),
        }
    }
    /// The columns that are to be written.
    fn columns(&self, layout: Layout) -> IntervalSet {
        let end = layout.parity_len(self.size);
        let dirty = self.dirty.iter().map(|range| layout.columns(range));
        let mut columns = IntervalSet::new();
        dirty.for_each(|of_range| columns.add(&of_range));
        columns.remove(end..u64::MAX);
        columns
    }
}

/// Of one object after all changes.
struct Written {
    object: ObjectId,
    layout: Layout,
    columns: IntervalSet,
    content: Content,
    /// Parity gets differences.
    is_delta: bool,
}

/// Which old bytes are to be read before a transaction can be encoded.
pub fn needed(
    geometry: &Geometry,
    store: &dyn StoreView,
    txn: &Transaction,
    fetched: &Fetched,
    members: &Members<'_>,
) -> Result<Option<Needed>, ReadError> {
    let code = &geometry.code;
    Ok(written(code, store, txn, members)?.iter().find_map(|one| one.needed(code, fetched)))
}

/// Encodes what a transaction does; old bytes are among what was fetched.
pub fn encode(
    geometry: &Geometry,
    store: &dyn StoreView,
    txn: &Transaction,
    fetched: &Fetched,
    members: &Members<'_>,
) -> Result<ShardWrites, ReadError> {
    let code = &geometry.code;
    let written = written(code, store, txn, members)?;
    if let Some((source, _)) = written.iter().find_map(|one| one.needed(code, fetched)) {
        return Err(ReadError::Device(format!("{source}: what is to be encoded with a write was not read")));
    }
    let mut shards = vec![Transaction::new(); geometry.n()];
    let mut columns = Transaction::new();
    let mut push = |id: &StoredId, change: &Change| {
        for txn in shards.iter_mut().chain([&mut columns]) {
            txn.push(id.clone(), change.clone());
        }
    };
    for (id, change) in &txn.changes {
        let of = |object: &ObjectId| written.iter().find(|one| one.object == *object);
        match (id, change) {
            (StoredId::Object(_), Change::Write { .. } | Change::Zero { .. } | Change::Truncate { .. }) => {}
            (StoredId::Object(object), Change::SetAttrs(attrs)) => {
                let mut attrs = attrs.clone();
                if let (Some(one), Some(info)) = (of(object), attrs.get_mut(ATTR)) {
                    *info = one.with_size(object, info)?;
                }
                push(id, &Change::SetAttrs(attrs));
            }
            _ => push(id, change),
        }
    }
    for one in &written {
        let id = StoredId::Object(one.object.clone());
        let size = one.layout.parity_len(one.content.size);
        if size != one.content.shard_size {
            push(&id, &Change::Truncate { size });
        }
    }
    for one in &written {
        for range in one.columns.iter() {
            let id = StoredId::Object(one.object.clone());
            columns.push(id, Change::Zero { offset: range.start, len: range.end - range.start });
        }
        match one.is_delta {
            true => one.write_delta(code, fetched, &mut shards),
            false => one.write_shards(code, fetched, &mut shards, members.lacks),
        }
    }
    Ok(ShardWrites { columns, shards })
}

/// What is to be written of each object.
fn written(
    code: &Code,
    store: &dyn StoreView,
    txn: &Transaction,
    members: &Members<'_>,
) -> Result<Vec<Written>, ReadError> {
    let written = follow(code, store, txn)?.into_iter().map(|(object, content)| {
        let layout = content.layout(code);
        let columns = content.columns(layout);
        let written = Written { object, layout, columns, content, is_delta: false };
        Written { is_delta: written.delta_is_better(code, members), ..written }
    });
    Ok(written.collect())
}

/// What becomes of each object.
fn follow(
    code: &Code,
    store: &dyn StoreView,
    txn: &Transaction,
) -> Result<BTreeMap<ObjectId, Content>, ReadError> {
    let mut contents: BTreeMap<ObjectId, Content> = BTreeMap::new();
    for (id, change) in &txn.changes {
        let StoredId::Object(object) = id else { continue };
        if let Change::CloneFrom(StoredId::Object(from)) = change {
            // What is written in the same transaction has no name yet under which it could be read.
            let source = match contents.get(from) {
                Some(content) if !content.dirty.is_empty() => {
                    return Err(ReadError::Device(format!(
                        "{object}: copy of {from}, which is being written"
                    )));
                }
                Some(content) => content.clone(),
                None => Content::load(code, store, from)?,
            };
            contents.insert(object.clone(), source);
            continue;
        }
        if !contents.contains_key(object) {
            contents.insert(object.clone(), Content::load(code, store, object)?);
        }
        let content = contents.get_mut(object).expect("just made sure");
        match change {
            Change::Write { offset, data } => content.write(*offset, data),
            Change::Zero { offset, len } => content.zero(*offset, *len),
            Change::Truncate { size } => content.truncate(*size),
            Change::Remove => *content = Content::default(),
            Change::SetAttrs(attrs) => {
                let info = attrs.get(ATTR).and_then(|info| from_slice::<ObjectInfo>(info).ok());
                content.hint = info.map_or(content.hint, |info| info.expected_object_size);
            }
            _ => {}
        }
    }
    Ok(contents)
}

/// Old bytes that were read: those of an object, in whichever extents.
fn old_bytes(fetched: &Fetched, snap: SnapId, range: &Range<u64>) -> Option<Bytes> {
    let holds = |(of, offset, len, _): &&(SnapId, u64, u64, Bytes)| {
        *of == snap && *offset <= range.start && range.end <= offset + len
    };
    let (_, offset, _, bytes) = fetched.extents.iter().find(holds)?;
    let have = bytes.len() as u64;
    Some(bytes.slice((range.start - offset).min(have) as usize..(range.end - offset).min(have) as usize))
}

impl Written {
    /// Old bytes in the columns: those that are kept.
    fn kept(&self, code: &Code) -> Vec<(u64, u64)> {
        let mut kept = IntervalSet::new();
        for range in self.columns.iter() {
            for part in 0..code.data_shards() {
                let mut at = range.start;
                while at < range.end {
                    let end = (at - at % self.layout.unit() + self.layout.unit()).min(range.end);
                    let start = self.layout.offset_of(part, at);
                    kept.insert(start..start + (end - at));
                    at = end;
                }
            }
        }
        kept.intersection(&self.content.kept)
            .iter()
            .map(|range| (range.start, range.end - range.start))
            .collect()
    }
    /// Old bytes of what changes.
    fn changed(&self) -> Vec<(u64, u64)> {
        let old = self.content.dirty.intersection(&(0..self.content.old_size).into());
        old.iter().map(|range| (range.start, range.end - range.start)).collect()
    }
    /// Whether it can be written as a difference, and takes fewer reads of other members so.
    fn delta_is_better(&self, code: &Code, members: &Members<'_>) -> bool {
        let Content { base, size, old_size, shard_size, .. } = &self.content;
        let is_same = base.as_ref().is_some_and(|(base, _)| *base == self.object) && *shard_size > 0;
        let is_small = !self.columns.is_empty() && self.columns.size() <= DELTA_MAX;
        if !(members.take_deltas && is_same && is_small) || size < old_size {
            return false;
        }
        let cost = |extents: &[(u64, u64)]| {
            let pieces = extents.iter().flat_map(|(offset, len)| self.layout.pieces(*offset..offset + len));
            let shards: BTreeSet<usize> = pieces.map(|piece| code.data_shard(piece.part)).collect();
            shards.into_iter().map(|shard| (members.read_cost)(shard)).sum::<usize>()
        };
        let lacks = |shard| (members.lacks)(shard, &self.object, &self.columns);
        cost(&self.changed()) < cost(&self.kept(code)) && !(0..code.shards()).any(lacks)
    }

    /// Old bytes that are to be read.
    fn needed(&self, code: &Code, fetched: &Fetched) -> Option<Needed> {
        let (source, _) = self.content.base.as_ref()?;
        let missing =
            |(offset, len): &(u64, u64)| old_bytes(fetched, source.snap, &(*offset..offset + len)).is_none();
        let old = if self.is_delta { self.changed() } else { self.kept(code) };
        let needed: Vec<(u64, u64)> = old.into_iter().filter(missing).collect();
        (!needed.is_empty()).then(|| (source.clone(), needed))
    }

    fn with_size(&self, object: &ObjectId, info: &[u8]) -> Result<Bytes, ReadError> {
        let info: ObjectInfo = from_slice(info)
            .map_err(|error| ReadError::Device(format!("{object}: its info does not decode: {error}")))?;
        let erasure = Some(Sharded { size: self.content.size, unit: self.layout.unit() });
        Ok(ObjectInfo { erasure, ..info }.to_attr().1)
    }

    /// The bytes of one part of the data in these columns, and whether they changed.
    fn part(&self, fetched: &Fetched, part: usize, columns: &Range<u64>) -> (Vec<u8>, bool) {
        let mut bytes = vec![0; (columns.end - columns.start) as usize];
        let (mut at, mut changed) = (columns.start, false);
        while at < columns.end {
            let unit = self.layout.unit();
            let end = (at - at % unit + unit).min(columns.end);
            let start = self.layout.offset_of(part, at);
            let range = start..start + (end - at);
            let to = &mut bytes[(at - columns.start) as usize..(end - columns.start) as usize];
            changed |= self.content.dirty.overlaps(range.clone());
            self.fill(fetched, &range, to);
            at = end;
        }
        (bytes, changed)
    }
    fn fill(&self, fetched: &Fetched, range: &Range<u64>, to: &mut [u8]) {
        let mut put = |at: u64, bytes: &[u8]| {
            let (start, end) = (at.max(range.start), (at + bytes.len() as u64).min(range.end));
            if start < end {
                to[(start - range.start) as usize..(end - range.start) as usize]
                    .copy_from_slice(&bytes[(start - at) as usize..(end - at) as usize]);
            }
        };
        if let Some((source, _)) = &self.content.base {
            for old in self.content.kept.intersection(&range.clone().into()).iter() {
                if let Some(bytes) = old_bytes(fetched, source.snap, &old) {
                    put(old.start, &bytes);
                }
            }
        }
        let first = self.content.written.range(..range.start).next_back().map_or(range.start, |(at, _)| *at);
        for (at, bytes) in self.content.written.range(first..range.end) {
            put(*at, bytes);
        }
    }

    fn write_shards(
        &self,
        code: &Code,
        fetched: &Fetched,
        shards: &mut [Transaction],
        lacks: &dyn Fn(usize, &ObjectId, &IntervalSet) -> bool,
    ) {
        // What becomes a copy of another object lacks what that lacks.
        let base = self.content.base.as_ref().map(|(base, _)| base);
        let lacking = |shard: usize| {
            lacks(shard, &self.object, &self.columns)
                || base.is_some_and(|base| lacks(shard, base, &self.columns))
        };
        let lacking: Vec<bool> = (0..shards.len()).map(lacking).collect();
        for columns in self.columns.iter() {
            let parts: Vec<(Vec<u8>, bool)> =
                (0..code.data_shards()).map(|part| self.part(fetched, part, &columns)).collect();
            for shard in code.parities() {
                let data: Vec<&[u8]> = parts.iter().map(|(bytes, _)| &bytes[..]).collect();
                let mut parity = vec![0; (columns.end - columns.start) as usize];
                code.encode(&data, shard, &mut parity);
                self.put(&mut shards[shard], columns.start, parity);
            }
            for (part, (bytes, changed)) in parts.into_iter().enumerate() {
                let shard = code.data_shard(part);
                if changed || lacking[shard] {
                    self.put(&mut shards[shard], columns.start, bytes);
                }
            }
        }
    }
    /// New bytes for the data shards that change, and differences for parity.
    fn write_delta(&self, code: &Code, fetched: &Fetched, shards: &mut [Transaction]) {
        let parities: Vec<usize> = code.parities().collect();
        let deltas = |range: Range<u64>| {
            (range.start, vec![vec![0; (range.end - range.start) as usize]; parities.len()])
        };
        let mut deltas: BTreeMap<u64, Vec<Vec<u8>>> = self.columns.iter().map(deltas).collect();
        let end = self.content.size;
        let dirty = self.content.dirty.intersection(&(0..end).into());
        for piece in dirty.iter().flat_map(|range| self.layout.pieces(range)) {
            let range = piece.offset..piece.offset + piece.len;
            let mut new = vec![0; piece.len as usize];
            self.fill(fetched, &range, &mut new);
            let mut delta = new.clone();
            let old = range.start..range.end.min(self.content.old_size);
            if let Some((base, _)) = self.content.base.as_ref().filter(|_| !old.is_empty()) {
                let old = old_bytes(fetched, base.snap, &old).expect("what is needed was read");
                delta.iter_mut().zip(old).for_each(|(new, old)| *new ^= old);
            }
            let (start, columns) =
                deltas.range_mut(..=piece.shard_offset).next_back().expect("its columns are written");
            let at = (piece.shard_offset - start) as usize;
            for (parity, delta_of) in parities.iter().zip(columns) {
                code.apply_delta(*parity, piece.part, &delta, &mut delta_of[at..at + delta.len()]);
            }
            self.put(&mut shards[code.data_shard(piece.part)], piece.shard_offset, new);
        }
        for (offset, of_parities) in deltas {
            for (parity, delta) in parities.iter().zip(of_parities) {
                // A layered code has parity of some of the data.
                if delta.iter().any(|byte| *byte != 0) {
                    shards[*parity].push(self.object.clone(), Change::Xor { offset, data: delta.into() });
                }
            }
        }
    }
    /// Zeros take no space.
    fn put(&self, txn: &mut Transaction, offset: u64, bytes: Vec<u8>) {
        let change = match bytes.iter().all(|byte| *byte == 0) {
            true => Change::Zero { offset, len: bytes.len() as u64 },
            false => Change::Write { offset, data: bytes.into() },
        };
        txn.push(self.object.clone(), change);
    }
}
