//! What clients are told when a request fails.

use hyper::StatusCode;
use nacre_rados::Failure;
use nacre_s3::Refusal;
use s3s::{S3Error, S3ErrorCode, s3_error};

/// A failure of the cluster. The client may try again.
pub fn of_failure(failure: &Failure) -> S3Error {
    tracing::warn!("the cluster failed: {failure}");
    if failure.errno == nacre_base::errno::ENOSPC || failure.errno == nacre_base::errno::EDQUOT {
        return S3Error::with_message(S3ErrorCode::InternalError, "the cluster is full");
    }
    s3_error!(ServiceUnavailable, "the cluster does not answer in time, please try again")
}

/// A refusal of the index.
pub fn of_refusal(refusal: &Refusal) -> S3Error {
    match refusal {
        Refusal::NoSuchKey => s3_error!(NoSuchKey, "The specified key does not exist."),
        Refusal::PreconditionFailed => {
            s3_error!(PreconditionFailed, "At least one of the preconditions you specified did not hold.")
        }
        Refusal::NoSuchVersion => s3_error!(NoSuchVersion, "The specified version does not exist."),
        Refusal::DeleteMarker { .. } => {
            s3_error!(MethodNotAllowed, "The specified method is not allowed against this resource.")
        }
        Refusal::Locked => s3_error!(AccessDenied, "Access Denied because object protected by object lock."),
        Refusal::NoSuchUpload => s3_error!(NoSuchUpload, "The specified multipart upload does not exist."),
        Refusal::NoSuchBucket => no_such_bucket(),
        Refusal::NotEmpty => s3_error!(BucketNotEmpty, "The bucket you tried to delete is not empty."),
        Refusal::Failed(failure) => of_failure(failure),
        Refusal::Corrupt(why) => corrupt(why),
    }
}

/// The bucket does not exist.
pub fn no_such_bucket() -> S3Error {
    s3_error!(NoSuchBucket, "The specified bucket does not exist.")
}

/// The token of a session that is not one, or of another key.
pub fn invalid_token() -> S3Error {
    s3_error!(InvalidToken, "The provided token is malformed or otherwise invalid.")
}

/// The token of a session that is over.
pub fn expired_token() -> S3Error {
    s3_error!(ExpiredToken, "The provided token has expired.")
}

/// A user that was suspended.
pub fn user_suspended() -> S3Error {
    with_code("UserSuspended", StatusCode::FORBIDDEN, "the user is suspended")
}

/// A write that would go beyond a quota.
pub fn quota_exceeded(whose: &str) -> S3Error {
    let message = format!("the quota of the {whose} does not allow so much");
    with_text("QuotaExceeded", StatusCode::FORBIDDEN, message)
}

/// Something in the cluster cannot be read.
pub fn corrupt(why: impl std::fmt::Display) -> S3Error {
    tracing::error!("the cluster has what cannot be read: {why}");
    s3_error!(InternalError, "the gateway cannot read what the cluster has")
}

/// A fault of the gateway.
pub fn internal(why: impl std::fmt::Display) -> S3Error {
    tracing::error!("{why}");
    s3_error!(InternalError, "We encountered an internal error. Please try again.")
}

/// An error whose code `s3s` does not know.
pub fn with_code(code: &str, status: StatusCode, message: &'static str) -> S3Error {
    with_text(code, status, message.to_owned())
}

/// The same, with a message that is put together.
pub fn with_text(code: &str, status: StatusCode, message: String) -> S3Error {
    // Any text is a code.
    let code = code.parse().unwrap_or(S3ErrorCode::InvalidRequest);
    let mut error = S3Error::with_message(code, message);
    error.set_status_code(status);
    error
}
