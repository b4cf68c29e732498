//! Buckets: their records, and the lists of users' buckets.
//!
//! The meta namespace has an object `bucket.NAME` for each bucket, by its full name (`nacre_s3::tenant`),
//! which decides what the name means, and an object `buckets.USER` for each user whose omap lists names. A
//! name is put into the list before the record is made, and taken out after the record is gone, so that no
//! bucket is missing in it; what is in the list without a record is not shown. `trash.ID` stands for an index
//! that is to be removed (`deletions`).
//!
//! The omap of a record has the settings of the bucket.

use crate::access::Rights;
use crate::driver::Index;
use crate::errors;
use crate::store::{Pools, Store, now};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use nacre_base::{Name, errno};
use nacre_rados::{Compare, Failure};
use nacre_s3::tenant::{full_name, meant_bucket, split_tenant};
use nacre_s3::{Answer, Ask, Bucket, BucketConfig, Change, Item, Listed, PageRequest, Tag, create_bucket};
use nacre_wire::{from_slice, to_vec};
use s3s::{S3Error, S3Result, s3_error};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long a record and its settings are used without looking whether they are still the same. A bucket that
/// was deleted meanwhile refuses requests.
pub const FRESH: Duration = Duration::from_secs(2);
/// Buckets whose records and indexes are remembered.
const KNOWN_MAX: usize = 4096;
/// Records that are read at the same time for a list of buckets.
const READS_MAX: usize = 16;
const PAGE: u64 = 1000;
/// The attribute of a record that says which bucket has the name.
pub const ID: &str = "id";

/// A bucket that is in use.
#[derive(Clone)]
pub struct OpenBucket {
    pub record: Arc<Bucket>,
    pub config: Arc<BucketConfig>,
    pub index: Arc<Index>,
    /// What `access` has read from the settings.
    pub rights: Arc<OnceLock<Arc<Rights>>>,
}

/// A bucket as it was read.
#[derive(Clone)]
struct Known {
    bucket: OpenBucket,
    /// When the read began.
    asked: Instant,
    /// What was read before this time may lack a change of this gateway.
    changed: Option<Instant>,
}

impl Known {
    fn is_fresh(&self) -> bool {
        self.asked.elapsed() < FRESH && self.changed.is_none_or(|changed| changed < self.asked)
    }
}

/// Finds buckets, and makes and deletes them.
pub struct Buckets {
    pub store: Arc<Store>,
    known: Mutex<HashMap<String, Known>>,
}

pub fn failed(failure: Failure) -> S3Error {
    errors::of_failure(&failure)
}

impl Buckets {
    /// Knows no bucket yet.
    pub fn new(store: Arc<Store>) -> Buckets {
        Buckets { store, known: Mutex::default() }
    }

    /// The full name of the bucket that a sender of this tenant means, whether or not there is one.
    pub async fn full_name(&self, asked: &str, own_tenant: &str) -> S3Result<String> {
        let (tenant, name) = meant_bucket(asked, own_tenant);
        self.name_in(tenant, name).await
    }

    /// The same of a name in a tenant.
    pub async fn name_in(&self, tenant: &str, name: &str) -> S3Result<String> {
        let full = full_name(tenant, name);
        if tenant.is_empty() || self.find(&full).await?.is_some() {
            return Ok(full);
        }
        // It may be of the time before tenants had names of their own, when one of their users made it.
        let older = self.find(name).await?.filter(|older| split_tenant(&older.record.owner).0 == tenant);
        Ok(older.map_or(full, |older| older.record.name.clone()))
    }

    /// A bucket, by its full name. Whether a request may use it was checked by `access`.
    pub async fn open(&self, name: &str) -> S3Result<OpenBucket> {
        self.find(name).await?.ok_or_else(errors::no_such_bucket)
    }

