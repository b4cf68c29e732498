//! How Ceph lays out the output of each command: what the formats need beside the value itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// How Ceph lays out the output of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The name of the outermost section of XML.
    pub root: Cow<'static, str>,
    /// How the output ends.
    pub end: End,
    /// Names of arrays' elements in XML that differ from those of the same arrays of other commands.
    elements: Vec<(&'static str, &'static str)>,
}

/// How output ends. Ceph's commands differ in how they hand over what the formatter wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// As the formatter ends it: indented JSON with a line feed, indented XML with two, others with none.
    #[default]
    Flush,
    /// With one line feed and without empty lines.
    Lines,
    /// As `Flush`, and with one more line feed.
    Newline,
    /// A Python module of the manager wrote it, which knows no XML: always indented JSON with a line feed.
    Module,
    /// Always JSON without blanks, and without a line feed.
    Compact,
}

type Table = BTreeMap<&'static str, Layout>;

impl Layout {
    /// Of a command to the cluster: to its monitors and its manager.
    pub fn of_cluster(command: &str) -> Layout {
        static TABLE: OnceLock<Table> = OnceLock::new();
        Layout::find(TABLE.get_or_init(|| parse(include_str!("layouts/cluster.txt"))), command)
    }
    /// Of a command to a single daemon: `ceph tell`, and admin sockets.
    pub fn of_daemon(command: &str) -> Layout {
        static TABLE: OnceLock<Table> = OnceLock::new();
        Layout::find(TABLE.get_or_init(|| parse(include_str!("layouts/daemon.txt"))), command)
    }
    /// The same with another name for the outermost section.
    pub fn with_root(self, root: impl Into<Cow<'static, str>>) -> Layout {
        Layout { root: root.into(), ..self }
    }

    fn find(table: &Table, command: &str) -> Layout {
        table.get(command).cloned().unwrap_or_else(|| Layout::named(command))
    }
    fn named(command: &str) -> Layout {
        Layout { root: command.replace(' ', "_").into(), end: End::Flush, elements: Vec::new() }
    }

    /// The name of an array's elements. The path has the keys that lead to the array; it is empty for an
    /// array that is the whole output.
    pub(crate) fn element(&self, path: &[&str]) -> Cow<'_, str> {
        let fits = |pattern: &str| match pattern.strip_suffix(".*") {
            Some(parent) => !path.is_empty() && *path.iter().rev().nth(1).unwrap_or(&&*self.root) == parent,
            None => path.last().copied().unwrap_or_default() == pattern,
        };
        let own = self.elements.iter().find(|(pattern, _)| fits(pattern)).map(|(_, element)| *element);
        let key = path.last().copied().unwrap_or(&*self.root);
        let known = own.or_else(|| elements().get(key).copied());
        known.map_or_else(|| Cow::Owned(key.to_string()), Cow::Borrowed)
    }
}

/// The usual names of arrays' elements by the arrays' keys.
fn elements() -> &'static BTreeMap<&'static str, &'static str> {
    static ELEMENTS: OnceLock<BTreeMap<&'static str, &'static str>> = OnceLock::new();
    ELEMENTS.get_or_init(|| {
        rows(include_str!("layouts/elements.txt")).filter_map(|row| row.split_once(' ')).collect()
    })
}

fn rows(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

fn parse(text: &'static str) -> Table {
    rows(text)
        .map(|row| {
            let mut fields = row.split('|').map(str::trim);
            let mut field = || fields.next().expect("the file is part of the program");
            let (command, end, root, names) = (field(), field(), field(), field());
            let named = Layout::named(command);
            let root = if root.is_empty() { named.root } else { root.into() };
            let elements = names.split_whitespace().filter_map(|name| name.split_once('=')).collect();
            (command, Layout { root, end: End::parse(end), elements })
        })
        .collect()
}

impl End {
    fn parse(word: &str) -> End {
        match word {
            "lines" => End::Lines,
            "newline" => End::Newline,
            "module" => End::Module,
            "compact" => End::Compact,
            _ => End::Flush,
        }
    }
    /// What the formatter wrote as it is sent.
    pub(crate) fn apply(self, text: String) -> String {
        match self {
            End::Lines => {
                text.lines().filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect()
            }
            End::Newline => text + "\n",
            End::Flush | End::Module | End::Compact => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_of_commands_are_found_and_others_are_called_like_the_command() {
        let status = Layout::of_cluster("status");
        assert_eq!((&*status.root, status.end), ("status", End::Lines));
        assert_eq!(
            (status.element(&["quorum"]), status.element(&["quorum_names"])),
            ("rank".into(), "id".into())
        );
        let other = Layout::of_cluster("mon dump");
        assert_eq!((&*other.root, other.element(&["quorum"])), ("monmap", "mon".into()));
        assert_eq!(Layout::of_cluster("no such command"), Layout::named("no such command"));
        assert_eq!(&*Layout::of_daemon("config show").root, "config_show");
        assert_eq!(Layout::of_daemon("ops").element(&["ops", "type_data", "events"]), "event");
        assert_eq!(other.element(&["unheard-of"]), "unheard-of");
    }

    #[test]
    fn arrays_with_names_of_their_own_are_named_by_what_they_are_in() {
        let nodes = Layout::of_cluster("node ls");
        assert_eq!([nodes.element(&["mon", "host1"]), nodes.element(&["osd", "host1"])], ["mon", "osd"]);
    }

    #[test]
    fn files_hold_each_command_once_in_order() {
        for text in [include_str!("layouts/cluster.txt"), include_str!("layouts/daemon.txt")] {
            let commands: Vec<&str> = rows(text).map(|row| row.split(" | ").next().unwrap()).collect();
            assert!(commands.is_sorted() && parse(text).len() == commands.len());
            for row in rows(text) {
                assert_eq!(row.matches('|').count(), 3, "{row}");
            }
        }
    }
}
