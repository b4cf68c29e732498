//! Answers that are the same for daemons of all kinds: the version, and what is known of options.

use crate::{Args, CEPH_RELEASE, CEPH_VERSION_SHORT, NACRE_VERSION, Refusal, option_json};
use nacre_options::{Opt, find, no_such};
use serde_json::{Map, Value, json};

/// The answer to `version`.
pub fn version() -> Value {
    json!({
        "version": CEPH_VERSION_SHORT,
        "release": CEPH_RELEASE,
        "release_type": "stable",
        "nacre_version": NACRE_VERSION,
    })
}

/// The option that the argument `var` names.
pub fn option_of(args: Args<'_>) -> Result<&'static Opt, Refusal> {
    let name = args.text("var")?;
    find(&name).ok_or_else(|| no_such(&name).into())
}

/// The answer to `config help`: one option, or all of them.
pub fn config_help(args: Args<'_>) -> Result<Value, Refusal> {
    match args.str("var") {
        "" => Ok(nacre_options::all().iter().map(option_json).collect()),
        _ => Ok(option_json(option_of(args)?)),
    }
}

/// One option in the answer to `config diff`: its default, what sets it, from the weakest source to the
/// strongest, and the value that results.
pub fn option_diff<const N: usize>(
    default: String,
    sources: [(&str, Option<String>); N],
    value: String,
) -> Value {
    let set = sources.into_iter().filter_map(|(source, text)| Some((source, text?)));
    let all = [("default", default)].into_iter().chain(set).chain([("final", value)]);
    Value::Object(all.map(|(source, text)| (source.to_string(), json!(text))).collect::<Map<_, _>>())
}