    async fn find(&self, name: &str) -> S3Result<Option<OpenBucket>> {
        let known = self.known.lock().expect("no code panics with it").get(name).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.is_fresh()) {
            return Ok(Some(known.bucket.clone()));
        }
        let Some(pools) = self.store.find_pools().await.map_err(failed)? else { return Ok(None) };
        // What is read now may be old when it arrives.
        let asked = Instant::now();
        let Some((record, config)) = read_bucket(pools, name).await? else {
            self.forget(name);
            return Ok(None);
        };
        let index = match known {
            // Its index goes on with what it knows.
            Some(known) if known.bucket.record.id == record.id => known.bucket.index,
            _ => Index::new(pools.index.clone(), &record.id, self.store.instance),
        };
        let rights = Arc::default();
        let bucket = OpenBucket { record: Arc::new(record), config: Arc::new(config), index, rights };
        let mut known = self.known.lock().expect("no code panics with it");
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        // Two requests may have read the record at the same time: one index is better than two, and what was
        // read later counts.
        let new = || Known { bucket: bucket.clone(), asked, changed: None };
        let kept = known.entry(name.to_owned()).or_insert_with(new);
        if kept.bucket.record.id != bucket.record.id {
            *kept = new();
        } else if asked > kept.asked {
            kept.bucket = OpenBucket { index: kept.bucket.index.clone(), ..bucket };
            kept.asked = asked;
        }
        Ok(Some(kept.bucket.clone()))
    }

    /// The bucket, of any owner.
    pub async fn of_any_user(&self, name: &str) -> S3Result<Option<OpenBucket>> {
        self.find(name).await
    }

    /// Writes a setting of a bucket, or removes it. Other gateways see it after `FRESH`.
    pub async fn set(&self, bucket: &OpenBucket, name: &str, value: Option<Vec<u8>>) -> S3Result<()> {
        let pools = self.store.existing().await?;
        let record = pools.meta.object(record_name(&bucket.record.name));
        let same = record.compare_xattr(ID, Compare::Equal, bucket.record.id.clone());
        let name = Name::from(name);
        let request = match value {
            Some(value) => same.omap_set([(name, value.into())]),
            None => same.omap_remove([name]),
        };
        let result = pools.meta.run(request).await;
        self.forget_config(&bucket.record.name);
        match result {
            Err(failure) if failure.is_not_found() || failure.errno == errno::ECANCELED => {
                Err(errors::no_such_bucket())
            }
            result => result.map(drop).map_err(failed),
        }
    }

    /// The settings of a bucket are read again before they are used.
    fn forget_config(&self, name: &str) {
        let mut known = self.known.lock().expect("no code panics with it");
        if let Some(known) = known.get_mut(name) {
            known.changed = Some(Instant::now());
        }
    }

    /// The record of a bucket is no longer trusted.
    pub fn forget(&self, name: &str) {
        self.known.lock().expect("no code panics with it").remove(name);
    }

    /// Makes a bucket of this user, with these settings.
    pub async fn create(
        &self,
        name: &str,
        user: &str,
        config: &BucketConfig,
        settings: Vec<(Name, Bytes)>,
    ) -> S3Result<()> {
        let pools = self.store.pools().await.map_err(failed)?;
        if let Some(existing) = self.find(name).await? {
            return Err(taken(&existing.record.owner, user));
        }
        let id = self.store.new_tag().to_string();
        let record = Bucket { name: name.to_owned(), id: id.clone(), owner: user.to_owned(), created: now() };
        for request in create_bucket(pools.index.id(), &id) {
            pools.index.run(request).await.map_err(failed)?;
        }
        let listed = [(Name::from(name), to_vec(&record.created).into())];
        pools.meta.run(pools.meta.object(list_name(user)).omap_set(listed)).await.map_err(failed)?;
        let make = pools.meta.object(record_name(name)).create(true).write_full(to_vec(&record));
        let make = make.omap_set(config.encode()).omap_set(settings);
        match pools.meta.run(make.set_xattr(ID, id.clone())).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.errno == errno::EEXIST => {
                discard_index(pools, &id).await.map_err(failed)?;
                let owner = self.find(name).await?.map(|bucket| bucket.record.owner.clone());
                Err(taken(&owner.unwrap_or_default(), user))
            }
            Err(failure) => Err(failed(failure)),
        }
    }

    pub async fn unlist(&self, pools: &Pools, name: &str, user: &str) -> S3Result<()> {
        let unlist = pools.meta.object(list_name(user)).omap_remove([Name::from(name)]);
        pools.meta.run(unlist).await.map(drop).map_err(failed)
    }

    /// Gives a bucket to another user. Its objects keep their owners.
    pub async fn change_owner(&self, bucket: &OpenBucket, user: &str) -> S3Result<()> {
        let pools = self.store.existing().await?;
        let Bucket { name, id, owner, created } = &*bucket.record;
        if owner == user {
            return Ok(());
        }
        let listed = [(Name::from(name.as_str()), to_vec(created).into())];
        pools.meta.run(pools.meta.object(list_name(user)).omap_set(listed)).await.map_err(failed)?;
        let record = Bucket { owner: user.to_owned(), ..(*bucket.record).clone() };
        let same = pools.meta.object(record_name(name)).compare_xattr(ID, Compare::Equal, id.clone());
        let result = pools.meta.run(same.write_full(to_vec(&record))).await;
        self.forget(name);
        match result {
            Err(failure) if failure.is_not_found() || failure.errno == errno::ECANCELED => {
                Err(errors::no_such_bucket())
            }
            result => result.map(drop).map_err(failed),
        }?;
        self.unlist(pools, name, owner).await
    }

    /// Open uploads do not keep a bucket from being deleted.
    pub async fn abort_uploads_of_empty(&self, bucket: &OpenBucket) -> S3Result<()> {
        let page = async |listed: Listed| {
            let request = PageRequest { max: 1000, listed, ..PageRequest::default() };
            match bucket.index.ask(Ask::Page(request)).await {
                Ok(Answer::Page(page)) => Ok(page),
                Ok(_) => Err(errors::internal("a page was not answered with a page")),
                Err(refusal) => Err(errors::of_refusal(&refusal)),
            }
        };
        if !page(Listed::Versions).await?.items.is_empty() {
            return Err(s3_error!(BucketNotEmpty, "The bucket you tried to delete is not empty."));
        }
        loop {
            let uploads = page(Listed::Uploads).await?;
            for item in &uploads.items {
                let Item::Key(name, _) = item else { continue };
                let Some((key, id)) = upload_of(name) else { continue };
                match bucket.index.ask(Ask::Change(Change::AbortUpload { key, id })).await {
                    Ok(_) | Err(nacre_s3::Refusal::NoSuchUpload) => {}
                    Err(refusal) => return Err(errors::of_refusal(&refusal)),
                }
            }
            if !uploads.is_truncated {
                return Ok(());
            }
        }
    }

    /// The user's buckets, in the order of their names.
    pub async fn list(&self, user: &str) -> S3Result<Vec<Arc<Bucket>>> {
        let Some(pools) = self.store.find_pools().await.map_err(failed)? else { return Ok(Vec::new()) };
        let (mut names, mut after) = (Vec::new(), Name::default());
        loop {
            let (page, more) = match pools.meta.omap(list_name(user), after.clone(), PAGE).await {
                Err(failure) if failure.is_not_found() => break,
                page => page.map_err(failed)?,
            };
            names.extend(page.into_keys().map(|name| name.to_string()));
            match names.last() {
                Some(last) if more => after = Name::from(last.as_str()),
                _ => break,
            }
        }
        let find = async |name: String| self.find(&name).await;
        let found: Vec<_> = stream::iter(names).map(find).buffered(READS_MAX).try_collect().await?;
        let records = found.into_iter().flatten().map(|bucket| bucket.record);
        let mut records: Vec<_> = records.filter(|record| record.owner == user).collect();
        records.sort_by(|one, other| one.plain_name().cmp(other.plain_name()));
        Ok(records)
    }
}

