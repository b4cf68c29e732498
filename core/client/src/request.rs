//! What can be asked of a cluster, and what comes back.

use bytes::Bytes;
use nacre_base::{Name, OsdId, PoolId, SnapId, Utime, Version, errno};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::{OsdOpItem, StatfsReply};
use nacre_proto::types::{Extent, ObjectId, Op, PoolStat, op_flags};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Names a request of one client; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Something to do, and how long to wait for it.
#[derive(Clone, Debug)]
pub struct Request {
    pub kind: RequestKind,
    /// After this long the request fails with ETIMEDOUT. It is not sent again from then on, but a
    /// write that an OSD already has may still happen, once. None waits for ever.
    pub timeout: Option<Duration>,
}

#[derive(Clone, Debug)]
pub enum RequestKind {
    /// Operations on one object; completes with `Output::Object`.
    Object(ObjectRequest),
    /// The next names in a pool; completes with `Output::Page`.
    List {
        pool: PoolId,
        /// None for all namespaces.
        namespace: Option<Name>,
        from: ListCursor,
        /// At most about this many names at a time.
        max: u64,
    },
    /// A command for the monitors as one JSON object; completes with `Output::Command`.
    MonCommand { command: String, input: Bytes },
    /// A command for one OSD; completes with `Output::Command`.
    OsdCommand { osd: OsdId, command: String, input: Bytes },
    /// Completes with `Output::PoolStats`; pools that do not exist are left out.
    PoolStats { pools: Vec<String> },
    /// Space in the cluster, or behind one pool; completes with `Output::Statfs`.
    Statfs { pool: Option<PoolId> },
    /// Waits for a map as new as any that anybody has seen; completes with `Output::Map`.
    LatestMap,
    /// A new snapshot of a pool whose clients keep their snapshot contexts themselves; completes with
    /// `Output::Snap`. Sent twice because an answer was lost, it makes two, of which one is never used.
    CreateSnap { pool: PoolId },
    /// Nobody reads that snapshot any more: what is kept for it goes. Completes with `Output::Removed`.
    RemoveSnap { pool: PoolId, snap: SnapId },
    /// Completes with `Output::Pool`, or ENOENT if the newest map has no such pool.
    LookupPool { name: String },
}

impl Request {
    pub fn timeout(self, timeout: Duration) -> Request {
        Request { timeout: Some(timeout), ..self }
    }
    pub fn mon_command(command: impl Into<String>, input: impl Into<Bytes>) -> Request {
        RequestKind::MonCommand { command: command.into(), input: input.into() }.into()
    }
    pub fn lookup_pool(name: impl Into<String>) -> Request {
        RequestKind::LookupPool { name: name.into() }.into()
    }
    /// The first names of a pool's default namespace, or of any.
    pub fn list(pool: PoolId, namespace: Option<Name>, from: ListCursor) -> Request {
        RequestKind::List { pool, namespace, from, max: 1024 }.into()
    }
}

impl From<RequestKind> for Request {
    fn from(kind: RequestKind) -> Request {
        Request { kind, timeout: None }
    }
}
impl From<ObjectRequest> for Request {
    fn from(object: ObjectRequest) -> Request {
        RequestKind::Object(object).into()
    }
}

/// Operations on one object, carried out in order and all or none.
#[derive(Clone, Debug)]
pub struct ObjectRequest {
    pub pool: PoolId,
    pub namespace: Name,
    /// Placed by this instead of the name, unless empty.
    pub key: Name,
    pub name: Name,
    pub ops: Vec<OsdOpItem>,
    /// What to read; writes go to the head.
    pub snap: SnapId,
    /// The snapshot context of writes: the newest snapshot, and all, newest first.
    pub snap_seq: SnapId,
    pub snaps: Vec<SnapId>,
    /// What the object's modification time becomes; none for the time of `submit`.
    pub mtime: Option<Utime>,
    /// `op_flags::message` in addition to those that follow from the operations.
    pub flags: u32,
}

