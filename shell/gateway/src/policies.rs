//! The settings of buckets about access: policies, lists, ownership, the public access block, payment.

use crate::access::{granted, settings};
use crate::acls::{self, Of};
use crate::buckets::OpenBucket;
use crate::errors;
use crate::service::Core;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use hyper::http::Extensions;
use nacre_s3::access::{BucketAccess, Ownership, PublicBlock, setting};
use nacre_s3::acl::Acl;
use nacre_s3::policy::{BadPolicy, Kind, Policy};
use nacre_wire::to_vec;
use s3s::dto::{
    DeleteBucketOwnershipControlsInput, DeleteBucketOwnershipControlsOutput, DeleteBucketPolicyInput,
    DeleteBucketPolicyOutput, DeletePublicAccessBlockInput, DeletePublicAccessBlockOutput, GetBucketAclInput,
    GetBucketAclOutput, GetBucketOwnershipControlsInput, GetBucketOwnershipControlsOutput,
    GetBucketPolicyInput, GetBucketPolicyOutput, GetBucketPolicyStatusInput, GetBucketPolicyStatusOutput,
    GetBucketRequestPaymentInput, GetBucketRequestPaymentOutput, GetPublicAccessBlockInput,
    GetPublicAccessBlockOutput, ObjectOwnership, Owner, OwnershipControls, OwnershipControlsRule, Payer,
    PolicyStatus, PublicAccessBlockConfiguration, PutBucketAclInput, PutBucketAclOutput,
    PutBucketOwnershipControlsInput, PutBucketOwnershipControlsOutput, PutBucketPolicyInput,
    PutBucketPolicyOutput, PutBucketRequestPaymentInput, PutBucketRequestPaymentOutput,
    PutPublicAccessBlockInput, PutPublicAccessBlockOutput,
};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

fn no_policy() -> S3Error {
    s3_error!(NoSuchBucketPolicy, "The bucket policy does not exist")
}
fn no_ownership() -> S3Error {
    errors::with_code(
        "OwnershipControlsNotFoundError",
        StatusCode::NOT_FOUND,
        "The bucket ownership controls were not found",
    )
}
fn no_block() -> S3Error {
    errors::with_code(
        "NoSuchPublicAccessBlockConfiguration",
        StatusCode::NOT_FOUND,
        "The public access block configuration was not found",
    )
}
fn blocked() -> S3Error {
    s3_error!(AccessDenied, "public access is blocked by the bucket's public access block")
}

/// Shown as the owner of a bucket or an object.
pub fn owner_of(id: &str) -> Owner {
    Owner { display_name: Some(id.to_owned()), id: Some(id.to_owned()) }
}

/// Whose an object is that a request writes, and its list.
pub struct Written {
    pub owner: String,
    pub acl: Acl,
}

impl Core {
    async fn with_access(&self, extensions: &Extensions) -> S3Result<(OpenBucket, BucketAccess)> {
        let bucket = self.open(extensions).await?;
        let access = settings(&bucket)?;
        Ok((bucket, access))
    }

    /// The owner of an object that a request writes, and the list that the request gives it.
    pub async fn written_by(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        bucket: &OpenBucket,
    ) -> S3Result<Written> {
        let writer = granted(extensions)?.identity.owner_id().to_owned();
        let access = settings(bucket)?;
        let bucket_owner = bucket.record.owner.clone();
        let of = Of { owner: &writer, bucket_owner: Some(&bucket_owner) };
        let canned = headers.get("x-amz-acl").and_then(|value| value.to_str().ok());
        match access.ownership() {
            Ownership::BucketOwnerEnforced => {
                let harmless = matches!(canned, None | Some("bucket-owner-full-control" | "private"));
                if acls::are_given(headers) && !(harmless && canned.is_some()) {
                    return Err(no_lists());
                }
                return Ok(Written { owner: bucket_owner, acl: Acl::default() });
            }
            Ownership::BucketOwnerPreferred if canned == Some("bucket-owner-full-control") => {
                return Ok(Written { owner: bucket_owner, acl: Acl::default() });
            }
            _ => {}
        }
        let acl = self.list_of(headers, None, of).await?.unwrap_or_default();
        check_list(&acl, &access)?;
        Ok(Written { owner: writer, acl })
    }

    /// GetBucketPolicy.
    pub async fn get_bucket_policy(
        &self,
        req: S3Request<GetBucketPolicyInput>,
    ) -> S3Result<S3Response<GetBucketPolicyOutput>> {
        let (_, access) = self.with_access(&req.extensions).await?;
        let policy = Some(access.policy).filter(|policy| !policy.is_empty()).ok_or_else(no_policy)?;
        Ok(S3Response::new(GetBucketPolicyOutput { policy: Some(policy) }))
    }

