//! Parts of objects on their way between members: made by who has them, taken by who lacks them.
//!
//! What is missing somewhere was not changed since the interval began: a write makes whatever it
//! changes present on all members, the primary among them. So whenever a part was read, and however
//! late it arrives, what of it the receiver still lacks is right; the rest is newer there.

use super::clone_overlap::{self, CloneOverlap};
use super::read_repair::{BLOCK, bad_block, unknown};
use super::record::RecordChanges;
use super::{Ctx, Pg, PgEffect, WhenStored};
use crate::object_info::{ATTR, ObjectInfo};
use crate::ops::OBJECT_SIZE_MAX;
use crate::snap_index;
use crate::throttle::write_credit::{has_room, has_room_to_replace};
use bytes::Bytes;
use nacre_base::{IntervalSet, KeyRanges, Name, OsdId, SnapId, key_after};
use nacre_machine::{Level, ReadError, SalvagedExtents, StoreView};
use nacre_proto::messages::part::{Meta, Part};
use nacre_proto::messages::peer::{PgMsg, Push};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_wire::from_slice;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bytes of data in one message. Tests need several for small objects.
const PART_DATA: u64 = if cfg!(test) { 16 } else { 512 << 10 };
/// Bytes of omap in one message, and keys.
const PART_OMAP: usize = 1 << 20;
const PART_KEYS: usize = if cfg!(test) { 2 } else { 4096 };

/// Objects that a group remembers having complained of.
const REPORTED_MAX: usize = 256;

/// A part whose data is being read.
pub struct PushRead {
    id: u64,
    object: ObjectId,
    /// The data that were asked for, and what fits in one message of that and the rest.
    wanted: IntervalSet,
    part: Part,
    extents: Vec<(u64, u64)>,
    /// What is known of blocks that cannot be read.
    salvaged: SalvagedExtents,
    /// What the receiver takes from clones that it has.
    common: CloneOverlap,
    purpose: Purpose,
}

/// What can be given of a part, and the (offset, length) extents of data to read for it.
type Readable = (Part, Vec<(u64, u64)>);

/// Who gets the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The primary pulls it.
    Pulled(OsdId),
    /// We, the primary, push it to a member that lacks it.
    Pushed(OsdId),
    /// We, the primary, lack it of another object that has the same there.
    Renamed,
}

impl Pg {
    /// Starts to read that part of `object`, or as much of it as is here and fits in one message;
    /// it is sent when it has come, or `push_failed` follows.
    pub fn make_push(&mut self, ctx: &mut Ctx<'_>, id: u64, object: ObjectId, part: Part, purpose: Purpose) {
        self.make_push_with(ctx, id, object, part, purpose, SalvagedExtents::default());
    }

    /// Some of the data need not be read.
    fn make_push_with(
        &mut self,
        ctx: &mut Ctx<'_>,
        id: u64,
        object: ObjectId,
        part: Part,
        purpose: Purpose,
        salvaged: SalvagedExtents,
    ) {
        let wanted = part.data.clone();
        let common = match purpose {
            Purpose::Pushed(osd) => self.member_overlap(ctx, osd, &object, &wanted),
            Purpose::Pulled(_) | Purpose::Renamed => Ok(CloneOverlap::new()),
        };
        let readable = common.and_then(|common| {
            let readable = self.readable(ctx, &object, part, &salvaged, &common)?;
            Ok(readable.map(|(part, extents)| (part, extents, common)))
        });
        match readable {
            Err(error) => {
                self.report_unreadable(ctx, &object, &error);
                self.push_failed(ctx, id, object, purpose);
            }
            Ok(None) => self.push_failed(ctx, id, object, purpose),
            Ok(Some((part, extents, common))) => {
                let read = PushRead { id, object, wanted, part, extents, salvaged, common, purpose };
                // Recovery that starts this is not to be called back while it is at it.
                if read.extents.is_empty() && purpose != Purpose::Renamed {
                    self.finish_push(ctx, read, Vec::new());
                    return;
                }
                let number = self.next_read();
                let (object, extents) = (read.object.clone(), read.extents.clone());
                self.push_reads.insert(number, read);
                ctx.out.push(PgEffect::Read {
                    read: number,
                    object: Box::new(object),
                    extents,
                    device: false,
                });
            }
        }
    }

