//! Formats of a command's output.

use crate::Args;
use crate::layout::{End, Layout};
use crate::xml::to_xml;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::PrettyFormatter;

/// What `format` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Plain,
    Json,
    JsonPretty,
    Xml,
    XmlPretty,
}

impl Format {
    /// The format that the command asks for. One that there is no formatter for is like none, as in Ceph:
    /// also `yaml`, which only a few modules of Ceph's manager know.
    pub fn of(args: Args<'_>) -> Format {
        match args.str("format") {
            "json" => Format::Json,
            "json-pretty" => Format::JsonPretty,
            "xml" => Format::Xml,
            "xml-pretty" => Format::XmlPretty,
            _ => Format::Plain,
        }
    }

    /// The same for a command that is laid out so: modules of the manager know no XML.
    pub fn for_layout(self, layout: &Layout) -> Format {
        match (self, layout.end) {
            (Format::Xml | Format::XmlPretty, End::Module) => Format::Plain,
            _ => self,
        }
    }

    /// The value in this format. Indented JSON is the plain form, too.
    pub fn render(self, value: &Value, layout: &Layout) -> String {
        let text = match (self, layout.end) {
            (_, End::Compact) => to_json(value, false),
            (_, End::Module) => to_json(value, true) + "\n",
            (Format::Json, _) => to_json(value, false),
            (Format::Plain | Format::JsonPretty, _) => to_json(value, true) + "\n",
            (Format::Xml, _) => to_xml(value, layout, false),
            (Format::XmlPretty, _) => to_xml(value, layout, true) + "\n",
        };
        layout.end.apply(text)
    }
}

/// One line, or indented by four spaces as Ceph does.
fn to_json(value: &Value, pretty: bool) -> String {
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

    fn of(format: Value) -> Format {
        let args = Map::from_iter([("format".to_string(), format)]);
        Format::of(Args::new(&args))
    }

    #[test]
    fn a_format_is_plain_by_default_and_if_there_is_no_formatter_for_it() {
        assert_eq!(Format::of(Args::new(&Map::new())), Format::Plain);
        assert_eq!(["", "plain", "yaml", "nosuch"].map(|name| of(json!(name))), [Format::Plain; 4]);
        assert_eq!(of(json!("json-pretty")), Format::JsonPretty);
        assert_eq!([of(json!("xml")), of(json!("xml-pretty"))], [Format::Xml, Format::XmlPretty]);
    }

    /// As recorded from Ceph 16.2.15.
    #[test]
    fn output_ends_as_the_command_ends_it() {
        let value = json!({ "a": [1] });
        let render = |layout: &Layout| {
            [Format::Plain, Format::Json, Format::Xml, Format::XmlPretty].map(|f| f.render(&value, layout))
        };
        let pretty = "{\n    \"a\": [\n        1\n    ]\n}\n";
        let xml = |root: &str| format!("<{root}>\n <a>\n  <a>1</a>\n </a>\n</{root}>\n");
        let flush = Layout::of_cluster("mgr stat");
        assert_eq!(
            render(&flush),
            [pretty, "{\"a\":[1]}", "<stat><a><a>1</a></a></stat>", &(xml("stat") + "\n")]
        );
        let lines = Layout::of_cluster("osd dump");
        assert_eq!(
            render(&lines),
            [pretty, "{\"a\":[1]}\n", "<osdmap><a><a>1</a></a></osdmap>\n", &xml("osdmap")]
        );
        let newline = Layout::of_cluster("osd pool get-quota");
        assert_eq!(
            render(&newline),
            [
                &*format!("{pretty}\n"),
                "{\"a\":[1]}\n",
                "<pool_quotas><a><a>1</a></a></pool_quotas>\n",
                &(xml("pool_quotas") + "\n\n")
            ]
        );
        assert_eq!(render(&Layout::of_cluster("balancer status")), [pretty; 4]);
        assert_eq!(render(&Layout::of_cluster("pg dump_json")), ["{\"a\":[1]}"; 4]);
    }
}
