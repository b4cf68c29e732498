//! What S3 gateways keep in the cluster: values of indexes, and settings of buckets.

use super::codecs::stable;
use bytes::Bytes;
use nacre_base::Name;
use nacre_s3::acl::{Acl, Grant, Grantee, Permission};
use nacre_s3::swift::Container;
use nacre_s3::usage::{Usage, UsageRecord};
use nacre_s3::website::{RoutingRule, Target, Website};
use nacre_s3::{
    Aged, Body, Bucket, BucketConfig, BucketEncryption, BucketLogging, Calendar, Checksum, CorsRequest,
    CorsRule, Counters, Encryption, Entry, Extent, Garbage, GlobalRates, Head, History, KeySource,
    LifecycleRule, Lock, LockMode, LockRule, LogSource, Notice, NoticeBucket, NoticeRule, OldVersion, Part,
    Period, RateLimit, Retention, StorageClass, Tag, Topic, Transition, Upload, User, Versioning, event,
};
use nacre_wire::{Decode, Encode, from_slice, to_vec};
use std::collections::BTreeMap;

const TAG: Tag = Tag { instance: 7, sequence: 8 };

fn text(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), "value".to_owned())])
}

fn checksum() -> Checksum {
    Checksum { algorithm: "CRC32".into(), value: "AAAAAA==".into(), is_composite: true }
}

fn decode<T: Encode + Decode>(bytes: &[u8]) {
    let _ = stable::<T>(bytes);
}

fn decode_website(bytes: &[u8]) {
    decode::<Website>(bytes);
    let Ok(site) = from_slice::<Website>(bytes) else { return };
    let _ = site.fault();
    for status in [None, Some(404)] {
        let _ = site.redirect("a/b", status);
    }
    let _ = site.key_of("a/");
}

fn decode_notice(bytes: &[u8]) {
    if let Some(notice) = stable::<Notice>(bytes) {
        let _ = notice.record("opaque");
    }
}

fn decode_rules(bytes: &[u8]) {
    if let Some(rules) = stable::<Vec<NoticeRule>>(bytes) {
        let _ = NoticeRule::fault(&rules);
        let _ = rules.iter().any(|rule| rule.chooses(event::PUT, "a/b"));
    }
}

fn decode_logging(bytes: &[u8]) {
    if let Some(logging) = stable::<BucketLogging>(bytes) {
        let source = LogSource { bucket: "b", owner: "o", region: "r" };
        let _ = logging.key(source, u64::MAX, 0, "unique");
    }
}

/// The decoders, in the order of the first byte of an input.
const VALUES: [fn(&[u8]); 22] = [
    decode::<Entry>,
    decode::<Head>,
    decode::<Counters>,
    decode::<Garbage>,
    decode::<Upload>,
    decode::<Part>,
    decode::<Bucket>,
    decode::<Vec<CorsRule>>,
    decode::<History>,
    decode::<OldVersion>,
    lists_of_container,
    decode::<User>,
    decode::<BucketEncryption>,
    decode_website,
    decode::<StorageClass>,
    decode::<RateLimit>,
    decode::<GlobalRates>,
    decode::<UsageRecord>,
    decode_logging,
    decode_notice,
    decode_rules,
    decode::<Topic>,
];

/// What decodes also becomes a policy, or is refused.
fn lists_of_container(bytes: &[u8]) {
    if let Some(container) = stable::<Container>(bytes) {
        let _ = (container.check(), container.policy("bucket"));
    }
}

fn seed(kind: u8, value: &impl Encode) -> Vec<u8> {
    let mut out = vec![kind];
    value.encode(&mut out);
    out
}

fn cors() -> Vec<CorsRule> {
    let names = |name: &str| vec![name.to_owned()];
    vec![CorsRule {
        id: "id".into(),
        origins: names("https://*.example.com"),
        methods: names("GET"),
        headers: names("x-amz-*"),
        exposed: names("etag"),
        max_age: Some(60),
    }]
}

fn website() -> Website {
    let target = Target { host: "h".into(), protocol: "https".into() };
    let rule = RoutingRule {
        prefix: "a".into(),
        on_status: 404,
        target: target.clone(),
        new_prefix: Some("b".into()),
        new_key: None,
        status: 301,
    };
    Website { index: "i".into(), error: "e".into(), all_to: Some(target), rules: vec![rule] }
}

