//! What is known of a request by its end: its sender, what it was for, how many bytes went each way.
//!
//! A request has a `Trace` from its beginning. `access` notes what it finds out; the bodies of request and
//! answer count bytes. The end is when the answer's body is given up: it was sent, or the connection ended.
//! A connection may also end before there is an answer: `Unanswered` is given up then.

use crate::access::Peer;
use crate::access_log::AccessLog;
use crate::audit::{AuditLog, Refused};
use crate::notify::Notifier;
use crate::rates::{Charged, Rates};
use crate::store::now;
use crate::usage::{self, UsageLog};
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use nacre_s3::usage::Usage;
use nacre_s3::{AccessRecord, Bucket, BucketLogging, NoticeSource};
use std::pin::Pin;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

/// What is done with requests that have ended.
pub struct Ends {
    pub rates: Arc<Rates>,
    pub usage: Arc<UsageLog>,
    pub log: Arc<AccessLog>,
    pub notifier: Arc<Notifier>,
    pub audit: Option<Arc<AuditLog>>,
}

tokio::task_local! {
    /// The request that a task carries out.
    static CURRENT: Trace;
}

/// What `access` finds out about a request.
#[derive(Default)]
pub struct Facts {
    /// The operation of S3. Empty if it is not known.
    pub operation: String,
    /// The operation that is carried out at present: a request of Swift may have several.
    pub step: String,
    pub is_write: bool,
    /// The user that sent it; empty if none.
    pub sender: String,
    /// The bucket that it was for, if there is one.
    pub bucket: Option<Arc<Bucket>>,
    /// The object that it was for; empty if there is none.
    pub key: String,
    /// The code of the error with which it was refused, if that is noted anywhere.
    pub error: String,
    /// What it costs is the sender's, and not the bucket's owner's.
    pub sender_pays: bool,
    /// Where it is to be logged, and what was found in its head about that.
    pub logged: Option<(BucketLogging, AccessRecord)>,
    /// What its bytes count for. None until it was admitted.
    pub charged: Option<Charged>,
}

impl Facts {
    /// An operation begins. True: it is a step of one that counts already.
    pub fn begin(&mut self, operation: &str, is_write: bool) -> bool {
        self.step = operation.to_owned();
        self.charged.is_some() && (self.is_write || !is_write)
    }

    /// As the usage log has it; none if it belongs to no user.
    fn counted(&self, usage: Usage) -> Option<usage::Counted<'_>> {
        let (bucket, owner) = match &self.bucket {
            Some(bucket) => (bucket.name.as_str(), bucket.owner.as_str()),
            None => ("", self.sender.as_str()),
        };
        let user = if self.sender_pays { self.sender.as_str() } else { owner };
        let is_of_user = !self.operation.is_empty() && !user.is_empty();
        is_of_user.then_some(usage::Counted { user, bucket, owner, operation: &self.operation, usage })
    }
}

/// The status of a request whose connection ended before it was answered, as nginx calls it.
const CLIENT_GONE: u16 = 499;

/// A request that has not ended. Clones are of the same request.
#[derive(Clone)]
pub struct Trace(Arc<Shared>);

struct Shared {
    peer: Peer,
    method: Method,
    uri: Uri,
    begun: Instant,
    received: AtomicU64,
    sent: AtomicU64,
    facts: Mutex<Facts>,
    /// Of the answer.
    status: AtomicU16,
    ends: Arc<Ends>,
}

impl Trace {
    /// A request begins, which came from there.
    pub fn begin<B>(ends: Arc<Ends>, peer: Peer, request: &Request<B>) -> Trace {
        Trace(Arc::new(Shared {
            peer,
            method: request.method().clone(),
            uri: request.uri().clone(),
            begun: Instant::now(),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            facts: Mutex::default(),
            status: AtomicU16::new(CLIENT_GONE),
            ends,
        }))
    }

    /// The request that this task carries out; none in the background.
    pub fn current() -> Option<Trace> {
        CURRENT.try_with(Trace::clone).ok()
    }

    /// Carries out the request.
    pub async fn carry_out<T>(&self, request: impl Future<Output = T>) -> T {
        CURRENT.scope(self.clone(), request).await
    }

    /// What sends notices.
    pub fn notifier(&self) -> &Notifier {
        &self.0.ends.notifier
    }

    /// The audit log, if there is one.
    pub fn audit(&self) -> Option<&AuditLog> {
        self.0.ends.audit.as_deref()
    }

    /// The request, as notices have it.
    pub fn source(&self) -> NoticeSource {
        let user = self.facts().sender.clone();
        NoticeSource {
            user: if user.is_empty() { "anonymous".to_owned() } else { user },
            address: self.0.peer.address.to_canonical().to_string(),
            request: uuid::Uuid::new_v4().simple().to_string(),
            region: self.notifier().region.clone(),
        }
    }

    /// Where it came from.
    pub fn peer(&self) -> Peer {
        self.0.peer
    }

    /// What is known of it.
    pub fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request, which counts the bytes of its body.
    pub fn of_request<B>(&self, request: Request<B>) -> Request<Counted<B>> {
        let trace = self.clone();
        request.map(|body| Counted { body, trace, is_request: true })
    }

