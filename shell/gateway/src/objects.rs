//! Objects: PUT, GET, HEAD, DELETE and COPY.

use crate::access::{DeniedDeletes, Which, granted};
use crate::buckets::OpenBucket;
use crate::checksums::{Algorithm, Expected, hex, kind, set_checksum};
use crate::classes::Chosen;
use crate::encryption::{self, CopySealing, parts as sealed};
use crate::errors;
use crate::expiry::{self, expires_of};
use crate::listing::{percent_decode, split_pairs};
use crate::locks::{AskedLock, hold_text, mode_text};
use crate::policies::Written;
use crate::receive::{Incoming, Received, receive};
use crate::send::send;
use crate::service::Core;
use crate::settings::{OBJECT_TAGS_MAX, check_tags};
use crate::store::now;
use crate::versions::version_of;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::Extensions;
use nacre_s3::{
    Answer, Body, Change, Condition, Deletion, Entry, Etags, FileSize, Head, LockView, NotRead, Object,
    ReadCondition, Refusal, Tag, VersionId, Versioning,
};
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, DeleteObjectInput, DeleteObjectOutput,
    DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETag, ETagCondition, GetObjectInput,
    GetObjectOutput, HeadObjectInput, HeadObjectOutput, ObjectLockLegalHoldStatus, ObjectLockMode,
    PutObjectInput, PutObjectOutput, Range, StorageClass, Timestamp,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest body of one PUT.
pub const PUT_MAX: u64 = 5 << 30;
/// Headers that are kept with an object, beside its own metadata.
/// Those of Swift say what the object stands for.
const KEPT: [&str; 10] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-website-redirect-location",
    expiry::HEADER,
    "x-object-manifest",
    "x-static-large-object",
];
/// All of an object's own metadata: names and values.
const METADATA_MAX: usize = 2048;
const META: &str = "x-amz-meta-";
const KEY_MAX: usize = 1024;
const DELETES_MAX: usize = 1000;

/// From milliseconds since 1970.
pub fn timestamp(millis: u64) -> Timestamp {
    Timestamp::from(UNIX_EPOCH + Duration::from_millis(millis))
}

