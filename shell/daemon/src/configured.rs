//! Options in the monitors' configuration that an OSD has to know before it starts.

use crate::ask::{self, Access};
use serde_json::{Value, json};
use std::time::Duration;

/// Monitors that do not answer by then may be starting as well: the OSD's own configuration counts.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// None where nothing is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    pub public_network: Option<String>,
    pub cluster_network: Option<String>,
    /// Bytes: `osd_memory_target`.
    pub memory: Option<u64>,
}

impl Configured {
    pub fn ask(access: &Access, id: u32) -> Configured {
        let words = json!({ "prefix": "config get", "who": format!("osd.{id}"), "format": "json" });
        let answer = ask::command(&access.connect(), &words, ASK_TIMEOUT);
        answer.map(|answer| Configured::read(&answer)).unwrap_or_default()
    }

    fn read(answer: &[u8]) -> Configured {
        let options: Value = serde_json::from_slice(answer).unwrap_or_default();
        let option = |name: &str| options[name]["value"].as_str().filter(|value| !value.is_empty());
        Configured {
            public_network: option("public_network").map(String::from),
            cluster_network: option("cluster_network").map(String::from),
            memory: option("osd_memory_target").and_then(|value| value.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_set_are_read() {
        let answer = br#"{"osd_memory_target": {"value": "1073741824", "section": "osd"}, "cluster_network": {"value": ""}}"#;
        let expected = Configured { memory: Some(1 << 30), ..Configured::default() };
        assert_eq!(Configured::read(answer), expected);
        assert_eq!(Configured::read(b"nonsense"), Configured::default());
    }
}
