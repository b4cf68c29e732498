//! Object lock: the setting of a bucket, retentions and legal holds of versions.

use crate::buckets::{FRESH, OpenBucket};
use crate::errors;
use crate::objects::timestamp;
use crate::service::Core;
use crate::store::now;
use crate::versions::version_of;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use nacre_s3::{Lock, LockMode, LockRule, LockView, Period, Retention, Revision, Versioning, setting};
use nacre_wire::to_vec;
use s3s::dto::{
    DefaultRetention, GetObjectLegalHoldInput, GetObjectLegalHoldOutput, GetObjectLockConfigurationInput,
    GetObjectLockConfigurationOutput, GetObjectRetentionInput, GetObjectRetentionOutput,
    ObjectLockConfiguration, ObjectLockEnabled, ObjectLockLegalHold, ObjectLockLegalHoldStatus,
    ObjectLockRetention, ObjectLockRetentionMode, ObjectLockRule, PutObjectLegalHoldInput,
    PutObjectLegalHoldOutput, PutObjectLockConfigurationInput, PutObjectLockConfigurationOutput,
    PutObjectRetentionInput, PutObjectRetentionOutput, Timestamp,
};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest default retention: a hundred years.
const DAYS_MAX: i32 = 36_500;
const YEARS_MAX: i32 = 100;

/// The lock that a write brings in its headers.
#[derive(Default)]
pub struct AskedLock {
    pub mode: Option<String>,
    pub until: Option<Timestamp>,
    pub legal_hold: Option<String>,
}

/// Milliseconds since 1970.
pub fn millis(timestamp: &Timestamp) -> u64 {
    let time: time::OffsetDateTime = timestamp.clone().into();
    let since = SystemTime::from(time).duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn mode_of(text: &str) -> S3Result<LockMode> {
    match text {
        "GOVERNANCE" => Ok(LockMode::Governance),
        "COMPLIANCE" => Ok(LockMode::Compliance),
        _ => Err(s3_error!(InvalidArgument, "Unknown wormMode directive.")),
    }
}

/// As clients write it.
pub fn mode_text(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Governance => "GOVERNANCE",
        LockMode::Compliance => "COMPLIANCE",
    }
}

/// As clients write it.
pub fn hold_text(is_held: bool) -> &'static str {
    if is_held { "ON" } else { "OFF" }
}

fn hold_of(text: &str) -> S3Result<bool> {
    match text {
        "ON" => Ok(true),
        "OFF" => Ok(false),
        _ => Err(s3_error!(MalformedXML, "a legal hold is ON or OFF")),
    }
}

fn retention_of(mode: &str, until: &Timestamp) -> S3Result<Retention> {
    let retention = Retention { mode: mode_of(mode)?, until: millis(until) };
    if retention.until <= now() {
        return Err(s3_error!(InvalidArgument, "The retain until date must be in the future!"));
    }
    Ok(retention)
}

fn no_lock() -> S3Error {
    s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration")
}

impl AskedLock {
    /// The lock of a new version in this bucket.
    pub fn of(self, bucket: &OpenBucket, headers: &HeaderMap) -> S3Result<Lock> {
        if self.is_asked() && !has_checksum(headers) {
            return Err(s3_error!(
                InvalidRequest,
                "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object \
                 Lock parameters"
            ));
        }
        self.of_copy(bucket)
    }

    fn is_asked(&self) -> bool {
        self.mode.is_some() || self.until.is_some() || self.legal_hold.is_some()
    }

    /// The same for a version that is made without a body.
    pub fn of_copy(self, bucket: &OpenBucket) -> S3Result<Lock> {
        let Some(rule) = &bucket.config.lock else {
            return if self.is_asked() { Err(no_lock()) } else { Ok(Lock::default()) };
        };
        let retention = match (&self.mode, &self.until) {
            (Some(mode), Some(until)) => Some(retention_of(mode, until)?),
            (None, None) => rule.retention(now()),
            _ => {
                return Err(s3_error!(
                    InvalidArgument,
                    "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied"
                ));
            }
        };
        let legal_hold = self.legal_hold.as_deref().map(hold_of).transpose()?;
        Ok(Lock { retention, legal_hold })
    }
}

