//! Users and buckets, as their records have them.

use crate::iam::{Member, is_account_id};
use crate::rate::RateLimit;
use crate::tenant::{is_tenant, split_bucket};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned_fields};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How many buckets a user may have unless it is told otherwise.
pub const MAX_BUCKETS: i32 = 1000;

/// A user of the gateways. Ceph: `RGWUserInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// `name`, or `tenant$name`.
    pub id: String,
    pub display_name: String,
    pub is_suspended: bool,
    /// How many buckets the user may have. 0: as many as it wants; less: none.
    pub max_buckets: i32,
    pub access_keys: Vec<String>,
    pub email: String,
    /// By their names, without the user's.
    pub subusers: BTreeMap<String, SubuserAccess>,
    /// What the user may administer, by kind.
    pub caps: Caps,
    /// Over all the user's buckets.
    pub user_quota: Quota,
    /// Of each bucket that has none of its own.
    pub bucket_quota: Quota,
    /// Documents in the language of IAM, by their names.
    pub policies: BTreeMap<String, String>,
    /// Subusers that have a secret for Swift. An empty name is the user itself.
    pub swift_keys: BTreeSet<String>,
    /// Of the account in Swift: by lower-case names, without `X-Account-Meta-`.
    pub swift_metadata: BTreeMap<String, String>,
    /// What it has as a user of an account.
    pub member: Member,
    /// Of all the user's requests to one gateway. None was set: that of all users holds.
    pub rate_limit: Option<RateLimit>,
}
versioned_fields!(
    User, "s3 user", id, display_name, is_suspended, max_buckets, access_keys;
    later email, subusers, caps, user_quota, bucket_quota, policies, swift_keys, swift_metadata, member,
    rate_limit
);

/// A bucket, as its record has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The full name: `tenant/name`, or `name` without a tenant.
    pub name: String,
    /// Names its index. A bucket that is deleted and made again has another one.
    pub id: String,
    /// The user that owns it.
    pub owner: String,
    /// Milliseconds since 1970.
    pub created: u64,
}
versioned_fields!(Bucket, "s3 bucket", name, id, owner, created);

impl Bucket {
    /// As its tenant calls it.
    pub fn plain_name(&self) -> &str {
        split_bucket(&self.name).1
    }
    /// The tenant in whose names it is; empty for most.
    pub fn tenant(&self) -> &str {
        split_bucket(&self.name).0
    }
}

/// What a subuser may do with what belongs to its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubuserAccess {
    #[default]
    None,
    Read,
    Write,
    ReadWrite,
    Full,
}

impl SubuserAccess {
    const ALL: [SubuserAccess; 5] = [
        SubuserAccess::None,
        SubuserAccess::Read,
        SubuserAccess::Write,
        SubuserAccess::ReadWrite,
        SubuserAccess::Full,
    ];

    /// As it is given to `radosgw-admin`, or as it is shown by it.
    pub fn parse(text: &str) -> Option<SubuserAccess> {
        Some(match text {
            "" | "none" | "<none>" => SubuserAccess::None,
            "read" => SubuserAccess::Read,
            "write" => SubuserAccess::Write,
            "readwrite" | "read-write" => SubuserAccess::ReadWrite,
            "full" | "full-control" => SubuserAccess::Full,
            _ => return None,
        })
    }
    /// As `radosgw-admin` shows it.
    pub fn name(self) -> &'static str {
        match self {
            SubuserAccess::None => "<none>",
            SubuserAccess::Read => "read",
            SubuserAccess::Write => "write",
            SubuserAccess::ReadWrite => "read-write",
            SubuserAccess::Full => "full-control",
        }
    }
    /// Whether it includes reads.
    pub fn may_read(self) -> bool {
        matches!(self, SubuserAccess::Read | SubuserAccess::ReadWrite | SubuserAccess::Full)
    }
    /// Whether it includes writes.
    pub fn may_write(self) -> bool {
        matches!(self, SubuserAccess::Write | SubuserAccess::ReadWrite | SubuserAccess::Full)
    }
}
impl Encode for SubuserAccess {
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u8).encode(out);
    }
}
impl Decode for SubuserAccess {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let value = u8::decode(r)?;
        let bad = DecodeError::BadValue { what: "s3 subuser access", value: value.into() };
        SubuserAccess::ALL.get(usize::from(value)).copied().ok_or(bad)
    }
}

