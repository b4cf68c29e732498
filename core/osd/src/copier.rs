//! Objects of other PGs that a PG of ours makes copies of: read from their primary by an
//! ordinary request over our session with that OSD, part by part.
//!
//! The first part says which version it is of, the others insist on that version; a source that
//! changed in between is read again from its start. Each part is a read, and so may be asked for
//! any number of times: after every change of the source's primary, whenever a session ends, and
//! when no reply came for long.

use crate::ops::{Copied, OBJECT_SIZE_MAX, source_object};
use bytes::Bytes;
use nacre_base::errno::{EFBIG, EIO, ENXIO, EOVERFLOW, ERANGE, ESHUTDOWN};
use nacre_base::{Epoch, Name, OsdId, PgId, SnapId, Time, Utime};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::{OsdOp, OsdOpItem, OsdOpReply};
use nacre_proto::types::{CopySource, EntityName, Extent, Op, ReqId, SpgId, op_flags};
use nacre_wire::{Decode, DecodeError, Reader};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of data in one part. Tests need several parts for small objects.
const PART_DATA: u64 = if cfg!(test) { 16 } else { 4 << 20 };
/// Pairs of omap in one part.
const PART_KEYS: u64 = if cfg!(test) { 2 } else { 1024 };
/// Attributes and omap of one copy, with an allowance for each pair. They travel to the replicas in
/// the front of one message, which has its limits.
const PAIRS_BYTES_MAX: u64 = 32 << 20;
/// Copies that are fetched at the same time; each may hold a whole object in memory.
const FETCHES_MAX: usize = 16;
/// How often a source may change while it is read before the request fails.
const CHANGES_MAX: u32 = 8;
/// How long an OSD that cannot serve the source right now is left alone.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one that does not answer is waited for.
const REPEAT: Duration = Duration::from_secs(30);

/// The read that needs the copy.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    pub pg: PgId,
    pub interval: Epoch,
    pub read: u64,
}

/// The primary of a source, and its incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pg: PgId,
    pub osd: OsdId,
    life: Epoch,
}

struct Sent {
    tid: u64,
    to: Target,
    at: Time,
}

struct Fetch {
    asker: Asker,
    source: CopySource,
    /// Nothing is known before the first part came.
    started: bool,
    /// That all parts must have; zero: any.
    version: u64,
    size: u64,
    offset: u64,
    copied: Copied,
    pairs_bytes: u64,
    omap_after: Name,
    changes: u32,
    sent: Option<Sent>,
    not_before: Time,
}

#[derive(Default)]
pub struct Copier {
    fetches: BTreeMap<u64, Fetch>,
    last_fetch: u64,
    last_tid: u64,
}

/// A fetch that ended: what came, or a negative errno.
pub type Finished = (Asker, Result<Copied, i32>);

impl Copier {
    pub fn start(&mut self, asker: Asker, source: CopySource) {
        self.last_fetch += 1;
        self.fetches.insert(self.last_fetch, Fetch::new(asker, source));
    }

    /// Those whose next part must be asked for, the oldest first.
    pub fn due(&self, now: Time) -> Vec<u64> {
        // After every event, and nearly always there are none.
        if self.fetches.is_empty() {
            return Vec::new();
        }
        let due = |fetch: &Fetch| match &fetch.sent {
            None => fetch.not_before <= now,
            Some(sent) => sent.at + REPEAT <= now,
        };
        self.fetches.iter().take(FETCHES_MAX).filter(|(_, f)| due(f)).map(|(id, _)| *id).collect()
    }
    /// Err: there is no such pool. None: no OSD serves the source now.
    pub fn target(&self, id: u64, map: &OsdMap) -> Result<Option<Target>, ()> {
        let Some(fetch) = self.fetches.get(&id) else { return Ok(None) };
        if map.pool(fetch.source.locator.pool).is_none() { Err(()) } else { Ok(fetch.target(map)) }
    }
    /// The request for the next part, and its tid.
    pub fn next_part(
        &mut self,
        id: u64,
        to: Target,
        now: Time,
        me: OsdId,
        map: &OsdMap,
    ) -> Option<(u64, OsdOp)> {
        let fetch = self.fetches.get_mut(&id)?;
        self.last_tid += 1;
        let tid = self.last_tid;
        fetch.sent = Some(Sent { tid, to, at: now });
        let object = source_object(&fetch.source);
        let op = OsdOp {
            spg: SpgId::replicated(to.pg),
            hash: object.hash,
            epoch: map.epoch,
            flags: op_flags::message::READ | op_flags::message::ONDISK,
            reqid: ReqId { client: EntityName::osd(me), tid, inc: 0 },
            client_inc: 0,
            mtime: Utime::ZERO,
            locator: fetch.source.locator.clone(),
            name: fetch.source.name.clone(),
            ops: fetch.ops().into_iter().map(OsdOpItem::from).collect(),
            snap: object.snap,
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        };
        Some((tid, op))
    }

    pub fn end(&mut self, id: u64, errno: i32) -> Option<Finished> {
        Some((self.fetches.remove(&id)?.asker, Err(errno)))
    }

