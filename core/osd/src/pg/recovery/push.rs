//! Pushes: parts of objects on their way from a holder to one that lacks them.
//!
//! What is missing on some member was not changed since the interval began: a write makes whatever it changes
//! present on all members, the primary among them. So whenever a part was read, and however late it arrives,
//! what of it the receiver still lacks is right; the rest is newer there.
//!
//! `PushReads` reads parts and makes messages of them, on any holder; `History::take_push` takes one.

use crate::object_info::{ATTR, ObjectInfo};
use crate::ops::OBJECT_SIZE_MAX;
use crate::pg::backend::erasure::index;
use crate::pg::backend::erasure::job::{GatherRequest, Want};
use crate::pg::history::clone_overlap::{self, CloneOverlap};
use crate::pg::history::{History, Update};
use crate::pg::pending::Pending;
use crate::pg::read_repair::{BLOCK, bad_block, unknown};
use crate::pg::record::RecordChanges;
use crate::pg::unapplied::Unapplied;
use crate::pg::{Ctx, Pg, PgEffect, Phase, WhenStored};
use crate::snap_index;
use crate::throttle::write_credit::{has_space, has_space_to_replace};
use bytes::Bytes;
use nacre_base::{IntervalSet, KeyRanges, Name, OsdId, PgId, ShardId, SnapId, key_after};
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

/// Objects whose read errors were logged, as far as they are remembered.
const REPORTED_MAX: usize = 256;

/// A part whose data is being read.
pub struct PushRead {
    id: u64,
    object: ObjectId,
    /// The data that were asked for, and what fits in one message of that and the rest.
    wanted: IntervalSet,
    part: Part,
    extents: Vec<(u64, u64)>,
    /// Salvaged bytes of blocks that cannot be read.
    salvaged: SalvagedExtents,
    /// What the receiver takes from clones that it has.
    common: CloneOverlap,
    purpose: Purpose,
}

/// Reads for pushes that are under way, and objects that could not be read.
#[derive(Default)]
pub struct PushReads {
    reads: BTreeMap<u64, PushRead>,
    reported_unreadable: BTreeSet<ObjectId>,
}

impl PushReads {
    pub fn has(&self, read: u64) -> bool {
        self.reads.contains_key(&read)
    }
    pub fn forget_reads(&mut self) {
        self.reads.clear();
    }
    /// Another interval began.
    pub fn clear(&mut self) {
        self.reads.clear();
        self.reported_unreadable.clear();
    }
    /// Logs it once in an interval for each object: one that no other holder has is asked for every few
    /// seconds.
    fn report_unreadable(&mut self, ctx: &mut Ctx<'_>, pg: PgId, object: &ObjectId, error: &ReadError) {
        if self.reported_unreadable.len() == REPORTED_MAX {
            self.reported_unreadable.clear();
        }
        if self.reported_unreadable.insert(object.clone()) {
            ctx.log(Level::Error, format!("pg {pg}: {object}: {error}"));
        }
    }
}

/// What can be given of a part, and the (offset, length) extents of data to read for it.
type Readable = (Part, Vec<(u64, u64)>);

/// Which member gets the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The primary pulls it.
    Pulled(OsdId),
    /// We, the primary, push it to a member that lacks it.
    Pushed(OsdId),
    /// We, the primary, lack it of another object that has the same there.
    Renamed,
}

/// What came of an attempt to make a push.
pub enum Outcome {
    /// Its data are being read.
    Reading,
    Ready(Purpose, Box<Push>),
    /// Nothing of it can be given.
    Failed {
        id: u64,
        object: ObjectId,
        purpose: Purpose,
    },
}

/// A push to be made.
pub struct PushRequest {
    pub id: u64,
    pub object: ObjectId,
    pub part: Part,
    pub purpose: Purpose,
    /// Of an erasure-coded pool, the shard that is to be sent.
    pub shard: ShardId,
    /// Salvaged bytes, which need not be read.
    pub salvaged: SalvagedExtents,
    /// What the receiver takes from clones that it has.
    pub common: Result<CloneOverlap, ReadError>,
}

/// What was taken of a push.
#[derive(Default)]
pub struct Taken {
    /// Which of the bytes that we should have under other names we have not.
    pub refused: IntervalSet,
    pub update: Update,
}

