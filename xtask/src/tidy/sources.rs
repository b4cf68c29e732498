//! The repository's Rust files and documents, by lines.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

pub struct Source {
    /// From the top of the repository.
    pub path: String,
    pub lines: Vec<String>,
    /// It belongs to a library, whose public items others use.
    pub is_library: bool,
    /// The line from which on there are tests only.
    tests_from: usize,
}

impl Source {
    pub fn new(path: String, text: &str) -> Source {
        let lines: Vec<String> = text.lines().map(String::from).collect();
        let is_library = path.starts_with("core/") || path.starts_with("shell/node/");
        let is_test_file = path.contains("/tests/") || path.ends_with("/tests.rs");
        let first = if is_test_file { Some(0) } else { lines.iter().position(|line| line == "#[cfg(test)]") };
        let tests_from = match first {
            // A module in a file of its own ends there.
            Some(at) if lines.get(at + 1).is_some_and(|line| line.ends_with(';')) => usize::MAX,
            Some(at) => at,
            None => usize::MAX,
        };
        Source { path, lines, is_library, tests_from }
    }
}

/// Tests come last in a file.
pub fn is_test_line(source: &Source, index: usize) -> bool {
    index >= source.tests_from
}

/// The comment that a line of code has, or is. Text in quotes may look like one, which does not happen often.
pub fn comment_of(line: &str) -> Option<&str> {
    let at = line.find("//")?;
    (!line[..at].ends_with(':')).then(|| &line[at..])
}

/// All Rust files of the workspace.
pub fn rust() -> Result<Vec<Source>> {
    let mut all = Vec::new();
    for folder in ["core", "shell", "check", "xtask"] {
        collect(Path::new(folder), "rs", &mut all)?;
    }
    Ok(all)
}

/// README, ARCHITECTURE, HACKING and `docs`.
pub fn documents() -> Result<Vec<Source>> {
    let mut all = Vec::new();
    for name in ["README.md", "ARCHITECTURE.md", "HACKING.md"] {
        all.push(read(Path::new(name))?);
    }
    collect(Path::new("docs"), "md", &mut all)?;
    Ok(all)
}

fn collect(folder: &Path, extension: &str, all: &mut Vec<Source>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(&path, extension, all)?;
        } else if path.extension().is_some_and(|found| found == extension) {
            all.push(read(&path)?);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Source> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Source::new(path.display().to_string(), &text))
}
