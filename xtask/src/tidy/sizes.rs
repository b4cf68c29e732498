//! A report of the largest files and functions. Nothing fails because of it.

use crate::tidy::sources::{Source, is_test_line};

const SHOWN: usize = 8;
/// Lines above which a file or a function is large.
const FILE_MAX: usize = 600;
const FUNCTION_MAX: usize = 80;

pub fn report(sources: &[Source]) {
    let mut files: Vec<(usize, String)> =
        sources.iter().map(|source| (code_lines(source), source.path.clone())).collect();
    let mut functions: Vec<(usize, String)> = sources.iter().flat_map(functions).collect();
    for (what, all, max) in [("files", &mut files, FILE_MAX), ("functions", &mut functions, FUNCTION_MAX)] {
        all.sort_by(|a, b| b.cmp(a));
        let large = all.iter().filter(|(lines, _)| *lines > max).count();
        println!("==> {what} of more than {max} lines without tests: {large}; the largest:");
        all.iter().take(SHOWN).for_each(|(lines, name)| println!("    {lines:>5}  {name}"));
    }
}

fn code_lines(source: &Source) -> usize {
    (0..source.lines.len()).filter(|index| !is_test_line(source, *index)).count()
}

/// Length and place of each function, by the indentation that rustfmt gives to its closing brace.
fn functions(source: &Source) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for (index, line) in source.lines.iter().enumerate().filter(|(index, _)| !is_test_line(source, *index)) {
        let indent = line.len() - line.trim_start().len();
        let Some(name) = function_name(line) else { continue };
        let closes = |line: &String| line.trim() == "}" && line.len() == indent + 1;
        // A declaration without a body ends before a line that closes one.
        let is_declaration =
            |line: &String| line.ends_with(';') && line.len() - line.trim_start().len() <= indent;
        if let Some(len) = source.lines[index..].iter().position(|line| closes(line) || is_declaration(line))
        {
            all.push((len + 1, format!("{} in {}:{}", name, source.path, index + 1)));
        }
    }
    all
}

fn function_name(line: &str) -> Option<&str> {
    let words = line.trim_start();
    let at = if words.starts_with("fn ") { 3 } else { words.find(" fn ")? + 4 };
    let is_code = !words.starts_with("//") && !words[..at].contains('"') && words[..at].len() < 40;
    let name = &words[at..];
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (is_code && end > 0).then(|| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_to_their_closing_brace() {
        let text = "pub fn a() {\n    if x {\n    }\n}\nimpl B {\n    fn b(&self) -> u8 {\n        1\n    }\n}\n\
                    // a fn in words {\n";
        let source = Source::new("core/a.rs".to_string(), text);
        let expected = [(4, "a in core/a.rs:1".to_string()), (3, "b in core/a.rs:6".to_string())];
        assert_eq!(functions(&source), expected);
    }
}
