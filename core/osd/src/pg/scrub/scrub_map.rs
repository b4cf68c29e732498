//! What a member reports about its own copies (Ceph: the scrub map): names and metadata, and checksums of
//! pieces of content. The primary asks itself the same questions.

use super::{SLICE, ScrubRecord};
use crate::object_info::ObjectInfo;
use crate::pg::history::History;
use crate::pg::pending::Pending;
use crate::pg::{Ctx, PgEffect};
use bytes::Bytes;
use nacre_base::{Name, OsdId, SnapId};
use nacre_erasure::kernel::Kernel;
use nacre_machine::{Level, ReadError};
use nacre_proto::messages::scrub::{
    BadSnaps, ScrubAnswer, ScrubEntry, ScrubQuery, ScrubSum, scrub_error as is,
};
use nacre_proto::transaction::StoredId;
use nacre_proto::types::ObjectId;
use nacre_wire::{crc32c, crc32c_zeros};
use std::collections::{BTreeMap, BTreeSet};

/// Names in one answer; the primary asks for fewer of its own.
pub const NAMES_MAX: usize = 1024;
/// Bytes of attributes' values in one answer.
const VALUES_MAX: usize = 256 << 10;
/// Pairs of omap in one piece; a member that has many more there does not count them all.
pub const PIECE_KEYS: usize = if cfg!(test) { 2 } else { 1024 };
/// Bytes of them.
pub const PIECE_OMAP: usize = 1 << 20;

/// A piece of data that is being read.
pub struct SumRead {
    /// None: the primary asks itself.
    asker: Option<OsdId>,
    id: u64,
    offset: u64,
    len: u64,
    /// Of it that are in the object.
    here: u64,
    chain: u32,
    /// Of a shard: products with these are asked for too.
    factors: Vec<u8>,
    extents: Vec<(u64, u64)>,
}

/// A reply that is ready: for which member (None: for the primary itself), to which question, and what.
pub type ReadyReply = (Option<OsdId>, u64, ScrubAnswer);

impl ScrubRecord {
    /// Replies from what is here at this moment. None: the reply comes when data were read.
    pub fn reply(
        &mut self,
        ctx: &mut Ctx<'_>,
        (history, pending): (&History, &mut Pending),
        asker: Option<OsdId>,
        id: u64,
        query: ScrubQuery,
    ) -> Option<ScrubAnswer> {
        let reply = match query {
            ScrubQuery::Names { from, to, values } => scan_names(ctx, history, &from, to.as_ref(), values),
            ScrubQuery::Data { object, offset, len, chain, factors } => {
                let piece = (offset, len.min(SLICE));
                match self.start_sum(ctx, pending, (asker, id), object, piece, (chain, factors)) {
                    Ok(None) => return None,
                    Ok(Some(answer)) => Ok(answer),
                    Err(error) => Err(error),
                }
            }
            ScrubQuery::Omap { object, from, to, chain } => sum_omap(ctx, &object, &from, to.as_ref(), chain),
        };
        Some(reply.unwrap_or_else(|error| {
            ctx.log(Level::Warn, format!("pg {}: {error}", self.pg));
            ScrubAnswer::Sum(ScrubSum::Unreadable)
        }))
    }

    /// None if the reply comes later.
    fn start_sum(
        &mut self,
        ctx: &mut Ctx<'_>,
        pending: &mut Pending,
        (asker, id): (Option<OsdId>, u64),
        object: ObjectId,
        (offset, len): (u64, u64),
        (chain, factors): (u32, Vec<u8>),
    ) -> Result<Option<ScrubAnswer>, ReadError> {
        let stored = StoredId::Object(object.clone());
        let Some(stat) = ctx.store.stat(&stored)? else {
            return Ok(Some(ScrubAnswer::Sum(ScrubSum::Absent)));
        };
        let here = stat.size.saturating_sub(offset).min(len);
        let extents = ctx.store.extents(&stored, offset, here)?;
        let read = SumRead { asker, id, offset, len, here, chain, factors, extents };
        if read.extents.is_empty() {
            return Ok(Some(read.answer(&[])));
        }
        let number = pending.next_read();
        let extents = read.extents.clone();
        self.reads.insert(number, read);
        ctx.out.push(PgEffect::Read { read: number, object: Box::new(object), extents, device: true });
        Ok(None)
    }

