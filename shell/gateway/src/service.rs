//! S3's operations, as `s3s` calls them.

use crate::access::{Access, granted};
use crate::buckets::{Buckets, OpenBucket};
use crate::counters::GatewayCounters;
use crate::errors;
use crate::keyring::KeyRing;
use crate::objects::timestamp;
use crate::quotas::Quotas;
use crate::store::Store;
use crate::users::Users;
use crate::vault::Vault;
use hyper::header::HeaderValue;
use hyper::http::Extensions;
use nacre_s3::tenant::meant_bucket;
use nacre_s3::{Answer, Ask, BucketConfig, LockRule, Refusal, Versioning};
use s3s::dto::{
    self, AbortMultipartUploadInput, AbortMultipartUploadOutput, Bucket, BucketLocationConstraint,
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput,
    CreateBucketInput, CreateBucketOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput,
    DeleteBucketCorsInput, DeleteBucketCorsOutput, DeleteBucketInput, DeleteBucketLifecycleInput,
    DeleteBucketLifecycleOutput, DeleteBucketOutput, DeleteBucketTaggingInput, DeleteBucketTaggingOutput,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectTaggingInput, DeleteObjectTaggingOutput,
    DeleteObjectsInput, DeleteObjectsOutput, GetBucketCorsInput, GetBucketCorsOutput,
    GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput, GetBucketLocationInput,
    GetBucketLocationOutput, GetBucketTaggingInput, GetBucketTaggingOutput, GetBucketVersioningInput,
    GetBucketVersioningOutput, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectInput,
    GetObjectLegalHoldInput, GetObjectLegalHoldOutput, GetObjectLockConfigurationInput,
    GetObjectLockConfigurationOutput, GetObjectOutput, GetObjectRetentionInput, GetObjectRetentionOutput,
    GetObjectTaggingInput, GetObjectTaggingOutput, HeadBucketInput, HeadBucketOutput, HeadObjectInput,
    HeadObjectOutput, ListBucketsInput, ListBucketsOutput, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListObjectVersionsInput, ListObjectVersionsOutput, ListObjectsInput,
    ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output, ListPartsInput, ListPartsOutput, Owner,
    PutBucketCorsInput, PutBucketCorsOutput, PutBucketLifecycleConfigurationInput,
    PutBucketLifecycleConfigurationOutput, PutBucketTaggingInput, PutBucketTaggingOutput,
    PutBucketVersioningInput, PutBucketVersioningOutput, PutObjectInput, PutObjectLegalHoldInput,
    PutObjectLegalHoldOutput, PutObjectLockConfigurationInput, PutObjectLockConfigurationOutput,
    PutObjectOutput, PutObjectRetentionInput, PutObjectRetentionOutput, PutObjectTaggingInput,
    PutObjectTaggingOutput, UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The region whose constraint is written as none.
const DEFAULT_REGION: &str = "us-east-1";

/// What all requests share.
pub struct Core {
    /// Decides again on an object that was replaced meanwhile.
    pub access: Access,
    pub store: Arc<Store>,
    pub users: Arc<Users>,
    pub buckets: Arc<Buckets>,
    pub quotas: Quotas,
    pub keyring: KeyRing,
    /// Has the named keys, if the key ring is not to have them.
    pub vault: Option<Vault>,
    pub counters: Arc<GatewayCounters>,
    pub region: String,
    /// How long the data of a replaced object is kept for those that read it.
    pub grace: Duration,
}

impl Core {
    /// The same in milliseconds.
    pub fn grace_millis(&self) -> u64 {
        u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX)
    }

    /// The bucket of a request: the one that `access` has checked, before the operation began.
    pub async fn open(&self, extensions: &Extensions) -> S3Result<OpenBucket> {
        self.buckets.open(granted(extensions)?.bucket()?).await
    }

    /// What a refusal of the index means to the client.
    pub fn refused(&self, bucket: &OpenBucket, refusal: &Refusal) -> S3Error {
        if *refusal == Refusal::NoSuchBucket {
            self.buckets.forget(&bucket.record.name);
        }
        errors::of_refusal(refusal)
    }
}

