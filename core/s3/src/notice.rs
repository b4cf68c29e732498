//! Notices of changes: what a bucket's notification rules choose, and what is kept of it until a topic's
//! endpoint has it.
//!
//! A notice is written to the leaf in the operation that carries out the change, so that there is one exactly
//! if the change was made. `docs/decisions/0068-notifications.md` has the reasons.

use crate::index::{Answer, Change};
use crate::leaf::notice_key;
use crate::record::Entry;
use crate::tag::Tag;
use crate::tenant::split_bucket;
use crate::version::{VersionId, Versioning};
use bytes::Bytes;
use nacre_base::Name;
use nacre_wire::{to_vec, versioned_fields};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// What happened, by its name without `s3:`.
pub mod event {
    /// An upload in one request.
    pub const PUT: &str = "ObjectCreated:Put";
    /// An upload by a form.
    pub const POST: &str = "ObjectCreated:Post";
    /// A copy of an object.
    pub const COPY: &str = "ObjectCreated:Copy";
    /// The end of an upload in parts.
    pub const COMPLETE: &str = "ObjectCreated:CompleteMultipartUpload";
    /// An object or a version was removed.
    pub const DELETE: &str = "ObjectRemoved:Delete";
    /// A delete marker was made.
    pub const MARKER: &str = "ObjectRemoved:DeleteMarkerCreated";
    /// All of them.
    pub const ALL: [&str; 6] = [PUT, POST, COPY, COMPLETE, DELETE, MARKER];
}

/// The most rules of a bucket.
pub const RULES_MAX: usize = 100;

/// A rule of a bucket: which changes a topic is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeRule {
    pub id: String,
    /// The name of the topic, with its tenant.
    pub topic: String,
    /// Names of events without `s3:`, also such as `ObjectCreated:*`.
    pub events: Vec<String>,
    pub prefix: String,
    pub suffix: String,
}
versioned_fields!(NoticeRule, "s3 notification rule", id, topic, events, prefix, suffix);

impl NoticeRule {
    /// Whether the rule is about this event of this key.
    pub fn chooses(&self, event: &str, key: &str) -> bool {
        let is_of = |name: &String| match name.strip_suffix('*') {
            Some(family) => event.starts_with(family),
            None => name == event,
        };
        self.events.iter().any(is_of) && key.starts_with(&self.prefix) && key.ends_with(&self.suffix)
    }

    /// What is wrong with rules of a bucket.
    pub fn fault(rules: &[NoticeRule]) -> Option<String> {
        if rules.len() > RULES_MAX {
            return Some(format!("a bucket has at most {RULES_MAX} notification rules"));
        }
        for (at, rule) in rules.iter().enumerate() {
            let names = rule.events.iter().map(String::as_str);
            let is_known = |name: &str| match name.strip_suffix('*') {
                Some(family) => matches!(family, "ObjectCreated:" | "ObjectRemoved:"),
                None => event::ALL.contains(&name),
            };
            if let Some(unknown) = names.clone().find(|name| !is_known(name)) {
                return Some(format!("the event s3:{unknown} is not supported"));
            }
            if rule.events.is_empty() || rule.events.len() > 20 {
                return Some(format!("the rule {:?} has no events, or too many", rule.id));
            }
            if rule.prefix.len() > 1024 || rule.suffix.len() > 1024 || rule.id.len() > 255 {
                return Some(format!("a value of the rule {:?} is too long", rule.id));
            }
            if rules[..at].iter().any(|other| other.id == rule.id) {
                return Some(format!("two rules have the id {:?}", rule.id));
            }
        }
        None
    }
}

/// The request that made a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeSource {
    pub user: String,
    pub address: String,
    pub request: String,
    pub region: String,
}
versioned_fields!(NoticeSource, "s3 notice source", user, address, request, region);

/// The bucket of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeBucket {
    /// The full name.
    pub name: String,
    pub id: String,
    pub owner: String,
}
versioned_fields!(NoticeBucket, "s3 notice bucket", name, id, owner);

/// The object of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeObject {
    pub key: String,
    pub size: u64,
    pub etag: String,
    /// Empty if the bucket keeps no versions.
    pub version: String,
    /// Names of headers, and their values.
    pub metadata: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
}
versioned_fields!(NoticeObject, "s3 notice object", key, size, etag, version, metadata, tags);

