//! Objects on their way between members: cut into parts by who has them, put together by who
//! needs them. A part says where the next one starts, so that neither side keeps a state that a
//! lost message could make wrong.

use super::record::{RecordChanges, temporary};
use super::{Ctx, Pg, PgEffect, WhenStored};
use crate::object_info::ObjectInfo;
use bytes::Bytes;
use nacre_base::{Name, OsdId, Version};
use nacre_machine::{Level, ReadError};
use nacre_proto::messages::peer::{PgMsg, Push, PushCursor};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::collections::BTreeMap;

/// Bytes of data in one part.
/// Tests need several parts for small objects.
const PART_DATA: u64 = if cfg!(test) { 16 } else { 4 << 20 };
/// Bytes of omap in one part, and keys.
const PART_OMAP: usize = 2 << 20;
const PART_KEYS: usize = if cfg!(test) { 2 } else { 4096 };

/// A part whose data is being read.
pub struct PushRead {
    object: ObjectId,
    version: Version,
    cursor: PushCursor,
    extents: Vec<(u64, u64)>,
    purpose: Purpose,
}

/// Who wants the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody pulls it.
    Pulled(OsdId),
    /// We push it to those who miss it.
    Pushed,
}

impl Pg {
    /// Starts to make a part of `object`; `part_ready` or `part_failed` follows.
    pub fn make_part(
        &mut self,
        ctx: &mut Ctx<'_>,
        object: ObjectId,
        version: Version,
        cursor: PushCursor,
        purpose: Purpose,
    ) {
        let id = StoredId::Object(object.clone());
        let extents = match self.has_version(ctx, &object, version) {
            Ok(true) => ctx.store.stat(&id).map(|stat| stat.unwrap_or_default().size).and_then(|size| {
                let len = size.saturating_sub(cursor.offset).min(PART_DATA);
                if len == 0 { Ok(Vec::new()) } else { ctx.store.extents(&id, cursor.offset, len) }
            }),
            Ok(false) => return self.part_failed(ctx, object, version, purpose),
            Err(error) => Err(error),
        };
        match extents {
            Err(error) => {
                ctx.log(Level::Error, format!("pg {}: {object}: {error}", self.id));
                self.part_failed(ctx, object, version, purpose);
            }
            Ok(extents) => {
                let read = PushRead { object, version, cursor, extents, purpose };
                if read.extents.is_empty() {
                    self.finish_part(ctx, read, Vec::new());
                    return;
                }
                let number = self.next_read();
                let (object, extents) = (read.object.clone(), read.extents.clone());
                self.push_reads.insert(number, read);
                ctx.out.push(PgEffect::Read { read: number, object, extents });
            }
        }
    }

    /// Whether the object is here in just that version, as seen in the view.
    fn has_version(&self, ctx: &Ctx<'_>, object: &ObjectId, version: Version) -> Result<bool, ReadError> {
        let info = ObjectInfo::load(ctx.store, object)?;
        Ok(info.is_some_and(|info| info.version == version) && !self.changed.1.contains(object))
    }

    pub fn on_push_read(&mut self, ctx: &mut Ctx<'_>, number: u64, result: Result<Vec<Bytes>, ReadError>) {
        let Some(read) = self.push_reads.remove(&number) else { return };
        match result {
            Ok(data) => self.finish_part(ctx, read, data),
            Err(error) => {
                ctx.log(Level::Error, format!("pg {}: {}: {error}", self.id, read.object));
                self.part_failed(ctx, read.object, read.version, read.purpose);
            }
        }
    }

    fn finish_part(&mut self, ctx: &mut Ctx<'_>, read: PushRead, data: Vec<Bytes>) {
        match self.part(ctx, &read, data) {
            Ok(Some(part)) => match read.purpose {
                Purpose::Pulled(osd) => ctx.out.push(PgEffect::Answer(osd, PgMsg::Push(Box::new(part)))),
                Purpose::Pushed => self.part_ready(ctx, part),
            },
            Ok(None) => self.part_failed(ctx, read.object, read.version, read.purpose),
            Err(error) => {
                ctx.log(Level::Error, format!("pg {}: {}: {error}", self.id, read.object));
                self.part_failed(ctx, read.object, read.version, read.purpose);
            }
        }
    }

    fn part_failed(&mut self, ctx: &mut Ctx<'_>, object: ObjectId, need: Version, purpose: Purpose) {
        match purpose {
            Purpose::Pulled(osd) => ctx.out.push(PgEffect::Answer(osd, PgMsg::PullRefused { object, need })),
            Purpose::Pushed => self.push_failed(&object),
        }
    }

