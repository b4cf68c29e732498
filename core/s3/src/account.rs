//! Users and buckets.

use nacre_wire::versioned_fields;

/// A user of the gateways. Ceph: `RGWUserInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: String,
    pub display_name: String,
    pub is_suspended: bool,
    /// How many buckets the user may have.
    pub max_buckets: u32,
    pub access_keys: Vec<String>,
}
versioned_fields!(User, "s3 user", id, display_name, is_suspended, max_buckets, access_keys);

/// A bucket, as its record has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub name: String,
    /// Names its index. A bucket that is deleted and made again has another one.
    pub id: String,
    /// The user who owns it.
    pub owner: String,
    /// Milliseconds since 1970.
    pub created: u64,
}
versioned_fields!(Bucket, "s3 bucket", name, id, owner, created);
