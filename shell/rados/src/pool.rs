//! The objects of one pool, in one namespace.

use crate::client::{RadosClient, unexpected};
use crate::watch::Watch;
use bytes::Bytes;
use nacre_base::{Name, PoolId, SnapId, Utime, errno};
use nacre_client::{
    Failure, ListCursor, ListEntry, ListPage, NotifyOutcome, ObjectReply, ObjectRequest, OpOutput, Output,
    Request, RequestKind,
};
use nacre_wire::{Decode, DecodeError, Reader, from_slice};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A pool, a namespace in it, and what else all requests to it have in common. Cheap to clone.
#[derive(Clone)]
pub struct Pool {
    client: RadosClient,
    /// Without a name and operations.
    common: ObjectRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub size: u64,
    pub mtime: Utime,
}

impl Pool {
    pub fn new(client: RadosClient, id: PoolId) -> Pool {
        Pool { client, common: ObjectRequest::new(id, "") }
    }
    pub fn id(&self) -> PoolId {
        self.common.pool
    }
    pub fn client(&self) -> &RadosClient {
        &self.client
    }

    /// The same pool, in this namespace.
    pub fn namespace(&self, namespace: impl Into<Name>) -> Pool {
        self.with(|common| common.namespace(namespace))
    }
    /// The same, with objects placed by this key instead of their names.
    pub fn locator(&self, key: impl Into<Name>) -> Pool {
        self.with(|common| common.key(key))
    }
    /// The same, with reads of a snapshot.
    pub fn at_snap(&self, snap: SnapId) -> Pool {
        self.with(|common| common.at_snap(snap))
    }
    /// The same, with a snapshot context for writes.
    pub fn snap_context(&self, seq: SnapId, snaps: Vec<SnapId>) -> Pool {
        self.with(|common| common.snap_context(seq, snaps))
    }
    /// The same, with this time for each request.
    pub fn with_timeout(&self, timeout: Duration) -> Pool {
        Pool { client: self.client.with_timeout(timeout), common: self.common.clone() }
    }
    fn with(&self, change: impl FnOnce(ObjectRequest) -> ObjectRequest) -> Pool {
        Pool { client: self.client.clone(), common: change(self.common.clone()) }
    }

    /// A request about an object, to which operations are added and which `run` carries out.
    pub fn object(&self, name: impl Into<Name>) -> ObjectRequest {
        ObjectRequest { name: name.into(), ..self.common.clone() }
    }

