//! Buckets as web sites, under host names of their own: index and error documents, and redirects.
//!
//! A request is carried out as a GET of an object without a signature. So a site shows what may be read
//! without one.

use crate::buckets::Buckets;
use crate::domains::Domains;
use crate::errors;
use crate::listing::{percent_decode, percent_encode};
use crate::service::Core;
use hyper::header::{
    ACCEPT_RANGES, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST, HeaderMap, HeaderName,
    HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, LOCATION, RANGE,
};
use hyper::{Method, Request, Response, StatusCode};
use nacre_s3::website::{Redirect, RoutingRule, Target, Website};
use nacre_wire::to_vec;
use s3s::dto::{
    Condition, DeleteBucketWebsiteInput, DeleteBucketWebsiteOutput, ErrorDocument, GetBucketWebsiteInput,
    GetBucketWebsiteOutput, IndexDocument, Protocol, PutBucketWebsiteInput, PutBucketWebsiteOutput,
    RedirectAllRequestsTo, WebsiteConfiguration,
};
use s3s::service::S3Service;
use s3s::{Body, HttpError, HttpResponse, S3Request, S3Response, S3Result, s3_error};

/// The header of an object that sends its readers elsewhere.
const REDIRECT: &str = "x-amz-website-redirect-location";
/// The host of requests for objects, which is in no domain.
const INSIDE: &str = "website.invalid";
/// The status of a redirect for which a rule names none.
const MOVED: u16 = 301;

/// The host names under which buckets are web sites.
pub struct Sites(pub Domains);

impl Sites {
    /// The bucket that a request is for as a web site.
    pub fn bucket_of<B>(&self, request: &Request<B>) -> Option<String> {
        let host = request.headers().get(HOST)?.to_str().ok()?;
        self.0.bucket_of(host).map(str::to_ascii_lowercase)
    }
}

/// A request for a page.
struct Visit<'a> {
    service: &'a S3Service,
    bucket: &'a str,
    host: String,
    is_encrypted: bool,
    request: Request<()>,
}

/// Answers a request for a page of a site.
pub async fn serve(
    service: &S3Service,
    buckets: &Buckets,
    bucket: &str,
    request: &Request<Body>,
    is_encrypted: bool,
) -> Result<HttpResponse, HttpError> {
    let is_head = request.method() == Method::HEAD;
    let is_read = is_head || request.method() == Method::GET;
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.headers_mut() = request.headers().clone();
    *head.extensions_mut() = request.extensions().clone();
    let visit = Visit { service, bucket, host, is_encrypted, request: head };
    let path = percent_decode(request.uri().path().trim_start_matches('/'));
    let mut answer = match (path, is_read) {
        (_, false) => page(405, "MethodNotAllowed", "A web site can only be read."),
        (None, _) => page(400, "InvalidURI", "The path is not UTF-8."),
        (Some(path), true) => match buckets.of_any_user(bucket).await {
            Ok(Some(found)) => match Website::decode(&found.config.others) {
                Ok(Some(site)) => visit.answer(&site, &path).await?,
                Ok(None) => page(404, "NoSuchWebsiteConfiguration", "The bucket is no web site."),
                Err(e) => {
                    errors::corrupt(e);
                    page(500, "InternalError", "The settings of the web site cannot be read.")
                }
            },
            Ok(None) => page(404, "NoSuchBucket", "There is no such web site."),
            Err(_) => page(503, "ServiceUnavailable", "Please try again."),
        },
    };
    if is_head {
        *answer.body_mut() = Body::empty();
    }
    Ok(answer)
}

