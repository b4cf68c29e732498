//! What clients and OSDs say to each other about objects.

use super::RawMessage;
use super::body::{Body, fields};
use crate::types::{EntityName, ObjectId, ObjectLocator, Op, RawOp, ReqId, SpgId};
use bytes::Bytes;
use nacre_base::{Epoch, Name, PgId, SnapId, Utime, Version};
use nacre_wire::{Decode, DecodeError, Encode, Reader};

/// A client's request about one object, or about a placement group. Ceph: `MOSDOp` v8, readable
/// since v3; v9, from 2022 on, adds only a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct OsdOp {
    pub spg: SpgId,
    /// Of the object's name (or key), all 32 bits; in a listing the cursor's.
    pub hash: u32,
    /// The map by which the client chose the OSD.
    pub epoch: Epoch,
    /// See `op_flags::message`.
    pub flags: u32,
    /// Zero from clients: see `request_id`.
    pub reqid: ReqId,
    pub client_inc: u32,
    /// What the object's modification time becomes.
    pub mtime: Utime,
    pub locator: ObjectLocator,
    pub name: Name,
    pub ops: Vec<OsdOpItem>,
    /// What to read; `SnapId::HEAD` in writes.
    pub snap: SnapId,
    /// The snapshot context of a write: its newest snapshot and all that exist, newest first.
    pub snap_seq: SnapId,
    pub snaps: Vec<SnapId>,
    /// Counts resends; -1 when the client does not know.
    pub retry_attempt: i32,
    /// The client's.
    pub features: u64,
}

/// One operation with its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdOpItem {
    pub op: RawOp,
    /// A slice of the message's data segment.
    pub data: Bytes,
}

impl OsdOpItem {
    /// The operation understood; an error means EINVAL.
    pub fn parse(&self) -> Result<Op, DecodeError> {
        Op::parse(&self.op, &self.data)
    }
}
impl From<Op> for OsdOpItem {
    fn from(op: Op) -> OsdOpItem {
        let (op, data) = op.to_raw();
        OsdOpItem { op, data }
    }
}

impl OsdOp {
    /// The request's identity in all its attempts. `sender` is the peer of the connection and
    /// `tid` the message's: clients leave the field for it empty.
    pub fn request_id(&self, sender: EntityName, tid: u64) -> ReqId {
        if self.reqid.client != EntityName::default() || self.reqid.tid != 0 {
            return self.reqid;
        }
        ReqId { client: sender, tid, inc: self.client_inc as i32 }
    }
    /// The object that is meant, at the snapshot that is meant.
    pub fn object(&self) -> ObjectId {
        ObjectId {
            pool: self.spg.pg.pool,
            hash: self.hash,
            namespace: self.locator.namespace.clone(),
            key: if self.locator.key == self.name { Name::default() } else { self.locator.key.clone() },
            name: self.name.clone(),
            snap: self.snap,
            max: false,
        }
    }
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Several buffers as one; without a copy when at most one has content.
pub(super) fn joined<'a>(parts: impl Iterator<Item = &'a Bytes> + Clone) -> Bytes {
    let mut full = parts.clone().filter(|part| !part.is_empty());
    match (full.next(), full.next()) {
        (None, _) => Bytes::new(),
        (Some(one), None) => one.clone(),
        _ => {
            let mut all = Vec::with_capacity(parts.clone().map(Bytes::len).sum());
            parts.for_each(|part| all.extend_from_slice(part));
            all.into()
        }
    }
}

/// Takes the next operation's share off the data segment. Where there is none the first one gets the segment
/// itself, so that its owner, which counts requests, is there as long as the request.
fn next_data(data: &mut Bytes, len: usize) -> Result<Bytes, DecodeError> {
    if len > data.len() {
        return Err(DecodeError::Short { needed: len, left: data.len() });
    }
    Ok(data.split_to(len))
}

/// A blkin trace: three ids, zero without tracing, and never used here.
const NO_TRACE: [u8; 24] = [0; 24];

