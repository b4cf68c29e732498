//! The decision on a request: the one place that makes it.
//!
//! A request is refused if any policy denies it. Otherwise one of these must give access: a policy of the
//! bucket or of the sender, ownership, or an access control list. The rules are those of radosgw where S3
//! leaves a choice; `docs/s3.md` has them for users.

use crate::account::Quota;
use crate::acl::Acl;
use crate::action::{Action, Need};
use crate::iam::is_account_id;
use crate::policy::{Asked, Context, Effect, Kind, Policy, Principal};
use crate::rate::RateLimit;
use crate::tenant::{split_bucket, split_tenant};
use bytes::Bytes;
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice, versioned_fields};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The owner of objects that others write into a bucket, and whether lists count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ownership {
    /// The user that wrote it. The default, as of radosgw.
    #[default]
    Writer,
    /// The bucket's owner, if the writer asked for `bucket-owner-full-control`.
    BucketOwnerPreferred,
    /// The bucket's owner. Lists do not count.
    BucketOwnerEnforced,
}

impl Ownership {
    const NAMES: [(Ownership, &'static str); 3] = [
        (Ownership::Writer, "ObjectWriter"),
        (Ownership::BucketOwnerPreferred, "BucketOwnerPreferred"),
        (Ownership::BucketOwnerEnforced, "BucketOwnerEnforced"),
    ];

    /// By its name in S3.
    pub fn parse(name: &str) -> Option<Ownership> {
        Ownership::NAMES.iter().find(|(_, known)| *known == name).map(|(ownership, _)| *ownership)
    }
    /// Its name in S3.
    pub fn name(self) -> &'static str {
        Ownership::NAMES.iter().find(|(known, _)| *known == self).map_or("", |(_, name)| name)
    }
}
impl Encode for Ownership {
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u8).encode(out);
    }
}
impl Decode for Ownership {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            0 => Ok(Ownership::Writer),
            1 => Ok(Ownership::BucketOwnerPreferred),
            2 => Ok(Ownership::BucketOwnerEnforced),
            value => Err(DecodeError::BadValue { what: "s3 ownership", value: value.into() }),
        }
    }
}

/// What keeps a bucket from being public by mistake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublicBlock {
    /// New lists must not be public.
    pub block_acls: bool,
    /// Public grants of lists do not count.
    pub ignore_acls: bool,
    /// New policies must not be public.
    pub block_policy: bool,
    /// A public policy gives access to the bucket's owner only.
    pub restrict_buckets: bool,
}
versioned_fields!(
    PublicBlock,
    "s3 public access block",
    block_acls,
    ignore_acls,
    block_policy,
    restrict_buckets
);

/// The names of a bucket's settings about access.
pub mod setting {
    /// `Acl`.
    pub const ACL: &str = "acl";
    /// The document.
    pub const POLICY: &str = "policy";
    /// `Ownership`.
    pub const OWNERSHIP: &str = "ownership";
    /// `PublicBlock`.
    pub const PUBLIC_BLOCK: &str = "public-block";
    /// Its presence says that requesters pay.
    pub const REQUESTER_PAYS: &str = "requester-pays";
    /// `Quota`.
    pub const QUOTA: &str = "quota";
    /// `RateLimit`.
    pub const RATE_LIMIT: &str = "rate-limit";
}

/// What is set on a bucket about access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketAccess {
    pub acl: Acl,
    /// The document; empty for none.
    pub policy: String,
    /// None was set: lists count, and objects belong to their writers.
    pub ownership: Option<Ownership>,
    pub public_block: Option<PublicBlock>,
    /// Requests must say that the requester pays.
    pub requester_pays: bool,
    /// None was set: that of the owner's buckets holds.
    pub quota: Option<Quota>,
    /// Of all requests for the bucket to one gateway. None was set: that of all buckets holds.
    pub rate_limit: Option<RateLimit>,
}

impl BucketAccess {
    /// From the settings of a bucket.
    pub fn decode(settings: &BTreeMap<String, Bytes>) -> Result<BucketAccess, DecodeError> {
        let get = |name| settings.get(name);
        Ok(BucketAccess {
            acl: get(setting::ACL).map(|value| from_slice(value)).transpose()?.unwrap_or_default(),
            policy: get(setting::POLICY).map(|value| from_slice(value)).transpose()?.unwrap_or_default(),
            ownership: get(setting::OWNERSHIP).map(|value| from_slice(value)).transpose()?,
            public_block: get(setting::PUBLIC_BLOCK).map(|value| from_slice(value)).transpose()?,
            requester_pays: get(setting::REQUESTER_PAYS).is_some(),
            quota: get(setting::QUOTA).map(|value| from_slice(value)).transpose()?,
            rate_limit: get(setting::RATE_LIMIT).map(|value| from_slice(value)).transpose()?,
        })
    }

