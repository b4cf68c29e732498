//! What a client's operations do to one object: a pure function from the operations, the stored
//! object and the data fetched so far to a result and the changes that make it so.
//!
//! Read `execute`. Metadata is examined directly, and bytes of the object that are in memory; where an
//! operation needs others that were not fetched, `Outcome::Need` says which, and the caller runs the whole
//! vector again when it has them. Operations see what those before them did (`Draft`).

mod attrs;
mod checksum;
mod class;
mod copy;
mod data;
mod draft;
mod omap;
mod rules;
mod snaps;
#[cfg(test)]
mod tests;
mod tiers;
mod tmap;
mod watch;

use crate::object_info::ObjectInfo;
use crate::snap_set::{Found, SnapSet};
use bytes::Bytes;
pub use copy::{Copied, hash_of, source_object};
use draft::Draft;
use nacre_base::errno::{EINVAL, EIO, ENAMETOOLONG, ENOENT, EOPNOTSUPP, EOVERFLOW, ERANGE, ERESTART};
use nacre_base::{Name, SnapId, Utime, Version};
use nacre_cls::{Caller, Method};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::messages::peer::{EntryKind, OtherChange};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{CopySource, ObjectId, Op, OpCode, WatchAction, op_flags};
pub use rules::PoolRules;
pub use snaps::{Snaps, clone_of, trim_clone};
use std::collections::BTreeMap;
pub use watch::timeout_of;

/// Ceph: `osd_max_object_name_len`.
pub const NAME_LEN_MAX: usize = 2048;
/// Ceph: `osd_max_object_namespace_len`.
pub const NAMESPACE_LEN_MAX: usize = 256;
/// Ceph: `osd_max_object_size`.
pub const OBJECT_SIZE_MAX: u64 = 128 << 20;
/// Of all operations of a request together. Ceph: `osd_max_write_size`.
pub const WRITE_SIZE_MAX: usize = 90 << 20;
/// What one listing of an omap returns at most. Ceph: `osd_max_omap_entries_per_request`, and a
/// bound on bytes that keeps one answer from filling the memory.
const OMAP_ENTRIES_MAX: u64 = 1024;
const OMAP_BYTES_MAX: usize = 16 << 20;
/// An attribute's name. Ceph: `osd_max_attr_name_len`.
const ATTR_NAME_LEN_MAX: usize = 100;
/// Output that a write may return. Ceph: `osd_max_write_op_reply_len`.
const WRITE_OUTPUT_MAX: usize = 64;

/// A negative errno.
type Errno = i32;

/// An operation with its flags, see `op_flags::op`.
#[derive(Clone, Debug, PartialEq)]
pub struct FlaggedOp {
    pub op: Op,
    pub flags: u32,
    pub is_write: bool,
}

impl FlaggedOp {
    /// `code_writes`: what the operation's code says, see `OpCode::is_write`.
    pub fn new(op: Op, flags: u32, code_writes: bool) -> FlaggedOp {
        let is_write = match &op {
            // One code for all methods: which one says what it does.
            Op::Call { class, method, .. } => class::find(class, method).is_ok_and(|m| m.access.writes()),
            Op::Watch { action: WatchAction::Ping, .. } => false,
            _ => code_writes,
        };
        FlaggedOp { op, flags, is_write }
    }
}

/// What a call means, if there is such a class and such a method.
pub fn method_of(class: &Name, method: &Name) -> Option<(&'static str, &'static Method)> {
    let class = nacre_cls::class_named(&class.to_text())?;
    let method = class.methods.iter().find(|known| known.name == method.to_text())?;
    Some((class.name, method))
}

/// What the operations run under.
#[derive(Clone, Copy, Debug)]
pub struct Env {
    /// Of the log entry that the changes will be.
    pub version: Version,
    /// The object's version for clients, once changed.
    pub user_version: u64,
    pub mtime: Utime,
    /// The client wants codes and outputs of writes too.
    pub return_vector: bool,
    /// For methods of object classes.
    pub caller: Caller,
    /// Of the notify that this may be.
    pub notify_id: u64,
    /// What the pool forbids.
    pub rules: PoolRules,
}

/// What operations needed and was fetched so far.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    /// Of the object itself or its clones: (which, offset, length asked for, bytes up to its end).
    pub extents: Vec<(SnapId, u64, u64, Bytes)>,
    /// Other objects, or why they cannot be had.
    pub copies: Vec<(CopySource, Result<Copied, Errno>)>,
}

#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// Fetch these (offset, length) extents of the object or a clone of it, and run again.
    Need(ObjectId, Vec<(u64, u64)>),
    /// The same, with another object.
    NeedCopy(CopySource),
    Done(Done),
}

