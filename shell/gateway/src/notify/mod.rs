//! Notifications: what topics are told of changes of objects.
//!
//! A change of a bucket with rules is written with its notices (`OpenBucket::change`). `delivery` sends what
//! waits in the index to the topics' endpoints, `webhook` over HTTP. `topics` has the actions by which users
//! make topics.

mod delivery;
mod topics;
mod webhook;

pub use delivery::Notifier;
pub use topics::{NAMESPACE, Topics};

use crate::access::granted;
use crate::buckets::OpenBucket;
use crate::errors;
use crate::service::Core;
use crate::store::now;
use crate::trace::Trace;
use nacre_s3::{
    Answer, Ask, Change, NoticeBucket, NoticeRule, NoticeSource, Notices, Occasion, Refusal, Topic, event,
    setting,
};
use nacre_wire::{from_slice, to_vec};
use s3s::dto::{
    Event, FilterRule, FilterRuleName, GetBucketNotificationConfigurationInput,
    GetBucketNotificationConfigurationOutput, NotificationConfiguration, NotificationConfigurationFilter,
    PutBucketNotificationConfigurationInput, PutBucketNotificationConfigurationOutput, S3KeyFilter,
    TopicConfiguration,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

/// After this long, in milliseconds, any gateway sends a notice that the one that wrote it has not sent.
const OWN_TIME: u64 = 60_000;

/// The event of an operation that makes an object.
fn created(operation: &str) -> &'static str {
    match operation {
        "CopyObject" => event::COPY,
        "PostObject" => event::POST,
        "CompleteMultipartUpload" => event::COMPLETE,
        _ => event::PUT,
    }
}

/// The rules of a bucket; none if it never had any.
fn rules_of(bucket: &OpenBucket) -> Result<Option<Vec<NoticeRule>>, nacre_wire::DecodeError> {
    bucket.config.others.get(setting::NOTICES).map(|value| from_slice(value)).transpose()
}

impl OpenBucket {
    /// Asks the index for a change, and notes it for the topics of the bucket's rules.
    pub async fn change(&self, change: Change) -> Result<Answer, Refusal> {
        let rules = rules_of(self)?.unwrap_or_default();
        if rules.is_empty() {
            return self.index.ask(Ask::Change(change)).await;
        }
        let trace = Trace::current();
        let key = match &change {
            Change::Put { key, .. } => key.clone(),
            Change::Delete(deletion) => deletion.key.clone(),
            _ => return self.index.ask(Ask::Change(change)).await,
        };
        let operation = trace.as_ref().map(|trace| trace.facts().step.clone()).unwrap_or_default();
        let source = trace
            .as_ref()
            .map(Trace::source)
            .unwrap_or_else(|| NoticeSource { user: self.record.owner.clone(), ..NoticeSource::default() });
        let bucket = NoticeBucket {
            name: self.record.name.clone(),
            id: self.record.id.clone(),
            owner: self.record.owner.clone(),
        };
        let occasion = Occasion {
            source: &source,
            bucket: &bucket,
            created: created(&operation),
            versioning: self.config.versioning,
            due: now() + OWN_TIME,
        };
        let notices = Notices::of_change(&change, &rules, occasion);
        if notices.is_empty() {
            return self.index.ask(Ask::Change(change)).await;
        }
        let answer = self.index.ask(Ask::Noted { change, notices }).await?;
        if let Some(trace) = trace {
            trace.notifier().nudge(self, key);
        }
        Ok(answer)
    }
}

fn filter_of_rule(rule: &NoticeRule) -> Option<NotificationConfigurationFilter> {
    let one = |name: &'static str, value: &String| FilterRule {
        name: Some(FilterRuleName::from_static(name)),
        value: Some(value.clone()),
    };
    let both = [(FilterRuleName::PREFIX, &rule.prefix), (FilterRuleName::SUFFIX, &rule.suffix)];
    let rules: Vec<FilterRule> = both
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| one(name, value))
        .collect();
    (!rules.is_empty())
        .then_some(NotificationConfigurationFilter { key: Some(S3KeyFilter { filter_rules: Some(rules) }) })
}