    /// What of a part can be given, beside what the receiver has elsewhere, and which data must be read for it.
    /// The omap is cut later.
    fn readable(
        &self,
        ctx: &Ctx<'_>,
        object: &ObjectId,
        part: Part,
        salvaged: &SalvagedExtents,
        common: &CloneOverlap,
    ) -> Result<Option<Readable>, ReadError> {
        let id = StoredId::Object(object.clone());
        // Bytes that are not missing are right, whatever the metadata.
        if part.meta && self.missing.lacks_meta(object) || self.unapplied.contains(object) {
            return Ok(None);
        }
        let Some(stat) = ctx.store.stat(&id)? else { return Ok(None) };
        let mut part = part.without(&self.missing.part(object));
        part.data.subtract(&clone_overlap::all(common));
        if part.is_empty() && common.is_empty() {
            return Ok(None);
        }
        let salvaged: IntervalSet = salvaged.ranges().collect();
        let mut data = part.data.intersection(&salvaged);
        part.data.subtract(&salvaged);
        let (mut extents, mut left) = (Vec::new(), PART_DATA);
        for range in part.data.iter() {
            let end = range.end.min(stat.size);
            if range.start >= end {
                data.insert(range); // zeros, to all that comes
                continue;
            }
            // Only what was ever written counts; the rest is zeros.
            let mut reached = range.end;
            for (offset, len) in ctx.store.extents(&id, range.start, end - range.start)? {
                let some = len.min(left);
                if some > 0 {
                    extents.push((offset, some));
                    left -= some;
                }
                if some < len {
                    reached = offset + some;
                    break;
                }
            }
            if range.start < reached {
                data.insert(range.start..reached);
            }
            if reached < range.end {
                break;
            }
        }
        part.data = data;
        Ok(Some((part, extents)))
    }

    pub fn on_push_read(&mut self, ctx: &mut Ctx<'_>, number: u64, result: Result<Vec<Bytes>, ReadError>) {
        let Some(read) = self.push_reads.remove(&number) else { return };
        match result {
            Ok(data) => self.finish_push(ctx, read, data),
            // Removed meanwhile: nobody lacks any of it now.
            Err(ReadError::NotFound(_)) => self.push_failed(ctx, read.id, read.object, read.purpose),
            Err(error) if self.give_up(ctx, &error) => {
                self.push_failed(ctx, read.id, read.object, read.purpose);
            }
            Err(error) => {
                self.report_unreadable(ctx, &read.object, &error);
                self.push_rest(ctx, read, &error);
            }
        }
    }

    /// Once in an interval for each object: what nobody else has is asked for every few seconds.
    fn report_unreadable(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId, error: &ReadError) {
        if self.reported_unreadable.len() == REPORTED_MAX {
            self.reported_unreadable.clear();
        }
        if self.reported_unreadable.insert(object.clone()) {
            ctx.log(Level::Error, format!("pg {}: {object}: {error}", self.id));
        }
    }

    /// What can be read, and what is known of the block that cannot: perhaps nobody else has any of it.
    fn push_rest(&mut self, ctx: &mut Ctx<'_>, read: PushRead, error: &ReadError) {
        let PushRead { id, object, wanted, mut part, extents, salvaged: mut all_salvaged, purpose, .. } =
            read;
        let bad = bad_block(error).filter(|(_, block, _)| {
            let (start, end) = (block * BLOCK, (block + 1) * BLOCK);
            extents.iter().any(|(offset, len)| *offset < end && start < offset + len)
        });
        let Some((_, block, salvaged)) = bad else {
            self.push_failed(ctx, id, object, purpose);
            return;
        };
        part.data = wanted;
        part.data.subtract(&unknown(block, salvaged));
        all_salvaged.0.extend(salvaged.0.iter().cloned());
        self.make_push_with(ctx, id, object, part, purpose, all_salvaged);
    }