/// How much there may be. Totals count objects and the bytes of their bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub is_enabled: bool,
    /// Bytes; negative: any number.
    pub max_size: i64,
    /// Negative: any number.
    pub max_objects: i64,
}
versioned_fields!(Quota, "s3 quota", is_enabled, max_size, max_objects);

impl Default for Quota {
    fn default() -> Quota {
        Quota { is_enabled: false, max_size: -1, max_objects: -1 }
    }
}

impl Quota {
    /// Whether so much is too much.
    pub fn is_exceeded(&self, objects: i64, bytes: i64) -> bool {
        let exceeds = |have: i64, max: i64| max >= 0 && have > max;
        self.is_enabled && (exceeds(objects, self.max_objects) || exceeds(bytes, self.max_size))
    }
    /// Whether it limits anything.
    pub fn limits(&self) -> bool {
        self.is_enabled && (self.max_size >= 0 || self.max_objects >= 0)
    }
}

/// What a user may administer: rights by kind, such as `users=*;buckets=read`. Ceph: `RGWUserCaps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps(BTreeMap<String, u8>);

const CAP_READ: u8 = 1;
const CAP_WRITE: u8 = 2;
const CAP_KINDS: [&str; 17] = [
    "accounts",
    "amz-cache",
    "bilog",
    "buckets",
    "datalog",
    "info",
    "mdlog",
    "metadata",
    "oidc-provider",
    "opstate",
    "ratelimit",
    "roles",
    "usage",
    "user-policy",
    "user-info-without-keys",
    "users",
    "zone",
];

/// Why a text is not a list of capabilities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCaps {
    #[error("{0:?} is no kind of capability")]
    Kind(String),
    #[error("{0:?} is not read, write, or *")]
    Right(String),
}

impl Caps {
    /// From a text such as `users=read, write; buckets=*`.
    pub fn parse(text: &str) -> Result<Caps, BadCaps> {
        let mut caps = BTreeMap::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (kind, rights) = part.split_once('=').unwrap_or((part, ""));
            let kind = kind.trim();
            if !CAP_KINDS.contains(&kind) {
                return Err(BadCaps::Kind(kind.to_owned()));
            }
            let mut bits = 0;
            for right in rights.split(',').map(str::trim) {
                bits |= match right {
                    "*" => CAP_READ | CAP_WRITE,
                    "read" => CAP_READ,
                    "write" => CAP_WRITE,
                    _ => return Err(BadCaps::Right(right.to_owned())),
                };
            }
            *caps.entry(kind.to_owned()).or_insert(0) |= bits;
        }
        Ok(Caps(caps))
    }
    /// Adds others.
    pub fn add(&mut self, other: &Caps) {
        for (kind, bits) in &other.0 {
            *self.0.entry(kind.clone()).or_insert(0) |= bits;
        }
    }
    /// Removes others.
    pub fn remove(&mut self, other: &Caps) {
        for (kind, bits) in &other.0 {
            if let Some(ours) = self.0.get_mut(kind) {
                *ours &= !bits;
            }
        }
        self.0.retain(|_, bits| *bits != 0);
    }
    /// Whether a kind may be read.
    pub fn may_read(&self, kind: &str) -> bool {
        self.0.get(kind).is_some_and(|bits| bits & CAP_READ != 0)
    }
    /// Whether a kind may be changed.
    pub fn may_write(&self, kind: &str) -> bool {
        self.0.get(kind).is_some_and(|bits| bits & CAP_WRITE != 0)
    }
    /// Kinds and rights, as `radosgw-admin` shows them.
    pub fn list(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.0.iter().map(|(kind, bits)| {
            let rights = match *bits & (CAP_READ | CAP_WRITE) {
                CAP_READ => "read",
                CAP_WRITE => "write",
                _ => "*",
            };
            (kind.as_str(), rights)
        })
    }
}
impl fmt::Display for Caps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.list().map(|(kind, rights)| format!("{kind}={rights}")).collect();
        f.write_str(&parts.join(";"))
    }
}
impl Encode for Caps {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}
impl Decode for Caps {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Caps(BTreeMap::decode(r)?))
    }
}