/// What a topic is told of one change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    pub topic: String,
    /// The id of the rule.
    pub rule: String,
    /// The event, without `s3:`.
    pub event: String,
    /// Milliseconds since 1970.
    pub time: u64,
    /// The write, which no other write has.
    pub tag: Tag,
    pub source: NoticeSource,
    pub bucket: NoticeBucket,
    pub object: NoticeObject,
}
versioned_fields!(Notice, "s3 notice", topic, rule, event, time, tag, source, bucket, object);

/// The notices of a change, before it is known what comes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// When other gateways may send them, in milliseconds since 1970. The one that wrote them does at once.
    due: u64,
    shows_version: bool,
    /// The change is the removal of a version, and never makes a delete marker.
    removes_version: bool,
    list: Vec<Notice>,
}

/// The request and the bucket of a change.
#[derive(Clone, Copy, Debug)]
pub struct Occasion<'a> {
    pub source: &'a NoticeSource,
    pub bucket: &'a NoticeBucket,
    /// The event of a change that makes an object.
    pub created: &'a str,
    pub versioning: Versioning,
    /// When other gateways may send the notices, in milliseconds since 1970.
    pub due: u64,
}

impl Notices {
    /// The notices of a change by these rules.
    pub fn of_change(change: &Change, rules: &[NoticeRule], occasion: Occasion<'_>) -> Notices {
        let mut notices = Notices {
            due: occasion.due,
            shows_version: occasion.versioning != Versioning::Off,
            ..Notices::default()
        };
        let (events, tag, time, object) = match change {
            Change::Put { key, object, .. } => {
                let Entry { tag, mtime, size, etag, .. } = &object.entry;
                let metadata = object.head.headers.iter().filter(|(name, _)| name.starts_with("x-amz-meta-"));
                let object = NoticeObject {
                    key: String::from_utf8_lossy(key).into_owned(),
                    size: *size,
                    etag: etag.clone(),
                    version: String::new(),
                    metadata: metadata.map(|(name, value)| (name.clone(), value.clone())).collect(),
                    tags: object.head.tags.clone(),
                };
                (vec![occasion.created], *tag, *mtime, object)
            }
            Change::Delete(deletion) => {
                notices.removes_version = deletion.version.is_some();
                let key = String::from_utf8_lossy(&deletion.key).into_owned();
                let object = NoticeObject { key, ..NoticeObject::default() };
                (vec![event::DELETE, event::MARKER], deletion.tag, deletion.view.now, object)
            }
            _ => return notices,
        };
        for event in events {
            notices.list.extend(rules.iter().filter(|rule| rule.chooses(event, &object.key)).map(|rule| {
                Notice {
                    topic: rule.topic.clone(),
                    rule: rule.id.clone(),
                    event: event.to_owned(),
                    time,
                    tag,
                    source: occasion.source.clone(),
                    bucket: occasion.bucket.clone(),
                    object: object.clone(),
                }
            }));
        }
        notices
    }

    /// Whether no rule chooses the change.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// About how much they add to an operation.
    pub(crate) fn bytes(&self) -> usize {
        let one = |notice: &Notice| 1024 + 2 * notice.object.key.len();
        self.list.iter().map(one).sum()
    }

    /// What is written with the change that has this answer, by names in the leaf.
    pub(crate) fn written(&self, answer: &Answer) -> Vec<(Name, Bytes)> {
        let (version, removed) = match answer {
            Answer::Put { version, .. } => (Some(*version), None),
            Answer::Deleted { version, is_marker, .. } => {
                let made_marker = *is_marker && !self.removes_version;
                (*version, Some(if made_marker { event::MARKER } else { event::DELETE }))
            }
            _ => return Vec::new(),
        };
        let happened = self.list.iter().filter(|notice| removed.is_none_or(|event| event == notice.event));
        let encode = |(at, notice): (usize, &Notice)| {
            let mut notice = notice.clone();
            if self.shows_version {
                notice.object.version = version.unwrap_or(VersionId::Null).to_string();
            }
            (notice_key(self.due, notice.tag, at), to_vec(&notice).into())
        };
        happened.enumerate().map(encode).collect()
    }
}

