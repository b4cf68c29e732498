//! What can be set on a bucket: tags and CORS rules.

use crate::errors;
use crate::service::Core;
use hyper::StatusCode;
use nacre_s3::{BUCKET_TAGS_MAX, CorsRule, setting};
use nacre_wire::to_vec;
use s3s::dto::{
    CORSRule, DeleteBucketCorsInput, DeleteBucketCorsOutput, DeleteBucketTaggingInput,
    DeleteBucketTaggingOutput, GetBucketCorsInput, GetBucketCorsOutput, GetBucketTaggingInput,
    GetBucketTaggingOutput, PutBucketCorsInput, PutBucketCorsOutput, PutBucketTaggingInput,
    PutBucketTaggingOutput, Tag,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use std::collections::BTreeMap;

/// The most tags of an object.
pub const OBJECT_TAGS_MAX: usize = 10;

/// Tags from a request in XML.
pub fn tags_of_set(set: Vec<Tag>, max: usize) -> S3Result<BTreeMap<String, String>> {
    let mut tags = BTreeMap::new();
    for Tag { key, value } in set {
        let key = key.ok_or_else(|| s3_error!(MalformedXML, "a tag without a key"))?;
        if tags.insert(key, value.unwrap_or_default()).is_some() {
            return Err(s3_error!(InvalidTag, "Cannot provide multiple Tags with the same key"));
        }
    }
    check_tags(&tags, max)?;
    Ok(tags)
}

/// Limits of tags.
pub fn check_tags(tags: &BTreeMap<String, String>, max: usize) -> S3Result<()> {
    if tags.len() > max {
        let message = format!("Object tags cannot be greater than {max}");
        return Err(errors::with_text("BadRequest", StatusCode::BAD_REQUEST, message));
    }
    for (key, value) in tags {
        if key.is_empty() || key.chars().count() > 128 {
            return Err(s3_error!(InvalidTag, "The TagKey you have provided is invalid"));
        }
        if value.chars().count() > 256 {
            return Err(s3_error!(InvalidTag, "The TagValue you have provided is invalid"));
        }
        if key.starts_with("aws:") {
            return Err(s3_error!(InvalidTag, "System tags cannot be added/updated by requester"));
        }
    }
    Ok(())
}

/// Tags as answers have them.
pub fn tag_set(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    let tag = |(key, value): (&String, &String)| Tag { key: Some(key.clone()), value: Some(value.clone()) };
    tags.iter().map(tag).collect()
}

impl Core {
    /// PutBucketTagging.
    pub async fn put_bucket_tagging(
        &self,
        req: S3Request<PutBucketTaggingInput>,
    ) -> S3Result<S3Response<PutBucketTaggingOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let tags = tags_of_set(req.input.tagging.tag_set, BUCKET_TAGS_MAX)?;
        let value = (!tags.is_empty()).then(|| to_vec(&tags));
        self.buckets.set(&bucket, setting::TAGS, value).await?;
        Ok(S3Response::with_status(PutBucketTaggingOutput::default(), StatusCode::NO_CONTENT))
    }

    /// GetBucketTagging.
    pub async fn get_bucket_tagging(
        &self,
        req: S3Request<GetBucketTaggingInput>,
    ) -> S3Result<S3Response<GetBucketTaggingOutput>> {
        let bucket = self.open(&req.extensions).await?;
        if bucket.config.tags.is_empty() {
            return Err(errors::with_code(
                "NoSuchTagSet",
                StatusCode::NOT_FOUND,
                "The TagSet does not exist",
            ));
        }
        Ok(S3Response::new(GetBucketTaggingOutput { tag_set: tag_set(&bucket.config.tags) }))
    }

    /// DeleteBucketTagging.
    pub async fn delete_bucket_tagging(
        &self,
        req: S3Request<DeleteBucketTaggingInput>,
    ) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
        let bucket = self.open(&req.extensions).await?;
        self.buckets.set(&bucket, setting::TAGS, None).await?;
        Ok(S3Response::with_status(DeleteBucketTaggingOutput::default(), StatusCode::NO_CONTENT))
    }

    /// PutBucketCors.
    pub async fn put_bucket_cors(
        &self,
        req: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let rules: Vec<CorsRule> =
            req.input.cors_configuration.cors_rules.into_iter().map(rule_of_request).collect();
        if let Some(fault) = CorsRule::fault(&rules) {
            return Err(s3_error!(InvalidRequest, "{fault}"));
        }
        self.buckets.set(&bucket, setting::CORS, Some(to_vec(&rules))).await?;
        Ok(S3Response::new(PutBucketCorsOutput::default()))
    }

    /// GetBucketCors.
    pub async fn get_bucket_cors(
        &self,
        req: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        let bucket = self.open(&req.extensions).await?;
        if bucket.config.cors.is_empty() {
            let message = "The CORS configuration does not exist";
            return Err(errors::with_code("NoSuchCORSConfiguration", StatusCode::NOT_FOUND, message));
        }
        let rules = bucket.config.cors.iter().map(rule_of_answer).collect();
        Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(rules) }))
    }

    /// DeleteBucketCors.
    pub async fn delete_bucket_cors(
        &self,
        req: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
        let bucket = self.open(&req.extensions).await?;
        self.buckets.set(&bucket, setting::CORS, None).await?;
        Ok(S3Response::with_status(DeleteBucketCorsOutput::default(), StatusCode::NO_CONTENT))
    }
}

fn rule_of_request(rule: CORSRule) -> CorsRule {
    CorsRule {
        id: rule.id.unwrap_or_default(),
        origins: rule.allowed_origins,
        methods: rule.allowed_methods,
        headers: rule.allowed_headers.unwrap_or_default(),
        exposed: rule.expose_headers.unwrap_or_default(),
        max_age: rule.max_age_seconds.and_then(|seconds| u32::try_from(seconds).ok()),
    }
}

fn rule_of_answer(rule: &CorsRule) -> CORSRule {
    let some = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
    CORSRule {
        id: (!rule.id.is_empty()).then(|| rule.id.clone()),
        allowed_origins: rule.origins.clone(),
        allowed_methods: rule.methods.clone(),
        allowed_headers: some(&rule.headers),
        expose_headers: some(&rule.exposed),
        max_age_seconds: rule.max_age.and_then(|seconds| i32::try_from(seconds).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_outside_the_limits_are_refused() {
        let tag = |key: &str, value: &str| Tag { key: Some(key.into()), value: Some(value.into()) };
        let code = |set, max| tags_of_set(set, max).err().map(|error| error.code().as_str().to_owned());
        assert_eq!(code(vec![tag("a", "1"), tag("b", "")], 2), None);
        assert_eq!(code(vec![tag("a", "1"), tag("b", "")], 1).as_deref(), Some("BadRequest"));
        assert_eq!(code(vec![tag("a", "1"), tag("a", "2")], 9).as_deref(), Some("InvalidTag"));
        assert_eq!(code(vec![tag(&"k".repeat(129), "")], 9).as_deref(), Some("InvalidTag"));
        assert_eq!(code(vec![tag("k", &"v".repeat(257))], 9).as_deref(), Some("InvalidTag"));
        assert_eq!(code(vec![tag("aws:k", "v")], 9).as_deref(), Some("InvalidTag"));
        assert_eq!(code(vec![Tag { key: None, value: None }], 9).as_deref(), Some("MalformedXML"));
    }
}
