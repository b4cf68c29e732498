//! Making buckets with access settings, and the lists of objects.

use crate::access::{Which, granted, settings};
use crate::acls::{self, Of};
use crate::errors;
use crate::policies::{check_list, no_lists, owner_of};
use crate::service::Core;
use crate::versions::version_of;
use bytes::Bytes;
use hyper::StatusCode;
use nacre_base::Name;
use nacre_s3::access::{Ownership, setting};
use nacre_s3::tenant::split_bucket;
use nacre_s3::{Refusal, Revision};
use nacre_wire::to_vec;
use s3s::dto::{
    CreateBucketInput, GetObjectAclInput, GetObjectAclOutput, PutObjectAclInput, PutObjectAclOutput,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// Names that are parts of URLs of other interfaces.
const RESERVED: [&str; 2] = ["admin", "swift"];

impl Core {
    /// The first settings of a bucket that is to be made, and its owner.
    pub async fn new_bucket(
        &self,
        req: &S3Request<CreateBucketInput>,
    ) -> S3Result<(Vec<(Name, Bytes)>, String)> {
        let denied = || s3_error!(AccessDenied, "Access Denied");
        let granted = granted(&req.extensions)?;
        let owner = granted.identity.owner.clone().ok_or_else(denied)?;
        let name = split_bucket(granted.bucket()?).1;
        if RESERVED.contains(&name) {
            return Err(s3_error!(InvalidBucketName, "the name is used by another interface"));
        }
        let too_many = || {
            let message = "You have attempted to create more buckets than allowed";
            errors::with_code("TooManyBuckets", StatusCode::BAD_REQUEST, message)
        };
        match usize::try_from(owner.max_buckets) {
            Err(_) => return Err(too_many()),
            Ok(0) => {}
            Ok(max) => {
                let buckets = self.buckets.list(&owner.id).await?;
                let is_new = !buckets.iter().any(|bucket| bucket.plain_name() == name);
                if is_new && buckets.len() >= max {
                    return Err(too_many());
                }
            }
        }
        let mut settings: Vec<(Name, Bytes)> = Vec::new();
        let mut put = |name: &str, value: Vec<u8>| settings.push((Name::from(name), value.into()));
        let ownership = match &req.input.object_ownership {
            None => None,
            Some(given) => {
                let known = Ownership::parse(given.as_str());
                let known = known.ok_or_else(|| s3_error!(InvalidArgument, "unknown object ownership"))?;
                put(setting::OWNERSHIP, to_vec(&known));
                Some(known)
            }
        };
        let of = Of { owner: &owner.id, bucket_owner: None };
        let list = self.list_of(&req.headers, None, of).await?.unwrap_or_default();
        if !list.grants.is_empty() {
            if ownership == Some(Ownership::BucketOwnerEnforced) {
                return Err(no_lists());
            }
            put(setting::ACL, to_vec(&list));
        }
        Ok((settings, owner.id.clone()))
    }

    /// GetObjectAcl.
    pub async fn get_object_acl(
        &self,
        req: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let version = version_of(req.input.version_id.as_deref())?;
        let object =
            self.object_for(&req.extensions, Which::Target, &bucket, &req.input.key, version).await?;
        let is_enforced = settings(&bucket)?.ownership() == Ownership::BucketOwnerEnforced;
        let owner = if is_enforced { &bucket.record.owner } else { &object.entry.owner };
        let list = if is_enforced { Default::default() } else { object.head.acl };
        Ok(S3Response::new(GetObjectAclOutput {
            grants: Some(acls::shown(&list, owner)),
            owner: Some(owner_of(owner)),
            request_charged: None,
        }))
    }

    /// PutObjectAcl.
    pub async fn put_object_acl(
        &self,
        req: S3Request<PutObjectAclInput>,
    ) -> S3Result<S3Response<PutObjectAclOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        let access = settings(&bucket)?;
        if access.ownership() == Ownership::BucketOwnerEnforced {
            return Err(no_lists());
        }
        let version = version_of(input.version_id.as_deref())?;
        loop {
            let object =
                self.object_for(&req.extensions, Which::Target, &bucket, &input.key, version).await?;
            let of = Of { owner: &object.entry.owner, bucket_owner: Some(&bucket.record.owner) };
            let list = self.list_of(&req.headers, input.access_control_policy.clone(), of).await?;
            let list = list.ok_or_else(|| s3_error!(MissingSecurityHeader, "the request names no list"))?;
            check_list(&list, &access)?;
            // The list is that of the version it was decided on, also if there is a newer one meanwhile.
            let (version, made_by) = (Some(object.entry.version()), Some(object.entry.tag));
            let revision = Revision::Acl(list);
            match self.revise_one(&bucket, &input.key, version, made_by, revision).await {
                Ok(_) => break,
                Err(Refusal::PreconditionFailed) => {}
                Err(refusal) => return Err(self.refused(&bucket, &refusal)),
            }
        }
        Ok(S3Response::new(PutObjectAclOutput::default()))
    }
}
