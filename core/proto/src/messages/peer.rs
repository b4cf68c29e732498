//! What OSDs tell each other. Ours alone: no Ceph client ever sees these.
//!
//! Each OSD dials every OSD that it has something to ask, and answers come back on the session of
//! the question: two OSDs that talk have a session in each direction.
//!
//! What concerns a placement group carries the interval that its sender is in, and means nothing in
//! any other (`PeerMsg::Pg`). The bytes of written objects travel beside the message, uncopied.

use super::RawMessage;
use super::answer::Answers;
use super::body::Body;
use super::osd::joined;
use super::part::{Act, Acts, Dirty, Meta, Part, Stale};
use super::scrub::ScrubMsg;
use crate::transaction::Transaction;
use crate::types::{ObjectId, ReqId};
use bytes::Bytes;
use nacre_base::{Epoch, IntervalSet, Name, OsdId, PgId, ShardId, SnapId, SpgId, Utime, Version};
use nacre_wire::{Decode, DecodeError, Encode, Encoded, Reader, encode_list, versioned, versioned_fields};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum PeerMsg {
    /// Answer this with the same stamp.
    Ping {
        stamp: u64,
    },
    Pong {
        stamp: u64,
    },
    /// Promise that until 0.8 s from now you take no part in a later interval of these groups.
    /// `sent` is the asker's clock: its lease counts from there.
    LeaseRequest {
        sent: u64,
        pgs: Vec<(SpgId, Epoch)>,
    },
    /// The promise, for those groups of the request that it can be given for.
    LeaseGrant {
        sent: u64,
        pgs: Vec<(SpgId, Epoch)>,
    },
    /// About one placement group, in the interval that began at `interval`.
    Pg {
        route: PgRoute,
        interval: Epoch,
        msg: Box<PgMsg>,
    },
    /// The same of many groups, in order; none of them with bytes of objects.
    Pgs(Vec<(PgRoute, Epoch, Box<PgMsg>)>),
    /// How much the sender can store, from now on.
    Room(Room),
}

/// Between which instances of a placement group a message goes: an OSD may hold several shards of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgRoute {
    pub pg: PgId,
    pub to: ShardId,
    pub from: ShardId,
}

impl PgRoute {
    /// Between OSDs that hold whole objects.
    pub fn replicated(pg: PgId) -> PgRoute {
        PgRoute { pg, to: ShardId::NONE, from: ShardId::NONE }
    }
    /// The instance that the message is for.
    pub fn receiver(&self) -> SpgId {
        SpgId { pg: self.pg, shard: self.to }
    }
    /// That of the answer.
    pub fn back(self) -> PgRoute {
        PgRoute { to: self.from, from: self.to, ..self }
    }
    fn has_shards(&self) -> bool {
        self.to.is_some() || self.from.is_some()
    }
}

impl Encode for PgRoute {
    fn encode(&self, out: &mut Vec<u8>) {
        self.pg.encode(out);
        self.to.encode(out);
        self.from.encode(out);
    }
}
impl Decode for PgRoute {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let route = PgRoute { pg: Decode::decode(r)?, to: Decode::decode(r)?, from: Decode::decode(r)? };
        [route.to, route.from].into_iter().try_for_each(check_shard)?;
        Ok(route)
    }
}

/// What a primary may ask a member to store, so that its disk never refuses what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Only what makes nothing larger.
    pub full: bool,
    /// This many bytes may be on their way from one primary at a time,
    pub window: u64,
    /// and as soon as this many are, large writes wait: they would take more memory than there is.
    pub memory: u64,
}

impl Room {
    pub const PLENTY: Room = Room { full: false, window: u64::MAX, memory: u64::MAX };
}

