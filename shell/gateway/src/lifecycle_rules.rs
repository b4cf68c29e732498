//! The lifecycle rules of a bucket, as clients write them.

use crate::errors;
use crate::lifecycle::forget;
use crate::locks::millis;
use crate::objects::timestamp;
use crate::service::Core;
use crate::settings::{OBJECT_TAGS_MAX, tag_set, tags_of_set};
use hyper::StatusCode;
use nacre_rados::Failure;
use nacre_s3::{LifecycleRule, NoncurrentTransition, STANDARD, Transition, setting};
use nacre_wire::to_vec;
use s3s::dto::{
    self, AbortIncompleteMultipartUpload, DeleteBucketLifecycleInput, DeleteBucketLifecycleOutput,
    ExpirationStatus, GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput,
    LifecycleExpiration, LifecycleRuleAndOperator, LifecycleRuleFilter, NoncurrentVersionExpiration,
    NoncurrentVersionTransition, PutBucketLifecycleConfigurationInput, PutBucketLifecycleConfigurationOutput,
    TransitionStorageClass,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

impl Core {
    /// PutBucketLifecycleConfiguration.
    pub async fn put_bucket_lifecycle_configuration(
        &self,
        req: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let rules = req.input.lifecycle_configuration.map(|asked| asked.rules).unwrap_or_default();
        let rules: Vec<LifecycleRule> = rules.into_iter().map(rule_of_request).collect::<S3Result<_>>()?;
        if let Some(fault) = LifecycleRule::fault(&rules) {
            return Err(s3_error!(InvalidArgument, "{fault}"));
        }
        for class in rules.iter().flat_map(classes_of) {
            check_class(class, self.store.class_number(class, false).await)?;
        }
        self.buckets.set(&bucket, setting::LIFECYCLE, Some(to_vec(&rules))).await?;
        let pools = self.store.existing().await?;
        let begun_again = forget(pools, &bucket.record.id).await;
        begun_again.map_err(|failure| errors::of_failure(&failure))?;
        Ok(S3Response::new(PutBucketLifecycleConfigurationOutput::default()))
    }

    /// GetBucketLifecycleConfiguration.
    pub async fn get_bucket_lifecycle_configuration(
        &self,
        req: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        let bucket = self.open(&req.extensions).await?;
        if bucket.config.lifecycle.is_empty() {
            let message = "The lifecycle configuration does not exist";
            return Err(errors::with_code("NoSuchLifecycleConfiguration", StatusCode::NOT_FOUND, message));
        }
        let rules = Some(bucket.config.lifecycle.iter().map(rule_of_answer).collect());
        let output = GetBucketLifecycleConfigurationOutput::default();
        Ok(S3Response::new(GetBucketLifecycleConfigurationOutput { rules, ..output }))
    }

    /// DeleteBucketLifecycle.
    pub async fn delete_bucket_lifecycle(
        &self,
        req: S3Request<DeleteBucketLifecycleInput>,
    ) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
        let bucket = self.open(&req.extensions).await?;
        self.buckets.set(&bucket, setting::LIFECYCLE, None).await?;
        Ok(S3Response::with_status(DeleteBucketLifecycleOutput::default(), StatusCode::NO_CONTENT))
    }
}

/// Whether objects can move to a class that was looked up. STANDARD, whose name is empty, takes none.
fn check_class(name: &str, found: Result<Option<u16>, Failure>) -> S3Result<()> {
    match found.map_err(|failure| errors::of_failure(&failure))? {
        Some(_) if !name.is_empty() => Ok(()),
        _ => {
            let name = if name.is_empty() { STANDARD } else { name };
            Err(s3_error!(InvalidArgument, "{name} is no storage class to which objects can move"))
        }
    }
}

/// The storage classes that a rule names.
fn classes_of(rule: &LifecycleRule) -> impl Iterator<Item = &str> {
    let of_current = rule.transitions.iter().map(|it| it.class.as_str());
    of_current.chain(rule.noncurrent_transitions.iter().map(|it| it.class.as_str()))
}

/// The name of a storage class; empty for STANDARD.
fn class_name(class: Option<TransitionStorageClass>) -> S3Result<String> {
    let class = class.ok_or_else(|| s3_error!(MalformedXML, "a transition has a storage class"))?;
    Ok(class.as_str().to_owned()).map(|name| if name == STANDARD { String::new() } else { name })
}

