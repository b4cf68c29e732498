//! The policy document of a form with which a browser uploads an object: what the form's fields may be, and
//! until when. Any browser with the form uploads with the rights of its signer.

use serde_json::Value;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The most bytes of a document, in base64.
const POLICY_MAX: usize = 64 << 10;
/// The most conditions of a document.
const CONDITIONS_MAX: usize = 1000;
/// What needs no condition: what the document itself is, and what is not for the gateway.
const FREE: [&str; 3] = ["policy", "x-amz-signature", "file"];
const IGNORED: &str = "x-ignore-";
const BUCKET: &str = "bucket";

/// Why a document is not one, or a form does not fit it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadForm {
    /// The document means nothing.
    #[error("Invalid Policy: {0}")]
    Malformed(&'static str),
    /// The form is good no longer.
    #[error("Invalid according to Policy: Policy expired.")]
    Expired,
    /// A condition of the document does not hold.
    #[error("Invalid according to Policy: Policy Condition failed: {0}")]
    Condition(String),
    /// The form has a field about which the document says nothing.
    #[error("Invalid according to Policy: Extra input fields: {0}")]
    Extra(String),
}

/// A condition on a field, whose name is in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Is { field: String, value: String },
    Begins { field: String, with: String },
}

impl Condition {
    fn field(&self) -> &str {
        match self {
            Condition::Is { field, .. } | Condition::Begins { field, .. } => field,
        }
    }

    fn holds(&self, found: Option<&str>) -> bool {
        match self {
            Condition::Is { value, .. } => found == Some(value),
            // A list of types is as good as each of them.
            Condition::Begins { field, with } if field == "content-type" => {
                found.unwrap_or_default().split(',').all(|part| part.trim_start().starts_with(with.as_str()))
            }
            Condition::Begins { with, .. } => found.unwrap_or_default().starts_with(with.as_str()),
        }
    }

    fn text(&self) -> String {
        let (how, field, value) = match self {
            Condition::Is { field, value } => ("eq", field, value),
            Condition::Begins { field, with } => ("starts-with", field, with),
        };
        Value::from(vec![how, &format!("${field}"), value]).to_string()
    }
}

/// How many bytes a file may have: from the first to the last number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSize {
    pub min: u64,
    pub max: u64,
}

impl FileSize {
    /// Any.
    pub const ANY: FileSize = FileSize { min: 0, max: u64::MAX };
}

/// A document that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormPolicy {
    /// Milliseconds since 1970.
    until: i128,
    conditions: Vec<Condition>,
    size: FileSize,
}

impl FormPolicy {
    /// From its JSON, after base64. A document that has what this does not know is refused: it may be meant
    /// to limit something.
    pub fn parse(text: &[u8]) -> Result<FormPolicy, BadForm> {
        let bad = BadForm::Malformed;
        if text.len() > POLICY_MAX {
            return Err(bad("the document is too large."));
        }
        let document: Value = serde_json::from_slice(text).map_err(|_| bad("Invalid JSON."))?;
        let document = document.as_object().ok_or(bad("the document is no object."))?;
        let (mut until, mut listed) = (None, None);
        for (name, value) in document {
            match name.to_ascii_lowercase().as_str() {
                "expiration" => until = Some(time_of(value).ok_or(bad("Invalid 'expiration' value."))?),
                "conditions" => listed = Some(value.as_array().ok_or(bad("Invalid 'conditions' value."))?),
                _ => return Err(bad("Unexpected name at the top of the document.")),
            }
        }
        let until = until.ok_or(bad("Policy missing expiration."))?;
        let listed = listed.ok_or(bad("Policy missing conditions."))?;
        let mut policy = FormPolicy { until, conditions: Vec::new(), size: FileSize::ANY };
        for condition in listed {
            policy.add(condition)?;
            if policy.conditions.len() > CONDITIONS_MAX {
                return Err(bad("there are too many conditions."));
            }
        }
        Ok(policy)
    }

    fn add(&mut self, condition: &Value) -> Result<(), BadForm> {
        const BAD: BadForm = BadForm::Malformed("Invalid Condition: not a known one.");
        if let Some(pairs) = condition.as_object() {
            for (name, value) in pairs {
                let value = text_of(value).ok_or(BAD)?;
                self.conditions.push(Condition::Is { field: name.to_ascii_lowercase(), value });
            }
            return Ok(());
        }
        let parts = condition.as_array().map(Vec::as_slice);
        let Some([how, second, third]) = parts else { return Err(BAD) };
        let how = how.as_str().ok_or(BAD)?.to_ascii_lowercase();
        if how == "content-length-range" {
            let (min, max) = (number_of(second).ok_or(BAD)?, number_of(third).ok_or(BAD)?);
            // All that are given hold.
            self.size = FileSize { min: self.size.min.max(min), max: self.size.max.min(max) };
            return Ok(());
        }
        let field = second.as_str().and_then(|name| name.strip_prefix('$')).ok_or(BAD)?.to_ascii_lowercase();
        let value = text_of(third).ok_or(BAD)?;
        self.conditions.push(match how.as_str() {
            "eq" => Condition::Is { field, value },
            "starts-with" => Condition::Begins { field, with: value },
            _ => return Err(BAD),
        });
        Ok(())
    }