    /// The owner of objects, and whether lists count.
    pub fn ownership(&self) -> Ownership {
        self.ownership.unwrap_or_default()
    }

    /// The policy of the bucket. One that cannot be read any more is an error: what it denies would be
    /// allowed.
    pub fn read_policy(&self, bucket: &str) -> Result<Option<Policy>, crate::policy::BadPolicy> {
        match self.policy.is_empty() {
            true => Ok(None),
            false => Policy::parse(&self.policy, Kind::Bucket(bucket)).map(Some),
        }
    }
}

/// Of which account a sender is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfAccount {
    /// The account's id.
    pub id: String,
    /// Has all rights in it.
    pub is_root: bool,
}

/// The user, the session or the anonymous client that sent a request.
#[derive(Clone, Debug)]
pub struct Sender {
    pub principal: Principal,
    /// None of users without an account.
    pub account: Option<OfAccount>,
    /// Policies that are attached to the user or role.
    pub policies: Arc<[Policy]>,
    /// Of a session: what it was limited to. All of them must allow what is done.
    pub limits: Vec<Policy>,
    /// What a subuser's key may do: reads, writes.
    pub may_read: bool,
    pub may_write: bool,
}

impl Sender {
    /// A request without a signature.
    pub fn anonymous() -> Sender {
        Sender {
            principal: Principal::Anonymous,
            account: None,
            policies: Arc::default(),
            limits: Vec::new(),
            may_read: true,
            may_write: true,
        }
    }

    /// A user with all rights of its own.
    pub fn user(id: &str) -> Sender {
        Sender { principal: Principal::user(id), ..Sender::anonymous() }
    }

    /// The id under which it owns buckets and objects: the user's, or that of its account.
    pub fn owner_id(&self) -> Option<String> {
        match &self.account {
            Some(account) => Some(account.id.clone()),
            None => self.principal.user_id(),
        }
    }

    /// Has only the rights that policies give it: a role, or a user of an account that is not root.
    fn needs_policies(&self) -> bool {
        match &self.account {
            Some(account) => !account.is_root,
            None => matches!(self.principal, Principal::Role { .. }),
        }
    }
}

/// The bucket of a request.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a> {
    /// The full name.
    pub name: &'a str,
    pub owner: &'a str,
    pub access: &'a BucketAccess,
    pub policy: Option<&'a Policy>,
}

/// The object of a request, where its list matters.
#[derive(Clone, Copy, Debug)]
pub struct ObjectOwner<'a> {
    pub owner: &'a str,
    pub acl: &'a Acl,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    Denied,
    /// It depends on the object, which was not given.
    AskObject,
}

/// Decides on a request for a bucket that exists, or for an object in it.
pub fn decide(
    sender: &Sender,
    action: Action,
    key: Option<&str>,
    bucket: &Bucket<'_>,
    object: Option<ObjectOwner<'_>>,
    context: &Context,
) -> Verdict {
    let resource = resource(bucket.name, bucket.owner, key.filter(|_| action.is_of_object));
    let asked = Asked { principal: &sender.principal, action: action.name, resource: &resource, context };
    let is_own = sender.owner_id().as_deref() == Some(bucket.owner);
    if !may_at_all(sender, action, &asked) {
        return Verdict::Denied;
    }
    if sender.policies.iter().any(|policy| policy.has(Effect::Deny, &asked)) {
        return Verdict::Denied;
    }
    // A policy must not lock out the only sender that can change it.
    let is_recovery = is_own
        && !sender.needs_policies()
        && matches!(action.name, "s3:GetBucketPolicy" | "s3:PutBucketPolicy" | "s3:DeleteBucketPolicy");
    if is_recovery {
        return Verdict::Allowed;
    }
    let block = bucket.access.public_block.unwrap_or_default();
    let mut is_in_policy = false;
    if let Some(policy) = bucket.policy {
        if policy.has(Effect::Deny, &asked) {
            return Verdict::Denied;
        }
        let counts = is_own || !(block.restrict_buckets && policy.is_public());
        is_in_policy = counts && policy.has(Effect::Allow, &asked);
    }
    let has_policy = sender.policies.iter().any(|policy| policy.has(Effect::Allow, &asked));
    if !is_own && (sender.account.is_some() || is_account_id(bucket.owner)) {
        // Of another account's bucket, both sides must allow it.
        if sender.needs_policies() && !has_policy {
            return Verdict::Denied;
        }
        return if is_in_policy { Verdict::Allowed } else { by_ownership(sender, action, bucket, object) };
    }
    if is_in_policy || has_policy {
        return Verdict::Allowed;
    }
    if sender.needs_policies() {
        return Verdict::Denied;
    }
    by_ownership(sender, action, bucket, object)
}

