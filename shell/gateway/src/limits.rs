//! What names, paths and policies of users, groups and roles may be: the same for the IAM API and for
//! `nacre s3`. The limits of policies are those of AWS.

use crate::errors;
use crate::query::invalid;
use hyper::StatusCode;
use nacre_s3::policy::{Kind, Policy};
use s3s::{S3Error, S3Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// The most letters of a role's name.
pub const ROLE_NAME_MAX: usize = 64;
/// The most letters of a policy's name.
pub const POLICY_NAME_MAX: usize = 128;
/// How long a session of a role may be unless it is set otherwise, in seconds.
pub const SESSION_DEFAULT: u32 = 3600;
const SESSION_RANGE: RangeInclusive<u32> = 3600..=43_200;
/// The most managed policies of a user, group or role.
const ATTACHED_MAX: usize = 10;
/// The most characters of the policy that says which principals may take a role.
const TRUST_MAX: usize = 2048;

/// What has policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    User,
    Group,
    Role,
}

impl Holder {
    /// The most characters of all of its documents.
    fn policies_max(self) -> usize {
        match self {
            Holder::User => 2048,
            Holder::Group => 5120,
            Holder::Role => 10_240,
        }
    }
}

/// More of something than there may be.
pub fn too_many(what: &str, max: impl std::fmt::Display) -> S3Error {
    errors::with_text("LimitExceeded", StatusCode::CONFLICT, format!("Cannot exceed quota for {what}: {max}"))
}

fn malformed(why: impl std::fmt::Display) -> S3Error {
    errors::with_text("MalformedPolicyDocument", StatusCode::BAD_REQUEST, why.to_string())
}

/// The name of a user, a group, a role or a policy: up to `max` letters and digits.
pub fn check_name<'a>(field: &str, name: &'a str, max: usize) -> S3Result<&'a str> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "+=,.@-_".contains(c);
    match name.len() <= max && name.chars().all(is_good) {
        true => Ok(name),
        false => Err(invalid(&format!("{field} has up to {max} letters, digits and signs of +=,.@-_"))),
    }
}

/// A path such as `/staff/berlin/`.
pub fn check_path(path: &str) -> S3Result<&str> {
    let is_good = |c: char| c.is_ascii_graphic();
    let has_slashes = path.starts_with('/') && path.ends_with('/');
    match has_slashes && path.len() <= 512 && path.chars().all(is_good) {
        true => Ok(path),
        false => Err(invalid("Path begins and ends with a slash, and has up to 512 characters")),
    }
}

/// How long a session of a role may be, in seconds.
pub fn check_session(seconds: u32) -> S3Result<u32> {
    match SESSION_RANGE.contains(&seconds) {
        true => Ok(seconds),
        false => Err(invalid("MaxSessionDuration is from 3600 to 43200 seconds")),
    }
}

/// A document that gives rights to a user, a group or a role.
pub fn check_policy(document: &str) -> S3Result<&str> {
    Policy::parse(document, Kind::Identity).map_err(malformed)?;
    Ok(document)
}

/// A document that says which principals may take a role.
pub fn check_trust(document: &str) -> S3Result<&str> {
    if size(document) > TRUST_MAX {
        return Err(too_many("ACLSizePerRole", TRUST_MAX));
    }
    Policy::parse(document, Kind::Trust).map_err(malformed)?;
    Ok(document)
}

/// White space does not count.
fn size(document: &str) -> usize {
    document.chars().filter(|c| !c.is_whitespace()).count()
}

/// Gives a holder of policies a document, or another one of the same name.
pub fn put_policy(
    documents: &mut BTreeMap<String, String>,
    holder: Holder,
    name: &str,
    document: &str,
) -> S3Result<()> {
    let others = documents.iter().filter(|(other, _)| *other != name).map(|(_, document)| size(document));
    let max = holder.policies_max();
    if others.sum::<usize>() + size(document) > max {
        let message = format!("Maximum policy size of {max} bytes exceeded");
        return Err(errors::with_text("LimitExceeded", StatusCode::CONFLICT, message));
    }
    documents.insert(name.to_owned(), document.to_owned());
    Ok(())
}

/// Gives a holder of policies a managed one.
pub fn attach_policy(attached: &mut BTreeSet<String>, arn: &str) -> S3Result<()> {
    if attached.len() >= ATTACHED_MAX && !attached.contains(arn) {
        return Err(too_many("PoliciesPerHolder", ATTACHED_MAX));
    }
    attached.insert(arn.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_paths_and_lengths_are_checked() {
        assert!(check_name("UserName", "a.b@c+d", 64).is_ok() && check_name("UserName", "a/b", 64).is_err());
        assert!(check_name("UserName", &"x".repeat(65), 64).is_err());
        for (path, expected) in [("/", true), ("/a/b/", true), ("a/", false), ("/a", false), ("/ /", false)] {
            assert_eq!(check_path(path).is_ok(), expected, "{path}");
        }
        assert!(
            check_session(3600).is_ok() && check_session(3599).is_err() && check_session(43_201).is_err()
        );
    }

    #[test]
    fn documents_of_one_holder_are_limited_together() {
        let mut documents = BTreeMap::new();
        let mut put = |name: &str, len: usize| {
            put_policy(&mut documents, Holder::User, name, &format!("{} \n", "x".repeat(len)))
        };
        put("a", 1024).unwrap();
        put("b", 1024).unwrap();
        let refused = put("c", 1).unwrap_err();
        assert_eq!(refused.code().as_str(), "LimitExceeded");
        put("a", 1).unwrap();
        put("c", 1).unwrap();
        let mut attached = BTreeSet::new();
        for number in 0..10 {
            attach_policy(&mut attached, &number.to_string()).unwrap();
        }
        assert!(attach_policy(&mut attached, "0").is_ok() && attach_policy(&mut attached, "x").is_err());
        let trust = format!("{{{}", "x".repeat(TRUST_MAX));
        assert_eq!(check_trust(&trust).unwrap_err().code().as_str(), "LimitExceeded");
        assert_eq!(check_policy("x").unwrap_err().code().as_str(), "MalformedPolicyDocument");
    }
}
