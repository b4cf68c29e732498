//! The arguments of a command: values in a JSON object, often as text though they are numbers.

use crate::{Refusal, refuse};
use nacre_base::{OsdId, PgId, PoolId, errno};
use nacre_proto::maps::OsdMap;
use serde_json::{Map, Value};

/// The fields of a command's object.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a Map<String, Value>);

impl<'a> Args<'a> {
    pub fn new(args: &'a Map<String, Value>) -> Args<'a> {
        Args(args)
    }

    /// What the command is called.
    pub fn prefix(&self) -> Option<&'a str> {
        self.0.get("prefix")?.as_str()
    }
    /// The text as it was sent; empty if there is none.
    pub fn str(&self, name: &str) -> &'a str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn bad(name: &str) -> Refusal {
        refuse(errno::EINVAL, format!("bad or missing field '{name}'"))
    }

    /// Text, or a number or truth value as text.
    pub fn text_opt(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(n) => Some(n.to_string()),
            Value::Bool(b) => Some(b.to_string()),
            _ => None,
        }
    }
    /// Like `text_opt`, but required.
    pub fn text(&self, name: &str) -> Result<String, Refusal> {
        self.text_opt(name).ok_or_else(|| Self::bad(name))
    }
    /// A whole number, also if it was sent as text.
    pub fn int_opt(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.text_opt(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Self::bad(name))
    }
    /// Like `int_opt`, but required.
    pub fn int(&self, name: &str) -> Result<i64, Refusal> {
        self.int_opt(name)?.ok_or_else(|| Self::bad(name))
    }
    /// A finite number, also if it was sent as text.
    pub fn float_opt(&self, name: &str) -> Result<Option<f64>, Refusal> {
        let Some(text) = self.text_opt(name) else { return Ok(None) };
        text.parse().ok().filter(|x: &f64| x.is_finite()).map(Some).ok_or_else(|| Self::bad(name))
    }
    /// Like `float_opt`, but required.
    pub fn float(&self, name: &str) -> Result<f64, Refusal> {
        self.float_opt(name)?.ok_or_else(|| Self::bad(name))
    }
    /// `--yes-i-really-mean-it` and the like.
    pub fn flag(&self, name: &str) -> bool {
        matches!(
            self.text_opt(name).as_deref(),
            Some("true" | "--yes-i-really-mean-it" | "--yes-i-really-really-mean-it")
        )
    }
    /// Repeated values; a single one will do.
    pub fn list(&self, name: &str) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match self.0.get(name) {
            None => Vec::new(),
            Some(Value::Array(values)) => values.iter().map(text).collect(),
            Some(one) => vec![text(one)],
        }
    }

    /// `osd.3`, `3` or the number 3.
    pub fn osd(&self, name: &str) -> Result<OsdId, Refusal> {
        parse_osd(&self.text(name)?).ok_or_else(|| Self::bad(name))
    }
    /// A placement group, as `2.1f`.
    pub fn pg(&self, name: &str) -> Result<PgId, Refusal> {
        let text = self.text(name)?;
        text.parse().map_err(|()| refuse(errno::EINVAL, format!("invalid pgid '{text}'")))
    }
    /// A pool by its name, or by its number for those who like that.
    pub fn pool(&self, name: &str, map: &OsdMap) -> Result<PoolId, Refusal> {
        let text = self.text(name)?;
        map.pool_by_name(&text).ok_or_else(|| refuse(errno::ENOENT, format!("unrecognized pool '{text}'")))
    }
    /// Repeated OSDs, each as in `osd`.
    pub fn osds(&self, name: &str) -> Result<Vec<OsdId>, Refusal> {
        self.list(name).iter().map(|text| parse_osd(text).ok_or_else(|| Self::bad(name))).collect()
    }
}

/// `osd.3` or `3`.
pub fn parse_osd(text: &str) -> Option<OsdId> {
    let digits = text.strip_prefix("osd.").unwrap_or(text);
    digits.parse().ok().filter(|&n: &i32| n >= 0).map(OsdId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_read_as_text_or_numbers_and_bad_ones_are_named() {
        let json = json!({ "prefix": "x", "n": "12", "m": 7, "val": ["a", 1], "osd": "osd.3", "bad": "x" });
        let args = Args::new(json.as_object().unwrap());
        assert_eq!(
            (args.prefix(), args.str("n"), args.str("m"), args.str("none")),
            (Some("x"), "12", "", "")
        );
        assert_eq!([args.int("n"), args.int("m")], [Ok(12), Ok(7)]);
        assert_eq!((args.text("m"), args.int_opt("none")), (Ok("7".to_string()), Ok(None)));
        assert_eq!((args.list("val"), args.list("n")), (vec!["a".into(), "1".into()], vec!["12".into()]));
        assert_eq!(args.osd("osd"), Ok(OsdId(3)));
        let bad = |name: &str| refuse(errno::EINVAL, format!("bad or missing field '{name}'"));
        assert_eq!((args.int("bad"), args.text("none")), (Err(bad("bad")), Err(bad("none"))));
        assert_eq!(args.pg("bad"), Err(refuse(errno::EINVAL, "invalid pgid 'x'")));
    }
}