#[derive(Debug, PartialEq)]
pub struct Done {
    /// Zero or more, or a negative errno.
    pub result: i32,
    /// Code and output of each operation that ran.
    pub outputs: Vec<(i32, Bytes)>,
    /// As clients see it; of the object as it is now.
    pub user_version: u64,
    /// What a vector with writes does; `Note` with nothing to do if it failed or changed nothing.
    pub change: ObjectChange,
}

impl Done {
    /// Of operations that are about no object.
    pub fn answer(result: i32, outputs: Vec<(i32, Bytes)>) -> Done {
        Done { result, outputs, user_version: 0, change: ObjectChange::nothing(Version::ZERO) }
    }
}

#[derive(Debug, PartialEq)]
pub struct ObjectChange {
    pub kind: EntryKind,
    pub prior: Version,
    /// Clones that were made.
    pub others: Vec<OtherChange>,
    pub txn: Transaction,
    /// The object is not there any more for clients, or another one is by now.
    pub vanishes: bool,
    pub objects: i64,
    pub clones: i64,
    pub bytes: i64,
}

impl ObjectChange {
    fn nothing(prior: Version) -> ObjectChange {
        ObjectChange {
            kind: EntryKind::Note,
            prior,
            others: Vec::new(),
            txn: Transaction::new(),
            vanishes: false,
            objects: 0,
            clones: 0,
            bytes: 0,
        }
    }
}

/// Why an operation stopped.
enum Stop {
    Failed(Errno),
    Need(ObjectId, Vec<(u64, u64)>),
    NeedCopy(CopySource),
    Store(ReadError),
}
impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Stop {
        Stop::Store(error)
    }
}

/// What an operation gives back: its code and its output.
type OpResult = Result<(i32, Bytes), Stop>;

fn ok() -> OpResult {
    Ok((0, Bytes::new()))
}
fn output(bytes: impl Into<Bytes>) -> OpResult {
    Ok((0, bytes.into()))
}
fn fail<T>(errno: i32) -> Result<T, Stop> {
    Err(Stop::Failed(-errno))
}

/// Checks that need no object: an error goes back at once.
pub fn check_request(object: &ObjectId, ops: &[FlaggedOp]) -> Result<(), Errno> {
    for FlaggedOp { op, .. } in ops {
        if let Op::Call { class, method, .. } = op {
            class::find(class, method)?;
        }
    }
    if object.name.len() > NAME_LEN_MAX
        || object.key.len() > NAME_LEN_MAX
        || object.namespace.len() > NAMESPACE_LEN_MAX
    {
        return Err(-ENAMETOOLONG);
    }
    let lists = ops.iter().any(|op| op.op.is_about_group());
    if object.name.is_empty() && !lists {
        return Err(-EINVAL);
    }
    for FlaggedOp { op, flags, .. } in ops {
        match op {
            // There are no tiers, so no pool is a cache: whether there is such an object does not matter.
            Op::Unknown(OpCode::CACHE_FLUSH | OpCode::CACHE_TRY_FLUSH | OpCode::CACHE_EVICT)
                if flags & op_flags::op::FAILOK == 0 =>
            {
                return Err(-EINVAL);
            }
            Op::Unknown(code) if !tiers::is_about_tiers(*code) => return Err(-EOPNOTSUPP),
            // They are about the set, and nothing else is.
            op if (*op == Op::ListSnaps) != (object.snap == SnapId::DIR) => return Err(-EINVAL),
            Op::CopyFrom(source) if source.flags & !copy::FLAGS != 0 || source_object(source) == *object => {
                return Err(-EINVAL);
            }
            _ => {}
        }
    }
    if ops.is_empty() { Err(-EINVAL) } else { Ok(()) }
}

