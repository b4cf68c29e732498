//! Objects.

use super::place::Place;
use super::reply::{Fault, Reply, Result, millis_of};
use super::{Call, Swift, manifests, s3_request, temp_urls};
use crate::errors;
use crate::expiry;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use nacre_s3::FileSize;
use s3s::dto::{
    CopyObjectInput, CopySource, DeleteObjectInput, ETag, ETagCondition, GetObjectInput, GetObjectOutput,
    HeadObjectInput, HeadObjectOutput, Metadata, MetadataDirective, PutObjectInput, Range, StorageClass,
    StreamingBlob, Timestamp, TimestampFormat,
};
use s3s::{Body, S3Response};

const METADATA: &str = "x-object-meta-";
/// Headers that are kept with an object. Those of manifests are kept as well.
const KEPT: [&str; 5] =
    ["cache-control", "content-disposition", "content-encoding", "content-language", "expires"];
/// The parameter that names a version.
const VERSION: &str = "version-id";
/// Without the client's own, which Swift would guess by the name.
pub const DEFAULT_TYPE: &str = "application/octet-stream";

/// An object as it is answered.
pub struct Shown {
    pub headers: HeaderMap,
    pub metadata: Metadata,
    pub etag: String,
    pub modified: u64,
    pub len: u64,
    pub range: Option<String>,
    pub version: Option<String>,
    /// None for STANDARD.
    pub class: Option<StorageClass>,
    pub body: Option<StreamingBlob>,
}

macro_rules! shown {
    ($response:expr, $body:expr) => {{
        let S3Response { output, headers, .. } = $response;
        Shown {
            headers,
            metadata: output.metadata.unwrap_or_default(),
            etag: output.e_tag.map(ETag::into_value).unwrap_or_default(),
            modified: output.last_modified.as_ref().map(millis_of).unwrap_or_default(),
            len: output.content_length.and_then(|len| u64::try_from(len).ok()).unwrap_or_default(),
            range: output.content_range,
            version: output.version_id,
            class: output.storage_class,
            body: $body(output.body),
        }
    }};
}

impl Shown {
    fn of_get(response: S3Response<GetObjectOutput>) -> Shown {
        shown!(response, |body| body)
    }
    fn of_head(mut response: S3Response<HeadObjectOutput>) -> Shown {
        let S3Response { output, headers, .. } = &mut response;
        Shown {
            headers: std::mem::take(headers),
            metadata: output.metadata.take().unwrap_or_default(),
            etag: output.e_tag.take().map(ETag::into_value).unwrap_or_default(),
            modified: output.last_modified.as_ref().map(millis_of).unwrap_or_default(),
            len: output.content_length.and_then(|len| u64::try_from(len).ok()).unwrap_or_default(),
            range: output.content_range.take(),
            version: output.version_id.take(),
            class: output.storage_class.take(),
            body: None,
        }
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
    /// The answer to a GET or a HEAD.
    pub fn into_reply(self) -> Reply {
        let status = if self.range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let mut reply = Reply::empty(status);
        for (name, value) in &self.headers {
            reply.headers.insert(name.clone(), value.clone());
        }
        for (name, value) in &self.metadata {
            reply.set(&format!("{METADATA}{name}"), value);
        }
        reply.set("etag", &self.etag);
        reply.set("accept-ranges", "bytes");
        reply.set_time(self.modified);
        if let Some(range) = &self.range {
            reply.set("content-range", range);
        }
        if let Some(version) = &self.version {
            reply.set("x-object-version-id", version);
        }
        reply.len = Some(self.len);
        reply.body = self.body.map(Body::from).unwrap_or_default();
        reply
    }
}

/// The conditions of a read.
struct Conditions {
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
    if_modified_since: Option<Timestamp>,
    if_unmodified_since: Option<Timestamp>,
}

impl Conditions {
    fn of(call: &Call) -> Conditions {
        // Swift's entity tags come without quotes.
        let tags = |name: &str| {
            let text = call.header(name)?.trim();
            if text == "*" {
                return Some(ETagCondition::Any);
            }
            Some(ETagCondition::ETag(ETag::Strong(text.trim_matches('"').to_owned())))
        };
        let time = |name: &str| Timestamp::parse(TimestampFormat::HttpDate, call.header(name)?).ok();
        Conditions {
            if_match: tags("if-match"),
            if_none_match: tags("if-none-match"),
            if_modified_since: time("if-modified-since"),
            if_unmodified_since: time("if-unmodified-since"),
        }
    }
}

/// When the object ends that a request writes, in seconds since 1970.
fn ends_at(call: &Call) -> Result<Option<HeaderValue>> {
    let number = |name: &str| {
        let bad = |_| Fault::new(StatusCode::BAD_REQUEST, format!("Non-integer {name}"));
        call.header(name).map(|text| text.parse::<u64>().map_err(bad)).transpose()
    };
    let now = crate::store::now() / 1000;
    let (after, at) = (number("x-delete-after")?, number(expiry::HEADER)?);
    let Some(at) = after.map(|after| now.saturating_add(after)).or(at) else { return Ok(None) };
    if at <= now {
        let name = if after.is_some() { "X-Delete-After" } else { "X-Delete-At" };
        return Err(Fault::new(StatusCode::BAD_REQUEST, format!("{name} in past")));
    }
    Ok(Some(HeaderValue::from(at)))
}

/// Headers of S3 for an object that is written.
pub fn s3_headers(call: &Call, default_type: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let kept = KEPT.iter().chain([&manifests::DYNAMIC]);
    for name in kept {
        if let Some(value) = call.headers.get(*name) {
            headers.insert(HeaderName::from_static(name), value.clone());
        }
    }
    let content_type = call.header("content-type").or(default_type);
    if let Some(value) = content_type.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(CONTENT_TYPE, value);
    }
    headers
}

