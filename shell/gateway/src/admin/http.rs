//! The Admin Ops API: `/admin/user` and so on, for users with capabilities.

use super::users::uid;
use super::{Admin, AdminError, Params, Result, Verb};
use crate::audit::AuditLog;
use crate::domains::Domains;
use crate::listing::url_pairs;
use crate::trace::Trace;
use crate::users::{Identity, Users};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::http::Extensions;
use hyper::{Method, StatusCode, Uri};
use s3s::route::S3Route;
use s3s::{Body, S3Request, S3Response, S3Result, s3_error};
use serde_json::{Value, json};
use std::sync::Arc;

/// The most bytes of a body.
const BODY_MAX: usize = 64 << 10;

/// The Admin Ops API.
pub struct AdminApi {
    pub admin: Admin,
    pub users: Arc<Users>,
    pub domains: Domains,
    pub audit: Option<Arc<AuditLog>>,
}

/// What a request asks for: a verb, and the kind of capability it needs.
fn route(method: &Method, path: &str, params: &Params) -> Option<(Verb, &'static str, bool)> {
    let has = |name: &str| params.has(name);
    let (read, write) = (false, true);
    Some(match (path.trim_end_matches('/'), method.as_str()) {
        ("/admin/user", "GET") if has("quota") => (Verb::QuotaGet, "users", read),
        ("/admin/user", "GET") if has("list") => (Verb::UserList, "users", read),
        ("/admin/user", "GET") => (Verb::UserInfo, "users", read),
        ("/admin/user", "PUT") if has("key") => (Verb::KeyCreate, "users", write),
        ("/admin/user", "PUT") if has("subuser") => (Verb::SubuserCreate, "users", write),
        ("/admin/user", "PUT") if has("caps") => (Verb::CapsAdd, "users", write),
        ("/admin/user", "PUT") if has("quota") => (Verb::QuotaSet, "users", write),
        ("/admin/user", "PUT") => (Verb::UserCreate, "users", write),
        ("/admin/user", "POST") if has("subuser") => (Verb::SubuserModify, "users", write),
        ("/admin/user", "POST") => (Verb::UserModify, "users", write),
        ("/admin/user", "DELETE") if has("key") => (Verb::KeyRemove, "users", write),
        ("/admin/user", "DELETE") if has("subuser") => (Verb::SubuserRemove, "users", write),
        ("/admin/user", "DELETE") if has("caps") => (Verb::CapsRemove, "users", write),
        ("/admin/user", "DELETE") => (Verb::UserRemove, "users", write),
        ("/admin/metadata/user", "GET") if has("key") => (Verb::UserInfo, "metadata", read),
        ("/admin/metadata/user", "GET") => (Verb::UserList, "metadata", read),
        ("/admin/metadata/bucket", "GET") if !has("key") => (Verb::BucketList, "metadata", read),
        ("/admin/bucket", "GET") if has("policy") => (Verb::BucketPolicy, "buckets", read),
        ("/admin/bucket", "GET") if has("index") => (Verb::BucketCheck, "buckets", write),
        ("/admin/bucket", "GET") => (Verb::BucketList, "buckets", read),
        ("/admin/bucket", "PUT") if has("quota") => (Verb::QuotaSet, "buckets", write),
        ("/admin/bucket", "PUT") => (Verb::BucketLink, "buckets", write),
        ("/admin/bucket", "POST") => (Verb::BucketUnlink, "buckets", write),
        ("/admin/bucket", "DELETE") => (Verb::BucketRemove, "buckets", write),
        ("/admin/account", "GET") => (Verb::AccountGet, "accounts", read),
        ("/admin/account", "POST") => (Verb::AccountCreate, "accounts", write),
        ("/admin/account", "PUT") if has("quota") => (Verb::QuotaSet, "accounts", write),
        ("/admin/account", "PUT") => (Verb::AccountModify, "accounts", write),
        ("/admin/account", "DELETE") => (Verb::AccountRemove, "accounts", write),
        ("/admin/metadata/account", "GET") if !has("key") => (Verb::AccountList, "metadata", read),
        ("/admin/ratelimit", "GET") => (Verb::RateLimitGet, "ratelimit", read),
        ("/admin/ratelimit", "POST") => (Verb::RateLimitSet, "ratelimit", write),
        ("/admin/usage", "GET") => (Verb::UsageShow, "usage", read),
        ("/admin/usage", "DELETE") => (Verb::UsageTrim, "usage", write),
        ("/admin/info", "GET") => (Verb::Info, "info", read),
        _ => return None,
    })
}

/// Whether a path is one of the API, which no bucket can have.
pub fn is_admin(path: &str) -> bool {
    path.strip_prefix("/admin/").is_some_and(|rest| !rest.is_empty())
}

