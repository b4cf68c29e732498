//! Answers and errors of the API.

use crate::users::Identity;
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{Body, HttpResponse, S3Error};
use serde_json::Value;

pub type Result<T> = std::result::Result<T, Fault>;

/// An answer.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Body,
    /// The length of the body, where it is known.
    pub len: Option<u64>,
}

impl Reply {
    /// Without a body.
    pub fn empty(status: StatusCode) -> Reply {
        let len = (status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED).then_some(0);
        Reply { status, headers: HeaderMap::new(), body: Body::empty(), len }
    }
    /// A text of this type.
    pub fn of(content_type: &'static str, text: String) -> Reply {
        let mut reply = Reply::empty(StatusCode::OK);
        reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        reply.len = Some(text.len() as u64);
        reply.body = text.into();
        reply
    }
    /// Plain text.
    pub fn text(text: impl Into<String>) -> Reply {
        Reply::of("text/plain; charset=utf-8", text.into())
    }
    /// JSON.
    pub fn json(value: &Value) -> Reply {
        Reply::of("application/json; charset=utf-8", value.to_string())
    }
    /// Adds a header. A value that no header can have is left out.
    pub fn set(&mut self, name: &str, value: impl AsRef<str>) {
        if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_ref().as_bytes()))
        {
            self.headers.insert(name, value);
        }
    }
    /// `Last-Modified` and `X-Timestamp`, from milliseconds since 1970.
    pub fn set_time(&mut self, millis: u64) {
        self.set("last-modified", http_date(millis));
        self.set("x-timestamp", format!("{}.{:05}", millis / 1000, millis % 1000 * 100));
    }
    pub fn into_response(self) -> HttpResponse {
        let mut response = HttpResponse::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        if let Some(len) = self.len {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(len));
        }
        response
    }
}

/// The time of HTTP's headers, from milliseconds since 1970.
pub fn http_date(millis: u64) -> String {
    let mut date = Vec::new();
    // Only years of more than four digits cannot be written.
    let _ = crate::objects::timestamp(millis).format(TimestampFormat::HttpDate, &mut date);
    String::from_utf8(date).unwrap_or_default()
}

/// Milliseconds since 1970.
pub fn millis_of(time: &Timestamp) -> u64 {
    let time: time::OffsetDateTime = time.clone().into();
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or_default()
}

/// Why a request fails.
#[derive(Debug)]
pub struct Fault {
    pub status: StatusCode,
    pub text: String,
}

impl Fault {
    pub fn new(status: StatusCode, text: impl Into<String>) -> Fault {
        Fault { status, text: text.into() }
    }
    /// Something that the gateway does not have.
    pub fn unsupported(what: &str) -> Fault {
        Fault::new(StatusCode::NOT_IMPLEMENTED, format!("the gateway does not support {what}"))
    }
    /// There is no token, or one that is not good.
    pub fn unauthorized() -> Fault {
        Fault::new(StatusCode::UNAUTHORIZED, "This server could not verify that you are authorized.")
    }
    /// From an error of S3. Senders without a token are asked for one where they may not do something.
    pub fn of(error: S3Error, sender: &Identity) -> Fault {
        let status = match error.code().as_str() {
            "AccessDenied" if sender.owner.is_none() => return Fault::unauthorized(),
            "BadDigest" | "InvalidDigest" => StatusCode::UNPROCESSABLE_ENTITY,
            "QuotaExceeded" | "EntityTooLarge" => StatusCode::PAYLOAD_TOO_LARGE,
            "BucketNotEmpty" => StatusCode::CONFLICT,
            "SlowDown" => rate_limited(),
            _ => error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        Fault::new(status, error.message().unwrap_or_default())
    }
    pub fn into_reply(self) -> Reply {
        let reason = self.status.canonical_reason().unwrap_or_default();
        let mut reply = match self.status {
            StatusCode::NOT_MODIFIED => Reply::empty(self.status),
            _ if self.text.is_empty() => Reply::text(format!("{reason}\n")),
            _ => Reply::text(format!("{reason}: {}\n", self.text)),
        };
        reply.status = self.status;
        if self.status == StatusCode::UNAUTHORIZED {
            reply.headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Swift realm=\"unknown\""));
        }
        reply
    }
}

/// The status for requests beyond a rate limit.
fn rate_limited() -> StatusCode {
    StatusCode::from_u16(498).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
}

impl From<nacre_rados::Failure> for Fault {
    fn from(failure: nacre_rados::Failure) -> Fault {
        Fault::of(crate::errors::of_failure(&failure), &Identity::anonymous())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_http() {
        let mut reply = Reply::empty(StatusCode::OK);
        reply.set_time(784_111_777_012);
        assert_eq!(reply.headers["last-modified"], "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(reply.headers["x-timestamp"], "784111777.01200");
    }

    #[test]
    fn senders_without_a_token_are_asked_for_one() {
        let denied = || s3s::s3_error!(AccessDenied, "Access Denied");
        assert_eq!(Fault::of(denied(), &Identity::anonymous()).status, StatusCode::UNAUTHORIZED);
        let known = Identity { owner: Some(Default::default()), ..Identity::anonymous() };
        assert_eq!(Fault::of(denied(), &known).status, StatusCode::FORBIDDEN);
        let digest = s3s::s3_error!(BadDigest, "no");
        assert_eq!(Fault::of(digest, &known).status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(Fault::of(s3s::s3_error!(SlowDown, "no"), &known).status.as_u16(), 498);
    }
}
