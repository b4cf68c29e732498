//! Versions: their names in requests and answers, the setting of a bucket, and the listing.

use crate::access::{Which, granted};
use crate::buckets::{FRESH, OpenBucket};
use crate::errors;
use crate::listing::{Names, page_size};
use crate::objects::{etag, key_of, timestamp};
use crate::service::Core;
use crate::store::now;
use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderMap, HeaderValue, LAST_MODIFIED};
use hyper::http::Extensions;
use nacre_s3::{Answer, Ask, Entry, Item, Object, PageRequest, Refusal, VersionId, Versioning, setting};
use nacre_wire::{from_slice, to_vec};
use s3s::dto::{
    BucketVersioningStatus, ChecksumAlgorithm, CommonPrefix, DeleteMarkerEntry, GetBucketVersioningInput,
    GetBucketVersioningOutput, ListObjectVersionsInput, ListObjectVersionsOutput, ObjectVersion,
    ObjectVersionStorageClass, Owner, PutBucketVersioningInput, PutBucketVersioningOutput, TimestampFormat,
};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

/// The header that says that a version is a delete marker.
const DELETE_MARKER: &str = "x-amz-delete-marker";
const VERSION_ID: &str = "x-amz-version-id";

/// The version that a request names.
pub fn version_of(text: Option<&str>) -> S3Result<Option<VersionId>> {
    let parse = |text: &str| text.parse().map_err(|()| errors::of_refusal(&Refusal::NoSuchVersion));
    text.map(parse).transpose()
}

impl OpenBucket {
    /// What an answer says of a version. Buckets that never kept any say nothing.
    pub fn version_text(&self, version: VersionId) -> Option<String> {
        (self.config.versioning != Versioning::Off).then(|| version.to_string())
    }
}

/// An answer that the version is a delete marker.
pub fn is_marker(version: VersionId, mtime: u64, is_named: bool) -> S3Error {
    let mut headers = HeaderMap::new();
    headers.insert(DELETE_MARKER, HeaderValue::from_static("true"));
    if let Ok(version) = HeaderValue::try_from(version.to_string()) {
        headers.insert(VERSION_ID, version);
    }
    let mut error = match is_named {
        false => errors::of_refusal(&Refusal::NoSuchKey),
        true => {
            headers.insert(ALLOW, HeaderValue::from_static("DELETE"));
            let mut date = Vec::new();
            if timestamp(mtime).format(TimestampFormat::HttpDate, &mut date).is_ok()
                && let Ok(date) = HeaderValue::from_bytes(&date)
            {
                headers.insert(LAST_MODIFIED, date);
            }
            s3_error!(MethodNotAllowed, "The specified method is not allowed against this resource.")
        }
    };
    error.set_headers(headers);
    error
}

impl Core {
    /// An object of a bucket: the current version, or the one that is named.
    pub async fn object(
        &self,
        bucket: &OpenBucket,
        key: &str,
        version: Option<VersionId>,
    ) -> S3Result<Object> {
        let key = key_of(key)?;
        let ask = match version {
            None => Ask::Get { key },
            Some(version) => Ask::GetVersion { key, version },
        };
        match bucket.index.ask(ask).await {
            // A version that is named is there until it is removed.
            Ok(Answer::Object(object)) if version.is_none() && object.entry.is_expired(now()) => {
                Err(errors::of_refusal(&Refusal::NoSuchKey))
            }
            Ok(Answer::Object(object)) => Ok(*object),
            Ok(_) => Err(errors::internal("an object was not answered with an object")),
            Err(Refusal::DeleteMarker { version: found, mtime }) => {
                Err(is_marker(found, mtime, version.is_some()))
            }
            Err(refusal) => Err(self.refused(bucket, &refusal)),
        }
    }

    /// An object that a request reads, as long as the request may read it: it may have been replaced since
    /// that was decided.
    pub async fn object_for(
        &self,
        extensions: &Extensions,
        which: Which,
        bucket: &OpenBucket,
        key: &str,
        version: Option<VersionId>,
    ) -> S3Result<Object> {
        let object = self.object(bucket, key, version).await?;
        self.access.still(granted(extensions)?, which, &bucket.record.name, key, &object).await?;
        Ok(object)
    }