fn params_of(query: Option<&str>) -> Params {
    let is_of_signature = |name: &str| name.to_ascii_lowercase().starts_with("x-amz-");
    Params(url_pairs(query.unwrap_or_default()).filter(|(name, _)| !is_of_signature(name)).collect())
}

/// The part of the answer that the API gives where the command shows the whole user.
fn part(verb: Verb, params: &Params, answer: Value) -> Value {
    let of = |name: &str| answer.get(name).cloned().unwrap_or_default();
    match verb {
        Verb::KeyCreate => of("keys"),
        Verb::SubuserCreate | Verb::SubuserModify => of("subusers"),
        Verb::CapsAdd | Verb::CapsRemove => of("caps"),
        Verb::UserList if params.has("list") => {
            let count = answer.as_array().map_or(0, Vec::len);
            json!({ "keys": answer, "truncated": false, "count": count })
        }
        Verb::KeyRemove | Verb::SubuserRemove => Value::Null,
        _ => answer,
    }
}

/// Whether the sender is this owner of buckets: the user, or the account whose root it is.
fn owns(identity: &Identity, id: &str) -> bool {
    let is_root = identity.sender.account.as_ref().is_none_or(|account| account.is_root);
    is_root && identity.owner.as_ref().is_some_and(|owner| owner.id == id)
}

