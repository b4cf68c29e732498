//! What a client asks a daemon to do in words: one JSON object.

use serde_json::{Map, Value};

/// The object, or what is wrong with it. The tool sends one string; libraries may send it in pieces.
pub fn parse(cmd: &[String]) -> Result<Map<String, Value>, String> {
    let text = cmd.concat();
    // What comes after the value does not count: `rbd perf image iostat` sends a stray quote.
    match serde_json::Deserializer::from_str(&text).into_iter().next() {
        Some(Ok(Value::Object(words))) => Ok(words),
        Some(Ok(_)) => Err(format!("not JSON object {text}")),
        _ => Err(format!("unparseable JSON {text}")),
    }
}
