//! Versions in another container, as Swift had them before containers could keep versions themselves.
//!
//! A container names an archive. What a PUT or a COPY is about to replace is copied there, under a name that
//! begins with the length of the object's name and its name, and ends with the time of the copy's source.
//! With `X-Versions-Location` a DELETE brings the newest copy back. With `X-History-Location` it leaves
//! another copy, and behind it an empty object that says that there was a DELETE.

use super::listing::DELETED;
use super::objects::{CopyTo, NewObject};
use super::reply::{Fault, Result};
use super::{Call, Swift, manifests};
use crate::buckets::OpenBucket;
use crate::errors;
use crate::store::now;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use nacre_s3::swift::Container;
use nacre_s3::tenant::split_tenant;
use nacre_s3::{FileSize, Item, PageRequest};
use s3s::Body;
use s3s::dto::StreamingBlob;
use std::collections::VecDeque;

const PAGE: usize = 1000;
/// Of the newest copies, how many are looked at for one that is not a DELETE.
const NEWEST_MAX: usize = 1000;

/// What the names of all copies of an object begin with.
fn beginning(key: &str) -> String {
    format!("{:03x}{key}/", key.len())
}

/// The name of a copy whose source is of this time, in milliseconds since 1970.
fn copy_name(key: &str, millis: u64) -> String {
    format!("{}{:010}.{:05}", beginning(key), millis / 1000, millis % 1000 * 100)
}

impl Swift {
    /// A request in the name of the owner of a bucket.
    async fn as_owner(&self, call: &Call, bucket: &OpenBucket) -> Result<Call> {
        let owner = self.core.users.owner(&bucket.record.owner).await;
        let owner = owner.map_err(|error| Fault::of(error, &call.identity))?;
        let identity = owner.ok_or_else(|| Fault::new(StatusCode::FORBIDDEN, "the account is gone"))?;
        let (headers, query) = (HeaderMap::new(), Vec::new());
        Ok(Call { headers, query, identity, method: Method::PUT, ..call.clone() })
    }

    /// The archive of a container; none if it has none.
    async fn archive(&self, call: &Call, bucket: &OpenBucket) -> Result<Option<(OpenBucket, Container)>> {
        let container = self.settings(call, bucket)?;
        if container.archive.is_empty() {
            return Ok(None);
        }
        let tenant = split_tenant(&bucket.record.owner).0;
        let archive = match self.core.buckets.name_in(tenant, &container.archive).await {
            Ok(name) => self.core.buckets.of_any_user(&name).await,
            Err(error) => Err(error),
        };
        let archive = archive.map_err(|error| Fault::of(error, &call.identity))?;
        let archive = archive.filter(|archive| archive.record.owner == bucket.record.owner);
        let archive = archive.ok_or_else(|| {
            let why = format!("the container for versions, {}, does not exist", container.archive);
            Fault::new(StatusCode::PRECONDITION_FAILED, why)
        })?;
        Ok(Some((archive, container)))
    }

    /// Before an object is replaced: a copy of it goes to the archive of the container, if it has one.
    pub(super) async fn keep_version(&self, call: &Call, bucket: &OpenBucket, key: &str) -> Result<()> {
        let Some((archive, _)) = self.archive(call, bucket).await? else { return Ok(()) };
        // A sender that may not write must not fill the archive.
        self.authorize(call, "PutObject", &bucket.record.name, Some(key)).await?;
        let owner = self.as_owner(call, bucket).await?;
        self.copy_to(&owner, bucket, &archive, key).await.map(drop)
    }

    /// Copies the current object, if there is one.
    async fn copy_to(
        &self,
        owner: &Call,
        bucket: &OpenBucket,
        archive: &OpenBucket,
        key: &str,
    ) -> Result<bool> {
        let shown = match self.look(owner, &bucket.record.name, key).await {
            Err(fault) if fault.status == StatusCode::NOT_FOUND => return Ok(false),
            shown => shown?,
        };
        // A list of others is not what they are.
        if shown.header(manifests::DYNAMIC).is_none() {
            let to = (archive.record.name.clone(), copy_name(key, shown.modified));
            let from = (bucket.record.name.clone(), key.to_owned());
            let copy =
                CopyTo { from, to, headers: shown.headers, metadata: shown.metadata, class: shown.class };
            self.replace(owner, copy).await?;
        }
        Ok(true)
    }

