//! Answers in XML.

use std::fmt;

/// A text as it is within XML, also in quotes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}

/// Elements that follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xml(String);

impl Xml {
    /// No element yet.
    pub fn new() -> Xml {
        Xml::default()
    }

    /// With an element that has a text.
    pub fn with(mut self, name: &str, text: &str) -> Xml {
        self.0.push_str(&format!("<{name}>{}</{name}>", escape(text)));
        self
    }

    /// With an element that has elements.
    pub fn within(mut self, name: &str, inner: &Xml) -> Xml {
        self.0.push_str(&format!("<{name}>{inner}</{name}>"));
        self
    }

    /// With a list of elements.
    pub fn list(self, name: &str, members: impl IntoIterator<Item = Xml>) -> Xml {
        let members = members.into_iter().fold(Xml::new(), |all, member| all.within("member", &member));
        self.within(name, &members)
    }

    /// With a list of texts.
    pub fn texts<'a>(self, name: &str, members: impl IntoIterator<Item = &'a str>) -> Xml {
        let members = members.into_iter().fold(Xml::new(), |all, member| all.with("member", member));
        self.within(name, &members)
    }
}

impl fmt::Display for Xml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_lists_have_members() {
        let xml = Xml::new().with("a", "<&\">").texts("l", ["x", "y"]).list("m", [Xml::new().with("b", "1")]);
        let expected = "<a>&lt;&amp;&quot;&gt;</a><l><member>x</member><member>y</member></l>\
                        <m><member><b>1</b></member></m>";
        assert_eq!(xml.to_string(), expected);
    }
}