#[derive(Clone, Debug, PartialEq)]
pub enum PgMsg {
    /// Primary to OSDs that may hold the placement group: what do you have?
    InfoQuery,
    /// The answer, once all of it is durable. None: nothing. The lease that this OSD granted last
    /// may be relied on by an older primary for that many milliseconds more.
    Info {
        info: Option<PgInfo>,
        lease_left_ms: u32,
        /// Whether the holder of a shard lacks something of it. Not said of whole objects.
        is_lacking: bool,
    },
    /// Primary to the OSD whose log it chose.
    LogQuery,
    Log(PgLog),
    /// Whose log does not reach back far enough asks for all names and versions, from one on.
    InventoryQuery {
        from: ObjectId,
    },
    /// What exists from `from` up to `next`; no `next`: up to the end of the group.
    Inventory {
        from: ObjectId,
        objects: Vec<(ObjectId, Version)>,
        next: Option<ObjectId>,
    },
    /// Whose log does not reach back far enough, and whose history up to `since` is the group's,
    /// asks what changed after that and is not in the log; from a key of the answer before on.
    DirtyQuery {
        since: Version,
        from: Name,
    },
    /// What changed. `reaches`: the answerer knows all since then, else it is to be asked for names.
    Dirty {
        from: Name,
        reaches: bool,
        objects: Vec<(ObjectId, Dirty)>,
        next: Option<Name>,
    },
    /// Primary to a replica, or to a stray that may have what is missing: this is the placement group's log
    /// now, make yours the same and note what is missing.
    AdoptLog(PgLog),
    /// That is durable, and the log reaches to this version; everything that is missing there.
    LogAdopted {
        at: Version,
        missing: Vec<(ObjectId, Stale)>,
    },
    /// Primary to replica: one write.
    RepOp(Arc<RepOp>),
    /// The replica stored the write of this version, and all before it.
    RepAck {
        version: Version,
    },
    /// Primary to an OSD that has the placement group's log: send that much of an object, or as much of it as
    /// one message takes.
    Pull {
        id: u64,
        object: ObjectId,
        part: Part,
    },
    /// It has nothing of that.
    PullRefused {
        id: u64,
        object: ObjectId,
    },
    /// Some of an object: the answer to a pull, or from the primary to a member that lacks it.
    Push(Box<Push>),
    /// The member has that durably.
    Pushed {
        id: u64,
        object: ObjectId,
    },
    /// All but these bytes, which it does not have under the names that it was told.
    PushedWithout {
        id: u64,
        object: ObjectId,
        data: IntervalSet,
    },
    /// From an OSD that holds the group but is no member of it, to the primary.
    StrayNotify {
        info: PgInfo,
    },
    /// The answer once every member has everything: delete yours.
    StrayRemove,
    /// Whether all copies are the same.
    Scrub(Box<ScrubMsg>),
    /// Primary to a member of an erasure-coded pool: send these (offset, length) extents of your shard of an
    /// object. The member answers once it has all writes up to `at`.
    SubRead {
        id: u64,
        object: ObjectId,
        at: Version,
        extents: Vec<(u64, u64)>,
    },
    /// The bytes of each extent, up to where the shard ends. None: it lacks some of them, or cannot read
    /// them.
    SubReadDone {
        id: u64,
        data: Option<Vec<Bytes>>,
    },
    /// Primary to the members of an erasure-coded pool: entries up to here are never undone.
    Committed {
        to: Version,
    },
}

/// What one OSD has of a placement group. On its disk, and in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PgInfo {
    /// The newest entry of its log.
    pub last_update: Version,
    /// Entries up to and including this one are gone from its log.
    pub log_tail: Version,
    /// The last interval in which it made its log the group's. Zero: never.
    pub interval_started: Epoch,
    /// The highest version that was sent to a client.
    pub last_user_version: u64,
    /// All entries up to here are known to be durable, bytes too, on all members of their interval.
    pub committed_to: Version,
    /// Half of an inventory was taken, or half of the group deleted: what is here proves nothing.
    pub incomplete: bool,
    /// How many groups the pool had when this one was last split.
    pub pg_num: u32,
    /// Stored objects: heads and clones.
    pub objects: u64,
    pub clones: u64,
    /// Of data; what a clone shares with the next newer one counts there.
    pub bytes: u64,
    /// The counters above are estimates since a split.
    pub estimated: bool,
    /// What entries after this one, up to the log's tail, did is kept by object (`Dirty`).
    pub dirty_from: Version,
    /// How many objects that is.
    pub dirty_objects: u32,
    /// Which shard of each object it holds. None: whole objects, or nothing yet.
    pub shard: ShardId,
}

/// A log, or the newest part of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PgLog {
    /// Of the log's owner.
    pub info: PgInfo,
    /// The entries follow upon this version.
    pub after: Version,
    pub entries: Vec<LogEntry>,
    /// Of requests before the log's tail, for members that take the whole log.
    pub answers: Answers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The object exists afterwards.
    Modify,
    Delete,
    /// Nothing changed: an operation failed, or had nothing to do. Kept to answer a resend alike.
    Note,
}

/// One write in the history of a placement group.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    pub version: Version,
    /// Of the object before; zero if it did not exist.
    pub prior: Version,
    pub kind: EntryKind,
    pub object: ObjectId,
    /// What else changed in the same version: a clone that the write made of the object before, or
    /// the head when one of its clones goes. All have the same hash.
    pub others: Vec<OtherChange>,
    pub reqid: ReqId,
    pub user_version: u64,
    pub mtime: Utime,
    /// What was done, for members that missed it.
    pub acts: Vec<Acts>,
    /// The result that the client got, for when it resends the request.
    pub result: i32,
    /// Of each operation, its code and output; empty unless the client wanted them.
    pub outputs: Vec<(i32, Bytes)>,
}

/// What became of a further object in a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherChange {
    pub object: ObjectId,
    pub kind: EntryKind,
    /// Of that object before; zero if it did not exist.
    pub prior: Version,
}