impl Visit<'_> {
    async fn answer(&self, site: &Website, path: &str) -> Result<HttpResponse, HttpError> {
        if let Some(redirect) = site.redirect(path, None) {
            return Ok(self.redirect(redirect));
        }
        let key = site.key_of(path);
        let answer = self.get(self.request.method().clone(), &key, true).await?;
        if let Some(to) = answer.headers().get(REDIRECT).filter(|_| answer.status().is_success()) {
            return Ok(moved(StatusCode::MOVED_PERMANENTLY, to.clone()));
        }
        let status = answer.status();
        if !status.is_client_error() && !status.is_server_error() {
            return Ok(answer);
        }
        // What a folder's name stands for is found with a slash.
        let is_missing = status == StatusCode::NOT_FOUND || status == StatusCode::FORBIDDEN;
        if is_missing && !path.is_empty() && !path.ends_with('/') {
            let index = site.key_of(&format!("{path}/"));
            if self.get(Method::HEAD, &index, false).await?.status().is_success() {
                let to = format!("/{}/", percent_encode(path.as_bytes()));
                if let Ok(to) = HeaderValue::try_from(to) {
                    return Ok(moved(StatusCode::FOUND, to));
                }
            }
        }
        self.failed(site, path, status).await
    }

    async fn failed(
        &self,
        site: &Website,
        path: &str,
        status: StatusCode,
    ) -> Result<HttpResponse, HttpError> {
        if let Some(redirect) = site.redirect(path, Some(status.as_u16())) {
            return Ok(self.redirect(redirect));
        }
        if !site.error.is_empty() {
            let mut answer = self.get(self.request.method().clone(), &site.error, false).await?;
            if answer.status().is_success() {
                *answer.status_mut() = status;
                for name in [CONTENT_RANGE, ACCEPT_RANGES] {
                    answer.headers_mut().remove(name);
                }
                return Ok(answer);
            }
        }
        let (code, message) = match status {
            StatusCode::NOT_FOUND => ("NoSuchKey", "The specified key does not exist."),
            StatusCode::FORBIDDEN => ("AccessDenied", "Access Denied"),
            _ => ("Error", "The page cannot be shown."),
        };
        Ok(page(status.as_u16(), code, message))
    }

    /// Reads an object without a signature.
    async fn get(&self, method: Method, key: &str, with_conditions: bool) -> Result<HttpResponse, HttpError> {
        let target = format!("/{}/{}", self.bucket, percent_encode(key.as_bytes()));
        let mut request = Request::builder().method(method).uri(target).body(Body::empty());
        let Ok(request) = &mut request else { return Ok(page(400, "InvalidURI", "There is no such path.")) };
        let mut headers = HeaderMap::new();
        let is_condition = |name: &HeaderName| {
            [&RANGE, &IF_MATCH, &IF_NONE_MATCH, &IF_MODIFIED_SINCE, &IF_UNMODIFIED_SINCE].contains(&name)
        };
        for (name, value) in self.request.headers() {
            let is_kept =
                if is_condition(name) { with_conditions } else { !name.as_str().starts_with("x-amz-") };
            if is_kept && *name != AUTHORIZATION && *name != CONTENT_LENGTH {
                headers.append(name, value.clone());
            }
        }
        headers.insert(HOST, HeaderValue::from_static(INSIDE));
        *request.headers_mut() = headers;
        *request.extensions_mut() = self.request.extensions().clone();
        self.service.call(std::mem::replace(request, Request::new(Body::empty()))).await
    }

    fn redirect(&self, redirect: Redirect<'_>) -> HttpResponse {
        let Redirect { status, target, key } = redirect;
        let protocol = match (target.protocol.as_str(), self.is_encrypted) {
            ("", true) => "https",
            ("", false) => "http",
            (protocol, _) => protocol,
        };
        let host = if target.host.is_empty() { &self.host } else { &target.host };
        let to = HeaderValue::try_from(format!("{protocol}://{host}/{}", percent_encode(key.as_bytes())));
        match (StatusCode::from_u16(status), to) {
            (Ok(status), Ok(to)) => moved(status, to),
            _ => page(500, "InternalError", "The rule cannot be followed."),
        }
    }
}

fn moved(status: StatusCode, to: HeaderValue) -> HttpResponse {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer.headers_mut().insert(LOCATION, to);
    answer
}

/// A page of the gateway's own. All texts are the gateway's.
fn page(status: u16, code: &str, message: &str) -> HttpResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{status}</title></head>\n\
         <body><h1>{status}</h1><p>{code}: {message}</p></body></html>\n"
    );
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    answer
}

fn website_of(asked: WebsiteConfiguration) -> S3Result<Website> {
    let protocol = |it: Option<Protocol>| it.map(|it| it.as_str().to_owned()).unwrap_or_default();
    let number = |text: &str| {
        text.parse::<u16>().map_err(|_| s3_error!(InvalidRequest, "{text:?} is no status of HTTP"))
    };
    let mut rules = Vec::new();
    for rule in asked.routing_rules.unwrap_or_default() {
        let (prefix, on_status) = match rule.condition {
            None => (String::new(), 0),
            Some(condition) => {
                let status = condition.http_error_code_returned_equals.as_deref().map(number).transpose()?;
                (condition.key_prefix_equals.unwrap_or_default(), status.unwrap_or(0))
            }
        };
        let redirect = rule.redirect;
        rules.push(RoutingRule {
            prefix,
            on_status,
            target: Target {
                host: redirect.host_name.unwrap_or_default(),
                protocol: protocol(redirect.protocol),
            },
            new_prefix: redirect.replace_key_prefix_with,
            new_key: redirect.replace_key_with,
            status: redirect.http_redirect_code.as_deref().map(number).transpose()?.unwrap_or(MOVED),
        });
    }
    let website = Website {
        index: asked.index_document.map(|it| it.suffix).unwrap_or_default(),
        error: asked.error_document.map(|it| it.key).unwrap_or_default(),
        all_to: asked
            .redirect_all_requests_to
            .map(|to| Target { host: to.host_name, protocol: protocol(to.protocol) }),
        rules,
    };
    match website.fault() {
        None => Ok(website),
        Some(fault) => Err(s3_error!(InvalidArgument, "{fault}")),
    }
}