/// Whole seconds since 1970.
fn seconds(timestamp: &Timestamp) -> u64 {
    let time: time::OffsetDateTime = timestamp.clone().into();
    SystemTime::from(time).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// From its text without quotes.
pub fn etag(text: &str) -> ETag {
    ETag::Strong(text.to_owned())
}

/// A key as the index has it.
pub fn key_of(key: &str) -> S3Result<Bytes> {
    if key.len() > KEY_MAX {
        return Err(s3_error!(KeyTooLongError, "Your key is too long"));
    }
    if key.bytes().any(|byte| byte == 0) {
        return Err(s3_error!(InvalidArgument, "a key cannot have a zero byte"));
    }
    Ok(Bytes::copy_from_slice(key.as_bytes()))
}

fn etags(condition: Option<ETagCondition>) -> Option<Etags> {
    condition.map(|condition| match condition {
        ETagCondition::Any => Etags::Any,
        ETagCondition::ETag(etag) => Etags::These(vec![etag.into_value()]),
    })
}

/// From the headers of a write.
pub fn condition(if_match: Option<ETagCondition>, if_none_match: Option<ETagCondition>) -> Condition {
    Condition { if_match: etags(if_match), if_none_match: etags(if_none_match), ..Condition::default() }
}

/// The headers of a request that are kept with the object.
pub fn kept_headers(
    headers: &HeaderMap,
    metadata: Option<s3s::dto::Metadata>,
) -> S3Result<BTreeMap<String, String>> {
    let mut kept = BTreeMap::new();
    for name in KEPT {
        let Some(value) = headers.get(name) else { continue };
        let text = value.to_str().map_err(|_| s3_error!(InvalidArgument, "{name} is not text"))?;
        let text = match name {
            // The coding of the request is not that of the object.
            "content-encoding" => {
                let codings = text.split(',').map(str::trim).filter(|coding| *coding != "aws-chunked");
                codings.collect::<Vec<_>>().join(",")
            }
            expiry::HEADER => {
                let seconds: u64 =
                    text.parse().map_err(|_| s3_error!(InvalidArgument, "Non-integer X-Delete-At"))?;
                if seconds <= now() / 1000 {
                    return Err(s3_error!(InvalidArgument, "X-Delete-At in past"));
                }
                text.to_owned()
            }
            _ => text.to_owned(),
        };
        if !text.is_empty() {
            kept.insert(name.to_owned(), text);
        }
    }
    let metadata = metadata.unwrap_or_default();
    let size: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > METADATA_MAX {
        return Err(s3_error!(MetadataTooLarge, "Your metadata headers exceed the maximum allowed size."));
    }
    kept.extend(
        metadata.into_iter().map(|(name, value)| (format!("{META}{}", name.to_ascii_lowercase()), value)),
    );
    Ok(kept)
}

/// `name=value&...` of the header `x-amz-tagging`.
pub fn tags_of_header(text: Option<&str>) -> S3Result<BTreeMap<String, String>> {
    let mut tags = BTreeMap::new();
    for (name, value) in split_pairs(text.unwrap_or_default()) {
        let decode = |text: &str| percent_decode(&text.replace('+', " "));
        let bad = || s3_error!(InvalidArgument, "The header 'x-amz-tagging' is not valid.");
        tags.insert(decode(name).ok_or_else(bad)?, decode(value).ok_or_else(bad)?);
    }
    check_tags(&tags, OBJECT_TAGS_MAX)?;
    Ok(tags)
}

/// An object's metadata, without the prefix.
fn metadata(head: &Head) -> Option<s3s::dto::Metadata> {
    let own = head.headers.iter().filter_map(|(name, value)| Some((name.strip_prefix(META)?, value)));
    let own: s3s::dto::Metadata = own.map(|(name, value)| (name.to_owned(), value.clone())).collect();
    (!own.is_empty()).then_some(own)
}

/// The other headers that come back with an object.
fn headers(head: &Head, overridden: &[(&str, bool)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let is_overridden = |name: &str| overridden.iter().any(|(other, is)| *is && *other == name);
    for (name, value) in head.headers.iter().filter(|(name, _)| !name.starts_with(META)) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value))
            && !is_overridden(name.as_str())
        {
            headers.insert(name, value);
        }
    }
    let content_type = hyper::header::CONTENT_TYPE;
    if !headers.contains_key(&content_type) && !is_overridden("content-type") {
        headers.insert(content_type, HeaderValue::from_static("binary/octet-stream"));
    }
    encryption::tell(&mut headers, &head.encryption);
    headers
}

/// Which bytes of an object are asked for.
struct Wanted {
    range: std::ops::Range<u64>,
    is_partial: bool,
    parts: Option<i32>,
}

fn wanted(object: &Object, range: Option<Range>, part: Option<i32>) -> S3Result<Wanted> {
    let size = object.entry.size;
    if let Some(number) = part {
        if range.is_some() {
            return Err(s3_error!(InvalidRequest, "Cannot specify both Range header and partNumber."));
        }
        let sizes = if object.head.parts.is_empty() { &[size][..] } else { &object.head.parts };
        let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let at = at.filter(|at| *at < sizes.len());
        let missing = || {
            let message = "The requested partnumber is not satisfiable";
            errors::with_code("InvalidPartNumber", StatusCode::RANGE_NOT_SATISFIABLE, message)
        };
        let at = at.ok_or_else(missing)?;
        let start: u64 = sizes[..at].iter().sum();
        let count = (!object.head.parts.is_empty()).then_some(sizes.len() as i32);
        return Ok(Wanted { range: start..start + sizes[at], is_partial: true, parts: count });
    }
    match range {
        None => Ok(Wanted { range: 0..size, is_partial: false, parts: None }),
        Some(range) => Ok(Wanted { range: range.check(size)?, is_partial: true, parts: None }),
    }
}

fn content_range(wanted: &Wanted, size: u64) -> Option<String> {
    let std::ops::Range { start, end } = wanted.range;
    (wanted.is_partial && end > start).then(|| format!("bytes {start}-{}/{size}", end - 1))
}