/// Whether the body is protected by more than the connection.
fn has_checksum(headers: &HeaderMap) -> bool {
    let is_checksum =
        |name: &str| name.starts_with("x-amz-checksum-") || name == "x-amz-sdk-checksum-algorithm";
    let mut trailers = headers.get_all("x-amz-trailer").iter().filter_map(|value| value.to_str().ok());
    let mut names = headers.keys().map(hyper::header::HeaderName::as_str);
    names.any(|name| name == "content-md5" || is_checksum(name))
        || trailers.any(|name| is_checksum(name.trim()))
}

impl Core {
    /// PutObjectLockConfiguration.
    pub async fn put_object_lock_configuration(
        &self,
        req: S3Request<PutObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<PutObjectLockConfigurationOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let asked = req.input.object_lock_configuration.unwrap_or_default();
        if asked.object_lock_enabled.as_ref().map(ObjectLockEnabled::as_str) != Some("Enabled") {
            return Err(s3_error!(MalformedXML, "object lock can only be enabled"));
        }
        if bucket.config.versioning != Versioning::Enabled {
            let message = "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration";
            return Err(errors::with_code("InvalidBucketState", StatusCode::CONFLICT, message));
        }
        let default = asked.rule.and_then(|rule| rule.default_retention).map(default_of).transpose()?;
        let is_new = bucket.config.lock.is_none();
        self.buckets.set(&bucket, setting::LOCK, Some(to_vec(&LockRule { default }))).await?;
        if is_new {
            // Once this is answered, no gateway suspends versioning.
            tokio::time::sleep(FRESH).await;
        }
        Ok(S3Response::new(PutObjectLockConfigurationOutput::default()))
    }

    /// GetObjectLockConfiguration.
    pub async fn get_object_lock_configuration(
        &self,
        req: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<GetObjectLockConfigurationOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let Some(rule) = &bucket.config.lock else {
            let message = "Object Lock configuration does not exist for this bucket";
            let code = "ObjectLockConfigurationNotFoundError";
            return Err(errors::with_code(code, StatusCode::NOT_FOUND, message));
        };
        let default = rule.default.map(|(mode, period)| {
            let (days, years) = match period {
                Period::Days(days) => (i32::try_from(days).ok(), None),
                Period::Years(years) => (None, i32::try_from(years).ok()),
            };
            DefaultRetention {
                days,
                years,
                mode: Some(ObjectLockRetentionMode::from_static(mode_text(mode))),
            }
        });
        let configuration = ObjectLockConfiguration {
            object_lock_enabled: Some(ObjectLockEnabled::from_static("Enabled")),
            rule: default.map(|default| ObjectLockRule { default_retention: Some(default) }),
        };
        let object_lock_configuration = Some(configuration);
        Ok(S3Response::new(GetObjectLockConfigurationOutput { object_lock_configuration }))
    }

