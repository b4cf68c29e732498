//! Containers: buckets with metadata and access lists.

use super::listing::{self, Line, Wanted};
use super::reply::{Fault, Reply, Result};
use super::{Call, Swift, s3_request};
use crate::buckets::OpenBucket;
use crate::errors;
use crate::listing::{percent_decode, percent_encode};
use crate::store::now;
use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::{Method, StatusCode};
use nacre_s3::swift::{CONTAINER, Container, LIST_MAX, METADATA_MAX};
use nacre_s3::{BucketConfig, Entry, Item, PageRequest, Versioning};
use nacre_wire::{from_slice, to_vec};
use s3s::dto::{
    BucketVersioningStatus, CreateBucketInput, PutBucketVersioningInput, VersioningConfiguration,
};
use std::collections::BTreeMap;

pub const METADATA_OF_ACCOUNT: &str = "x-account-meta-";
const METADATA: &str = "x-container-meta-";
/// The two ways to name a container for versions.
const VERSIONS: &str = "x-versions-location";
const HISTORY: &str = "x-history-location";
/// The most entries that are asked for at once.
const PAGE: usize = 1000;
/// Headers that ask for what the gateway does not have.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("x-container-sync-to", "synchronised containers"),
    ("x-container-sync-key", "synchronised containers"),
    ("x-container-meta-quota-bytes", "quotas by metadata: an administrator sets them"),
];

/// What a request changes of the metadata of an account or a container. None removes a name.
pub struct Changes(Vec<(String, Option<String>)>);

impl Changes {
    /// From the headers of a family, and those that remove.
    pub fn of(call: &Call, family: &str, removal: &str) -> Changes {
        let set = call.family(family).into_iter();
        let set = set.map(|(name, value)| (name, Some(value).filter(|value| !value.is_empty())));
        Changes(set.chain(call.family(removal).into_iter().map(|(name, _)| (name, None))).collect())
    }
    /// Quotas are the administrator's.
    pub fn check_quota(&self) -> Result<()> {
        match self.0.iter().any(|(name, _)| name.starts_with("quota-")) {
            true => Err(Fault::new(StatusCode::FORBIDDEN, "an administrator sets quotas")),
            false => Ok(()),
        }
    }
    pub fn apply(&self, metadata: &mut BTreeMap<String, String>) {
        for (name, value) in &self.0 {
            match value {
                Some(value) => drop(metadata.insert(name.clone(), value.clone())),
                None => drop(metadata.remove(name)),
            }
        }
    }
}

/// Whether metadata is more than an account or a container may have.
pub fn is_too_large(metadata: &BTreeMap<String, String>) -> bool {
    metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > METADATA_MAX
}

impl Swift {
    pub(super) async fn at_container(&self, call: &Call) -> Result<Reply> {
        match call.method {
            Method::GET => self.list_container(call).await,
            Method::HEAD => self.head_container(call).await,
            Method::PUT => self.put_container(call).await,
            Method::POST => self.post_container(call).await,
            Method::DELETE => self.delete_container(call).await,
            _ => Err(Fault::new(StatusCode::METHOD_NOT_ALLOWED, "")),
        }
    }

    /// What is set on a container.
    pub(super) fn settings(&self, call: &Call, bucket: &OpenBucket) -> Result<Container> {
        Container::of(&bucket.config.others).map_err(|e| Fault::of(errors::corrupt(e), &call.identity))
    }

    async fn put_container(&self, call: &Call) -> Result<Reply> {
        let name = call.container();
        let fault = |error| Fault::of(error, &call.identity);
        let account = call.own_account()?;
        if name == "swift" || name == "admin" {
            return Err(Fault::new(
                StatusCode::BAD_REQUEST,
                "the name is taken by an interface of the gateway",
            ));
        }
        check(call)?;
        let full = self.full_name(call, name).await?;
        match self.core.buckets.of_any_user(&full).await.map_err(fault)? {
            Some(bucket) if bucket.record.owner == account => {
                self.change_container(call, &bucket).await?;
                Ok(Reply::empty(StatusCode::ACCEPTED))
            }
            // All users of a tenant share one set of names, which they have with S3 as well.
            Some(_) => Err(Fault::new(StatusCode::CONFLICT, "another account has a container of this name")),
            None => {
                let granted = self.authorize(call, "CreateBucket", &full, None).await?;
                let input = CreateBucketInput::builder().bucket(name.to_owned()).build();
                let input = input.map_err(|e| fault(errors::internal(e)))?;
                let request = s3_request(call, input, HeaderMap::new(), granted);
                let (mut settings, user) = self.core.new_bucket(&request).await.map_err(fault)?;
                if let Some(container) = changed(call, &Container::default())? {
                    settings.push((CONTAINER.into(), to_vec(&container).into()));
                }
                let mut config = BucketConfig::default();
                if versions_asked(call)? == Some(true) {
                    check_only(call.header(VERSIONS).or(call.header(HISTORY)).is_none())?;
                    config.versioning = Versioning::Enabled;
                }
                self.core.buckets.create(&full, &user, &config, settings).await.map_err(fault)?;
                Ok(Reply::empty(StatusCode::CREATED))
            }
        }
    }

