//! The cluster: the gateway's pools, unique tags, and the removal of data.
//!
//! The pools are made when the first user or bucket needs them, so that a gateway that is not used leaves
//! nothing behind.

use crate::classes::Classes;
use crate::errors;
use nacre_base::Name;
use nacre_rados::{Failure, Pool, RadosClient};
use nacre_s3::{Extent, Tag, object_name, stripes};
use s3s::S3Result;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{OnceCell, Semaphore};

/// The replicated pool of indexes, users and buckets.
pub const INDEX_POOL: &str = "s3.index";
/// The pool of bodies. It may be erasure-coded: stripes are written whole, and have attributes but no omap.
pub const DATA_POOL: &str = "s3.data";
/// The namespace of users and buckets in the index pool.
const META: &str = "meta";
/// The namespace of the usage log.
const USAGE: &str = "usage";
/// After this long a request to the cluster fails, and the client tries again.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The cluster as a gateway uses it.
pub struct Store {
    client: RadosClient,
    pools: OnceCell<Pools>,
    /// The number of this incarnation.
    pub instance: u64,
    last_sequence: AtomicU64,
    /// Memory for bodies, in units of a mebibyte.
    pub memory: Arc<Semaphore>,
    /// The pools of storage classes.
    pub classes: Classes,
}

/// The pools of all gateways of a cluster.
#[derive(Clone)]
pub struct Pools {
    pub index: Pool,
    /// Users and buckets.
    pub meta: Pool,
    /// The usage log.
    pub usage: Pool,
    pub data: Pool,
}

impl Store {
    /// A new incarnation.
    pub fn new(client: &RadosClient, memory: Arc<Semaphore>) -> Store {
        Store {
            client: client.with_timeout(TIMEOUT),
            pools: OnceCell::new(),
            instance: uuid::Uuid::new_v4().as_u64_pair().0,
            last_sequence: AtomicU64::new(0),
            memory,
            classes: Classes::default(),
        }
    }

    /// The session with the cluster.
    pub fn client(&self) -> &RadosClient {
        &self.client
    }

    /// A tag that no write had before.
    pub fn new_tag(&self) -> Tag {
        Tag { instance: self.instance, sequence: self.last_sequence.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    /// The pools, if there are any yet.
    pub async fn find_pools(&self) -> Result<Option<&Pools>, Failure> {
        if let Some(pools) = self.pools.get() {
            return Ok(Some(pools));
        }
        let (index, data) = match (self.client.pool(INDEX_POOL).await, self.client.pool(DATA_POOL).await) {
            (Ok(index), Ok(data)) => (index, data),
            (Err(failure), _) | (_, Err(failure)) if failure.is_not_found() => return Ok(None),
            (Err(failure), _) | (_, Err(failure)) => return Err(failure),
        };
        let (meta, usage) = (index.namespace(META), index.namespace(USAGE));
        Ok(Some(self.pools.get_or_init(async || Pools { index, meta, usage, data }).await))
    }

    /// The pools, made if they are missing.
    pub async fn pools(&self) -> Result<&Pools, Failure> {
        if let Some(pools) = self.find_pools().await? {
            return Ok(pools);
        }
        for name in [INDEX_POOL, DATA_POOL] {
            // One that an administrator made stays as it is: it may be erasure-coded.
            let is_ours = match self.client.pool(name).await {
                Ok(_) => false,
                Err(failure) if failure.is_not_found() => true,
                Err(failure) => return Err(failure),
            };
            if is_ours {
                self.client.create_pool(name, None).await?;
            }
            let enable = json!({ "prefix": "osd pool application enable", "pool": name, "app": "s3" });
            match self.client.mon_command(enable.to_string(), "").await {
                // It has an application that the administrator chose.
                Err(_) if !is_ours => {}
                enabled => drop(enabled?),
            }
        }
        let missing = || Failure::new(nacre_base::errno::ENOENT, "the pools are gone again");
        self.find_pools().await?.ok_or_else(missing)
    }

    /// The same for requests that only make sense where something exists already.
    pub async fn existing(&self) -> S3Result<&Pools> {
        let pools = self.find_pools().await.map_err(|failure| errors::of_failure(&failure))?;
        pools.ok_or_else(errors::no_such_bucket)
    }

    /// Removes data that no object has.
    pub async fn remove_data(&self, extents: &[Extent]) -> Result<(), Failure> {
        for extent in extents {
            let data = match self.data_pool(extent.tag).await {
                // It went with its pool.
                Err(failure) if failure.is_not_found() => continue,
                data => data?,
            };
            // The first stripe says whose data it is, and goes last.
            for stripe in (0..stripes(extent)).rev() {
                match data.remove(object_name(extent.tag, stripe)).await {
                    Err(failure) if !failure.is_not_found() => return Err(failure),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// An object's whole content; none if there is no such object.
pub async fn read_record(pool: &Pool, name: impl Into<Name>) -> Result<Option<bytes::Bytes>, Failure> {
    match pool.read(name, 0, 0).await {
        Ok(data) => Ok(Some(data)),
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => Err(failure),
    }
}
