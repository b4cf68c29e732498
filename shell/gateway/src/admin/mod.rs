//! Administration: what `nacre s3 ...` and the Admin Ops API do, with radosgw's words and JSON.
//!
//! Both ask with the parameters of the Admin Ops API. `http` has the API, `users`, `roles`, `keys`,
//! `rates`, `usage` and `buckets` what is asked for, `shape` the JSON.

mod accounts;
mod buckets;
mod check;
mod http;
mod keys;
mod placement;
mod rates;
mod roles;
mod shape;
mod swift_keys;
mod usage;
mod users;

pub use http::AdminApi;
pub use shape::time_of;

use crate::buckets::Buckets;
use crate::store::Store;
use crate::usage::UsageLog;
use crate::users::Users;
use hyper::StatusCode;
use nacre_rados::{Failure, RadosClient};
use nacre_s3::tenant::{full_name, split_tenant};
use s3s::S3Error;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    UserCreate,
    UserModify,
    UserInfo,
    UserRemove,
    UserList,
    UserEnable,
    UserSuspend,
    UserStats,
    KeyCreate,
    KeyRemove,
    SubuserCreate,
    SubuserModify,
    SubuserRemove,
    CapsAdd,
    CapsRemove,
    QuotaSet,
    QuotaEnable,
    QuotaDisable,
    QuotaGet,
    BucketList,
    BucketStats,
    BucketLink,
    BucketUnlink,
    BucketRemove,
    BucketCheck,
    PolicyPut,
    PolicyGet,
    PolicyList,
    PolicyRemove,
    BucketPolicy,
    RoleCreate,
    RoleGet,
    RoleList,
    RoleRemove,
    RoleModify,
    RolePolicyPut,
    RolePolicyGet,
    RolePolicyList,
    RolePolicyRemove,
    RateLimitSet,
    RateLimitEnable,
    RateLimitDisable,
    RateLimitGet,
    UsageShow,
    UsageTrim,
    KmsCreate,
    KmsList,
    KmsRemove,
    AccountCreate,
    AccountModify,
    AccountGet,
    AccountList,
    AccountRemove,
    AccountStats,
    PlacementAdd,
    PlacementList,
    PlacementRemove,
    Info,
}

impl Verb {
    /// Its name in the audit log.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// The parameters of a request, by the names of the Admin Ops API.
#[derive(Clone, Debug, Default)]
pub struct Params(pub BTreeMap<String, String>);

impl Params {
    /// A value that may be missing. One that is empty is missing.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
    /// With the tenant in the name of the bucket, where it is only given apart or by the user.
    fn with_tenant_of_bucket(&self, verb: Verb) -> Params {
        let mut params = self.clone();
        let tenant =
            self.get("tenant").or(self.get("uid").map(|uid| split_tenant(uid).0)).unwrap_or_default();
        // A bucket that is linked may have no tenant.
        if let Some(name) = self.get("bucket").filter(|name| !name.contains(['/', ':']))
            && !tenant.is_empty()
            && verb != Verb::BucketLink
        {
            params.0.insert("bucket".to_owned(), full_name(tenant, name));
        }
        params
    }
    /// Whether it is there, also without a value.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
    /// A value that must be there.
    pub fn need(&self, name: &str) -> Result<&str> {
        self.get(name).ok_or_else(|| AdminError::argument(format!("{name} is missing")))
    }
    /// True or false; `default` if it is missing. A name without a value is true.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.0.get(name).map(|value| value.to_ascii_lowercase()).as_deref() {
            None => Ok(default),
            Some("" | "true" | "1" | "yes") => Ok(true),
            Some("false" | "0" | "no") => Ok(false),
            Some(other) => Err(AdminError::argument(format!("{name} is true or false, not {other:?}"))),
        }
    }
    /// A number that may be missing.
    pub fn number(&self, name: &str) -> Result<Option<i64>> {
        let parse = |value: &str| {
            let bad = |_| AdminError::argument(format!("{name} is a number, not {value:?}"));
            value.parse().map_err(bad)
        };
        self.get(name).map(parse).transpose()
    }
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct AdminError {
    pub status: StatusCode,
    pub code: String,
    pub message: String,
}

