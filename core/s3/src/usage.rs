//! What users did, and how many bytes it took: the usage log.
//!
//! A record is of one hour, user and bucket. Each gateway has records of its own, which it alone writes, so
//! that a sum over all records is exact. A record that is removed while its hour is not over begins anew:
//! each write compares the record with what this gateway wrote last.

use bytes::Bytes;
use nacre_base::Name;
use nacre_wire::{to_vec, versioned_fields};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds of an hour.
pub const HOUR: u64 = 60 * 60;
/// Seconds of a day.
pub const DAY: u64 = 24 * HOUR;
/// The most records in one object.
const RECORDS_MAX: u32 = 10_000;
/// The most records that a gateway holds. More, and it counts no further ones.
const HELD_MAX: usize = 100_000;

/// Of all requests of a category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub ops: u64,
    pub successful_ops: u64,
}
versioned_fields!(Usage, "s3 usage", bytes_sent, bytes_received, ops, successful_ops);

impl Usage {
    /// Both together.
    pub fn add(&mut self, other: Usage) {
        self.bytes_sent = self.bytes_sent.saturating_add(other.bytes_sent);
        self.bytes_received = self.bytes_received.saturating_add(other.bytes_received);
        self.ops = self.ops.saturating_add(other.ops);
        self.successful_ops = self.successful_ops.saturating_add(other.successful_ops);
    }

    fn subtract(&mut self, other: Usage) {
        self.bytes_sent = self.bytes_sent.saturating_sub(other.bytes_sent);
        self.bytes_received = self.bytes_received.saturating_sub(other.bytes_received);
        self.ops = self.ops.saturating_sub(other.ops);
        self.successful_ops = self.successful_ops.saturating_sub(other.successful_ops);
    }
}

/// What a record is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageKey {
    /// When the hour began, in seconds since 1970.
    pub hour: u64,
    /// The user that it is charged to: the owner of the bucket, or the sender if requesters pay.
    pub user: String,
    /// Empty for requests that are for no bucket.
    pub bucket: String,
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageRecord {
    pub hour: u64,
    pub user: String,
    pub bucket: String,
    /// The owner of the bucket.
    pub owner: String,
    /// By the names that radosgw has for operations.
    pub categories: BTreeMap<String, Usage>,
}
versioned_fields!(UsageRecord, "s3 usage record", hour, user, bucket, owner, categories);

/// The category of an operation of S3: the name of radosgw's operation.
pub fn category(operation: &str) -> Cow<'static, str> {
    let known = match operation {
        "HeadBucket" => "stat_bucket",
        "ListObjects" | "ListObjectsV2" | "ListObjectVersions" => "list_bucket",
        "GetObject" | "HeadObject" => "get_obj",
        "PutObject" | "PostObject" | "UploadPart" | "UploadPartCopy" => "put_obj",
        "CopyObject" => "copy_obj",
        "DeleteObject" => "delete_obj",
        "DeleteObjects" => "multi_object_delete",
        "CreateMultipartUpload" => "init_multipart",
        "CompleteMultipartUpload" => "complete_multipart",
        "AbortMultipartUpload" => "abort_multipart",
        "ListParts" => "list_multipart",
        "ListMultipartUploads" => "list_bucket_multiparts",
        "GetBucketAcl" | "GetObjectAcl" => "get_acls",
        "PutBucketAcl" | "PutObjectAcl" => "put_acls",
        "GetBucketCors" => "get_cors",
        "PutBucketCors" => "put_cors",
        "DeleteBucketCors" => "delete_cors",
        "GetObjectTagging" => "get_obj_tags",
        "PutObjectTagging" => "put_obj_tags",
        "DeleteObjectTagging" => "delete_obj_tags",
        "GetBucketLifecycleConfiguration" => "get_lifecycle",
        "PutBucketLifecycleConfiguration" => "put_lifecycle",
        "DeleteBucketLifecycle" => "delete_lifecycle",
        _ => return in_snake_case(operation).into(),
    };
    known.into()
}

fn in_snake_case(operation: &str) -> String {
    let mut name = String::with_capacity(operation.len() + 4);
    for c in operation.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// An object of the usage log: `DAY.INSTANCE.NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageObject {
    /// Since 1970.
    pub day: u64,
    /// Of the gateway.
    pub instance: u64,
    /// A gateway begins a further object when one is full.
    pub number: u32,
}

