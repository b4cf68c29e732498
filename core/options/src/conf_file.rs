//! Configuration files: `[section]` lines, and `name = value` lines below them.

use nacre_base::unquoted;

/// A section with its names and values, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Empty for the lines before the first `[section]`.
    pub name: String,
    /// Names as the options table has them: `mon host` and `mon-host` are `mon_host`.
    pub values: Vec<(String, String)>,
}

/// A line that is not one of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfFileError {
    #[error("line {0}: a ']' is missing")]
    NoBracket(usize),
    #[error("line {0}: a '=' is missing")]
    NoValue(usize),
}

/// The sections of a file. Comments begin with `#` or `;`.
pub fn parse_conf_file(text: &str) -> Result<Vec<Section>, ConfFileError> {
    let mut file: Vec<Section> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = line.strip_prefix('[') {
            let section = section.split(['#', ';']).next().unwrap_or_default().trim_end();
            let name = section.strip_suffix(']').ok_or(ConfFileError::NoBracket(index + 1))?;
            file.push(Section { name: name.trim().to_string(), values: Vec::new() });
            continue;
        }
        let (name, value) = line.split_once('=').ok_or(ConfFileError::NoValue(index + 1))?;
        let name = name.split_whitespace().collect::<Vec<_>>().join("_").replace('-', "_");
        let value = unquoted(value.trim());
        if file.is_empty() {
            file.push(Section { name: String::new(), values: Vec::new() });
        }
        let last = file.len() - 1;
        file[last].values.push((name, value));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_names_and_values_are_read() {
        let text = "mon host = a # first\n\n[ global ]\nkey-x = \"1\"\n; no\n[osd]\nrun  dir=/r\n";
        let section = |name: &str, key: &str, value: &str| Section {
            name: name.into(),
            values: vec![(key.into(), value.into())],
        };
        let expected =
            [section("", "mon_host", "a"), section("global", "key_x", "1"), section("osd", "run_dir", "/r")];
        assert_eq!(parse_conf_file(text).unwrap(), expected);
    }

    #[test]
    fn quoted_value_keeps_what_would_begin_a_comment() {
        let value = |line: &str| parse_conf_file(line).unwrap()[0].values[0].1.clone();
        assert_eq!(value(r#"x = "a;b # c" ; comment"#), "a;b # c");
        assert_eq!(value("x = a ; comment"), "a");
        assert_eq!(parse_conf_file("[osd] # ours\nx = 1\n").unwrap()[0].name, "osd");
    }

    #[test]
    fn bad_lines_are_named() {
        assert_eq!(parse_conf_file("[global]\n[osd\n").unwrap_err(), ConfFileError::NoBracket(2));
        assert_eq!(parse_conf_file("\nx\n").unwrap_err().to_string(), "line 2: a '=' is missing");
    }
}