    pub fn on_sum_read(
        &mut self,
        ctx: &mut Ctx<'_>,
        number: u64,
        result: Result<Vec<Bytes>, ReadError>,
    ) -> Option<ReadyReply> {
        let read = self.reads.remove(&number)?;
        let answer = match &result {
            Ok(data) => read.answer(data),
            Err(ReadError::NotFound(_)) => ScrubAnswer::Sum(ScrubSum::Absent),
            Err(error) => {
                ctx.log(Level::Warn, format!("pg {}: {error}", self.pg));
                ScrubAnswer::Sum(ScrubSum::Unreadable)
            }
        };
        Some((read.asker, read.id, answer))
    }
}

fn scan_names(
    ctx: &Ctx<'_>,
    history: &History,
    from: &ObjectId,
    to: Option<&ObjectId>,
    values: bool,
) -> Result<ScrubAnswer, ReadError> {
    let mut objects = history.range.objects_from(ctx.store, from, NAMES_MAX)?;
    let full = objects.len() == NAMES_MAX;
    objects.retain(|object| to.is_none_or(|to| object < to));
    let end = if full && objects.len() == NAMES_MAX { objects.pop() } else { None };
    let mut room = if values { VALUES_MAX } else { 0 };
    let entries = objects.into_iter().map(|object| entry_of(ctx, object, &mut room)).collect();
    Ok(ScrubAnswer::Names { entries, end })
}

fn sum_omap(
    ctx: &Ctx<'_>,
    object: &ObjectId,
    from: &Name,
    to: Option<&Name>,
    mut chain: u32,
) -> Result<ScrubAnswer, ReadError> {
    let id = StoredId::Object(object.clone());
    if ctx.store.stat(&id)?.is_none() {
        return Ok(ScrubAnswer::Sum(ScrubSum::Absent));
    }
    let (mut sum, mut pairs) = (u32::MAX, 0);
    ctx.store.omap_walk(&id, from.as_bytes(), &mut |key, value| {
        if to.is_some_and(|to| key >= to) || pairs > 2 * PIECE_KEYS {
            return false;
        }
        pairs += 1;
        sum = sum_pair(sum, key, value);
        chain = sum_pair(chain, key, value);
        true
    })?;
    Ok(ScrubAnswer::Sum(ScrubSum::Of { sum, chain }))
}

/// Where a piece of omap that starts at `from` ends, and how many keys and bytes it has here.
pub fn omap_piece(ctx: &Ctx<'_>, object: &ObjectId, from: &Name) -> (Option<Name>, u64, u64) {
    let (mut end, mut keys, mut bytes) = (None, 0, 0);
    let walked = ctx.store.omap_walk(&object.clone().into(), from.as_bytes(), &mut |key, value| {
        if keys >= PIECE_KEYS || bytes >= PIECE_OMAP {
            end = Some(key.clone());
            return false;
        }
        keys += 1;
        bytes += key.len() + value.len();
        true
    });
    // What cannot be walked over says so again when it is summed up.
    if walked.is_ok() { (end, keys as u64, bytes as u64) } else { (None, 0, 0) }
}

/// Whether the clones here are those that their heads know of. Gives what is wrong with clones, and then the
/// head of each that is wrong, as Ceph reports it.
pub fn check_clones(ctx: &Ctx<'_>, objects: &[ObjectId]) -> Vec<(ObjectId, BadSnaps)> {
    let mut heads: BTreeMap<ObjectId, (bool, BTreeSet<SnapId>)> = BTreeMap::new();
    for object in objects {
        let (has_head, clones) = heads.entry(object.to_head()).or_default();
        if object.snap == SnapId::HEAD {
            *has_head = true;
        } else {
            clones.insert(object.snap);
        }
    }
    let mut found = Vec::new();
    for (head, (has_head, clones)) in heads {
        let info = if has_head { ObjectInfo::load(ctx.store, &head) } else { Ok(None) };
        let known = match info {
            Ok(Some(info)) => info.snap_set.clones,
            Ok(None) if !has_head => BTreeMap::new(),
            _ => continue, // what is wrong is the head
        };
        let first = found.len();
        let mut bad = BadSnaps::default();
        for snap in &clones {
            let clone = ObjectId { snap: *snap, ..head.clone() };
            let errors = match known.get(snap) {
                None => is::snaps::HEADLESS_CLONE,
                Some(info) => {
                    let sharded =
                        ObjectInfo::load(ctx.store, &clone).ok().flatten().and_then(|info| info.erasure);
                    let stored =
                        || ctx.store.stat(&clone.clone().into()).ok().flatten().map(|stat| stat.size);
                    let size = sharded.map(|sharded| sharded.size).or_else(stored);
                    if size.is_some_and(|size| size != info.size) { is::snaps::SIZE } else { 0 }
                }
            };
            bad.extra.extend((errors == is::snaps::HEADLESS_CLONE).then_some(*snap));
            if errors != 0 {
                found.push((clone, BadSnaps { errors, ..BadSnaps::default() }));
            }
        }
        bad.missing.extend(known.keys().filter(|snap| !clones.contains(snap)));
        if !bad.missing.is_empty() {
            bad.errors |= is::snaps::CLONE_MISSING;
        }
        if !bad.extra.is_empty() {
            bad.errors |= is::snaps::EXTRA_CLONES;
        }
        if has_head && (bad.errors != 0 || found.len() > first) {
            found.push((head, bad));
        }
    }
    found
}

