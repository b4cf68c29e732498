//! Requests of pages of other sites: the question that a browser asks first, and the headers of answers.

use crate::buckets::{Buckets, OpenBucket};
use crate::errors;
use crate::listing::percent_decode;
use crate::trace::Trace;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, HeaderValue,
    ORIGIN, VARY,
};
use hyper::{Method, Request, Response, StatusCode};
use nacre_s3::{CorsAnswer, CorsRequest, CorsRule};
use s3s::{HttpError, HttpResponse, S3Error, S3Result};

/// What a request of another site needs to know when it is answered.
pub struct CrossOrigin {
    origin: String,
    method: String,
    /// As the request names it.
    bucket: String,
    /// Knows which one that is for the sender, when the request was checked.
    trace: Option<Trace>,
}

impl CrossOrigin {
    /// Of a request with an origin; none for all others. The bucket is in the path if it is not that of the
    /// host.
    pub fn of<B>(request: &Request<B>, of_host: Option<String>) -> Option<CrossOrigin> {
        let origin = request.headers().get(ORIGIN)?.to_str().ok()?;
        let of_path = || percent_decode(request.uri().path().strip_prefix('/')?.split('/').next()?);
        let bucket = of_host.or_else(of_path)?;
        if bucket.is_empty() {
            return None;
        }
        let trace = request.extensions().get::<Trace>().cloned();
        Some(CrossOrigin { origin: origin.to_owned(), method: request.method().to_string(), bucket, trace })
    }

    /// The bucket; none if there is none. One without a sender that is known has no tenant of its own.
    async fn find(&self, buckets: &Buckets) -> S3Result<Option<OpenBucket>> {
        let known = self.trace.as_ref().and_then(|trace| trace.facts().bucket.clone());
        let name = match known {
            Some(bucket) => bucket.name.clone(),
            None => buckets.full_name(&self.bucket, "").await?,
        };
        buckets.of_any_user(&name).await
    }

    /// Adds the headers that let the page read the answer, if a rule of the bucket allows it.
    pub async fn allow<B>(&self, buckets: &Buckets, answer: &mut Response<B>) {
        let Ok(Some(bucket)) = self.find(buckets).await else { return };
        if bucket.config.cors.is_empty() {
            return;
        }
        vary(answer.headers_mut());
        let request = CorsRequest { origin: &self.origin, method: &self.method, headers: "" };
        if let Some(allowed) = CorsRule::answer(&bucket.config.cors, request) {
            write(&allowed, answer.headers_mut());
        }
    }
}

/// Whether a browser asks what a page may do.
pub fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ORIGIN)
}

/// The answer to a browser. It needs no signature: browsers do not sign it.
pub async fn preflight<B>(
    buckets: &Buckets,
    of_host: Option<String>,
    request: &Request<B>,
) -> Result<HttpResponse, HttpError> {
    match allowed(buckets, of_host, request).await {
        Ok(allowed) => {
            let mut answer = Response::new(s3s::Body::empty());
            write(&allowed, answer.headers_mut());
            vary(answer.headers_mut());
            Ok(answer)
        }
        Err(error) => error.to_http_response().map_err(|e| HttpError::new(e.into())),
    }
}

async fn allowed<B>(
    buckets: &Buckets,
    of_host: Option<String>,
    request: &Request<B>,
) -> S3Result<CorsAnswer> {
    let text = |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
    let asked = CrossOrigin::of(request, of_host);
    let (Some(asked), Some(method)) = (asked, text(ACCESS_CONTROL_REQUEST_METHOD)) else {
        let message = "Insufficient information. Origin request header needed.";
        return Err(errors::with_code("BadRequest", StatusCode::BAD_REQUEST, message));
    };
    let headers = text(ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
    let bucket = asked.find(buckets).await?.ok_or_else(errors::no_such_bucket)?;
    let request = CorsRequest { origin: &asked.origin, method, headers };
    CorsRule::answer(&bucket.config.cors, request).ok_or_else(forbidden)
}

fn forbidden() -> S3Error {
    let message = "CORSResponse: This CORS request is not allowed.";
    errors::with_code("AccessForbidden", StatusCode::FORBIDDEN, message)
}

fn write(allowed: &CorsAnswer, headers: &mut HeaderMap) {
    let mut put = |name: HeaderName, text: &str| {
        // Rules with other characters are refused when they are set.
        if let (false, Ok(value)) = (text.is_empty(), HeaderValue::try_from(text)) {
            headers.insert(name, value);
        }
    };
    put(ACCESS_CONTROL_ALLOW_ORIGIN, &allowed.origin);
    put(ACCESS_CONTROL_ALLOW_METHODS, &allowed.methods);
    put(ACCESS_CONTROL_ALLOW_HEADERS, &allowed.headers);
    put(ACCESS_CONTROL_EXPOSE_HEADERS, &allowed.exposed);
    if let Some(seconds) = allowed.max_age {
        put(ACCESS_CONTROL_MAX_AGE, &seconds.to_string());
    }
    if allowed.origin != "*" {
        put(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
}

/// The answer depends on these headers of the request: a cache must not give it to another page.
fn vary(headers: &mut HeaderMap) {
    let names = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method";
    headers.append(VARY, HeaderValue::from_static(names));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uri: &str, origin: Option<&str>) -> Option<String> {
        let mut request = Request::builder().method("GET").uri(uri);
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        CrossOrigin::of(&request.body(()).unwrap(), None).map(|found| found.bucket)
    }

    #[test]
    fn bucket_of_a_page_is_that_of_the_host_or_the_first_part_of_the_path() {
        assert_eq!(of("/photos/a/b", Some("https://x")).as_deref(), Some("photos"));
        assert_eq!(of("/pho%74os?cors", Some("https://x")).as_deref(), Some("photos"));
        let request = Request::builder().uri("/a/b").header(ORIGIN, "https://x").body(()).unwrap();
        assert_eq!(CrossOrigin::of(&request, Some("photos".into())).unwrap().bucket, "photos");
        assert_eq!(of("/photos/a", None), None);
        assert_eq!(of("/", Some("https://x")), None);
    }
}