fn check_read(condition: &ReadCondition, object: &Object) -> S3Result<()> {
    condition.check(&object.entry).map_err(|why| match why {
        NotRead::PreconditionFailed => errors::of_refusal(&Refusal::PreconditionFailed),
        NotRead::NotModified => {
            let mut error = s3_error!(NotModified);
            let mut headers = HeaderMap::new();
            if let Ok(etag) = HeaderValue::try_from(format!("\"{}\"", object.entry.etag)) {
                headers.insert(hyper::header::ETAG, etag);
            }
            error.set_headers(headers);
            error
        }
    })
}

/// Headers that GET and HEAD have in common.
macro_rules! describe {
    ($output:expr, $bucket:expr, $object:expr, $wanted:expr, $with_checksum:expr) => {{
        let (entry, head) = (&$object.entry, &$object.head);
        $output.accept_ranges = Some("bytes".to_owned());
        $output.content_length = i64::try_from($wanted.range.end - $wanted.range.start).ok();
        $output.content_range = content_range(&$wanted, entry.size);
        $output.e_tag = Some(etag(&entry.etag));
        $output.last_modified = Some(timestamp(entry.mtime));
        $output.metadata = metadata(head);
        $output.parts_count = $wanted.parts;
        $output.version_id = $bucket.version_text(entry.version());
        $output.storage_class =
            (!entry.storage_class.is_empty()).then(|| StorageClass::from(entry.storage_class.clone()));
        let lock = &head.lock;
        $output.object_lock_mode =
            lock.retention.as_ref().map(|held| ObjectLockMode::from_static(mode_text(held.mode)));
        $output.object_lock_retain_until_date = lock.retention.as_ref().map(|held| timestamp(held.until));
        $output.object_lock_legal_hold_status =
            lock.legal_hold.map(|held| ObjectLockLegalHoldStatus::from_static(hold_text(held)));
        if $with_checksum && !$wanted.is_partial {
            set_checksum!($output, &head.checksum);
            $output.checksum_type = head.checksum.as_ref().map(kind);
        }
    }};
}