fn shown(website: Website) -> GetBucketWebsiteOutput {
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let protocol = |text: String| some(text).map(Protocol::from);
    let rule = |rule: RoutingRule| {
        let condition = Condition {
            http_error_code_returned_equals: (rule.on_status > 0).then(|| rule.on_status.to_string()),
            key_prefix_equals: some(rule.prefix),
        };
        let has_condition =
            condition.http_error_code_returned_equals.is_some() || condition.key_prefix_equals.is_some();
        s3s::dto::RoutingRule {
            condition: has_condition.then_some(condition),
            redirect: s3s::dto::Redirect {
                host_name: some(rule.target.host),
                http_redirect_code: Some(rule.status.to_string()),
                protocol: protocol(rule.target.protocol),
                replace_key_prefix_with: rule.new_prefix,
                replace_key_with: rule.new_key,
            },
        }
    };
    GetBucketWebsiteOutput {
        error_document: some(website.error).map(|key| ErrorDocument { key }),
        index_document: some(website.index).map(|suffix| IndexDocument { suffix }),
        redirect_all_requests_to: website
            .all_to
            .map(|to| RedirectAllRequestsTo { host_name: to.host, protocol: protocol(to.protocol) }),
        routing_rules: Some(website.rules.into_iter().map(rule).collect::<Vec<_>>())
            .filter(|rules| !rules.is_empty()),
    }
}

impl Core {
    /// PutBucketWebsite.
    pub async fn put_bucket_website(
        &self,
        req: S3Request<PutBucketWebsiteInput>,
    ) -> S3Result<S3Response<PutBucketWebsiteOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let website = website_of(req.input.website_configuration)?;
        self.buckets.set(&bucket, Website::SETTING, Some(to_vec(&website))).await?;
        Ok(S3Response::new(PutBucketWebsiteOutput::default()))
    }

    /// GetBucketWebsite.
    pub async fn get_bucket_website(
        &self,
        req: S3Request<GetBucketWebsiteInput>,
    ) -> S3Result<S3Response<GetBucketWebsiteOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let website = Website::decode(&bucket.config.others).map_err(errors::corrupt)?.ok_or_else(|| {
            let message = "The specified bucket does not have a website configuration";
            errors::with_code("NoSuchWebsiteConfiguration", StatusCode::NOT_FOUND, message)
        })?;
        Ok(S3Response::new(shown(website)))
    }

    /// DeleteBucketWebsite.
    pub async fn delete_bucket_website(
        &self,
        req: S3Request<DeleteBucketWebsiteInput>,
    ) -> S3Result<S3Response<DeleteBucketWebsiteOutput>> {
        let bucket = self.open(&req.extensions).await?;
        self.buckets.set(&bucket, Website::SETTING, None).await?;
        Ok(S3Response::with_status(DeleteBucketWebsiteOutput::default(), StatusCode::NO_CONTENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn websites_are_shown_as_they_were_set() {
        let condition = Condition {
            http_error_code_returned_equals: Some("404".into()),
            key_prefix_equals: Some("a/".into()),
        };
        let redirect = s3s::dto::Redirect {
            host_name: Some("example.com".into()),
            http_redirect_code: Some("302".into()),
            protocol: Some(Protocol::from_static("https")),
            replace_key_prefix_with: Some("b/".into()),
            replace_key_with: None,
        };
        let asked = WebsiteConfiguration {
            error_document: Some(ErrorDocument { key: "e.html".into() }),
            index_document: Some(IndexDocument { suffix: "i.html".into() }),
            redirect_all_requests_to: None,
            routing_rules: Some(vec![s3s::dto::RoutingRule { condition: Some(condition), redirect }]),
        };
        let output = shown(website_of(asked.clone()).unwrap());
        assert_eq!(output.routing_rules, asked.routing_rules);
        assert_eq!(output.index_document, asked.index_document);
        assert!(website_of(WebsiteConfiguration { index_document: None, ..asked }).is_err());
    }

    #[test]
    fn hosts_of_sites_name_their_bucket() {
        let sites = Sites(Domains::new(&["web.example.com".into()]).unwrap());
        let of = |host: &str| sites.bucket_of(&Request::builder().header(HOST, host).body(()).unwrap());
        assert_eq!(of("Photos.web.example.com:80").as_deref(), Some("photos"));
        assert_eq!(of("web.example.com"), None);
        assert_eq!(of(INSIDE), None);
    }
}
