//! The conditions of a statement.

use super::document::Effect;
use super::pattern::{expand, is_like, is_like_in};
use std::collections::BTreeMap;
use std::net::IpAddr;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Condition keys that gateways give a value where there is one, in lower case. Those that end with `/` are
/// followed by a name.
const KNOWN: &[&str] = &[
    "aws:currenttime",
    "aws:epochtime",
    "aws:federatedprovider",
    "aws:multifactorauthage",
    "aws:multifactorauthpresent",
    "aws:principalaccount",
    "aws:principalarn",
    "aws:principaltype",
    "aws:referer",
    "aws:requestedregion",
    "aws:resourceaccount",
    "aws:securetransport",
    "aws:sourceip",
    "aws:tokenissuetime",
    "aws:useragent",
    "aws:userid",
    "aws:username",
    "s3:authtype",
    "s3:delimiter",
    "s3:existingobjecttag/",
    "s3:if-match",
    "s3:if-none-match",
    "s3:locationconstraint",
    "s3:max-keys",
    "s3:object-lock-legal-hold",
    "s3:object-lock-mode",
    "s3:object-lock-remaining-retention-days",
    "s3:object-lock-retain-until-date",
    "s3:prefix",
    "s3:requestobjecttag/",
    "s3:requestobjecttagkeys",
    "s3:resourceaccount",
    "s3:signatureage",
    "s3:signatureversion",
    "s3:versionid",
    "s3:x-amz-acl",
    "s3:x-amz-content-sha256",
    "s3:x-amz-copy-source",
    "s3:x-amz-grant-full-control",
    "s3:x-amz-grant-read",
    "s3:x-amz-grant-read-acp",
    "s3:x-amz-grant-write",
    "s3:x-amz-grant-write-acp",
    "s3:x-amz-metadata-directive",
    "s3:x-amz-server-side-encryption",
    "s3:x-amz-server-side-encryption-aws-kms-key-id",
    "s3:x-amz-server-side-encryption-customer-algorithm",
    "s3:x-amz-storage-class",
    "s3:x-amz-website-redirect-location",
    "sts:externalid",
    "sts:rolesessionname",
];

/// Whether gateways know what a condition key means.
pub fn is_known_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    KNOWN.iter().any(|known| match known.ends_with('/') {
        true => key.len() > known.len() && key.starts_with(known),
        false => key == *known,
    })
}

/// What conditions are decided on: the values of condition keys in a request.
#[derive(Clone, Debug, Default)]
pub struct Context {
    values: BTreeMap<String, Vec<String>>,
}

impl Context {
    /// Gives a key one value more.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.values.entry(key.to_ascii_lowercase()).or_default().push(value.into());
    }

    /// The values of a key, in any case.
    pub fn values(&self, key: &str) -> &[String] {
        self.values.get(&key.to_ascii_lowercase()).map(Vec::as_slice).unwrap_or_default()
    }
}

/// How one value of the request is compared with one of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equals,
    EqualsIgnoreCase,
    Like,
    Numeric(Order),
    Date(Order),
    Bool,
    Binary,
    Ip,
    Arn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    fn holds<T: PartialOrd>(self, left: &T, right: &T) -> bool {
        match self {
            Order::Equal => left == right,
            Order::Less => left < right,
            Order::LessOrEqual => left <= right,
            Order::Greater => left > right,
            Order::GreaterOrEqual => left >= right,
        }
    }
}

/// How the values of a key that may have several are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantifier {
    /// Keys with one value. With several, one that matches is enough.
    None,
    All,
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    /// The key has no value.
    Null,
    Compare {
        how: Comparison,
        is_negated: bool,
        if_exists: bool,
        quantifier: Quantifier,
    },
}

/// An operator, a key and the values that the key is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    test: Test,
    key: String,
    values: Vec<String>,
    is_known: bool,
}