    /// Whether a form with these fields, by their names in lower case, is good for this bucket at a time in
    /// milliseconds since 1970; then how many bytes the file may have. Fields are compared as they are after
    /// `${filename}` was replaced.
    pub fn check(
        &self,
        fields: &BTreeMap<String, String>,
        bucket: &str,
        now: u64,
    ) -> Result<FileSize, BadForm> {
        if self.until <= i128::from(now) {
            return Err(BadForm::Expired);
        }
        for condition in &self.conditions {
            let found = match condition.field() {
                BUCKET => Some(bucket),
                field => fields.get(field).map(String::as_str),
            };
            if !condition.holds(found) {
                return Err(BadForm::Condition(condition.text()));
            }
        }
        let is_named = |field: &str| self.conditions.iter().any(|condition| condition.field() == field);
        let is_free = |field: &str| FREE.contains(&field) || field.starts_with(IGNORED);
        match fields.keys().find(|field| !is_free(field) && !is_named(field)) {
            Some(field) => Err(BadForm::Extra(field.clone())),
            None => Ok(self.size),
        }
    }
}

/// Numbers are taken for their text, as `{"success_action_status": 201}` is usual.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn number_of(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn time_of(value: &Value) -> Option<i128> {
    let time = OffsetDateTime::parse(value.as_str()?, &Rfc3339).ok()?;
    Some(time.unix_timestamp_nanos() / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"expiration": "2030-01-01T00:00:00.000Z", "conditions": [
        {"bucket": "photos"}, ["starts-with", "$key", "user/anna/"], {"acl": "public-read"},
        ["eq", "$success_action_status", 201], ["starts-with", "$Content-Type", "image/"],
        ["content-length-range", 10, "100"], {"x-amz-date": "20260102T030405Z"}]}"#;
    const BEFORE: u64 = 1_800_000_000_000;

    fn fields(others: &[(&str, &str)]) -> BTreeMap<String, String> {
        let good = [
            ("key", "user/anna/a.png"),
            ("acl", "public-read"),
            ("success_action_status", "201"),
            ("content-type", "image/png"),
            ("x-amz-date", "20260102T030405Z"),
            ("policy", "..."),
            ("x-amz-signature", "..."),
            ("x-ignore-me", "..."),
        ];
        let all = good.iter().chain(others);
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn forms_fit_all_conditions_and_nothing_else() {
        let policy = FormPolicy::parse(DOCUMENT.as_bytes()).unwrap();
        let check = |others: &[(&str, &str)]| policy.check(&fields(others), "photos", BEFORE);
        assert_eq!(check(&[]), Ok(FileSize { min: 10, max: 100 }));
        assert_eq!(check(&[("content-type", "image/png, image/jpeg")]).map(drop), Ok(()));
        for (name, value) in [
            ("key", "user/bert/a.png"),
            ("acl", "private"),
            ("success_action_status", "200"),
            ("content-type", "image/png,text/html"),
            ("x-amz-date", ""),
        ] {
            let failed = check(&[(name, value)]).unwrap_err();
            assert!(matches!(&failed, BadForm::Condition(text) if text.contains(name)), "{name}: {failed}");
        }
        let extra = check(&[("x-amz-meta-a", "1")]);
        assert_eq!(extra, Err(BadForm::Extra("x-amz-meta-a".into())));
        assert!(policy.check(&fields(&[]), "other", BEFORE).is_err());
        let end = 1_893_456_000_000;
        assert_eq!(policy.check(&fields(&[]), "photos", end), Err(BadForm::Expired));
        assert!(policy.check(&fields(&[]), "photos", end - 1).is_ok());
        let mut without = fields(&[]);
        without.remove("acl");
        let failed = policy.check(&without, "photos", BEFORE).unwrap_err();
        let told = r#"Invalid according to Policy: Policy Condition failed: ["eq","$acl","public-read"]"#;
        assert_eq!(failed.to_string(), told);
    }

    #[test]
    fn documents_that_could_mean_something_else_are_refused() {
        let with = |conditions: &str| {
            let text = format!(r#"{{"expiration":"2030-01-01T00:00:00Z","conditions":{conditions}}}"#);
            FormPolicy::parse(text.as_bytes())
        };
        assert!(with("[]").is_ok());
        for bad in [
            "{}",
            "[1]",
            r#"["eq"]"#,
            r#"[["eq","key","a"]]"#,
            r#"[["ends-with","$key","a"]]"#,
            r#"[["eq","$key",null]]"#,
            r#"[["content-length-range",-1,2]]"#,
            r#"[["content-length-range",1]]"#,
            r#"[{"key":[]}]"#,
            &format!("[{}{{}}]", r#"{"a":"b"},"#.repeat(CONDITIONS_MAX + 1)),
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
        for bad in [
            "",
            "[]",
            r#"{"conditions":[]}"#,
            r#"{"expiration":"2030-01-01T00:00:00Z"}"#,
            r#"{"expiration":"soon","conditions":[]}"#,
            r#"{"expiration":"2030-01-01T00:00:00Z","conditions":[],"more":1}"#,
        ] {
            assert!(FormPolicy::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let range = r#"[["content-length-range",1,50],["content-length-range",0,20]]"#;
        assert_eq!(with(range).unwrap().size, FileSize { min: 1, max: 20 });
    }
}