    /// Carries out all operations of a request, or none.
    pub async fn run(&self, request: ObjectRequest) -> Result<ObjectReply, Failure> {
        match self.client.request(request).await? {
            Output::Object(reply) => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    // ---- the usual, one operation at a time ----

    /// Up to `len` bytes; all from `off` on if it is zero.
    pub async fn read(&self, name: impl Into<Name>, off: u64, len: u64) -> Result<Bytes, Failure> {
        Ok(first(self.run(self.object(name).read(off, len)).await?))
    }
    pub async fn stat(&self, name: impl Into<Name>) -> Result<Stat, Failure> {
        let data = first(self.run(self.object(name).stat()).await?);
        let r = &mut Reader::new(&data);
        let stat = |r: &mut Reader<'_>| Ok(Stat { size: u64::decode(r)?, mtime: Utime::decode(r)? });
        stat(r).map_err(unreadable)
    }
    pub async fn write(
        &self,
        name: impl Into<Name>,
        off: u64,
        data: impl Into<Bytes>,
    ) -> Result<(), Failure> {
        self.run(self.object(name).write(off, data)).await.map(drop)
    }
    pub async fn write_full(&self, name: impl Into<Name>, data: impl Into<Bytes>) -> Result<(), Failure> {
        self.run(self.object(name).write_full(data)).await.map(drop)
    }
    pub async fn append(&self, name: impl Into<Name>, data: impl Into<Bytes>) -> Result<(), Failure> {
        self.run(self.object(name).append(data)).await.map(drop)
    }
    pub async fn remove(&self, name: impl Into<Name>) -> Result<(), Failure> {
        self.run(self.object(name).remove()).await.map(drop)
    }
    pub async fn xattrs(&self, name: impl Into<Name>) -> Result<BTreeMap<Name, Bytes>, Failure> {
        from_slice(&first(self.run(self.object(name).get_xattrs()).await?)).map_err(unreadable)
    }
    /// The next values of an omap in the order of their keys, and whether there are more.
    pub async fn omap(
        &self,
        name: impl Into<Name>,
        after: impl Into<Name>,
        max: u64,
    ) -> Result<(BTreeMap<Name, Bytes>, bool), Failure> {
        from_slice(&first(self.run(self.object(name).omap_get(after, max)).await?)).map_err(unreadable)
    }
    /// Calls a method of an object class.
    pub async fn exec(
        &self,
        name: impl Into<Name>,
        class: impl Into<Name>,
        method: impl Into<Name>,
        input: impl Into<Bytes>,
    ) -> Result<Bytes, Failure> {
        Ok(first(self.run(self.object(name).exec(class, method, input)).await?))
    }

    // ---- listing ----

    /// A page of this namespace's objects, in no order that means anything to users.
    pub async fn list(&self, from: ListCursor, max: u64) -> Result<ListPage, Failure> {
        self.page(Some(self.common.namespace.clone()), from, max).await
    }
    /// All objects of this namespace.
    pub fn objects(&self) -> Objects {
        Objects::new(self.clone(), Some(self.common.namespace.clone()))
    }
    /// All objects of the pool, whatever their namespace.
    pub fn objects_of_all_namespaces(&self) -> Objects {
        Objects::new(self.clone(), None)
    }
    async fn page(&self, namespace: Option<Name>, from: ListCursor, max: u64) -> Result<ListPage, Failure> {
        match self.client.request(RequestKind::List { pool: self.id(), namespace, from, max }).await? {
            Output::Page(page) => Ok(page),
            other => Err(unexpected(&other)),
        }
    }

    // ---- watch and notify ----

    /// Watches an object. The OSD ends the watch when it receives nothing from this client for `timeout`.
    pub async fn watch(&self, name: impl Into<Name>, timeout: Duration) -> Result<Watch, Failure> {
        Watch::start(self.client.clone(), self.object(name), timeout).await
    }
    /// Tells the watchers of an object, and waits for their replies, at most for `timeout`.
    pub async fn notify(
        &self,
        name: impl Into<Name>,
        payload: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<NotifyOutcome, Failure> {
        let request = RequestKind::Notify { object: self.object(name), payload: payload.into(), timeout };
        match self.client.request(Request::from(request)).await? {
            Output::Notified(outcome) => Ok(outcome),
            other => Err(unexpected(&other)),
        }
    }
}

/// Names of objects, fetched by the page.
pub struct Objects {
    pool: Pool,
    namespace: Option<Name>,
    page: VecDeque<ListEntry>,
    /// None at the end of the pool.
    next: Option<ListCursor>,
}

impl Objects {
    fn new(pool: Pool, namespace: Option<Name>) -> Objects {
        Objects { pool, namespace, page: VecDeque::new(), next: Some(ListCursor::default()) }
    }

    /// The next name, none at the end.
    pub async fn next(&mut self) -> Result<Option<ListEntry>, Failure> {
        while self.page.is_empty() {
            let Some(from) = self.next.take() else { return Ok(None) };
            match self.pool.page(self.namespace.clone(), from.clone(), 1024).await {
                Ok(page) => (self.page, self.next) = (page.entries.into(), page.next),
                Err(failure) => {
                    self.next = Some(from);
                    return Err(failure);
                }
            }
        }
        Ok(self.page.pop_front())
    }
}

fn first(reply: ObjectReply) -> Bytes {
    reply.ops.into_iter().next().map(|OpOutput { data, .. }| data).unwrap_or_default()
}

fn unreadable(error: DecodeError) -> Failure {
    Failure::new(errno::EIO, format!("an answer that cannot be read: {error}"))
}