impl UsageObject {
    /// Its name.
    pub fn name(self) -> String {
        format!("{}.{:016x}.{}", self.day, self.instance, self.number)
    }

    /// By its name; none if it is no such name.
    pub fn parse(name: &str) -> Option<UsageObject> {
        let mut parts = name.split('.');
        let day = parts.next()?.parse().ok()?;
        let instance = u64::from_str_radix(parts.next()?, 16).ok()?;
        let number = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(UsageObject { day, instance, number })
    }
}

/// A record that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageWrite {
    pub key: UsageKey,
    /// The record's name in the omap of the object.
    pub name: Name,
    /// What it must be before; empty if there must be none.
    pub before: Bytes,
    pub value: Bytes,
}

#[derive(Debug, Default)]
struct Slot {
    object: Option<UsageObject>,
    owner: String,
    total: BTreeMap<String, Usage>,
    /// What is in the object, and what that counts.
    written: Bytes,
    counted: BTreeMap<String, Usage>,
    is_changed: bool,
}

/// The records of one gateway.
#[derive(Debug, Default)]
pub struct UsageBook {
    instance: u64,
    slots: BTreeMap<UsageKey, Slot>,
    /// The last object of each day, and how many records it has.
    objects: BTreeMap<u64, (u32, u32)>,
}

impl UsageBook {
    /// Of an incarnation of a gateway.
    pub fn new(instance: u64) -> UsageBook {
        UsageBook { instance, ..UsageBook::default() }
    }

    /// Counts a request. False if it is not counted, since too much waits to be written.
    pub fn add(&mut self, key: UsageKey, owner: &str, operation: &str, usage: Usage) -> bool {
        if self.slots.len() >= HELD_MAX && !self.slots.contains_key(&key) {
            return false;
        }
        let slot =
            self.slots.entry(key).or_insert_with(|| Slot { owner: owner.to_owned(), ..Slot::default() });
        let category = category(operation);
        match slot.total.get_mut(&*category) {
            Some(total) => total.add(usage),
            None => drop(slot.total.insert(category.into_owned(), usage)),
        }
        slot.is_changed = true;
        true
    }

    /// How many records it holds.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The records that were changed, by the objects they belong in.
    pub fn changed(&mut self) -> BTreeMap<UsageObject, Vec<UsageWrite>> {
        let mut changed: BTreeMap<UsageObject, Vec<UsageWrite>> = BTreeMap::new();
        for (key, slot) in self.slots.iter_mut().filter(|(_, slot)| slot.is_changed) {
            let day = key.hour / DAY;
            let object = *slot.object.get_or_insert_with(|| {
                let (number, count) = self.objects.entry(day).or_default();
                if *count >= RECORDS_MAX {
                    (*number, *count) = (*number + 1, 0);
                }
                *count += 1;
                UsageObject { day, instance: self.instance, number: *number }
            });
            let record = UsageRecord {
                hour: key.hour,
                user: key.user.clone(),
                bucket: key.bucket.clone(),
                owner: slot.owner.clone(),
                categories: slot.total.clone(),
            };
            changed.entry(object).or_default().push(UsageWrite {
                key: key.clone(),
                name: Name::from(format!("{}\0{}\0{}", key.hour, key.user, key.bucket)),
                before: slot.written.clone(),
                value: to_vec(&record).into(),
            });
        }
        changed
    }

    /// Records were written. What was counted meanwhile is written the next time.
    pub fn written(&mut self, writes: &[UsageWrite]) {
        for write in writes {
            let found = write.value.clone();
            self.found(write, &found);
        }
    }

    /// A write was refused, or its result is not known; this was found instead.
    pub fn found(&mut self, write: &UsageWrite, found: &Bytes) {
        let Some(slot) = self.slots.get_mut(&write.key) else { return };
        let record = |value: &Bytes| {
            let record: Option<UsageRecord> = nacre_wire::from_slice(value).ok();
            record.map(|record| record.categories).unwrap_or_default()
        };
        if *found != slot.written && *found != write.value {
            // It was removed. What it had counted does not count any more.
            let names: BTreeSet<String> = slot.counted.keys().cloned().collect();
            for name in names {
                let counted = slot.counted.get(&name).copied().unwrap_or_default();
                slot.total.entry(name).or_default().subtract(counted);
            }
            slot.total.retain(|_, usage| usage.ops > 0);
        }
        slot.counted = record(found);
        slot.written = found.clone();
        slot.is_changed = slot.total != slot.counted;
    }

