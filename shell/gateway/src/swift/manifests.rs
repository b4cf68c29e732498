//! Objects that stand for a row of others: dynamic ones, which name a prefix, and static ones, which list
//! them.
//!
//! A static one is stored with its list as the body. S3 clients get the list.

use super::objects::{NewObject, Shown};
use super::place::Place;
use super::reply::{Fault, Reply, Result};
use super::{Call, Swift, read_text};
use crate::buckets::OpenBucket;
use crate::checksums::hex;
use crate::errors;
use crate::send;
use bytes::Bytes;
use futures_util::StreamExt;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use nacre_s3::{Entry, FileSize, Item, PageRequest};
use nacre_wire::from_slice;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{Range, StreamingBlob};
use s3s::{Body, StdError};
use serde_json::{Value, json};
use std::fmt::Write;
use tokio::sync::mpsc;

/// The header of a dynamic one: `container/prefix`.
pub const DYNAMIC: &str = "x-object-manifest";
/// The header of a static one.
pub const STATIC: &str = "x-static-large-object";
/// The most objects that a static one may stand for.
pub const SEGMENTS_MAX: usize = 1000;
/// The most objects that a dynamic one may stand for.
const DYNAMIC_MAX: usize = 100_000;
const PAGE: usize = 1000;

/// Whether an object is one of them.
pub fn is_manifest(shown: &Shown) -> bool {
    shown.header(DYNAMIC).is_some() || shown.header(STATIC).is_some()
}

/// An object, or a range of one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    container: String,
    object: String,
    etag: String,
    /// Of the whole object.
    size: u64,
    /// The bytes that are meant.
    bytes: std::ops::Range<u64>,
}

impl Segment {
    fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
    fn is_whole(&self) -> bool {
        self.bytes == (0..self.size)
    }
    fn path(&self) -> String {
        format!("/{}/{}", self.container, self.object)
    }
    fn json(&self) -> Value {
        let mut value = json!({ "name": self.path(), "hash": self.etag, "bytes": self.size });
        if !self.is_whole() {
            value["range"] = format!("{}-{}", self.bytes.start, self.bytes.end - 1).into();
        }
        value
    }
    /// As it is stored.
    fn of_json(value: &Value) -> Option<Segment> {
        let (container, object) = value["name"].as_str()?.strip_prefix('/')?.split_once('/')?;
        let size = value["bytes"].as_u64()?;
        let bytes = match value["range"].as_str() {
            None => 0..size,
            Some(range) => range_of(range, size)?,
        };
        Some(Segment {
            container: container.to_owned(),
            object: object.to_owned(),
            etag: value["hash"].as_str()?.to_owned(),
            size,
            bytes,
        })
    }
}

/// `first-last`, `first-` or `-count`, of an object of this size; none if it is not within it.
fn range_of(text: &str, size: u64) -> Option<std::ops::Range<u64>> {
    let (first, last) = text.trim().split_once('-')?;
    let bytes = match (first.is_empty(), last.is_empty()) {
        (true, true) => return None,
        (true, false) => size.checked_sub(last.parse().ok()?)?..size,
        (false, true) => first.parse().ok()?..size,
        (false, false) => first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?,
    };
    (bytes.start < bytes.end && bytes.end <= size).then_some(bytes)
}

/// The entity tag, in quotes since it is not the MD5 of the bytes.
fn etag_of(segments: &[Segment]) -> String {
    let mut digest = Md5::new();
    for segment in segments {
        digest.update(segment.etag.as_bytes());
        if !segment.is_whole() {
            digest.update(format!(":{}-{};", segment.bytes.start, segment.bytes.end - 1).as_bytes());
        }
    }
    format!("\"{}\"", hex(&digest.finalize()[..]))
}

/// The size of the whole. A client of S3 can store any sizes in a manifest: none if they are no size
/// together.
fn total_of(segments: &[Segment]) -> Option<u64> {
    segments.iter().try_fold(0_u64, |total, segment| total.checked_add(segment.len()))
}