    /// How versions are kept at this moment: a body may have been on its way for long.
    pub async fn versioning(&self, bucket: &OpenBucket) -> S3Result<Versioning> {
        let now = self.buckets.of_any_user(&bucket.record.name).await?;
        // The index of a bucket that was deleted refuses writes.
        let same = now.filter(|now| now.record.id == bucket.record.id);
        Ok(same.as_ref().unwrap_or(bucket).config.versioning)
    }

    /// PutBucketVersioning.
    pub async fn put_bucket_versioning(
        &self,
        req: S3Request<PutBucketVersioningInput>,
    ) -> S3Result<S3Response<PutBucketVersioningOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let asked = req.input.versioning_configuration;
        if asked.mfa_delete.is_some_and(|mfa| mfa.as_str() == "Enabled") {
            return Err(s3_error!(NotImplemented, "MFA delete is not supported"));
        }
        let versioning = match asked.status.as_ref().map(BucketVersioningStatus::as_str) {
            Some("Enabled") => Versioning::Enabled,
            Some("Suspended") if bucket.config.lock.is_some() => {
                let message = "An Object Lock configuration is present on this bucket, so the versioning \
                               state cannot be changed.";
                return Err(errors::with_code("InvalidBucketState", StatusCode::CONFLICT, message));
            }
            Some("Suspended") => Versioning::Suspended,
            _ => {
                return Err(s3_error!(
                    IllegalVersioningConfigurationException,
                    "The Versioning element must be specified"
                ));
            }
        };
        if versioning != bucket.config.versioning {
            self.buckets.set(&bucket, setting::VERSIONING, Some(to_vec(&versioning))).await?;
            // Once this is answered, no gateway writes as it was before.
            tokio::time::sleep(FRESH).await;
        }
        Ok(S3Response::new(PutBucketVersioningOutput::default()))
    }

    /// GetBucketVersioning.
    pub async fn get_bucket_versioning(
        &self,
        req: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let status = match bucket.config.versioning {
            Versioning::Off => None,
            Versioning::Enabled => Some(BucketVersioningStatus::from_static("Enabled")),
            Versioning::Suspended => Some(BucketVersioningStatus::from_static("Suspended")),
        };
        Ok(S3Response::new(GetBucketVersioningOutput { status, ..GetBucketVersioningOutput::default() }))
    }

    /// ListObjectVersions.
    pub async fn list_object_versions(
        &self,
        req: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let names = Names::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_keys)?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (key, marker) = (text(&input.key_marker), text(&input.version_id_marker));
        if key.is_empty() && !marker.is_empty() {
            let message = "A version-id marker cannot be specified without a key marker.";
            return Err(s3_error!(InvalidArgument, "{message}"));
        }
        let stamp = match marker.as_str() {
            "" => None,
            marker => self.stamp_of(&bucket, &key, marker).await?,
        };
        let request = PageRequest {
            prefix: text(&input.prefix).into(),
            delimiter: text(&input.delimiter).into(),
            max: max as usize,
            ..PageRequest::default()
        };
        let page = self.page(&bucket, request.versions_behind(&key, stamp)).await?;
        let (mut versions, mut markers, mut prefixes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut next_key, mut next_version) = (None, None);
        for item in &page.items {
            let (line, value) = match item {
                Item::Prefix(prefix) => {
                    prefixes.push(CommonPrefix { prefix: Some(names.write(prefix)) });
                    (next_key, next_version) = (Some(names.write(prefix)), None);
                    continue;
                }
                Item::Key(line, value) => (line, value),
            };
            let (key, is_latest) = line_of(line).ok_or_else(|| errors::corrupt("a version without a key"))?;
            let entry: Entry = from_slice(value).map_err(errors::corrupt)?;
            // Also of a `null` version: this says where it is.
            let place = VersionId::Of { stamp: entry.stamp, tag: entry.tag };
            (next_key, next_version) = (Some(names.write(key)), Some(place.to_string()));
            match entry.is_marker {
                true => markers.push(marker_line(names.write(key), is_latest, entry)),
                false => versions.push(version_line(names.write(key), is_latest, entry)),
            }
        }
        // A page of nothing is not followed by another one.
        let is_truncated = page.is_truncated && max > 0;
        Ok(S3Response::new(ListObjectVersionsOutput {
            common_prefixes: Some(prefixes),
            delete_markers: Some(markers),
            delimiter: input.delimiter.map(|delimiter| names.write(delimiter.as_bytes())),
            encoding_type: input.encoding_type,
            is_truncated: Some(is_truncated),
            key_marker: Some(names.write(key.as_bytes())),
            max_keys: Some(max),
            name: Some(input.bucket),
            next_key_marker: next_key.filter(|_| is_truncated),
            next_version_id_marker: next_version.filter(|_| is_truncated),
            prefix: Some(names.write(text(&input.prefix).as_bytes())),
            version_id_marker: Some(marker),
            versions: Some(versions),
            ..ListObjectVersionsOutput::default()
        }))
    }

    /// Where the version of a marker is among those of its key; none behind all of them.
    pub async fn stamp_of(&self, bucket: &OpenBucket, key: &str, marker: &str) -> S3Result<Option<u64>> {
        match marker.parse() {
            Ok(VersionId::Of { stamp, .. }) => Ok(Some(stamp)),
            Ok(VersionId::Null) => {
                let ask = Ask::GetVersion { key: key_of(key)?, version: VersionId::Null };
                match bucket.index.ask(ask).await {
                    Ok(Answer::Object(object)) => Ok(Some(object.entry.stamp)),
                    Ok(_) | Err(Refusal::NoSuchKey | Refusal::NoSuchVersion) => Ok(None),
                    Err(Refusal::DeleteMarker { .. }) => Ok(None),
                    Err(refusal) => Err(self.refused(bucket, &refusal)),
                }
            }
            Err(()) => Err(s3_error!(InvalidArgument, "Invalid version id specified")),
        }
    }
}

