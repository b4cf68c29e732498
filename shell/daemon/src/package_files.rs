//! Files of a package that follow from this program, so that they never differ from it: man pages, completion
//! for bash, and units of systemd. `cargo xtask package` adds the others.

use crate::hosts::systemd;
use anyhow::{Context, Result};
use clap_complete::Shell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Where packages put this program.
const PROGRAM: &str = "/usr/bin/nacre";

/// Writes the files below `root`, as the package has them below `/`.
pub fn write(mut command: clap::Command, root: &Path) -> Result<()> {
    let pages = folder(root, "usr/share/man/man1")?;
    clap_mangen::generate_to(command.clone(), &pages).context("cannot write the man pages")?;
    let completion = folder(root, "usr/share/bash-completion/completions")?.join("nacre");
    let mut file =
        File::create(&completion).with_context(|| format!("cannot write {}", completion.display()))?;
    clap_complete::generate(Shell::Bash, &mut command, "nacre", &mut file);
    let units = folder(root, systemd::PACKAGED.trim_start_matches('/'))?;
    for (name, text) in systemd::units(Path::new(PROGRAM)) {
        let path = units.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn folder(root: &Path, path: &str) -> Result<PathBuf> {
    let folder = root.join(path);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}