/// The part of each that lies in a range of the whole.
fn cut(segments: &[Segment], range: std::ops::Range<u64>) -> Vec<Segment> {
    let mut at = 0;
    let mut parts = Vec::new();
    for segment in segments {
        let (start, end) = (range.start.max(at), range.end.min(at + segment.len()));
        if start < end {
            let base = segment.bytes.start;
            parts.push(Segment { bytes: base + start - at..base + end - at, ..segment.clone() });
        }
        at += segment.len();
    }
    parts
}

impl Swift {
    /// What a manifest stands for.
    async fn segments(&self, call: &Call, shown: &mut Shown) -> Result<Vec<Segment>> {
        match shown.header(DYNAMIC).map(str::to_owned) {
            Some(named) => self.dynamic_segments(call, &named).await,
            None => {
                let body = match shown.body.take() {
                    Some(body) => Body::from(body),
                    None => {
                        let bucket = self.container(call, call.container()).await?;
                        let whole = self.read(call, &bucket.record.name, call.object(), None, false).await?;
                        whole.body.map(Body::from).unwrap_or_default()
                    }
                };
                let broken = || Fault::new(StatusCode::CONFLICT, "the manifest cannot be read");
                let list: Value = serde_json::from_slice(&read_text(body).await?).map_err(|_| broken())?;
                let list = list.as_array().filter(|list| list.len() <= SEGMENTS_MAX).ok_or_else(broken)?;
                list.iter().map(Segment::of_json).collect::<Option<_>>().ok_or_else(broken)
            }
        }
    }

    async fn dynamic_segments(&self, call: &Call, named: &str) -> Result<Vec<Segment>> {
        let broken = || Fault::new(StatusCode::CONFLICT, "X-Object-Manifest names no prefix in a container");
        let (container, prefix) = Place::of_object(named).ok_or_else(broken)?;
        let bucket = self.container(call, &container).await?;
        self.authorize(call, "ListObjects", &bucket.record.name, None).await?;
        let mut segments = Vec::new();
        let mut after = Bytes::new();
        loop {
            let request = PageRequest {
                prefix: Bytes::from(prefix.clone()),
                after,
                max: PAGE,
                ..PageRequest::default()
            };
            let page = self.core.page(&bucket, request).await.map_err(|e| Fault::of(e, &call.identity))?;
            for item in &page.items {
                let Item::Key(key, value) = item else { continue };
                let entry: Entry =
                    from_slice(value).map_err(|e| Fault::of(errors::corrupt(e), &call.identity))?;
                segments.push(Segment {
                    container: container.clone(),
                    object: String::from_utf8_lossy(key).into_owned(),
                    etag: entry.etag,
                    size: entry.size,
                    bytes: 0..entry.size,
                });
            }
            match page.items.last().filter(|_| page.is_truncated) {
                None => return Ok(segments),
                Some(_) if segments.len() >= DYNAMIC_MAX => {
                    return Err(Fault::new(StatusCode::CONFLICT, "the manifest stands for too many objects"));
                }
                Some(last) => after = Bytes::copy_from_slice(last.marker()),
            }
        }
    }

    /// GET or HEAD of what a manifest stands for.
    pub(super) async fn get_large(
        &self,
        call: &Call,
        bucket: &OpenBucket,
        mut shown: Shown,
        range: Option<Range>,
    ) -> Result<Reply> {
        // With a range, the body that was read is a piece of the list.
        if range.is_some() {
            shown = self.read(call, &bucket.record.name, call.object(), None, true).await?;
        }
        let mut segments = self.segments(call, &mut shown).await?;
        segments.retain(|segment| segment.len() > 0);
        let broken = || Fault::new(StatusCode::CONFLICT, "the manifest cannot be read");
        let total = total_of(&segments).ok_or_else(broken)?;
        shown.etag = etag_of(&segments);
        shown.len = total;
        shown.range = None;
        if let Some(range) = range {
            let range = range.check(total).map_err(|error| Fault::of(error.into(), &call.identity))?;
            segments = cut(&segments, range.clone());
            shown.len = range.end - range.start;
            shown.range = Some(format!("bytes {}-{}/{total}", range.start, range.end.saturating_sub(1)));
        }
        if call.method == Method::GET {
            let (sender, pieces) = mpsc::channel(1);
            tokio::spawn(self.clone().send(call.clone(), segments, sender));
            shown.body = Some(send::pieces(pieces, shown.len));
        }
        let is_static = shown.header(STATIC).is_some();
        let mut reply = shown.into_reply();
        if is_static {
            reply.set(STATIC, "True");
        }
        Ok(reply)
    }

