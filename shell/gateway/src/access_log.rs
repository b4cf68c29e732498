//! Access logs of buckets: lines wait in memory, and are written to the target bucket as objects.
//!
//! The lines of a gateway that is killed are lost, those of one that is stopped are not. Writing a log is a
//! request of the owner's like another: the target's policy, quota and encryption hold. It is logged nowhere.

use crate::access::{Access, Head, Target};
use crate::buckets::OpenBucket;
use crate::errors;
use crate::service::Core;
use crate::store::now;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::http::Extensions;
use hyper::{Method, StatusCode, Uri};
use nacre_s3::tenant::split_bucket;
use nacre_s3::{AccessRecord, BucketLogging, LogSource, setting};
use nacre_wire::{from_slice, to_vec};
use s3s::dto::{
    BucketLoggingStatus, GetBucketLoggingInput, GetBucketLoggingOutput, LoggingEnabled, PartitionDateSource,
    PartitionedPrefix, PutBucketLoggingInput, PutBucketLoggingOutput, PutObjectInput, SimplePrefix,
    StreamingBlob, TargetObjectKeyFormat,
};
use s3s::{Body, S3Error, S3Request, S3Response, S3Result, s3_error};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// A log is written at once when it has so many bytes.
const OBJECT_MAX: usize = 4 << 20;
/// The most bytes that wait. Lines beyond that are lost.
const WAITING_MAX: usize = 64 << 20;
/// After a log could not be written, none is for so long.
const RETRY: Duration = Duration::from_secs(10);
/// Milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1000;

/// What the lines of one object have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    bucket: String,
    owner: String,
    logging: BucketLogging,
    /// Of the requests, where it matters.
    day: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    logs: BTreeMap<Place, Lines>,
    bytes: usize,
    lost: u64,
}

#[derive(Debug, Default)]
struct Lines {
    text: String,
    /// The time of the first request.
    begun: u64,
}

/// The lines that wait.
#[derive(Default)]
pub struct AccessLog {
    waiting: Mutex<Waiting>,
    is_full: Notify,
}

/// Writes logs.
pub struct Delivery {
    pub core: Arc<Core>,
    pub access: Access,
    pub interval: Duration,
}

impl AccessLog {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request for a bucket with a log.
    pub fn add(&self, logging: &BucketLogging, record: &AccessRecord) {
        let day = if logging.by_event_time { record.time / DAY } else { 0 };
        let (bucket, owner) = (record.bucket.clone(), record.owner.clone());
        let place = Place { bucket, owner, logging: logging.clone(), day };
        let line = record.line();
        let mut waiting = self.waiting();
        if waiting.bytes + line.len() > WAITING_MAX {
            waiting.lost += 1;
            return;
        }
        waiting.bytes += line.len();
        let lines = waiting.logs.entry(place).or_default();
        if lines.text.is_empty() {
            lines.begun = record.time;
        }
        lines.text.push_str(&line);
        if lines.text.len() >= OBJECT_MAX {
            self.is_full.notify_one();
        }
    }

    /// Takes what waits.
    fn take(&self) -> Waiting {
        std::mem::take(&mut *self.waiting())
    }

    /// Puts back what could not be written, before what came meanwhile.
    fn put_back(&self, place: Place, mut lines: Lines) {
        let mut waiting = self.waiting();
        waiting.bytes += lines.text.len();
        let newer = waiting.logs.remove(&place).unwrap_or_default();
        lines.text.push_str(&newer.text);
        waiting.logs.insert(place, lines);
    }

