//! Commands as their words.

/// Whether a command begins with these words: `config set` does with `config`, `configure` does not.
pub fn begins_with(command: &str, words: &str) -> bool {
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
}