fn rule_of_request(asked: TopicConfiguration, position: usize) -> S3Result<NoticeRule> {
    let unknown = || s3_error!(InvalidArgument, "{} is no ARN of a topic", asked.topic_arn);
    let topic = Topic::id_of_arn(&asked.topic_arn).ok_or_else(unknown)?;
    let (mut prefix, mut suffix) = (String::new(), String::new());
    let filter = asked.filter.and_then(|filter| filter.key).and_then(|key| key.filter_rules);
    for FilterRule { name, value } in filter.unwrap_or_default() {
        let name = name.map(|name| name.as_str().to_ascii_lowercase()).unwrap_or_default();
        let place = match name.as_str() {
            "prefix" => &mut prefix,
            "suffix" => &mut suffix,
            _ => return Err(s3_error!(InvalidArgument, "a filter has a prefix and a suffix, no {name:?}")),
        };
        if !place.is_empty() {
            return Err(s3_error!(InvalidArgument, "a filter has one prefix and one suffix"));
        }
        *place = value.unwrap_or_default();
    }
    let without = |event: &Event| {
        let name = event.as_ref();
        name.strip_prefix("s3:").unwrap_or(name).to_owned()
    };
    Ok(NoticeRule {
        id: asked.id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("rule-{}", position + 1)),
        topic,
        events: asked.events.iter().map(without).collect(),
        prefix,
        suffix,
    })
}

fn rule_of_answer(rule: &NoticeRule, region: &str) -> TopicConfiguration {
    TopicConfiguration {
        events: rule.events.iter().map(|event| Event::from(format!("s3:{event}"))).collect(),
        filter: filter_of_rule(rule),
        id: Some(rule.id.clone()),
        topic_arn: Topic::arn_of_id(&rule.topic, region),
    }
}

impl Core {
    /// PutBucketNotificationConfiguration.
    pub async fn put_bucket_notification_configuration(
        &self,
        req: S3Request<PutBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketNotificationConfigurationOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let NotificationConfiguration {
            event_bridge_configuration,
            lambda_function_configurations,
            queue_configurations,
            topic_configurations,
        } = req.input.notification_configuration;
        let has_others = event_bridge_configuration.is_some()
            || lambda_function_configurations.is_some_and(|list| !list.is_empty())
            || queue_configurations.is_some_and(|list| !list.is_empty());
        if has_others {
            return Err(s3_error!(NotImplemented, "notifications go to topics only"));
        }
        let asked = topic_configurations.unwrap_or_default().into_iter().enumerate();
        let rules: Vec<NoticeRule> =
            asked.map(|(at, asked)| rule_of_request(asked, at)).collect::<S3Result<_>>()?;
        if let Some(fault) = NoticeRule::fault(&rules) {
            return Err(s3_error!(InvalidArgument, "{fault}"));
        }
        let sender = granted(&req.extensions)?.identity.owner_id().to_owned();
        for rule in &rules {
            let topic = topics::read(&self.store, &rule.topic).await?;
            // Which topics others have is nothing for the sender.
            if topic.is_none_or(|topic| topic.owner != sender && topic.owner != bucket.record.owner) {
                let arn = Topic::arn_of_id(&rule.topic, &self.region);
                return Err(s3_error!(InvalidArgument, "there is no topic {arn}"));
            }
        }
        if rules.is_empty() && !bucket.config.others.contains_key(setting::NOTICES) {
            return Ok(S3Response::new(PutBucketNotificationConfigurationOutput {}));
        }
        // An empty list stays: notices may still wait.
        self.buckets.set(&bucket, setting::NOTICES, Some(to_vec(&rules))).await?;
        Ok(S3Response::new(PutBucketNotificationConfigurationOutput {}))
    }

    /// GetBucketNotificationConfiguration.
    pub async fn get_bucket_notification_configuration(
        &self,
        req: S3Request<GetBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketNotificationConfigurationOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let rules = rules_of(&bucket).map_err(errors::corrupt)?.unwrap_or_default();
        let topics: Vec<_> = rules.iter().map(|rule| rule_of_answer(rule, &self.region)).collect();
        Ok(S3Response::new(GetBucketNotificationConfigurationOutput {
            topic_configurations: (!topics.is_empty()).then_some(topics),
            ..GetBucketNotificationConfigurationOutput::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_back_as_they_were_set() {
        let rule = NoticeRule {
            id: "i".into(),
            topic: "$t".into(),
            events: vec!["ObjectCreated:*".into()],
            prefix: "p".into(),
            suffix: String::new(),
        };
        assert_eq!(rule_of_request(rule_of_answer(&rule, "r"), 0).unwrap(), rule);
        let mut nameless = rule_of_answer(&rule, "r");
        nameless.id = None;
        assert_eq!(rule_of_request(nameless, 1).unwrap().id, "rule-2");
        let mut faulty = rule_of_answer(&rule, "r");
        faulty.topic_arn = "arn:aws:sqs:r::q".into();
        assert!(rule_of_request(faulty, 0).is_err());
    }
}