    async fn post_container(&self, call: &Call) -> Result<Reply> {
        check(call)?;
        let bucket = self.container(call, call.container()).await?;
        self.change_container(call, &bucket).await?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }

    async fn change_container(&self, call: &Call, bucket: &OpenBucket) -> Result<()> {
        let name = &bucket.record.name;
        self.authorize(call, "PutBucketPolicy", name, None).await?;
        let changed = changed(call, &self.settings(call, bucket)?)?;
        let asked = versions_asked(call)?;
        if let Some(container) = &changed {
            let keeps = asked.unwrap_or(bucket.config.versioning == Versioning::Enabled);
            check_only(container.archive.is_empty() || !keeps)?;
        }
        if asked == Some(true) && changed.is_none() {
            check_only(self.settings(call, bucket)?.archive.is_empty())?;
        }
        if let Some(enables) = asked {
            let status =
                if enables { BucketVersioningStatus::ENABLED } else { BucketVersioningStatus::SUSPENDED };
            let granted = self.authorize(call, "PutBucketVersioning", name, None).await?;
            let configuration = VersioningConfiguration {
                status: Some(BucketVersioningStatus::from_static(status)),
                ..VersioningConfiguration::default()
            };
            let builder = PutBucketVersioningInput::builder().bucket(name.clone());
            let input = builder.versioning_configuration(configuration).build();
            let input = input.map_err(|e| Fault::of(errors::internal(e), &call.identity))?;
            let request = s3_request(call, input, HeaderMap::new(), granted);
            self.core.put_bucket_versioning(request).await.map_err(|e| Fault::of(e, &call.identity))?;
        }
        if let Some(container) = changed {
            let set = self.core.buckets.set(bucket, CONTAINER, Some(to_vec(&container))).await;
            set.map_err(|error| Fault::of(error, &call.identity))?;
        }
        Ok(())
    }

    async fn delete_container(&self, call: &Call) -> Result<Reply> {
        let bucket = self.container(call, call.container()).await?;
        self.authorize(call, "DeleteBucket", &bucket.record.name, None).await?;
        let deleted = self.core.buckets.delete(&bucket.record.name).await;
        deleted.map_err(|error| Fault::of(error, &call.identity))?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }

    async fn head_container(&self, call: &Call) -> Result<Reply> {
        let bucket = self.container(call, call.container()).await?;
        self.authorize(call, "ListObjects", &bucket.record.name, None).await?;
        let mut reply = Reply::empty(StatusCode::NO_CONTENT);
        self.describe_container(call, &bucket, &mut reply).await?;
        Ok(reply)
    }

    pub(super) async fn describe_container(
        &self,
        call: &Call,
        bucket: &OpenBucket,
        reply: &mut Reply,
    ) -> Result<()> {
        let totals = self.totals(call, bucket).await?;
        let container = self.settings(call, bucket)?;
        reply.set("x-container-object-count", totals.objects.to_string());
        reply.set("x-container-bytes-used", totals.bytes.to_string());
        reply.set("x-storage-policy", "default-placement");
        reply.set_time(bucket.record.created);
        let is_owner = call.identity.owner.as_ref().is_some_and(|user| user.id == bucket.record.owner);
        if is_owner {
            // Others must not learn the keys of URLs, nor which users the owner lets in.
            for (name, list) in
                [("x-container-read", &container.read), ("x-container-write", &container.write)]
            {
                if !list.is_empty() {
                    reply.set(name, list);
                }
            }
        }
        for (name, value) in &container.metadata {
            if is_owner || !super::temp_urls::is_key(name) {
                reply.set(&format!("{METADATA}{name}"), value);
            }
        }
        if !container.archive.is_empty() {
            let name = if container.is_history { HISTORY } else { VERSIONS };
            reply.set(name, percent_encode(container.archive.as_bytes()));
        }
        if bucket.config.versioning != Versioning::Off {
            let is_on = bucket.config.versioning == Versioning::Enabled;
            reply.set("x-versions-enabled", if is_on { "True" } else { "False" });
        }
        Ok(())
    }

    async fn list_container(&self, call: &Call) -> Result<Reply> {
        let bucket = self.container(call, call.container()).await?;
        self.authorize(call, "ListObjects", &bucket.record.name, None).await?;
        if call.has("versions") {
            return self.list_versions(call, &bucket).await;
        }
        let wanted = Wanted::of(call)?;
        let mut lines = Vec::new();
        let mut after = wanted.marker.clone();
        while lines.len() < wanted.limit {
            let request = PageRequest {
                prefix: Bytes::from(wanted.prefix.clone()),
                delimiter: Bytes::from(wanted.delimiter.clone()),
                after: Bytes::from(after),
                max: PAGE.min(wanted.limit - lines.len()),
                ..PageRequest::default()
            };
            let page = self.core.page(&bucket, request).await.map_err(|e| Fault::of(e, &call.identity))?;
            let Some(last) = page.items.last() else { break };
            after = String::from_utf8_lossy(last.marker()).into_owned();
            for item in &page.items {
                lines.extend(line(item).map_err(|e| Fault::of(errors::corrupt(e), &call.identity))?);
            }
            if !page.is_truncated {
                break;
            }
            if wanted.end_marker.as_deref().is_some_and(|end| after.as_str() >= end) {
                break;
            }
        }
        if let Some(end) = &wanted.end_marker {
            lines.retain(|line| line.name() < end.as_str());
        }
        if wanted.without_prefixes {
            lines.retain(|line| !matches!(line, Line::Prefix(_)));
        }
        let mut reply = listing::reply(call, "container", bucket.record.plain_name(), &lines);
        self.describe_container(call, &bucket, &mut reply).await?;
        Ok(reply)
    }
}