impl Swift {
    pub(super) async fn at_object(&self, call: &Call, body: Body) -> Result<Reply> {
        match call.method {
            Method::GET | Method::HEAD => self.get_object(call).await,
            Method::PUT if call.header("x-copy-from").is_some() => self.put_copy(call).await,
            Method::PUT if call.parameter("multipart-manifest") == Some("put") => {
                self.put_manifest(call, body).await
            }
            Method::PUT => {
                let len = call.header("content-length").and_then(|len| len.parse().ok());
                if len.is_none() && call.header("transfer-encoding").is_none() {
                    return Err(Fault::new(StatusCode::LENGTH_REQUIRED, "Missing Content-Length header."));
                }
                let mut headers = s3_headers(call, Some(DEFAULT_TYPE));
                if let Some(etag) = call.header("etag") {
                    let why = "the ETag of an upload is its MD5 in hexadecimal";
                    let bad = || Fault::new(StatusCode::UNPROCESSABLE_ENTITY, why);
                    headers.insert("content-md5", md5_of(etag).ok_or_else(bad)?);
                }
                let body = StreamingBlob::from(body);
                self.put_object(call, NewObject { headers, body, len, size: FileSize::ANY }).await
            }
            Method::POST => self.post_object(call).await,
            Method::DELETE => self.delete_object(call).await,
            _ if call.method.as_str() == "COPY" => self.copy_object(call).await,
            _ => Err(Fault::new(StatusCode::METHOD_NOT_ALLOWED, "")),
        }
    }

    fn fault(&self, call: &Call, error: s3s::S3Error) -> Fault {
        Fault::of(error, &call.identity)
    }

    /// Reads an object with the sender's rights. `is_asked`: it is the one that the request names, to which
    /// its conditions and its version belong.
    pub(super) async fn read(
        &self,
        call: &Call,
        bucket: &str,
        key: &str,
        range: Option<Range>,
        is_asked: bool,
    ) -> Result<Shown> {
        let version = call.parameter(VERSION).filter(|_| is_asked);
        let granted = self.authorize_version(call, "GetObject", bucket, Some(key), version).await?;
        let mut input = GetObjectInput::builder().bucket(bucket.to_owned()).key(key.to_owned()).range(range);
        if is_asked {
            input = input.version_id(version.map(str::to_owned));
            let Conditions { if_match, if_none_match, if_modified_since, if_unmodified_since } =
                Conditions::of(call);
            input = input.if_match(if_match).if_none_match(if_none_match);
            input = input.if_modified_since(if_modified_since).if_unmodified_since(if_unmodified_since);
        }
        let input = input.build().map_err(|e| self.fault(call, errors::internal(e)))?;
        let answer = self.core.get_object(s3_request(call, input, HeaderMap::new(), granted)).await;
        Ok(Shown::of_get(answer.map_err(|error| self.fault(call, error))?))
    }

