//! Directories and files that only their owner reads.

use anyhow::{Context, Result};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// With the directories above it.
pub fn make_dir(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot create {}", path.display()))
}

/// The directory that a file is in.
pub fn make_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) => make_dir(parent),
        None => Ok(()),
    }
}

/// Writes a file atomically: after a crash it has the old content or the new.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        match path.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
