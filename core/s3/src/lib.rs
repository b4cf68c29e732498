//! Objects over HTTP: what an S3 gateway keeps in RADOS, and which RADOS operations change it.
//!
//! `index` is the machine of one bucket: it takes requests about keys, emits RADOS operations and takes their
//! results. An object exists when its entry is in the index, so that one compound operation commits it.
//! `leaf` has the layout of the index, `record` the values in it, `listing` how pages are put together,
//! `condition` the preconditions of HTTP, `version` names versions, `lock` keeps them, `upload` the state of
//! a multipart upload, `data` how bodies are cut into RADOS objects, `encryption` how they are encrypted,
//! `account` users and buckets, `config` what is set on a bucket, `form` what browsers may upload.
//!
//! `iam` has accounts of several users. `access` decides who may do what, from `policy`, `acl` and the table
//! of operations in `action`. `swift` has what Swift adds to buckets, `keystone` what OpenStack's identity
//! service answers.
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
mod placement;
pub mod policy;
mod quota;
mod record;
pub mod swift;
mod tag;
mod upload;
mod version;

#[cfg(test)]
mod tests;

pub use account::{BadCaps, Bucket, Caps, MAX_BUCKETS, Quota, SubuserAccess, User, is_user_id};
pub use action::{Action, Need};
pub use condition::{Condition, Etags, NotRead, ReadCondition};
pub use config::{
    Aged, BUCKET_TAGS_MAX, BucketConfig, Calendar, CorsAnswer, CorsRequest, CorsRule, Expiry, LifecycleRule,
    NoncurrentTransition, Transition, setting, website,
};
pub use data::{INLINE_MAX, STRIPE, Span, object_name, spans, stripes};
pub use encryption::{BucketEncryption, CHUNK, CODE, Chunks, Encryption, KeySource, chunks};
pub use form::{BadForm, FileSize, FormPolicy};
pub use index::{
    Answer, Ask, BucketIndex, Change, Deletion, Effect, GarbageItem, OpId, Refusal, Revision, Ticket,
};
pub use leaf::{Garbage, LeafName, create_bucket, pairs as omap_page};
pub use listing::{Item, Listed, Page, PageRequest};
pub use lock::{Lock, LockMode, LockRule, LockView, Period, Retention};
pub use placement::{CLASSES_MAX, STANDARD, StorageClass, is_class_name};
pub use quota::Ledger;
pub use record::{Body, Checksum, Counters, Entry, Extent, Head, Object};
pub use tag::Tag;
pub use upload::{Part, Upload, UploadReader, UploadState};
pub use version::{History, OldVersion, VersionId, Versioning};
