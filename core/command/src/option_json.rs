//! What is known of an option, as JSON.

use nacre_options::{Kind, Opt, Value as OptValue};
use serde_json::{Value, json};

/// As `config help` shows an option as JSON.
pub fn option_json(option: &Opt) -> Value {
    let value = |value: &OptValue| match value {
        OptValue::Int(n) => json!(n),
        // Ceph prints sizes and times as text.
        OptValue::Uint(n) if option.kind == Kind::Uint => json!(n),
        OptValue::Uint(n) => json!(n.to_string()),
        OptValue::Float(x) if x.fract() == 0.0 && x.abs() < 1e15 => json!(*x as i64),
        OptValue::Float(x) => json!(x),
        OptValue::Bool(b) => json!(b),
        OptValue::Text(text) => json!(text),
    };
    let or_empty = |limit: &Option<OptValue>| limit.as_ref().map_or(json!(""), value);
    let mut fields = json!({
        "name": option.name,
        "type": option.kind.name(),
        "level": option.level,
        "desc": option.description(),
        "long_desc": "",
        "default": value(&option.default),
        "daemon_default": or_empty(&option.daemon_default),
        "tags": option.tags,
        "services": option.services,
        "see_also": option.see_also,
    });
    let object = fields.as_object_mut().expect("just made");
    if option.kind.name() == "str" {
        object.insert("enum_values".to_string(), json!(option.choices));
    }
    object.insert("min".to_string(), or_empty(&option.min));
    object.insert("max".to_string(), or_empty(&option.max));
    object.insert("can_update_at_runtime".to_string(), json!(option.runtime));
    object.insert("flags".to_string(), json!(option.flags));
    fields
}
