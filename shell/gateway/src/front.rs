//! What is refused before anything else is done with a request, by its headers alone.
//!
//! A header that changes what a write means must not be ignored: the client would rely on what the gateway
//! does not do.

use crate::errors;
use crate::listing::percent_decode;
use crate::users::Users;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};
use s3s::access::{S3Access, S3AccessContext};
use s3s::{HttpError, HttpResponse, S3Error, S3Result, s3_error};
use std::sync::Arc;

/// Beginnings of the names of headers that ask for what the gateway does not have.
const UNSUPPORTED: [&str; 3] =
    ["x-amz-server-side-encryption", "x-amz-copy-source-server-side-encryption", "x-amz-write-offset-bytes"];
/// Who must own the bucket of a request, and that of a copy's source.
const EXPECTED_OWNERS: [&str; 2] = ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"];
/// How long a presigned URL may be good: seven days.
const EXPIRES_MAX: u64 = 7 * 24 * 60 * 60;

/// Why a request is refused; none if it may go on.
pub fn refusal<B>(request: &Request<B>) -> Option<S3Error> {
    let header = |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    // The parser of forms holds all of the file in memory, before it looks at the signature.
    let content_type = header(CONTENT_TYPE).unwrap_or_default().trim_start().to_ascii_lowercase();
    if request.method() == Method::POST && content_type.starts_with("multipart/") {
        return Some(s3_error!(NotImplemented, "Uploads by POST forms are not supported."));
    }
    let query: Vec<(String, &str)> = request.uri().query().map(query_of).unwrap_or_default();
    let parameter = |name: &str| query.iter().find(|(found, _)| found == name).map(|(_, value)| *value);
    // Version 2 covers neither the body nor all of the query, and can be replayed at any time.
    let authorization = header(AUTHORIZATION).unwrap_or_default().trim_start();
    if authorization.starts_with("AWS ") || parameter("awsaccesskeyid").is_some() {
        let message = "The authorization mechanism you have provided is not supported. Please use \
                       AWS4-HMAC-SHA256.";
        return Some(s3_error!(InvalidRequest, "{message}"));
    }
    if let Some(expires) = parameter("x-amz-expires")
        && expires.parse::<u64>().is_ok_and(|expires| expires > EXPIRES_MAX)
    {
        let message = "X-Amz-Expires must be less than a week (in seconds)";
        return Some(errors::with_code(
            "AuthorizationQueryParametersError",
            StatusCode::BAD_REQUEST,
            message,
        ));
    }
    let headers = request.headers().keys().map(hyper::header::HeaderName::as_str);
    let mut names = headers.chain(query.iter().map(|(name, _)| name.as_str()));
    let is_unsupported = |name: &&str| UNSUPPORTED.iter().any(|beginning| name.starts_with(beginning));
    let name = names.find(is_unsupported)?;
    Some(s3_error!(
        NotImplemented,
        "A header you provided implies functionality that is not implemented: {name}"
    ))
}

/// Names in lower case, without their percent-encoding, and values as they are.
fn query_of(query: &str) -> Vec<(String, &str)> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let name = |name: &str| percent_decode(name).unwrap_or_else(|| name.to_owned()).to_ascii_lowercase();
    pairs.map(|(found, value)| (name(found), value)).collect()
}

/// The answer to a refused request. Its body is not read, and the connection ends.
pub fn answer(refusal: S3Error) -> Result<HttpResponse, HttpError> {
    let mut answer = refusal.to_http_response().map_err(|e| HttpError::new(e.into()))?;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(answer)
}

/// Refuses requests without a signature, and requests for buckets of another owner than the client expects.
pub struct Access(pub Arc<Users>);

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let denied = || s3_error!(AccessDenied, "Access Denied");
        let access_key = context.credentials().ok_or_else(denied)?.access_key.clone();
        let expected = EXPECTED_OWNERS.into_iter().filter_map(|name| context.headers().get(name));
        let expected: Vec<HeaderValue> = expected.cloned().collect();
        if expected.is_empty() {
            return Ok(());
        }
        // A bucket can be used by its owner only.
        let user = self.0.user_of(&access_key).await?;
        if expected.iter().all(|owner| owner.as_bytes() == user.as_bytes()) { Ok(()) } else { Err(denied()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: &str, uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        refusal(&request.body(()).unwrap()).map(|refusal| refusal.code().as_str().to_owned())
    }

    #[test]
    fn forms_are_refused_before_their_body_is_read() {
        let form = ("Content-Type", "Multipart/Form-Data; boundary=x");
        assert_eq!(code("POST", "/bucket", &[form]).as_deref(), Some("NotImplemented"));
        assert_eq!(code("PUT", "/bucket/key", &[form]), None);
        assert_eq!(code("POST", "/bucket?delete", &[("Content-Type", "application/xml")]), None);
    }

    #[test]
    fn old_signatures_and_urls_that_are_good_for_too_long_are_refused() {
        let refused = Some("InvalidRequest");
        assert_eq!(code("GET", "/b/k", &[("Authorization", "AWS key:signature")]).as_deref(), refused);
        assert_eq!(code("GET", "/b/k?%41WSAccessKeyId=key&Signature=s", &[]).as_deref(), refused);
        assert_eq!(code("GET", "/b/k", &[("Authorization", "AWS4-HMAC-SHA256 Credential=x")]), None);
        assert_eq!(code("GET", "/b/k?X-Amz-Expires=604800", &[]), None);
        let refused = Some("AuthorizationQueryParametersError");
        assert_eq!(code("GET", "/b/k?X-Amz-Expires=604801", &[]).as_deref(), refused);
    }

    #[test]
    fn headers_that_change_what_a_write_means_are_refused() {
        for name in [
            "x-amz-server-side-encryption",
            "x-amz-server-side-encryption-customer-algorithm",
            "x-amz-copy-source-server-side-encryption-customer-key",
            "x-amz-write-offset-bytes",
        ] {
            assert_eq!(code("PUT", "/b/k", &[(name, "1")]).as_deref(), Some("NotImplemented"), "{name}");
            let in_url = format!("/b/k?{}=1", name.to_ascii_uppercase());
            assert_eq!(code("PUT", &in_url, &[]).as_deref(), Some("NotImplemented"), "{name}");
        }
        assert_eq!(code("PUT", "/b/k", &[("x-amz-meta-object-lock-mode", "1")]), None);
    }
}
