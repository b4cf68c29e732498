//! The arguments of a command: values in a JSON object, often as text though they are numbers.

use super::{Refusal, refuse};
use nacre_base::{OsdId, PgId, PoolId, errno};
use nacre_proto::maps::OsdMap;
use serde_json::{Map, Value};

pub struct Args<'a>(&'a Map<String, Value>);

impl<'a> Args<'a> {
    pub fn new(args: &'a Map<String, Value>) -> Args<'a> {
        Args(args)
    }

    fn bad(name: &str) -> Refusal {
        refuse(errno::EINVAL, format!("bad or missing field '{name}'"))
    }

    pub fn text_opt(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(n) => Some(n.to_string()),
            Value::Bool(b) => Some(b.to_string()),
            _ => None,
        }
    }
    pub fn text(&self, name: &str) -> Result<String, Refusal> {
        self.text_opt(name).ok_or_else(|| Self::bad(name))
    }
    pub fn int_opt(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.text_opt(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Self::bad(name))
    }
    pub fn int(&self, name: &str) -> Result<i64, Refusal> {
        self.int_opt(name)?.ok_or_else(|| Self::bad(name))
    }
    pub fn float_opt(&self, name: &str) -> Result<Option<f64>, Refusal> {
        let Some(text) = self.text_opt(name) else { return Ok(None) };
        text.parse().ok().filter(|x: &f64| x.is_finite()).map(Some).ok_or_else(|| Self::bad(name))
    }
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

    pub fn osd(&self, name: &str) -> Result<OsdId, Refusal> {
        parse_osd(&self.text(name)?).ok_or_else(|| Self::bad(name))
    }
    pub fn pg(&self, name: &str) -> Result<PgId, Refusal> {
        let text = self.text(name)?;
        text.parse().map_err(|()| refuse(errno::EINVAL, format!("invalid pgid '{text}'")))
    }
    /// A pool by its name, or by its number for those who like that.
    pub fn pool(&self, name: &str, map: &OsdMap) -> Result<PoolId, Refusal> {
        let text = self.text(name)?;
        map.pool_by_name(&text).ok_or_else(|| refuse(errno::ENOENT, format!("unrecognized pool '{text}'")))
    }
    pub fn osds(&self, name: &str) -> Result<Vec<OsdId>, Refusal> {
        self.list(name).iter().map(|text| parse_osd(text).ok_or_else(|| Self::bad(name))).collect()
    }
}

/// `osd.3` or `3`.
pub fn parse_osd(text: &str) -> Option<OsdId> {
    let digits = text.strip_prefix("osd.").unwrap_or(text);
    digits.parse().ok().filter(|&n: &i32| n >= 0).map(OsdId)
}