/// Where notices are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topic {
    /// Without its tenant.
    pub name: String,
    pub tenant: String,
    /// The user that made it.
    pub owner: String,
    /// A URL; empty for a topic that nothing is sent to.
    pub endpoint: String,
    /// What every record carries.
    pub opaque: String,
    /// Any certificate will do.
    pub is_unverified: bool,
    /// As they were given, for answers.
    pub attributes: BTreeMap<String, String>,
}
versioned_fields!(Topic, "s3 topic", name, tenant, owner, endpoint, opaque, is_unverified, attributes);

impl Topic {
    /// What rules and records call it.
    pub fn id(&self) -> String {
        format!("{}${}", self.tenant, self.name)
    }

    /// Its ARN.
    pub fn arn(&self, region: &str) -> String {
        format!("arn:aws:sns:{region}:{}:{}", self.tenant, self.name)
    }

    /// The id of the topic with this ARN; none if it is no ARN of a topic.
    pub fn id_of_arn(arn: &str) -> Option<String> {
        let parts: Vec<&str> = arn.splitn(6, ':').collect();
        match parts[..] {
            ["arn", "aws", "sns", _, tenant, name] if Topic::is_name(name) => {
                Some(format!("{tenant}${name}"))
            }
            _ => None,
        }
    }

    /// The name in an id.
    pub fn arn_of_id(id: &str, region: &str) -> String {
        let (tenant, name) = id.split_once('$').unwrap_or(("", id));
        format!("arn:aws:sns:{region}:{tenant}:{name}")
    }

    /// Whether a topic can have this name.
    pub fn is_name(name: &str) -> bool {
        let is_good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=256).contains(&name.len()) && name.chars().all(is_good)
    }
}

impl Notice {
    /// The record of the event, as radosgw sends it. `opaque` is what the topic's owner had it carry.
    pub fn record(&self, opaque: &str) -> Value {
        let pairs = |map: &BTreeMap<String, String>| -> Value {
            map.iter().map(|(key, val)| json!({ "key": key, "val": val })).collect()
        };
        let Notice { rule, event, time, tag, source, bucket, object, .. } = self;
        let (tenant, name) = split_bucket(&bucket.name);
        // The time takes 48 bits. Writes of one gateway in the same millisecond follow each other.
        let sequencer = format!("{:016X}", time << 16 | tag.sequence & 0xffff);
        json!({
            "eventVersion": "2.2",
            "eventSource": "ceph:s3",
            "awsRegion": source.region,
            "eventTime": time_text(*time),
            "eventName": event,
            "userIdentity": { "principalId": source.user },
            "requestParameters": { "sourceIPAddress": source.address },
            "responseElements": { "x-amz-request-id": source.request, "x-amz-id-2": "" },
            "s3": {
                "s3SchemaVersion": "1.0",
                "configurationId": rule,
                "bucket": {
                    "name": name,
                    "ownerIdentity": { "principalId": bucket.owner },
                    "arn": format!("arn:aws:s3::{tenant}:{name}"),
                    "id": bucket.id,
                },
                "object": {
                    "key": object.key,
                    "size": object.size,
                    "eTag": object.etag,
                    "versionId": object.version,
                    "sequencer": sequencer,
                    "metadata": pairs(&object.metadata),
                    "tags": pairs(&object.tags),
                },
            },
            "eventId": format!("{tag}.{rule}"),
            "opaqueData": opaque,
        })
    }
}