    /// Sends the objects one after the other, with the rights of the request's sender.
    async fn send(
        self,
        call: Call,
        segments: Vec<Segment>,
        sender: mpsc::Sender<std::result::Result<Bytes, StdError>>,
    ) {
        for segment in segments {
            let range = Range::Int { first: segment.bytes.start, last: Some(segment.bytes.end - 1) };
            let read = async {
                let bucket = self.container(&call, &segment.container).await?;
                let shown =
                    self.read(&call, &bucket.record.name, &segment.object, Some(range), false).await?;
                match shown.etag == segment.etag {
                    true => Ok(shown.body),
                    false => Err(Fault::new(StatusCode::CONFLICT, "it was replaced")),
                }
            };
            let body = match read.await {
                Ok(body) => body,
                Err(fault) => {
                    let why = format!("{}: {}", segment.path(), fault.text);
                    tracing::info!("a large object ends early: {why}");
                    let _ = sender.send(Err(why.into())).await;
                    return;
                }
            };
            let Some(mut body) = body else { continue };
            while let Some(piece) = body.next().await {
                let failed = piece.is_err();
                if sender.send(piece).await.is_err() || failed {
                    return;
                }
            }
        }
    }

    /// A list of objects as an object.
    pub(super) async fn put_manifest(&self, call: &Call, body: Body) -> Result<Reply> {
        let bad = |why: String| Fault::new(StatusCode::BAD_REQUEST, why);
        let text = read_text(body).await?;
        let list: Value =
            serde_json::from_slice(&text).map_err(|e| bad(format!("Manifest must be valid JSON: {e}")))?;
        let list = list.as_array().ok_or_else(|| bad("Manifest must be a list.".into()))?;
        if list.is_empty() || list.len() > SEGMENTS_MAX {
            return Err(bad(format!("a manifest lists from 1 to {SEGMENTS_MAX} segments")));
        }
        let (mut segments, mut faults) = (Vec::with_capacity(list.len()), String::new());
        for value in list {
            match self.segment(call, value).await {
                Ok(segment) => segments.push(segment),
                Err((path, why)) => drop(write!(faults, "\n{path}, {why}")),
            }
        }
        if !faults.is_empty() {
            return Err(bad(format!("Errors:{faults}")));
        }
        let etag = etag_of(&segments);
        if call.header("etag").is_some_and(|given| given.trim_matches('"') != etag.trim_matches('"')) {
            return Err(Fault::new(StatusCode::UNPROCESSABLE_ENTITY, "the ETag is not that of the segments"));
        }
        let mut headers = HeaderMap::new();
        let content_type = call.header("content-type").unwrap_or("application/octet-stream");
        if let Ok(value) = HeaderValue::try_from(content_type) {
            headers.insert("content-type", value);
        }
        headers.insert(STATIC, HeaderValue::from_static("True"));
        let body = Value::from(segments.iter().map(Segment::json).collect::<Vec<_>>()).to_string();
        let len = i64::try_from(body.len()).ok();
        let body = StreamingBlob::from(Body::from(body));
        let new = NewObject { headers, body, len, size: FileSize::ANY };
        let mut reply = self.put_object(call, new).await?;
        reply.set("etag", etag);
        Ok(reply)
    }

