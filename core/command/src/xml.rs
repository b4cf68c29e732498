//! A value as XML, as Ceph's formatter writes it.
//!
//! Each value is an element that is called like its key. An array is an element with one for each of its
//! values. Names are not made valid: where Ceph puts hosts or versions into keys, its XML has elements
//! with such names.

use crate::Layout;
use serde_json::Value;

/// The value as XML, on one line or indented by one blank for each level.
pub(crate) fn to_xml(value: &Value, layout: &Layout, pretty: bool) -> String {
    let mut writer = Writer { out: String::new(), pretty, layout };
    writer.element(&layout.root, value, &mut Vec::new(), 0);
    writer.out
}

struct Writer<'a> {
    out: String,
    pretty: bool,
    layout: &'a Layout,
}

impl Writer<'_> {
    fn element<'v>(&mut self, name: &str, value: &'v Value, path: &mut Vec<&'v str>, depth: usize) {
        let name = name.replace(' ', "_");
        self.indent(depth);
        self.out += &format!("<{name}>");
        match value {
            Value::Object(fields) => {
                self.end_line();
                for (key, value) in fields {
                    path.push(key);
                    self.element(key, value, path, depth + 1);
                    path.pop();
                }
                self.indent(depth);
            }
            Value::Array(values) => {
                self.end_line();
                let element = self.layout.element(path).into_owned();
                for value in values {
                    self.element(&element, value, path, depth + 1);
                }
                self.indent(depth);
            }
            Value::Null => {}
            Value::String(text) => self.out += &escaped(text),
            value => self.out += &value.to_string(),
        }
        self.out += &format!("</{name}>");
        self.end_line();
    }

    fn indent(&mut self, depth: usize) {
        if self.pretty {
            self.out += &" ".repeat(depth);
        }
    }
    fn end_line(&mut self) {
        if self.pretty {
            self.out.push('\n');
        }
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '\'' => out += "&apos;",
            '"' => out += "&quot;",
            c if (c < ' ' && c != '\n' && c != '\t') || c == '\u{7f}' => {
                out += &format!("&#x{:02x};", c as u32)
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arrays_have_named_elements_and_text_is_escaped() {
        let value =
            json!({ "quorum": [0, 2], "name of": "a<b>&'\"\u{1}", "on": true, "none": [], "ratio": 0.5 });
        let layout = Layout::of_cluster("quorum_status");
        assert_eq!(
            to_xml(&value, &layout, false),
            "<quorum_status><quorum><mon>0</mon><mon>2</mon></quorum>\
             <name_of>a&lt;b&gt;&amp;&apos;&quot;&#x01;</name_of><on>true</on><none></none><ratio>0.5</ratio></quorum_status>"
        );
    }

    #[test]
    fn indented_xml_has_a_line_for_each_element_and_two_for_sections() {
        let layout = Layout::of_cluster("osd ls");
        let expected = "<osds>\n <osd>\n  <id>3</id>\n  <tags>\n  </tags>\n </osd>\n</osds>\n";
        assert_eq!(to_xml(&json!([{ "id": 3, "tags": [] }]), &layout, true), expected);
    }
}
