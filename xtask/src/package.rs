//! `cargo xtask package` makes a Debian package of the `nacre` binary, or an image for containers.
//!
//! It needs `dpkg-deb`, and for an image `tar` and `sha256sum`, which every Debian system has. Times in the
//! files are those of the commit, so that the same commit makes the same files.

mod deb;
mod image;
mod third_party;

use crate::run::{cargo, step, target_dir};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub struct Options {
    /// Make an image for containers, as an archive of an OCI image layout, instead of a Debian package.
    #[arg(long)]
    container: bool,
    /// Package this binary, instead of one that is built with the profile `dist`.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Folder for the result [default: `package` in the target folder].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Version of the package [default: that of the binary].
    #[arg(long)]
    version: Option<String>,
    /// Do not compress, which is quicker.
    #[arg(long)]
    uncompressed: bool,
}

/// What is packaged.
struct Input {
    binary: PathBuf,
    version: String,
    /// Seconds since 1970 of the commit.
    time: String,
    out: PathBuf,
    uncompressed: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let binary = match &options.binary {
        Some(path) => path.clone(),
        None => {
            step("build", cargo().args(["build", "--profile", "dist", "--package", "nacre"]))?;
            target_dir().join("dist/nacre")
        }
    };
    let version = match &options.version {
        Some(version) => version.clone(),
        None => {
            let printed = output(Command::new(&binary).arg("--version"))?;
            let version = printed.trim().strip_prefix("nacre ").context("the binary has no version")?;
            version.to_string()
        }
    };
    let out = options.out.clone().unwrap_or_else(|| target_dir().join("package"));
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let time = output(Command::new("git").args(["log", "-1", "--format=%ct"]))?.trim().to_string();
    let input = Input { binary, version, time, out, uncompressed: options.uncompressed };
    let path = if options.container { image::make(&input)? } else { deb::make(&input)? };
    println!("{}", path.display());
    Ok(())
}

/// A folder for the files of the result, empty.
fn stage(out: &Path, name: &str) -> Result<PathBuf> {
    let folder = out.join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Writes a file with its folders.
fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    let parent = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies a file with its folders, following links.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().context("a file is in a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// What a command prints.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, said.trim());
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no text"))
}
