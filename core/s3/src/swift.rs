//! What Swift keeps of a container beside the bucket that it is: metadata, and lists of its readers and
//! writers.
//!
//! The lists become statements of the bucket's policy when it is read, so that they hold for requests of S3
//! as well.

use crate::policy::{BadPolicy, Kind, Policy};
use crate::tenant::{split_bucket, split_tenant};
use bytes::Bytes;
use nacre_wire::{DecodeError, from_slice, versioned_fields};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The name of the setting of a bucket: `Container`.
pub const CONTAINER: &str = "swift";
/// The most bytes of a list.
pub const LIST_MAX: usize = 8 << 10;
/// The most bytes of all names and values of an account's or a container's metadata.
pub const METADATA_MAX: usize = 4 << 10;

/// What is set on a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// By lower-case names, without `X-Container-Meta-`.
    pub metadata: BTreeMap<String, String>,
    /// `X-Container-Read`.
    pub read: String,
    /// `X-Container-Write`.
    pub write: String,
    /// The container for versions of objects that are replaced; empty for none.
    pub archive: String,
    /// Of `X-History-Location`: a DELETE brings no version back, but is noted in the archive.
    pub is_history: bool,
}
versioned_fields!(Container, "swift container", metadata, read, write; later archive, is_history);

/// An element of a list that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no element of an access list")]
pub struct BadElement(pub String);

/// One element of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Element<'a> {
    /// `.r:*`
    Everyone,
    /// `.r:example.com`, or `.r:.example.com` for all below.
    Referrer(&'a str),
    /// `.r:-example.com`
    NotReferrer(&'a str),
    /// `.rlistings`
    Listings,
    /// A user's id.
    User(&'a str),
}

fn elements(list: &str) -> Result<Vec<Element<'_>>, BadElement> {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| element(part).ok_or_else(|| BadElement(part.to_owned()))).collect()
}

fn element(part: &str) -> Option<Element<'_>> {
    let is_host = |host: &str| {
        !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
    };
    let Some((kind, rest)) = part.strip_prefix('.').map(|it| it.split_once(':').unwrap_or((it, ""))) else {
        // `user:subuser` is a user with a limited key: the list is of users.
        let user = part.split_once(':').map_or(part, |(user, _)| user);
        return crate::is_user_id(user).then_some(Element::User(user));
    };
    match (kind, rest.trim()) {
        ("rlistings", "") => Some(Element::Listings),
        ("r" | "ref" | "referer" | "referrer", "*") => Some(Element::Everyone),
        ("r" | "ref" | "referer" | "referrer", host) => match host.strip_prefix('-') {
            Some(host) => is_host(host).then_some(Element::NotReferrer(host)),
            None => is_host(host).then_some(Element::Referrer(host)),
        },
        _ => None,
    }
}

/// URLs at a host, or at all hosts of a domain that begins with a dot.
fn urls(host: &str) -> Vec<String> {
    let host = if host.starts_with('.') { format!("*{host}") } else { host.to_owned() };
    ["http", "https"].iter().flat_map(|it| [format!("{it}://{host}/*"), format!("{it}://{host}:*")]).collect()
}

fn arn(user: &str) -> String {
    let (tenant, name) = split_tenant(user);
    format!("arn:aws:iam::{tenant}:user/{name}")
}

impl Container {
    /// From the settings of a bucket; empty if Swift never set anything.
    pub fn of(settings: &BTreeMap<String, Bytes>) -> Result<Container, DecodeError> {
        settings.get(CONTAINER).map(|value| from_slice(value)).transpose().map(Option::unwrap_or_default)
    }

    /// Whether the lists can be understood.
    pub fn check(&self) -> Result<(), BadElement> {
        elements(&self.read)?;
        let written = elements(&self.write)?;
        // A referrer is what a client claims: no right to write depends on it.
        match written.iter().find(|element| !matches!(element, Element::User(_))) {
            Some(_) => Err(BadElement(self.write.clone())),
            None => Ok(()),
        }
    }

