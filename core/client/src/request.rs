//! What can be asked of a cluster, and what comes back.

use crate::object::ObjectRequest;
use crate::watches::{NotifyOutcome, WatchId};
use bytes::Bytes;
use nacre_base::{Epoch, Name, OsdId, PgId, PoolId, SnapId, Version, errno};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::StatfsReply;
use nacre_proto::types::{ObjectId, PoolStat};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Names a request of one client; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request, and how long to wait for its completion.
#[derive(Clone, Debug)]
pub struct Request {
    pub kind: RequestKind,
    /// After this long the request fails with ETIMEDOUT. It is not sent again from then on, but a
    /// write that an OSD already has may still happen, once. None waits forever.
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
    /// A command for the primary of a placement group; completes with `Output::Command`.
    PgCommand { pg: PgId, command: String, input: Bytes },
    /// A command for the active manager; completes with `Output::Command`.
    MgrCommand { command: String, input: Bytes },
    /// Watches an object; completes with `Output::Watching` once the OSD has it. The operations of
    /// `object` are ignored. `timeout`: after this long without a client the OSD gives the watch up.
    Watch { object: ObjectRequest, timeout: Duration },
    /// Ends a watch; completes with `Output::Done`.
    Unwatch(WatchId),
    /// Tells all that watch an object, and waits for their replies, at most for `timeout`; completes with
    /// `Output::Notified`. The operations of `object` are ignored.
    Notify { object: ObjectRequest, payload: Bytes, timeout: Duration },
    /// Completes with `Output::PoolStats`; pools that do not exist are left out.
    PoolStats { pools: Vec<String> },
    /// Space in the cluster, or behind one pool; completes with `Output::Statfs`.
    Statfs { pool: Option<PoolId> },
    /// Waits for a map as new as any that any client has seen; completes with `Output::Map`.
    LatestMap,
    /// Waits for the map of an epoch, or a newer one; completes with `Output::Map`.
    MapSince(Epoch),
    /// A new snapshot of a pool whose clients keep their snapshot contexts themselves; completes with
    /// `Output::Snap`. Sent twice because an answer was lost, it makes two, of which one is never used.
    CreateSnap { pool: PoolId },
    /// Removes a snapshot and, in the background, what is kept for it. Completes with `Output::Done`.
    RemoveSnap { pool: PoolId, snap: SnapId },
    /// Shows this client to the manager as a daemon of a service, until the client stops. A later one takes
    /// the place of an earlier one. Completes with `Output::Done` at once: the manager is told when there is
    /// one, and again when it is another one.
    Register(ServiceDaemon),
    /// Completes with `Output::Pool`, or ENOENT if the newest map has no such pool.
    LookupPool { name: String },
}

/// A daemon beside the cluster's own. Ceph: `rados_service_register`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceDaemon {
    /// Such as `rgw`.
    pub service: String,
    /// Tells it from the other daemons of the service.
    pub name: String,
    pub metadata: BTreeMap<String, String>,
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

/// Where a listing continues. In Ceph's order of objects, so that it stays good while placement
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
    Watching(WatchId),
    Notified(NotifyOutcome),
    Done,
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
    /// Whether this client is on the blocklist: nothing that it writes is carried out any more. Ceph:
    /// `EBLOCKLISTED`.
    pub fn is_blocklisted(&self) -> bool {
        self.errno == errno::ESHUTDOWN
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.text.as_str() {
            "" if self.is_blocklisted() => {
                write!(f, "this client is on the blocklist (error {})", self.errno)
            }
            "" => write!(f, "error {}", self.errno),
            text => write!(f, "{text} (error {})", self.errno),
        }
    }
}
impl std::error::Error for Failure {}