impl PushReads {
    /// Starts to read that part of an object, or as much of it as is here and fits in one message.
    pub fn make(
        &mut self,
        ctx: &mut Ctx<'_>,
        (history, pending): (&History, &mut Pending),
        request: PushRequest,
    ) -> Outcome {
        let PushRequest { id, object, part, purpose, shard, salvaged, common } = request;
        let wanted = part.data.clone();
        let is_shard = history.info.shard.is_some();
        let readable = common.and_then(|common| {
            let readable = match is_shard {
                true => history.readable_shard(ctx.store, &pending.unapplied, &object, part)?,
                false => {
                    history.readable(ctx.store, &pending.unapplied, &object, part, &salvaged, &common)?
                }
            };
            Ok(readable.map(|(part, extents)| (part, extents, common)))
        });
        match readable {
            Err(error) => {
                self.report_unreadable(ctx, history.pg, &object, &error);
                Outcome::Failed { id, object, purpose }
            }
            Ok(None) => Outcome::Failed { id, object, purpose },
            Ok(Some((part, extents, common))) => {
                let read = PushRead { id, object, wanted, part, extents, salvaged, common, purpose };
                // What recovery pulls from its own clones comes in a later event.
                if read.extents.is_empty() && purpose != Purpose::Renamed {
                    return self.finish(ctx, (history, &*pending), read, Vec::new());
                }
                let number = pending.next_read();
                let (object, extents) = (read.object.clone(), read.extents.clone());
                if is_shard {
                    // Only the primary knows what others have: it asks for nothing but metadata.
                    let Some(shard) = index(shard) else { return read.failed() };
                    self.reads.insert(number, read);
                    let want = Want::Shard(shard, extents);
                    pending.gathers.push(GatherRequest { read: number, object, want });
                    return Outcome::Reading;
                }
                self.reads.insert(number, read);
                ctx.out.push(PgEffect::Read {
                    read: number,
                    object: Box::new(object),
                    extents,
                    device: false,
                });
                Outcome::Reading
            }
        }
    }

    fn finish(
        &mut self,
        ctx: &mut Ctx<'_>,
        (history, pending): (&History, &Pending),
        read: PushRead,
        data: Vec<Bytes>,
    ) -> Outcome {
        let (id, purpose) = (read.id, read.purpose);
        let object = read.object.clone();
        match history.push_message(ctx.store, &pending.unapplied, read, data) {
            Ok(Some(push)) => Outcome::Ready(purpose, Box::new(push)),
            Ok(None) => Outcome::Failed { id, object, purpose },
            Err(error) => {
                self.report_unreadable(ctx, history.pg, &object, &error);
                Outcome::Failed { id, object, purpose }
            }
        }
    }
}

impl PushRead {
    fn failed(self) -> Outcome {
        Outcome::Failed { id: self.id, object: self.object, purpose: self.purpose }
    }
    /// What can be read, and what was salvaged of the block that cannot: perhaps no other holder has any of
    /// it. None if the error is about another block.
    fn rest(&self, error: &ReadError) -> Option<PushRequest> {
        let (_, block, of_block) = bad_block(error)?;
        let (start, end) = (block * BLOCK, (block + 1) * BLOCK);
        if !self.extents.iter().any(|(offset, len)| *offset < end && start < offset + len) {
            return None;
        }
        let (mut part, mut salvaged) = (self.part.clone(), self.salvaged.clone());
        part.data = self.wanted.clone();
        part.data.subtract(&unknown(block, of_block));
        salvaged.0.extend(of_block.0.iter().cloned());
        let (id, object, purpose) = (self.id, self.object.clone(), self.purpose);
        let (shard, common) = (ShardId::NONE, Ok(CloneOverlap::new()));
        Some(PushRequest { id, object, part, purpose, shard, salvaged, common })
    }
}