/// Such as `2026-01-02T03:04:05.678Z`.
fn time_text(millis: u64) -> String {
    let nanos = i128::from(millis) * 1_000_000;
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.millisecond()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Deletion;
    use crate::lock::LockView;

    fn rule(events: &[&str], prefix: &str, suffix: &str) -> NoticeRule {
        NoticeRule {
            id: "r".into(),
            topic: "t".into(),
            events: events.iter().map(|event| event.to_string()).collect(),
            prefix: prefix.into(),
            suffix: suffix.into(),
        }
    }

    #[test]
    fn rules_choose_by_event_prefix_and_suffix() {
        let one = rule(&["ObjectCreated:*"], "img/", ".png");
        assert!(one.chooses(event::COPY, "img/a.png"));
        assert!(!one.chooses(event::DELETE, "img/a.png"));
        assert!(!one.chooses(event::PUT, "img/a.jpg") && !one.chooses(event::PUT, "a.png"));
        assert!(rule(&[event::MARKER], "", "").chooses(event::MARKER, "x"));
        assert!(!rule(&[event::MARKER], "", "").chooses(event::DELETE, "x"));
    }

    #[test]
    fn faulty_rules_are_named() {
        let good = rule(&["ObjectCreated:*", event::DELETE], "", "");
        assert_eq!(NoticeRule::fault(std::slice::from_ref(&good)), None);
        for bad in [
            vec![rule(&[], "", "")],
            vec![rule(&["ObjectRestore:*"], "", "")],
            vec![rule(&["*"], "", "")],
            vec![good.clone(), good.clone()],
            vec![good; RULES_MAX + 1],
        ] {
            assert!(NoticeRule::fault(&bad).is_some());
        }
    }

    #[test]
    fn notice_of_a_delete_is_of_what_came_of_it() {
        let deletion = Deletion {
            key: "k".into(),
            view: LockView { now: 1_767_323_045_678, bypass: false },
            tag: Tag { instance: 1, sequence: 2 },
            ..Deletion::default()
        };
        let removal = Deletion { version: Some(VersionId::Null), ..deletion.clone() };
        let (change, removal) = (Change::Delete(Box::new(deletion)), Change::Delete(Box::new(removal)));
        let (source, bucket) = (&NoticeSource::default(), &NoticeBucket::default());
        let rules = [rule(&["ObjectRemoved:*"], "", "")];
        let occasion = Occasion { source, bucket, created: "", versioning: Versioning::Enabled, due: 9 };
        let told = |change: &Change, version, is_marker| -> Vec<Notice> {
            let answer = Answer::Deleted { existed: true, version, is_marker };
            let written = Notices::of_change(change, &rules, occasion).written(&answer);
            written.iter().map(|(_, value)| nacre_wire::from_slice(value).unwrap()).collect()
        };
        let marker = VersionId::Of { stamp: 3, tag: Tag { instance: 1, sequence: 2 } };
        let version = Some(marker);
        let made = told(&change, version, true);
        assert_eq!(made.len(), 1);
        assert_eq!((&*made[0].event, &made[0].object.version), (event::MARKER, &marker.to_string()));
        let gone = told(&change, None, false);
        assert_eq!((gone.len(), &*gone[0].event), (1, event::DELETE));
        // A delete marker that is removed.
        let gone = told(&removal, version, true);
        assert_eq!((gone.len(), &*gone[0].event), (1, event::DELETE));
        let record = made[0].record("mine");
        assert_eq!(record["eventTime"], "2026-01-02T03:04:05.678Z");
        assert_eq!(record["s3"]["configurationId"], "r");
        assert_eq!(record["opaqueData"], "mine");
        let sequencer = |time, sequence| {
            let tag = Tag { instance: 1, sequence };
            let record = Notice { time, tag, ..Notice::default() }.record("");
            record["s3"]["object"]["sequencer"].as_str().unwrap().to_owned()
        };
        assert_eq!(sequencer(0x19a_b0c1_d2e3, 4), "019AB0C1D2E30004");
        assert!(sequencer(5, 2) < sequencer(5, 3) && sequencer(5, 0xffff) < sequencer(6, 0x10000));
    }

    #[test]
    fn topics_are_named_by_arns() {
        let topic = Topic { name: "t".into(), tenant: "x".into(), ..Topic::default() };
        assert_eq!(topic.arn("r"), "arn:aws:sns:r:x:t");
        assert_eq!(Topic::id_of_arn(&topic.arn("r")), Some(topic.id()));
        assert_eq!(Topic::arn_of_id(&topic.id(), "r"), topic.arn("r"));
        for bad in ["t", "arn:aws:sqs:r::t", "arn:aws:sns:r::", "arn:aws:sns:r::a/b", "arn:aws:sns:r::a:b"] {
            assert_eq!(Topic::id_of_arn(bad), None, "{bad}");
        }
    }
}
