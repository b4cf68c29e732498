//! The fields of a form.

use super::invalid;
use crate::listing::url_pairs;
use s3s::S3Result;
use std::collections::BTreeMap;

/// The most fields that are looked at.
const FIELDS_MAX: usize = 1000;

/// Names and values.
#[derive(Clone, Debug, Default)]
pub struct Form(BTreeMap<String, String>);

impl Form {
    /// From a body. Of a name that is there twice, the last value counts.
    pub fn parse(body: &[u8]) -> Form {
        let text = String::from_utf8_lossy(body);
        Form(url_pairs(&text).take(FIELDS_MAX).collect())
    }

    /// A value that may be missing. One that is empty is missing.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All names and values.
    pub fn fields(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// A value that must be there.
    pub fn need(&self, name: &str) -> S3Result<&str> {
        self.get(name).ok_or_else(|| invalid(&format!("{name} is missing")))
    }

    /// A number that may be missing.
    pub fn number(&self, name: &str) -> S3Result<Option<u32>> {
        let parse =
            |text: &str| text.parse().map_err(|_| invalid(&format!("{name} is a number, not {text:?}")));
        self.get(name).map(parse).transpose()
    }

    /// The values of `NAME.member.1`, `NAME.member.2` and so on.
    pub fn list(&self, name: &str) -> Vec<&str> {
        (1..).map_while(|at| self.get(&format!("{name}.member.{at}"))).collect()
    }

    /// Whether a name begins so.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.0.keys().any(|name| name.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded() {
        let form = Form::parse(b"Action=A&RoleArn=arn%3Aaws&X=a+b&Empty=&L.member.1=x&L.member.2=y&N=7&bad");
        assert_eq!((form.get("RoleArn"), form.get("X")), (Some("arn:aws"), Some("a b")));
        assert!(form.get("Empty").is_none() && form.need("Empty").is_err() && form.get("bad").is_none());
        assert_eq!(form.list("L"), ["x", "y"]);
        assert!(form.has_prefix("L.member.") && !form.has_prefix("M."));
        assert_eq!((form.number("N").unwrap(), form.number("M").unwrap()), (Some(7), None));
        assert!(form.number("X").is_err());
    }
}