    fn finish_push(&mut self, ctx: &mut Ctx<'_>, read: PushRead, data: Vec<Bytes>) {
        let (id, purpose) = (read.id, read.purpose);
        let object = read.object.clone();
        match self.push_message(ctx, read, data) {
            Ok(Some(push)) => match purpose {
                Purpose::Pulled(osd) => ctx.out.push(PgEffect::answer(osd, PgMsg::Push(Box::new(push)))),
                Purpose::Pushed(osd) => self.push_ready(ctx, osd, push),
                Purpose::Renamed => self.on_pulled(ctx, self.me, push),
            },
            Ok(None) => self.push_failed(ctx, id, object, purpose),
            Err(error) => {
                self.report_unreadable(ctx, &object, &error);
                self.push_failed(ctx, id, object, purpose);
            }
        }
    }

    fn push_failed(&mut self, ctx: &mut Ctx<'_>, id: u64, object: ObjectId, purpose: Purpose) {
        match purpose {
            Purpose::Pulled(osd) => ctx.out.push(PgEffect::answer(osd, PgMsg::PullRefused { id, object })),
            Purpose::Pushed(osd) => self.push_unreadable(ctx, &object, osd),
            Purpose::Renamed => self.pull_elsewhere(ctx, id),
        }
    }

    /// None if the object is gone, or changes in this turn.
    fn push_message(
        &self,
        ctx: &Ctx<'_>,
        read: PushRead,
        data: Vec<Bytes>,
    ) -> Result<Option<Push>, ReadError> {
        let PushRead { id, object, mut part, extents, salvaged, common, .. } = read;
        let stored = StoredId::Object(object.clone());
        if self.unapplied.contains(&object) || ctx.store.stat(&stored)?.is_none() {
            return Ok(None);
        }
        let meta = if part.meta { Some(load_meta(ctx.store, &stored)?) } else { None };
        let read = extents.iter().zip(data).map(|((offset, _), data)| (*offset, data));
        let mut writes: Vec<(u64, Bytes)> = read.filter(|(_, data)| !data.is_empty()).collect();
        if !salvaged.0.is_empty() {
            writes.extend(of_part(&salvaged, &part));
            writes.sort_by_key(|(offset, _)| *offset);
        }
        let (omap, pairs) = self.omap_part(ctx, &stored, &part.omap)?;
        part.omap = omap;
        part.data.add(&clone_overlap::all(&common));
        Ok(Some(Push { id, object, part, meta, writes, pairs, common }))
    }

    /// As many pairs of these ranges as fit in one message, and the ranges that they are all of.
    fn omap_part(
        &self,
        ctx: &Ctx<'_>,
        id: &StoredId,
        ranges: &KeyRanges,
    ) -> Result<(KeyRanges, BTreeMap<Name, Bytes>), ReadError> {
        let (mut done, mut pairs, mut bytes) = (KeyRanges::default(), BTreeMap::new(), 0);
        for (start, end) in ranges.iter() {
            let (mut full, mut last) = (false, None);
            ctx.store.omap_walk(id, start.as_bytes(), &mut |key, value| {
                if end.is_some_and(|end| key >= end) {
                    return false;
                }
                if bytes >= PART_OMAP || pairs.len() >= PART_KEYS {
                    full = true;
                    return false;
                }
                bytes += key.len() + value.len();
                pairs.insert(key.clone(), value.clone());
                last = Some(key.clone());
                true
            })?;
            if !full {
                done.insert(start.clone(), end.cloned());
                continue;
            }
            if let Some(last) = last {
                done.insert(start.clone(), Some(key_after(&last)));
            }
            break;
        }
        Ok((done, pairs))
    }