pub fn value_seeds() -> Vec<Vec<u8>> {
    let extents = vec![Extent { tag: TAG, len: 9 }];
    let head = Head {
        headers: text("content-type"),
        checksum: Some(checksum()),
        body: Body::Data(extents.clone()),
        parts: vec![4, 5],
        upload: Some(TAG),
        tags: text("tag"),
        lock: Lock {
            retention: Some(Retention { mode: LockMode::Compliance, until: 9 }),
            legal_hold: Some(true),
        },
        acl: Acl {
            grants: vec![Grant { grantee: Grantee::User("u".into()), permission: Permission::WRITE }],
        },
        encryption: Some(Encryption {
            source: KeySource::Named,
            name: "n".into(),
            context: "e30=".into(),
            wrapped: Bytes::from_static(b"w"),
            data_key: String::new(),
        }),
    };
    let inline = Head { body: Body::Inline(Bytes::from_static(b"body")), ..Head::default() };
    let entry =
        Entry { tag: TAG, size: 9, mtime: 1, etag: "e".into(), owner: "o".into(), ..Entry::default() };
    let part = Part { tag: TAG, size: 9, mtime: 1, etag: "e".into(), checksum: Some(checksum()) };
    let upload = Upload {
        key: "k".into(),
        owner: "o".into(),
        initiated: 1,
        headers: text("content-type"),
        tags: text("tag"),
        storage_class: String::new(),
        checksum: "CRC32".into(),
        is_full_object: false,
        bucket: "b".into(),
        lock: Lock::default(),
        acl: Acl { grants: vec![Grant { grantee: Grantee::AllUsers, permission: Permission::READ }] },
        encryption: None,
    };
    let marker = Entry { stamp: 4, is_marker: true, ..entry.clone() };
    let history = History { newest: 4, null: Some(0), older: Some(3), marker: Some(marker), last: TAG };
    let bucket = NoticeBucket { name: "b".into(), ..NoticeBucket::default() };
    let notice =
        Notice { topic: "$t".into(), event: event::PUT.into(), tag: TAG, bucket, ..Notice::default() };
    let rule = NoticeRule { id: "r".into(), events: vec!["ObjectCreated:*".into()], ..NoticeRule::default() };
    let limit = RateLimit { is_enabled: true, read_ops: 3, ..RateLimit::default() };
    let categories = BTreeMap::from([("get_obj".to_owned(), Usage { ops: 1, ..Usage::default() })]);
    let usage = UsageRecord { hour: 3600, user: "u".into(), categories, ..UsageRecord::default() };
    let old = OldVersion { entry: entry.clone(), newer: 4, older: Some(2) };
    vec![
        seed(0, &entry),
        seed(1, &head),
        seed(1, &inline),
        seed(2, &Counters { objects: 1, bytes: -1 }),
        seed(3, &Garbage::Data(extents)),
        seed(3, &Garbage::Upload { id: TAG, kept: vec![TAG] }),
        seed(4, &upload),
        seed(5, &part),
        seed(7, &cors()),
        seed(8, &history),
        seed(9, &old),
        seed(
            10,
            &Container {
                metadata: text("color"),
                read: ".r:*,.rlistings".into(),
                write: "u".into(),
                archive: "old".into(),
                is_history: true,
            },
        ),
        seed(11, &User { id: "u".into(), swift_metadata: text("temp-url-key"), ..User::default() }),
        seed(13, &website()),
        seed(14, &StorageClass { name: "COLD".into(), pool: "cold".into(), is_retired: true }),
        seed(19, &notice),
        seed(20, &vec![rule]),
        seed(21, &Topic { name: "t".into(), endpoint: "http://h".into(), ..Topic::default() }),
        seed(15, &limit),
        seed(16, &GlobalRates { user: limit, ..GlobalRates::default() }),
        seed(17, &usage),
        seed(18, &BucketLogging { target: "t".into(), prefix: "p".into(), ..BucketLogging::default() }),
        seed(12, &BucketEncryption { source: KeySource::Gateways, name: String::new() }),
    ]
}

pub fn value(input: &[u8]) {
    if let Some((kind, bytes)) = input.split_first()
        && let Some(decode) = VALUES.get(usize::from(*kind))
    {
        decode(bytes);
    }
}

pub fn settings_seeds() -> Vec<Vec<u8>> {
    let rule = LifecycleRule {
        id: "id".into(),
        is_enabled: true,
        tags: text("tag"),
        days: Some(3),
        noncurrent_days: Some(4),
        newer_noncurrent: Some(2),
        transitions: vec![Transition { days: Some(1), date: None, class: "COLD".into() }],
        ..LifecycleRule::default()
    };
    let config = BucketConfig {
        tags: text("tag"),
        cors: cors(),
        versioning: Versioning::Enabled,
        lock: Some(LockRule { default: Some((LockMode::Governance, Period::Years(1))) }),
        lifecycle: vec![rule],
        ..BucketConfig::default()
    };
    vec![to_vec(&config.encode())]
}

pub fn settings(input: &[u8]) {
    let Ok(settings) = from_slice::<BTreeMap<Name, Bytes>>(input) else { return };
    let Ok(config) = BucketConfig::decode(settings) else { return };
    assert_eq!(BucketConfig::decode(config.encode()).as_ref(), Ok(&config));
    let request = CorsRequest { origin: "https://a.example.com", method: "GET", headers: "x-amz-date" };
    let _ = CorsRule::answer(&config.cors, request);
    let _ = CorsRule::fault(&config.cors);
    let _ = LifecycleRule::fault(&config.lifecycle);
    let _ = config.lock.and_then(|rule| rule.retention(u64::MAX));
    let entry = Entry::default();
    for calendar in
        [Calendar { now: 1 << 40, short_day: None }, Calendar { now: 9, short_day: Some(u64::MAX) }]
    {
        for noncurrent in [None, Some((u64::MAX, 3))] {
            let version = Aged { key: "key", entry: &entry, noncurrent, is_last: true };
            for rule in &config.lifecycle {
                let _ = (rule.expiry(version, calendar), rule.transition(version, calendar));
            }
        }
    }
}