    /// PutObjectRetention.
    pub async fn put_object_retention(
        &self,
        req: S3Request<PutObjectRetentionInput>,
    ) -> S3Result<S3Response<PutObjectRetentionOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        bucket.config.lock.as_ref().ok_or_else(no_lock)?;
        let asked = input.retention.unwrap_or_default();
        let new = match (&asked.mode, &asked.retain_until_date) {
            (Some(mode), Some(until)) => Some(retention_of(mode.as_str(), until)?),
            (None, None) => None,
            _ => return Err(s3_error!(MalformedXML, "a retention has a mode and a date")),
        };
        let bypass = input.bypass_governance_retention == Some(true);
        let revision = Revision::Retention { new, view: LockView { now: now(), bypass } };
        let version = input.version_id.as_deref();
        self.revise(&req.extensions, &input.key, version, revision).await?;
        Ok(S3Response::new(PutObjectRetentionOutput::default()))
    }

    /// GetObjectRetention.
    pub async fn get_object_retention(
        &self,
        req: S3Request<GetObjectRetentionInput>,
    ) -> S3Result<S3Response<GetObjectRetentionOutput>> {
        let bucket = self.open(&req.extensions).await?;
        bucket.config.lock.as_ref().ok_or_else(no_lock)?;
        let version = version_of(req.input.version_id.as_deref())?;
        let object = self.object(&bucket, &req.input.key, version).await?;
        let held = object.head.lock.retention.ok_or_else(no_such_lock)?;
        let retention = ObjectLockRetention {
            mode: Some(ObjectLockRetentionMode::from_static(mode_text(held.mode))),
            retain_until_date: Some(timestamp(held.until)),
        };
        Ok(S3Response::new(GetObjectRetentionOutput { retention: Some(retention) }))
    }

    /// PutObjectLegalHold.
    pub async fn put_object_legal_hold(
        &self,
        req: S3Request<PutObjectLegalHoldInput>,
    ) -> S3Result<S3Response<PutObjectLegalHoldOutput>> {
        let input = req.input;
        let bucket = self.open(&req.extensions).await?;
        bucket.config.lock.as_ref().ok_or_else(no_lock)?;
        let status = input.legal_hold.and_then(|hold| hold.status);
        let is_held = hold_of(status.as_ref().map(ObjectLockLegalHoldStatus::as_str).unwrap_or_default())?;
        let (version, revision) = (input.version_id.as_deref(), Revision::LegalHold(is_held));
        self.revise(&req.extensions, &input.key, version, revision).await?;
        Ok(S3Response::new(PutObjectLegalHoldOutput::default()))
    }

    /// GetObjectLegalHold.
    pub async fn get_object_legal_hold(
        &self,
        req: S3Request<GetObjectLegalHoldInput>,
    ) -> S3Result<S3Response<GetObjectLegalHoldOutput>> {
        let bucket = self.open(&req.extensions).await?;
        bucket.config.lock.as_ref().ok_or_else(no_lock)?;
        let version = version_of(req.input.version_id.as_deref())?;
        let object = self.object(&bucket, &req.input.key, version).await?;
        let is_held = object.head.lock.legal_hold.ok_or_else(no_such_lock)?;
        let status = Some(ObjectLockLegalHoldStatus::from_static(hold_text(is_held)));
        Ok(S3Response::new(GetObjectLegalHoldOutput { legal_hold: Some(ObjectLockLegalHold { status }) }))
    }
}

fn no_such_lock() -> S3Error {
    let message = "The specified object does not have a ObjectLock configuration";
    errors::with_code("NoSuchObjectLockConfiguration", StatusCode::NOT_FOUND, message)
}

fn default_of(asked: DefaultRetention) -> S3Result<(LockMode, Period)> {
    let mode = asked.mode.ok_or_else(|| s3_error!(MalformedXML, "a default retention has a mode"))?;
    let bad = |what| {
        s3_error!(InvalidArgument, "Default retention period must be a positive integer value, {what}")
    };
    let period = match (asked.days, asked.years) {
        (Some(days @ 1..=DAYS_MAX), None) => Period::Days(days as u32),
        (None, Some(years @ 1..=YEARS_MAX)) => Period::Years(years as u32),
        (Some(_), Some(_)) | (None, None) => {
            return Err(s3_error!(MalformedXML, "a default retention has days or years, and not both"));
        }
        _ => return Err(bad("at most a hundred years")),
    };
    Ok((mode_of(mode.as_str())?, period))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn default_retention_is_in_days_or_years() {
        let of = |days, years| {
            default_of(DefaultRetention {
                days,
                years,
                mode: Some(ObjectLockRetentionMode::from_static("GOVERNANCE")),
            })
        };
        assert!(of(Some(3), None).is_ok_and(|default| default == (LockMode::Governance, Period::Days(3))));
        assert!(of(None, Some(1)).is_ok_and(|default| default.1 == Period::Years(1)));
        for (days, years) in [(None, None), (Some(1), Some(1)), (Some(0), None), (None, Some(101))] {
            assert!(of(days, years).is_err(), "{days:?} {years:?}");
        }
    }

    #[test]
    fn checksum_may_come_in_any_form() {
        for (name, value) in [
            ("content-md5", "x"),
            ("x-amz-checksum-crc32", "x"),
            ("x-amz-sdk-checksum-algorithm", "CRC32"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ] {
            assert!(has_checksum(&HeaderMap::from_iter([(
                hyper::header::HeaderName::from_static(name),
                HeaderValue::from_static(value)
            )])));
        }
        assert!(!has_checksum(&HeaderMap::new()));
    }
}
