//! What there is to know of an image before work on it is promised, and where the promise is kept.
//!
//! All by our own client, with the methods of the `rbd` object class.

use super::task::{Refs, Task};
use super::{Trouble, trouble};
use crate::ask::Access;
use bytes::Bytes;
use nacre_base::{Name, PoolId, SnapId, errno};
use nacre_client::{Failure, ObjectRequest, Output, Request, RequestKind};
use nacre_node::BlockingClient;
use nacre_proto::types::Op;
use nacre_wire::{Decode, Encode, Reader, to_vec};
use std::collections::BTreeMap;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
const TASKS: &str = "rbd_task";
const PAGE: u64 = 128;

/// What an image is, as far as tasks care.
pub struct Image {
    pub id: String,
    pub has_parent: bool,
    pub has_snapshots: bool,
}

/// Where images are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub pool: PoolId,
    pub namespace: String,
}

pub struct Images {
    client: BlockingClient,
}

impl Images {
    pub fn connect(access: &Access) -> Images {
        Images { client: access.connect() }
    }

    pub(super) fn ask(&self, request: impl Into<Request>) -> Result<Output, Failure> {
        self.client.request(request.into().timeout(TIMEOUT))
    }

    /// One operation on one object: what it gave, or None if there is no such object (or entry).
    pub(super) fn run(&self, at: &Place, object: &str, op: Op) -> Result<Option<Bytes>, Failure> {
        let request = ObjectRequest::new(at.pool, object).namespace(at.namespace.as_str()).op(op);
        match self.ask(request) {
            Ok(Output::Object(reply)) => Ok(reply.ops.into_iter().next().map(|op| op.data)),
            Ok(_) => unreachable!("an object's request gives an object's reply"),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// A method of the class `rbd`.
    pub(super) fn call<T: Decode>(
        &self,
        at: &Place,
        object: &str,
        method: &str,
        input: &impl Encode,
    ) -> Result<Option<T>, Failure> {
        let (class, method, input) = (Name::from("rbd"), Name::from(method), to_vec(input).into());
        let said = self.run(at, object, Op::Call { class, method, input })?;
        said.map(|bytes| read(&bytes)).transpose()
    }

    pub fn place(&self, refs: &Refs) -> Result<Place, Trouble> {
        let name = &refs.pool_name;
        match self.ask(Request::lookup_pool(name.as_str())) {
            Ok(Output::Pool(pool)) => Ok(Place { pool, namespace: refs.pool_namespace.clone() }),
            Ok(_) => unreachable!("a pool's name gives its number"),
            Err(failure) if failure.is_not_found() => {
                let why = format!("[errno 2] RADOS object not found (error opening pool '{name}')");
                Err(trouble(errno::ENOENT, why))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    pub fn find(&self, at: &Place, name: &str) -> Result<Option<Image>, Trouble> {
        let whole = Op::Read(nacre_proto::types::Extent::new(0, 0));
        let Some(id) = self.run(at, &format!("rbd_id.{name}"), whole)? else { return Ok(None) };
        let id: String = read(&id)?;
        let header = format!("rbd_header.{id}");
        let head = SnapId::HEAD.0;
        let overlap = self.call::<Option<u64>>(at, &header, "parent_overlap_get", &head)?;
        let snaps = self.call::<(u64, Vec<u64>)>(at, &header, "get_snapcontext", &Bytes::new())?;
        let (Some(overlap), Some((_, snaps))) = (overlap, snaps) else { return Ok(None) };
        Ok(Some(Image { id, has_parent: overlap.is_some(), has_snapshots: !snaps.is_empty() }))
    }

    pub fn is_in_trash(&self, at: &Place, id: &str) -> Result<bool, Trouble> {
        let (class, method) = (Name::from("rbd"), Name::from("trash_get"));
        let input = to_vec(&id.to_string()).into();
        Ok(self.run(at, "rbd_trash", Op::Call { class, method, input })?.is_some())
    }

    // ---- the tasks themselves ----

    pub fn keep(&self, at: &Place, task: &Task) -> Result<(), Trouble> {
        let pair = (Name::from(task.key()), Bytes::from(task.to_json()));
        self.run(at, TASKS, Op::OmapSetVals([pair].into()))?;
        Ok(())
    }

    pub fn forget(&self, at: &Place, task: &Task) -> Result<(), Trouble> {
        self.run(at, TASKS, Op::OmapRmKeys([Name::from(task.key())].into()))?;
        Ok(())
    }

    /// All that is kept anywhere. What cannot be read is left where it is, and named in the log.
    pub fn load(&self) -> Result<Vec<Task>, Trouble> {
        let mut tasks = Vec::new();
        for (pool, _) in self.pools()? {
            let default = Place { pool, namespace: String::new() };
            for namespace in self.namespaces(&default)?.into_iter().chain([String::new()]) {
                self.load_from(&Place { pool, namespace }, &mut tasks)?;
            }
        }
        Ok(tasks)
    }

    /// Those for images, and their names.
    pub(super) fn pools(&self) -> Result<Vec<(PoolId, String)>, Failure> {
        let Output::Map(map) = self.ask(RequestKind::LatestMap)? else { unreachable!("a map was asked for") };
        let for_images = map.pools.iter().filter(|(_, pool)| pool.applications.contains_key("rbd"));
        Ok(for_images.map(|(&pool, _)| (pool, map.pool_name(pool).unwrap_or_default().to_owned())).collect())
    }

    /// The one of that name, or else all for images.
    pub fn pools_named(&self, name: Option<&str>) -> Result<BTreeMap<PoolId, String>, Trouble> {
        let Some(name) = name else { return Ok(self.pools()?.into_iter().collect()) };
        match self.ask(Request::lookup_pool(name)) {
            Ok(Output::Pool(pool)) => Ok([(pool, name.to_string())].into()),
            Ok(_) => unreachable!("a pool's name gives its number"),
            Err(failure) if failure.is_not_found() => {
                let why = format!("[errno 2] RADOS object not found (Pool '{name}' not found)");
                Err(trouble(errno::ENOENT, why))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// None if it is no longer there, or in the trash.
    pub fn name_of(&self, at: &Place, id: &str) -> Result<Option<String>, Failure> {
        self.call::<String>(at, "rbd_directory", "dir_get_name", &id.to_string())
    }

    pub(super) fn namespaces(&self, at: &Place) -> Result<Vec<String>, Failure> {
        let mut all: Vec<String> = Vec::new();
        loop {
            let after = all.last().cloned().unwrap_or_default();
            let page = self.call::<Vec<String>>(at, "rbd_namespace", "namespace_list", &(after, PAGE))?;
            let page = page.unwrap_or_default();
            let more = page.len() as u64 == PAGE;
            all.extend(page);
            if !more {
                return Ok(all);
            }
        }
    }

    fn load_from(&self, at: &Place, tasks: &mut Vec<Task>) -> Result<(), Failure> {
        for (key, value) in self.omap(at, TASKS)? {
            match serde_json::from_slice::<Task>(&value) {
                Ok(task) => tasks.push(task),
                Err(e) => tracing::warn!("task {key} of pool {} cannot be read: {e}", at.pool),
            }
        }
        Ok(())
    }

    /// All pairs of an object, none if there is no such object.
    pub(super) fn omap(&self, at: &Place, object: &str) -> Result<BTreeMap<Name, Bytes>, Failure> {
        let (mut all, mut after) = (BTreeMap::new(), Name::default());
        loop {
            let op = Op::OmapGetVals { after: after.clone(), max: PAGE, prefix: Name::default() };
            let Some(page) = self.run(at, object, op)? else { return Ok(all) };
            let (page, more): (BTreeMap<Name, Bytes>, bool) = read(&page)?;
            match page.keys().next_back() {
                Some(last) if more => after = last.clone(),
                _ => {
                    all.extend(page);
                    return Ok(all);
                }
            }
            all.extend(page);
        }
    }
}

fn read<T: Decode>(bytes: &[u8]) -> Result<T, Failure> {
    T::decode(&mut Reader::new(bytes)).map_err(|e| Failure::new(errno::EIO, format!("cannot be read: {e}")))
}