    /// PutBucketPolicy.
    pub async fn put_bucket_policy(
        &self,
        req: S3Request<PutBucketPolicyInput>,
    ) -> S3Result<S3Response<PutBucketPolicyOutput>> {
        let input = req.input;
        let (bucket, access) = self.with_access(&req.extensions).await?;
        let policy =
            Policy::parse(&input.policy, Kind::Bucket(&bucket.record.name)).map_err(|bad| match bad {
                BadPolicy::TooLarge(_) => {
                    errors::with_text("PolicyTooLarge", StatusCode::BAD_REQUEST, bad.to_string())
                }
                BadPolicy::Malformed(why) => s3_error!(MalformedPolicy, "{why}"),
            })?;
        if access.public_block.unwrap_or_default().block_policy && policy.is_public() {
            return Err(blocked());
        }
        self.buckets.set(&bucket, setting::POLICY, Some(to_vec(&input.policy))).await?;
        Ok(S3Response::with_status(PutBucketPolicyOutput::default(), StatusCode::NO_CONTENT))
    }

    /// DeleteBucketPolicy.
    pub async fn delete_bucket_policy(
        &self,
        req: S3Request<DeleteBucketPolicyInput>,
    ) -> S3Result<S3Response<DeleteBucketPolicyOutput>> {
        let bucket = self.open(&req.extensions).await?;
        self.buckets.set(&bucket, setting::POLICY, None).await?;
        Ok(S3Response::new(DeleteBucketPolicyOutput::default()))
    }

    /// GetBucketPolicyStatus.
    pub async fn get_bucket_policy_status(
        &self,
        req: S3Request<GetBucketPolicyStatusInput>,
    ) -> S3Result<S3Response<GetBucketPolicyStatusOutput>> {
        let (bucket, access) = self.with_access(&req.extensions).await?;
        let block = access.public_block.unwrap_or_default();
        let policy = access.read_policy(&bucket.record.name).map_err(errors::corrupt)?;
        let lists_count = access.ownership() != Ownership::BucketOwnerEnforced && !block.ignore_acls;
        // As radosgw: lists count as well.
        let is_public = policy.is_some_and(|policy| policy.is_public() && !block.restrict_buckets)
            || lists_count && access.acl.is_public();
        let policy_status = Some(PolicyStatus { is_public: Some(is_public) });
        Ok(S3Response::new(GetBucketPolicyStatusOutput { policy_status }))
    }

    /// GetBucketAcl.
    pub async fn get_bucket_acl(
        &self,
        req: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        let (bucket, access) = self.with_access(&req.extensions).await?;
        let owner = &bucket.record.owner;
        Ok(S3Response::new(GetBucketAclOutput {
            grants: Some(acls::shown(&access.acl, owner)),
            owner: Some(owner_of(owner)),
        }))
    }

    /// PutBucketAcl.
    pub async fn put_bucket_acl(
        &self,
        req: S3Request<PutBucketAclInput>,
    ) -> S3Result<S3Response<PutBucketAclOutput>> {
        let (bucket, access) = self.with_access(&req.extensions).await?;
        let of = Of { owner: &bucket.record.owner, bucket_owner: None };
        let list = self.list_of(&req.headers, req.input.access_control_policy, of).await?;
        let list = list.ok_or_else(|| s3_error!(MissingSecurityHeader, "the request names no list"))?;
        if access.ownership() == Ownership::BucketOwnerEnforced && !list.grants.is_empty() {
            return Err(no_lists());
        }
        check_list(&list, &access)?;
        self.buckets.set(&bucket, setting::ACL, Some(to_vec(&list))).await?;
        Ok(S3Response::new(PutBucketAclOutput::default()))
    }

