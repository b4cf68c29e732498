//! What is set on a bucket, beside its record: one named setting each, so that a change of one does not
//! touch the others.
//!
//! The settings are in the omap of the bucket's record, and are read with it in one operation.

mod cors;
mod lifecycle;
mod logging;
pub mod website;

pub use cors::{CorsAnswer, CorsRequest, CorsRule};
pub use lifecycle::{Aged, Calendar, Expiry, LifecycleRule, NoncurrentTransition, Transition};
pub use logging::{AccessRecord, BucketLogging, LogSource};

use crate::lock::LockRule;
use crate::version::Versioning;
use bytes::Bytes;
use nacre_base::Name;
use nacre_wire::{Decode, DecodeError, from_slice, to_vec};
use std::collections::BTreeMap;

/// The name of each setting.
pub mod setting {
    /// `BTreeMap<String, String>`.
    pub const TAGS: &str = "tags";
    /// `Vec<CorsRule>`.
    pub const CORS: &str = "cors";
    /// `Versioning`.
    pub const VERSIONING: &str = "versioning";
    /// `Vec<LifecycleRule>`.
    pub const LIFECYCLE: &str = "lifecycle";
    /// `LockRule`. A bucket has it if its versions can be locked.
    pub const LOCK: &str = "lock";
    /// `Vec<NoticeRule>`, which gateways read.
    pub const NOTICES: &str = "notices";
    /// `BucketLogging`, which gateways read.
    pub const LOGGING: &str = "logging";
}

/// The most tags of a bucket.
pub const BUCKET_TAGS_MAX: usize = 50;

/// The settings of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketConfig {
    pub tags: BTreeMap<String, String>,
    pub cors: Vec<CorsRule>,
    pub versioning: Versioning,
    pub lock: Option<LockRule>,
    pub lifecycle: Vec<LifecycleRule>,
    /// Settings that this module does not interpret, by name.
    pub others: BTreeMap<String, Bytes>,
}

impl BucketConfig {
    /// From the names and values in the omap of the bucket's record.
    ///
    /// Fails if a setting cannot be decoded. A bucket whose settings cannot be read is not served: a rule
    /// that is ignored could delete objects, or let them be deleted.
    pub fn decode(settings: BTreeMap<Name, Bytes>) -> Result<BucketConfig, DecodeError> {
        let mut config = BucketConfig::default();
        for (name, value) in settings {
            let name = name.to_string();
            match name.as_str() {
                setting::TAGS => config.tags = read(&value)?,
                setting::CORS => config.cors = read(&value)?,
                setting::VERSIONING => config.versioning = read(&value)?,
                setting::LIFECYCLE => config.lifecycle = read(&value)?,
                setting::LOCK => config.lock = Some(read(&value)?),
                _ => drop(config.others.insert(name, value)),
            }
        }
        Ok(config)
    }

    /// The names and values to write. Settings that are as they were at first are left out.
    pub fn encode(&self) -> BTreeMap<Name, Bytes> {
        let mut settings = BTreeMap::new();
        let mut put = |name: &str, value: Option<Vec<u8>>| {
            if let Some(value) = value {
                settings.insert(Name::from(name), Bytes::from(value));
            }
        };
        put(setting::TAGS, (!self.tags.is_empty()).then(|| to_vec(&self.tags)));
        put(setting::CORS, (!self.cors.is_empty()).then(|| to_vec(&self.cors)));
        put(setting::VERSIONING, (self.versioning != Versioning::Off).then(|| to_vec(&self.versioning)));
        put(setting::LOCK, self.lock.as_ref().map(to_vec));
        put(setting::LIFECYCLE, (!self.lifecycle.is_empty()).then(|| to_vec(&self.lifecycle)));
        settings.extend(self.others.iter().map(|(name, value)| (Name::from(name.as_str()), value.clone())));
        settings
    }
}

fn read<T: Decode>(value: &Bytes) -> Result<T, DecodeError> {
    from_slice(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_their_encoding() {
        let config = BucketConfig {
            tags: BTreeMap::from([("team".into(), "blue".into())]),
            cors: vec![CorsRule {
                origins: vec!["*".into()],
                methods: vec!["GET".into()],
                ..Default::default()
            }],
            versioning: Versioning::Suspended,
            lock: Some(LockRule::default()),
            lifecycle: vec![LifecycleRule { days: Some(1), ..LifecycleRule::default() }],
            others: BTreeMap::from([("policy".into(), Bytes::from_static(b"{}"))]),
        };
        assert_eq!(BucketConfig::decode(config.encode()), Ok(config));
        assert_eq!(BucketConfig::default().encode(), BTreeMap::new());
        let damaged = BTreeMap::from([(Name::from(setting::TAGS), Bytes::from_static(b"\xff"))]);
        assert!(BucketConfig::decode(damaged).is_err());
    }
}