    /// Takes of a push what is still missing here. Gives which of the bytes that we should have elsewhere we have not; None if
    /// it could not be taken.
    pub fn take_push(&mut self, ctx: &mut Ctx<'_>, push: Push) -> Result<Option<IntervalSet>, ReadError> {
        let Push { object, part, meta, writes, pairs, common, .. } = push;
        let Some(stale) = self.missing.get(&object) else { return Ok(Some(IntervalSet::new())) };
        let id = StoredId::Object(object.clone());
        let mut part = part.intersection(&stale.part);
        let meta = meta.filter(|_| part.meta);
        if stale.part.meta && meta.is_none() {
            return Ok(None); // without its size the object's bytes have no place
        }
        let mut txn = Transaction::new();
        if let Some(meta) = &meta {
            let have = match ctx.store.attrs(&id) {
                Ok(attrs) => attrs.into_keys().collect(),
                // It takes the place of what cannot be read.
                Err(_) if stale.part == Part::everything() => {
                    txn.push(id.clone(), Change::Remove);
                    BTreeSet::new()
                }
                Err(error) => return Err(error),
            };
            set_meta(&mut txn, &id, meta, have);
            index_clone(ctx.store, &object, meta, &mut txn)?;
        }
        let size = match &meta {
            Some(meta) => meta.size,
            None => ctx.store.stat(&id)?.unwrap_or_default().size,
        };
        let mut refused = clone_overlap::all(&common).intersection(&part.data);
        let common = self.usable_overlap(ctx.store, &object, common, &part.data, size);
        clone_overlap::share(&mut txn, &object, &common);
        let shared = clone_overlap::all(&common);
        refused.subtract(&shared);
        part.data.subtract(&refused);
        let mut sent = part.data.clone();
        sent.subtract(&shared);
        for range in sent.iter() {
            let end = range.end.min(size);
            let mut at = range.start;
            for (offset, data) in &writes {
                let (from, to) = ((*offset).max(at), (offset + data.len() as u64).min(end));
                if from < to {
                    if at < from {
                        txn.push(id.clone(), Change::Zero { offset: at, len: from - at });
                    }
                    let data = data.slice((from - offset) as usize..(to - offset) as usize);
                    txn.push(id.clone(), Change::Write { offset: from, data });
                    at = to;
                }
            }
            if at < end {
                txn.push(id.clone(), Change::Zero { offset: at, len: end - at });
            }
        }
        let mut single = BTreeSet::new();
        for (start, end) in part.omap.iter() {
            match end {
                Some(end) if *end == key_after(start) => drop(single.insert(start.clone())),
                Some(end) => {
                    let (begin, end) = (start.clone(), end.clone());
                    txn.push(id.clone(), Change::OmapRemoveRange { begin, end });
                }
                None => {} // nothing of ours is there
            }
        }
        single.retain(|key| !pairs.contains_key(key));
        if !single.is_empty() {
            txn.push(id.clone(), Change::OmapRemove(single));
        }
        let pairs: BTreeMap<Name, Bytes> =
            pairs.into_iter().filter(|(key, _)| part.omap.contains(key)).collect();
        if !pairs.is_empty() {
            txn.push(id, Change::OmapSet(pairs));
        }
        self.store_part(ctx, &object, &part, meta.map(|meta| meta.size), txn);
        Ok(Some(refused))
    }

    /// With `txn` that part of the object is here, and with the metadata its size: it is missing no more.
    pub fn store_part(
        &mut self,
        ctx: &mut Ctx<'_>,
        object: &ObjectId,
        part: &Part,
        size: Option<u64>,
        mut txn: Transaction,
    ) {
        self.missing.got(object, part, size);
        let mut changes = RecordChanges::new(self.id);
        changes.missing(object, self.missing.get(object));
        changes.into_txn(&mut txn);
        self.unapplied.insert(object.clone());
        self.store(ctx, txn);
    }

    /// The primary lacks some of an object.
    pub fn on_pull(&mut self, ctx: &mut Ctx<'_>, from: OsdId, id: u64, object: ObjectId, part: Part) {
        let purpose = Purpose::Pulled(from);
        if self.interval.primary == Some(from) && self.is_merged() {
            self.make_push(ctx, id, object, part, purpose);
        } else {
            self.push_failed(ctx, id, object, purpose);
        }
    }