/// Runs a vector of operations on `object`. A `ReadError` means that the store could not tell.
pub fn execute(
    store: &dyn StoreView,
    object: &ObjectId,
    ops: &[FlaggedOp],
    env: &Env,
    snaps: &Snaps<'_>,
    fetched: &Fetched,
) -> Result<Outcome, ReadError> {
    let id = StoredId::Object(object.clone());
    let stored = ObjectInfo::load(store, object)?;
    let prior = stored.as_ref().map_or(Version::ZERO, |info| info.version);
    let existed = stored.as_ref().is_some_and(|info| !info.whiteout);
    let failed = |result| {
        let change = ObjectChange::nothing(prior);
        Ok(Outcome::Done(Done { result, outputs: Vec::new(), user_version: 0, change }))
    };
    let writes = ops.iter().any(|op| op.is_write);
    // What the operations are about.
    let (source, info) = match snaps.at {
        _ if writes => (object.clone(), stored.clone()),
        SnapId::DIR if stored.is_some() => (object.clone(), stored.clone()),
        SnapId::HEAD if existed => (object.clone(), stored.clone()),
        SnapId::HEAD | SnapId::DIR => return failed(-ENOENT),
        snap => match stored.as_ref().map_or(Found::Nowhere, |info| snaps.find(&info.snap_set, snap)) {
            Found::Head if existed => (object.clone(), stored.clone()),
            Found::Clone(id) => {
                let clone = clone_of(object, id);
                match ObjectInfo::load(store, &clone)? {
                    None => return Err(ReadError::NotFound(clone.into())),
                    info => (clone, info),
                }
            }
            Found::Head | Found::Nowhere => return failed(-ENOENT),
        },
    };
    let seen = stored.as_ref().map_or(SnapId(0), |info| info.snap_set.seq);
    if writes && snaps.ordered && snaps.context.seq < seen {
        return failed(-ERESTART); // Ceph: `EOLDSNAPC`
    }
    let before = match &info {
        Some(_) => store.stat(&source.clone().into())?.unwrap_or_default().size,
        None => 0,
    };
    let set = stored.as_ref().map_or_else(SnapSet::default, |info| info.snap_set.clone());
    let mut draft = Draft::new(store, object.clone(), source, info, before, set, fetched);
    draft.rules = env.rules;
    let mut outputs = Vec::with_capacity(ops.len());
    let mut result = 0;
    for FlaggedOp { op, flags, is_write } in ops {
        let (code, out) = match one(&mut draft, env, snaps, op) {
            Ok((code, mut out)) => {
                let mut code = code;
                if writes && !env.return_vector {
                    out = Bytes::new();
                    code = code.min(0);
                } else if *is_write && out.len() > WRITE_OUTPUT_MAX {
                    out = Bytes::new();
                    code = -EOVERFLOW;
                }
                (code, out)
            }
            Err(Stop::Failed(errno)) => (errno, Bytes::new()),
            Err(Stop::Need(source, extents)) => return Ok(Outcome::Need(source, extents)),
            Err(Stop::NeedCopy(source)) => return Ok(Outcome::NeedCopy(source)),
            // Bad bytes under one operation are that operation's error.
            Err(Stop::Store(error @ ReadError::NotFound(_))) => return Err(error),
            Err(Stop::Store(_)) => (-EIO, Bytes::new()),
        };
        outputs.push((code, out));
        result = code;
        if code < 0 {
            // What was to be copied is looked for before all else: without it there is no request.
            if flags & op_flags::op::FAILOK == 0 || matches!(op, Op::CopyFrom(_)) {
                break;
            }
            result = 0;
        }
    }
    if result < 0 || !draft.modified {
        let user_version = if existed || !writes { draft.stored_user_version } else { 0 };
        return Ok(Outcome::Done(Done {
            result,
            outputs,
            user_version,
            change: ObjectChange::nothing(prior),
        }));
    }
    let bytes_before = before + stored.as_ref().map_or(0, |info| info.snap_set.bytes());
    let kept = snaps::keep(&mut draft, env, snaps.context, stored.as_ref(), before);
    let vanishes = existed && draft.gone;
    if !draft.exists && !draft.snap_set.clones.is_empty() {
        // Reads of a snapshot find the clone through the head.
        draft.info = ObjectInfo { whiteout: true, ..ObjectInfo::default() };
        draft.changes.push(Change::Touch);
    }
    let stays = draft.exists || draft.info.whiteout;
    let kind = if stays { EntryKind::Modify } else { EntryKind::Delete };
    // A copy is as old as its source, and its version for clients not less than the source's.
    let (copied_version, mtime) = draft.copied_from.unwrap_or((0, env.mtime));
    let user_version = match draft.user_modified {
        true => env.user_version.max(copied_version),
        false => draft.stored_user_version,
    };
    if stays {
        draft.info.version = env.version;
        draft.info.snap_set = std::mem::take(&mut draft.snap_set);
        draft.info.clean = draft.cleaned;
        if draft.user_modified {
            draft.info.user_version = user_version;
        }
        // Also of what clients do not count as a change, such as a watch. Some give no time.
        if mtime != Utime::ZERO {
            draft.info.mtime = mtime;
        }
        let (name, value) = draft.info.to_attr();
        let mut attrs = BTreeMap::new(); // from an array it would be sorted first
        attrs.insert(name, value);
        draft.changes.push(Change::SetAttrs(attrs));
    }
    let bytes_after = draft.size + draft.info.snap_set.bytes();
    let clones = kept.others.len() as i64;
    let mut txn = kept.txn;
    txn.changes.extend(draft.changes.into_iter().map(|change| (id.clone(), change)));
    let change = ObjectChange {
        kind,
        prior,
        others: kept.others,
        txn,
        vanishes,
        objects: clones + i64::from(stays) - i64::from(stored.is_some()),
        clones,
        bytes: bytes_after as i64 - bytes_before as i64,
    };
    Ok(Outcome::Done(Done { result, outputs, user_version, change }))
}