impl Core {
    /// PutObject.
    pub async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let key = key_of(&req.input.key)?;
        let expected = Expected::of_headers(&req.headers, Algorithm::Crc64Nvme)?;
        let (encryption, cipher) = sealed(self.sealing(&req, &bucket).await?);
        let PutObjectInput { body, metadata, tagging, storage_class, if_match, if_none_match, .. } =
            req.input;
        let lock = AskedLock {
            mode: req.input.object_lock_mode.map(|mode| mode.as_str().to_owned()),
            until: req.input.object_lock_retain_until_date,
            legal_hold: req.input.object_lock_legal_hold_status.map(|status| status.as_str().to_owned()),
        };
        let lock = lock.of(&bucket, &req.headers)?;
        let headers = kept_headers(&req.headers, metadata)?;
        let tags = tags_of_header(tagging.as_deref())?;
        let condition = condition(if_match, if_none_match);
        let class = self.class_of(storage_class.as_ref().map(|class| class.as_str())).await?;
        let tag = self.store.new_tag().in_class(class.number);
        let written = self.written_by(&req.headers, &req.extensions, &bucket).await?;
        let len = req.input.content_length.and_then(|len| u64::try_from(len).ok());
        let size = req.extensions.get::<FileSize>().copied().unwrap_or(FileSize::ANY);
        let admitted = self.quotas.admit(&bucket, Some(&key), len.unwrap_or(0)).await?;
        let incoming = Incoming {
            stream: body,
            expected,
            trailers: req.trailing_headers,
            len,
            owner: owner(&bucket, &key),
            may_inline: true,
            len_max: PUT_MAX.min(size.max),
            cipher,
        };
        let received = receive(&self.store, tag, incoming).await?;
        if received.len < size.min {
            let message = "Your proposed upload is smaller than the minimum allowed size.";
            return Err(s3_error!(EntityTooSmall, "{message}"));
        }
        let admitted = self.quotas.grow(admitted, &bucket, &key, received.len).await?;
        let Written { owner, acl } = written;
        let mut told = HeaderMap::new();
        encryption::tell(&mut told, &encryption);
        let head = Head { headers, tags, lock, acl, encryption, ..Head::default() };
        let Made { entry, checksum, version } =
            self.commit(&bucket, key, tag, received, head, owner, class.name, condition).await?;
        admitted.keep();
        let mut output = PutObjectOutput { e_tag: Some(etag(&entry.etag)), ..PutObjectOutput::default() };
        set_checksum!(output, &checksum);
        output.checksum_type = checksum.as_ref().map(kind);
        output.version_id = version;
        Ok(S3Response::with_headers(output, told))
    }

    /// Makes an object of a body.
    async fn commit(
        &self,
        bucket: &OpenBucket,
        key: Bytes,
        tag: Tag,
        received: Received,
        head: Head,
        owner: String,
        storage_class: String,
        condition: Condition,
    ) -> S3Result<Made> {
        let Received { body, len, md5, checksum, data } = received;
        let entry = Entry {
            tag,
            size: len,
            mtime: now(),
            etag: hex(&md5),
            owner,
            storage_class,
            checksum: checksum.algorithm.clone(),
            expires: expires_of(&head.headers),
            ..Entry::default()
        };
        self.note_expiry(bucket, &key, entry.expires).await?;
        let head = Head { checksum: Some(checksum.clone()), body, ..head };
        let object = Box::new(Object { entry: entry.clone(), head });
        let due = now() + self.grace_millis();
        let versioning = self.versioning(bucket).await?;
        let keeps = versioning == Versioning::Enabled;
        let put = Change::Put { key, object, condition, due, upload: None, keeps };
        let data = data.hand_over();
        match bucket.change(put).await {
            Ok(answer) => {
                let version = made_version(versioning, &answer);
                Ok(Made { entry, checksum: Some(checksum), version })
            }
            Err(refusal) => {
                // A write that failed may have been carried out all the same.
                if !matches!(refusal, Refusal::Failed(_)) {
                    data.refused();
                }
                Err(self.refused(bucket, &refusal))
            }
        }
    }

    /// GetObject.
    pub async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let version = version_of(input.version_id.as_deref())?;
        let object = self.object_for(&req.extensions, Which::Target, &bucket, &input.key, version).await?;
        let condition = ReadCondition {
            if_match: etags(input.if_match),
            if_none_match: etags(input.if_none_match),
            if_modified_since: input.if_modified_since.as_ref().map(seconds),
            if_unmodified_since: input.if_unmodified_since.as_ref().map(seconds),
        };
        check_read(&condition, &object)?;
        let cipher = self.cipher(&object.head.encryption, &req.headers, &req.extensions).await?;
        let wanted = wanted(&object, input.range, input.part_number)?;
        let overridden = [
            ("cache-control", input.response_cache_control.is_some()),
            ("content-disposition", input.response_content_disposition.is_some()),
            ("content-encoding", input.response_content_encoding.is_some()),
            ("content-language", input.response_content_language.is_some()),
            ("content-type", input.response_content_type.is_some()),
            ("expires", input.response_expires.is_some()),
        ];
        let mut output = GetObjectOutput::default();
        describe!(output, bucket, object, wanted, input.checksum_mode.is_some());
        let tags = object.head.tags.len() as i32;
        output.tag_count = (tags > 0).then_some(tags);
        let headers = headers(&object.head, &overridden);
        output.body = Some(send(&self.store, &object.head.body, cipher, wanted.range)?);
        Ok(S3Response::with_headers(output, headers))
    }

    /// HeadObject.
    pub async fn head_object(
        &self,
        req: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let version = version_of(input.version_id.as_deref())?;
        let object = self.object_for(&req.extensions, Which::Target, &bucket, &input.key, version).await?;
        let condition = ReadCondition {
            if_match: etags(input.if_match),
            if_none_match: etags(input.if_none_match),
            if_modified_since: input.if_modified_since.as_ref().map(seconds),
            if_unmodified_since: input.if_unmodified_since.as_ref().map(seconds),
        };
        check_read(&condition, &object)?;
        self.cipher(&object.head.encryption, &req.headers, &req.extensions).await?;
        let wanted = wanted(&object, input.range, input.part_number)?;
        let mut output = HeadObjectOutput::default();
        describe!(output, bucket, object, wanted, input.checksum_mode.is_some());
        Ok(S3Response::with_headers(output, headers(&object.head, &[])))
    }

    /// DeleteObject.
    pub async fn delete_object(
        &self,
        req: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let condition = Condition {
            mtime: input.if_match_last_modified_time.as_ref().map(seconds),
            size: input.if_match_size.and_then(|size| u64::try_from(size).ok()),
            ..condition(input.if_match, None)
        };
        let version = version_of(input.version_id.as_deref())?;
        let bypass = input.bypass_governance_retention == Some(true);
        let (version_id, is_marker) = self.delete(&bucket, &input.key, version, condition, bypass).await?;
        let delete_marker = is_marker.then_some(true);
        Ok(S3Response::new(DeleteObjectOutput { delete_marker, version_id, ..DeleteObjectOutput::default() }))
    }

    /// Deletes an object or a version. Returns the version that was removed, or the delete marker that was
    /// made; and whether it is a delete marker.
    async fn delete(
        &self,
        bucket: &OpenBucket,
        key: &str,
        version: Option<VersionId>,
        condition: Condition,
        bypass: bool,
    ) -> S3Result<(Option<String>, bool)> {
        let versioning = self.versioning(bucket).await?;
        let deletion = Deletion {
            key: key_of(key)?,
            version,
            versioning,
            condition,
            only_if_alone: false,
            owner: bucket.record.owner.clone(),
            view: LockView { now: now(), bypass },
            due: now() + self.grace_millis(),
            tag: self.store.new_tag(),
        };
        match bucket.change(Change::Delete(Box::new(deletion))).await {
            Ok(Answer::Deleted { version, is_marker, .. }) => {
                let shown = version.filter(|_| versioning != Versioning::Off);
                Ok((shown.map(|version| version.to_string()), is_marker))
            }
            Ok(_) => Err(errors::internal("a DELETE was not answered as one")),
            Err(refusal) => Err(self.refused(bucket, &refusal)),
        }
    }

    /// DeleteObjects.
    pub async fn delete_objects(
        &self,
        req: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let delete = req.input.delete;
        if delete.objects.len() > DELETES_MAX || delete.objects.is_empty() {
            return Err(s3_error!(MalformedXML, "one request deletes from 1 to {DELETES_MAX} objects"));
        }
        let is_quiet = delete.quiet.unwrap_or(false);
        let bypass = req.input.bypass_governance_retention == Some(true);
        let denied = req.extensions.get::<DeniedDeletes>().cloned().unwrap_or_default();
        let one = async |(at, object): (usize, s3s::dto::ObjectIdentifier)| {
            let condition = Condition {
                mtime: object.last_modified_time.as_ref().map(seconds),
                size: object.size.and_then(|size| u64::try_from(size).ok()),
                ..condition(object.e_tag.map(ETagCondition::ETag), None)
            };
            let result = match version_of(object.version_id.as_deref()) {
                _ if denied.0.contains(&at) => Err(s3_error!(AccessDenied, "Access Denied")),
                Ok(version) => self.delete(&bucket, &object.key, version, condition, bypass).await,
                Err(error) => Err(error),
            };
            (object.key, object.version_id, result)
        };
        // All at once: the index puts them into few operations.
        let results = futures_util::future::join_all(delete.objects.into_iter().enumerate().map(one)).await;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for (key, version_id, result) in results {
            match result {
                Ok((version, is_marker)) => deleted.push(DeletedObject {
                    key: Some(key),
                    delete_marker: is_marker.then_some(true),
                    delete_marker_version_id: version.filter(|_| is_marker),
                    version_id,
                }),
                Err(error) => errors.push(s3s::dto::Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(key),
                    message: error.message().map(str::to_owned),
                    version_id,
                }),
            }
        }
        let deleted = (!is_quiet).then_some(deleted);
        let errors = (!errors.is_empty()).then_some(errors);
        Ok(S3Response::new(DeleteObjectsOutput { deleted, errors, ..DeleteObjectsOutput::default() }))
    }

    /// The object that a copy is made of.
    pub async fn copy_source(
        &self,
        extensions: &Extensions,
        source: &CopySource,
        condition: &ReadCondition,
    ) -> S3Result<(OpenBucket, String, Object)> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(s3_error!(NotImplemented, "access points are not supported"));
        };
        let version = version_of(version_id.as_deref())?;
        let named = granted(extensions)?.source_bucket.as_deref().unwrap_or(bucket);
        let bucket = self.buckets.open(named).await?;
        let object = self.object_for(extensions, Which::Source, &bucket, key, version).await?;
        // Whatever the condition, a copy that is not made has failed.
        condition.check(&object.entry).map_err(|_| errors::of_refusal(&Refusal::PreconditionFailed))?;
        Ok((bucket, key.to_string(), object))
    }

    /// CopyObject.
    pub async fn copy_object(
        &self,
        req: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let key = key_of(&req.input.key)?;
        let Written { owner: writer, acl } = self.written_by(&req.headers, &req.extensions, &bucket).await?;
        let from = ReadCondition {
            if_match: etags(req.input.copy_source_if_match.clone()),
            if_none_match: etags(req.input.copy_source_if_none_match.clone()),
            if_modified_since: req.input.copy_source_if_modified_since.as_ref().map(seconds),
            if_unmodified_since: req.input.copy_source_if_unmodified_since.as_ref().map(seconds),
        };
        let (source_bucket, source_key, source) =
            self.copy_source(&req.extensions, &req.input.copy_source, &from).await?;
        let opened = self.cipher_of_source(&source.head.encryption, &req).await?;
        let sealing = self.sealing_of_copy(&req, &bucket, &source.head.encryption).await?;
        let input = req.input;
        let is = |directive: &str, given: Option<&str>| given == Some(directive);
        let replaces = is("REPLACE", input.metadata_directive.as_ref().map(|given| given.as_str()));
        let replaces_tags = is("REPLACE", input.tagging_directive.as_ref().map(|given| given.as_str()));
        let class = input.storage_class.as_ref().map(|class| class.as_str());
        let is_itself = source_bucket.record.id == bucket.record.id && source_key == input.key;
        let source_version = source_bucket.version_text(source.entry.version());
        // A version that stays keeps its data for itself.
        let versioning = self.versioning(&bucket).await?;
        let is_replaced = is_itself && versioning == Versioning::Off;
        let keeps_encryption = matches!(sealing, CopySealing::Keep);
        let changes = replaces || !keeps_encryption || class.is_some();
        if is_replaced && !changes && input.checksum_algorithm.is_none() {
            return Err(s3_error!(
                InvalidRequest,
                "This copy request is illegal because it is trying to copy an object to itself without \
                 changing the object's metadata, storage class, website redirect location or encryption \
                 attributes."
            ));
        }
        let headers = match replaces {
            true => kept_headers(&req.headers, input.metadata)?,
            false => source.head.headers.clone(),
        };
        let tags = match replaces_tags {
            true => tags_of_header(input.tagging.as_deref())?,
            false => source.head.tags.clone(),
        };
        let lock = AskedLock {
            mode: input.object_lock_mode.map(|mode| mode.as_str().to_owned()),
            until: input.object_lock_retain_until_date,
            legal_hold: input.object_lock_legal_hold_status.map(|status| status.as_str().to_owned()),
        };
        // A copy has no body that could be damaged on its way.
        let lock = lock.of_copy(&bucket)?;
        let algorithm = input.checksum_algorithm.as_ref().and_then(|given| Algorithm::parse(given.as_str()));
        let Chosen { name: storage_class, number } = match class {
            Some(class) if class == source.entry.storage_class => self.kept_class(class).await?,
            class => self.class_of(class).await?,
        };
        let admitted = self.quotas.admit(&bucket, Some(&key), source.entry.size).await?;
        let tag = self.store.new_tag().in_class(number);
        let moves = storage_class != source.entry.storage_class;
        let keeps_bytes = keeps_encryption && algorithm.is_none() && !moves;
        let keeps_data = is_replaced && keeps_bytes;
        let is_inline = matches!(source.head.body, Body::Inline(_)) && keeps_bytes;
        let mut told = HeaderMap::new();
        let Made { entry, checksum, version } = if keeps_data || is_inline && source.head.parts.is_empty() {
            let expires = expires_of(&headers);
            self.note_expiry(&bucket, &key, expires).await?;
            let changed = Entry { storage_class, expires, edits: 0, ..source.entry.clone() };
            let entry = Entry { tag, mtime: now(), owner: writer, ..changed };
            let checksum = source.head.checksum.clone();
            encryption::tell(&mut told, &source.head.encryption);
            let head = Head { headers, tags, lock, acl, upload: None, ..source.head };
            let object = Box::new(Object { entry: entry.clone(), head });
            // Its data may be garbage when it was replaced meanwhile.
            let unchanged = keeps_data.then_some(source.entry.tag);
            let condition = Condition { tag: unchanged, ..Condition::default() };
            let due = now() + self.grace_millis();
            let keeps = versioning == Versioning::Enabled;
            let put = Change::Put { key, object, condition, due, upload: None, keeps };
            let answer = bucket.change(put).await.map_err(|refusal| match refusal {
                Refusal::PreconditionFailed | Refusal::NoSuchKey => {
                    s3_error!(OperationAborted, "The object was changed at the same time. Please try again.")
                }
                refusal => self.refused(&bucket, &refusal),
            })?;
            Made { entry, checksum, version: made_version(versioning, &answer) }
        } else {
            // Data that is copied gets a key of its own.
            let (encryption, cipher) = sealed(match sealing {
                CopySealing::Anew(sealing) => sealing,
                CopySealing::Keep => self.sealing_like(&source.head.encryption).await?,
            });
            encryption::tell(&mut told, &encryption);
            let stored = source.head.checksum.as_ref().and_then(|sum| Algorithm::parse(&sum.algorithm));
            let incoming = Incoming {
                stream: Some(send(&self.store, &source.head.body, opened, 0..source.entry.size)?),
                expected: Expected::none(algorithm.or(stored).unwrap_or(Algorithm::Crc64Nvme)),
                trailers: None,
                len: Some(source.entry.size),
                owner: owner(&bucket, &key),
                may_inline: true,
                len_max: PUT_MAX,
                cipher,
            };
            let received = receive(&self.store, tag, incoming).await?;
            let head = Head { headers, tags, lock, acl, encryption, ..Head::default() };
            let condition = Condition::default();
            self.commit(&bucket, key, tag, received, head, writer, storage_class, condition).await?
        };
        admitted.keep();
        let mut result = CopyObjectResult {
            e_tag: Some(etag(&entry.etag)),
            last_modified: Some(timestamp(entry.mtime)),
            ..CopyObjectResult::default()
        };
        set_checksum!(result, &checksum);
        result.checksum_type = checksum.as_ref().map(kind);
        let output = CopyObjectOutput {
            copy_object_result: Some(result),
            copy_source_version_id: source_version,
            version_id: version,
            ..CopyObjectOutput::default()
        };
        Ok(S3Response::with_headers(output, told))
    }
}

/// An object that was made.
struct Made {
    entry: Entry,
    checksum: Option<nacre_s3::Checksum>,
    /// As the answer says it.
    version: Option<String>,
}

/// The version that a write made, as its answer says it.
pub fn made_version(versioning: Versioning, answer: &Answer) -> Option<String> {
    match answer {
        Answer::Put { version, .. } if versioning != Versioning::Off => Some(version.to_string()),
        _ => None,
    }
}

/// Says of data in the pool which object it is for.
pub fn owner(bucket: &OpenBucket, key: &[u8]) -> String {
    format!("{}/{}", bucket.record.id, String::from_utf8_lossy(key))
}
