//! Lists of the versions that a container keeps itself (`X-Versions-Enabled`).

use super::listing::{self, Line, Wanted};
use super::reply::{Fault, Reply, Result};
use super::{Call, Swift};
use crate::buckets::OpenBucket;
use crate::errors;
use crate::versions::line_of;
use hyper::StatusCode;
use nacre_s3::{Entry, Item, PageRequest, VersionId};
use nacre_wire::from_slice;

const PAGE: usize = 1000;

impl Swift {
    /// All versions of all objects, the newest of each first; DELETEs among them.
    pub(super) async fn list_versions(&self, call: &Call, bucket: &OpenBucket) -> Result<Reply> {
        self.authorize(call, "ListObjectVersions", &bucket.record.name, None).await?;
        let fault = |error| Fault::of(error, &call.identity);
        let wanted = Wanted::of(call)?;
        let marker = call.parameter("version_marker").unwrap_or_default();
        if wanted.marker.is_empty() && !marker.is_empty() {
            return Err(Fault::new(StatusCode::BAD_REQUEST, "a version_marker needs a marker"));
        }
        let stamp = match marker {
            "" => None,
            marker => self.core.stamp_of(bucket, &wanted.marker, marker).await.map_err(fault)?,
        };
        let request = PageRequest {
            prefix: wanted.prefix.clone().into(),
            delimiter: wanted.delimiter.clone().into(),
            ..PageRequest::default()
        };
        let mut request = request.versions_behind(&wanted.marker, stamp);
        let mut lines: Vec<Line> = Vec::new();
        while lines.len() < wanted.limit {
            request.max = PAGE.min(wanted.limit - lines.len());
            let page = self.core.page(bucket, request.clone()).await.map_err(fault)?;
            for item in &page.items {
                lines.push(line(item).map_err(fault)?);
            }
            match page.items.last() {
                Some(last) if page.is_truncated => request.after = last.marker().clone(),
                _ => break,
            }
        }
        if let Some(end) = &wanted.end_marker {
            lines.retain(|line| line.name() < end.as_str());
        }
        let mut reply = listing::reply(call, "container", bucket.record.plain_name(), &lines);
        self.describe_container(call, bucket, &mut reply).await?;
        Ok(reply)
    }
}

fn line(item: &Item) -> s3s::S3Result<Line> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (line, value) = match item {
        Item::Prefix(prefix) => return Ok(Line::Prefix(text(prefix))),
        Item::Key(line, value) => (line, value),
    };
    let (key, is_latest) = line_of(line).ok_or_else(|| errors::corrupt("a version without a key"))?;
    let entry: Entry = from_slice(value).map_err(errors::corrupt)?;
    let version = match entry.version() {
        VersionId::Null => "null".to_owned(),
        version => version.to_string(),
    };
    Ok(Line::Version {
        name: text(key),
        version,
        is_latest,
        is_deleted: entry.is_marker,
        etag: entry.etag,
        bytes: entry.size,
        modified: entry.mtime,
    })
}
