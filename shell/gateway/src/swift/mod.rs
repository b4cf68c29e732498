//! OpenStack's object storage API, version 1, beside S3: the same buckets and objects.
//!
//! Requests become operations of S3, which `access` checks and `Core` carries out, so that both interfaces
//! agree on everything. `tokens` has sign-in, `accounts`, `containers` and `objects` what is at the three
//! levels of URLs, `listing` the formats of lists, `manifests` objects that are made of others, `bulk`
//! deletes many at once, `temp_urls` serves URLs with a signature, `forms` takes uploads of browsers,
//! `archives` keeps versions in other containers.

mod accounts;
mod archives;
mod bulk;
mod containers;
mod forms;
mod listing;
mod manifests;
mod objects;
mod place;
mod reply;
mod temp_urls;
mod tokens;
mod versions;

use crate::access::{Access, Granted, Head, Target};
use crate::buckets::OpenBucket;
use crate::errors;
use crate::multipart::is_form;
use crate::service::Core;
use crate::trace::Trace;
use crate::users::Identity;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::Extensions;
use hyper::{Method, Request, StatusCode, Uri};
use nacre_s3::tenant::split_tenant;
use place::{Place, Route};
use reply::{Fault, Reply, Result};
use s3s::{Body, HttpResponse, S3Request};
use std::sync::Arc;
use tokens::Tokens;

/// The most bytes of a body that is read at once: a manifest, or a list of names.
const TEXT_MAX: usize = 2 << 20;

/// Serves the API.
#[derive(Clone)]
pub struct Swift {
    core: Arc<Core>,
    access: Access,
    tokens: Tokens,
}

/// A request whose sender is known.
#[derive(Clone)]
struct Call {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    /// Names and values of the URL's parameters.
    query: Vec<(String, String)>,
    identity: Identity,
    trace: Option<Trace>,
    place: Place,
}