impl LogEntry {
    /// Roughly, how many bytes it takes in messages and on disk.
    pub fn cost(&self) -> usize {
        let object = |object: &ObjectId| 64 + object.name.len() + object.namespace.len() + object.key.len();
        let ranges = |part: &Part| {
            let keys = part.omap.iter().map(|(start, end)| 16 + start.len() + end.map_or(0, |end| end.len()));
            16 * part.data.iter().count() + keys.sum::<usize>()
        };
        let act = |act: &Act| match act {
            Act::Keys(keys) => 8 + keys.iter().map(|key| 4 + key.len()).sum::<usize>(),
            Act::KeyRange { begin, end } => 8 + begin.len() + end.len(),
            Act::CloneFrom(from) => object(from),
            Act::Revert { part, .. } => 32 + ranges(part),
            _ => 17,
        };
        let acts =
            |run: &Acts| 16 + run.object.as_ref().map_or(0, object) + run.acts.iter().map(act).sum::<usize>();
        128 + object(&self.object)
            + self.others.iter().map(|other| 16 + object(&other.object)).sum::<usize>()
            + self.acts.iter().map(acts).sum::<usize>()
            + self.outputs.iter().map(|(_, output)| 8 + output.len()).sum::<usize>()
    }

    /// What of its object an operator went back to, and the OSD that has it.
    pub fn reverted(&self) -> Option<(&Part, OsdId)> {
        self.acts.iter().flat_map(|run| &run.acts).find_map(|act| match act {
            Act::Revert { part, to } => Some((part, *to)),
            _ => None,
        })
    }

