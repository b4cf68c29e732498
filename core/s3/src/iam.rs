//! Accounts: users with names of their own that own buckets together, their groups, and managed policies.
//!
//! An account's id is the owner of its buckets. Its root users have all rights in it. Its other users have
//! those that policies give them: their own, those of their groups, and those of buckets.

use crate::account::{Quota, User};
use nacre_wire::versioned_fields;
use std::collections::{BTreeMap, BTreeSet};

/// How many users, groups, roles and buckets an account may have unless it is told otherwise.
pub const MEMBERS_DEFAULT: i32 = 1000;
/// How many access keys each of its users may have.
pub const ACCESS_KEYS_DEFAULT: i32 = 4;

/// Whether a text is the id of an account: `RGW` and 17 digits.
pub fn is_account_id(text: &str) -> bool {
    let digits = text.strip_prefix("RGW").unwrap_or_default();
    digits.len() == 17 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The account or the tenant of an owner of buckets, as resources name it.
pub fn account_of(owner: &str) -> &str {
    if is_account_id(owner) { owner } else { crate::policy::split_tenant(owner).0 }
}

/// An account. Ceph: `RGWAccountInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Such as `RGW00000000000000001`.
    pub id: String,
    pub name: String,
    pub email: String,
    /// Each limit: 0: as many as it wants; less: none.
    pub max_users: i32,
    pub max_roles: i32,
    pub max_groups: i32,
    pub max_buckets: i32,
    /// Of each user.
    pub max_access_keys: i32,
    /// Over all buckets of the account.
    pub quota: Quota,
    /// Of each bucket that has none of its own.
    pub bucket_quota: Quota,
}
versioned_fields!(
    Account,
    "s3 account",
    id,
    name,
    email,
    max_users,
    max_roles,
    max_groups,
    max_buckets,
    max_access_keys,
    quota,
    bucket_quota
);

impl Account {
    /// With limits as they are by default.
    pub fn new(id: &str, name: &str) -> Account {
        Account {
            id: id.to_owned(),
            name: name.to_owned(),
            max_users: MEMBERS_DEFAULT,
            max_roles: MEMBERS_DEFAULT,
            max_groups: MEMBERS_DEFAULT,
            max_buckets: MEMBERS_DEFAULT,
            max_access_keys: ACCESS_KEYS_DEFAULT,
            ..Account::default()
        }
    }

    /// As the owner of its buckets and objects.
    pub fn as_owner(&self) -> User {
        User {
            id: self.id.clone(),
            display_name: self.name.clone(),
            email: self.email.clone(),
            max_buckets: self.max_buckets,
            user_quota: self.quota,
            bucket_quota: self.bucket_quota,
            ..User::default()
        }
    }
}

/// Whether one more is within a limit of an account.
pub fn is_within(max: i32, have: usize) -> bool {
    max == 0 || usize::try_from(max).is_ok_and(|max| have < max)
}

/// What a user of an account has besides what all users have. Its name in the account is its display name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// The account's id; empty for users without an account.
    pub account: String,
    /// Has all rights in the account.
    pub is_root: bool,
    /// Such as `/staff/`; empty is `/`.
    pub path: String,
    /// Milliseconds since 1970.
    pub created: u64,
    /// The ids of its groups.
    pub groups: BTreeSet<String>,
    /// The ARNs of managed policies.
    pub attached: BTreeSet<String>,
    /// Access keys that are not accepted for now.
    pub inactive_keys: BTreeSet<String>,
    /// When keys were made, in milliseconds since 1970.
    pub key_times: BTreeMap<String, u64>,
}
versioned_fields!(
    Member,
    "s3 member",
    account,
    is_root,
    path,
    created,
    groups,
    attached,
    inactive_keys,
    key_times
);

impl Member {
    /// The path, with its slashes.
    pub fn path(&self) -> &str {
        if self.path.is_empty() { "/" } else { &self.path }
    }
}

/// Users of an account that get the same policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub id: String,
    pub account: String,
    pub name: String,
    pub path: String,
    /// Milliseconds since 1970.
    pub created: u64,
    /// Documents, by their names.
    pub policies: BTreeMap<String, String>,
    /// The ARNs of managed policies.
    pub attached: BTreeSet<String>,
}
versioned_fields!(Group, "s3 group", id, account, name, path, created, policies, attached);

impl Group {
    /// Such as `arn:aws:iam::RGW00000000000000001:group/path/name`.
    pub fn arn(&self) -> String {
        format!("arn:aws:iam::{}:group{}{}", self.account, self.path, self.name)
    }
}

/// Managed policies: their names, and what they allow.
const MANAGED: [(&str, &[&str]); 6] = [
    ("AmazonS3FullAccess", &["s3:*"]),
    ("AmazonS3ReadOnlyAccess", &["s3:Get*", "s3:List*"]),
    ("AmazonSNSFullAccess", &["sns:*"]),
    ("AmazonSNSReadOnlyAccess", &["sns:Get*", "sns:List*"]),
    ("IAMFullAccess", &["iam:*"]),
    ("IAMReadOnlyAccess", &["iam:Get*", "iam:List*"]),
];
const MANAGED_ARN: &str = "arn:aws:iam::aws:policy/";

/// The document of a managed policy, by its ARN.
pub fn managed_policy(arn: &str) -> Option<String> {
    let name = arn.strip_prefix(MANAGED_ARN)?;
    let (_, actions) = MANAGED.iter().find(|(known, _)| *known == name)?;
    let statement = serde_json::json!({ "Effect": "Allow", "Action": actions, "Resource": "*" });
    Some(serde_json::json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string())
}

/// The name of a managed policy, by its ARN.
pub fn managed_name(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap_or(arn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Kind, Policy};

    #[test]
    fn ids_of_accounts_have_seventeen_digits() {
        assert!(is_account_id("RGW00000000000000001"));
        for bad in ["", "RGW", "RGW0000000000000001", "RGW0000000000000000x", "rgw00000000000000001"] {
            assert!(!is_account_id(bad), "{bad}");
        }
        assert_eq!(account_of("RGW00000000000000001"), "RGW00000000000000001");
        assert_eq!((account_of("t$a"), account_of("a")), ("t", ""));
    }

    #[test]
    fn managed_policies_can_be_read() {
        for (name, _) in MANAGED {
            let document = managed_policy(&format!("{MANAGED_ARN}{name}")).unwrap();
            Policy::parse(&document, Kind::Identity).unwrap();
        }
        assert_eq!(managed_policy("arn:aws:iam::aws:policy/AdministratorAccess"), None);
        assert_eq!(managed_policy("AmazonS3FullAccess"), None);
        assert_eq!(managed_name("arn:aws:iam::aws:policy/IAMFullAccess"), "IAMFullAccess");
    }

    #[test]
    fn limits_are_numbers_none_or_any() {
        assert!(is_within(2, 1) && !is_within(2, 2) && is_within(0, 5000) && !is_within(-1, 0));
    }
}
