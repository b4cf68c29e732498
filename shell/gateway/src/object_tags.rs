//! Tags of objects.

use crate::access::Which;
use crate::objects::key_of;
use crate::service::Core;
use crate::settings::{OBJECT_TAGS_MAX, tag_set, tags_of_set};
use crate::versions::version_of;
use hyper::StatusCode;
use nacre_s3::{Answer, Ask, Change, Revision, VersionId};
use s3s::auth::Credentials;
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput, GetObjectTaggingOutput,
    PutObjectTaggingInput, PutObjectTaggingOutput,
};
use s3s::{S3Request, S3Response, S3Result};

impl Core {
    /// Changes what can be changed of a version, and says which it is.
    pub async fn revise(
        &self,
        credentials: &Option<Credentials>,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        revision: Revision,
    ) -> S3Result<Option<String>> {
        let bucket = self.open(credentials, bucket).await?;
        let version = version_of(version)?;
        let revise = Change::Revise { key: key_of(key)?, version, revision, tag: self.store.new_tag() };
        match bucket.index.ask(Ask::Change(revise)).await {
            Ok(Answer::Revised { version }) => Ok(bucket.version_text(version)),
            Ok(_) => Ok(bucket.version_text(VersionId::Null)),
            Err(refusal) => Err(self.refused(&bucket, &refusal)),
        }
    }

    /// PutObjectTagging.
    pub async fn put_object_tagging(
        &self,
        req: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        let input = req.input;
        let tags = tags_of_set(input.tagging.tag_set, OBJECT_TAGS_MAX)?;
        let (bucket, key) = (&input.bucket, &input.key);
        let revision = Revision::Tags(tags);
        let version_id =
            self.revise(&req.credentials, bucket, key, input.version_id.as_deref(), revision).await?;
        Ok(S3Response::new(PutObjectTaggingOutput { version_id }))
    }

    /// GetObjectTagging.
    pub async fn get_object_tagging(
        &self,
        req: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        let bucket = self.open(&req.credentials, &req.input.bucket).await?;
        let version = version_of(req.input.version_id.as_deref())?;
        let object =
            self.object_for(&req.extensions, Which::Target, &bucket, &req.input.key, version).await?;
        let version_id = bucket.version_text(object.entry.version());
        Ok(S3Response::new(GetObjectTaggingOutput { tag_set: tag_set(&object.head.tags), version_id }))
    }

    /// DeleteObjectTagging.
    pub async fn delete_object_tagging(
        &self,
        req: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        let input = req.input;
        let (bucket, key) = (&input.bucket, &input.key);
        let none = Revision::Tags(Default::default());
        let version_id =
            self.revise(&req.credentials, bucket, key, input.version_id.as_deref(), none).await?;
        Ok(S3Response::with_status(DeleteObjectTaggingOutput { version_id }, StatusCode::NO_CONTENT))
    }
}
