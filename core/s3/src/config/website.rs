//! A bucket as a web site: which object a path stands for, and where it is sent on to.

use bytes::Bytes;
use nacre_wire::{DecodeError, from_slice, versioned_fields};
use std::collections::BTreeMap;

/// The most routing rules, as on AWS.
const RULES_MAX: usize = 50;
const TEXT_MAX: usize = 1024;

/// What is set on a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Website {
    /// Behind a path that ends with a slash.
    pub index: String,
    /// The key of the object that is shown with an error; empty for none.
    pub error: String,
    /// All requests are sent there. Nothing else is set then.
    pub all_to: Option<Target>,
    pub rules: Vec<RoutingRule>,
}
versioned_fields!(Website, "s3 website", index, error, all_to, rules);

/// Another place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Empty for the host of the request.
    pub host: String,
    /// `http`, `https`, or empty for that of the request.
    pub protocol: String,
}
versioned_fields!(Target, "s3 website target", host, protocol);

/// Sends some requests on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingRule {
    /// Keys that it is for; empty for all.
    pub prefix: String,
    /// The status that it is for; 0: requests, before they are carried out.
    pub on_status: u16,
    pub target: Target,
    /// Takes the place of the prefix.
    pub new_prefix: Option<String>,
    /// Takes the place of the key.
    pub new_key: Option<String>,
    /// The status of the answer.
    pub status: u16,
}
versioned_fields!(RoutingRule, "s3 routing rule", prefix, on_status, target, new_prefix, new_key, status);

/// Where a request is sent on to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect<'a> {
    pub status: u16,
    pub target: &'a Target,
    pub key: String,
}

impl Website {
    /// The name of the setting.
    pub const SETTING: &str = "website";

    /// From the settings of a bucket; none if it is no web site.
    pub fn decode(settings: &BTreeMap<String, Bytes>) -> Result<Option<Website>, DecodeError> {
        settings.get(Website::SETTING).map(|value| from_slice(value)).transpose()
    }