impl Call {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty())
    }
    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
    fn has(&self, name: &str) -> bool {
        self.parameter(name).is_some()
    }
    /// Headers of a family such as `X-Object-Meta-`, by the rest of their names.
    fn family(&self, prefix: &str) -> Vec<(String, String)> {
        let named = self.headers.iter().filter_map(|(name, value)| {
            let rest = name.as_str().strip_prefix(prefix)?;
            Some((rest.to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        });
        named.filter(|(name, _)| !name.is_empty()).collect()
    }
    /// The account that the URL names, or else the sender's own.
    fn account(&self) -> Result<&str> {
        let own = self.identity.owner.as_ref().map(|user| user.id.as_str());
        self.place.account.as_deref().or(own).ok_or_else(Fault::unauthorized)
    }
    /// The account, if it is the sender's own.
    fn own_account(&self) -> Result<&str> {
        let account = self.account()?;
        match &self.identity.owner {
            Some(user) if user.id == account => Ok(account),
            Some(_) => Err(Fault::new(StatusCode::FORBIDDEN, "the account is another's")),
            None => Err(Fault::unauthorized()),
        }
    }
    fn container(&self) -> &str {
        self.place.container.as_deref().unwrap_or_default()
    }
    fn object(&self) -> &str {
        self.place.object.as_deref().unwrap_or_default()
    }
}

impl Swift {
    /// With what S3 uses.
    pub fn new(core: Arc<Core>, access: Access) -> Swift {
        Swift { tokens: Tokens::new(core.users.clone()), core, access }
    }

    /// Whether a request is one of this API.
    pub fn is_match<B>(request: &Request<B>) -> bool {
        Route::of(request.uri().path(), request.headers()).is_some()
    }

    /// Answers a request.
    pub async fn call(&self, request: Request<Body>) -> HttpResponse {
        let is_head = request.method() == Method::HEAD;
        let id = format!("tx{}", uuid::Uuid::new_v4().simple());
        let mut response = match self.answer(request).await {
            Ok(reply) => reply.into_response(),
            Err(fault) => fault.into_reply().into_response(),
        };
        if is_head {
            // The length that it would have stays.
            *response.body_mut() = Body::empty();
        }
        if let Ok(id) = HeaderValue::try_from(id) {
            response.headers_mut().insert("x-trans-id", id.clone());
            response.headers_mut().insert("x-openstack-request-id", id);
        }
        response
    }

    async fn answer(&self, request: Request<Body>) -> Result<Reply> {
        let route = Route::of(request.uri().path(), request.headers());
        let route = route.ok_or_else(|| Fault::new(StatusCode::NOT_FOUND, "there is nothing here"))?;
        match route {
            Route::Health => Ok(Reply::text("OK")),
            Route::Info => Ok(info()),
            Route::SignIn => self.tokens.sign_in(request).await,
            Route::Storage(path) => {
                let place = Place::of(&path)?;
                let is_form = is_form(&request);
                let (head, body) = request.into_parts();
                let query = Head::new(&head.headers, head.uri.query()).query;
                // A form carries its own signature.
                let form = (is_form && place.container.is_some()).then(|| head.clone());
                let trace = head.extensions.get::<Trace>().cloned();
                let mut call = Call {
                    method: head.method,
                    uri: head.uri,
                    headers: head.headers,
                    query,
                    identity: Identity::anonymous(),
                    trace,
                    place,
                };
                if let Some(head) = form {
                    return self.take_form(&call, Request::from_parts(head, body)).await;
                }
                call.identity = self.identify(&call).await?;
                self.at(&call, body).await
            }
        }
    }

    /// The sender of a request: by its token, or the owner of the account by a signature in the URL.
    async fn identify(&self, call: &Call) -> Result<Identity> {
        if call.has("temp_url_sig") || call.has("temp_url_expires") {
            return self.of_temp_url(call).await;
        }
        match call.header("x-auth-token").or_else(|| call.header("x-storage-token")) {
            Some(token) => self.tokens.identify(token).await,
            None => Ok(Identity::anonymous()),
        }
    }

    async fn at(&self, call: &Call, body: Body) -> Result<Reply> {
        match (&call.place.container, &call.place.object) {
            (None, _) => self.at_account(call, body).await,
            (Some(_), None) => self.at_container(call).await,
            (Some(_), Some(_)) => self.at_object(call, body).await,
        }
    }

    /// Checks whether the sender may do what is an operation of S3.
    async fn authorize(
        &self,
        call: &Call,
        operation: &str,
        bucket: &str,
        key: Option<&str>,
    ) -> Result<Granted> {
        self.authorize_version(call, operation, bucket, key, None).await
    }

    /// The same for a version.
    async fn authorize_version(
        &self,
        call: &Call,
        operation: &str,
        bucket: &str,
        key: Option<&str>,
        version: Option<&str>,
    ) -> Result<Granted> {
        let headers = HeaderMap::new();
        let mut head = Head::new(&headers, None);
        head.query.extend(version.map(|version| ("versionId".to_owned(), version.to_owned())));
        let target = Target { operation, bucket: Some(bucket), key };
        let granted = self.access.authorize(call.identity.clone(), target, &head, call.trace.as_ref()).await;
        granted.map_err(|error| Fault::of(error, &call.identity))
    }

    /// The full name of a container of the account that the URL names. No container has a slash in its name:
    /// a name with one is full already.
    async fn full_name(&self, call: &Call, name: &str) -> Result<String> {
        if name.contains('/') {
            return Ok(name.to_owned());
        }
        let tenant = match &call.place.account {
            Some(account) => split_tenant(account).0,
            None => call.identity.tenant(),
        };
        let name = self.core.buckets.name_in(tenant, name).await;
        name.map_err(|error| Fault::of(error, &call.identity))
    }

    /// A container of the account that the URL names.
    async fn container(&self, call: &Call, name: &str) -> Result<OpenBucket> {
        let name = self.full_name(call, name).await?;
        let bucket = self.core.buckets.open(&name).await.map_err(|error| Fault::of(error, &call.identity))?;
        match &call.place.account {
            Some(account) if *account != bucket.record.owner => {
                Err(Fault::of(errors::no_such_bucket(), &call.identity))
            }
            _ => Ok(bucket),
        }
    }
}

/// A request for `Core`.
fn s3_request<T>(call: &Call, input: T, headers: HeaderMap, granted: Granted) -> S3Request<T> {
    let mut extensions = Extensions::new();
    extensions.insert(granted);
    S3Request {
        input,
        method: call.method.clone(),
        uri: call.uri.clone(),
        headers,
        extensions,
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

/// Reads a body that must be small.
async fn read_text(mut body: Body) -> Result<bytes::Bytes> {
    let too_large = |_| Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
    body.store_all_limited(TEXT_MAX).await.map_err(too_large)
}

/// What clients are told that the gateway can do.
fn info() -> Reply {
    Reply::json(&serde_json::json!({
        "swift": {
            "version": env!("CARGO_PKG_VERSION"),
            "max_file_size": crate::objects::PUT_MAX,
            "max_object_name_length": 1024,
            "max_container_name_length": place::CONTAINER_MAX,
            "container_listing_limit": listing::PAGE_MAX,
            "account_listing_limit": listing::PAGE_MAX,
            "strict_cors_mode": true,
        },
        "slo": {
            "max_manifest_segments": manifests::SEGMENTS_MAX,
            "max_manifest_size": TEXT_MAX,
            "min_segment_size": 1,
        },
        "versioned_writes": { "allowed_flags": ["x-versions-location", "x-history-location"] },
        "object_versioning": {},
        "bulk_delete": { "max_deletes_per_request": bulk::DELETES_MAX },
        "tempurl": { "methods": temp_urls::METHODS, "allowed_digests": ["sha1", "sha256", "sha512"] },
        "formpost": { "allowed_digests": ["sha1", "sha256", "sha512"] },
        "tempauth": { "account_acls": false },
    }))
}
