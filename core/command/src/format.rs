//! Formats of a command's output.

use crate::{Args, Refusal, refuse};
use nacre_base::errno::EOPNOTSUPP;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::PrettyFormatter;

/// What `format` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Plain,
    Json,
    JsonPretty,
}

impl Format {
    /// The format that the command asks for.
    pub fn of(args: Args<'_>) -> Result<Format, Refusal> {
        match args.str("format") {
            "" | "plain" => Ok(Format::Plain),
            "json" => Ok(Format::Json),
            "json-pretty" => Ok(Format::JsonPretty),
            other => Err(refuse(
                EOPNOTSUPP,
                format!("format '{other}' is not implemented: use json or json-pretty"),
            )),
        }
    }

    /// The value as JSON, which is also the plain form. Indented JSON ends its line; JSON without blanks ends
    /// with `compact_end`, which differs between daemons.
    pub fn json(self, value: &Value, compact_end: &str) -> String {
        match self {
            Format::Json => to_json(value, false) + compact_end,
            Format::Plain | Format::JsonPretty => to_json(value, true) + "\n",
        }
    }
}

/// One line, or indented by four spaces as Ceph does.
pub fn to_json(value: &Value, pretty: bool) -> String {
    if !pretty {
        return value.to_string();
    }
    let mut out = Vec::new();
    let mut serializer =
        serde_json::Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(b"    "));
    value.serialize(&mut serializer).expect("writing to memory cannot fail");
    String::from_utf8(out).expect("JSON is text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn of(format: Value) -> Result<Format, Refusal> {
        let args = Map::from_iter([("format".to_string(), format)]);
        Format::of(Args::new(&args))
    }

    #[test]
    fn a_format_is_plain_by_default_and_unknown_ones_are_refused() {
        assert_eq!(Format::of(Args::new(&Map::new())), Ok(Format::Plain));
        assert_eq!([of(json!("")), of(json!("plain"))], [Ok(Format::Plain), Ok(Format::Plain)]);
        assert_eq!(of(json!("json-pretty")), Ok(Format::JsonPretty));
        assert_eq!(of(json!("xml")).unwrap_err().code, EOPNOTSUPP);
    }

    #[test]
    fn indented_json_ends_its_line_and_compact_json_as_the_daemon_wants() {
        let value = json!({ "a": [1] });
        let pretty = "{\n    \"a\": [\n        1\n    ]\n}\n";
        assert_eq!([Format::Plain, Format::JsonPretty].map(|format| format.json(&value, "")), [pretty; 2]);
        assert_eq!(["", "\n"].map(|end| Format::Json.json(&value, end)), ["{\"a\":[1]}", "{\"a\":[1]}\n"]);
    }
}