impl Body for OsdOp {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        let out = front;
        self.spg.encode(out);
        self.hash.encode(out);
        self.epoch.encode(out);
        self.flags.encode(out);
        self.reqid.encode(out);
        out.extend_from_slice(&NO_TRACE);
        self.client_inc.encode(out);
        self.mtime.encode(out);
        self.locator.encode(out);
        self.name.encode(out);
        (self.ops.len() as u16).encode(out);
        for item in &self.ops {
            item.op.encode_with_len(item.data.len(), out);
        }
        self.snap.encode(out);
        self.snap_seq.encode(out);
        self.snaps.encode(out);
        self.retry_attempt.encode(out);
        self.features.encode(out);
        joined(self.ops.iter().map(|item| &item.data))
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        let spg = SpgId::decode(r)?;
        let hash = u32::decode(r)?;
        let epoch = Epoch::decode(r)?;
        let flags = u32::decode(r)?;
        let reqid = ReqId::decode(r)?;
        r.take(NO_TRACE.len())?;
        if raw.version >= 9 {
            r.versioned("trace", u8::MAX, |_, _| Ok(()))?;
        }
        let client_inc = u32::decode(r)?;
        let mtime = Utime::decode(r)?;
        let locator = ObjectLocator::decode(r)?;
        let name = Name::decode(r)?;
        let mut data = raw.data.clone();
        let count = u16::decode(r)?;
        let mut ops = Vec::with_capacity(usize::from(count).min(r.remaining() / RawOp::WIRE_LEN));
        for _ in 0..count {
            let (op, len) = RawOp::decode_with_len(r)?;
            ops.push(OsdOpItem { op, data: next_data(&mut data, len)? });
        }
        Ok(OsdOp {
            spg,
            hash,
            epoch,
            flags,
            reqid,
            client_inc,
            mtime,
            locator,
            name,
            ops,
            snap: Decode::decode(r)?,
            snap_seq: Decode::decode(r)?,
            snaps: Decode::decode(r)?,
            retry_attempt: Decode::decode(r)?,
            features: Decode::decode(r)?,
        })
    }
}

/// An OSD's answer to an `OsdOp`, under the same tid. Ceph: `MOSDOpReply` v8, readable since v2.
#[derive(Clone, Debug, PartialEq)]
pub struct OsdOpReply {
    pub name: Name,
    pub pg: PgId,
    /// The request's, with `ACK | ONDISK` once it was carried out. The kernel's client asks for `ONDISK`, and
    /// warns of an answer without it, also of one that is an error.
    pub flags: u32,
    /// Of the first operation that failed (a negative errno), or of the last.
    pub result: i32,
    /// As `replay_version`, but with the object's version in place of the group's: what clients
    /// from before 2013 take for the object's version.
    pub bad_replay_version: Version,
    pub epoch: Epoch,
    /// As many as the request had.
    pub ops: Vec<OsdOpResult>,
    /// The request's: clients drop answers to earlier attempts.
    pub retry_attempt: i32,
    /// Of the write in its placement group's log.
    pub replay_version: Version,
    /// The object's, as `rados_get_last_version` gives it.
    pub user_version: u64,
}

/// One operation's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdOpResult {
    /// The request's, echoed.
    pub op: RawOp,
    pub rval: i32,
    /// Output; becomes a slice of the message's data segment.
    pub data: Bytes,
}

impl OsdOpReply {
    /// An answer to `request` that has a result and nothing else yet: no versions, no outputs, and
    /// the request's flags.
    pub fn to(request: &OsdOp, result: i32, epoch: Epoch) -> OsdOpReply {
        let echo = |item: &OsdOpItem| OsdOpResult { op: item.op, rval: 0, data: Bytes::new() };
        OsdOpReply {
            name: request.name.clone(),
            pg: request.spg.pg,
            flags: request.flags,
            result,
            bad_replay_version: Version::ZERO,
            epoch,
            ops: request.ops.iter().map(echo).collect(),
            retry_attempt: request.retry_attempt,
            replay_version: Version::ZERO,
            user_version: 0,
        }
    }
}

