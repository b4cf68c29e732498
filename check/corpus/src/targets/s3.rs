//! What S3 gateways keep in the cluster: values of indexes, and settings of buckets.

use super::codecs::stable;
use bytes::Bytes;
use nacre_base::Name;
use nacre_s3::{
    Body, Bucket, BucketConfig, Checksum, CorsRequest, CorsRule, Counters, Entry, Extent, Garbage, Head,
    Part, Tag, Upload,
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

/// The decoders, in the order of the first byte of an input.
const VALUES: [fn(&[u8]); 8] = [
    decode::<Entry>,
    decode::<Head>,
    decode::<Counters>,
    decode::<Garbage>,
    decode::<Upload>,
    decode::<Part>,
    decode::<Bucket>,
    decode::<Vec<CorsRule>>,
];

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

pub fn value_seeds() -> Vec<Vec<u8>> {
    let extents = vec![Extent { tag: TAG, len: 9 }];
    let head = Head {
        headers: text("content-type"),
        checksum: Some(checksum()),
        body: Body::Data(extents.clone()),
        parts: vec![4, 5],
        upload: Some(TAG),
        tags: text("tag"),
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
    };
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
    let config = BucketConfig { tags: text("tag"), cors: cors(), ..BucketConfig::default() };
    vec![to_vec(&config.encode())]
}

pub fn settings(input: &[u8]) {
    let Ok(settings) = from_slice::<BTreeMap<Name, Bytes>>(input) else { return };
    let Ok(config) = BucketConfig::decode(settings) else { return };
    assert_eq!(BucketConfig::decode(config.encode()).as_ref(), Ok(&config));
    let request = CorsRequest { origin: "https://a.example.com", method: "GET", headers: "x-amz-date" };
    let _ = CorsRule::answer(&config.cors, request);
    let _ = CorsRule::fault(&config.cors);
}
