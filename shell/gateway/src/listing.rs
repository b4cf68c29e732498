//! Listings of objects.

use crate::buckets::OpenBucket;
use crate::errors;
use crate::objects::{etag, timestamp};
use crate::service::Core;
use crate::store::now;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use nacre_s3::{Answer, Ask, Entry, Item, Page, PageRequest};
use nacre_wire::from_slice;
use s3s::dto::{
    ChecksumAlgorithm, CommonPrefix, EncodingType, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, Object, ObjectStorageClass, Owner,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// The most lines of a page.
pub const PAGE_MAX: i32 = 1000;

/// How names are written into an answer: as they are, or percent-encoded.
#[derive(Clone, Copy)]
pub struct Names {
    are_encoded: bool,
}

impl Names {
    /// As the client asks for.
    pub fn of(encoding: Option<&EncodingType>) -> S3Result<Names> {
        match encoding.map(EncodingType::as_str) {
            None => Ok(Names { are_encoded: false }),
            Some("url") => Ok(Names { are_encoded: true }),
            Some(_) => Err(s3_error!(InvalidArgument, "Invalid Encoding Method specified in Request")),
        }
    }
    /// A name as it is put into an answer.
    pub fn write(self, name: &[u8]) -> String {
        if self.are_encoded { percent_encode(name) } else { String::from_utf8_lossy(name).into_owned() }
    }
}

/// As URLs have it; slashes stay.
pub fn percent_encode(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' | b'/' => {
                text.push(byte.into())
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// None if it is not percent-encoded UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The names and values of a query or a form, without percent-encoding. What is not percent-encoded stays as
/// it is.
pub fn url_pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode(&text).unwrap_or(text)
    };
    split_pairs(text).map(move |(name, value)| (decode(name), decode(value)))
}

/// The names and values of `name=value&...`, as they are written.
pub fn split_pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// How many lines are asked for.
pub fn page_size(max: Option<i32>) -> S3Result<i32> {
    match max.unwrap_or(PAGE_MAX) {
        ..0 => Err(s3_error!(InvalidArgument, "max-keys must not be negative")),
        max => Ok(max.min(PAGE_MAX)),
    }
}

fn bytes(text: Option<&str>) -> Bytes {
    Bytes::copy_from_slice(text.unwrap_or_default().as_bytes())
}

/// Lines of a page, as answers have them.
struct Lines {
    objects: Vec<Object>,
    prefixes: Vec<CommonPrefix>,
}

fn lines(page: &Page, names: Names, with_owner: bool) -> S3Result<Lines> {
    let mut lines = Lines { objects: Vec::new(), prefixes: Vec::new() };
    for item in &page.items {
        match item {
            Item::Prefix(prefix) => {
                lines.prefixes.push(CommonPrefix { prefix: Some(names.write(prefix)) });
            }
            Item::Key(key, value) => {
                let entry: Entry = from_slice(value).map_err(errors::corrupt)?;
                if entry.is_expired(now()) {
                    continue;
                }
                lines.objects.push(line(key, entry, names, with_owner));
            }
        }
    }
    Ok(lines)
}

fn line(key: &[u8], entry: Entry, names: Names, with_owner: bool) -> Object {
    let class = if entry.storage_class.is_empty() { "STANDARD".to_owned() } else { entry.storage_class };
    let owner = Owner { display_name: Some(entry.owner.clone()), id: Some(entry.owner) };
    Object {
        checksum_algorithm: (!entry.checksum.is_empty())
            .then(|| vec![ChecksumAlgorithm::from(entry.checksum)]),
        e_tag: Some(etag(&entry.etag)),
        key: Some(names.write(key)),
        last_modified: Some(timestamp(entry.mtime)),
        owner: with_owner.then_some(owner),
        size: i64::try_from(entry.size).ok(),
        storage_class: Some(ObjectStorageClass::from(class)),
        ..Object::default()
    }
}

impl Core {
    /// A page of a bucket.
    pub async fn page(&self, bucket: &OpenBucket, request: PageRequest) -> S3Result<Page> {
        if request.max == 0 {
            return Ok(Page::default());
        }
        match bucket.index.ask(Ask::Page(request)).await {
            Ok(Answer::Page(page)) => Ok(page),
            Ok(_) => Err(errors::internal("a page was not answered with a page")),
            Err(refusal) => Err(self.refused(bucket, &refusal)),
        }
    }

    /// ListObjects.
    pub async fn list_objects(
        &self,
        req: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let names = Names::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_keys)?;
        let request = PageRequest {
            prefix: bytes(input.prefix.as_deref()),
            delimiter: bytes(input.delimiter.as_deref()),
            after: bytes(input.marker.as_deref()),
            max: max as usize,
            ..PageRequest::default()
        };
        let page = self.page(&bucket, request).await?;
        let Lines { objects, prefixes } = lines(&page, names, true)?;
        let last = page.items.last().filter(|_| page.is_truncated);
        let given = |text: Option<String>| text.map(|text| names.write(text.as_bytes()));
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            next_marker: last.map(|item| names.write(item.marker())),
            prefix: Some(given(input.prefix).unwrap_or_default()),
            marker: Some(given(input.marker).unwrap_or_default()),
            delimiter: given(input.delimiter),
            max_keys: Some(max),
            is_truncated: Some(page.is_truncated),
            contents: Some(objects),
            common_prefixes: Some(prefixes),
            encoding_type: input.encoding_type,
            ..ListObjectsOutput::default()
        }))
    }

    /// ListObjectsV2.
    pub async fn list_objects_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let names = Names::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_keys)?;
        let after = match &input.continuation_token {
            None => bytes(input.start_after.as_deref()),
            Some(token) => URL_SAFE_NO_PAD
                .decode(token)
                .map_err(|_| s3_error!(InvalidArgument, "The continuation token provided is incorrect"))?
                .into(),
        };
        let request = PageRequest {
            prefix: bytes(input.prefix.as_deref()),
            delimiter: bytes(input.delimiter.as_deref()),
            after,
            max: max as usize,
            ..PageRequest::default()
        };
        let page = self.page(&bucket, request).await?;
        let Lines { objects, prefixes } = lines(&page, names, input.fetch_owner.unwrap_or(false))?;
        let last = page.items.last().filter(|_| page.is_truncated);
        let given = |text: Option<String>| text.map(|text| names.write(text.as_bytes()));
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            next_continuation_token: last.map(|item| URL_SAFE_NO_PAD.encode(item.marker())),
            continuation_token: input.continuation_token,
            start_after: given(input.start_after),
            prefix: Some(given(input.prefix).unwrap_or_default()),
            delimiter: given(input.delimiter),
            max_keys: Some(max),
            key_count: i32::try_from(objects.len() + prefixes.len()).ok(),
            is_truncated: Some(page.is_truncated),
            contents: Some(objects),
            common_prefixes: Some(prefixes),
            encoding_type: input.encoding_type,
            ..ListObjectsV2Output::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_percent_encoding() {
        for name in ["a b", "a+b", "a%2Bb", "ä/ö", "\u{e000}", "a//b/../"] {
            assert_eq!(percent_decode(&percent_encode(name.as_bytes())).as_deref(), Some(name));
        }
        assert_eq!(percent_encode(b"a b/+%"), "a%20b/%2B%25");
        assert_eq!(percent_decode("%zz"), None);
        assert_eq!(percent_decode("%4"), None);
    }
}