impl History {
    /// What of a part can be given, beside what the receiver has elsewhere, and which data must be read for
    /// it. The omap is cut later.
    fn readable(
        &self,
        store: &dyn StoreView,
        unapplied: &Unapplied,
        object: &ObjectId,
        part: Part,
        salvaged: &SalvagedExtents,
        common: &CloneOverlap,
    ) -> Result<Option<Readable>, ReadError> {
        let id = StoredId::Object(object.clone());
        // Bytes that are not missing are right, whatever the metadata.
        if part.meta && self.missing.lacks_meta(object) || unapplied.contains(object) {
            return Ok(None);
        }
        let Some(stat) = store.stat(&id)? else { return Ok(None) };
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
            for (offset, len) in store.extents(&id, range.start, end - range.start)? {
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

    /// The same of a shard, of which all bytes can be gathered: what there is of ours says nothing of it.
    fn readable_shard(
        &self,
        store: &dyn StoreView,
        unapplied: &Unapplied,
        object: &ObjectId,
        mut part: Part,
    ) -> Result<Option<Readable>, ReadError> {
        if self.missing.lacks_meta(object) || unapplied.contains(object) {
            return Ok(None);
        }
        let Some(stat) = store.stat(&StoredId::Object(object.clone()))? else { return Ok(None) };
        let (mut data, mut extents, mut left) = (IntervalSet::new(), Vec::new(), PART_DATA);
        for range in part.data.iter() {
            let end = range.end.min(stat.size);
            let len = end.saturating_sub(range.start).min(left);
            if len > 0 {
                extents.push((range.start, len));
                left -= len;
            }
            if range.start + len < end {
                data.insert(range.start..range.start + len);
                break;
            }
            data.insert(range);
        }
        part.data = data;
        Ok((!part.is_empty()).then_some((part, extents)))
    }

    /// None if the object is gone, or changes in this turn.
    fn push_message(
        &self,
        store: &dyn StoreView,
        unapplied: &Unapplied,
        read: PushRead,
        data: Vec<Bytes>,
    ) -> Result<Option<Push>, ReadError> {
        let PushRead { id, object, mut part, extents, salvaged, common, .. } = read;
        let stored = StoredId::Object(object.clone());
        if unapplied.contains(&object) || store.stat(&stored)?.is_none() {
            return Ok(None);
        }
        let meta = if part.meta { Some(load_meta(store, &stored)?) } else { None };
        let read = extents.iter().zip(data).map(|((offset, _), data)| (*offset, data));
        let mut writes: Vec<(u64, Bytes)> = read.filter(|(_, data)| !data.is_empty()).collect();
        if self.info.shard.is_some() {
            // Which bytes were never written is not known of another shard.
            writes.retain(|(_, data)| data.iter().any(|byte| *byte != 0));
        }
        if !salvaged.0.is_empty() {
            writes.extend(of_part(&salvaged, &part));
            writes.sort_by_key(|(offset, _)| *offset);
        }
        let (omap, pairs) = omap_part(store, &stored, &part.omap)?;
        part.omap = omap;
        part.data.add(&clone_overlap::all(&common));
        Ok(Some(Push { id, object, part, meta, writes, pairs, common }))
    }

    /// Takes of a push what is still missing here. None if it cannot be taken.
    pub fn take_push(&mut self, store: &dyn StoreView, push: Push) -> Result<Option<Taken>, ReadError> {
        let Push { object, part, meta, writes, pairs, common, .. } = push;
        let Some(stale) = self.missing.get(&object) else { return Ok(Some(Taken::default())) };
        let id = StoredId::Object(object.clone());
        let mut part = part.intersection(&stale.part);
        let meta = meta.filter(|_| part.meta);
        if stale.part.meta && meta.is_none() {
            return Ok(None); // without its size the object's bytes have no place
        }
        let mut txn = Transaction::new();
        if let Some(meta) = &meta {
            let have = match store.attrs(&id) {
                Ok(attrs) => attrs.into_keys().collect(),
                // It takes the place of what cannot be read.
                Err(_) if stale.part == Part::everything() => {
                    txn.push(id.clone(), Change::Remove);
                    BTreeSet::new()
                }
                Err(error) => return Err(error),
            };
            set_meta(&mut txn, &id, meta, have);
            index_clone(store, &object, meta, &mut txn)?;
        }
        let size = match &meta {
            Some(meta) => meta.size,
            None => store.stat(&id)?.unwrap_or_default().size,
        };
        let mut refused = clone_overlap::all(&common).intersection(&part.data);
        let common = self.usable_overlap(store, &object, common, &part.data, size);
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
        let update = self.got_part(&object, &part, meta.map(|meta| meta.size), txn);
        Ok(Some(Taken { refused, update }))
    }

    /// With `txn` that part of the object is here, and with the metadata its size: it is missing no more.
    pub fn got_part(
        &mut self,
        object: &ObjectId,
        part: &Part,
        size: Option<u64>,
        mut txn: Transaction,
    ) -> Update {
        self.missing.got(object, part, size);
        let mut changes = RecordChanges::new(self.pg);
        changes.missing(object, self.missing.get(object));
        changes.into_txn(&mut txn);
        Update { txn, objects: [object.clone()].into() }
    }
}

/// Events, on any holder.
impl Pg {
    pub fn on_push_read(&mut self, ctx: &mut Ctx<'_>, number: u64, result: Result<Vec<Bytes>, ReadError>) {
        let Some(read) = self.push_reads.reads.remove(&number) else { return };
        let outcome = match result {
            Ok(data) => self.push_reads.finish(ctx, (&self.history, &self.pending), read, data),
            // Removed meanwhile: no member lacks any of it now.
            Err(ReadError::NotFound(_)) => read.failed(),
            Err(error) if self.repair_read(ctx, &error) => read.failed(),
            Err(error) => {
                self.push_reads.report_unreadable(ctx, self.id, &read.object, &error);
                match read.rest(&error) {
                    Some(request) => self.make_push(ctx, request),
                    None => read.failed(),
                }
            }
        };
        self.on_push_made(ctx, outcome);
    }

    fn make_push(&mut self, ctx: &mut Ctx<'_>, mut request: PushRequest) -> Outcome {
        if let (Purpose::Pushed(osd), Phase::Active(active)) = (request.purpose, &self.phase) {
            let (object, data) = (&request.object, &request.part.data);
            let members = &active.members;
            request.common =
                active.recovery.member_overlap(ctx.store, &self.history, members, osd, object, data);
        }
        self.push_reads.make(ctx, (&self.history, &mut self.pending), request)
    }

    fn on_push_made(&mut self, ctx: &mut Ctx<'_>, outcome: Outcome) {
        match outcome {
            Outcome::Reading => {}
            Outcome::Ready(Purpose::Pulled(osd), push) => {
                ctx.out.push(PgEffect::answer(osd, PgMsg::Push(push)));
            }
            Outcome::Failed { id, object, purpose: Purpose::Pulled(osd) } => {
                ctx.out.push(PgEffect::answer(osd, PgMsg::PullRefused { id, object }));
            }
            outcome => {
                if let Some((recovery, mut scope)) = self.recovery_parts() {
                    recovery.on_push_made(&mut scope, ctx, outcome);
                }
            }
        }
    }

    /// The primary lacks some of an object.
    pub fn on_pull(&mut self, ctx: &mut Ctx<'_>, from: OsdId, id: u64, object: ObjectId, part: Part) {
        let purpose = Purpose::Pulled(from);
        let outcome = if self.interval.primary == Some(from) && self.has_authoritative_log() {
            let (salvaged, common) = (SalvagedExtents::default(), Ok(CloneOverlap::new()));
            let shard = ShardId::NONE;
            self.make_push(ctx, PushRequest { id, object, part, purpose, shard, salvaged, common })
        } else {
            Outcome::Failed { id, object, purpose }
        };
        self.on_push_made(ctx, outcome);
    }

    /// A part arrives: one that we pulled, or one that the primary pushes.
    pub fn on_push(&mut self, ctx: &mut Ctx<'_>, from: OsdId, push: Push) {
        let ends = push.writes.iter().map(|(offset, data)| offset.saturating_add(data.len() as u64));
        let end = ends.chain(push.meta.as_ref().map(|meta| meta.size)).max().unwrap_or_default();
        if !self.history.range.contains(&push.object) || end > OBJECT_SIZE_MAX {
            let text = format!("pg {}: osd.{from} pushed {} up to byte {end}", self.id, push.object);
            ctx.log(Level::Error, text);
            return;
        }
        if self.interval.primary == Some(self.me) {
            if let Some((recovery, mut scope)) = self.recovery_parts() {
                recovery.on_pulled(&mut scope, ctx, from, push);
            }
            return;
        }
        if self.interval.primary != Some(from) || !self.is_replica_with_log() {
            return;
        }
        // It is sent again after a while; until then there may be free space.
        let mut data = IntervalSet::new();
        push.writes.iter().for_each(|(offset, bytes)| data.insert(*offset..*offset + bytes.len() as u64));
        let replaces = replaces(ctx.store, &push.object, &data);
        let has_space = if replaces { has_space_to_replace } else { has_space };
        if !has_space(ctx.store, push.payload_len()) {
            return;
        }
        let (id, object) = (push.id, push.object.clone());
        match self.history.take_push(ctx.store, push) {
            // Some time later it is sent anew, with all that is missing then.
            Ok(None) => {}
            Ok(Some(Taken { refused, update })) => {
                self.apply(ctx, update);
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

/// As many pairs of these ranges as fit in one message, and the ranges that they are all of.
fn omap_part(
    store: &dyn StoreView,
    id: &StoredId,
    ranges: &KeyRanges,
) -> Result<(KeyRanges, BTreeMap<Name, Bytes>), ReadError> {
    let (mut done, mut pairs, mut bytes) = (KeyRanges::default(), BTreeMap::new(), 0);
    for (start, end) in ranges.iter() {
        let (mut full, mut last) = (false, None);
        store.omap_walk(id, start.as_bytes(), &mut |key, value| {
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

/// Sets the metadata of an object that has attributes of these names.
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
    // An index entry that cannot be read is not in the way.
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

/// The metadata that objects have once a transaction is done, of objects of which some member lacks it.
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
            Change::Write { offset, data } | Change::Xor { offset, data } => {
                meta.size = meta.size.max(offset + data.len() as u64);
            }
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