    /// Forgets records of hours before this time, in seconds since 1970, that are written.
    pub fn retire(&mut self, now: u64) {
        self.slots.retain(|key, slot| slot.is_changed || key.hour + HOUR > now);
        self.objects.retain(|day, _| (day + 2) * DAY > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::from_slice;

    const GET: Usage = Usage { bytes_sent: 10, bytes_received: 0, ops: 1, successful_ops: 1 };

    fn key(hour: u64, user: &str) -> UsageKey {
        UsageKey { hour: hour * HOUR, user: user.into(), bucket: "b".into() }
    }

    fn only(book: &mut UsageBook) -> UsageWrite {
        let changed: Vec<UsageWrite> = book.changed().into_values().flatten().collect();
        let [write] = &changed[..] else { panic!("{changed:?}") };
        write.clone()
    }

    fn ops(write: &UsageWrite) -> u64 {
        let record: UsageRecord = from_slice(&write.value).unwrap();
        record.categories.get("get_obj").map_or(0, |usage| usage.ops)
    }

    #[test]
    fn record_grows_and_each_write_compares_what_was_written_before() {
        let mut book = UsageBook::new(7);
        assert!(book.add(key(1, "a"), "a", "GetObject", GET));
        let first = only(&mut book);
        assert!(first.before.is_empty());
        // Counted while the write is under way.
        assert!(book.add(key(1, "a"), "a", "HeadObject", GET));
        book.written(std::slice::from_ref(&first));
        let second = only(&mut book);
        assert_eq!((ops(&second), &second.before), (2, &first.value));
        book.written(&[second]);
        assert!(book.changed().is_empty());
        book.retire(HOUR);
        assert_eq!(book.len(), 1);
        book.retire(2 * HOUR);
        assert!(book.is_empty());
    }

    #[test]
    fn record_that_was_removed_begins_anew() {
        let mut book = UsageBook::new(7);
        book.add(key(1, "a"), "a", "GetObject", GET);
        let first = only(&mut book);
        book.written(&[first]);
        book.add(key(1, "a"), "a", "GetObject", GET);
        book.add(key(1, "a"), "a", "GetObject", GET);
        let refused = only(&mut book);
        book.found(&refused, &Bytes::new());
        let again = only(&mut book);
        assert_eq!((ops(&again), again.before.is_empty()), (2, true));
        // Its result was lost, but it was carried out.
        book.add(key(1, "a"), "a", "GetObject", GET);
        book.found(&again, &again.value.clone());
        let last = only(&mut book);
        assert_eq!((ops(&last), &last.before), (3, &again.value));
        // It was not carried out.
        book.found(&last, &again.value);
        assert_eq!(only(&mut book), last);
    }

    #[test]
    fn objects_are_of_one_day_and_have_a_limited_number_of_records() {
        let mut book = UsageBook::new(7);
        for user in 0..=RECORDS_MAX {
            book.add(key(1, &user.to_string()), "a", "GetObject", GET);
        }
        book.add(key(25, "a"), "a", "GetObject", GET);
        let changed = book.changed();
        let sizes: Vec<(String, usize)> =
            changed.iter().map(|(object, writes)| (object.name(), writes.len())).collect();
        let name = |day, number| UsageObject { day, instance: 7, number }.name();
        assert_eq!(sizes, [(name(0, 0), RECORDS_MAX as usize), (name(0, 1), 1), (name(1, 0), 1)]);
        for object in changed.keys() {
            assert_eq!(UsageObject::parse(&object.name()), Some(*object));
        }
        assert!(["", "1.2", "1.2.3.4", "x.1.1"].iter().all(|name| UsageObject::parse(name).is_none()));
    }

    #[test]
    fn categories_have_the_names_of_radosgw() {
        for (operation, expected) in [
            ("GetObject", "get_obj"),
            ("UploadPart", "put_obj"),
            ("ListBuckets", "list_buckets"),
            ("GetBucketLocation", "get_bucket_location"),
            ("ListObjectsV2", "list_bucket"),
        ] {
            assert_eq!(category(operation), expected);
        }
    }
}