    /// Everything that the write is about, with what became of it and its version before.
    pub fn touched(&self) -> impl Iterator<Item = (&ObjectId, EntryKind, Version)> {
        let others = self.others.iter().map(|other| (&other.object, other.kind, other.prior));
        std::iter::once((&self.object, self.kind, self.prior)).chain(others)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RepOp {
    /// Every member keeps it as it is encoded here.
    pub entry: Encoded<LogEntry>,
    /// The newest version before this one: a replica that has less missed something.
    pub previous: Version,
    /// All up to here are durable on every member.
    pub committed_to: Version,
    /// Entries up to here may go.
    pub trim_to: Version,
    /// Of the group after this write.
    pub objects: u64,
    pub clones: u64,
    pub bytes: u64,
    /// The object's changes, without anything that only concerns the primary.
    pub txn: Transaction,
    /// All metadata as it is afterwards, of objects whose metadata is stale on some member.
    pub metas: Vec<(ObjectId, Meta)>,
}

/// Content of an object. What the receiver does not lack (any more) is newer there.
#[derive(Clone, Debug, PartialEq)]
pub struct Push {
    /// The pull's that this answers, or the push's own.
    pub id: u64,
    pub object: ObjectId,
    /// What of the object this holds. Bytes of it that are in no write are zeros, keys of it that
    /// are in no pair do not exist.
    pub part: Part,
    /// If the part has it.
    pub meta: Option<Meta>,
    pub writes: Vec<(u64, Bytes)>,
    pub pairs: BTreeMap<Name, Bytes>,
    /// Bytes of it that the receiver has under the names of the object's clones, in blocks of 4 KiB.
    pub common: Vec<(SnapId, IntervalSet)>,
}

/// In its encoding.
const PUSH_WITH_COMMON: u8 = 19;

impl Push {
    /// Roughly, what it costs to send.
    pub fn payload_len(&self) -> u64 {
        let pairs = |map: &BTreeMap<Name, Bytes>| map.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        let meta = self.meta.as_ref().map_or(0, |meta| pairs(&meta.attrs) + meta.omap_header.len());
        (meta + pairs(&self.pairs) + self.writes.iter().map(|(_, data)| data.len()).sum::<usize>()) as u64
    }
}

impl PeerMsg {
    /// The front segment of a message, and the pieces of its data segment.
    fn encode_split(&self, front: &mut Vec<u8>, data: &mut Vec<Bytes>) {
        versioned(front, 1, 1, |out| match self {
            PeerMsg::Ping { stamp } => {
                out.push(0);
                stamp.encode(out);
            }
            PeerMsg::Pong { stamp } => {
                out.push(1);
                stamp.encode(out);
            }
            PeerMsg::LeaseRequest { sent, pgs } => {
                encode_leases([2, 7], *sent, pgs, out);
            }
            PeerMsg::LeaseGrant { sent, pgs } => {
                encode_leases([3, 8], *sent, pgs, out);
            }
            PeerMsg::Pg { route, interval, msg } => {
                let has_shards = route.has_shards();
                out.push(if has_shards { 9 } else { 4 });
                encode_route(route, has_shards, out);
                interval.encode(out);
                msg.encode_split(out, data);
            }
            PeerMsg::Pgs(msgs) => {
                let has_shards = msgs.iter().any(|(route, ..)| route.has_shards());
                out.push(if has_shards { 10 } else { 5 });
                (msgs.len() as u32).encode(out);
                for (route, interval, msg) in msgs {
                    encode_route(route, has_shards, out);
                    interval.encode(out);
                    msg.encode_split(out, data);
                }
                assert!(data.is_empty(), "messages with bytes of objects go one by one");
            }
            PeerMsg::Room(room) => {
                out.push(6);
                room.full.encode(out);
                room.window.encode(out);
                room.memory.encode(out);
            }
        });
    }

    /// The reverse of `encode_split`.
    pub fn decode_split(front: &[u8], data: &Bytes) -> Result<PeerMsg, DecodeError> {
        Reader::new(front).versioned("peer message", 1, |r, _| {
            Ok(match u8::decode(r)? {
                0 => PeerMsg::Ping { stamp: Decode::decode(r)? },
                1 => PeerMsg::Pong { stamp: Decode::decode(r)? },
                kind @ (2 | 7) => {
                    PeerMsg::LeaseRequest { sent: Decode::decode(r)?, pgs: decode_leases(kind == 7, r)? }
                }
                kind @ (3 | 8) => {
                    PeerMsg::LeaseGrant { sent: Decode::decode(r)?, pgs: decode_leases(kind == 8, r)? }
                }
                kind @ (4 | 9) => PeerMsg::Pg {
                    route: decode_route(kind == 9, r)?,
                    interval: Decode::decode(r)?,
                    msg: Box::new(PgMsg::decode_split(r, data)?),
                },
                kind @ (5 | 10) => PeerMsg::Pgs(r.list(|r| {
                    let (route, interval) = (decode_route(kind == 10, r)?, Epoch::decode(r)?);
                    Ok((route, interval, Box::new(PgMsg::decode_split(r, &Bytes::new())?)))
                })?),
                6 => PeerMsg::Room(Room {
                    full: Decode::decode(r)?,
                    window: Decode::decode(r)?,
                    memory: Decode::decode(r)?,
                }),
                value => return Err(DecodeError::BadValue { what: "peer message", value: value.into() }),
            })
        })
    }
}

/// No shard has one number only, so that each message has one encoding.
fn check_shard(shard: ShardId) -> Result<(), DecodeError> {
    if shard < ShardId::NONE {
        return Err(DecodeError::BadValue { what: "shard", value: u64::from(shard.0 as u8) });
    }
    Ok(())
}
/// Where no shard is named, messages have the kinds that every version knows. OSDs that do not know shards
/// are never sent any: they hold no erasure-coded pools.
fn encode_route(route: &PgRoute, has_shards: bool, out: &mut Vec<u8>) {
    if has_shards { route.encode(out) } else { route.pg.encode(out) }
}
fn decode_route(has_shards: bool, r: &mut Reader<'_>) -> Result<PgRoute, DecodeError> {
    if has_shards { PgRoute::decode(r) } else { PgId::decode(r).map(PgRoute::replicated) }
}
fn encode_leases(kinds: [u8; 2], sent: u64, pgs: &[(SpgId, Epoch)], out: &mut Vec<u8>) {
    let has_shards = pgs.iter().any(|(spg, _)| spg.shard.is_some());
    out.push(kinds[usize::from(has_shards)]);
    sent.encode(out);
    if has_shards {
        return encode_list(out, pgs);
    }
    (pgs.len() as u32).encode(out);
    pgs.iter().for_each(|(spg, interval)| (spg.pg, *interval).encode(out));
}
fn decode_leases(has_shards: bool, r: &mut Reader<'_>) -> Result<Vec<(SpgId, Epoch)>, DecodeError> {
    if has_shards {
        let pgs: Vec<(SpgId, Epoch)> = Decode::decode(r)?;
        pgs.iter().try_for_each(|(spg, _)| check_shard(spg.shard))?;
        return Ok(pgs);
    }
    r.list(|r| Ok((SpgId::replicated(Decode::decode(r)?), Decode::decode(r)?)))
}

impl Body for PeerMsg {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        let mut data = Vec::new();
        self.encode_split(front, &mut data);
        joined(data.iter())
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        PeerMsg::decode_split(&raw.front, &raw.data)
    }
}

impl PgMsg {
    fn encode_split(&self, out: &mut Vec<u8>, data: &mut Vec<Bytes>) {
        match self {
            PgMsg::InfoQuery => out.push(0),
            PgMsg::Info { info, lease_left_ms, is_lacking } => {
                out.push(1);
                info.encode(out);
                lease_left_ms.encode(out);
                if info.is_some_and(|info| info.shard.is_some()) {
                    is_lacking.encode(out);
                }
            }
            PgMsg::LogQuery => out.push(2),
            PgMsg::Log(log) => {
                out.push(3);
                log.encode(out);
            }
            PgMsg::InventoryQuery { from } => {
                out.push(4);
                from.encode(out);
            }
            PgMsg::Inventory { from, objects, next } => {
                out.push(5);
                from.encode(out);
                objects.encode(out);
                next.encode(out);
            }
            PgMsg::AdoptLog(log) => {
                out.push(6);
                log.encode(out);
            }
            PgMsg::LogAdopted { at, missing } => {
                out.push(7);
                at.encode(out);
                missing.encode(out);
            }
            PgMsg::RepOp(op) => {
                out.push(8);
                op.entry.encode(out);
                op.previous.encode(out);
                op.committed_to.encode(out);
                op.trim_to.encode(out);
                op.objects.encode(out);
                op.clones.encode(out);
                op.bytes.encode(out);
                op.metas.encode(out);
                op.txn.encode_split(out, data);
            }
            PgMsg::RepAck { version } => {
                out.push(9);
                version.encode(out);
            }
            PgMsg::Pull { id, object, part } => {
                out.push(10);
                id.encode(out);
                object.encode(out);
                part.encode(out);
            }
            PgMsg::PullRefused { id, object } => {
                out.push(11);
                id.encode(out);
                object.encode(out);
            }
            PgMsg::Push(push) => {
                // An OSD that does not know the second kind must not take it for the first.
                let has_common = !push.common.is_empty();
                out.push(if has_common { PUSH_WITH_COMMON } else { 12 });
                push.id.encode(out);
                push.object.encode(out);
                push.part.encode(out);
                push.meta.encode(out);
                push.pairs.encode(out);
                let places: Vec<(u64, u64)> =
                    push.writes.iter().map(|(offset, data)| (*offset, data.len() as u64)).collect();
                places.encode(out);
                data.extend(push.writes.iter().map(|(_, data)| data.clone()));
                if has_common {
                    push.common.encode(out);
                }
            }
            PgMsg::Pushed { id, object } => {
                out.push(13);
                id.encode(out);
                object.encode(out);
            }
            PgMsg::PushedWithout { id, object, data } => {
                out.push(20);
                id.encode(out);
                object.encode(out);
                data.encode(out);
            }
            PgMsg::StrayNotify { info } => {
                out.push(14);
                info.encode(out);
            }
            PgMsg::StrayRemove => out.push(15),
            PgMsg::Scrub(msg) => {
                out.push(16);
                msg.encode(out);
            }
            PgMsg::DirtyQuery { since, from } => {
                out.push(17);
                since.encode(out);
                from.encode(out);
            }
            PgMsg::Dirty { from, reaches, objects, next } => {
                out.push(18);
                from.encode(out);
                reaches.encode(out);
                objects.encode(out);
                next.encode(out);
            }
            PgMsg::SubRead { id, object, at, extents } => {
                out.push(21);
                id.encode(out);
                object.encode(out);
                at.encode(out);
                extents.encode(out);
            }
            PgMsg::SubReadDone { id, data: read } => {
                out.push(22);
                id.encode(out);
                let lens: Option<Vec<u64>> =
                    read.as_ref().map(|read| read.iter().map(|bytes| bytes.len() as u64).collect());
                lens.encode(out);
                data.extend(read.iter().flatten().cloned());
            }
            PgMsg::Committed { to } => {
                out.push(23);
                to.encode(out);
            }
        }
    }

