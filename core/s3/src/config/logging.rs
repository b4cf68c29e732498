//! The access log of a bucket: where it goes, and what its lines look like.

use nacre_wire::versioned_fields;
use std::fmt::Write;
use time::OffsetDateTime;

/// How the objects of a log are named.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BucketLogging {
    /// The bucket that the log is written to.
    pub target: String,
    pub prefix: String,
    /// Names have owner, region, bucket and day before the time.
    pub is_partitioned: bool,
    /// An object has requests of one day only, which is the day in its name. Otherwise that is the day on
    /// which it was written.
    pub by_event_time: bool,
}
versioned_fields!(BucketLogging, "s3 bucket logging", target, prefix, is_partitioned, by_event_time);

/// What a name is made of.
#[derive(Clone, Copy, Debug)]
pub struct LogSource<'a> {
    pub bucket: &'a str,
    pub owner: &'a str,
    pub region: &'a str,
}

fn utc(millis: u64) -> OffsetDateTime {
    let nanos = i128::from(millis) * 1_000_000;
    OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

impl BucketLogging {
    /// The key of an object of the log. `event` is the time of its first request, `now` when it is written,
    /// both in milliseconds since 1970; `unique` sets it apart from others.
    pub fn key(&self, source: LogSource<'_>, event: u64, now: u64, unique: &str) -> String {
        let time = utc(if self.is_partitioned && self.by_event_time { event } else { now });
        let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
        let clock = match self.is_partitioned && self.by_event_time {
            true => "00-00-00".to_owned(),
            false => format!("{:02}-{:02}-{:02}", time.hour(), time.minute(), time.second()),
        };
        let name = format!("{year:04}-{month:02}-{day:02}-{clock}-{unique}");
        let LogSource { bucket, owner, region } = source;
        match self.is_partitioned {
            true => {
                format!("{}{owner}/{region}/{bucket}/{year:04}/{month:02}/{day:02}/{name}", self.prefix)
            }
            false => format!("{}{name}", self.prefix),
        }
    }
}

/// A request, as a line of the log has it. Empty texts are shown as `-`.
#[derive(Clone, Debug, Default)]
pub struct AccessRecord {
    pub owner: String,
    pub bucket: String,
    /// Milliseconds since 1970.
    pub time: u64,
    pub remote: String,
    pub requester: String,
    pub id: String,
    /// The method of HTTP.
    pub method: String,
    /// The operation of S3.
    pub operation: String,
    pub key: String,
    /// The path and the query of the URL.
    pub target: String,
    pub status: u16,
    /// The code of the error, if there was one.
    pub error: String,
    pub bytes_sent: u64,
    pub object_size: Option<u64>,
    /// Milliseconds from the beginning until the end, and until the answer began.
    pub total: u64,
    pub turn_around: u64,
    pub referer: String,
    pub user_agent: String,
    pub version: String,
    /// `AuthHeader`, `QueryString`, or empty.
    pub authentication: String,
    pub host: String,
    pub is_encrypted: bool,
}

/// The kind of resource in the name of an operation, such as `OBJECT` in `REST.GET.OBJECT`.
fn resource(operation: &str) -> String {
    let known = match operation {
        "GetObject" | "HeadObject" | "PutObject" | "CopyObject" | "DeleteObject" => "OBJECT",
        "ListObjects" | "ListObjectsV2" | "HeadBucket" | "CreateBucket" | "DeleteBucket" => "BUCKET",
        "ListObjectVersions" => "BUCKETVERSIONS",
        "DeleteObjects" => "MULTI_OBJECT_DELETE",
        "UploadPart" | "UploadPartCopy" => "PART",
        "CreateMultipartUpload" | "ListMultipartUploads" => "UPLOADS",
        "CompleteMultipartUpload" | "AbortMultipartUpload" | "ListParts" => "UPLOAD",
        "GetObjectAcl" | "PutObjectAcl" | "GetBucketAcl" | "PutBucketAcl" => "ACL",
        "GetObjectTagging" | "PutObjectTagging" | "DeleteObjectTagging" => "OBJECT_TAGGING",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let rest = ["Get", "Put", "Delete", "List", "Head"].iter().find_map(|verb| operation.strip_prefix(verb));
    let rest = rest.unwrap_or(operation);
    rest.strip_prefix("Bucket").unwrap_or(rest).to_ascii_uppercase()
}

/// A text between spaces: without what would end it.
fn bare(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'"' | b'%' | b'\\' | 0..=b' ' | 0x7f..=0xff => drop(write!(escaped, "%{byte:02X}")),
            byte => escaped.push(byte.into()),
        }
    }
    if escaped.is_empty() { "-".to_owned() } else { escaped }
}

