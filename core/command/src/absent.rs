//! Commands of Ceph that mean nothing in Nacre, or nothing yet.

use crate::{Refusal, Signature, refuse};
use nacre_base::errno::EOPNOTSUPP;

/// The first words of each such command of a daemon, and why it does nothing.
pub struct Absent(pub &'static [(&'static str, &'static str)]);

impl Absent {
    /// None if it is no such command.
    pub fn refusal(&self, prefix: &str) -> Option<Refusal> {
        let (_, why) = self.0.iter().find(|(words, _)| begins_with(prefix, words))?;
        Some(refuse(EOPNOTSUPP, format!("not in Nacre: {why}")))
    }
    /// Whether it is such a command.
    pub fn contains(&self, prefix: &str) -> bool {
        self.0.iter().any(|(words, _)| begins_with(prefix, words))
    }
    /// The `ceph` tool sends only commands that are listed. Without these it would refuse them without a
    /// reason.
    pub fn signatures(&self, module: &str) -> impl Iterator<Item = Signature> {
        const ANY: &str = "name=args,type=CephString,n=N,req=false";
        self.0.iter().map(move |(words, _)| Signature::new(words, ANY, "not in Nacre", module))
    }
}

/// Whether a command begins with these words: `config set` does with `config`, `configure` does not.
fn begins_with(command: &str, words: &str) -> bool {
    command.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_begins_with_whole_words() {
        for words in ["config", "config set", "config set x"] {
            assert!(begins_with("config set x", words), "{words}");
        }
        assert!(!begins_with("configure", "config") && !begins_with("config", "config set"));
    }

    #[test]
    fn a_command_is_absent_by_its_first_words() {
        let absent = Absent(&[("heap", "no such allocator")]);
        let refusal = absent.refusal("heap stats").unwrap();
        assert_eq!(refusal, refuse(EOPNOTSUPP, "not in Nacre: no such allocator"));
        assert!(absent.contains("heap") && !absent.contains("heapx"));
        assert_eq!(absent.refusal("status"), None);
    }
}