    /// Checks one line of a list; the path, and what is wrong with it.
    async fn segment(&self, call: &Call, value: &Value) -> std::result::Result<Segment, (String, String)> {
        let path = value["path"].as_str().unwrap_or_default().to_owned();
        let fail = |why: &str| (path.clone(), why.to_owned());
        let named = path.strip_prefix('/').unwrap_or(&path).split_once('/');
        let (container, object) = named.filter(|(_, object)| !object.is_empty()).ok_or_else(|| {
            fail("path must be /container/object, and other kinds of segments are not supported")
        })?;
        let bucket = self.container(call, container).await.map_err(|fault| fail(&fault.text))?;
        let shown = self.look(call, &bucket.record.name, object).await.map_err(|fault| fail(&fault.text))?;
        if is_manifest(&shown) {
            return Err(fail("a manifest within a manifest is not supported"));
        }
        if value["etag"].as_str().is_some_and(|etag| etag != shown.etag) {
            return Err(fail("Etag Mismatch"));
        }
        if value["size_bytes"].as_u64().is_some_and(|size| size != shown.len) {
            return Err(fail("Size Mismatch"));
        }
        let bytes = match value["range"].as_str() {
            None => 0..shown.len,
            Some(range) => range_of(range, shown.len).ok_or_else(|| fail("Unsatisfiable Range"))?,
        };
        if bytes.is_empty() {
            return Err(fail("Too Small; each segment must be at least 1 byte."));
        }
        let (container, object) = (container.to_owned(), object.to_owned());
        Ok(Segment { container, object, etag: shown.etag, size: shown.len, bytes })
    }

    /// Deletes a static one with what it lists.
    pub(super) async fn delete_large(&self, call: &Call, bucket: &OpenBucket) -> Result<Reply> {
        let name = &bucket.record.name;
        let mut shown = self.read(call, name, call.object(), None, false).await?;
        if shown.header(STATIC).is_none() {
            return Err(Fault::new(StatusCode::BAD_REQUEST, "Not an SLO manifest"));
        }
        let segments = self.segments(call, &mut shown).await?;
        let mut outcome = super::bulk::Outcome::default();
        for Segment { container, object, .. } in &segments {
            let result = self.remove_at(call, container, Some(object)).await;
            outcome.note(&format!("/{container}/{object}"), result);
        }
        let result = self.remove(call, name, call.object()).await;
        outcome.note(&format!("/{}/{}", bucket.record.plain_name(), call.object()), result);
        Ok(outcome.reply(call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(object: &str, size: u64, bytes: std::ops::Range<u64>) -> Segment {
        Segment { container: "c".into(), object: object.into(), etag: "e".into(), size, bytes }
    }

    #[test]
    fn ranges_are_cut_out_of_segments() {
        let segments = [segment("a", 10, 0..10), segment("b", 10, 5..10), segment("c", 10, 0..10)];
        assert_eq!(cut(&segments, 0..25), segments);
        let expected = [segment("a", 10, 9..10), segment("b", 10, 5..10), segment("c", 10, 0..1)];
        assert_eq!(cut(&segments, 9..16), expected);
        assert_eq!(cut(&segments, 11..12), [segment("b", 10, 6..7)]);
        assert_eq!(range_of("0-4", 5), Some(0..5));
        assert_eq!(range_of("3-", 5), Some(3..5));
        assert_eq!(range_of("-2", 5), Some(3..5));
        for bad in ["", "-", "0-5", "4-3", "-6", "x-", "5-", "0-18446744073709551615"] {
            assert_eq!(range_of(bad, 5), None, "{bad}");
        }
    }

    #[test]
    fn sizes_that_are_no_size_together_are_refused() {
        let huge = segment("a", u64::MAX, 0..u64::MAX);
        assert_eq!(total_of(&[segment("a", 10, 2..7), segment("b", 1, 0..1)]), Some(6));
        assert_eq!(total_of(&[huge, segment("b", 1, 0..1)]), None);
    }

    #[test]
    fn segments_survive_their_encoding() {
        for part in [segment("a/b", 10, 0..10), segment("a", 10, 2..7)] {
            assert_eq!(Segment::of_json(&part.json()), Some(part));
        }
        assert_eq!(Segment::of_json(&json!({ "name": "/c/o", "hash": "e" })), None);
        let whole = etag_of(&[segment("a", 1, 0..1)]);
        assert_eq!(whole, "\"e1671797c52e15f763380b45e841ec32\"");
    }
}