fn rule_of_request(rule: dto::LifecycleRule) -> S3Result<LifecycleRule> {
    let is_enabled = match rule.status.as_str() {
        "Enabled" => true,
        "Disabled" => false,
        _ => return Err(s3_error!(MalformedXML, "the status of a rule is Enabled or Disabled")),
    };
    if rule.filter.is_some() == rule.prefix.is_some() {
        return Err(s3_error!(MalformedXML, "a rule has a filter or a prefix, and not both"));
    }
    let count = |number: Option<i32>| {
        let count = number.map(u32::try_from).transpose();
        count.map_err(|_| s3_error!(InvalidArgument, "a number of days must be a positive integer"))
    };
    let size = |number: Option<i64>| {
        let size = number.map(u64::try_from).transpose();
        size.map_err(|_| s3_error!(InvalidArgument, "a size must not be negative"))
    };
    let has_old_form = rule.prefix.is_some();
    let filter = rule.filter.unwrap_or_default();
    let (mut prefix, mut tags) = (rule.prefix.or(filter.prefix), Vec::from_iter(filter.tag));
    let (mut over, mut under) = (filter.object_size_greater_than, filter.object_size_less_than);
    if let Some(all) = filter.and {
        if prefix.is_some() || !tags.is_empty() || over.is_some() || under.is_some() {
            return Err(s3_error!(MalformedXML, "several conditions of a filter are in And"));
        }
        (prefix, tags) = (all.prefix, all.tags.unwrap_or_default());
        (over, under) = (all.object_size_greater_than, all.object_size_less_than);
    }
    let transitions = rule.transitions.unwrap_or_default().into_iter().map(|it| {
        let class = class_name(it.storage_class)?;
        Ok(Transition { days: count(it.days)?, date: it.date.as_ref().map(millis), class })
    });
    let noncurrent_transitions =
        rule.noncurrent_version_transitions.unwrap_or_default().into_iter().map(|it| {
            let missing = || s3_error!(MalformedXML, "a NoncurrentVersionTransition has NoncurrentDays");
            let days = count(it.noncurrent_days)?.ok_or_else(missing)?;
            Ok(NoncurrentTransition {
                days,
                newer: count(it.newer_noncurrent_versions)?,
                class: class_name(it.storage_class)?,
            })
        });
    let expiration = rule.expiration.unwrap_or_default();
    let noncurrent = rule.noncurrent_version_expiration.unwrap_or_default();
    let abort = rule.abort_incomplete_multipart_upload.and_then(|abort| abort.days_after_initiation);
    Ok(LifecycleRule {
        id: rule.id.unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string()),
        is_enabled,
        prefix: prefix.unwrap_or_default(),
        tags: tags_of_set(tags, OBJECT_TAGS_MAX)?,
        size_over: size(over)?,
        size_under: size(under)?,
        days: count(expiration.days)?,
        date: expiration.date.as_ref().map(millis),
        expired_markers: expiration.expired_object_delete_marker == Some(true),
        noncurrent_days: count(noncurrent.noncurrent_days)?,
        newer_noncurrent: count(noncurrent.newer_noncurrent_versions)?,
        abort_days: count(abort)?,
        has_old_form,
        transitions: transitions.collect::<S3Result<_>>()?,
        noncurrent_transitions: noncurrent_transitions.collect::<S3Result<_>>()?,
    })
}