    /// Instead of a DELETE in a container with an archive. No: the DELETE is still to be carried out.
    pub(super) async fn delete_with_archive(
        &self,
        call: &Call,
        bucket: &OpenBucket,
        key: &str,
    ) -> Result<bool> {
        let Some((archive, container)) = self.archive(call, bucket).await? else { return Ok(false) };
        self.authorize(call, "DeleteObject", &bucket.record.name, Some(key)).await?;
        let owner = self.as_owner(call, bucket).await?;
        if container.is_history {
            if self.copy_to(&owner, bucket, &archive, key).await? {
                self.mark_deleted(&owner, &archive, key).await?;
            }
            return Ok(false);
        }
        let is_there = match self.look(&owner, &bucket.record.name, key).await {
            Err(fault) if fault.status == StatusCode::NOT_FOUND => false,
            shown => shown.map(|_| true)?,
        };
        for copy in self.newest_copies(&owner, &archive, key).await? {
            let shown = match self.look(&owner, &archive.record.name, &copy).await {
                Err(fault) if fault.status == StatusCode::NOT_FOUND => continue,
                shown => shown?,
            };
            let from = (archive.record.name.clone(), copy.clone());
            if shown.header(CONTENT_TYPE.as_str()) != Some(DELETED) {
                let to = (bucket.record.name.clone(), key.to_owned());
                let back =
                    CopyTo { from, to, headers: shown.headers, metadata: shown.metadata, class: shown.class };
                self.replace(&owner, back).await?;
                self.remove_only(&owner, &archive.record.name, &copy).await?;
                return Ok(true);
            }
            // Below a DELETE there is nothing to bring back before it is undone.
            if is_there {
                return Ok(false);
            }
            self.remove_only(&owner, &archive.record.name, &copy).await?;
        }
        Ok(false)
    }

    async fn mark_deleted(&self, owner: &Call, archive: &OpenBucket, key: &str) -> Result<()> {
        let mut put = owner.clone();
        put.place.account = None;
        put.place.container = Some(archive.record.name.clone());
        put.place.object = Some(copy_name(key, now()));
        let headers = [(CONTENT_TYPE, HeaderValue::from_static(DELETED))].into_iter().collect();
        let body = StreamingBlob::from(Body::empty());
        self.put_object_only(&put, NewObject { headers, body, len: Some(0), size: FileSize::ANY })
            .await
            .map(drop)
    }

    /// The newest copies of an object, the newest first.
    async fn newest_copies(&self, owner: &Call, archive: &OpenBucket, key: &str) -> Result<VecDeque<String>> {
        let mut newest = VecDeque::new();
        let prefix = bytes::Bytes::from(beginning(key));
        let mut request = PageRequest { prefix, max: PAGE, ..PageRequest::default() };
        loop {
            let page = self.core.page(archive, request.clone()).await;
            let page = page.map_err(|error| Fault::of(error, &owner.identity))?;
            for item in &page.items {
                let Item::Key(name, _) = item else { continue };
                let name = String::from_utf8(name.to_vec());
                let name = name.map_err(|e| Fault::of(errors::corrupt(e), &owner.identity))?;
                newest.push_front(name);
            }
            newest.truncate(NEWEST_MAX);
            match page.items.last() {
                Some(last) if page.is_truncated => request.after = last.marker().clone(),
                _ => return Ok(newest),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies_are_sorted_by_their_times() {
        assert_eq!(copy_name("dir/ä", 1_486_579_239_421), "006dir/ä/1486579239.42100");
        assert!(copy_name("a", 9_999) < copy_name("a", 10_000));
        assert!(
            copy_name("a", 1).starts_with(&beginning("a"))
                && !copy_name("a/", 1).starts_with(&beginning("a"))
        );
    }
}