    /// Statements for the policy of the bucket with this full name; none if the lists are empty.
    pub fn policy(&self, bucket: &str) -> Result<Option<Policy>, BadPolicy> {
        let bad = |e: BadElement| BadPolicy::Malformed(e.to_string());
        let (read, write) = (elements(&self.read).map_err(bad)?, elements(&self.write).map_err(bad)?);
        let name = split_bucket(bucket).1;
        let (objects, all) = (format!("arn:aws:s3:::{name}/*"), format!("arn:aws:s3:::{name}"));
        let allow = |principal: Value, actions: &[&str], resource: &str, condition: Value| {
            let mut statement = json!({
                "Effect": "Allow", "Principal": principal, "Action": actions, "Resource": resource,
            });
            if !condition.is_null() {
                statement["Condition"] = condition;
            }
            statement
        };
        let users = |elements: &[Element<'_>]| -> Vec<String> {
            let user = |element: &Element<'_>| match element {
                Element::User(user) => Some(arn(user)),
                _ => None,
            };
            elements.iter().filter_map(user).collect()
        };
        const READ: [&str; 2] = ["s3:GetObject", "s3:GetObjectVersion"];
        const LIST: [&str; 2] = ["s3:ListBucket", "s3:ListBucketVersions"];
        const WRITE: [&str; 3] = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"];
        let mut statements = Vec::new();
        let readers = users(&read);
        if !readers.is_empty() {
            let readers = json!({ "AWS": readers });
            statements.push(allow(readers.clone(), &READ, &objects, Value::Null));
            statements.push(allow(readers, &LIST, &all, Value::Null));
        }
        let writers = users(&write);
        if !writers.is_empty() {
            statements.push(allow(json!({ "AWS": writers }), &WRITE, &objects, Value::Null));
        }
        let mut condition = json!({});
        let (mut from, mut not_from) = (Vec::new(), Vec::new());
        for element in &read {
            match element {
                Element::Referrer(host) => from.extend(urls(host)),
                Element::NotReferrer(host) => not_from.extend(urls(host)),
                _ => {}
            }
        }
        if !not_from.is_empty() {
            condition["StringNotLike"] = json!({ "aws:Referer": not_from });
        }
        let everyone = read.contains(&Element::Everyone);
        if !everyone && !from.is_empty() {
            condition["StringLike"] = json!({ "aws:Referer": from });
        }
        if everyone || !from.is_empty() {
            let condition =
                if condition.as_object().is_some_and(|it| it.is_empty()) { Value::Null } else { condition };
            statements.push(allow(json!("*"), &READ, &objects, condition.clone()));
            if read.contains(&Element::Listings) {
                statements.push(allow(json!("*"), &LIST, &all, condition));
            }
        }
        if statements.is_empty() {
            return Ok(None);
        }
        let document = json!({ "Version": "2012-10-17", "Statement": statements });
        Policy::parse(&document.to_string(), Kind::Bucket(bucket)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Asked, Context, Effect, Principal};

    fn may(container: &Container, principal: &Principal, action: &str, key: &str, from: &str) -> bool {
        let mut context = Context::default();
        if !from.is_empty() {
            context.set("aws:Referer", from);
        }
        let resource =
            if key.is_empty() { "arn:aws:s3:::c".to_owned() } else { format!("arn:aws:s3:::c/{key}") };
        let asked = Asked { principal, action, resource: &resource, context: &context };
        container.policy("c").unwrap().is_some_and(|policy| policy.has(Effect::Allow, &asked))
    }

    #[test]
    fn lists_let_users_and_referrers_in() {
        let anna = Principal::user("anna");
        let container = |read: &str, write: &str| Container {
            read: read.into(),
            write: write.into(),
            ..Container::default()
        };
        let users = container("anna, t$bert:sub", "anna");
        users.check().unwrap();
        assert!(may(&users, &anna, "s3:GetObject", "o", ""));
        assert!(may(&users, &anna, "s3:ListBucket", "", "") && may(&users, &anna, "s3:PutObject", "o", ""));
        assert!(may(&users, &Principal::user("t$bert"), "s3:GetObject", "o", ""));
        assert!(!may(&users, &Principal::user("t$bert"), "s3:PutObject", "o", ""));
        assert!(!may(&users, &Principal::Anonymous, "s3:GetObject", "o", ""));

        let open = container(".r:*,.r:-bad.example", "");
        assert!(may(&open, &Principal::Anonymous, "s3:GetObject", "o", ""));
        assert!(!may(&open, &Principal::Anonymous, "s3:ListBucket", "", ""));
        assert!(!may(&open, &Principal::Anonymous, "s3:GetObject", "o", "http://bad.example/page"));
        assert!(may(&container(".r:*,.rlistings", ""), &Principal::Anonymous, "s3:ListBucket", "", ""));

        let site = container(".r:.example.com", "");
        assert!(may(&site, &Principal::Anonymous, "s3:GetObject", "o", "https://www.example.com/a"));
        assert!(!may(&site, &Principal::Anonymous, "s3:GetObject", "o", "https://example.org/a"));
        assert!(!may(&site, &Principal::Anonymous, "s3:GetObject", "o", ""));
    }

    #[test]
    fn lists_that_mean_nothing_are_refused() {
        for (read, write) in [(".x:*", ""), (".r:", ""), (".rlistings:1", ""), ("a/b", ""), ("", ".r:*")] {
            let container = Container { read: read.into(), write: write.into(), ..Container::default() };
            assert!(container.check().is_err(), "{read} {write}");
        }
        assert_eq!(Container::default().policy("c"), Ok(None));
    }

    #[test]
    fn containers_survive_their_encoding() {
        let container = Container {
            metadata: BTreeMap::from([("color".into(), "blue".into())]),
            read: ".r:*".into(),
            write: "anna".into(),
            archive: "old".into(),
            is_history: true,
        };
        let settings = BTreeMap::from([(CONTAINER.to_owned(), nacre_wire::to_vec(&container).into())]);
        assert_eq!(Container::of(&settings), Ok(container));
        assert_eq!(Container::of(&BTreeMap::new()), Ok(Container::default()));
    }
}