    /// The same without the body.
    pub(super) async fn look(&self, call: &Call, bucket: &str, key: &str) -> Result<Shown> {
        let granted = self.authorize(call, "HeadObject", bucket, Some(key)).await?;
        let input = HeadObjectInput::builder().bucket(bucket.to_owned()).key(key.to_owned()).build();
        let input = input.map_err(|e| self.fault(call, errors::internal(e)))?;
        let answer = self.core.head_object(s3_request(call, input, HeaderMap::new(), granted)).await;
        Ok(Shown::of_head(answer.map_err(|error| self.fault(call, error))?))
    }

    async fn get_object(&self, call: &Call) -> Result<Reply> {
        let bucket = self.container(call, call.container()).await?;
        let name = &bucket.record.name;
        // Several ranges are answered with the whole, as HTTP allows.
        let range = call.header("range").and_then(|text| Range::parse(text).ok());
        let shown = match self.read(call, name, call.object(), range, true).await {
            Err(fault) if range.is_some() && fault.status == StatusCode::RANGE_NOT_SATISFIABLE => {
                // It may be a manifest, whose range is one of what it stands for.
                let shown = self.look(call, name, call.object()).await?;
                if !manifests::is_manifest(&shown) {
                    return Err(fault);
                }
                shown
            }
            shown => shown?,
        };
        if manifests::is_manifest(&shown) && call.parameter("multipart-manifest") != Some("get") {
            return self.get_large(call, &bucket, shown, range).await;
        }
        let is_manifest = manifests::is_manifest(&shown);
        let mut reply = shown.into_reply();
        if is_manifest {
            reply.set("content-type", "application/json; charset=utf-8");
        }
        if let Some(disposition) = temp_urls::disposition(call) {
            reply.set("content-disposition", disposition);
        }
        Ok(reply)
    }

    /// Writes an object; the one that it replaces goes to the archive of the container.
    pub(super) async fn put_object(&self, call: &Call, new: NewObject) -> Result<Reply> {
        let bucket = self.container(call, call.container()).await?;
        self.keep_version(call, &bucket, call.object()).await?;
        self.put_object_only(call, new).await
    }

    pub(super) async fn put_object_only(&self, call: &Call, new: NewObject) -> Result<Reply> {
        let NewObject { mut headers, body, len, size } = new;
        headers.extend(ends_at(call)?.map(|value| (HeaderName::from_static(expiry::HEADER), value)));
        if let Some(manifest) = call.header(manifests::DYNAMIC)
            && Place::of_object(manifest).is_none()
        {
            let why = "X-Object-Manifest must be in the format container/prefix";
            return Err(Fault::new(StatusCode::BAD_REQUEST, why));
        }
        let bucket = self.container(call, call.container()).await?;
        let name = &bucket.record.name;
        let granted = self.authorize(call, "PutObject", name, Some(call.object())).await?;
        let metadata: Metadata = call.family(METADATA).into_iter().collect();
        let Conditions { if_match, if_none_match, .. } = Conditions::of(call);
        let input = PutObjectInput::builder().bucket(name.clone()).key(call.object().to_owned());
        let input = input.body(Some(body)).content_length(len).metadata(Some(metadata));
        let input = input.if_match(if_match).if_none_match(if_none_match).build();
        let input = input.map_err(|e| self.fault(call, errors::internal(e)))?;
        let mut request = s3_request(call, input, headers, granted);
        request.extensions.insert(size);
        let answer = self.core.put_object(request).await;
        let output = answer.map_err(|error| self.fault(call, error))?.output;
        let mut reply = Reply::empty(StatusCode::CREATED);
        reply.set("etag", output.e_tag.map(ETag::into_value).unwrap_or_default());
        reply.set_time(crate::store::now());
        if let Some(version) = output.version_id {
            reply.set("x-object-version-id", version);
        }
        Ok(reply)
    }