impl AdminApi {
    async fn answer(&self, req: &mut S3Request<Body>) -> Result<Value> {
        let denied = || AdminError::new(StatusCode::FORBIDDEN, "AccessDenied", "");
        let access_key = req.credentials.as_ref().ok_or_else(denied)?.access_key.clone();
        let token = req.headers.get("x-amz-security-token").and_then(|value| value.to_str().ok());
        let identity = self.users.identify(&access_key, token).await?;
        let is_limited = !identity.sender.limits.is_empty();
        let sender = identity.user.clone().filter(|_| !is_limited).ok_or_else(denied)?;
        let mut params = params_of(req.uri.query());
        let missing = || AdminError::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "");
        let (verb, kind, is_write) = route(&req.method, req.uri.path(), &params).ok_or_else(missing)?;
        let has_right = match is_write {
            true => identity.sender.may_write && sender.caps.may_write(kind),
            false => identity.sender.may_read && sender.caps.may_read(kind),
        };
        // As radosgw: without the right to keys, users can be looked at with the capability for that.
        let sees_less = verb == Verb::UserInfo && sender.caps.may_read("user-info-without-keys");
        // What was done with one's own buckets is no secret.
        let is_own = verb == Verb::UsageShow
            && identity.sender.may_read
            && owns(&identity, &uid(&params).unwrap_or_default());
        if !(has_right || sees_less || is_own) {
            return Err(denied());
        }
        tracing::info!("{} of the Admin Ops API by {}: {verb:?}", req.method, sender.id);
        if let (Verb::UserInfo, Some(key)) = (verb, params.get("key").map(str::to_owned)) {
            params.0.insert("uid".to_owned(), key);
        }
        if matches!(verb, Verb::QuotaSet) {
            self.merge_body(req, &mut params).await?;
            // The capability is for this kind of owner only.
            match req.uri.path().trim_end_matches('/') {
                "/admin/bucket" => params.need("bucket").map(drop)?,
                "/admin/account" => {
                    let id = params.get("account-id").or(params.get("id"));
                    let id = id.ok_or_else(|| AdminError::argument("account-id is missing"))?.to_owned();
                    params.0.insert("account-id".to_owned(), id);
                    params.0.remove("bucket");
                }
                _ => {
                    params.0.remove("bucket");
                    params.0.remove("account-id");
                }
            }
        }
        let done = self.admin.run(verb, &params).await;
        if let Some(audit) = &self.audit {
            let remote =
                req.extensions.get::<Trace>().map(|trace| trace.peer().address.to_canonical().to_string());
            let remote = remote.unwrap_or_default();
            let error = done.as_ref().err().map(AdminError::noted);
            audit.administered(&sender.id, &remote, &verb.name(), &params.0, error);
        }
        let mut answer = part(verb, &params, done?);
        if !has_right && sees_less {
            answer["keys"] = json!([]);
        }
        Ok(answer)
    }

    /// Quotas may come as JSON, as they are shown.
    async fn merge_body(&self, req: &mut S3Request<Body>, params: &mut Params) -> Result<()> {
        let body = req.input.store_all_limited(BODY_MAX).await;
        let body = body.map_err(|e| AdminError::argument(format!("the body cannot be read: {e}")))?;
        if body.is_empty() {
            return Ok(());
        }
        let fields: Value = serde_json::from_slice(&body)
            .map_err(|e| AdminError::argument(format!("the body is not JSON: {e}")))?;
        let names = ["enabled", "max_size", "max_size_kb", "max_objects"];
        for name in names {
            let text = match fields.get(name) {
                Some(Value::Bool(value)) => value.to_string(),
                Some(Value::Number(value)) => value.to_string(),
                _ => continue,
            };
            params.0.entry(name.replace('_', "-")).or_insert(text);
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl S3Route for AdminApi {
    fn is_match(&self, _: &Method, uri: &Uri, headers: &HeaderMap, _: &mut Extensions) -> bool {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        // Below the name of a bucket, it is a key.
        is_admin(uri.path()) && self.domains.bucket_of(host).is_none()
    }

    async fn check_access(&self, req: &mut S3Request<Body>) -> S3Result<()> {
        match req.credentials {
            Some(_) => Ok(()),
            None => Err(s3_error!(AccessDenied, "Access Denied")),
        }
    }

    async fn call(&self, mut req: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let (status, value) = match self.answer(&mut req).await {
            Ok(value) => (StatusCode::OK, value),
            Err(error) => {
                tracing::info!("the Admin Ops API refuses: {error}");
                let id = uuid::Uuid::new_v4().simple().to_string();
                let value =
                    json!({ "Code": error.code, "Message": error.message, "RequestId": id, "HostId": "" });
                (error.status, value)
            }
        };
        let text = if value.is_null() { String::new() } else { value.to_string() };
        let mut response = S3Response::with_status(Body::from(text), status);
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_method_and_parameters() {
        let verb = |method: &str, target: &str| {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            route(&method, path, &params_of(Some(query))).map(|(verb, kind, is_write)| {
                assert!(is_write || method == Method::GET, "{target}");
                (verb, kind)
            })
        };
        for (method, target, expected) in [
            ("GET", "/admin/user?uid=a", Some((Verb::UserInfo, "users"))),
            ("GET", "/admin/user/?uid=a&format=json", Some((Verb::UserInfo, "users"))),
            ("GET", "/admin/user?list", Some((Verb::UserList, "users"))),
            ("GET", "/admin/metadata/user", Some((Verb::UserList, "metadata"))),
            ("PUT", "/admin/user?uid=a&display-name=A", Some((Verb::UserCreate, "users"))),
            ("PUT", "/admin/user?key&uid=a", Some((Verb::KeyCreate, "users"))),
            ("PUT", "/admin/user?subuser=s&uid=a", Some((Verb::SubuserCreate, "users"))),
            ("PUT", "/admin/user?caps&uid=a", Some((Verb::CapsAdd, "users"))),
            ("PUT", "/admin/user?quota&uid=a", Some((Verb::QuotaSet, "users"))),
            ("POST", "/admin/user?uid=a", Some((Verb::UserModify, "users"))),
            ("DELETE", "/admin/user?uid=a", Some((Verb::UserRemove, "users"))),
            ("DELETE", "/admin/user?key&access-key=k", Some((Verb::KeyRemove, "users"))),
            ("GET", "/admin/bucket?uid=a", Some((Verb::BucketList, "buckets"))),
            ("PUT", "/admin/bucket?bucket=b&uid=a", Some((Verb::BucketLink, "buckets"))),
            ("DELETE", "/admin/bucket?bucket=b", Some((Verb::BucketRemove, "buckets"))),
            ("GET", "/admin/info", Some((Verb::Info, "info"))),
            ("POST", "/admin/account?name=a", Some((Verb::AccountCreate, "accounts"))),
            ("PUT", "/admin/account?id=a&quota", Some((Verb::QuotaSet, "accounts"))),
            ("DELETE", "/admin/account?id=a", Some((Verb::AccountRemove, "accounts"))),
            ("GET", "/admin/usage?uid=a", Some((Verb::UsageShow, "usage"))),
            ("DELETE", "/admin/usage?uid=a", Some((Verb::UsageTrim, "usage"))),
            ("GET", "/admin/ratelimit?ratelimit-scope=user", Some((Verb::RateLimitGet, "ratelimit"))),
            ("POST", "/admin/ratelimit?enabled=true", Some((Verb::RateLimitSet, "ratelimit"))),
            ("PATCH", "/admin/user", None),
            ("GET", "/admin/unheard-of", None),
        ] {
            assert_eq!(verb(method, target), expected, "{method} {target}");
        }
        let params = params_of(Some("display-name=A%20B+C&X-Amz-Signature=x"));
        assert_eq!(params.get("display-name"), Some("A B C"));
        assert!(!params.has("X-Amz-Signature"));
    }
}