fn one(draft: &mut Draft<'_>, env: &Env, snaps: &Snaps<'_>, op: &Op) -> OpResult {
    env.rules.check(draft, op)?;
    match op {
        Op::Read(extent) => data::read(draft, extent),
        Op::Stat => data::stat(draft),
        Op::MapExt(extent) => data::map_extents(draft, extent),
        Op::SparseRead(extent) => data::sparse_read(draft, extent),
        Op::Checksum { off, len, chunk_size, kind, init } => {
            checksum::checksum(draft, *off, *len, *chunk_size, *kind, init)
        }
        Op::CmpExt { off, data } => data::compare(draft, *off, data),
        Op::AssertVer { version } => assert_version(draft, *version),
        Op::ListWatchers => watch::list(draft),
        Op::Watch { cookie, action, timeout_secs, .. } => {
            watch::watch(draft, env, *cookie, *action, *timeout_secs)
        }
        Op::Notify { .. } => watch::notify(env),
        // Whatever became of the notify, see `pg::watches`.
        Op::NotifyAck { .. } => ok(),
        Op::OmapGetKeys { after, max } => omap::get_keys(draft, after, *max),
        Op::OmapGetVals { after, max, prefix } => omap::get_values(draft, after, *max, prefix),
        Op::OmapGetHeader => omap::get_header(draft),
        Op::OmapGetValsByKeys(keys) => omap::get_by_keys(draft, keys),
        Op::OmapCmp(asserts) => omap::compare(draft, asserts),
        Op::GetXattr { name } => attrs::get(draft, name),
        Op::GetXattrs => attrs::get_all(draft),
        Op::CmpXattr { name, value, op, mode } => attrs::compare(draft, name, value, *op, *mode),
        Op::Write { extent, data } => data::write(draft, extent, data),
        Op::WriteFull { data } => data::write_full(draft, data),
        Op::Truncate { size, truncate_size, truncate_seq } => {
            data::truncate(draft, *size, *truncate_size, *truncate_seq)
        }
        Op::Zero { off, len } => data::zero(draft, *off, *len),
        Op::Delete => data::delete(draft),
        Op::Append { data } => data::append(draft, data),
        Op::Create { exclusive } => data::create(draft, *exclusive),
        Op::WriteSame { off, len, data } => data::write_same(draft, *off, *len, data),
        Op::SetAllocHint { object_size, write_size, flags } => {
            draft.touch();
            draft.info.expected_object_size = *object_size;
            draft.info.expected_write_size = *write_size;
            draft.info.alloc_hint_flags = *flags;
            ok()
        }
        Op::CopyFrom(source) => copy::copy_from(draft, source),
        Op::OmapSetVals(pairs) => omap::set(draft, pairs),
        Op::OmapSetHeader(header) => omap::set_header(draft, header),
        Op::OmapClear => omap::clear(draft),
        Op::OmapRmKeys(keys) => omap::remove(draft, keys),
        Op::OmapRmKeyRange { begin, end } => omap::remove_range(draft, begin, end),
        Op::SetXattr { name, value } => attrs::set(draft, name, value),
        Op::RmXattr { name } => attrs::remove(draft, name),
        Op::Call { class, method, input } => class::call(draft, env, class, method, input),
        Op::TmapGet => output(draft.read(0, draft.size)?),
        Op::TmapPut { map } => tmap::put(draft, map),
        Op::TmapUp { commands } => tmap::update(draft, commands),
        Op::IsDirty => tiers::is_dirty(draft),
        Op::Undirty => tiers::undirty(draft),
        Op::ListSnaps => snaps::list(draft),
        Op::Rollback { snap } => snaps::rollback(draft, snaps, *snap),
        // Sorted out by `check_request`, or listings, which are about no object.
        Op::List { .. } | Op::ListHitSets | Op::GetHitSet | Op::ScrubLs(_) => fail(EOPNOTSUPP),
        Op::Unknown(code) => tiers::answer(draft, *code),
    }
}

fn assert_version(draft: &Draft<'_>, version: u64) -> OpResult {
    match version {
        0 => fail(EINVAL),
        v if v < draft.stored_user_version => fail(ERANGE),
        v if v > draft.stored_user_version => fail(EOVERFLOW),
        _ => ok(),
    }
}