    async fn delete_object(&self, call: &Call) -> Result<Reply> {
        let bucket = self.container(call, call.container()).await?;
        if call.parameter("multipart-manifest") == Some("delete") {
            return self.delete_large(call, &bucket).await;
        }
        if let Some(version) = call.parameter(VERSION) {
            self.remove_version(call, &bucket.record.name, call.object(), Some(version)).await?;
        } else {
            self.remove(call, &bucket.record.name, call.object()).await?;
        }
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }

    /// Deletes an object. In a container with an archive, an older version may take its place.
    pub(super) async fn remove(&self, call: &Call, bucket: &str, key: &str) -> Result<()> {
        let open = self.core.buckets.open(bucket).await.map_err(|error| self.fault(call, error))?;
        match self.delete_with_archive(call, &open, key).await? {
            true => Ok(()),
            false => self.remove_only(call, bucket, key).await,
        }
    }

    /// Deletes an object, whatever the container's archive has.
    pub(super) async fn remove_only(&self, call: &Call, bucket: &str, key: &str) -> Result<()> {
        self.remove_version(call, bucket, key, None).await
    }

    /// Deletes an object or a version of it. Unlike S3, Swift tells when there was none.
    async fn remove_version(
        &self,
        call: &Call,
        bucket: &str,
        key: &str,
        version: Option<&str>,
    ) -> Result<()> {
        let granted = self.authorize_version(call, "DeleteObject", bucket, Some(key), version).await?;
        if version.is_none() {
            let open = self.core.buckets.open(bucket).await.map_err(|error| self.fault(call, error))?;
            self.core.object(&open, key, None).await.map_err(|error| self.fault(call, error))?;
        }
        let input = DeleteObjectInput::builder().bucket(bucket.to_owned()).key(key.to_owned());
        let input = input.version_id(version.map(str::to_owned)).build();
        let input = input.map_err(|e| self.fault(call, errors::internal(e)))?;
        let answer = self.core.delete_object(s3_request(call, input, HeaderMap::new(), granted)).await;
        answer.map(drop).map_err(|error| self.fault(call, error))
    }

    /// PUT with `X-Copy-From`.
    async fn put_copy(&self, call: &Call) -> Result<Reply> {
        let from = Place::of_object(call.header("x-copy-from").unwrap_or_default());
        let from = from.ok_or_else(|| bad_copy("X-Copy-From"))?;
        let bucket = self.container(call, call.container()).await?;
        self.copy(call, from, (bucket.record.name.clone(), call.object().to_owned())).await
    }

    /// COPY to a `Destination`.
    async fn copy_object(&self, call: &Call) -> Result<Reply> {
        let to = Place::of_object(call.header("destination").unwrap_or_default());
        let (container, object) = to.ok_or_else(|| bad_copy("Destination"))?;
        let source = self.container(call, call.container()).await?;
        let target = self.container(call, &container).await?;
        let from = (source.record.name.clone(), call.object().to_owned());
        self.copy(call, from, (target.record.name.clone(), object)).await
    }

    async fn copy(&self, call: &Call, from: (String, String), to: (String, String)) -> Result<Reply> {
        let source = self.container(call, &from.0).await?.record.name.clone();
        let shown = self.look(call, &source, &from.1).await?;
        if manifests::is_manifest(&shown) && call.parameter("multipart-manifest") != Some("get") {
            let why = "the source is a manifest: copy it with ?multipart-manifest=get, or upload what it \
                       stands for";
            return Err(Fault::new(StatusCode::BAD_REQUEST, why));
        }
        let target = self.core.buckets.open(&to.0).await.map_err(|error| self.fault(call, error))?;
        self.keep_version(call, &target, &to.1).await?;
        let is_fresh = call
            .header("x-fresh-metadata")
            .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on"));
        let (mut headers, mut metadata) = match is_fresh {
            true => (HeaderMap::new(), Metadata::new()),
            false => (shown.headers.clone(), shown.metadata.clone()),
        };
        headers.extend(s3_headers(call, None).into_iter().filter_map(|(name, value)| Some((name?, value))));
        headers.extend(ends_at(call)?.map(|value| (HeaderName::from_static(expiry::HEADER), value)));
        metadata.extend(call.family(METADATA));
        let copy = CopyTo { from: (source, from.1), to, headers, metadata, class: None };
        let mut reply = self.replace(call, copy).await?;
        reply.status = StatusCode::CREATED;
        reply.len = Some(0);
        reply.set("x-copied-from", format!("{}/{}", call.container(), call.object()));
        reply.set("x-copied-from-last-modified", super::reply::http_date(shown.modified));
        Ok(reply)
    }