impl ObjectRequest {
    pub fn new(pool: PoolId, name: impl Into<Name>) -> ObjectRequest {
        ObjectRequest {
            pool,
            namespace: Name::default(),
            key: Name::default(),
            name: name.into(),
            ops: Vec::new(),
            snap: SnapId::HEAD,
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            mtime: None,
            flags: 0,
        }
    }
    pub fn namespace(mut self, namespace: impl Into<Name>) -> Self {
        self.namespace = namespace.into();
        self
    }
    pub fn key(mut self, key: impl Into<Name>) -> Self {
        self.key = key.into();
        self
    }
    pub fn op(mut self, op: Op) -> Self {
        self.ops.push(op.into());
        self
    }
    /// Sets `op_flags::op` on the last operation.
    pub fn op_flags(mut self, flags: u32) -> Self {
        let last = self.ops.last_mut().expect("flags are for an operation");
        last.op.flags |= flags;
        self
    }
    /// Sets `op_flags::message`.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags |= flags;
        self
    }

    pub fn read(self, off: u64, len: u64) -> Self {
        self.op(Op::Read(Extent::new(off, len)))
    }
    pub fn stat(self) -> Self {
        self.op(Op::Stat)
    }
    pub fn write(self, off: u64, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.op(Op::Write { extent: Extent::new(off, data.len() as u64), data })
    }
    pub fn write_full(self, data: impl Into<Bytes>) -> Self {
        self.op(Op::WriteFull { data: data.into() })
    }
    pub fn append(self, data: impl Into<Bytes>) -> Self {
        self.op(Op::Append { data: data.into() })
    }
    pub fn create(self, exclusive: bool) -> Self {
        self.op(Op::Create { exclusive })
    }
    pub fn truncate(self, size: u64) -> Self {
        self.op(Op::Truncate { size, truncate_size: 0, truncate_seq: 0 })
    }
    pub fn zero(self, off: u64, len: u64) -> Self {
        self.op(Op::Zero { off, len })
    }
    pub fn remove(self) -> Self {
        self.op(Op::Delete)
    }
    pub fn get_xattr(self, name: impl Into<Name>) -> Self {
        self.op(Op::GetXattr { name: name.into() })
    }
    /// Output: `BTreeMap<Name, Bytes>`.
    pub fn get_xattrs(self) -> Self {
        self.op(Op::GetXattrs)
    }
    pub fn set_xattr(self, name: impl Into<Name>, value: impl Into<Bytes>) -> Self {
        self.op(Op::SetXattr { name: name.into(), value: value.into() })
    }
    pub fn remove_xattr(self, name: impl Into<Name>) -> Self {
        self.op(Op::RmXattr { name: name.into() })
    }
    pub fn omap_set(self, pairs: impl IntoIterator<Item = (Name, Bytes)>) -> Self {
        self.op(Op::OmapSetVals(pairs.into_iter().collect()))
    }
    pub fn omap_remove(self, keys: impl IntoIterator<Item = Name>) -> Self {
        self.op(Op::OmapRmKeys(keys.into_iter().collect()))
    }
    pub fn omap_clear(self) -> Self {
        self.op(Op::OmapClear)
    }
    /// Output: `BTreeMap<Name, Bytes>`, then whether there is more.
    pub fn omap_get(self, after: impl Into<Name>, max: u64) -> Self {
        self.op(Op::OmapGetVals { after: after.into(), max, prefix: Name::default() })
    }
    /// Output: `BTreeMap<Name, Bytes>` of those that exist.
    pub fn omap_get_keys(self, keys: BTreeSet<Name>) -> Self {
        self.op(Op::OmapGetValsByKeys(keys))
    }

    /// Whether any operation says that it reads, and whether any says that it writes.
    pub(crate) fn modes(&self) -> (bool, bool) {
        let writes = |item: &OsdOpItem| item.op.code.is_write();
        let flagged = |flag| self.flags & flag != 0;
        let reads = self.ops.iter().any(|item| !writes(item)) || flagged(op_flags::message::READ);
        (reads, self.ops.iter().any(writes) || flagged(op_flags::message::WRITE))
    }
}

/// Where a listing goes on. In Ceph's order of objects, so that it stays good while placement
/// groups split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListCursor(pub(crate) ObjectId);

impl Default for ListCursor {
    fn default() -> ListCursor {
        ListCursor(ObjectId::min())
    }
}

#[derive(Clone, Debug)]
pub struct Completion {
    pub id: RequestId,
    pub result: Result<Output, Failure>,
}

#[derive(Clone, Debug)]
pub enum Output {
    Object(ObjectReply),
    Page(ListPage),
    Command(CommandOutput),
    PoolStats(BTreeMap<String, PoolStat>),
    Statfs(StatfsReply),
    Map(Arc<OsdMap>),
    Pool(PoolId),
    Snap(SnapId),
    Removed,
}

/// What a request about an object came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReply {
    /// The object's version.
    pub user_version: u64,
    /// Of a write, its place in the placement group's log.
    pub version: Version,
    /// One for each operation.
    pub ops: Vec<OpOutput>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpOutput {
    /// Zero or more, or a negative errno.
    pub rval: i32,
    pub data: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    pub entries: Vec<ListEntry>,
    /// None at the end of the pool.
    pub next: Option<ListCursor>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListEntry {
    pub namespace: Name,
    pub name: Name,
    /// Empty unless the object was created with one.
    pub key: Name,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// The line for people.
    pub status: String,
    pub output: Bytes,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// As `nacre_base::errno`, positive; from `CmpExt` also 4095 and the place of the difference.
    pub errno: i32,
    /// For people; may be empty.
    pub text: String,
    /// Of a request about an object that an OSD refused: what each operation came to.
    pub ops: Vec<OpOutput>,
}

impl Failure {
    pub fn new(errno: i32, text: impl Into<String>) -> Failure {
        Failure { errno, text: text.into(), ops: Vec::new() }
    }
    pub fn is_not_found(&self) -> bool {
        self.errno == errno::ENOENT
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.text.as_str() {
            "" => write!(f, "error {}", self.errno),
            text => write!(f, "{text} (error {})", self.errno),
        }
    }
}
impl std::error::Error for Failure {}