fn rule_of_answer(rule: &LifecycleRule) -> dto::LifecycleRule {
    let number = |number: u32| i32::try_from(number).ok();
    let size = |size: u64| i64::try_from(size).ok();
    let (over, under) = (rule.size_over.and_then(size), rule.size_under.and_then(size));
    let prefix = Some(rule.prefix.clone()).filter(|prefix| !prefix.is_empty());
    let conditions = usize::from(prefix.is_some())
        + rule.tags.len()
        + usize::from(over.is_some())
        + usize::from(under.is_some());
    let filter = match conditions {
        2.. => LifecycleRuleFilter {
            and: Some(LifecycleRuleAndOperator {
                object_size_greater_than: over,
                object_size_less_than: under,
                prefix,
                tags: (!rule.tags.is_empty()).then(|| tag_set(&rule.tags)),
            }),
            ..LifecycleRuleFilter::default()
        },
        _ => LifecycleRuleFilter {
            object_size_greater_than: over,
            object_size_less_than: under,
            // A filter without anything is written as one with an empty prefix.
            prefix: prefix.or_else(|| (conditions == 0).then(String::new)),
            tag: tag_set(&rule.tags).pop(),
            ..LifecycleRuleFilter::default()
        },
    };
    let transition = |it: &Transition| dto::Transition {
        date: it.date.map(timestamp),
        days: it.days.and_then(number),
        storage_class: Some(TransitionStorageClass::from(it.class.clone())),
    };
    let noncurrent = |it: &NoncurrentTransition| NoncurrentVersionTransition {
        newer_noncurrent_versions: it.newer.and_then(number),
        noncurrent_days: number(it.days),
        storage_class: Some(TransitionStorageClass::from(it.class.clone())),
    };
    let transitions: Vec<_> = rule.transitions.iter().map(transition).collect();
    let noncurrent_transitions: Vec<_> = rule.noncurrent_transitions.iter().map(noncurrent).collect();
    let expires = rule.days.is_some() || rule.date.is_some() || rule.expired_markers;
    dto::LifecycleRule {
        abort_incomplete_multipart_upload: rule
            .abort_days
            .map(|days| AbortIncompleteMultipartUpload { days_after_initiation: number(days) }),
        expiration: expires.then(|| LifecycleExpiration {
            date: rule.date.map(timestamp),
            days: rule.days.and_then(number),
            expired_object_delete_marker: rule.expired_markers.then_some(true),
        }),
        filter: (!rule.has_old_form).then_some(filter),
        id: Some(rule.id.clone()),
        noncurrent_version_expiration: rule.noncurrent_days.map(|days| NoncurrentVersionExpiration {
            newer_noncurrent_versions: rule.newer_noncurrent.and_then(number),
            noncurrent_days: number(days),
        }),
        noncurrent_version_transitions: Some(noncurrent_transitions).filter(|all| !all.is_empty()),
        prefix: rule.has_old_form.then(|| rule.prefix.clone()),
        status: ExpirationStatus::from_static(if rule.is_enabled { "Enabled" } else { "Disabled" }),
        transitions: Some(transitions).filter(|all| !all.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(filter: Option<LifecycleRuleFilter>, prefix: Option<&str>) -> dto::LifecycleRule {
        dto::LifecycleRule {
            abort_incomplete_multipart_upload: None,
            expiration: Some(LifecycleExpiration { days: Some(3), ..LifecycleExpiration::default() }),
            filter,
            id: Some("r".into()),
            noncurrent_version_expiration: None,
            noncurrent_version_transitions: None,
            prefix: prefix.map(str::to_owned),
            status: ExpirationStatus::from_static("Enabled"),
            transitions: None,
        }
    }

    #[test]
    fn failure_of_the_cluster_is_no_fault_of_a_rule() {
        let code = |name, found| check_class(name, found).err().map(|error| error.code().as_str().to_owned());
        let failure = Failure::new(nacre_base::errno::ETIMEDOUT, "no answer");
        assert_eq!(code("COLD", Err(failure)).as_deref(), Some("ServiceUnavailable"));
        assert_eq!(code("COLD", Ok(Some(1))), None);
        assert_eq!(code("COLD", Ok(None)).as_deref(), Some("InvalidArgument"));
        assert_eq!(code("", Ok(Some(0))).as_deref(), Some("InvalidArgument"));
    }

    #[test]
    fn rules_come_back_in_the_form_they_were_given() {
        let all = LifecycleRuleFilter {
            and: Some(LifecycleRuleAndOperator {
                prefix: Some("p".into()),
                object_size_less_than: Some(9),
                ..LifecycleRuleAndOperator::default()
            }),
            ..LifecycleRuleFilter::default()
        };
        let one = LifecycleRuleFilter { prefix: Some(String::new()), ..LifecycleRuleFilter::default() };
        let cold = Some(TransitionStorageClass::from_static("COLD"));
        let transitions =
            Some(vec![dto::Transition { date: None, days: Some(1), storage_class: cold.clone() }]);
        let noncurrent = NoncurrentVersionTransition {
            newer_noncurrent_versions: Some(2),
            noncurrent_days: Some(3),
            storage_class: cold,
        };
        let moving = dto::LifecycleRule {
            transitions,
            noncurrent_version_transitions: Some(vec![noncurrent]),
            ..rule(None, Some("p"))
        };
        for given in [rule(Some(all), None), rule(Some(one), None), rule(None, Some("p")), moving] {
            let kept = rule_of_request(given.clone()).unwrap();
            assert!(rule_of_answer(&kept) == given, "{kept:?}");
        }
    }

    #[test]
    fn rules_that_say_too_much_or_too_little_are_refused() {
        let none = LifecycleRuleFilter::default();
        assert!(rule_of_request(rule(None, None)).is_err());
        assert!(rule_of_request(rule(Some(none.clone()), Some("p"))).is_err());
        let negative = LifecycleRuleFilter { object_size_less_than: Some(-1), ..none.clone() };
        assert!(rule_of_request(rule(Some(negative), None)).is_err());
        let without_class = vec![dto::Transition { date: None, days: Some(1), storage_class: None }];
        let transition = dto::LifecycleRule { transitions: Some(without_class), ..rule(Some(none), None) };
        assert!(rule_of_request(transition).is_err());
    }
}