/// The operations that the gateway has.
#[derive(Clone)]
pub struct Service(pub Arc<Core>);

#[async_trait::async_trait]
impl S3 for Service {
    async fn list_buckets(
        &self,
        req: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let user = granted(&req.extensions)?.identity.owner_id().to_owned();
        let prefix = req.input.prefix.clone().unwrap_or_default();
        let max = req.input.max_buckets.and_then(|max| usize::try_from(max).ok()).unwrap_or(usize::MAX);
        let after = req.input.continuation_token.unwrap_or_default();
        let all = self.0.buckets.list(&user).await?;
        let mut wanted = all.iter().filter(|bucket| {
            let name = bucket.plain_name();
            name.starts_with(&prefix) && (after.is_empty() || *name > *after)
        });
        let page: Vec<Bucket> = wanted
            .by_ref()
            .take(max)
            .map(|bucket| Bucket {
                name: Some(bucket.plain_name().to_owned()),
                creation_date: Some(timestamp(bucket.created)),
                bucket_region: None,
            })
            .collect();
        let more = wanted.next().is_some();
        let next = page.last().and_then(|bucket| bucket.name.clone()).filter(|_| more);
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(page),
            owner: Some(Owner { display_name: Some(user.clone()), id: Some(user) }),
            continuation_token: next,
            prefix: req.input.prefix,
        }))
    }

    async fn create_bucket(
        &self,
        req: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let own_tenant = granted(&req.extensions)?.identity.tenant();
        if meant_bucket(&req.input.bucket, own_tenant).0 != own_tenant {
            return Err(s3_error!(AccessDenied, "a bucket of another tenant"));
        }
        let (settings, user) = self.0.new_bucket(&req).await?;
        let input = req.input;
        let constraint = input.create_bucket_configuration.and_then(|it| it.location_constraint);
        if let Some(constraint) = constraint.as_ref().map(BucketLocationConstraint::as_str)
            && !constraint.is_empty()
            && constraint != self.0.region
        {
            return Err(s3_error!(
                InvalidLocationConstraint,
                "The specified location-constraint is not valid: this is {}",
                self.0.region
            ));
        }
        let mut config = BucketConfig::default();
        if input.object_lock_enabled_for_bucket == Some(true) {
            config.versioning = Versioning::Enabled;
            config.lock = Some(LockRule::default());
        }
        let name = granted(&req.extensions)?.bucket()?;
        self.0.buckets.create(name, &user, &config, settings).await?;
        let location = Some(format!("/{}", input.bucket));
        Ok(S3Response::new(CreateBucketOutput { location }))
    }

    async fn delete_bucket(
        &self,
        req: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        self.0.buckets.delete(granted(&req.extensions)?.bucket()?).await?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        let bucket = self.0.open(&req.extensions).await?;
        let bucket_region = Some(self.0.region.clone());
        let mut response = S3Response::new(HeadBucketOutput { bucket_region, ..HeadBucketOutput::default() });
        // As radosgw has it.
        if req.uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "read-stats=true")) {
            let totals = match bucket.index.ask(Ask::Totals).await {
                Ok(Answer::Totals(totals)) => totals,
                Ok(_) => return Err(errors::internal("totals were not answered with totals")),
                Err(refusal) => return Err(self.0.refused(&bucket, &refusal)),
            };
            response.headers.insert("x-rgw-object-count", HeaderValue::from(totals.objects));
            response.headers.insert("x-rgw-bytes-used", HeaderValue::from(totals.bytes));
        }
        Ok(response)
    }

    async fn get_bucket_location(
        &self,
        req: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.0.open(&req.extensions).await?;
        let region = Some(self.0.region.clone()).filter(|region| region != DEFAULT_REGION);
        let location_constraint = region.map(BucketLocationConstraint::from);
        Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
    }

    async fn put_bucket_tagging(
        &self,
        req: S3Request<PutBucketTaggingInput>,
    ) -> S3Result<S3Response<PutBucketTaggingOutput>> {
        self.0.put_bucket_tagging(req).await
    }
    async fn get_bucket_tagging(
        &self,
        req: S3Request<GetBucketTaggingInput>,
    ) -> S3Result<S3Response<GetBucketTaggingOutput>> {
        self.0.get_bucket_tagging(req).await
    }
    async fn delete_bucket_tagging(
        &self,
        req: S3Request<DeleteBucketTaggingInput>,
    ) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
        self.0.delete_bucket_tagging(req).await
    }
    async fn put_bucket_cors(
        &self,
        req: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        self.0.put_bucket_cors(req).await
    }
    async fn get_bucket_cors(
        &self,
        req: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        self.0.get_bucket_cors(req).await
    }
    async fn delete_bucket_cors(
        &self,
        req: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
        self.0.delete_bucket_cors(req).await
    }

    async fn put_bucket_logging(
        &self,
        req: S3Request<dto::PutBucketLoggingInput>,
    ) -> S3Result<S3Response<dto::PutBucketLoggingOutput>> {
        self.0.put_bucket_logging(req).await
    }
    async fn get_bucket_logging(
        &self,
        req: S3Request<dto::GetBucketLoggingInput>,
    ) -> S3Result<S3Response<dto::GetBucketLoggingOutput>> {
        self.0.get_bucket_logging(req).await
    }

    async fn put_bucket_notification_configuration(
        &self,
        req: S3Request<dto::PutBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<dto::PutBucketNotificationConfigurationOutput>> {
        self.0.put_bucket_notification_configuration(req).await
    }
    async fn get_bucket_notification_configuration(
        &self,
        req: S3Request<dto::GetBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<dto::GetBucketNotificationConfigurationOutput>> {
        self.0.get_bucket_notification_configuration(req).await
    }

    async fn put_bucket_versioning(
        &self,
        req: S3Request<PutBucketVersioningInput>,
    ) -> S3Result<S3Response<PutBucketVersioningOutput>> {
        self.0.put_bucket_versioning(req).await
    }
    async fn get_bucket_versioning(
        &self,
        req: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        self.0.get_bucket_versioning(req).await
    }
    async fn list_object_versions(
        &self,
        req: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        self.0.list_object_versions(req).await
    }
    async fn put_object_tagging(
        &self,
        req: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        self.0.put_object_tagging(req).await
    }
    async fn get_object_tagging(
        &self,
        req: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        self.0.get_object_tagging(req).await
    }
    async fn delete_object_tagging(
        &self,
        req: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        self.0.delete_object_tagging(req).await
    }
    async fn put_object_lock_configuration(
        &self,
        req: S3Request<PutObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<PutObjectLockConfigurationOutput>> {
        self.0.put_object_lock_configuration(req).await
    }
    async fn get_object_lock_configuration(
        &self,
        req: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<GetObjectLockConfigurationOutput>> {
        self.0.get_object_lock_configuration(req).await
    }
    async fn put_object_retention(
        &self,
        req: S3Request<PutObjectRetentionInput>,
    ) -> S3Result<S3Response<PutObjectRetentionOutput>> {
        self.0.put_object_retention(req).await
    }
    async fn get_object_retention(
        &self,
        req: S3Request<GetObjectRetentionInput>,
    ) -> S3Result<S3Response<GetObjectRetentionOutput>> {
        self.0.get_object_retention(req).await
    }
    async fn put_object_legal_hold(
        &self,
        req: S3Request<PutObjectLegalHoldInput>,
    ) -> S3Result<S3Response<PutObjectLegalHoldOutput>> {
        self.0.put_object_legal_hold(req).await
    }
    async fn get_object_legal_hold(
        &self,
        req: S3Request<GetObjectLegalHoldInput>,
    ) -> S3Result<S3Response<GetObjectLegalHoldOutput>> {
        self.0.get_object_legal_hold(req).await
    }

    async fn put_bucket_lifecycle_configuration(
        &self,
        req: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
        self.0.put_bucket_lifecycle_configuration(req).await
    }
    async fn get_bucket_lifecycle_configuration(
        &self,
        req: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        self.0.get_bucket_lifecycle_configuration(req).await
    }
    async fn delete_bucket_lifecycle(
        &self,
        req: S3Request<DeleteBucketLifecycleInput>,
    ) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
        self.0.delete_bucket_lifecycle(req).await
    }

    async fn get_object_attributes(
        &self,
        req: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        self.0.get_object_attributes(req).await
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let (counters, begun) = (&self.0.counters, Instant::now());
        let bytes = req.input.content_length.and_then(|len| u64::try_from(len).ok()).unwrap_or(0);
        counters.put.inc();
        let answer = self.0.put_object(req).await?;
        counters.put_b.add(bytes);
        counters.put_initial_lat.add(begun.elapsed());
        Ok(answer)
    }
    async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let (counters, begun) = (&self.0.counters, Instant::now());
        counters.get.inc();
        let answer = self.0.get_object(req).await?;
        let bytes = answer.output.content_length.and_then(|len| u64::try_from(len).ok());
        counters.get_b.add(bytes.unwrap_or(0));
        counters.get_initial_lat.add(begun.elapsed());
        Ok(answer)
    }
    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        self.0.head_object(req).await
    }
    async fn copy_object(&self, req: S3Request<CopyObjectInput>) -> S3Result<S3Response<CopyObjectOutput>> {
        self.0.copy_object(req).await
    }
    async fn delete_object(
        &self,
        req: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.0.delete_object(req).await
    }
    async fn delete_objects(
        &self,
        req: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        self.0.delete_objects(req).await
    }
    async fn list_objects(
        &self,
        req: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        self.0.list_objects(req).await
    }
    async fn list_objects_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        self.0.list_objects_v2(req).await
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        self.0.create_multipart_upload(req).await
    }
    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        self.0.upload_part(req).await
    }
    async fn upload_part_copy(
        &self,
        req: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        self.0.upload_part_copy(req).await
    }
    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        self.0.complete_multipart_upload(req).await
    }
    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        self.0.abort_multipart_upload(req).await
    }
    async fn list_parts(&self, req: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
        self.0.list_parts(req).await
    }
    async fn list_multipart_uploads(
        &self,
        req: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        self.0.list_multipart_uploads(req).await
    }

    async fn put_bucket_encryption(
        &self,
        req: S3Request<dto::PutBucketEncryptionInput>,
    ) -> S3Result<S3Response<dto::PutBucketEncryptionOutput>> {
        self.0.put_bucket_encryption(req).await
    }
    async fn get_bucket_encryption(
        &self,
        req: S3Request<dto::GetBucketEncryptionInput>,
    ) -> S3Result<S3Response<dto::GetBucketEncryptionOutput>> {
        self.0.get_bucket_encryption(req).await
    }
    async fn delete_bucket_encryption(
        &self,
        req: S3Request<dto::DeleteBucketEncryptionInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketEncryptionOutput>> {
        self.0.delete_bucket_encryption(req).await
    }

    async fn put_bucket_website(
        &self,
        req: S3Request<dto::PutBucketWebsiteInput>,
    ) -> S3Result<S3Response<dto::PutBucketWebsiteOutput>> {
        self.0.put_bucket_website(req).await
    }
    async fn get_bucket_website(
        &self,
        req: S3Request<dto::GetBucketWebsiteInput>,
    ) -> S3Result<S3Response<dto::GetBucketWebsiteOutput>> {
        self.0.get_bucket_website(req).await
    }
    async fn delete_bucket_website(
        &self,
        req: S3Request<dto::DeleteBucketWebsiteInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketWebsiteOutput>> {
        self.0.delete_bucket_website(req).await
    }

    async fn get_bucket_policy(
        &self,
        req: S3Request<dto::GetBucketPolicyInput>,
    ) -> S3Result<S3Response<dto::GetBucketPolicyOutput>> {
        self.0.get_bucket_policy(req).await
    }
    async fn put_bucket_policy(
        &self,
        req: S3Request<dto::PutBucketPolicyInput>,
    ) -> S3Result<S3Response<dto::PutBucketPolicyOutput>> {
        self.0.put_bucket_policy(req).await
    }
    async fn delete_bucket_policy(
        &self,
        req: S3Request<dto::DeleteBucketPolicyInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketPolicyOutput>> {
        self.0.delete_bucket_policy(req).await
    }
    async fn get_bucket_policy_status(
        &self,
        req: S3Request<dto::GetBucketPolicyStatusInput>,
    ) -> S3Result<S3Response<dto::GetBucketPolicyStatusOutput>> {
        self.0.get_bucket_policy_status(req).await
    }
    async fn get_bucket_acl(
        &self,
        req: S3Request<dto::GetBucketAclInput>,
    ) -> S3Result<S3Response<dto::GetBucketAclOutput>> {
        self.0.get_bucket_acl(req).await
    }
    async fn put_bucket_acl(
        &self,
        req: S3Request<dto::PutBucketAclInput>,
    ) -> S3Result<S3Response<dto::PutBucketAclOutput>> {
        self.0.put_bucket_acl(req).await
    }
    async fn get_bucket_ownership_controls(
        &self,
        req: S3Request<dto::GetBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<dto::GetBucketOwnershipControlsOutput>> {
        self.0.get_bucket_ownership_controls(req).await
    }
    async fn put_bucket_ownership_controls(
        &self,
        req: S3Request<dto::PutBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<dto::PutBucketOwnershipControlsOutput>> {
        self.0.put_bucket_ownership_controls(req).await
    }
    async fn delete_bucket_ownership_controls(
        &self,
        req: S3Request<dto::DeleteBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<dto::DeleteBucketOwnershipControlsOutput>> {
        self.0.delete_bucket_ownership_controls(req).await
    }
    async fn get_public_access_block(
        &self,
        req: S3Request<dto::GetPublicAccessBlockInput>,
    ) -> S3Result<S3Response<dto::GetPublicAccessBlockOutput>> {
        self.0.get_public_access_block(req).await
    }
    async fn put_public_access_block(
        &self,
        req: S3Request<dto::PutPublicAccessBlockInput>,
    ) -> S3Result<S3Response<dto::PutPublicAccessBlockOutput>> {
        self.0.put_public_access_block(req).await
    }
    async fn delete_public_access_block(
        &self,
        req: S3Request<dto::DeletePublicAccessBlockInput>,
    ) -> S3Result<S3Response<dto::DeletePublicAccessBlockOutput>> {
        self.0.delete_public_access_block(req).await
    }
    async fn get_bucket_request_payment(
        &self,
        req: S3Request<dto::GetBucketRequestPaymentInput>,
    ) -> S3Result<S3Response<dto::GetBucketRequestPaymentOutput>> {
        self.0.get_bucket_request_payment(req).await
    }
    async fn put_bucket_request_payment(
        &self,
        req: S3Request<dto::PutBucketRequestPaymentInput>,
    ) -> S3Result<S3Response<dto::PutBucketRequestPaymentOutput>> {
        self.0.put_bucket_request_payment(req).await
    }
    async fn get_object_acl(
        &self,
        req: S3Request<dto::GetObjectAclInput>,
    ) -> S3Result<S3Response<dto::GetObjectAclOutput>> {
        self.0.get_object_acl(req).await
    }
    async fn put_object_acl(
        &self,
        req: S3Request<dto::PutObjectAclInput>,
    ) -> S3Result<S3Response<dto::PutObjectAclOutput>> {
        self.0.put_object_acl(req).await
    }
}
