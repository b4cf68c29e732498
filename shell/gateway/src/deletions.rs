//! Deletions of buckets, of which a gateway may leave one half done.
//!
//! The attribute `deletion` of a bucket's record is a claim: the gateway with it seals the leaves of the
//! index, and removes the record if all of them were empty, in an operation that compares the claim. A claim
//! that is left over is taken over by the next gateway that finds it: no client was told that the bucket is
//! gone, so the leaves are opened again.

use crate::buckets::{Buckets, ID, OpenBucket, failed, record_name};
use crate::errors;
use crate::store::{Pools, now};
use bytes::Bytes;
use nacre_base::{Name, errno};
use nacre_rados::{Compare, Failure};
use nacre_s3::{Ask, Tag};
use nacre_wire::{from_slice, to_vec};
use s3s::{S3Error, S3Result, s3_error};
use std::time::Duration;

/// The attribute of a record with the claim: the attempt of a gateway, and until when it holds, in
/// milliseconds since 1970. Empty if nothing deletes the bucket.
const DELETION: &str = "deletion";
/// Longer than it takes to seal the leaves of a large bucket.
const CLAIM_TIME: Duration = Duration::from_secs(120);

type Claim = (Tag, u64);

fn conflict() -> S3Error {
    let message = "A conflicting conditional operation is currently in progress against this resource. Please \
                   try again.";
    s3_error!(OperationAborted, "{message}")
}

/// The claim on a record, as it was read; empty if there is none.
async fn claim_of(pools: &Pools, name: &str) -> Result<Bytes, Failure> {
    let attributes = match pools.meta.xattrs(record_name(name)).await {
        Err(failure) if failure.is_not_found() => return Ok(Bytes::new()),
        attributes => attributes?,
    };
    Ok(attributes.get(&Name::from(DELETION)).cloned().unwrap_or_default())
}

/// Whether a gateway may still be at work on it. One that cannot be read is left over.
fn is_held(claim: &Bytes, now: u64) -> bool {
    from_slice::<Claim>(claim).is_ok_and(|(_, until)| until > now)
}

impl Buckets {
    /// Claims the deletion of a bucket. `before` is the claim that is there, which nothing holds any more.
    async fn claim(&self, pools: &Pools, bucket: &OpenBucket, before: Bytes) -> S3Result<Bytes> {
        let until = now() + u64::try_from(CLAIM_TIME.as_millis()).unwrap_or(u64::MAX);
        let claim = Bytes::from(to_vec(&(self.store.new_tag(), until)));
        let record = pools.meta.object(record_name(&bucket.record.name));
        let same = record.compare_xattr(ID, Compare::Equal, bucket.record.id.clone());
        let same = same.compare_xattr(DELETION, Compare::Equal, before);
        match pools.meta.run(same.set_xattr(DELETION, claim.clone())).await {
            Ok(_) => Ok(claim),
            Err(failure) if failure.is_not_found() => Err(errors::no_such_bucket()),
            Err(failure) if failure.errno == errno::ECANCELED => Err(conflict()),
            Err(failure) => Err(failed(failure)),
        }
    }

    /// Opens all leaves again, and gives up the claim.
    async fn undo(&self, pools: &Pools, bucket: &OpenBucket, claim: Bytes) -> S3Result<()> {
        bucket.index.ask(Ask::Unseal).await.map_err(|refusal| errors::of_refusal(&refusal))?;
        let record = pools.meta.object(record_name(&bucket.record.name));
        let same = record.compare_xattr(DELETION, Compare::Equal, claim);
        match pools.meta.run(same.set_xattr(DELETION, Bytes::new())).await {
            // Another gateway took it over.
            Err(failure) if failure.is_not_found() || failure.errno == errno::ECANCELED => Ok(()),
            result => result.map(drop).map_err(failed),
        }
    }

    /// Deletes an empty bucket.
    pub async fn delete(&self, name: &str) -> S3Result<()> {
        let bucket = self.open(name).await?;
        let pools = self.store.existing().await?;
        let before = claim_of(pools, name).await.map_err(failed)?;
        if is_held(&before, now()) {
            return Err(conflict());
        }
        if !before.is_empty() {
            self.finish_deletion(pools, &bucket, before).await?;
        }
        self.abort_uploads_of_empty(&bucket).await?;
        let claim = self.claim(pools, &bucket, Bytes::new()).await?;
        if let Err(refusal) = bucket.index.ask(Ask::Seal).await {
            if let Err(e) = self.undo(pools, &bucket, claim).await {
                tracing::warn!("bucket {name} is opened again later: {e}");
            }
            return Err(errors::of_refusal(&refusal));
        }
        let id = &bucket.record.id;
        pools.meta.write_full(format!("trash.{id}"), name.to_owned()).await.map_err(failed)?;
        let record = pools.meta.object(record_name(name));
        let same = record.compare_xattr(ID, Compare::Equal, id.clone());
        let same = same.compare_xattr(DELETION, Compare::Equal, claim);
        match pools.meta.run(same.remove()).await {
            Err(failure) if failure.errno == errno::ECANCELED => return Err(conflict()),
            Err(failure) if failure.is_not_found() => {}
            result => result.map(drop).map_err(failed)?,
        }
        self.forget(name);
        self.unlist(pools, name, &bucket.record.owner).await
    }

    /// Opens a bucket again whose deletion was left half done.
    async fn finish_deletion(&self, pools: &Pools, bucket: &OpenBucket, before: Bytes) -> S3Result<()> {
        let claim = self.claim(pools, bucket, before).await?;
        let trash = format!("trash.{}", bucket.record.id);
        match pools.meta.remove(trash).await {
            Err(failure) if !failure.is_not_found() => return Err(failed(failure)),
            _ => {}
        }
        tracing::info!("the deletion of bucket {} was not finished: it is open again", bucket.record.name);
        self.undo(pools, bucket, claim).await
    }

    /// Looks whether the deletion of a bucket was left half done.
    pub async fn look_for_deletion(&self, pools: &Pools, bucket: &OpenBucket) -> S3Result<()> {
        let before = claim_of(pools, &bucket.record.name).await.map_err(failed)?;
        if before.is_empty() || is_held(&before, now()) {
            return Ok(());
        }
        self.finish_deletion(pools, bucket, before).await
    }
}

/// Whether what stands for a deleted index may be removed: there is no record of a bucket with it any more.
pub async fn is_deleted(buckets: &Buckets, id: &str, name: &[u8]) -> S3Result<bool> {
    let Ok(name) = std::str::from_utf8(name) else { return Ok(true) };
    // Older gateways noted the id alone.
    let bucket = buckets.of_any_user(name).await?;
    Ok(bucket.is_none_or(|bucket| bucket.record.id != id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_hold_for_a_time() {
        let claim = Bytes::from(to_vec::<Claim>(&(Tag::default(), 100)));
        assert!(is_held(&claim, 99) && !is_held(&claim, 100));
        assert!(!is_held(&Bytes::new(), 0) && !is_held(&Bytes::from_static(b"x"), 0));
    }
}