impl Condition {
    /// Reads one; what is wrong with it if it is none.
    pub(super) fn parse(operator: &str, key: &str, values: Vec<String>) -> Result<Condition, String> {
        let test =
            parse_operator(operator).ok_or_else(|| format!("unknown condition operator {operator}"))?;
        if values.is_empty() {
            return Err(format!("the condition on {key} has no value"));
        }
        // Values with variables are not known before a request.
        for value in values.iter().filter(|value| !value.contains("${")) {
            check_value(test, value).map_err(|kind| format!("{value:?} is not {kind}"))?;
        }
        Ok(Condition { test, key: key.to_owned(), values, is_known: is_known_key(key) })
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Whether only some senders meet it. What is negated leaves all others.
    pub(super) fn limits_senders(&self) -> bool {
        let Test::Compare { is_negated: false, if_exists: false, quantifier, how } = self.test else {
            return false;
        };
        let key = self.key.to_ascii_lowercase();
        let is_wide = |value: &String| match how {
            Comparison::Ip => network(value).is_none_or(|network| network.bits == 0),
            _ => value.contains(['*', '?']),
        };
        let keys = ["aws:sourceip", "aws:principalarn", "aws:principalaccount", "aws:userid", "aws:username"];
        keys.contains(&&*key) && quantifier != Quantifier::All && !self.values.iter().any(is_wide)
    }

    /// Whether it holds. A key that the gateways do not know must not give access: a condition on it never
    /// holds for what allows, and always for what denies.
    pub(super) fn holds(&self, context: &Context, effect: Effect) -> bool {
        let values = context.values(&self.key);
        // Claims of identity providers are known where a token has them.
        if !self.is_known && values.is_empty() {
            return effect == Effect::Deny;
        }
        let (how, is_negated, if_exists, quantifier) = match self.test {
            Test::Null => {
                let is_absent = if values.is_empty() { "true" } else { "false" };
                return self.values.iter().any(|value| value.eq_ignore_ascii_case(is_absent));
            }
            Test::Compare { how, is_negated, if_exists, quantifier } => {
                (how, is_negated, if_exists, quantifier)
            }
        };
        if values.is_empty() {
            return match quantifier {
                Quantifier::All => true,
                Quantifier::Any => if_exists,
                Quantifier::None => if_exists || is_negated,
            };
        }
        let matches_any = |value: &String| {
            self.values.iter().any(|wanted| compare(how, value, wanted, context).unwrap_or(false))
        };
        let holds = |value: &String| matches_any(value) != is_negated;
        match (quantifier, is_negated) {
            // What must not be the case must not be the case for any of them.
            (Quantifier::All, _) | (Quantifier::None, true) => values.iter().all(holds),
            (Quantifier::Any, _) | (Quantifier::None, false) => values.iter().any(holds),
        }
    }
}

fn parse_operator(operator: &str) -> Option<Test> {
    let (quantifier, name) = match operator.split_once(':') {
        Some((prefix, name)) if prefix.eq_ignore_ascii_case("ForAllValues") => (Quantifier::All, name),
        Some((prefix, name)) if prefix.eq_ignore_ascii_case("ForAnyValue") => (Quantifier::Any, name),
        Some(_) => return None,
        None => (Quantifier::None, operator),
    };
    let name = name.to_ascii_lowercase();
    let (name, if_exists) = match name.strip_suffix("ifexists") {
        Some(name) => (name, true),
        None => (&*name, false),
    };
    use Comparison::{Arn, Binary, Bool, Date, Equals, EqualsIgnoreCase, Ip, Like, Numeric};
    use Order::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
    let (how, is_negated) = match name {
        "null" if !if_exists && quantifier == Quantifier::None => return Some(Test::Null),
        "stringequals" => (Equals, false),
        "stringnotequals" => (Equals, true),
        "stringequalsignorecase" => (EqualsIgnoreCase, false),
        "stringnotequalsignorecase" => (EqualsIgnoreCase, true),
        "stringlike" => (Like, false),
        "stringnotlike" => (Like, true),
        "numericequals" => (Numeric(Equal), false),
        "numericnotequals" => (Numeric(Equal), true),
        "numericlessthan" => (Numeric(Less), false),
        "numericlessthanequals" => (Numeric(LessOrEqual), false),
        "numericgreaterthan" => (Numeric(Greater), false),
        "numericgreaterthanequals" => (Numeric(GreaterOrEqual), false),
        "dateequals" => (Date(Equal), false),
        "datenotequals" => (Date(Equal), true),
        "datelessthan" => (Date(Less), false),
        "datelessthanequals" => (Date(LessOrEqual), false),
        "dategreaterthan" => (Date(Greater), false),
        "dategreaterthanequals" => (Date(GreaterOrEqual), false),
        "bool" => (Bool, false),
        "binaryequals" => (Binary, false),
        "ipaddress" => (Ip, false),
        "notipaddress" => (Ip, true),
        "arnequals" | "arnlike" => (Arn, false),
        "arnnotequals" | "arnnotlike" => (Arn, true),
        _ => return None,
    };
    Some(Test::Compare { how, is_negated, if_exists, quantifier })
}

/// What a value must be, if it is not.
fn check_value(test: Test, value: &str) -> Result<(), &'static str> {
    let how = match test {
        Test::Null => Comparison::Bool,
        Test::Compare { how, .. } => how,
    };
    let (is_good, kind) = match how {
        Comparison::Numeric(_) => (number(value).is_some(), "a number"),
        Comparison::Date(_) => (date(value).is_some(), "a date"),
        Comparison::Bool => (boolean(value).is_some(), "true or false"),
        Comparison::Ip => (network(value).is_some(), "an IP address or a range of them"),
        _ => (true, ""),
    };
    if is_good { Ok(()) } else { Err(kind) }
}