    fn decode_split(r: &mut Reader<'_>, data: &Bytes) -> Result<PgMsg, DecodeError> {
        Ok(match u8::decode(r)? {
            0 => PgMsg::InfoQuery,
            1 => {
                let (info, lease_left_ms) = (Option::<PgInfo>::decode(r)?, Decode::decode(r)?);
                let of_shard = info.is_some_and(|info| info.shard.is_some());
                let is_lacking = if of_shard { Decode::decode(r)? } else { false };
                PgMsg::Info { info, lease_left_ms, is_lacking }
            }
            2 => PgMsg::LogQuery,
            3 => PgMsg::Log(Decode::decode(r)?),
            4 => PgMsg::InventoryQuery { from: Decode::decode(r)? },
            5 => PgMsg::Inventory {
                from: Decode::decode(r)?,
                objects: Decode::decode(r)?,
                next: Decode::decode(r)?,
            },
            6 => PgMsg::AdoptLog(Decode::decode(r)?),
            7 => PgMsg::LogAdopted { at: Decode::decode(r)?, missing: Decode::decode(r)? },
            8 => PgMsg::RepOp(Arc::new(RepOp {
                entry: Decode::decode(r)?,
                previous: Decode::decode(r)?,
                committed_to: Decode::decode(r)?,
                trim_to: Decode::decode(r)?,
                objects: Decode::decode(r)?,
                clones: Decode::decode(r)?,
                bytes: Decode::decode(r)?,
                metas: Decode::decode(r)?,
                txn: Transaction::decode_split(r, data)?,
            })),
            9 => PgMsg::RepAck { version: Decode::decode(r)? },
            10 => {
                PgMsg::Pull { id: Decode::decode(r)?, object: Decode::decode(r)?, part: Decode::decode(r)? }
            }
            11 => PgMsg::PullRefused { id: Decode::decode(r)?, object: Decode::decode(r)? },
            kind @ (12 | PUSH_WITH_COMMON) => PgMsg::Push(Box::new(Push {
                id: Decode::decode(r)?,
                object: Decode::decode(r)?,
                part: Decode::decode(r)?,
                meta: Decode::decode(r)?,
                pairs: Decode::decode(r)?,
                writes: cut_out(&Vec::<(u64, u64)>::decode(r)?, data)?,
                common: if kind == PUSH_WITH_COMMON { Decode::decode(r)? } else { Vec::new() },
            })),
            13 => PgMsg::Pushed { id: Decode::decode(r)?, object: Decode::decode(r)? },
            20 => PgMsg::PushedWithout {
                id: Decode::decode(r)?,
                object: Decode::decode(r)?,
                data: Decode::decode(r)?,
            },
            14 => PgMsg::StrayNotify { info: Decode::decode(r)? },
            15 => PgMsg::StrayRemove,
            16 => PgMsg::Scrub(Box::new(Decode::decode(r)?)),
            17 => PgMsg::DirtyQuery { since: Decode::decode(r)?, from: Decode::decode(r)? },
            18 => PgMsg::Dirty {
                from: Decode::decode(r)?,
                reaches: Decode::decode(r)?,
                objects: Decode::decode(r)?,
                next: Decode::decode(r)?,
            },
            21 => PgMsg::SubRead {
                id: Decode::decode(r)?,
                object: Decode::decode(r)?,
                at: Decode::decode(r)?,
                extents: Decode::decode(r)?,
            },
            22 => {
                let (id, lens) = (u64::decode(r)?, Option::<Vec<u64>>::decode(r)?);
                let Some(lens) = lens else { return Ok(PgMsg::SubReadDone { id, data: None }) };
                let places: Vec<(u64, u64)> = lens.into_iter().map(|len| (0, len)).collect();
                let data = cut_out(&places, data)?.into_iter().map(|(_, bytes)| bytes).collect();
                PgMsg::SubReadDone { id, data: Some(data) }
            }
            23 => PgMsg::Committed { to: Decode::decode(r)? },
            value => return Err(DecodeError::BadValue { what: "group message", value: value.into() }),
        })
    }
}

impl PgInfo {
    pub const ENCODED_LEN: usize = 100;
}

impl Encode for PgInfo {
    /// Where there is no shard, it is encoded as before there were any.
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, if self.shard.is_some() { 3 } else { 2 }, 1, |out| {
            self.last_update.encode(out);
            self.log_tail.encode(out);
            self.interval_started.encode(out);
            self.last_user_version.encode(out);
            self.committed_to.encode(out);
            self.incomplete.encode(out);
            self.pg_num.encode(out);
            self.objects.encode(out);
            self.clones.encode(out);
            self.bytes.encode(out);
            self.estimated.encode(out);
            self.dirty_from.encode(out);
            self.dirty_objects.encode(out);
            if self.shard.is_some() {
                self.shard.encode(out);
            }
        });
    }
}
impl Decode for PgInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("pg info", 3, |r, v| {
            let mut info = PgInfo {
                last_update: Decode::decode(r)?,
                log_tail: Decode::decode(r)?,
                interval_started: Decode::decode(r)?,
                last_user_version: Decode::decode(r)?,
                committed_to: Decode::decode(r)?,
                incomplete: Decode::decode(r)?,
                pg_num: Decode::decode(r)?,
                objects: Decode::decode(r)?,
                clones: Decode::decode(r)?,
                bytes: Decode::decode(r)?,
                estimated: Decode::decode(r)?,
                ..PgInfo::default()
            };
            info.dirty_from = if v >= 2 { Decode::decode(r)? } else { info.log_tail };
            info.dirty_objects = if v >= 2 { Decode::decode(r)? } else { 0 };
            info.shard = if v >= 3 { Decode::decode(r)? } else { ShardId::NONE };
            check_shard(info.shard)?;
            Ok(info)
        })
    }
}