impl Body for OsdOpReply {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        let out = front;
        self.name.encode(out);
        self.pg.encode(out);
        i64::from(self.flags).encode(out);
        self.result.encode(out);
        self.bad_replay_version.encode(out);
        self.epoch.encode(out);
        (self.ops.len() as u32).encode(out);
        for result in &self.ops {
            result.op.encode_with_len(result.data.len(), out);
        }
        self.retry_attempt.encode(out);
        for result in &self.ops {
            result.rval.encode(out);
        }
        self.replay_version.encode(out);
        self.user_version.encode(out);
        false.encode(out); // no redirect to another object, which only cache tiers do
        out.extend_from_slice(&NO_TRACE);
        joined(self.ops.iter().map(|result| &result.data))
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        let name = Name::decode(r)?;
        let pg = PgId::decode(r)?;
        let flags = i64::decode(r)? as u32;
        let result = i32::decode(r)?;
        let bad_replay_version = Version::decode(r)?;
        let epoch = Epoch::decode(r)?;
        let mut data = raw.data.clone();
        let mut ops = (0..r.count(RawOp::WIRE_LEN)?)
            .map(|_| {
                let (op, len) = RawOp::decode_with_len(r)?;
                Ok(OsdOpResult { op, rval: 0, data: next_data(&mut data, len)? })
            })
            .collect::<Result<Vec<_>, DecodeError>>()?;
        let retry_attempt = i32::decode(r)?;
        for result in &mut ops {
            result.rval = i32::decode(r)?;
        }
        let replay_version = Version::decode(r)?;
        let user_version = u64::decode(r)?;
        if bool::decode(r)? {
            return Err(DecodeError::BadValue { what: "osd_op_reply redirect", value: 1 });
        }
        Ok(OsdOpReply {
            name,
            pg,
            flags,
            result,
            bad_replay_version,
            epoch,
            ops,
            retry_attempt,
            replay_version,
            user_version,
        })
    }
}

/// From an OSD to a watcher (a notify came, or the watch is gone) or to a notifier (all have
/// answered). Ceph: `MWatchNotify` v3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchNotify {
    pub kind: WatchNotifyKind,
    /// Of the watch, or of the notifier's request.
    pub cookie: u64,
    /// The object's version.
    pub version: u64,
    pub notify_id: u64,
    pub payload: Bytes,
    /// Of a completion: zero, or a negative errno when a watcher did not answer in time.
    pub result: i32,
    pub notifier: u64,
    /// Of a completion: encoded `NotifyAcks`.
    pub acks: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WatchNotifyKind {
    Notify = 1,
    Complete = 2,
    Disconnect = 3,
}

impl Body for WatchNotify {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        front.extend_from_slice(&[1, self.kind as u8]); // the first byte is a version from before v1
        self.cookie.encode(front);
        self.version.encode(front);
        self.notify_id.encode(front);
        self.payload.encode(front);
        self.result.encode(front);
        self.notifier.encode(front);
        self.acks.clone()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        let _version = u8::decode(r)?;
        Ok(WatchNotify {
            kind: match u8::decode(r)? {
                1 => WatchNotifyKind::Notify,
                2 => WatchNotifyKind::Complete,
                3 => WatchNotifyKind::Disconnect,
                value => {
                    return Err(DecodeError::BadValue { what: "watch_notify opcode", value: value.into() });
                }
            },
            cookie: Decode::decode(r)?,
            version: Decode::decode(r)?,
            notify_id: Decode::decode(r)?,
            payload: raw.front.slice_ref(r.bytes()?),
            result: Decode::decode(r)?,
            notifier: Decode::decode(r)?,
            acks: raw.data.clone(),
        })
    }
}

/// The feature bits of peers that know `OsdBackoff`: one of them is Luminous', the other tells that it is not
/// what it was before.
pub const RADOS_BACKOFF: u64 = 1 << 21 | 1 << 57;

/// An OSD asks a client not to send requests about a range of objects until it says otherwise.
/// Ceph: `MOSDBackoff`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdBackoff {
    pub spg: SpgId,
    pub epoch: Epoch,
    pub op: BackoffOp,
    /// Pairs the three messages of one backoff; unique in the session.
    pub id: u64,
    /// From here up to and without `end`; just this object when they are equal.
    pub begin: ObjectId,
    pub end: ObjectId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BackoffOp {
    Block = 1,
    /// The client's answer to `Block`.
    AckBlock = 2,
    Unblock = 3,
}

impl Encode for BackoffOp {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}
impl Decode for BackoffOp {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            1 => BackoffOp::Block,
            2 => BackoffOp::AckBlock,
            3 => BackoffOp::Unblock,
            value => return Err(DecodeError::BadValue { what: "backoff op", value: value.into() }),
        })
    }
}

fields! {
    OsdBackoff { spg, epoch, op, id, begin, end };
}