    /// What is wrong with it; none if it can be used.
    pub fn fault(&self) -> Option<&'static str> {
        let is_protocol = |text: &str| matches!(text, "" | "http" | "https");
        // It goes into a header.
        let is_host =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:".contains(&byte));
        let is_target = |target: &Target| is_protocol(&target.protocol) && is_host(&target.host);
        if let Some(target) = &self.all_to {
            return match (is_target(target) && !target.host.is_empty(), *self == self.only_all_to()) {
                (false, _) => Some("RedirectAllRequestsTo names a host, and http or https"),
                (_, false) => Some("RedirectAllRequestsTo excludes all else"),
                _ => None,
            };
        }
        if self.index.is_empty() || self.index.contains('/') || self.index.len() > TEXT_MAX {
            return Some("The IndexDocument Suffix is not well formed");
        }
        if self.error.len() > TEXT_MAX || self.rules.len() > RULES_MAX {
            return Some("a web site has at most 50 routing rules, and a key has at most 1024 bytes");
        }
        for rule in &self.rules {
            let texts = [Some(&rule.prefix), rule.new_prefix.as_ref(), rule.new_key.as_ref()];
            if texts.into_iter().flatten().any(|text| text.len() > TEXT_MAX) {
                return Some("a key or prefix of a routing rule has at most 1024 bytes");
            }
            if rule.new_prefix.is_some() && rule.new_key.is_some() {
                return Some("You can only define ReplaceKeyPrefix or ReplaceKey but not both.");
            }
            let is_error = rule.on_status == 0 || (400..600).contains(&rule.on_status);
            if !is_error || !(300..400).contains(&rule.status) || !is_target(&rule.target) {
                return Some("a routing rule has a status from 400 to 599, one from 300 to 399, and a host");
            }
            let changes = rule.new_prefix.is_some() || rule.new_key.is_some();
            if !changes && rule.target == Target::default() {
                return Some("a routing rule would send requests back to itself");
            }
        }
        None
    }

    fn only_all_to(&self) -> Website {
        Website { all_to: self.all_to.clone(), ..Website::default() }
    }

    /// Where a request is sent before anything else is done; `status`: after it has failed with that.
    pub fn redirect(&self, key: &str, status: Option<u16>) -> Option<Redirect<'_>> {
        if let (Some(target), None) = (&self.all_to, status) {
            return Some(Redirect { status: 301, target, key: key.to_owned() });
        }
        let on_status = status.unwrap_or(0);
        let mut rules = self.rules.iter().filter(|rule| rule.on_status == on_status);
        rules.find_map(|rule| {
            let rest = key.strip_prefix(&*rule.prefix)?;
            let key = match (&rule.new_key, &rule.new_prefix) {
                (Some(key), _) => key.clone(),
                (None, Some(prefix)) => format!("{prefix}{rest}"),
                (None, None) => key.to_owned(),
            };
            Some(Redirect { status: rule.status, target: &rule.target, key })
        })
    }

    /// The key that a path stands for.
    pub fn key_of(&self, path: &str) -> String {
        match path.is_empty() || path.ends_with('/') {
            true => format!("{path}{}", self.index),
            false => path.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(rules: Vec<RoutingRule>) -> Website {
        Website { index: "index.html".into(), error: "error.html".into(), all_to: None, rules }
    }

    fn to(host: &str) -> Target {
        Target { host: host.into(), protocol: String::new() }
    }

    #[test]
    fn paths_stand_for_keys() {
        let site = site(Vec::new());
        assert_eq!(site.fault(), None);
        for (path, key) in [("", "index.html"), ("a/", "a/index.html"), ("a", "a"), ("a/b.txt", "a/b.txt")] {
            assert_eq!(site.key_of(path), key);
        }
        assert_eq!(site.redirect("a", None), None);
    }

    #[test]
    fn rules_send_requests_on() {
        let prefix = RoutingRule {
            prefix: "docs/".into(),
            new_prefix: Some("documents/".into()),
            status: 302,
            ..RoutingRule::default()
        };
        let missing = RoutingRule {
            on_status: 404,
            target: to("other.example.com"),
            new_key: Some("sorry".into()),
            status: 307,
            ..RoutingRule::default()
        };
        let site = site(vec![prefix, missing]);
        assert_eq!(site.fault(), None);
        let found = site.redirect("docs/a/b", None).unwrap();
        assert_eq!((found.status, &*found.key), (302, "documents/a/b"));
        assert_eq!(site.redirect("other", None), None);
        let found = site.redirect("other", Some(404)).unwrap();
        assert_eq!((found.status, &*found.key, &*found.target.host), (307, "sorry", "other.example.com"));
        assert_eq!(site.redirect("other", Some(403)), None);
        let all = Website { all_to: Some(to("x.y")), ..Website::default() };
        assert_eq!(all.fault(), None);
        assert_eq!(all.redirect("k", None).unwrap().key, "k");
        assert_eq!(all.redirect("k", Some(404)), None);
        let settings = BTreeMap::from([(Website::SETTING.to_owned(), nacre_wire::to_vec(&site).into())]);
        assert_eq!(Website::decode(&settings), Ok(Some(site)));
    }

    #[test]
    fn sites_that_cannot_work_are_refused() {
        assert!(Website::default().fault().is_some());
        assert!(Website { index: "a/b".into(), ..Website::default() }.fault().is_some());
        let both = Website { all_to: Some(to("h")), ..site(Vec::new()) };
        assert!(both.fault().is_some());
        assert!(Website { all_to: Some(Target::default()), ..Website::default() }.fault().is_some());
        let good = RoutingRule { target: to("h"), status: 301, ..RoutingRule::default() };
        assert_eq!(site(vec![good.clone()]).fault(), None);
        for bad in [
            RoutingRule { target: Target::default(), ..good.clone() },
            RoutingRule { target: to("h\r\nx: y"), ..good.clone() },
            RoutingRule { status: 200, ..good.clone() },
            RoutingRule { on_status: 200, ..good.clone() },
            RoutingRule { new_key: Some("a".into()), new_prefix: Some("b".into()), ..good.clone() },
        ] {
            assert!(site(vec![bad.clone()]).fault().is_some(), "{bad:?}");
        }
        assert!(site(vec![good; 51]).fault().is_some());
    }
}
