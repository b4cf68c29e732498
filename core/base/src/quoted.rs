//! Values in keyrings and configuration files.

/// A value of a keyring or a configuration file: what is in quotes, or else all, without the comment that may
/// follow.
pub fn unquoted(value: &str) -> String {
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''));
    let mut out = String::new();
    let mut letters = value.chars().skip(usize::from(quote.is_some()));
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => out.push(letters.next().unwrap_or('\\')),
            ';' | '#' if quote.is_none() => break,
            end if Some(end) == quote => return out,
            letter => out.push(letter),
        }
    }
    out.trim_end().to_string()
}