/// Whether a text can be the id of a user. It must not look like that of an account. Colons separate
/// subusers, slashes and stars are for policies.
pub fn is_user_id(id: &str) -> bool {
    let (tenant, name) = crate::policy::split_tenant(id);
    let is_name = |c: char| !c.is_control() && !matches!(c, ':' | '/' | '*' | '?' | '$' | '"' | '<' | '>');
    let is_free = !id.starts_with('$') && !is_account_id(id);
    id.len() <= 128 && is_tenant(tenant) && !name.is_empty() && name.chars().all(is_name) && is_free
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::{from_slice, to_vec, versioned};

    #[test]
    fn user_of_an_older_gateway_can_be_read() {
        let new = User {
            id: "a".into(),
            display_name: "A".into(),
            max_buckets: 1000,
            access_keys: vec!["K".into()],
            ..User::default()
        };
        let mut old = Vec::new();
        versioned(&mut old, 1, 1, |out| {
            new.id.encode(out);
            new.display_name.encode(out);
            new.is_suspended.encode(out);
            1000_u32.encode(out);
            new.access_keys.encode(out);
        });
        assert_eq!(from_slice::<User>(&old), Ok(new.clone()));
        let full = User {
            subusers: BTreeMap::from([("s".into(), SubuserAccess::Full)]),
            caps: Caps::parse("users=*").unwrap(),
            user_quota: Quota { is_enabled: true, max_size: 1, max_objects: -1 },
            ..new
        };
        assert_eq!(from_slice::<User>(&to_vec(&full)), Ok(full));
    }

    #[test]
    fn capabilities_are_added_and_removed_by_kind() {
        let mut caps = Caps::parse("users=read, write; buckets=read").unwrap();
        assert_eq!(caps.to_string(), "buckets=read;users=*");
        assert!(caps.may_write("users") && !caps.may_write("buckets") && !caps.may_read("usage"));
        caps.remove(&Caps::parse("users=write;buckets=*").unwrap());
        assert_eq!(caps.to_string(), "users=read");
        caps.add(&Caps::parse("usage=write").unwrap());
        assert_eq!(caps.to_string(), "usage=write;users=read");
        assert_eq!(Caps::parse("user=*"), Err(BadCaps::Kind("user".into())));
        assert_eq!(Caps::parse("users=all"), Err(BadCaps::Right("all".into())));
        assert_eq!(Caps::parse("users"), Err(BadCaps::Right("".into())));
        assert_eq!(Caps::parse(""), Ok(Caps::default()));
    }

    #[test]
    fn ids_of_users_are_checked() {
        for (id, expected) in [
            ("a", true),
            ("a b@c.d", true),
            ("t$a", true),
            ("$a", false),
            ("t$", false),
            ("", false),
            ("a:b", false),
            ("t-x$a", false),
            ("a*", false),
            ("a/b", false),
            ("a$b$c", false),
            ("RGW00000000000000001", false),
        ] {
            assert_eq!(is_user_id(id), expected, "{id}");
        }
    }

    #[test]
    fn quotas_count_only_what_they_limit() {
        let quota = Quota { is_enabled: true, max_size: 10, max_objects: -1 };
        assert!(quota.is_exceeded(1, 11) && !quota.is_exceeded(1000, 10));
        assert!(!Quota { is_enabled: false, ..quota }.is_exceeded(1, 11));
        assert!(Quota { max_objects: 0, ..quota }.is_exceeded(1, 0));
        assert_eq!(SubuserAccess::parse("readwrite").unwrap().name(), "read-write");
        assert_eq!(SubuserAccess::parse("full-control"), Some(SubuserAccess::Full));
    }
}