/// A text in quotes, without what would end them.
fn quoted(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 2);
    escaped.push('"');
    for c in if text.is_empty() { "-" } else { text }.chars() {
        match c {
            '"' => escaped.push_str("%22"),
            c if c.is_control() => escaped.push_str("%0A"),
            c => escaped.push(c),
        }
    }
    escaped.push('"');
    escaped
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl AccessRecord {
    /// The line, in the format of S3's server access logs, with its end.
    pub fn line(&self) -> String {
        let time = utc(self.time);
        let month = MONTHS[usize::from(u8::from(time.month())) - 1];
        let time = format!(
            "[{:02}/{month}/{:04}:{:02}:{:02}:{:02} +0000]",
            time.day(),
            time.year(),
            time.hour(),
            time.minute(),
            time.second()
        );
        let verb = if self.operation == "CopyObject" { "COPY" } else { &self.method };
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        let operation = format!("REST.{verb}.{}", resource(&self.operation));
        let request = quoted(&format!("{} {} HTTP/1.1", self.method, self.target));
        let signature = if self.authentication.is_empty() { "" } else { "SigV4" };
        [
            bare(&self.owner),
            bare(&self.bucket),
            time,
            bare(&self.remote),
            bare(&self.requester),
            bare(&self.id),
            bare(&operation),
            bare(&self.key),
            request,
            self.status.to_string(),
            bare(&self.error),
            number(Some(self.bytes_sent).filter(|bytes| *bytes > 0)),
            number(self.object_size),
            self.total.to_string(),
            self.turn_around.to_string(),
            quoted(&self.referer),
            quoted(&self.user_agent),
            bare(&self.version),
            // The host id, and the cipher.
            "-".to_owned(),
            bare(signature),
            "-".to_owned(),
            bare(&self.authentication),
            bare(&self.host),
            bare(if self.is_encrypted { "TLS" } else { "" }),
            // The access point, and whether a list was needed.
            "-".to_owned(),
            "-\n".to_owned(),
        ]
        .join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: u64 = 1_767_323_045_000;

    #[test]
    fn lines_have_the_fields_of_s3() {
        let record = AccessRecord {
            owner: "anna".into(),
            bucket: "b".into(),
            time: TIME,
            remote: "10.0.0.1".into(),
            requester: "bert".into(),
            id: "ID".into(),
            method: "GET".into(),
            operation: "GetObject".into(),
            key: "a b/\"c\"\n".into(),
            target: "/b/a%20b".into(),
            status: 200,
            bytes_sent: 5,
            object_size: Some(10),
            total: 3,
            turn_around: 2,
            user_agent: "a \"b\"\r\nc".into(),
            authentication: "AuthHeader".into(),
            host: "h:7480".into(),
            ..AccessRecord::default()
        };
        let line = record.line();
        let expected = "anna b [02/Jan/2026:03:04:05 +0000] 10.0.0.1 bert ID REST.GET.OBJECT \
                        a%20b/%22c%22%0A \"GET /b/a%20b HTTP/1.1\" 200 - 5 10 3 2 \"-\" \
                        \"a %22b%22%0A%0Ac\" - - SigV4 - AuthHeader h:7480 - - -\n";
        assert_eq!(line, expected);
        assert_eq!(AccessRecord::default().line().lines().count(), 1);
    }

    #[test]
    fn operations_have_the_names_of_s3() {
        for (operation, expected) in [
            ("UploadPart", "PART"),
            ("GetBucketVersioning", "VERSIONING"),
            ("PutBucketPolicy", "POLICY"),
            ("ListObjectsV2", "BUCKET"),
            ("GetObjectRetention", "OBJECTRETENTION"),
        ] {
            assert_eq!(resource(operation), expected);
        }
    }

    #[test]
    fn names_of_logs_have_the_time_of_the_event_or_of_the_delivery() {
        let source = LogSource { bucket: "b", owner: "anna", region: "r" };
        let mut logging =
            BucketLogging { target: "t".into(), prefix: "p/".into(), ..BucketLogging::default() };
        let later = TIME + 24 * 60 * 60 * 1000;
        assert_eq!(logging.key(source, TIME, later, "U"), "p/2026-01-03-03-04-05-U");
        logging.is_partitioned = true;
        assert_eq!(logging.key(source, TIME, later, "U"), "p/anna/r/b/2026/01/03/2026-01-03-03-04-05-U");
        logging.by_event_time = true;
        assert_eq!(logging.key(source, TIME, later, "U"), "p/anna/r/b/2026/01/02/2026-01-02-00-00-00-U");
    }
}