    /// Writes logs, again and again.
    pub async fn run(self: Arc<Self>, delivery: Arc<Delivery>) {
        loop {
            let _ = tokio::time::timeout(delivery.interval, self.is_full.notified()).await;
            if !self.flush(&delivery).await {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Writes what waits. False: some is to be written later.
    pub async fn flush(&self, delivery: &Delivery) -> bool {
        let Waiting { logs, lost, .. } = self.take();
        if lost > 0 {
            tracing::warn!("{lost} lines of access logs are lost: they cannot be written fast enough");
        }
        let mut is_done = true;
        for (place, lines) in logs {
            match delivery.write(&place, &lines).await {
                Ok(()) => {}
                Err(e) if is_for_now(&e) => {
                    tracing::warn!("the access log of {} is written later: {e}", place.bucket);
                    self.put_back(place, lines);
                    is_done = false;
                }
                Err(e) => tracing::warn!("lines of the access log of {} are lost: {e}", place.bucket),
            }
        }
        is_done
    }
}

/// Whether the same may succeed later.
fn is_for_now(error: &S3Error) -> bool {
    error.status_code().is_none_or(|status| status.is_server_error())
}

impl Delivery {
    async fn write(&self, place: &Place, lines: &Lines) -> S3Result<()> {
        let Place { bucket, owner, logging, .. } = place;
        let identity = self.core.users.owner(owner).await?;
        let identity = identity.ok_or_else(|| s3_error!(AccessDenied, "there is no user {owner}"))?;
        let target = self.core.buckets.open(&logging.target).await?;
        if target.record.owner != *owner {
            return Err(s3_error!(AccessDenied, "{} has another owner", logging.target));
        }
        let unique = uuid::Uuid::new_v4().simple().to_string().to_ascii_uppercase();
        let source = LogSource { bucket, owner, region: &self.core.region };
        let key = logging.key(source, lines.begun, now(), &unique[..16]);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let to = Target { operation: "PutObject", bucket: Some(&logging.target), key: Some(&key) };
        let granted = self.access.authorize(identity, to, &Head::new(&headers, None), None).await?;
        let len = i64::try_from(lines.text.len()).ok();
        let input = PutObjectInput::builder().bucket(logging.target.clone()).key(key);
        let input = input.body(Some(StreamingBlob::from(Body::from(lines.text.clone())))).content_length(len);
        let input = input.build().map_err(errors::internal)?;
        let mut extensions = Extensions::new();
        extensions.insert(granted);
        let request = S3Request {
            input,
            method: Method::PUT,
            uri: Uri::default(),
            headers,
            extensions,
            credentials: None,
            region: None,
            service: None,
            trailing_headers: None,
        };
        self.core.put_object(request).await.map(drop)
    }
}

/// What is set on a bucket; none if it has no log.
pub fn logging_of(others: &BTreeMap<String, bytes::Bytes>) -> S3Result<Option<BucketLogging>> {
    others.get(setting::LOGGING).map(|value| from_slice(value).map_err(errors::corrupt)).transpose()
}

fn logging_of_request(asked: LoggingEnabled) -> S3Result<BucketLogging> {
    if asked.target_grants.is_some_and(|grants| !grants.is_empty()) {
        let message = "TargetGrants are not supported: give the target bucket a policy";
        return Err(s3_error!(NotImplemented, "{message}"));
    }
    if asked.target_prefix.len() > 512 {
        return Err(s3_error!(InvalidArgument, "TargetPrefix has at most 512 bytes"));
    }
    let format = asked.target_object_key_format.unwrap_or_default();
    let by_event_time = match &format.partitioned_prefix {
        None => false,
        Some(partitioned) => match partitioned.partition_date_source.as_ref().map(|it| it.as_str()) {
            Some(PartitionDateSource::EVENT_TIME) => true,
            None | Some(PartitionDateSource::DELIVERY_TIME) => false,
            Some(_) => return Err(s3_error!(MalformedXML, "PartitionDateSource is unknown")),
        },
    };
    if format.partitioned_prefix.is_some() && format.simple_prefix.is_some() {
        return Err(s3_error!(MalformedXML, "a key has one format"));
    }
    Ok(BucketLogging {
        target: asked.target_bucket,
        prefix: asked.target_prefix,
        is_partitioned: format.partitioned_prefix.is_some(),
        by_event_time,
    })
}

fn logging_of_answer(logging: BucketLogging) -> LoggingEnabled {
    let source = match logging.by_event_time {
        true => PartitionDateSource::EVENT_TIME,
        false => PartitionDateSource::DELIVERY_TIME,
    };
    let format = match logging.is_partitioned {
        true => TargetObjectKeyFormat {
            partitioned_prefix: Some(PartitionedPrefix {
                partition_date_source: Some(PartitionDateSource::from_static(source)),
            }),
            simple_prefix: None,
        },
        false => {
            TargetObjectKeyFormat { partitioned_prefix: None, simple_prefix: Some(SimplePrefix::default()) }
        }
    };
    LoggingEnabled {
        target_bucket: split_bucket(&logging.target).1.to_owned(),
        target_grants: None,
        target_object_key_format: Some(format),
        target_prefix: logging.prefix,
    }
}

impl Core {
    /// PutBucketLogging.
    pub async fn put_bucket_logging(
        &self,
        req: S3Request<PutBucketLoggingInput>,
    ) -> S3Result<S3Response<PutBucketLoggingOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let BucketLoggingStatus { logging_enabled } = req.input.bucket_logging_status;
        let value = match logging_enabled.map(logging_of_request).transpose()? {
            None => None,
            Some(mut logging) => {
                let tenant = bucket.record.tenant();
                logging.target = self.buckets.full_name(&logging.target, tenant).await?;
                self.check_target(&bucket, &logging).await?;
                Some(to_vec(&logging))
            }
        };
        self.buckets.set(&bucket, setting::LOGGING, value).await?;
        Ok(S3Response::new(PutBucketLoggingOutput::default()))
    }

    /// The target must be a bucket of the same owner, where objects do not have to stay. Whether the owner
    /// may write to it is decided with each log.
    async fn check_target(&self, bucket: &OpenBucket, logging: &BucketLogging) -> S3Result<()> {
        let invalid = |why: &str| {
            errors::with_text("InvalidTargetBucketForLogging", StatusCode::BAD_REQUEST, why.to_owned())
        };
        let Some(target) = self.buckets.of_any_user(&logging.target).await? else {
            return Err(invalid("The target bucket for logging does not exist"));
        };
        if target.record.owner != bucket.record.owner {
            return Err(invalid(
                "The owner for the bucket to be logged and the target bucket must be the same.",
            ));
        }
        if target.config.lock.as_ref().is_some_and(|lock| lock.default.is_some()) {
            return Err(invalid("The target bucket must have no default retention"));
        }
        Ok(())
    }

    /// GetBucketLogging.
    pub async fn get_bucket_logging(
        &self,
        req: S3Request<GetBucketLoggingInput>,
    ) -> S3Result<S3Response<GetBucketLoggingOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let logging = logging_of(&bucket.config.others)?;
        Ok(S3Response::new(GetBucketLoggingOutput { logging_enabled: logging.map(logging_of_answer) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(bucket: &str, time: u64) -> AccessRecord {
        AccessRecord { bucket: bucket.into(), owner: "o".into(), time, ..AccessRecord::default() }
    }

    #[test]
    fn lines_wait_by_bucket_and_day_and_go_back_to_where_they_were() {
        let log = AccessLog::default();
        let logging = BucketLogging { by_event_time: true, ..BucketLogging::default() };
        for (bucket, time) in [("a", 1), ("a", 2), ("a", DAY), ("b", 3)] {
            log.add(&logging, &record(bucket, time));
        }
        let waiting = log.take();
        assert_eq!((waiting.logs.len(), log.take().logs.len()), (3, 0));
        log.add(&logging, &record("a", 5));
        let (place, lines) = waiting.logs.into_iter().next().unwrap();
        assert_eq!((lines.begun, lines.text.lines().count()), (1, 2));
        log.put_back(place, lines);
        let lines = log.take().logs.into_values().next().unwrap();
        assert_eq!((lines.begun, lines.text.lines().count()), (1, 3));
    }

    #[test]
    fn memory_for_lines_is_bounded() {
        let log = AccessLog::default();
        let mut large = record("a", 1);
        large.user_agent = "x".repeat(1 << 20);
        for _ in 0..100 {
            log.add(&BucketLogging::default(), &large);
        }
        let waiting = log.take();
        assert!(waiting.bytes <= WAITING_MAX && waiting.lost > 30, "{}", waiting.lost);
    }

    #[test]
    fn formats_of_keys_come_back_as_they_were_set() {
        for (is_partitioned, by_event_time) in [(false, false), (true, false), (true, true)] {
            let logging =
                BucketLogging { target: "t".into(), prefix: "p".into(), is_partitioned, by_event_time };
            assert_eq!(logging_of_request(logging_of_answer(logging.clone())).unwrap(), logging);
        }
    }
}
