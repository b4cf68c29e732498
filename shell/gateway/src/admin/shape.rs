//! The JSON of radosgw: users, quotas, totals.

use crate::accounts::Key;
use nacre_s3::iam::Account;
use nacre_s3::policy::split_tenant;
use nacre_s3::{Caps, Counters, Quota, User};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A user with its keys. Without secrets where `with_secrets` is false.
pub fn user(user: &User, keys: &[(String, Key)], stats: Option<Counters>) -> Value {
    let (tenant, name) = split_tenant(&user.id);
    let mut shown = json!({
        "tenant": tenant,
        "user_id": name,
        "display_name": user.display_name,
        "email": user.email,
        "suspended": i32::from(user.is_suspended),
        "max_buckets": user.max_buckets,
        "subusers": subusers(user),
        "keys": keys_of(keys),
        "swift_keys": [],
        "caps": caps(&user.caps),
        "op_mask": "read, write, delete",
        "default_placement": "",
        "default_storage_class": "",
        "placement_tags": [],
        "bucket_quota": quota(&user.bucket_quota),
        "user_quota": quota(&user.user_quota),
        "temp_url_keys": [],
        "type": if user.member.is_root { "root" } else { "rgw" },
        "mfa_ids": [],
        "account_id": user.member.account,
        "path": user.member.path(),
        "group_ids": user.member.groups,
    });
    if let Some(stats) = stats {
        shown["stats"] = totals(stats);
    }
    shown
}

/// An account.
pub fn account(account: &Account) -> Value {
    json!({
        "id": account.id,
        "tenant": "",
        "name": account.name,
        "email": account.email,
        "quota": quota(&account.quota),
        "bucket_quota": quota(&account.bucket_quota),
        "max_users": account.max_users,
        "max_roles": account.max_roles,
        "max_groups": account.max_groups,
        "max_buckets": account.max_buckets,
        "max_access_keys": account.max_access_keys,
    })
}

/// Keys, in order.
pub fn keys_of(keys: &[(String, Key)]) -> Value {
    let line = |(access_key, key): &(String, Key)| json!({ "user": key.owner(), "access_key": access_key, "secret_key": key.secret });
    keys.iter().map(line).collect()
}

/// The subusers of a user.
pub fn subusers(user: &User) -> Value {
    let line = |(name, access): (&String, &nacre_s3::SubuserAccess)| json!({ "id": format!("{}:{name}", user.id), "permissions": access.name() });
    user.subusers.iter().map(line).collect()
}

/// Capabilities.
pub fn caps(caps: &Caps) -> Value {
    caps.list().map(|(kind, perm)| json!({ "type": kind, "perm": perm })).collect()
}

/// A quota.
pub fn quota(quota: &Quota) -> Value {
    json!({
        "enabled": quota.is_enabled,
        "check_on_raw": false,
        "max_size": quota.max_size,
        "max_size_kb": if quota.max_size < 0 { 0 } else { kibibytes(quota.max_size) },
        "max_objects": quota.max_objects,
    })
}

/// The number and size of objects.
pub fn totals(totals: Counters) -> Value {
    let Counters { objects, bytes } = totals;
    json!({
        "size": bytes,
        "size_actual": bytes,
        "size_utilized": bytes,
        "size_kb": kibibytes(bytes),
        "size_kb_actual": kibibytes(bytes),
        "size_kb_utilized": kibibytes(bytes),
        "num_objects": objects,
    })
}

fn kibibytes(bytes: i64) -> i64 {
    bytes.saturating_add(1023) / 1024
}

/// Such as `2026-01-02T03:04:05.678Z`, from milliseconds since 1970.
pub fn time_of(millis: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000);
    time.ok().and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_s3::SubuserAccess;
    use std::collections::BTreeMap;

    #[test]
    fn users_look_as_those_of_radosgw() {
        let account = User {
            id: "t$anna".into(),
            display_name: "Anna".into(),
            is_suspended: true,
            max_buckets: 7,
            subusers: BTreeMap::from([("s".into(), SubuserAccess::ReadWrite)]),
            caps: Caps::parse("users=*;buckets=read").unwrap(),
            user_quota: Quota { is_enabled: true, max_size: 1025, max_objects: -1 },
            ..User::default()
        };
        let key = Key { user: "t$anna".into(), subuser: Some("s".into()), secret: "x".into() };
        let shown = user(&account, &[("K".into(), key)], Some(Counters { objects: 2, bytes: 3 }));
        assert_eq!((&shown["user_id"], &shown["tenant"]), (&json!("anna"), &json!("t")));
        assert_eq!(shown["suspended"], json!(1));
        assert_eq!(shown["keys"], json!([{ "user": "t$anna:s", "access_key": "K", "secret_key": "x" }]));
        assert_eq!(shown["subusers"], json!([{ "id": "t$anna:s", "permissions": "read-write" }]));
        let caps = json!([{ "type": "buckets", "perm": "read" }, { "type": "users", "perm": "*" }]);
        assert_eq!(shown["caps"], caps);
        assert_eq!(shown["user_quota"]["max_size_kb"], json!(2));
        assert_eq!(shown["bucket_quota"]["max_size"], json!(-1));
        assert_eq!(shown["stats"]["num_objects"], json!(2));
        assert_eq!(time_of(1_500), "1970-01-01T00:00:01.5Z");
    }
}
