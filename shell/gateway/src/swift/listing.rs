//! Lists of containers and objects: which page, and in which format.

use super::Call;
use super::reply::{Fault, Reply, Result};
use crate::query::xml::escape;
use hyper::StatusCode;
use serde_json::{Value, json};
use std::fmt::Write;
use time::OffsetDateTime;

/// The most lines of a page.
pub const PAGE_MAX: usize = 10_000;

/// The page that a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub limit: usize,
    /// The page begins behind this name.
    pub marker: String,
    /// It ends before this name.
    pub end_marker: Option<String>,
    pub prefix: String,
    pub delimiter: String,
    /// Names that end with the delimiter's first place are left out: a request with `path`.
    pub without_prefixes: bool,
}

impl Wanted {
    pub fn of(call: &Call) -> Result<Wanted> {
        let text = |name: &str| call.parameter(name).unwrap_or_default().to_owned();
        let limit = match call.parameter("limit").filter(|limit| !limit.is_empty()) {
            None => PAGE_MAX,
            Some(limit) => match limit.parse() {
                Ok(limit) if limit <= PAGE_MAX => limit,
                _ => {
                    let why = format!("limit is a number up to {PAGE_MAX}");
                    return Err(Fault::new(StatusCode::PRECONDITION_FAILED, why));
                }
            },
        };
        if call
            .parameter("reverse")
            .is_some_and(|value| matches!(value, "true" | "True" | "1" | "on" | "yes"))
        {
            return Err(Fault::unsupported("lists in reverse order"));
        }
        let mut wanted = Wanted {
            limit,
            marker: text("marker"),
            end_marker: call.parameter("end_marker").filter(|end| !end.is_empty()).map(str::to_owned),
            prefix: text("prefix"),
            delimiter: text("delimiter"),
            without_prefixes: false,
        };
        if let Some(path) = call.parameter("path") {
            let path = path.trim_end_matches('/');
            wanted.prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
            wanted.delimiter = "/".to_owned();
            wanted.without_prefixes = true;
        }
        Ok(wanted)
    }
}

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// `modified` in milliseconds since 1970.
    Container {
        name: String,
        count: i64,
        bytes: i64,
        modified: u64,
    },
    Object {
        name: String,
        etag: String,
        bytes: u64,
        modified: u64,
    },
    /// One of an object's versions, or a DELETE among them.
    Version {
        name: String,
        version: String,
        is_latest: bool,
        is_deleted: bool,
        etag: String,
        bytes: u64,
        modified: u64,
    },
    Prefix(String),
}

/// The type of an object that stands for a DELETE.
pub const DELETED: &str = "application/x-deleted;swift_versions_deleted=1";
/// Objects have the type that a listing shows for all: the index has none.
const CONTENT_TYPE: &str = "application/octet-stream";

impl Line {
    pub fn name(&self) -> &str {
        match self {
            Line::Container { name, .. } | Line::Object { name, .. } => name,
            Line::Version { name, .. } | Line::Prefix(name) => name,
        }
    }
    fn json(&self) -> Value {
        match self {
            Line::Container { name, count, bytes, modified } => {
                json!({ "name": name, "count": count, "bytes": bytes, "last_modified": time_of(*modified) })
            }
            Line::Object { name, etag, bytes, modified } => json!({
                "name": name, "hash": etag, "bytes": bytes, "content_type": CONTENT_TYPE,
                "last_modified": time_of(*modified),
            }),
            Line::Version { name, version, is_latest, is_deleted, etag, bytes, modified } => json!({
                "name": name, "hash": etag, "bytes": bytes, "version_id": version, "is_latest": is_latest,
                "content_type": if *is_deleted { DELETED } else { CONTENT_TYPE },
                "last_modified": time_of(*modified),
            }),
            Line::Prefix(name) => json!({ "subdir": name }),
        }
    }
    fn write_xml(&self, out: &mut String) {
        // Writing into a text does not fail.
        let _ = match self {
            Line::Container { name, count, bytes, modified } => write!(
                out,
                "<container><name>{}</name><count>{count}</count><bytes>{bytes}</bytes>\
                 <last_modified>{}</last_modified></container>",
                escape(name),
                time_of(*modified)
            ),
            Line::Object { name, etag, bytes, modified } => write!(
                out,
                "<object><name>{}</name><hash>{}</hash><bytes>{bytes}</bytes>\
                 <content_type>{CONTENT_TYPE}</content_type><last_modified>{}</last_modified></object>",
                escape(name),
                escape(etag),
                time_of(*modified)
            ),
            Line::Version { name, version, is_latest, is_deleted, etag, bytes, modified } => write!(
                out,
                "<object><name>{}</name><version_id>{}</version_id><is_latest>{is_latest}</is_latest>\
                 <hash>{}</hash><bytes>{bytes}</bytes><content_type>{}</content_type>\
                 <last_modified>{}</last_modified></object>",
                escape(name),
                escape(version),
                escape(etag),
                if *is_deleted { DELETED } else { CONTENT_TYPE },
                time_of(*modified)
            ),
            Line::Prefix(name) => {
                let name = escape(name);
                write!(out, "<subdir name=\"{name}\"><name>{name}</name></subdir>")
            }
        };
    }
}

/// Such as `2026-01-02T03:04:05.678000`.
fn time_of(millis: u64) -> String {
    let seconds = i64::try_from(millis / 1000).unwrap_or_default();
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (date, clock) = (time.date(), time.time());
    format!("{date}T{:02}:{:02}:{:02}.{:03}000", clock.hour(), clock.minute(), clock.second(), millis % 1000)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Plain,
    Json,
    Xml,
}

impl Format {
    /// By the parameter `format`, or else by what the client accepts.
    fn of(call: &Call) -> Format {
        let accepted = call.header("accept").unwrap_or_default();
        match call.parameter("format").map(str::to_ascii_lowercase).as_deref() {
            Some("json") => Format::Json,
            Some("xml") => Format::Xml,
            Some(_) => Format::Plain,
            None if accepted.contains("application/json") => Format::Json,
            None if accepted.contains("application/xml") || accepted.contains("text/xml") => Format::Xml,
            None => Format::Plain,
        }
    }
}

/// The answer with these lines. `kind` is `account` or `container`, `name` its name.
pub fn reply(call: &Call, kind: &str, name: &str, lines: &[Line]) -> Reply {
    match Format::of(call) {
        Format::Json => Reply::json(&lines.iter().map(Line::json).collect()),
        Format::Xml => {
            let mut text =
                format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{kind} name=\"{}\">", escape(name));
            lines.iter().for_each(|line| line.write_xml(&mut text));
            let _ = write!(text, "</{kind}>");
            Reply::of("application/xml; charset=utf-8", text)
        }
        Format::Plain if lines.is_empty() => Reply::empty(StatusCode::NO_CONTENT),
        Format::Plain => {
            let names: Vec<&str> = lines.iter().map(Line::name).collect();
            Reply::text(names.join("\n") + "\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_swift() {
        let object = Line::Object { name: "a&b".into(), etag: "e".into(), bytes: 3, modified: 1_500 };
        assert_eq!(object.json()["last_modified"], "1970-01-01T00:00:01.500000");
        let mut xml = String::new();
        object.write_xml(&mut xml);
        assert!(xml.starts_with("<object><name>a&amp;b</name><hash>e</hash><bytes>3</bytes>"), "{xml}");
        assert_eq!(Line::Prefix("a/".into()).json(), json!({ "subdir": "a/" }));
    }
}