    /// A part arrives: one that we pulled, or one that the primary pushes.
    pub fn on_push(&mut self, ctx: &mut Ctx<'_>, from: OsdId, push: Push) {
        let ends = push.writes.iter().map(|(offset, data)| offset.saturating_add(data.len() as u64));
        let end = ends.chain(push.meta.as_ref().map(|meta| meta.size)).max().unwrap_or_default();
        if !self.range.contains(&push.object) || end > OBJECT_SIZE_MAX {
            let text = format!("pg {}: osd.{from} pushed {} up to byte {end}", self.id, push.object);
            ctx.log(Level::Error, text);
            return;
        }
        if self.interval.primary == Some(self.me) {
            self.on_pulled(ctx, from, push);
            return;
        }
        if self.interval.primary != Some(from) || !self.is_merged_replica() {
            return;
        }
        // It is sent again after a while; until then somebody may have made room.
        let mut data = IntervalSet::new();
        push.writes.iter().for_each(|(offset, bytes)| data.insert(*offset..*offset + bytes.len() as u64));
        let replaces = replaces(ctx.store, &push.object, &data);
        let has_room = if replaces { has_room_to_replace } else { has_room };
        if !has_room(ctx.store, push.payload_len()) {
            return;
        }
        let (id, object) = (push.id, push.object.clone());
        match self.take_push(ctx, push) {
            // Some time later it is sent anew, with all that is missing then.
            Ok(None) => {}
            Ok(Some(refused)) => {
                let answer = match refused.is_empty() {
                    true => PgMsg::Pushed { id, object },
                    false => PgMsg::PushedWithout { id, object, data: refused },
                };
                self.once_durable(ctx, WhenStored::Answer(from, Box::new(answer)));
            }
            Err(error) => ctx.log(Level::Error, format!("pg {}: {object}: {error}", self.id)),
        }
    }
}

/// Whether these bytes of an object would take the place of others that are here.
pub fn replaces(store: &dyn StoreView, object: &ObjectId, data: &IntervalSet) -> bool {
    let id = StoredId::Object(object.clone());
    let is_here = store.stat(&id).is_ok_and(|stat| stat.is_some());
    is_here
        && data.iter().all(|range| {
            let have = store.extents(&id, range.start, range.end - range.start).unwrap_or_default();
            have.iter().map(|(_, len)| len).sum::<u64>() == range.end - range.start
        })
}

/// What a part needs of what is known.
fn of_part(salvaged: &SalvagedExtents, part: &Part) -> Vec<(u64, Bytes)> {
    let cut = |(offset, bytes): &(u64, Bytes)| -> Vec<(u64, Bytes)> {
        let wanted = part.data.intersection(&(*offset..offset + bytes.len() as u64).into());
        let slice =
            |range: Range<u64>| bytes.slice((range.start - offset) as usize..(range.end - offset) as usize);
        wanted.iter().map(|range| (range.start, slice(range))).collect()
    };
    salvaged.0.iter().flat_map(cut).collect()
}

fn load_meta(store: &dyn StoreView, id: &StoredId) -> Result<Meta, ReadError> {
    Ok(Meta {
        size: store.stat(id)?.unwrap_or_default().size,
        attrs: store.attrs(id)?,
        omap_header: store.omap_header(id)?,
    })
}

/// Makes that the metadata of something that has attributes of these names.
pub fn set_meta(txn: &mut Transaction, id: &StoredId, meta: &Meta, have: BTreeSet<Name>) {
    txn.push(id.clone(), Change::Touch);
    for name in have.into_iter().filter(|name| !meta.attrs.contains_key(name)) {
        txn.push(id.clone(), Change::RemoveAttr(name));
    }
    txn.push(id.clone(), Change::SetAttrs(meta.attrs.clone()));
    txn.push(id.clone(), Change::OmapSetHeader(meta.omap_header.clone()));
    txn.push(id.clone(), Change::Truncate { size: meta.size });
}

