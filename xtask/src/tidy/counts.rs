//! Counts of what should become less: each has a ceiling in `xtask/ceilings.txt`, which may only fall.

use crate::tidy::sources::{Source, comment_of, is_test_line};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const CEILINGS: &str = "xtask/ceilings.txt";
/// Columns of a line of documentation or comment.
const COLUMNS: usize = 110;
/// This many places of each kind are named.
const SHOWN: usize = 10;

/// Words for people that are used for daemons and data. `docs/glossary.md` has the words that we use.
const BANNED_WORDS: [&str; 8] =
    ["whoever", "somebody", "nobody", "everybody", "slander", "slandered", "rotten", "convicted"];

/// Where something was found.
struct Finding {
    path: String,
    line: usize,
    text: String,
}

pub fn check(sources: &[Source], documents: &[Source], fix: bool) -> Result<()> {
    let counts = [
        ("long-doc-lines", long_doc_lines(documents)),
        ("long-comment-lines", long_comment_lines(sources)),
        ("undocumented-items", undocumented_items(sources)),
        ("banned-words", banned_words(sources, documents)),
    ];
    let path = Path::new(CEILINGS);
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {CEILINGS}"))?;
    let ceilings = parse(&text)?;
    let mut above = Vec::new();
    let mut lowered = String::new();
    for (name, found) in &counts {
        let ceiling = *ceilings.get(*name).with_context(|| format!("{CEILINGS} has no line for {name}"))?;
        println!("==> {name}: {} (ceiling {ceiling})", found.len());
        if found.len() > ceiling {
            above.push(*name);
            // The newest are not known here: `git diff` is.
            found
                .iter()
                .take(SHOWN)
                .for_each(|at| println!("    {}:{}: {}", at.path, at.line, at.text.trim()));
        }
        lowered += &format!("{name} {}\n", ceiling.min(found.len()));
    }
    if !above.is_empty() {
        bail!("{} above the ceiling in {CEILINGS}: fix what is new (`git diff` shows it)", above.join(", "));
    }
    if fix {
        fs::write(path, lowered).with_context(|| format!("cannot write {CEILINGS}"))?;
    }
    Ok(())
}

fn parse(text: &str) -> Result<BTreeMap<String, usize>> {
    let line = |line: &str| {
        let (name, count) = line.split_once(' ').with_context(|| format!("{CEILINGS}: `{line}`"))?;
        Ok((name.to_string(), count.trim().parse().with_context(|| format!("{CEILINGS}: `{line}`"))?))
    };
    text.lines().map(line).collect()
}

fn finding(source: &Source, index: usize, text: &str) -> Finding {
    Finding { path: source.path.clone(), line: index + 1, text: text.chars().take(90).collect() }
}

/// Tables have long lines.
fn long_doc_lines(documents: &[Source]) -> Vec<Finding> {
    let is_long = |line: &str| line.chars().count() > COLUMNS && !line.trim_start().starts_with('|');
    found(documents, |_, _, line| is_long(line))
}

fn long_comment_lines(sources: &[Source]) -> Vec<Finding> {
    found(sources, |_, _, line| line.trim_start().starts_with("//") && line.chars().count() > COLUMNS)
}

fn undocumented_items(sources: &[Source]) -> Vec<Finding> {
    found(sources, |source, index, line| {
        source.is_library
            && !is_test_line(source, index)
            && is_public_item(line)
            && !is_documented(source, index)
    })
}

fn banned_words(sources: &[Source], documents: &[Source]) -> Vec<Finding> {
    let mut all = found(documents, |_, _, line| has_banned_word(line));
    all.extend(found(sources, |_, _, line| comment_of(line).is_some_and(has_banned_word)));
    all
}

fn has_banned_word(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words.into_iter().any(|word| BANNED_WORDS.contains(&&*word))
}

/// Fields and variants are not counted, nor what a crate keeps to itself.
fn is_public_item(line: &str) -> bool {
    let Some(item) = line.trim_start().strip_prefix("pub ") else { return false };
    let item =
        item.trim_start_matches("const unsafe ").trim_start_matches("async ").trim_start_matches("unsafe ");
    ["fn ", "struct ", "enum ", "union ", "trait ", "type ", "const ", "static ", "mod "]
        .iter()
        .any(|kind| item.starts_with(kind))
}

/// A comment for documentation stands above, with attributes between. A module has its own in its file.
fn is_documented(source: &Source, index: usize) -> bool {
    if source.lines[index].trim_start().starts_with("pub mod ") && source.lines[index].ends_with(';') {
        return true;
    }
    let above = source.lines[..index].iter().rev().map(|line| line.trim_start());
    let mut above = above.skip_while(|line| line.starts_with("#[") || line.ends_with(")]"));
    above.next().is_some_and(|line| line.starts_with("///") || line.starts_with("*/"))
}

fn found(sources: &[Source], matches: impl Fn(&Source, usize, &str) -> bool) -> Vec<Finding> {
    let mut all = Vec::new();
    for source in sources {
        for (index, line) in source.lines.iter().enumerate() {
            if matches(source, index, line) {
                all.push(finding(source, index, line));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("core/osd/src/a.rs".to_string(), text)
    }

    #[test]
    fn public_items_without_a_comment_are_counted() {
        let text = "/// Good.\npub fn a() {}\n/// Good.\n#[derive(Debug)]\npub struct B;\npub fn bad() {}\n\
                    pub(crate) fn own() {}\npub mod c;\n    pub const BAD: u8 = 1;\n\
                    #[cfg(test)]\nmod tests {\n    pub fn helper() {}\n}\n";
        let found = undocumented_items(&[source(text)]);
        let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [6, 9]);
    }

    #[test]
    fn banned_words_count_in_comments_and_documents_only() {
        let code = source("// Nobody is told.\nlet nobody = 1; // fine\nlet x = 2; // somebody\n");
        let document = Source::new("docs/a.md".to_string(), "Everybody knows.\nEverybodyElse\n");
        let found = banned_words(&[code], &[document]);
        let at: Vec<_> = found.iter().map(|finding| (&*finding.path, finding.line)).collect();
        assert_eq!(at, [("docs/a.md", 1), ("core/osd/src/a.rs", 1), ("core/osd/src/a.rs", 3)]);
    }

    #[test]
    fn long_lines_count_by_characters_and_tables_may_have_them() {
        let (long, short) = ("x".repeat(111), "é".repeat(110));
        let document = Source::new("docs/a.md".to_string(), &format!("{long}\n| {long} |\n{short}\n"));
        assert_eq!(long_doc_lines(&[document]).len(), 1);
        let code = source(&format!("// {long}\nlet x = \"{long}\";\n"));
        assert_eq!(long_comment_lines(&[code]).len(), 1);
    }

    #[test]
    fn ceilings_are_read() {
        assert_eq!(parse("a 1\nb 20\n").unwrap(), [("a".into(), 1), ("b".into(), 20)].into());
        assert!(parse("a one\n").is_err());
    }
}