    /// A part came; the end of its fetch if it was the last.
    pub fn on_reply(&mut self, now: Time, tid: u64, reply: &OsdOpReply) -> Option<Finished> {
        let waits = |fetch: &Fetch| fetch.sent.as_ref().is_some_and(|sent| sent.tid == tid);
        let (&id, fetch) = self.fetches.iter_mut().find(|(_, fetch)| waits(fetch))?;
        fetch.sent = None;
        if [-ENXIO, -ESHUTDOWN].contains(&reply.result) {
            fetch.not_before = now + PAUSE;
            return None;
        }
        let changed = [-ERANGE, -EOVERFLOW].contains(&reply.result) && fetch.source.version == 0;
        if changed && fetch.changes < CHANGES_MAX {
            let changes = fetch.changes + 1;
            *fetch = Fetch { changes, ..Fetch::new(fetch.asker, fetch.source.clone()) };
            return None;
        }
        if reply.result < 0 {
            return self.end(id, reply.result);
        }
        match fetch.take(reply) {
            Err(_) => self.end(id, -EIO),
            Ok(_) if fetch.pairs_bytes > PAIRS_BYTES_MAX || fetch.size > OBJECT_SIZE_MAX => {
                self.end(id, -EFBIG)
            }
            Ok(true) => None,
            Ok(false) => {
                let fetch = self.fetches.remove(&id)?;
                Some((fetch.asker, Ok(fetch.copied)))
            }
        }
    }

    /// One epoch. `follows`: nothing between it and the one before was skipped.
    pub fn on_map(&mut self, map: &OsdMap, follows: bool) {
        for fetch in self.fetches.values_mut() {
            let target = fetch.target(map);
            if fetch.sent.as_ref().is_some_and(|sent| !follows || target != Some(sent.to)) {
                fetch.sent = None;
            }
        }
    }
    /// What was asked and answered over our session with that OSD may be lost.
    pub fn on_session_lost(&mut self, osd: OsdId) {
        for fetch in self.fetches.values_mut() {
            if fetch.sent.as_ref().is_some_and(|sent| sent.to.osd == osd) {
                fetch.sent = None;
            }
        }
    }
    /// Drops copies that no request waits for any more.
    pub fn retain(&mut self, wanted: impl Fn(&Asker) -> bool) {
        self.fetches.retain(|_, fetch| wanted(&fetch.asker));
    }
}

impl Fetch {
    fn new(asker: Asker, source: CopySource) -> Fetch {
        Fetch {
            asker,
            started: false,
            version: source.version,
            source,
            size: 0,
            offset: 0,
            copied: Copied::default(),
            pairs_bytes: 0,
            omap_after: Name::default(),
            changes: 0,
            sent: None,
            not_before: Time::ZERO,
        }
    }

    fn target(&self, map: &OsdMap) -> Option<Target> {
        let object = source_object(&self.source);
        let pg = map.hash_to_pg(object.pool, object.hash)?;
        let osd = map.pg_to_up_acting(pg).acting_primary?;
        Some(Target { pg, osd, life: map.osd(osd)?.info.up_from })
    }

    fn ops(&self) -> Vec<Op> {
        let mut ops = Vec::new();
        if self.version != 0 {
            ops.push(Op::AssertVer { version: self.version });
        }
        if !self.started {
            ops.extend([Op::Stat, Op::GetXattrs, Op::OmapGetHeader]);
        }
        ops.push(Op::Read(Extent::new(self.offset, PART_DATA)));
        ops.push(Op::OmapGetVals { after: self.omap_after.clone(), max: PART_KEYS, prefix: Name::default() });
        ops
    }

    /// Takes a part in; whether there are more.
    fn take(&mut self, reply: &OsdOpReply) -> Result<bool, DecodeError> {
        let skip = usize::from(self.version != 0);
        let mut outputs = reply.ops.iter().skip(skip).map(|result| &result.data);
        let mut next = || outputs.next().cloned().unwrap_or_default();
        if !self.started {
            let stat = next();
            let r = &mut Reader::new(&stat);
            self.size = u64::decode(r)?;
            self.copied.mtime = Utime::decode(r)?;
            self.copied.attrs = Decode::decode(&mut Reader::new(&next()))?;
            self.copied.omap_header = next();
            self.pairs_bytes += bytes_of(&self.copied.attrs) + self.copied.omap_header.len() as u64;
            self.copied.user_version = reply.user_version;
            self.version = reply.user_version;
            self.started = true;
        }
        let data = next();
        let expected = (self.size - self.offset).min(PART_DATA);
        if data.len() as u64 != expected {
            return Err(DecodeError::Short { needed: expected as usize, left: data.len() });
        }
        self.offset += expected;
        if !data.is_empty() {
            self.copied.data.push(data);
        }
        let omap = next();
        let r = &mut Reader::new(&omap);
        let pairs: BTreeMap<Name, Bytes> = Decode::decode(r)?;
        let more_omap = bool::decode(r)? && !pairs.is_empty();
        self.pairs_bytes += bytes_of(&pairs);
        if let Some((last, _)) = pairs.last_key_value() {
            self.omap_after = last.clone();
        }
        self.copied.omap.extend(pairs);
        Ok(self.offset < self.size || more_omap)
    }
}

fn bytes_of(pairs: &BTreeMap<Name, Bytes>) -> u64 {
    pairs.iter().map(|(key, value)| (key.len() + value.len() + 16) as u64).sum()
}