fn sum_pair(sum: u32, key: &Name, value: &Bytes) -> u32 {
    let sum = crc32c(sum, &(key.len() as u64).to_le_bytes());
    let sum = crc32c(sum, key.as_bytes());
    let sum = crc32c(sum, &(value.len() as u64).to_le_bytes());
    crc32c(sum, value)
}

fn entry_of(ctx: &Ctx<'_>, object: ObjectId, room: &mut usize) -> ScrubEntry {
    let id = StoredId::Object(object.clone());
    let mut entry = ScrubEntry::new(object);
    match ctx.store.stat(&id) {
        Ok(stat) => entry.size = stat.unwrap_or_default().size,
        Err(_) => entry.errors |= is::shard::STAT,
    }
    match ctx.store.omap_header(&id) {
        Ok(header) => entry.omap_header = crc32c(u32::MAX, &header),
        Err(_) => entry.errors |= is::shard::STAT,
    }
    match ctx.store.attrs(&id) {
        Ok(attrs) => {
            for (name, value) in attrs {
                let sum = crc32c(u32::MAX, &value);
                let fits = *room > value.len();
                *room -= if fits { value.len() } else { 0 };
                entry.attrs.insert(name, (sum, fits.then_some(value)));
            }
        }
        Err(_) => entry.errors |= is::shard::STAT,
    }
    match ObjectInfo::load(ctx.store, &entry.object) {
        Ok(Some(info)) => {
            entry.version = info.version;
            entry.user_version = info.user_version;
            entry.mtime = info.mtime;
        }
        Ok(None) => entry.errors |= is::shard::INFO_MISSING,
        Err(_) => entry.errors |= is::shard::INFO_CORRUPTED,
    }
    entry
}

impl SumRead {
    fn answer(&self, data: &[Bytes]) -> ScrubAnswer {
        let (sum, chain) = self.sum(data);
        if self.factors.is_empty() {
            return ScrubAnswer::Sum(ScrubSum::Of { sum, chain });
        }
        // Few differ: most equations of a shard have it once, or not at all.
        let mut known: BTreeMap<u8, u32> = BTreeMap::new();
        let products =
            self.factors.iter().map(|by| *known.entry(*by).or_insert_with(|| self.product(*by, data)));
        ScrubAnswer::Products { sum, chain, products: products.collect() }
    }
    /// The checksum of these bytes times a factor, from zero.
    fn product(&self, factor: u8, data: &[Bytes]) -> u32 {
        let (mut sum, mut at) = (0, self.offset);
        for ((offset, len), bytes) in self.extents.iter().zip(data).filter(|_| factor != 0) {
            let mut product = vec![0; bytes.len()];
            Kernel::best().add_products(&[(factor, bytes)], &mut product);
            sum = crc32c(crc32c_zeros(sum, offset - at), &product);
            at = offset + (bytes.len() as u64).min(*len);
        }
        crc32c_zeros(sum, self.offset + self.len - at)
    }
    fn sum(&self, data: &[Bytes]) -> (u32, u32) {
        let (mut sum, mut chain, mut at) = (u32::MAX, self.chain, self.offset);
        for ((offset, len), bytes) in self.extents.iter().zip(data) {
            for seed in [&mut sum, &mut chain] {
                *seed = crc32c(crc32c_zeros(*seed, offset - at), bytes);
            }
            // Less came than there was: the rest is zeros, as it would be for a client.
            at = offset + (bytes.len() as u64).min(*len);
        }
        chain = crc32c_zeros(chain, (self.offset + self.here).saturating_sub(at));
        sum = crc32c_zeros(sum, self.offset + self.len - at);
        (sum, chain)
    }
}
