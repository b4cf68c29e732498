//! The actions of S3: what each operation needs, by the name of the operation.

use crate::acl::Permission;

/// What gives access when no policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Only the owner of the bucket has it.
    Owner,
    /// The list of the bucket must grant it.
    OfBucket(Permission),
    /// The list of the object must grant it.
    OfObject(Permission),
    /// A user of the gateways, whichever: there is no bucket yet.
    User,
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// Such as `s3:GetObject`.
    pub name: &'static str,
    pub need: Need,
    /// Whether it changes anything.
    pub is_write: bool,
    /// Whether its resource is an object. Otherwise it is the bucket.
    pub is_of_object: bool,
}

const READ: Need = Need::OfBucket(Permission::READ);
const WRITE: Need = Need::OfBucket(Permission::WRITE);
const READ_OBJECT: Need = Need::OfObject(Permission::READ);
const OWNER: Need = Need::Owner;

const fn bucket(name: &'static str, need: Need, is_write: bool) -> Action {
    Action { name, need, is_write, is_of_object: false }
}
const fn object(name: &'static str, need: Need, is_write: bool) -> Action {
    Action { name, need, is_write, is_of_object: true }
}

/// Operations with their actions, and with the action on a version where that is another one.
const OPERATIONS: &[(&str, Action, Option<&str>)] = &[
    ("ListBuckets", bucket("s3:ListAllMyBuckets", Need::User, false), None),
    ("CreateBucket", bucket("s3:CreateBucket", Need::User, true), None),
    ("DeleteBucket", bucket("s3:DeleteBucket", OWNER, true), None),
    ("HeadBucket", bucket("s3:ListBucket", READ, false), None),
    ("ListObjects", bucket("s3:ListBucket", READ, false), None),
    ("ListObjectsV2", bucket("s3:ListBucket", READ, false), None),
    ("ListObjectVersions", bucket("s3:ListBucketVersions", READ, false), None),
    ("ListMultipartUploads", bucket("s3:ListBucketMultipartUploads", READ, false), None),
    ("GetBucketLocation", bucket("s3:GetBucketLocation", OWNER, false), None),
    ("GetBucketAcl", bucket("s3:GetBucketAcl", Need::OfBucket(Permission::READ_ACP), false), None),
    ("PutBucketAcl", bucket("s3:PutBucketAcl", Need::OfBucket(Permission::WRITE_ACP), true), None),
    ("GetBucketPolicy", bucket("s3:GetBucketPolicy", OWNER, false), None),
    ("GetBucketPolicyStatus", bucket("s3:GetBucketPolicyStatus", OWNER, false), None),
    ("PutBucketPolicy", bucket("s3:PutBucketPolicy", OWNER, true), None),
    ("DeleteBucketPolicy", bucket("s3:DeleteBucketPolicy", OWNER, true), None),
    ("GetPublicAccessBlock", bucket("s3:GetBucketPublicAccessBlock", OWNER, false), None),
    ("PutPublicAccessBlock", bucket("s3:PutBucketPublicAccessBlock", OWNER, true), None),
    ("DeletePublicAccessBlock", bucket("s3:PutBucketPublicAccessBlock", OWNER, true), None),
    ("GetBucketOwnershipControls", bucket("s3:GetBucketOwnershipControls", OWNER, false), None),
    ("PutBucketOwnershipControls", bucket("s3:PutBucketOwnershipControls", OWNER, true), None),
    ("DeleteBucketOwnershipControls", bucket("s3:PutBucketOwnershipControls", OWNER, true), None),
    ("GetBucketRequestPayment", bucket("s3:GetBucketRequestPayment", OWNER, false), None),
    ("PutBucketRequestPayment", bucket("s3:PutBucketRequestPayment", OWNER, true), None),
    ("GetBucketVersioning", bucket("s3:GetBucketVersioning", OWNER, false), None),
    ("PutBucketVersioning", bucket("s3:PutBucketVersioning", OWNER, true), None),
    ("GetBucketTagging", bucket("s3:GetBucketTagging", OWNER, false), None),
    ("PutBucketTagging", bucket("s3:PutBucketTagging", OWNER, true), None),
    ("DeleteBucketTagging", bucket("s3:PutBucketTagging", OWNER, true), None),
    ("GetBucketCors", bucket("s3:GetBucketCORS", OWNER, false), None),
    ("PutBucketCors", bucket("s3:PutBucketCORS", OWNER, true), None),
    ("DeleteBucketCors", bucket("s3:PutBucketCORS", OWNER, true), None),
    ("GetBucketWebsite", bucket("s3:GetBucketWebsite", OWNER, false), None),
    ("PutBucketWebsite", bucket("s3:PutBucketWebsite", OWNER, true), None),
    ("DeleteBucketWebsite", bucket("s3:DeleteBucketWebsite", OWNER, true), None),
    ("GetBucketLogging", bucket("s3:GetBucketLogging", OWNER, false), None),
    ("PutBucketLogging", bucket("s3:PutBucketLogging", OWNER, true), None),
    ("GetBucketEncryption", bucket("s3:GetEncryptionConfiguration", OWNER, false), None),
    ("PutBucketEncryption", bucket("s3:PutEncryptionConfiguration", OWNER, true), None),
    ("DeleteBucketEncryption", bucket("s3:PutEncryptionConfiguration", OWNER, true), None),
    ("GetBucketLifecycleConfiguration", bucket("s3:GetLifecycleConfiguration", OWNER, false), None),
    ("PutBucketLifecycleConfiguration", bucket("s3:PutLifecycleConfiguration", OWNER, true), None),
    ("DeleteBucketLifecycle", bucket("s3:PutLifecycleConfiguration", OWNER, true), None),
    ("GetBucketNotificationConfiguration", bucket("s3:GetBucketNotification", OWNER, false), None),
    ("PutBucketNotificationConfiguration", bucket("s3:PutBucketNotification", OWNER, true), None),
    ("GetObjectLockConfiguration", bucket("s3:GetBucketObjectLockConfiguration", OWNER, false), None),
    ("PutObjectLockConfiguration", bucket("s3:PutBucketObjectLockConfiguration", OWNER, true), None),
    ("GetObject", object("s3:GetObject", READ_OBJECT, false), Some("s3:GetObjectVersion")),
    ("HeadObject", object("s3:GetObject", READ_OBJECT, false), Some("s3:GetObjectVersion")),
    ("GetObjectAttributes", object("s3:GetObject", READ_OBJECT, false), Some("s3:GetObjectVersion")),
    ("SelectObjectContent", object("s3:GetObject", READ_OBJECT, false), None),
    ("PutObject", object("s3:PutObject", WRITE, true), None),
    ("PostObject", object("s3:PutObject", WRITE, true), None),
    ("CopyObject", object("s3:PutObject", WRITE, true), None),
    ("CreateMultipartUpload", object("s3:PutObject", WRITE, true), None),
    ("UploadPart", object("s3:PutObject", WRITE, true), None),
    ("UploadPartCopy", object("s3:PutObject", WRITE, true), None),
    ("CompleteMultipartUpload", object("s3:PutObject", WRITE, true), None),
    ("AbortMultipartUpload", object("s3:AbortMultipartUpload", WRITE, true), None),
    ("ListParts", object("s3:ListMultipartUploadParts", WRITE, false), None),
    ("DeleteObject", object("s3:DeleteObject", WRITE, true), Some("s3:DeleteObjectVersion")),
    (
        "GetObjectAcl",
        object("s3:GetObjectAcl", Need::OfObject(Permission::READ_ACP), false),
        Some("s3:GetObjectVersionAcl"),
    ),
    (
        "PutObjectAcl",
        object("s3:PutObjectAcl", Need::OfObject(Permission::WRITE_ACP), true),
        Some("s3:PutObjectVersionAcl"),
    ),
    (
        "GetObjectTagging",
        object("s3:GetObjectTagging", READ_OBJECT, false),
        Some("s3:GetObjectVersionTagging"),
    ),
    (
        "PutObjectTagging",
        object("s3:PutObjectTagging", Need::OfObject(Permission::WRITE), true),
        Some("s3:PutObjectVersionTagging"),
    ),
    (
        "DeleteObjectTagging",
        object("s3:DeleteObjectTagging", Need::OfObject(Permission::WRITE), true),
        Some("s3:DeleteObjectVersionTagging"),
    ),
    ("GetObjectRetention", object("s3:GetObjectRetention", OWNER, false), None),
    ("PutObjectRetention", object("s3:PutObjectRetention", OWNER, true), None),
    ("GetObjectLegalHold", object("s3:GetObjectLegalHold", OWNER, false), None),
    ("PutObjectLegalHold", object("s3:PutObjectLegalHold", OWNER, true), None),
    ("BypassGovernanceRetention", object("s3:BypassGovernanceRetention", OWNER, true), None),
];