impl Encode for PgLog {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 2, 1, |out| {
            self.info.encode(out);
            self.after.encode(out);
            self.entries.encode(out);
            self.answers.encode(out);
        });
    }
}

impl Decode for PgLog {
    /// Logs without order are refused here, as merging relies on it.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("pg log", 2, |r, v| {
            let log = PgLog {
                info: Decode::decode(r)?,
                after: Decode::decode(r)?,
                entries: Vec::decode(r)?,
                answers: if v >= 2 { Decode::decode(r)? } else { Answers::default() },
            };
            let mut before = log.after;
            for entry in &log.entries {
                if entry.version <= before {
                    return Err(DecodeError::BadValue {
                        what: "pg log: version out of order",
                        value: entry.version.version,
                    });
                }
                before = entry.version;
            }
            Ok(log)
        })
    }
}

versioned_fields!(
    LogEntry,
    "log entry",
    version,
    prior,
    kind,
    object,
    others,
    reqid,
    user_version,
    mtime,
    acts,
    result,
    outputs,
);
versioned_fields!(OtherChange, "other change", object, kind, prior);

/// The pieces of `data` that belong at those (offset, length) places: exactly all of it.
fn cut_out(places: &[(u64, u64)], data: &Bytes) -> Result<Vec<(u64, Bytes)>, DecodeError> {
    let (mut writes, mut at) = (Vec::with_capacity(places.len()), 0);
    for &(offset, len) in places {
        let left = data.len() - at;
        if len > left as u64 || offset.checked_add(len).is_none() {
            return Err(DecodeError::Short { needed: len as usize, left });
        }
        writes.push((offset, data.slice(at..at + len as usize)));
        at += len as usize;
    }
    match data.len() - at {
        0 => Ok(writes),
        left => Err(DecodeError::Leftover { left }),
    }
}