/// Key and id of an open upload, by its name in the index.
pub fn upload_of(name: &bytes::Bytes) -> Option<(bytes::Bytes, Tag)> {
    let at = name.iter().position(|byte| *byte == 0)?;
    let id = std::str::from_utf8(&name[at + 1..]).ok()?.parse().ok()?;
    Some((name.slice(..at), id))
}

/// The record of a bucket and its settings, as they are at one time.
async fn read_bucket(pools: &Pools, name: &str) -> S3Result<Option<(Bucket, BucketConfig)>> {
    let request = pools.meta.object(record_name(name)).read(0, 0).omap_get(Name::default(), PAGE);
    let reply = match pools.meta.run(request).await {
        Err(failure) if failure.is_not_found() => return Ok(None),
        reply => reply.map_err(failed)?,
    };
    let [record, settings] = reply.ops.as_slice() else {
        return Err(errors::corrupt("a reply without the outputs of its operations"));
    };
    let record: Bucket = from_slice(&record.data).map_err(errors::corrupt)?;
    let (settings, _) = nacre_s3::omap_page(&settings.data).map_err(errors::corrupt)?;
    Ok(Some((record, BucketConfig::decode(settings).map_err(errors::corrupt)?)))
}

pub fn record_name(bucket: &str) -> String {
    format!("bucket.{bucket}")
}
fn list_name(user: &str) -> String {
    format!("buckets.{user}")
}

fn taken(owner: &str, user: &str) -> S3Error {
    if owner == user {
        s3_error!(BucketAlreadyOwnedByYou, "You already own a bucket with this name.")
    } else {
        s3_error!(BucketAlreadyExists, "Another user has a bucket with this name.")
    }
}

async fn discard_index(pools: &Pools, bucket: &str) -> Result<(), Failure> {
    for request in create_bucket(pools.index.id(), bucket) {
        match pools.index.remove(request.name).await {
            Err(failure) if !failure.is_not_found() => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}
