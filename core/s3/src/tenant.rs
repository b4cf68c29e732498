//! Tenants: users with names `tenant$user` have names of buckets of their own.
//!
//! The *full name* of a bucket is `tenant/name`, or `name` where there is no tenant. It is what the bucket's
//! record is found by. No name of a bucket has a slash, nor a colon where S3 makes it. Requests name the
//! bucket of another tenant as `tenant:name`, and one of no tenant as `:name`, as with radosgw.

use crate::iam::is_account_id;
use crate::policy::Principal;

/// Tenant and name of `tenant$name`.
pub fn split_tenant(id: &str) -> (&str, &str) {
    id.split_once('$').unwrap_or(("", id))
}

/// Tenant and name of a bucket's full name. The tenant is empty for most.
pub fn split_bucket(full: &str) -> (&str, &str) {
    full.split_once('/').unwrap_or(("", full))
}

/// A bucket's full name.
pub fn full_name(tenant: &str, name: &str) -> String {
    if tenant.is_empty() { name.to_owned() } else { format!("{tenant}/{name}") }
}

/// Tenant and name of the bucket that a sender of this tenant means.
pub fn meant_bucket<'a>(asked: &'a str, own_tenant: &'a str) -> (&'a str, &'a str) {
    asked.split_once(':').unwrap_or((own_tenant, asked))
}

/// Whether a tenant may be called so.
pub fn is_tenant(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Principal {
    /// The tenant whose buckets it means by plain names. Accounts have no names of their own.
    pub fn bucket_tenant(&self) -> &str {
        self.tenant().filter(|tenant| !is_account_id(tenant)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_of_the_senders_own_tenant() {
        assert_eq!(meant_bucket("data", "t"), ("t", "data"));
        assert_eq!(meant_bucket("u:data", "t"), ("u", "data"));
        assert_eq!(meant_bucket(":data", "t"), ("", "data"));
        assert_eq!(meant_bucket("data", ""), ("", "data"));
        assert_eq!(split_bucket(&full_name("t", "data")), ("t", "data"));
        assert_eq!(split_bucket(&full_name("", "data")), ("", "data"));
    }

    #[test]
    fn accounts_have_no_names_of_buckets_of_their_own() {
        let of = |tenant: &str| Principal::User { tenant: tenant.into(), name: "anna".into() };
        assert_eq!(of("t").bucket_tenant(), "t");
        assert_eq!(of("RGW00000000000000001").bucket_tenant(), "");
        assert_eq!(Principal::Anonymous.bucket_tenant(), "");
    }
}