    /// GetBucketOwnershipControls.
    pub async fn get_bucket_ownership_controls(
        &self,
        req: S3Request<GetBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<GetBucketOwnershipControlsOutput>> {
        let (_, access) = self.with_access(&req.extensions).await?;
        let name = access.ownership.ok_or_else(no_ownership)?.name();
        let rules = vec![OwnershipControlsRule { object_ownership: ObjectOwnership::from_static(name) }];
        let ownership_controls = Some(OwnershipControls { rules });
        Ok(S3Response::new(GetBucketOwnershipControlsOutput { ownership_controls }))
    }

    /// PutBucketOwnershipControls.
    pub async fn put_bucket_ownership_controls(
        &self,
        req: S3Request<PutBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<PutBucketOwnershipControlsOutput>> {
        let (bucket, access) = self.with_access(&req.extensions).await?;
        let ownership = match &req.input.ownership_controls.rules[..] {
            [rule] => Ownership::parse(rule.object_ownership.as_str()),
            _ => None,
        };
        let ownership = ownership.ok_or_else(|| s3_error!(MalformedXML, "one rule of a known ownership"))?;
        if ownership == Ownership::BucketOwnerEnforced && !access.acl.grants.is_empty() {
            return Err(errors::with_code(
                "InvalidBucketAclWithObjectOwnership",
                StatusCode::BAD_REQUEST,
                "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
            ));
        }
        self.buckets.set(&bucket, setting::OWNERSHIP, Some(to_vec(&ownership))).await?;
        Ok(S3Response::new(PutBucketOwnershipControlsOutput::default()))
    }

    /// DeleteBucketOwnershipControls.
    pub async fn delete_bucket_ownership_controls(
        &self,
        req: S3Request<DeleteBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<DeleteBucketOwnershipControlsOutput>> {
        let bucket = self.open(&req.extensions).await?;
        self.buckets.set(&bucket, setting::OWNERSHIP, None).await?;
        Ok(S3Response::new(DeleteBucketOwnershipControlsOutput::default()))
    }

    /// GetPublicAccessBlock.
    pub async fn get_public_access_block(
        &self,
        req: S3Request<GetPublicAccessBlockInput>,
    ) -> S3Result<S3Response<GetPublicAccessBlockOutput>> {
        let (_, access) = self.with_access(&req.extensions).await?;
        let block = access.public_block.ok_or_else(no_block)?;
        let configuration = PublicAccessBlockConfiguration {
            block_public_acls: Some(block.block_acls),
            block_public_policy: Some(block.block_policy),
            ignore_public_acls: Some(block.ignore_acls),
            restrict_public_buckets: Some(block.restrict_buckets),
        };
        let public_access_block_configuration = Some(configuration);
        Ok(S3Response::new(GetPublicAccessBlockOutput { public_access_block_configuration }))
    }

    /// PutPublicAccessBlock.
    pub async fn put_public_access_block(
        &self,
        req: S3Request<PutPublicAccessBlockInput>,
    ) -> S3Result<S3Response<PutPublicAccessBlockOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let wanted = req.input.public_access_block_configuration;
        let block = PublicBlock {
            block_acls: wanted.block_public_acls.unwrap_or(false),
            ignore_acls: wanted.ignore_public_acls.unwrap_or(false),
            block_policy: wanted.block_public_policy.unwrap_or(false),
            restrict_buckets: wanted.restrict_public_buckets.unwrap_or(false),
        };
        self.buckets.set(&bucket, setting::PUBLIC_BLOCK, Some(to_vec(&block))).await?;
        Ok(S3Response::new(PutPublicAccessBlockOutput::default()))
    }

    /// DeletePublicAccessBlock.
    pub async fn delete_public_access_block(
        &self,
        req: S3Request<DeletePublicAccessBlockInput>,
    ) -> S3Result<S3Response<DeletePublicAccessBlockOutput>> {
        let bucket = self.open(&req.extensions).await?;
        self.buckets.set(&bucket, setting::PUBLIC_BLOCK, None).await?;
        Ok(S3Response::new(DeletePublicAccessBlockOutput::default()))
    }

    /// GetBucketRequestPayment.
    pub async fn get_bucket_request_payment(
        &self,
        req: S3Request<GetBucketRequestPaymentInput>,
    ) -> S3Result<S3Response<GetBucketRequestPaymentOutput>> {
        let (_, access) = self.with_access(&req.extensions).await?;
        let payer = if access.requester_pays { Payer::REQUESTER } else { Payer::BUCKET_OWNER };
        let payer = Some(Payer::from_static(payer));
        Ok(S3Response::new(GetBucketRequestPaymentOutput { payer }))
    }

    /// PutBucketRequestPayment.
    pub async fn put_bucket_request_payment(
        &self,
        req: S3Request<PutBucketRequestPaymentInput>,
    ) -> S3Result<S3Response<PutBucketRequestPaymentOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let value = match req.input.request_payment_configuration.payer.as_str() {
            Payer::REQUESTER => Some(vec![1]),
            Payer::BUCKET_OWNER => None,
            _ => return Err(s3_error!(MalformedXML, "the payer is Requester or BucketOwner")),
        };
        self.buckets.set(&bucket, setting::REQUESTER_PAYS, value).await?;
        Ok(S3Response::new(PutBucketRequestPaymentOutput::default()))
    }
}

/// Whether a new list may be as public as it is.
pub fn check_list(list: &Acl, access: &BucketAccess) -> S3Result<()> {
    match access.public_block.unwrap_or_default().block_acls && list.is_public() {
        true => Err(blocked()),
        false => Ok(()),
    }
}

/// Lists do not count where the bucket's owner owns all.
pub fn no_lists() -> S3Error {
    errors::with_code(
        "AccessControlListNotSupported",
        StatusCode::BAD_REQUEST,
        "The bucket does not allow ACLs",
    )
}
