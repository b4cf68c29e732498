//! Removes what no object has any more, in the background. Every gateway does, and all steps can be repeated.

use crate::buckets::Buckets;
use crate::deletions::is_deleted;
use crate::driver::Index;
use crate::store::{Pools, Store, now, read_record};
use anyhow::Result;
use nacre_rados::Failure;
use nacre_s3::{Answer, Ask, Extent, Garbage, GarbageItem, LeafName, Tag, Upload, UploadReader};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How many pieces of garbage are taken from a bucket at once.
const BATCH: usize = 1000;
/// The longest time between two rounds.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Goes through all buckets again and again.
pub async fn collect(store: Arc<Store>, buckets: Arc<Buckets>, grace: Duration) {
    let interval = (grace / 2).clamp(Duration::from_secs(1), INTERVAL_MAX);
    loop {
        tokio::time::sleep(interval).await;
        if let Err(e) = round(&store, &buckets).await {
            tracing::warn!("garbage is left for later: {e:#}");
        }
    }
}

async fn round(store: &Arc<Store>, buckets: &Buckets) -> Result<()> {
    let Some(pools) = store.find_pools().await? else { return Ok(()) };
    let mut names = pools.meta.objects();
    while let Some(entry) = names.next().await? {
        let name = entry.name.to_string();
        // One bucket that cannot be read does not keep the garbage of others.
        if let Err(e) = of_bucket(store, buckets, pools, &name).await {
            tracing::warn!("garbage of {name} is left for later: {e:#}");
        }
    }
    Ok(())
}

/// Removes the garbage of a bucket, or what is left of a deleted one, by the name of its record.
async fn of_bucket(store: &Arc<Store>, buckets: &Buckets, pools: &Pools, name: &str) -> Result<()> {
    if let Some(bucket) = name.strip_prefix("bucket.") {
        if let Some(bucket) = buckets.of_any_user(bucket).await? {
            buckets.look_for_deletion(pools, &bucket).await?;
            of_index(store, pools, &bucket.index, now()).await?;
        }
    } else if let Some(id) = name.strip_prefix("trash.") {
        let noted = read_record(&pools.meta, name).await?.unwrap_or_default();
        if is_deleted(buckets, id, &noted).await? {
            of_deleted(store, pools, id).await?;
        }
    }
    Ok(())
}

/// Removes what is due.
async fn of_index(store: &Store, pools: &Pools, index: &Arc<Index>, now: u64) -> Result<()> {
    loop {
        let Answer::Garbage(items) = index.ask(Ask::Garbage { now, max: BATCH }).await? else {
            return Ok(());
        };
        let is_all = items.len() < BATCH;
        let mut done: BTreeMap<LeafName, Vec<_>> = BTreeMap::new();
        for GarbageItem { leaf, key, garbage } in items {
            match garbage {
                Garbage::Data(extents) => store.remove_data(&extents).await?,
                Garbage::Upload { id, kept } => of_upload(store, pools, id, &kept).await?,
            }
            done.entry(leaf).or_default().push(key);
        }
        for (leaf, keys) in done {
            index.ask(Ask::ForgetGarbage { leaf, keys }).await?;
        }
        if is_all {
            return Ok(());
        }
    }
}

/// Removes an upload that has ended, and those of its parts that the object does not have.
async fn of_upload(store: &Store, pools: &Pools, id: Tag, kept: &[Tag]) -> Result<(), Failure> {
    let pool = pools.index.id();
    let found = |result: Result<_, Failure>| match result {
        Err(failure) if failure.is_not_found() => Ok(None),
        result => result.map(Some),
    };
    // What arrives from now on is refused.
    if found(pools.index.run(Upload::close(pool, id)).await)?.is_none() {
        return Ok(());
    }
    let mut reader = UploadReader::default();
    loop {
        let Some(reply) = found(pools.index.run(reader.request(pool, id)).await)? else { return Ok(()) };
        let more = reader.take(&reply);
        if !more.map_err(|e| Failure::new(nacre_base::errno::EIO, e.to_string()))? {
            break;
        }
    }
    let kept: BTreeSet<Tag> = kept.iter().copied().collect();
    if let Some(state) = reader.finish() {
        let parts = state.parts.values().map(nacre_s3::Part::extent);
        let unused: Vec<Extent> =
            parts.chain(state.replaced).filter(|extent| !kept.contains(&extent.tag)).collect();
        store.remove_data(&unused).await?;
    }
    found(pools.index.run(Upload::remove(pool, id)).await).map(drop)
}

/// Removes the index of a deleted bucket, once nothing in it waits any more.
async fn of_deleted(store: &Store, pools: &Pools, id: &str) -> Result<()> {
    let index = Index::new(pools.index.clone(), id, store.instance);
    let leaves = match index.ask(Ask::Leaves).await {
        Ok(Answer::Leaves(leaves)) => leaves,
        Ok(_) => return Ok(()),
        // Another gateway was first.
        Err(nacre_s3::Refusal::NoSuchBucket) => Vec::new(),
        Err(refusal) => return Err(refusal.into()),
    };
    if !leaves.is_empty() {
        of_index(store, pools, &index, now()).await?;
        if index.ask(Ask::Garbage { now: u64::MAX, max: 1 }).await? != Answer::Garbage(Vec::new()) {
            return Ok(());
        }
    }
    // The first leaf goes last: the others are found from it.
    for name in leaves.into_iter().rev().map(|leaf| leaf.0).chain([LeafName::root(id)]) {
        remove(&pools.index, name).await?;
    }
    crate::lifecycle::forget(pools, id).await?;
    remove(&pools.meta, format!("trash.{id}")).await
}

async fn remove(pool: &nacre_rados::Pool, name: String) -> Result<()> {
    match pool.remove(name).await {
        Err(failure) if !failure.is_not_found() => Err(failure.into()),
        _ => Ok(()),
    }
}
