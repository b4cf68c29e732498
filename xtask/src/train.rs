//! What a release build is optimised for: runs a cluster that counts how often each of its branches is taken while stock
//! clients write, read and see an OSD fail. Release builds use what is in `xtask/profile` from then on.

use crate::ci::{self, PACKAGES};
use crate::run::{cargo, repository, step};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub struct Options {
    /// Seconds of each load.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
}

/// Loads, as `cargo xtask bench` knows them.
const LOADS: [&str; 3] = [
    "vs-ceph --nacre-only --rounds 1",
    "rbd --nacre-only --rounds 1 --size 512",
    "failure --clusters nacre --rate 0 --objects 128 --healthy 8 --away 8",
];

pub fn run(options: &Options) -> Result<()> {
    ci::install_packages(&PACKAGES, false)?;
    let (tool, version) = toolchain()?;
    let target = repository().join("target/train");
    let counts = target.join("counts");
    let _ = fs::remove_dir_all(&counts);
    let release = target.join("release");
    step("build the load", cargo().args(["build", "--release", "--package", "nacre-bench"]))?;
    let mut build = cargo();
    build.args(["build", "--release", "--package", "nacre", "--target-dir"]).arg(&target);
    step("build what counts", build.env("NACRE_TRAIN", &counts))?;
    // It runs the program that is beside it.
    let load = release.join("nacre-bench");
    fs::copy(repository().join("target/release/nacre-bench"), &load).context("cannot copy the load")?;
    let clusters = target.join("clusters");
    fs::create_dir_all(&clusters)?;
    for words in LOADS {
        let mut command = Command::new(&load);
        command.args(words.split(' ')).arg("--folder").arg(&clusters);
        if words.starts_with("failure") {
            command.arg("--results").arg(target.join("failure"));
        } else {
            command.args(["--seconds", &options.seconds.to_string()]);
        }
        step("load", &mut command)?;
    }
    let seen = repository().join(format!("xtask/profile/{version}.profdata"));
    let raw = fs::read_dir(&counts).context("nothing was counted")?;
    let raw = raw.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut merge = Command::new(tool);
    merge.args(["merge", "--sparse", "--output"]).arg(&seen).args(raw);
    step("merge", &mut merge)?;
    // Cargo does not know that it is an input.
    step("forget old builds", cargo().args(["clean", "--release"]))?;
    println!("{} is what release builds use from now on", seen.display());
    Ok(())
}

/// The program that merges counts, and the compiler's version.
fn toolchain() -> Result<(PathBuf, String)> {
    let ask = |argument: &str| -> Result<String> {
        let said = Command::new("rustc").args(argument.split(' ')).output().context("cannot run rustc")?;
        Ok(String::from_utf8(said.stdout)?.trim().to_string())
    };
    let version = ask("--version")?;
    let version = version.split(' ').nth(1).context("rustc says no version")?.to_string();
    let host = ask("--print host-tuple")?;
    let tool = Path::new(&ask("--print sysroot")?).join("lib/rustlib").join(host).join("bin/llvm-profdata");
    if !tool.exists() {
        bail!("{} is missing: rustup component add llvm-tools", tool.display());
    }
    Ok((tool, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_compiler_knows_what_to_optimise_for() {
        let pinned = fs::read_to_string(repository().join("rust-toolchain.toml")).unwrap();
        let channel = pinned.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap();
        let seen = repository().join(format!("xtask/profile/{}.profdata", channel.trim_matches('"')));
        assert!(seen.exists(), "{} is missing: cargo xtask train", seen.display());
    }

    /// By the names of symbols what was counted is found again.
    #[test]
    fn names_of_symbols_do_not_depend_on_what_a_library_depends_on() {
        let compiled = |words: &str| {
            let mut rustc = Command::new(repository().join("xtask/profile/rustc"));
            let said = rustc.arg("echo").args(words.split(' ')).output().unwrap();
            String::from_utf8(said.stdout).unwrap()
        };
        let library =
            "--crate-name nacre_proto --crate-type lib -C opt-level=3 -C metadata=1a2b -C extra-filename=-3c";
        assert_eq!(compiled(library), library.replace("1a2b", "nacre") + "\n");
        let others = ["--crate-name bytes --crate-type lib", "--crate-name nacre_bench --crate-type bin"];
        for other in others.map(|other| format!("{other} -C opt-level=3 -C metadata=1a2b")) {
            assert_eq!(compiled(&other), other.clone() + "\n");
        }
    }
}