/// What ownership and lists give.
fn by_ownership(
    sender: &Sender,
    action: Action,
    bucket: &Bucket<'_>,
    object: Option<ObjectOwner<'_>>,
) -> Verdict {
    let id = sender.owner_id();
    let is_owner = id.as_deref() == Some(bucket.owner);
    let lists_count = bucket.access.ownership() != Ownership::BucketOwnerEnforced;
    let takes_public = !bucket.access.public_block.unwrap_or_default().ignore_acls;
    let listed = |acl: &Acl, permission| lists_count && acl.grants(id.as_deref(), permission, takes_public);
    let is_allowed = match (action.need, object) {
        (Need::User, _) => id.is_some(),
        (Need::Owner, _) => is_owner,
        (Need::OfBucket(permission), _) => is_owner || listed(&bucket.access.acl, permission),
        (Need::OfObject(_), _) if !lists_count => is_owner,
        (Need::OfObject(_), None) => return Verdict::AskObject,
        (Need::OfObject(permission), Some(object)) => {
            id.as_deref() == Some(object.owner) || listed(object.acl, permission)
        }
    };
    if is_allowed { Verdict::Allowed } else { Verdict::Denied }
}

/// Decides on what needs no bucket: making one with this full name, and listing one's own.
pub fn decide_service(sender: &Sender, action: Action, name: Option<&str>, context: &Context) -> bool {
    let resource = match name {
        Some(name) => resource(name, "", None),
        None => format!("arn:aws:s3::{}:*", sender.principal.bucket_tenant()),
    };
    let asked = Asked { principal: &sender.principal, action: action.name, resource: &resource, context };
    let is_user = sender.owner_id().is_some() && !sender.needs_policies();
    may_at_all(sender, action, &asked) && has_right(sender, is_user, &asked)
}

/// Decides on an action of the IAM API, on a resource of the sender's own account.
pub fn decide_iam(sender: &Sender, action: &str, resource: &str, is_write: bool, context: &Context) -> bool {
    let asked = Asked { principal: &sender.principal, action, resource, context };
    let has_key = if is_write { sender.may_write } else { sender.may_read };
    let is_root = sender.account.as_ref().is_some_and(|account| account.is_root);
    has_key && is_within_limits(sender, &asked) && has_right(sender, is_root, &asked)
}

/// Whether the sender's own policies allow something, or it has the right to it anyway and none denies it.
fn has_right(sender: &Sender, has_anyway: bool, asked: &Asked<'_>) -> bool {
    let has = |effect| sender.policies.iter().any(|policy| policy.has(effect, asked));
    !has(Effect::Deny) && (has_anyway || has(Effect::Allow))
}

fn is_within_limits(sender: &Sender, asked: &Asked<'_>) -> bool {
    let is_within = |limit: &Policy| limit.has(Effect::Allow, asked) && !limit.has(Effect::Deny, asked);
    sender.limits.iter().all(is_within)
}

/// The limits of the key that a request is signed with.
fn may_at_all(sender: &Sender, action: Action, asked: &Asked<'_>) -> bool {
    let has_right = if action.is_write { sender.may_write } else { sender.may_read };
    has_right && is_within_limits(sender, asked)
}

/// Such as `arn:aws:s3::tenant:bucket/key`. A bucket without a tenant whose owner has one, as there were
/// before tenants had names of their own, counts to that of its owner.
fn resource(bucket: &str, owner: &str, key: Option<&str>) -> String {
    let (tenant, bucket) = match split_bucket(bucket) {
        ("", bucket) => (split_tenant(owner).0, bucket),
        named => named,
    };
    match key {
        Some(key) => format!("arn:aws:s3::{tenant}:{bucket}/{key}"),
        None => format!("arn:aws:s3::{tenant}:{bucket}"),
    }
}
