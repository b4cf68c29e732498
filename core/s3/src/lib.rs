//! Objects over HTTP: what an S3 gateway keeps in RADOS, and which RADOS operations change it.
//!
//! `index` is the machine of one bucket: it takes requests about keys, emits RADOS operations and takes their
//! results. An object exists when its entry is in the index, so that one compound operation commits it.
//! `leaf` has the layout of the index, `record` the values in it, `listing` how pages are put together,
//! `condition` the preconditions of HTTP, `version` names versions, `lock` keeps them, `upload` the state of
//! a multipart upload, `data` how bodies are cut into RADOS objects, `encryption` how they are encrypted,
//! `account` users and buckets, `notice` what topics are told of changes, `config` what is set on a bucket,
//! `quota` and `rate` limits of both, `usage` what was done with them, `form` what browsers may upload.
//!
//! `iam` has accounts of several users, `tenant` the names of buckets. `access` decides on requests, from
//! `policy`, `acl` and the table of operations in `action`. `swift` has what Swift adds to buckets,
//! `keystone` what OpenStack's identity service answers.
//!
//! Start at `BucketIndex` and `docs/decisions/0061-s3-index.md`.

pub mod access;
mod account;
pub mod acl;
mod action;
mod condition;
mod config;
mod data;
mod encryption;
mod form;
pub mod iam;
mod index;
pub mod keystone;
mod leaf;
mod listing;
mod lock;
mod notice;
mod placement;
pub mod policy;
mod quota;
mod rate;
mod record;
pub mod swift;
mod tag;
pub mod tenant;
mod upload;
pub mod usage;
mod version;

#[cfg(test)]
mod tests;

pub use account::{BadCaps, Bucket, Caps, MAX_BUCKETS, Quota, SubuserAccess, User, is_user_id};
pub use action::{Action, Need};
pub use condition::{Condition, Etags, NotRead, ReadCondition};
pub use config::{
    AccessRecord, Aged, BUCKET_TAGS_MAX, BucketConfig, BucketLogging, Calendar, CorsAnswer, CorsRequest,
    CorsRule, Expiry, LifecycleRule, LogSource, NoncurrentTransition, Transition, setting, website,
};
pub use data::{INLINE_MAX, STRIPE, Span, object_name, spans, stripes};
pub use encryption::{BucketEncryption, CHUNK, CODE, Chunks, Encryption, KeySource, chunks};
pub use form::{BadForm, FileSize, FormPolicy};
pub use index::{
    Answer, Ask, BucketIndex, Change, Deletion, Effect, GarbageItem, NoticeItem, NoticesOf, OpId, Paused,
    Refusal, Revision, Ticket,
};
pub use leaf::{Garbage, LeafName, create_bucket, pairs as omap_page};
pub use listing::{Item, Listed, Page, PageRequest};
pub use lock::{Lock, LockMode, LockRule, LockView, Period, Retention};
pub use notice::{
    Notice, NoticeBucket, NoticeObject, NoticeRule, NoticeSource, Notices, Occasion, Topic, event,
};
pub use placement::{CLASSES_MAX, STANDARD, StorageClass, is_class_name};
pub use quota::Ledger;
pub use rate::{GlobalRates, RateLimit, Tokens};
pub use record::{Body, Checksum, Counters, Entry, Extent, Head, Object};
pub use tag::Tag;
pub use upload::{Part, Upload, UploadReader, UploadState};
pub use version::{History, OldVersion, VersionId, Versioning};