impl Encode for EntryKind {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}
impl Decode for EntryKind {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            0 => Ok(EntryKind::Modify),
            1 => Ok(EntryKind::Delete),
            2 => Ok(EntryKind::Note),
            value => Err(DecodeError::BadValue { what: "log entry kind", value: value.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::answer::Answer;
    use crate::messages::part::{Act, Origin};
    use crate::transaction::Change;
    use nacre_base::PoolId;

    #[test]
    fn a_log_out_of_order_is_refused() {
        let entry = |version| LogEntry {
            version: Version::new(Epoch(3), version),
            prior: Version::ZERO,
            kind: EntryKind::Note,
            object: ObjectId::head(PoolId(1), "".into(), Name::default(), "o".into()),
            others: Vec::new(),
            reqid: ReqId::default(),
            user_version: 0,
            mtime: Utime::default(),
            acts: Vec::new(),
            result: 0,
            outputs: Vec::new(),
        };
        let read = |after, versions: &[u64]| {
            let log = PgLog {
                info: PgInfo::default(),
                after: Version::new(Epoch(3), after),
                entries: versions.iter().copied().map(entry).collect(),
                answers: Answers::default(),
            };
            nacre_wire::from_slice::<PgLog>(&nacre_wire::to_vec(&log)).is_ok()
        };
        assert!(read(4, &[5, 6, 8]));
        assert!(!read(4, &[5, 5]));
        assert!(!read(4, &[6, 5]));
        assert!(!read(5, &[5, 6]));
    }

    #[test]
    fn every_message_reads_back() {
        let object = ObjectId::head(PoolId(1), "ns".into(), Name::default(), "o".into());
        let version = Version::new(Epoch(3), 7);
        let entry = LogEntry {
            version,
            prior: Version::ZERO,
            kind: EntryKind::Note,
            object: object.clone(),
            others: vec![OtherChange { object: object.clone(), kind: EntryKind::Delete, prior: version }],
            reqid: ReqId::default(),
            user_version: 7,
            mtime: Utime { sec: 1, nsec: 2 },
            acts: vec![Acts {
                object: Some(object.clone()),
                acts: vec![
                    Act::Data { offset: 1, len: 2 },
                    Act::Truncate { size: 3 },
                    Act::Remove,
                    Act::Keys(vec!["k".into()]),
                    Act::KeyRange { begin: "a".into(), end: "b".into() },
                    Act::OmapClear,
                    Act::CloneFrom(object.clone()),
                    Act::Revert { part: Part::everything(), to: OsdId(3) },
                ],
            }],
            result: -17,
            outputs: vec![(1, Bytes::from_static(b"out"))],
        };
        let info = PgInfo { last_update: version, objects: 3, ..PgInfo::default() };
        assert_eq!(nacre_wire::to_vec(&info).len(), PgInfo::ENCODED_LEN);
        let answer = Answer { version, result: -2, ..Answer::default() };
        let log = PgLog {
            info,
            after: Version::ZERO,
            entries: vec![entry.clone()],
            answers: Answers(vec![answer]),
        };
        let pairs = BTreeMap::from([("k".into(), Bytes::from_static(b"v"))]);
        let meta = Meta { size: 9, attrs: pairs.clone(), omap_header: Bytes::from_static(b"h") };
        let mut txn = Transaction::new();
        txn.push(object.clone(), Change::Write { offset: 0, data: Bytes::from_static(b"bytes") });
        let origin = Origin { born: version, part: Part::everything() };
        let of_pgs = [
            PgMsg::InfoQuery,
            PgMsg::Info { info: Some(info), lease_left_ms: 5, is_lacking: false },
            PgMsg::LogQuery,
            PgMsg::Log(log.clone()),
            PgMsg::InventoryQuery { from: object.clone() },
            PgMsg::Inventory {
                from: object.clone(),
                objects: vec![(object.clone(), version)],
                next: Some(ObjectId::max()),
            },
            PgMsg::AdoptLog(log),
            PgMsg::LogAdopted { at: version, missing: vec![(object.clone(), Stale::everything(version))] },
            PgMsg::RepOp(Arc::new(RepOp {
                entry: Encoded::new(entry),
                previous: Version::ZERO,
                committed_to: version,
                trim_to: Version::ZERO,
                objects: 1,
                clones: 0,
                bytes: 2,
                txn,
                metas: vec![(object.clone(), meta.clone())],
            })),
            PgMsg::RepAck { version },
            PgMsg::Pull { id: 7, object: object.clone(), part: Part::everything() },
            PgMsg::PullRefused { id: 7, object: object.clone() },
            PgMsg::Push(Box::new(Push {
                id: 7,
                object: object.clone(),
                part: Part::everything(),
                meta: Some(meta),
                writes: vec![(3, Bytes::from_static(b"three")), (9, Bytes::from_static(b"nine"))],
                pairs: pairs.clone(),
                common: Vec::new(),
            })),
            PgMsg::Push(Box::new(Push {
                id: 8,
                object: object.clone(),
                part: Part::everything(),
                meta: None,
                writes: vec![(3, Bytes::from_static(b"three"))],
                pairs,
                common: vec![(SnapId(5), (4096..8192).into())],
            })),
            PgMsg::Pushed { id: 7, object: object.clone() },
            PgMsg::PushedWithout { id: 8, object, data: (4096..8192).into() },
            PgMsg::StrayNotify { info },
            PgMsg::StrayRemove,
            PgMsg::Info {
                info: Some(PgInfo { shard: ShardId(3), ..info }),
                lease_left_ms: 5,
                is_lacking: true,
            },
            PgMsg::SubRead { id: 7, object: ObjectId::max(), at: version, extents: vec![(0, 9), (20, 1)] },
            PgMsg::SubReadDone { id: 7, data: None },
            PgMsg::SubReadDone { id: 7, data: Some(vec![Bytes::from_static(b"one"), Bytes::new()]) },
            PgMsg::Committed { to: version },
            PgMsg::Scrub(Box::new(ScrubMsg::Answer { id: 7, answer: None })),
            PgMsg::DirtyQuery { since: version, from: "k".into() },
            PgMsg::Dirty {
                from: "k".into(),
                reaches: true,
                objects: vec![(
                    ObjectId::max(),
                    Dirty {
                        last: version,
                        gone: true,
                        born: version,
                        part: Part::meta(),
                        origin: Some(origin),
                    },
                )],
                next: Some("l".into()),
            },
        ];
        let pg = PgId { pool: PoolId(1), seed: 2 };
        let route = PgRoute::replicated(pg);
        let sharded = PgRoute { to: ShardId(2), from: ShardId(0), ..route };
        let (spg, shard) = (SpgId::replicated(pg), sharded.receiver());
        let messages = of_pgs
            .into_iter()
            .map(|msg| PeerMsg::Pg { route, interval: Epoch(4), msg: Box::new(msg) })
            .chain([
                PeerMsg::Pg { route: sharded, interval: Epoch(4), msg: Box::new(PgMsg::LogQuery) },
                PeerMsg::Pgs(vec![
                    (route, Epoch(4), Box::new(PgMsg::InfoQuery)),
                    (sharded.back(), Epoch(5), Box::new(PgMsg::RepAck { version })),
                ]),
                PeerMsg::LeaseRequest { sent: 4, pgs: vec![(spg, Epoch(4)), (shard, Epoch(5))] },
                PeerMsg::LeaseGrant { sent: 4, pgs: vec![(shard, Epoch(5))] },
                PeerMsg::Ping { stamp: 1 },
                PeerMsg::Pong { stamp: 1 },
                PeerMsg::LeaseRequest { sent: 4, pgs: vec![(spg, Epoch(4))] },
                PeerMsg::LeaseGrant { sent: 4, pgs: vec![(spg, Epoch(4))] },
                PeerMsg::Room(Room { full: true, window: 4096, memory: 8192 }),
                PeerMsg::Pgs(vec![
                    (route, Epoch(4), Box::new(PgMsg::InfoQuery)),
                    (
                        PgRoute { pg: PgId { seed: 3, ..pg }, ..route },
                        Epoch(5),
                        Box::new(PgMsg::RepAck { version }),
                    ),
                ]),
            ]);
        for message in messages {
            let (mut front, mut data) = (Vec::new(), Vec::new());
            message.encode_split(&mut front, &mut data);
            let data = Bytes::from(data.concat());
            assert_eq!(PeerMsg::decode_split(&front, &data), Ok(message));
            for cut in 0..front.len() {
                assert!(PeerMsg::decode_split(&front[..cut], &data).is_err());
            }
        }
        let impossible = nacre_wire::to_vec(&PgRoute { to: ShardId(-7), ..route });
        assert!(nacre_wire::from_slice::<PgRoute>(&impossible).is_err());
    }
}