/// The key of a line, and whether its version is the current one.
pub fn line_of(line: &[u8]) -> Option<(&[u8], bool)> {
    let at = line.iter().position(|byte| *byte == 0)?;
    Some((&line[..at], at + 1 == line.len()))
}

fn owner(id: String) -> Option<Owner> {
    Some(Owner { display_name: Some(id.clone()), id: Some(id) })
}

fn marker_line(key: String, is_latest: bool, entry: Entry) -> DeleteMarkerEntry {
    DeleteMarkerEntry {
        is_latest: Some(is_latest),
        key: Some(key),
        last_modified: Some(timestamp(entry.mtime)),
        version_id: Some(entry.version().to_string()),
        owner: owner(entry.owner),
    }
}

fn version_line(key: String, is_latest: bool, entry: Entry) -> ObjectVersion {
    let version = entry.version().to_string();
    let class = if entry.storage_class.is_empty() { "STANDARD".to_owned() } else { entry.storage_class };
    ObjectVersion {
        checksum_algorithm: (!entry.checksum.is_empty())
            .then(|| vec![ChecksumAlgorithm::from(entry.checksum)]),
        e_tag: Some(etag(&entry.etag)),
        is_latest: Some(is_latest),
        key: Some(key),
        last_modified: Some(timestamp(entry.mtime)),
        owner: owner(entry.owner),
        size: i64::try_from(entry.size).ok(),
        storage_class: Some(ObjectVersionStorageClass::from(class)),
        version_id: Some(version),
        ..ObjectVersion::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_no_version_can_have_does_not_exist() {
        assert!(version_of(None).is_ok_and(|version| version.is_none()));
        assert!(version_of(Some("null")).is_ok_and(|version| version == Some(VersionId::Null)));
        assert!(version_of(Some("abc")).is_err() && version_of(Some("")).is_err());
    }

    #[test]
    fn line_without_an_age_is_the_current_version() {
        assert_eq!(line_of(b"k\0"), Some((&b"k"[..], true)));
        assert_eq!(line_of(b"k\0ff"), Some((&b"k"[..], false)));
        assert_eq!(line_of(b"k"), None);
    }
}