/// Metadata of a clone came: the index says for which snapshots it is.
pub fn index_clone(
    store: &dyn StoreView,
    object: &ObjectId,
    meta: &Meta,
    txn: &mut Transaction,
) -> Result<(), ReadError> {
    if object.snap == SnapId::HEAD {
        return Ok(());
    }
    // What cannot be read is not in the way.
    if let Ok(Some(old)) = ObjectInfo::load(store, object) {
        snap_index::remove(object, &old.snaps, txn); // it may have been for more
    }
    let info = meta.attrs.get(ATTR).cloned().unwrap_or_default();
    let info: ObjectInfo = from_slice(&info)
        .map_err(|e| ReadError::Device(format!("{object}: its info does not decode: {e}")))?;
    snap_index::add(object, &info.snaps, txn);
    Ok(())
}

/// The names of all attributes that an object here may have once a transaction is done, before its
/// metadata is set anew.
pub fn attrs_after(
    store: &dyn StoreView,
    object: &ObjectId,
    txn: &Transaction,
) -> Result<BTreeSet<Name>, ReadError> {
    let id = StoredId::Object(object.clone());
    let mut names: BTreeSet<Name> = store.attrs(&id)?.into_keys().collect();
    for (_, change) in txn.changes.iter().filter(|(changed, _)| *changed == id) {
        if let Change::CloneFrom(from) = change {
            names.extend(store.attrs(from)?.into_keys());
        }
    }
    Ok(names)
}

/// The metadata that objects have once a transaction is done, of those that some member lacks it of.
/// The store shows everything before the transaction, and whole.
pub fn metas_after(
    store: &dyn StoreView,
    txn: &Transaction,
    lacking: &dyn Fn(&ObjectId) -> bool,
) -> Result<Vec<(ObjectId, Meta)>, ReadError> {
    let copies = txn.changes.iter().filter_map(|(id, change)| match (id, change) {
        (StoredId::Object(object), Change::CloneFrom(StoredId::Object(from))) if lacking(from) => {
            Some(object)
        }
        _ => None,
    });
    let direct = txn.changes.iter().filter_map(|(id, _)| match id {
        StoredId::Object(object) if lacking(object) => Some(object),
        _ => None,
    });
    let wanted: BTreeSet<ObjectId> = direct.chain(copies).cloned().collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut metas: BTreeMap<&StoredId, Option<Meta>> = BTreeMap::new();
    let load = |id: &StoredId| -> Result<Option<Meta>, ReadError> {
        Ok(if store.stat(id)?.is_some() { Some(load_meta(store, id)?) } else { None })
    };
    for (id, change) in &txn.changes {
        if let Change::CloneFrom(from) = change {
            let copy = match metas.get(from) {
                Some(meta) => meta.clone(),
                None => load(from)?,
            };
            metas.insert(id, Some(copy.unwrap_or_default()));
            continue;
        }
        if !metas.contains_key(id) {
            metas.insert(id, load(id)?);
        }
        let slot = metas.get_mut(id).expect("just made sure");
        if let Change::Remove = change {
            *slot = None;
            continue;
        }
        let meta = slot.get_or_insert_default();
        match change {
            Change::Write { offset, data } => meta.size = meta.size.max(offset + data.len() as u64),
            Change::Zero { offset, len } => meta.size = meta.size.max(offset + len),
            Change::Truncate { size } => meta.size = *size,
            Change::SetAttrs(attrs) => meta.attrs.extend(attrs.iter().map(|(k, v)| (k.clone(), v.clone()))),
            Change::RemoveAttr(name) => drop(meta.attrs.remove(name)),
            Change::OmapClear => meta.omap_header = Bytes::new(),
            Change::OmapSetHeader(header) => meta.omap_header = header.clone(),
            Change::Touch | Change::OmapSet(_) | Change::OmapRemove(_) | Change::OmapRemoveRange { .. } => {}
            Change::Remove | Change::CloneFrom(_) => unreachable!("done above"),
            Change::CloneBlocks { .. } => unreachable!("recovery alone shares blocks"),
        }
    }
    let found = metas.into_iter().filter_map(|(id, meta)| match id {
        StoredId::Object(object) if wanted.contains(object) => Some((object.clone(), meta?)),
        _ => None,
    });
    Ok(found.collect())
}