impl AdminError {
    fn new(status: StatusCode, code: &str, message: impl Into<String>) -> AdminError {
        AdminError { status, code: code.to_owned(), message: message.into() }
    }
    fn argument(message: impl Into<String>) -> AdminError {
        AdminError::new(StatusCode::BAD_REQUEST, "InvalidArgument", message)
    }
    fn no_such_user(id: &str) -> AdminError {
        AdminError::new(StatusCode::NOT_FOUND, "NoSuchUser", format!("there is no user {id}"))
    }
    fn no_such_bucket(name: &str) -> AdminError {
        AdminError::new(StatusCode::NOT_FOUND, "NoSuchBucket", format!("there is no bucket {name}"))
    }
    fn conflict(code: &str, message: impl Into<String>) -> AdminError {
        AdminError::new(StatusCode::CONFLICT, code, message)
    }
}

impl From<Failure> for AdminError {
    fn from(failure: Failure) -> AdminError {
        let message = format!("the cluster failed: {failure}");
        AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }
}

impl From<S3Error> for AdminError {
    fn from(error: S3Error) -> AdminError {
        let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        AdminError::new(status, error.code().as_str(), error.message().unwrap_or_default())
    }
}

impl AdminError {
    /// What the audit log has of it.
    pub fn noted(&self) -> (StatusCode, &str) {
        (self.status, &self.code)
    }
}

type Result<T> = std::result::Result<T, AdminError>;

/// Administers a cluster's users and buckets.
pub struct Admin {
    store: Arc<Store>,
    users: Arc<Users>,
    buckets: Arc<Buckets>,
    /// What the gateway counts that this is a part of.
    usage: Option<Arc<UsageLog>>,
}

impl Admin {
    /// A client of its own. Gateways see what it changes within some seconds.
    pub fn new(client: &RadosClient) -> Admin {
        let store = Arc::new(Store::new(client, Arc::new(Semaphore::new(1))));
        let users = Arc::new(Users::new(store.clone(), None));
        let buckets = Arc::new(Buckets::new(store.clone()));
        Admin { store, users, buckets, usage: None }
    }

    /// As a part of a gateway.
    pub(crate) fn of_gateway(store: Arc<Store>, users: Arc<Users>, buckets: Arc<Buckets>) -> Admin {
        Admin { store, users, buckets, usage: None }
    }

    /// With what the gateway counts.
    pub(crate) fn with_usage(self, usage: Arc<UsageLog>) -> Admin {
        Admin { usage: Some(usage), ..self }
    }