/// None if either is not what is compared.
fn compare(how: Comparison, value: &str, wanted: &str, context: &Context) -> Option<bool> {
    if how == Comparison::Like {
        return Some(is_like_in(wanted, value, context));
    }
    let wanted = expand(wanted, context)?;
    Some(match how {
        Comparison::Equals | Comparison::Binary => value == wanted,
        Comparison::EqualsIgnoreCase => value.to_lowercase() == wanted.to_lowercase(),
        Comparison::Like => false,
        Comparison::Numeric(order) => order.holds(&number(value)?, &number(&wanted)?),
        Comparison::Date(order) => order.holds(&date(value)?, &date(&wanted)?),
        Comparison::Bool => boolean(value)? == boolean(&wanted)?,
        Comparison::Ip => network(&wanted)?.contains(value.parse().ok()?),
        Comparison::Arn => is_arn_like(&wanted, value),
    })
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// Seconds since 1970.
fn date(text: &str) -> Option<f64> {
    if let Some(seconds) = number(text) {
        return Some(seconds);
    }
    let of_day = || OffsetDateTime::parse(&format!("{text}T00:00:00Z"), &Rfc3339).ok();
    let time = OffsetDateTime::parse(text, &Rfc3339).ok().or_else(of_day)?;
    Some(time.unix_timestamp_nanos() as f64 / 1e9)
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case("true") => Some(true),
        _ if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// The parts between colons are compared one by one, so that a wildcard stands for nothing beyond its part.
fn is_arn_like(pattern: &str, arn: &str) -> bool {
    let (patterns, parts): (Vec<&str>, Vec<&str>) =
        (pattern.splitn(6, ':').collect(), arn.splitn(6, ':').collect());
    match (patterns.len(), parts.len()) {
        (1, _) => is_like(pattern, arn),
        (left, right) => {
            left == right && patterns.iter().zip(parts).all(|(pattern, part)| is_like(pattern, part))
        }
    }
}

/// Addresses that begin with the same bits.
struct Network {
    address: IpAddr,
    bits: u32,
}

fn network(text: &str) -> Option<Network> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    Some(Network { address, bits: bits.unwrap_or(max) }).filter(|network| network.bits <= max)
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                (ours.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                (ours.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(operator: &str, key: &str, values: &[&str], have: &[&str]) -> bool {
        let mut context = Context::default();
        context.set("aws:username", "anna");
        for value in have {
            context.set(key, *value);
        }
        let values = values.iter().map(ToString::to_string).collect();
        Condition::parse(operator, key, values).unwrap().holds(&context, Effect::Allow)
    }

    #[test]
    fn every_operator_compares_its_kind_of_values() {
        let (prefix, size, when, ip) = ("s3:prefix", "s3:max-keys", "aws:CurrentTime", "aws:SourceIp");
        for (operator, key, wanted, have, expected) in [
            ("StringEquals", prefix, "a", "a", true),
            ("StringEquals", prefix, "a*", "ab", false),
            ("StringEquals", prefix, "${aws:username}", "anna", true),
            ("StringNotEquals", prefix, "a", "a", false),
            ("StringNotEquals", prefix, "a", "b", true),
            ("StringEqualsIgnoreCase", prefix, "A", "a", true),
            ("StringNotEqualsIgnoreCase", prefix, "A", "a", false),
            ("StringLike", prefix, "a*", "ab", true),
            ("StringLike", prefix, "${aws:username}/*", "anna/x", true),
            ("StringNotLike", prefix, "a*", "ab", false),
            ("NumericEquals", size, "10", "10.0", true),
            ("NumericNotEquals", size, "10", "10", false),
            ("NumericLessThan", size, "10", "9", true),
            ("NumericLessThan", size, "10", "10", false),
            ("NumericLessThanEquals", size, "10", "10", true),
            ("NumericGreaterThan", size, "10", "9", false),
            ("NumericGreaterThanEquals", size, "10", "10", true),
            ("NumericLessThan", size, "10", "many", false),
            ("DateLessThan", when, "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", true),
            ("DateGreaterThan", when, "2026-01-02", "2026-01-01T23:59:59.5Z", false),
            ("DateEquals", when, "1767225600", "2026-01-01T01:00:00+01:00", true),
            ("DateNotEquals", when, "1767225600", "2026-01-01T00:00:00Z", false),
            ("DateLessThanEquals", when, "2026-01-01", "2026-01-01T00:00:00Z", true),
            ("DateGreaterThanEquals", when, "2026-01-01", "2026-01-01T00:00:00Z", true),
            ("Bool", "aws:SecureTransport", "true", "TRUE", true),
            ("Bool", "aws:SecureTransport", "true", "false", false),
            ("BinaryEquals", prefix, "QUJD", "QUJD", true),
            ("IpAddress", ip, "10.1.0.0/16", "10.1.200.3", true),
            ("IpAddress", ip, "10.1.0.0/16", "10.2.0.1", false),
            ("IpAddress", ip, "0.0.0.0/0", "10.2.0.1", true),
            ("IpAddress", ip, "10.2.0.1", "::ffff:10.2.0.1", true),
            ("IpAddress", ip, "2001:db8::/32", "2001:db8:1::1", true),
            ("IpAddress", ip, "2001:db8::/32", "10.0.0.1", false),
            ("NotIpAddress", ip, "10.1.0.0/16", "10.1.200.3", false),
            ("ArnEquals", "aws:PrincipalArn", "arn:aws:iam::*:user/a*", "arn:aws:iam::t:user/anna", true),
            ("ArnLike", "aws:PrincipalArn", "arn:aws:iam::*", "arn:aws:iam::t:user/anna", false),
            ("ArnNotEquals", "aws:PrincipalArn", "arn:aws:iam::t:user/*", "arn:aws:iam::t:user/a", false),
            ("ArnNotLike", "aws:PrincipalArn", "arn:aws:iam::x:user/*", "arn:aws:iam::t:user/a", true),
            ("Null", prefix, "true", "a", false),
            ("Null", prefix, "false", "a", true),
        ] {
            assert_eq!(
                holds(operator, key, &[wanted], &[have]),
                expected,
                "{operator} {key} {wanted} {have}"
            );
        }
    }

    #[test]
    fn absent_keys_only_meet_what_is_negated_or_asks_for_it() {
        for (operator, expected) in [
            ("StringEquals", false),
            ("StringNotEquals", true),
            ("StringLikeIfExists", true),
            ("StringNotLikeIfExists", true),
            ("ForAllValues:StringEquals", true),
            ("ForAnyValue:StringEquals", false),
            ("ForAnyValue:StringNotEquals", false),
        ] {
            assert_eq!(holds(operator, "s3:prefix", &["a"], &[]), expected, "{operator}");
        }
        assert!(holds("Null", "s3:prefix", &["true"], &[]));
        assert!(holds("NumericLessThanIfExists", "s3:max-keys", &["10"], &["9"]));
        assert!(!holds("NumericLessThanIfExists", "s3:max-keys", &["10"], &["10"]));
    }

    #[test]
    fn sets_of_values_are_compared_as_sets() {
        let key = "s3:RequestObjectTagKeys";
        for (operator, have, expected) in [
            ("ForAllValues:StringEquals", &["a", "b"][..], true),
            ("ForAllValues:StringEquals", &["a", "c"], false),
            ("ForAnyValue:StringEquals", &["c", "b"], true),
            ("ForAnyValue:StringEquals", &["c"], false),
            ("ForAllValues:StringNotEquals", &["c", "d"], true),
            ("ForAllValues:StringNotEquals", &["c", "a"], false),
            ("ForAnyValue:StringNotEquals", &["c", "a"], true),
        ] {
            assert_eq!(holds(operator, key, &["a", "b"], have), expected, "{operator} {have:?}");
        }
    }

    #[test]
    fn unknown_keys_never_allow_and_always_deny() {
        for operator in ["StringEquals", "StringNotEquals", "StringLikeIfExists", "ForAllValues:StringLike"] {
            let condition = Condition::parse(operator, "aws:SourceVpc", vec!["v".into()]).unwrap();
            assert!(!condition.holds(&Context::default(), Effect::Allow), "{operator}");
            assert!(condition.holds(&Context::default(), Effect::Deny), "{operator}");
        }
        let null = Condition::parse("Null", "aws:SourceVpc", vec!["true".into()]).unwrap();
        assert!(!null.holds(&Context::default(), Effect::Allow));
        assert!(is_known_key("S3:ExistingObjectTag/colour") && !is_known_key("s3:ExistingObjectTag/"));
    }

    #[test]
    fn conditions_that_mean_nothing_are_refused() {
        for (operator, value) in [
            ("StringSounds", "a"),
            ("ForSome:StringEquals", "a"),
            ("NullIfExists", "true"),
            ("NumericEquals", "a"),
            ("DateEquals", "yesterday"),
            ("Bool", "maybe"),
            ("IpAddress", "10.0.0.0/33"),
            ("IpAddress", "here"),
        ] {
            assert!(Condition::parse(operator, "s3:prefix", vec![value.into()]).is_err(), "{operator}");
        }
        assert!(Condition::parse("StringEquals", "s3:prefix", Vec::new()).is_err());
        assert!(Condition::parse("NumericEquals", "s3:max-keys", vec!["${s3:prefix}".into()]).is_ok());
    }
}