    /// None if the object changed meanwhile.
    fn part(&self, ctx: &Ctx<'_>, read: &PushRead, data: Vec<Bytes>) -> Result<Option<Push>, ReadError> {
        let PushRead { object, version, cursor, extents, .. } = read;
        if !self.has_version(ctx, object, *version)? {
            return Ok(None);
        }
        let id = StoredId::Object(object.clone());
        let size = ctx.store.stat(&id)?.unwrap_or_default().size;
        let mut txn = Transaction::new();
        if cursor.is_start() {
            txn.push(id.clone(), Change::Touch);
            txn.push(id.clone(), Change::SetAttrs(ctx.store.attrs(&id)?));
            let header = ctx.store.omap_header(&id)?;
            if !header.is_empty() {
                txn.push(id.clone(), Change::OmapSetHeader(header));
            }
            txn.push(id.clone(), Change::Truncate { size });
        }
        for (&(offset, _), data) in extents.iter().zip(data).filter(|(_, data)| !data.is_empty()) {
            txn.push(id.clone(), Change::Write { offset, data });
        }
        let end = (cursor.offset + PART_DATA).min(size);
        if end < size {
            let next = Some(PushCursor { offset: end, omap_after: None });
            return Ok(Some(Push {
                object: object.clone(),
                version: *version,
                cursor: cursor.clone(),
                next,
                txn,
            }));
        }
        let (pairs, last) = self.omap_part(ctx, &id, cursor.omap_after.as_ref())?;
        if !pairs.is_empty() {
            txn.push(id, Change::OmapSet(pairs));
        }
        let next = last.map(|key| PushCursor { offset: size, omap_after: Some(key) });
        Ok(Some(Push { object: object.clone(), version: *version, cursor: cursor.clone(), next, txn }))
    }

    /// Pairs after a key, and the last one's key if there are more.
    fn omap_part(
        &self,
        ctx: &Ctx<'_>,
        id: &StoredId,
        after: Option<&Name>,
    ) -> Result<(BTreeMap<Name, Bytes>, Option<Name>), ReadError> {
        let from = after.map_or_else(Vec::new, |key| [key.as_bytes(), &[0]].concat());
        let (mut pairs, mut bytes, mut more) = (BTreeMap::new(), 0, false);
        ctx.store.omap_walk(id, &from, &mut |key, value| {
            if bytes >= PART_OMAP || pairs.len() >= PART_KEYS {
                more = true;
                return false;
            }
            bytes += key.len() + value.len();
            pairs.insert(key.clone(), value.clone());
            true
        })?;
        let last = if more { pairs.last_key_value().map(|(key, _)| key.clone()) } else { None };
        Ok((pairs, last))
    }

    /// Takes a part of an object that is missing here. Says whether that was the last, after which
    /// the object is no longer missing; none if the part does not fit.
    pub fn take_part(&mut self, ctx: &mut Ctx<'_>, from: OsdId, push: Push) -> Option<bool> {
        let Push { object, version, cursor, next, txn } = push;
        let id = StoredId::Object(object.clone());
        if self.missing.need(&object) != Some(version) {
            return None;
        }
        if !txn.changes.iter().all(|(changed, _)| *changed == id) {
            ctx.log(Level::Error, format!("pg {}: osd.{from} pushed more than {object}", self.id));
            return None;
        }
        if !cursor.is_start() && !self.receiving.contains(&object) {
            return None;
        }
        let mut changes = RecordChanges::new(self.id);
        let mut all = Transaction::new();
        let whole = cursor.is_start() && next.is_none();
        let target = if whole { id.clone() } else { temporary(&object) };
        if cursor.is_start() {
            all.push(target.clone(), Change::Remove);
        }
        all.changes.extend(txn.changes.into_iter().map(|(_, change)| (target.clone(), change)));
        let done = next.is_none();
        if !whole && done {
            all.push(id, Change::CloneFrom(temporary(&object)));
        }
        if done {
            if self.receiving.remove(&object) {
                all.push(temporary(&object), Change::Remove);
                changes.not_receiving(&object);
            }
            self.missing.forget(&object);
            changes.not_missing(&object);
            self.counts.recovered_objects += 1;
        } else if self.receiving.insert(object.clone()) {
            changes.receiving(&object);
        }
        self.counts.recovered_bytes += all.payload_len() as u64;
        changes.into_txn(&mut all);
        self.changed.1.insert(object);
        self.store(ctx, all);
        Some(done)
    }

    /// Somebody lacks an object.
    pub fn on_pull(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        object: ObjectId,
        need: Version,
        cursor: PushCursor,
    ) {
        self.make_part(ctx, object, need, cursor, Purpose::Pulled(from));
    }

    /// A part arrives: one that we pulled, or one that the primary pushes.
    pub fn on_push(&mut self, ctx: &mut Ctx<'_>, from: OsdId, push: Push) {
        if self.interval.primary == Some(self.me) {
            self.on_pulled(ctx, from, push);
            return;
        }
        if self.interval.primary != Some(from) || !self.is_merged_replica() {
            return;
        }
        let (object, version, cursor) = (push.object.clone(), push.version, push.cursor.clone());
        let had_it = !self.missing.contains(&object);
        if self.take_part(ctx, from, push).is_some() || had_it {
            let answer = PgMsg::Pushed { object, version, cursor };
            self.once_durable(ctx, WhenStored::Answer(from, Box::new(answer)));
        }
    }
}