impl Action {
    /// What an operation of S3 needs. One that is not in the table is for the bucket's owner only.
    pub fn of_operation(operation: &str, has_version: bool) -> Action {
        let known = OPERATIONS.iter().find(|(name, ..)| *name == operation);
        match known {
            Some((_, action, Some(of_version))) if has_version => Action { name: of_version, ..*action },
            Some((_, action, _)) => *action,
            None => bucket("s3:*", Need::Owner, true),
        }
    }

    /// Whether it is about no bucket that exists.
    pub fn is_of_service(&self) -> bool {
        self.need == Need::User
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_need_their_own_actions() {
        assert_eq!(Action::of_operation("GetObject", false).name, "s3:GetObject");
        assert_eq!(Action::of_operation("HeadObject", true).name, "s3:GetObjectVersion");
        assert_eq!(Action::of_operation("DeleteObject", true).name, "s3:DeleteObjectVersion");
        assert_eq!(Action::of_operation("PutObject", true).name, "s3:PutObject");
        let unknown = Action::of_operation("PutBucketReplication", false);
        assert_eq!((unknown.need, unknown.is_write), (Need::Owner, true));
        for (name, action, of_version) in OPERATIONS {
            assert!(action.name.starts_with("s3:"), "{name}");
            assert!(of_version.is_none() || action.is_of_object, "{name}");
            assert!(OPERATIONS.iter().filter(|(other, ..)| other == name).count() == 1, "{name}");
            let is_read = ["Get", "Head", "List", "Select"].iter().any(|read| name.starts_with(read));
            assert_eq!(action.is_write, !is_read, "{name}");
        }
    }
}