/// None of an object that has ended.
fn line(item: &Item) -> std::result::Result<Option<Line>, nacre_wire::DecodeError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Some(match item {
        Item::Prefix(prefix) => Line::Prefix(text(prefix)),
        Item::Key(key, value) => {
            let entry: Entry = from_slice(value)?;
            if entry.is_expired(now()) {
                return Ok(None);
            }
            Line::Object { name: text(key), etag: entry.etag, bytes: entry.size, modified: entry.mtime }
        }
    }))
}

/// What is refused before anything is changed.
fn check(call: &Call) -> Result<()> {
    match UNSUPPORTED.iter().find(|(name, _)| call.header(name).is_some()) {
        Some((_, what)) => Err(Fault::unsupported(what)),
        None => match call.header("x-storage-policy") {
            None | Some("default-placement") => Ok(()),
            Some(other) => {
                let why = format!("there is no storage policy {other:?}: the only one is default-placement");
                Err(Fault::new(StatusCode::BAD_REQUEST, why))
            }
        },
    }
}

/// Whether versions are to be kept, if the request says it.
fn versions_asked(call: &Call) -> Result<Option<bool>> {
    match call.header("x-versions-enabled").map(str::to_ascii_lowercase).as_deref() {
        None => Ok(None),
        Some("true" | "1" | "yes" | "on") => Ok(Some(true)),
        Some("false" | "0" | "no" | "off") => Ok(Some(false)),
        Some(_) => Err(Fault::new(StatusCode::BAD_REQUEST, "X-Versions-Enabled is true or false")),
    }
}

/// Versions are kept in the container itself or in another one.
fn check_only(is_one: bool) -> Result<()> {
    match is_one {
        true => Ok(()),
        false => Err(Fault::new(
            StatusCode::BAD_REQUEST,
            "a container with X-Versions-Enabled has no place for versions in another container",
        )),
    }
}

/// Changes where versions go.
fn archive_of(call: &Call, container: &mut Container) -> Result<()> {
    let named =
        |header: &str| call.headers.get(header).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let removes = |header: &str| call.headers.contains_key(header);
    if removes("x-remove-versions-location") || removes("x-remove-history-location") {
        container.archive.clear();
    }
    let bad = |why: &str| Fault::new(StatusCode::BAD_REQUEST, why);
    let (name, is_history) = match (named(VERSIONS), named(HISTORY)) {
        (None, None) => return Ok(()),
        (Some(_), Some(_)) => {
            return Err(bad("Only one of X-Versions-Location or X-History-Location may be specified"));
        }
        (Some(name), None) => (name, false),
        (None, Some(name)) => (name, true),
    };
    let name = percent_decode(name.trim_matches('/')).filter(|name| !name.contains('/'));
    let name = name.ok_or_else(|| bad("the location of versions is the name of a container"))?;
    if name == call.container() {
        return Err(bad("a container cannot be the place of its own versions"));
    }
    // An empty name removes it.
    (container.archive, container.is_history) = (name, is_history);
    Ok(())
}

/// A container with the changes that a request asks for; none if it asks for none.
fn changed(call: &Call, before: &Container) -> Result<Option<Container>> {
    let changes = Changes::of(call, METADATA, "x-remove-container-meta-");
    let mut container = before.clone();
    changes.apply(&mut container.metadata);
    for (header, removal, list) in [
        ("x-container-read", "x-remove-container-read", &mut container.read),
        ("x-container-write", "x-remove-container-write", &mut container.write),
    ] {
        if let Some(value) = call.headers.get(header) {
            // An empty list removes it.
            *list = String::from_utf8_lossy(value.as_bytes()).into_owned();
        }
        if call.headers.contains_key(removal) {
            list.clear();
        }
        if list.len() > LIST_MAX {
            return Err(Fault::new(StatusCode::BAD_REQUEST, format!("{header} is too long")));
        }
    }
    archive_of(call, &mut container)?;
    if is_too_large(&container.metadata) {
        return Err(Fault::new(StatusCode::BAD_REQUEST, "the metadata is too large"));
    }
    container.check().map_err(|bad| Fault::new(StatusCode::BAD_REQUEST, bad.to_string()))?;
    Ok((container != *before).then_some(container))
}
