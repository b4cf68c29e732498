//! Running other programs.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository").to_path_buf()
}

/// Where cargo puts what it builds.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// The cargo that runs us.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs `command` in the foreground and fails if it does.
pub fn step(what: &str, command: &mut Command) -> Result<()> {
    let started = Instant::now();
    println!("\n==> {what}: {}", shown(command));
    let status = command.status().with_context(|| format!("{what}: cannot run {}", shown(command)))?;
    if !status.success() {
        bail!("{what} failed ({status}); again: {}", shown(command));
    }
    println!("==> {what}: done in {:.0} s", started.elapsed().as_secs_f32());
    Ok(())
}

pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let program =
        Path::new(&words[0]).file_name().map_or_else(|| words[0].clone(), |n| n.to_string_lossy().into());
    std::iter::once(program).chain(words[1..].iter().cloned()).collect::<Vec<_>>().join(" ")
}
