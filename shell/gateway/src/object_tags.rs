//! Tags of objects.

use crate::access::{Which, granted};
use crate::buckets::OpenBucket;
use crate::service::Core;
use crate::settings::{OBJECT_TAGS_MAX, tag_set, tags_of_set};
use crate::versions::version_of;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::http::Extensions;
use nacre_s3::{Answer, Ask, Change, Refusal, Revision, Tag, VersionId};
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput, GetObjectTaggingOutput,
    PutObjectTaggingInput, PutObjectTaggingOutput,
};
use s3s::{S3Request, S3Response, S3Result};

impl Core {
    /// Changes what can be changed of a version, and says which it is. A right that depends on the object is
    /// one on the object that it was decided on: another one that took its place is decided on again.
    pub async fn revise(
        &self,
        extensions: &Extensions,
        key: &str,
        version: Option<&str>,
        revision: Revision,
    ) -> S3Result<Option<String>> {
        let bucket = self.open(extensions).await?;
        let version = version_of(version)?;
        let is_decided_on_object = granted(extensions)?.is_decided_on_object();
        loop {
            let made_by = match is_decided_on_object {
                true => {
                    let object = self.object_for(extensions, Which::Target, &bucket, key, version).await?;
                    Some(object.entry.tag)
                }
                false => None,
            };
            match self.revise_one(&bucket, key, version, made_by, revision.clone()).await {
                Ok(version) => return Ok(bucket.version_text(version)),
                Err(Refusal::PreconditionFailed) if made_by.is_some() => {}
                Err(refusal) => return Err(self.refused(&bucket, &refusal)),
            }
        }
    }

    /// Changes a version, if this write has made it.
    pub async fn revise_one(
        &self,
        bucket: &OpenBucket,
        key: &str,
        version: Option<VersionId>,
        made_by: Option<Tag>,
        revision: Revision,
    ) -> Result<VersionId, Refusal> {
        let (key, tag) = (Bytes::copy_from_slice(key.as_bytes()), self.store.new_tag());
        let revise = Change::Revise { key, version, made_by, revision, tag };
        match bucket.index.ask(Ask::Change(revise)).await? {
            Answer::Revised { version } => Ok(version),
            _ => Ok(VersionId::Null),
        }
    }

    /// PutObjectTagging.
    pub async fn put_object_tagging(
        &self,
        req: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        let input = req.input;
        let tags = tags_of_set(input.tagging.tag_set, OBJECT_TAGS_MAX)?;
        let key = &input.key;
        let revision = Revision::Tags(tags);
        let version_id = self.revise(&req.extensions, key, input.version_id.as_deref(), revision).await?;
        Ok(S3Response::new(PutObjectTaggingOutput { version_id }))
    }

    /// GetObjectTagging.
    pub async fn get_object_tagging(
        &self,
        req: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        let bucket = self.open(&req.extensions).await?;
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
        let key = &input.key;
        let none = Revision::Tags(Default::default());
        let version_id = self.revise(&req.extensions, key, input.version_id.as_deref(), none).await?;
        Ok(S3Response::with_status(DeleteObjectTaggingOutput { version_id }, StatusCode::NO_CONTENT))
    }
}