    /// POST replaces the metadata.
    async fn post_object(&self, call: &Call) -> Result<Reply> {
        let bucket = self.container(call, call.container()).await?;
        let here = (bucket.record.name.clone(), call.object().to_owned());
        let shown = self.look(call, &here.0, &here.1).await?;
        // What says that the body is a manifest stays, as does the type.
        let mut headers = HeaderMap::new();
        for name in [CONTENT_TYPE.as_str(), manifests::STATIC] {
            if let Some(value) = shown.headers.get(name) {
                headers.insert(HeaderName::from_static(name), value.clone());
            }
        }
        headers.extend(s3_headers(call, None).into_iter().filter_map(|(name, value)| Some((name?, value))));
        // Without one, the object does not end any more.
        headers.extend(ends_at(call)?.map(|value| (HeaderName::from_static(expiry::HEADER), value)));
        let metadata = call.family(METADATA).into_iter().collect();
        let class = shown.class;
        let copy = CopyTo { from: here.clone(), to: here, headers, metadata, class };
        let mut reply = self.replace(call, copy).await?;
        reply.status = StatusCode::ACCEPTED;
        reply.headers.remove("etag");
        Ok(reply)
    }

    pub(super) async fn replace(&self, call: &Call, copy: CopyTo) -> Result<Reply> {
        let CopyTo { from, to, headers, metadata, class } = copy;
        let granted = self.authorize(call, "CopyObject", &to.0, Some(&to.1)).await?;
        self.authorize(call, "GetObject", &from.0, Some(&from.1)).await?;
        let source = CopySource::Bucket { bucket: from.0.into(), key: from.1.into(), version_id: None };
        let input = CopyObjectInput::builder().bucket(to.0).key(to.1).copy_source(source);
        let replaces = MetadataDirective::from_static(MetadataDirective::REPLACE);
        let input = input.metadata_directive(Some(replaces)).metadata(Some(metadata));
        let input = input.storage_class(class).build();
        let input = input.map_err(|e| self.fault(call, errors::internal(e)))?;
        let answer = self.core.copy_object(s3_request(call, input, headers, granted)).await;
        let output = answer.map_err(|error| self.fault(call, error))?.output;
        let result = output.copy_object_result.unwrap_or_default();
        let mut reply = Reply::empty(StatusCode::CREATED);
        reply.set("etag", result.e_tag.map(ETag::into_value).unwrap_or_default());
        if let Some(modified) = &result.last_modified {
            reply.set_time(millis_of(modified));
        }
        Ok(reply)
    }
}

/// An object that is written.
pub struct NewObject {
    pub headers: HeaderMap,
    pub body: StreamingBlob,
    /// None: it is known when the body ends.
    pub len: Option<i64>,
    pub size: FileSize,
}

/// A copy with new headers and metadata.
pub struct CopyTo {
    pub from: (String, String),
    pub to: (String, String),
    pub headers: HeaderMap,
    pub metadata: Metadata,
    /// None for STANDARD.
    pub class: Option<StorageClass>,
}

fn bad_copy(header: &str) -> Fault {
    let why = format!("{header} header must be of the form <container name>/<object name>");
    Fault::new(StatusCode::PRECONDITION_FAILED, why)
}

/// `Content-MD5` from an `ETag`.
fn md5_of(etag: &str) -> Option<HeaderValue> {
    let digits = etag.trim_matches('"');
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    let bytes: Vec<u8> = (0..32).step_by(2).map(byte).collect::<Option<_>>()?;
    HeaderValue::try_from(STANDARD.encode(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags_of_uploads_are_digests() {
        let digest = md5_of("\"d41d8cd98f00b204e9800998ecf8427e\"").unwrap();
        assert_eq!(digest, "1B2M2Y8AsgTpgAmY7PhCfg==");
        for bad in ["", "d41d", "zz1d8cd98f00b204e9800998ecf8427e", "+11d8cd98f00b204e9800998ecf8427e-"] {
            assert_eq!(md5_of(bad), None, "{bad}");
        }
    }
}
