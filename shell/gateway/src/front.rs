//! What is refused before anything else is done with a request, by its headers alone.
//!
//! A header that changes what a write means must not be ignored: the client would rely on what the gateway
//! does not do.

use crate::errors;
use crate::listing::{percent_decode, split_pairs};
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};
use s3s::{HttpError, HttpResponse, S3Error, s3_error};

/// Beginnings of the names of headers that ask for what the gateway does not have.
const UNSUPPORTED: [&str; 1] = ["x-amz-write-offset-bytes"];
/// The same for parameters of URLs: what asks for encryption is read from headers only.
const UNSUPPORTED_IN_URLS: [&str; 3] =
    ["x-amz-server-side-encryption", "x-amz-copy-source-server-side-encryption", "x-amz-write-offset-bytes"];
/// Of a request with a signature, headers that may be outside of it: the first is covered as the body is.
const MAY_BE_UNSIGNED: [&str; 1] = ["x-amz-content-sha256"];
/// How long a presigned URL may be good: seven days.
const EXPIRES_MAX: u64 = 7 * 24 * 60 * 60;

/// The most bytes of a request in XML: a thousand keys to delete, or ten thousand parts.
pub const XML_MAX: usize = 4 << 20;

/// Why a request is refused; none if it may go on.
pub fn refusal<B>(request: &Request<B>) -> Option<S3Error> {
    let header = |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
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
    // All that is sent by POST is XML, apart from forms.
    let is_form = header(CONTENT_TYPE).is_some_and(|kind| kind.to_ascii_lowercase().contains("form"));
    let len = header(CONTENT_LENGTH).and_then(|len| len.parse::<usize>().ok()).unwrap_or(0);
    if request.method() == Method::POST && !is_form && len > XML_MAX {
        return Some(s3_error!(MalformedXML, "a request in XML has at most {XML_MAX} bytes"));
    }
    let presigned = parameter("x-amz-signedheaders").and_then(percent_decode);
    let signed = presigned.or_else(|| signed_headers(authorization).map(str::to_owned));
    if let Some(signed) = &signed
        && let Some(name) = unsigned(signed, request)
    {
        let message = format!("There were headers present in the request which were not signed: {name}");
        return Some(S3Error::with_message(s3s::S3ErrorCode::AccessDenied, message));
    }
    let is_one_of = |names: &[&str], name: &str| names.iter().any(|beginning| name.starts_with(beginning));
    let mut headers = request.headers().keys().map(hyper::header::HeaderName::as_str);
    let mut parameters = query.iter().map(|(name, _)| name.as_str());
    let name = headers
        .find(|name| is_one_of(&UNSUPPORTED, name))
        .or_else(|| parameters.find(|name| is_one_of(&UNSUPPORTED_IN_URLS, name)))?;
    Some(s3_error!(
        NotImplemented,
        "A header you provided implies functionality that is not implemented: {name}"
    ))
}

/// The names of the signed headers in `AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=...`.
fn signed_headers(authorization: &str) -> Option<&str> {
    let fields = authorization.strip_prefix("AWS4-HMAC-SHA256")?;
    fields.split(',').find_map(|field| field.trim().strip_prefix("SignedHeaders="))
}

/// A header that decides what a request does, and is not covered by its signature. With one, a presigned URL
/// for one object would be good for others: `x-amz-copy-source` reads another object of the signer, and
/// `Host` names another bucket.
fn unsigned<B>(signed: &str, request: &Request<B>) -> Option<String> {
    let is_signed = |name: &str| signed.split(';').any(|signed| signed.eq_ignore_ascii_case(name));
    if !is_signed("host") {
        return Some("host".to_owned());
    }
    let names = request.headers().keys().map(hyper::header::HeaderName::as_str);
    let mut decisive = names.filter(|name| name.starts_with("x-amz-") && !MAY_BE_UNSIGNED.contains(name));
    decisive.find(|name| !is_signed(name)).map(str::to_owned)
}

/// Names in lower case, without their percent-encoding, and values as they are.
fn query_of(query: &str) -> Vec<(String, &str)> {
    let name = |name: &str| percent_decode(name).unwrap_or_else(|| name.to_owned()).to_ascii_lowercase();
    split_pairs(query).map(|(found, value)| (name(found), value)).collect()
}

/// The answer to a refused request, after which the connection ends.
pub fn answer(refusal: S3Error) -> Result<HttpResponse, HttpError> {
    let mut answer = refusal.to_http_response().map_err(|e| HttpError::new(e.into()))?;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(answer)
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
    fn xml_is_refused_by_its_length_and_bodies_of_objects_are_not() {
        let len = [("Content-Length", "4194305")];
        assert_eq!(code("POST", "/b?delete", &len).as_deref(), Some("MalformedXML"));
        assert_eq!(code("PUT", "/b/k", &len), None);
        let form = [("Content-Length", "4194305"), ("Content-Type", "multipart/form-data; boundary=x")];
        assert_eq!(code("POST", "/b", &form), None);
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
    fn decisive_headers_must_be_signed() {
        let refused = Some("AccessDenied");
        let url = "/b/k?X-Amz-Signature=0&X-Amz-SignedHeaders=";
        let with = |signed: &str, headers: &[(&str, &str)]| code("PUT", &format!("{url}{signed}"), headers);
        assert_eq!(with("host", &[("host", "a")]), None);
        assert_eq!(with("host", &[("x-amz-copy-source", "/b/secret")]).as_deref(), refused);
        assert_eq!(with("host%3Bx-amz-copy-source", &[("x-amz-copy-source", "/b/k")]), None);
        assert_eq!(with("host;x-amz-acl", &[("x-amz-acl", "private")]), None);
        assert_eq!(with("host", &[("x-amz-acl", "public-read")]).as_deref(), refused);
        assert_eq!(with("host", &[("x-amz-content-sha256", "UNSIGNED-PAYLOAD")]), None);
        assert_eq!(with("x-amz-date", &[]).as_deref(), refused);
        let header =
            |signed: &str| format!("AWS4-HMAC-SHA256 Credential=a, SignedHeaders={signed}, Signature=0");
        let date = ("x-amz-date", "20260102T030405Z");
        let signed = header("host;x-amz-date");
        assert_eq!(code("GET", "/b/k", &[("authorization", &signed), date]), None);
        assert_eq!(
            code("GET", "/b/k", &[("authorization", &signed), date, ("x-amz-meta-a", "1")]).as_deref(),
            refused
        );
    }

    #[test]
    fn headers_that_change_what_a_write_means_are_refused() {
        for (name, in_header) in [
            ("x-amz-server-side-encryption", None),
            ("x-amz-server-side-encryption-customer-algorithm", None),
            ("x-amz-copy-source-server-side-encryption-customer-key", None),
            ("x-amz-write-offset-bytes", Some("NotImplemented")),
        ] {
            assert_eq!(code("PUT", "/b/k", &[(name, "1")]).as_deref(), in_header, "{name}");
            let in_url = format!("/b/k?{}=1", name.to_ascii_uppercase());
            assert_eq!(code("PUT", &in_url, &[]).as_deref(), Some("NotImplemented"), "{name}");
        }
        assert_eq!(code("PUT", "/b/k", &[("x-amz-meta-object-lock-mode", "1")]), None);
    }
}