    /// Does what is asked for, and answers as `radosgw-admin` does.
    pub async fn run(&self, verb: Verb, params: &Params) -> Result<Value> {
        let params = &params.with_tenant_of_bucket(verb);
        let answer = match verb {
            Verb::UserCreate => self.user_create(params).await,
            Verb::UserModify => self.user_modify(params).await,
            Verb::UserInfo => self.user_info(params).await,
            Verb::UserRemove => self.user_remove(params).await,
            Verb::UserList => self.user_list().await,
            Verb::UserEnable => self.set_suspended(params, false).await,
            Verb::UserSuspend => self.set_suspended(params, true).await,
            Verb::UserStats => self.user_stats(params).await,
            Verb::KeyCreate => self.key_create(params).await,
            Verb::KeyRemove => self.key_remove(params).await,
            Verb::SubuserCreate => self.subuser_create(params).await,
            Verb::SubuserModify => self.subuser_modify(params).await,
            Verb::SubuserRemove => self.subuser_remove(params).await,
            Verb::CapsAdd => self.caps(params, true).await,
            Verb::CapsRemove => self.caps(params, false).await,
            Verb::QuotaSet => self.quota_set(params, None).await,
            Verb::QuotaEnable => self.quota_set(params, Some(true)).await,
            Verb::QuotaDisable => self.quota_set(params, Some(false)).await,
            Verb::QuotaGet => self.quota_get(params).await,
            Verb::PolicyPut => self.policy_put(params).await,
            Verb::PolicyGet => self.policy_get(params).await,
            Verb::PolicyList => self.policy_list(params).await,
            Verb::PolicyRemove => self.policy_remove(params).await,
            Verb::BucketList => self.bucket_list(params).await,
            Verb::BucketStats => self.bucket_stats(params).await,
            Verb::BucketLink => self.bucket_link(params).await,
            Verb::BucketUnlink => self.bucket_unlink(params).await,
            Verb::BucketRemove => self.bucket_remove(params).await,
            Verb::BucketCheck => self.bucket_check(params).await,
            Verb::BucketPolicy => self.bucket_policy(params).await,
            Verb::RoleCreate => self.role_create(params).await,
            Verb::RoleGet => self.role_get(params).await,
            Verb::RoleList => self.role_list().await,
            Verb::RoleRemove => self.role_remove(params).await,
            Verb::RoleModify => self.role_modify(params).await,
            Verb::RolePolicyPut => self.role_policy_put(params).await,
            Verb::RolePolicyGet => self.role_policy_get(params).await,
            Verb::RolePolicyList => self.role_policy_list(params).await,
            Verb::RolePolicyRemove => self.role_policy_remove(params).await,
            Verb::RateLimitSet => self.rate_limit_set(params, None).await,
            Verb::RateLimitEnable => self.rate_limit_set(params, Some(true)).await,
            Verb::RateLimitDisable => self.rate_limit_set(params, Some(false)).await,
            Verb::RateLimitGet => self.rate_limit_get(params).await,
            Verb::UsageShow => self.usage_show(params).await,
            Verb::UsageTrim => self.usage_trim(params).await,
            Verb::KmsCreate => self.kms_create(params).await,
            Verb::KmsList => self.kms_list().await,
            Verb::KmsRemove => self.kms_remove(params).await,
            Verb::AccountCreate => self.account_create(params).await,
            Verb::AccountModify => self.account_modify(params).await,
            Verb::AccountGet => self.account_get(params).await,
            Verb::AccountList => self.account_list().await,
            Verb::AccountRemove => self.account_remove(params).await,
            Verb::AccountStats => self.account_stats(params).await,
            Verb::PlacementAdd => self.placement_add(params).await,
            Verb::PlacementList => self.placement_list().await,
            Verb::PlacementRemove => self.placement_remove(params).await,
            Verb::Info => self.info().await,
        };
        // A gateway must not go on with what was changed through itself.
        self.users.forget();
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_texts_numbers_and_flags() {
        let pairs = [("uid", "a"), ("stats", ""), ("purge-data", "False"), ("max", "7"), ("bad", "x")];
        let params =
            Params(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect());
        assert_eq!(params.need("uid").unwrap(), "a");
        assert!(params.flag("stats", false).unwrap() && !params.flag("purge-data", true).unwrap());
        assert!(params.flag("missing", true).unwrap() && params.flag("bad", true).is_err());
        assert_eq!(params.number("max").unwrap(), Some(7));
        assert!(params.number("missing").unwrap().is_none() && params.number("bad").is_err());
        assert_eq!(params.need("stats").unwrap_err().code, "InvalidArgument");
    }

    #[test]
    fn tenant_of_a_bucket_may_be_apart() {
        let named = |verb, pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            let params = Params(pairs.collect()).with_tenant_of_bucket(verb);
            params.get("bucket").unwrap_or_default().to_owned()
        };
        let stats = Verb::BucketStats;
        assert_eq!(named(stats, &[("bucket", "b")]), "b");
        assert_eq!(named(stats, &[("bucket", "b"), ("tenant", "t")]), "t/b");
        assert_eq!(named(stats, &[("bucket", "u/b"), ("tenant", "t")]), "u/b");
        assert_eq!(named(stats, &[("bucket", "b"), ("uid", "t$anna")]), "t/b");
        assert_eq!(named(Verb::BucketLink, &[("bucket", "b"), ("uid", "t$anna")]), "b");
    }
}