    /// The answer, which counts the bytes of its body, and ends the request.
    fn of_answer(self, answer: Response<s3s::Body>) -> Response<s3s::Body> {
        self.0.status.store(answer.status().as_u16(), Ordering::Relaxed);
        let turn_around = self.millis();
        {
            let mut facts = self.facts();
            if facts.logged.is_some() || self.0.ends.audit.is_some() && is_refusal(answer.status()) {
                facts.error = error_code(&answer);
            }
            let error = facts.error.clone();
            if let Some((_, record)) = &mut facts.logged {
                (record.turn_around, record.error) = (turn_around, error);
                note_size(record, &answer);
            }
        }
        answer.map(|body| s3s::Body::http_body_unsync(Counted { body, trace: self, is_request: false }))
    }

    /// Since the request began.
    fn millis(&self) -> u64 {
        u64::try_from(self.0.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn end(&self) {
        let Shared { peer, method, uri, received, sent, status, ends, .. } = &*self.0;
        let (received, sent) = (received.load(Ordering::Relaxed), sent.load(Ordering::Relaxed));
        let status = StatusCode::from_u16(status.load(Ordering::Relaxed)).unwrap_or_default();
        let facts = self.facts();
        if let Some(charged) = &facts.charged {
            ends.rates.spend(charged, received, sent);
        }
        let is_failure = status.is_client_error() || status.is_server_error();
        let usage = Usage {
            bytes_sent: sent,
            bytes_received: received,
            ops: 1,
            successful_ops: u64::from(!is_failure),
        };
        if let Some(request) = facts.counted(usage) {
            ends.usage.count(&request);
        }
        if let (Some(audit), true) = (&ends.audit, is_refusal(status)) {
            audit.refused(&Refused {
                bucket: facts.bucket.as_ref().map(|bucket| bucket.name.as_str()).unwrap_or_default(),
                object: &facts.key,
                remote: peer.address.to_canonical().to_string(),
                user: &facts.sender,
                operation: &facts.operation,
                method: method.as_str(),
                path: uri.path(),
                status: status.as_u16(),
                error: &facts.error,
            });
        }
        if let (Some((logging, found)), Some(bucket)) = (&facts.logged, &facts.bucket) {
            let total = self.millis();
            let record = AccessRecord {
                owner: bucket.owner.clone(),
                bucket: bucket.plain_name().to_owned(),
                time: now().saturating_sub(total),
                remote: peer.address.to_canonical().to_string(),
                requester: facts.sender.clone(),
                id: uuid::Uuid::new_v4().simple().to_string()[..16].to_ascii_uppercase(),
                method: method.to_string(),
                operation: facts.operation.clone(),
                target: uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
                status: status.as_u16(),
                bytes_sent: sent,
                total,
                is_encrypted: peer.is_encrypted,
                ..found.clone()
            };
            ends.log.add(logging, &record);
        }
    }
}

/// A request without an answer yet. It ends with this, unless it is answered.
pub struct Unanswered(Option<Trace>);

impl Unanswered {
    /// Of a request that begins.
    pub fn new(trace: &Trace) -> Unanswered {
        Unanswered(Some(trace.clone()))
    }

    /// The answer, whose end is that of the request.
    pub fn answered(mut self, answer: Response<s3s::Body>) -> Response<s3s::Body> {
        match self.0.take() {
            Some(trace) => trace.of_answer(answer),
            None => answer,
        }
    }

    /// No answer could be made.
    pub fn failed(self) {
        if let Some(trace) = &self.0 {
            trace.0.status.store(StatusCode::INTERNAL_SERVER_ERROR.as_u16(), Ordering::Relaxed);
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(trace) = &self.0 {
            trace.end();
        }
    }
}

/// Whether the sender lacks a right, or did not prove its identity.
fn is_refusal(status: StatusCode) -> bool {
    status == StatusCode::FORBIDDEN || status == StatusCode::UNAUTHORIZED
}

/// The code of the error in an answer; empty if there is none.
fn error_code(answer: &Response<s3s::Body>) -> String {
    if answer.status().is_success() {
        return String::new();
    }
    let text = answer.body().bytes().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    code.map(|(code, _)| code.to_owned()).unwrap_or_default()
}

/// Notes the size of the object.
fn note_size(record: &mut AccessRecord, answer: &Response<s3s::Body>) {
    let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
    if answer.status().is_success() {
        let whole = header(CONTENT_RANGE).and_then(|range| range.rsplit('/').next());
        let is_read = matches!(record.operation.as_str(), "GetObject" | "HeadObject");
        let size = whole.or_else(|| header(CONTENT_LENGTH)).filter(|_| is_read);
        record.object_size = size.and_then(|size| size.parse().ok()).or(record.object_size);
    }
}

/// A body whose bytes are counted.
pub struct Counted<B> {
    body: B,
    trace: Trace,
    is_request: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let Shared { received, sent, .. } = &*self.trace.0;
            let count = if self.is_request { received } else { sent };
            count.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Counted<B> {
    fn drop(&mut self) {
        if !self.is_request {
            self.trace.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_request_do_not_count_apart() {
        let mut facts = Facts::default();
        assert!(!facts.begin("HeadObject", false));
        facts.charged = Some(Charged::default());
        assert!(facts.begin("GetObject", false));
        // The request writes after all.
        assert!(!facts.begin("CopyObject", true));
        facts.is_write = true;
        assert!(facts.begin("DeleteObject", true) && facts.begin("GetObject", false));
        assert_eq!(facts.step, "GetObject");
    }
}
