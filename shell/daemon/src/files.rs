//! Directories and files that only their owner reads.

use anyhow::{Context, Result};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

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

/// Removes a file, if there is one.
pub fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Writes a file with secrets, with the directory that it is in.
pub fn write_secret(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    make_parent(path)?;
    replace(path, text)
}

/// Writes a file atomically: after a crash it has the old content or the new.
pub fn replace(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    // Not `.new`: that is a keyring that the monitors do not know yet.
    let mut new = path.as_os_str().to_owned();
    new.push(".tmp");
    let new = PathBuf::from(new);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_ref())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        match path.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn replaced_file_leaves_a_new_keyring_beside_it_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (keyring, unknown) = (dir.path().join("keyring"), dir.path().join("keyring.new"));
        fs::write(&unknown, "a new key").unwrap();
        replace(&keyring, "first").unwrap();
        replace(&keyring, "second").unwrap();
        assert_eq!(fs::read_to_string(&keyring).unwrap(), "second");
        assert_eq!(fs::metadata(&keyring).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&unknown).unwrap(), "a new key");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
