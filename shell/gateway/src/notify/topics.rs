//! Topics: where users want to be told of changes. The actions of SNS that radosgw has.
//!
//! A topic is an object `topic.TENANT$NAME` of the meta namespace, and an object `topics.USER` has an omap
//! with those of a user. Its owner alone can see, change and remove
//! it, and set rules with it.

use super::webhook::Endpoint;
use crate::errors;
use crate::query::xml::Xml;
use crate::query::{Call, denied, no_such_action};
use crate::records;
use crate::store::Store;
use hyper::StatusCode;
use nacre_rados::Failure;
use nacre_s3::Topic;
use nacre_s3::policy::split_tenant;
use s3s::{S3Error, S3Result};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of answers.
pub const NAMESPACE: &str = "https://sns.amazonaws.com/doc/2010-03-31/";
const PREFIX: &str = "topic.";
/// The most topics of a user.
const TOPICS_MAX: usize = 100;
/// The most bytes of an attribute.
const ATTRIBUTE_MAX: usize = 2048;
/// Attributes of topics that mean something here. Those behind are taken for what they have to be.
const ATTRIBUTES: [&str; 5] = ["push-endpoint", "OpaqueData", "verify-ssl", "persistent", "cloudevents"];

fn record_name(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// The list of a user's topics.
fn list_name(user: &str) -> String {
    format!("topics.{user}")
}

fn failed(failure: Failure) -> S3Error {
    errors::of_failure(&failure)
}

/// Whether the object of this name has a topic.
pub fn is_topic(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// A topic; none if there is none with this id.
pub async fn read(store: &Store, id: &str) -> S3Result<Option<Topic>> {
    let Some(pools) = store.find_pools().await.map_err(failed)? else { return Ok(None) };
    let found = records::read(pools, &record_name(id)).await.map_err(failed)?;
    Ok(found.map(|found| found.record))
}

/// Administers topics.
pub struct Topics {
    pub store: Arc<Store>,
    pub region: String,
}

fn invalid(why: impl Into<String>) -> S3Error {
    errors::with_text("InvalidParameter", StatusCode::BAD_REQUEST, why.into())
}

fn not_found() -> S3Error {
    errors::with_code("NotFound", StatusCode::NOT_FOUND, "there is no such topic")
}

/// The pairs `Attributes.entry.N.key` and `.value` of a form.
fn attributes_of(form: &BTreeMap<String, String>) -> S3Result<BTreeMap<String, String>> {
    let mut attributes = BTreeMap::new();
    for (name, key) in form {
        let Some(number) = name.strip_prefix("Attributes.entry.").and_then(|rest| rest.strip_suffix(".key"))
        else {
            continue;
        };
        let value = form.get(&format!("Attributes.entry.{number}.value")).cloned().unwrap_or_default();
        if !ATTRIBUTES.contains(&key.as_str()) {
            return Err(invalid(format!("the gateway does not have the attribute {key:?} of topics")));
        }
        if value.len() > ATTRIBUTE_MAX {
            return Err(invalid(format!("the attribute {key:?} has at most {ATTRIBUTE_MAX} bytes")));
        }
        attributes.insert(key.clone(), value);
    }
    Ok(attributes)
}

/// Changes a topic by attributes.
fn apply(topic: &mut Topic, attributes: BTreeMap<String, String>) -> S3Result<()> {
    for (name, value) in attributes {
        let is = |wanted: &str| value.is_empty() || value.eq_ignore_ascii_case(wanted);
        match name.as_str() {
            "push-endpoint" => {
                if !value.is_empty() {
                    Endpoint::parse(&value).map_err(|e| invalid(format!("push-endpoint: {e:#}")))?;
                }
                topic.endpoint = value.clone();
            }
            "OpaqueData" => topic.opaque = value.clone(),
            "verify-ssl" if is("true") => topic.is_unverified = false,
            "verify-ssl" if is("false") => topic.is_unverified = true,
            // Notices are always kept until they are sent.
            "persistent" if is("true") || is("false") => {}
            "cloudevents" if is("false") => {}
            _ => return Err(invalid(format!("{name} cannot be {value:?}"))),
        }
        topic.attributes.insert(name, value);
    }
    Ok(())
}

impl Topics {
    /// Carries out an action. Returns what the answer has within its result; none if that has no element.
    pub async fn call(&self, call: &Call<'_>) -> S3Result<Option<Xml>> {
        let Call { identity, form, .. } = call;
        let (action, form) = (form.get("Action").unwrap_or_default(), form.fields());
        let user = identity.owner.as_ref().map(|user| user.id.clone()).ok_or_else(denied)?;
        let sender = &identity.sender;
        let is_write = !action.starts_with("Get") && !action.starts_with("List");
        let has_right = if is_write { sender.may_write } else { sender.may_read };
        // Sessions that are limited, and roles, have no policy that could name topics.
        if !has_right || !sender.limits.is_empty() || sender.principal.user_id().is_none() {
            return Err(denied());
        }
        match action {
            "CreateTopic" => self.create(form, &user).await.map(Some),
            "ListTopics" => self.list(&user).await.map(Some),
            "DeleteTopic" => self.delete(form, &user).await.map(|()| None),
            "SetTopicAttributes" => self.set(form, &user).await.map(|()| None),
            "GetTopic" => {
                let topic = self.own(form, &user).await?;
                Ok(Some(Xml::new().within("Topic", &self.shown(&topic))))
            }
            "GetTopicAttributes" => {
                let topic = self.own(form, &user).await?;
                let entries = [
                    ("User", topic.owner.clone()),
                    ("Name", topic.name.clone()),
                    ("EndPoint", endpoint(&topic).to_string()),
                    ("TopicArn", topic.arn(&self.region)),
                    ("OpaqueData", topic.opaque.clone()),
                ];
                let entries = entries.iter().fold(Xml::new(), |all, (key, value)| {
                    all.within("entry", &Xml::new().with("key", key).with("value", value))
                });
                Ok(Some(Xml::new().within("Attributes", &entries)))
            }
            action => Err(no_such_action(action)),
        }
    }

    fn shown(&self, topic: &Topic) -> Xml {
        let endpoint = endpoint(topic);
        let text = |name: &str| endpoint.get(name).and_then(|value| value.as_str()).unwrap_or_default();
        let names = ["EndpointAddress", "EndpointArgs", "EndpointTopic", "HasStoredSecret", "Persistent"];
        let inner = names.iter().fold(Xml::new(), |all, name| all.with(name, text(name)));
        Xml::new()
            .with("User", &topic.owner)
            .with("Name", &topic.name)
            .within("EndPoint", &inner)
            .with("TopicArn", &topic.arn(&self.region))
            .with("OpaqueData", &topic.opaque)
    }

    /// The topic that a form names, if it is the user's.
    async fn own(&self, form: &BTreeMap<String, String>, user: &str) -> S3Result<Topic> {
        let arn = form.get("TopicArn").ok_or_else(|| invalid("TopicArn is missing"))?;
        let id = Topic::id_of_arn(arn).ok_or_else(|| invalid(format!("{arn:?} is no ARN of a topic")))?;
        read(&self.store, &id).await?.filter(|topic| topic.owner == user).ok_or_else(not_found)
    }

    async fn create(&self, form: &BTreeMap<String, String>, user: &str) -> S3Result<Xml> {
        let name = form.get("Name").map(String::as_str).unwrap_or_default();
        if !Topic::is_name(name) {
            return Err(invalid("Name has up to 256 letters, digits, hyphens and underscores"));
        }
        let tenant = split_tenant(user).0.to_owned();
        let mut topic = Topic { name: name.to_owned(), tenant, owner: user.to_owned(), ..Topic::default() };
        apply(&mut topic, attributes_of(form)?)?;
        let known = read(&self.store, &topic.id()).await?;
        if known.is_none() && self.topics_of(user).await?.len() >= TOPICS_MAX {
            return Err(errors::with_text(
                "TopicLimitExceeded",
                StatusCode::FORBIDDEN,
                format!("a user has at most {TOPICS_MAX} topics"),
            ));
        }
        let pools = self.store.pools().await.map_err(failed)?;
        let (list, record) = (list_name(user), record_name(&topic.id()));
        let is_new = records::create_listed(pools, &list, &topic.id(), &record, &topic).await;
        if !is_new.map_err(failed)? {
            let replace = |known: &mut Topic| {
                *known = topic.clone();
                Ok(())
            };
            self.update(&topic.id(), user, replace).await.map_err(|error| match error.code().as_str() {
                "NotFound" => {
                    let message = "another user has a topic with this name";
                    errors::with_code("AuthorizationError", StatusCode::FORBIDDEN, message)
                }
                _ => error,
            })?;
        }
        Ok(Xml::new().with("TopicArn", &topic.arn(&self.region)))
    }

    async fn set(&self, form: &BTreeMap<String, String>, user: &str) -> S3Result<()> {
        let topic = self.own(form, user).await?;
        let get = |name: &str| form.get(name).cloned().unwrap_or_default();
        let form = BTreeMap::from([
            ("Attributes.entry.1.key".to_owned(), get("AttributeName")),
            ("Attributes.entry.1.value".to_owned(), get("AttributeValue")),
        ]);
        let attributes = attributes_of(&form)?;
        self.update(&topic.id(), user, |topic| apply(topic, attributes.clone())).await
    }

    /// Changes a topic of a user.
    async fn update(
        &self,
        id: &str,
        user: &str,
        change: impl Fn(&mut Topic) -> S3Result<()>,
    ) -> S3Result<()> {
        let pools = self.store.pools().await.map_err(failed)?;
        let change = |topic: &mut Topic| {
            let mut changed = topic.clone();
            let is_own = topic.owner == user;
            let result = if is_own { change(&mut changed) } else { Err(not_found()) };
            if result.is_ok() {
                *topic = changed;
            }
            Ok::<_, Failure>(result)
        };
        let updated = records::update(pools, &record_name(id), change).await.map_err(failed)?;
        updated.ok_or_else(not_found)?.1
    }

    async fn delete(&self, form: &BTreeMap<String, String>, user: &str) -> S3Result<()> {
        loop {
            let topic = match self.own(form, user).await {
                // As with SNS, what does not exist is deleted.
                Err(error) if error.code().as_str() == "NotFound" => return Ok(()),
                topic => topic?,
            };
            let (pools, name) = (self.store.pools().await.map_err(failed)?, record_name(&topic.id()));
            let Some(seen) = records::read::<Topic>(pools, &name).await.map_err(failed)? else {
                return Ok(());
            };
            let is_own = seen.record.owner == user;
            if is_own && records::remove(pools, &name, &seen).await.map_err(failed)? {
                return records::unlist(pools, &list_name(user), &topic.id()).await.map_err(failed);
            }
        }
    }

    async fn topics_of(&self, user: &str) -> S3Result<Vec<Topic>> {
        let Some(pools) = self.store.find_pools().await.map_err(failed)? else { return Ok(Vec::new()) };
        let mut topics = Vec::new();
        for id in records::listed(pools, &list_name(user)).await.map_err(failed)? {
            topics.extend(read(&self.store, &id).await?.filter(|topic| topic.owner == user));
        }
        topics.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(topics)
    }

    async fn list(&self, user: &str) -> S3Result<Xml> {
        let topics = self.topics_of(user).await?;
        Ok(Xml::new().list("Topics", topics.iter().map(|topic| self.shown(topic))))
    }
}

/// What radosgw shows of a topic's endpoint.
fn endpoint(topic: &Topic) -> serde_json::Value {
    let arguments: Vec<String> =
        topic.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    json!({
        "EndpointAddress": topic.endpoint,
        "EndpointArgs": arguments.join("&"),
        "EndpointTopic": topic.name,
        "HasStoredSecret": "false",
        "Persistent": "true",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pair = |(at, (key, value)): (usize, &(&str, &str))| {
            let name = |part| format!("Attributes.entry.{at}.{part}");
            [(name("key"), key.to_string()), (name("value"), value.to_string())]
        };
        pairs.iter().enumerate().flat_map(pair).collect()
    }

    fn applied(pairs: &[(&str, &str)]) -> S3Result<Topic> {
        let mut topic = Topic::default();
        apply(&mut topic, attributes_of(&form(pairs))?)?;
        Ok(topic)
    }

    #[test]
    fn attributes_are_applied_or_refused() {
        let topic = applied(&[
            ("push-endpoint", "https://h/x"),
            ("OpaqueData", "mine"),
            ("verify-ssl", "False"),
            ("persistent", "true"),
        ])
        .unwrap();
        assert_eq!((&*topic.endpoint, &*topic.opaque, topic.is_unverified), ("https://h/x", "mine", true));
        assert_eq!(topic.attributes.len(), 4);
        for bad in [
            ("push-endpoint", "kafka://h"),
            ("verify-ssl", "maybe"),
            ("cloudevents", "true"),
            ("kafka-ack-level", "broker"),
        ] {
            let refused = applied(&[bad]).unwrap_err();
            assert_eq!(refused.code().as_str(), "InvalidParameter", "{bad:?}");
        }
        assert!(applied(&[("OpaqueData", &"x".repeat(ATTRIBUTE_MAX + 1))]).is_err());
    }

    #[test]
    fn endpoint_is_shown_with_its_arguments() {
        let topic = applied(&[("push-endpoint", "http://h"), ("OpaqueData", "mine")]).unwrap();
        let shown = endpoint(&topic);
        assert_eq!(shown["EndpointArgs"], "OpaqueData=mine&push-endpoint=http://h");
        assert_eq!(shown["EndpointAddress"], "http://h");
    }
}
