//! Records the profile for `dist` builds: runs an instrumented cluster that counts how often each branch is
//! taken while stock clients write, read and see an OSD fail. Builds with `--profile dist` use the file in
//! `xtask/profile`.

use crate::ci::{self, PACKAGES};
use crate::run::{cargo, repository, step, target_dir};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub struct Options {
    /// Seconds per load.
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
    step("build the load", cargo().args(["build", "--profile", "dist", "--package", "nacre-bench"]))?;
    let mut build = cargo();
    build.args(["build", "--profile", "dist", "--package", "nacre", "--target-dir"]).arg(&target);
    step("build the instrumented daemon", build.env("NACRE_TRAIN", &counts))?;
    // The load starts the daemon that lies beside it.
    let load = target.join("dist/nacre-bench");
    fs::copy(target_dir().join("dist/nacre-bench"), &load).context("cannot copy the load")?;
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
    let recorded = repository().join(format!("xtask/profile/{version}.profdata"));
    let raw = fs::read_dir(&counts).context("the instrumented daemons wrote no counts")?;
    let raw = raw.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut merge = Command::new(tool);
    merge.args(["merge", "--sparse", "--output"]).arg(&recorded).args(raw);
    step("merge", &mut merge)?;
    // Cargo does not know that the profile is an input.
    step("remove outdated builds", cargo().args(["clean", "--profile", "dist"]))?;
    println!("{} is recorded; builds with --profile dist use it", recorded.display());
    Ok(())
}

/// The path of `llvm-profdata`, and the compiler's version.
fn toolchain() -> Result<(PathBuf, String)> {
    let ask = |argument: &str| -> Result<String> {
        let answer = Command::new("rustc").args(argument.split(' ')).output().context("cannot run rustc")?;
        Ok(String::from_utf8(answer.stdout)?.trim().to_string())
    };
    let version = ask("--version")?;
    let version = version.split(' ').nth(1).context("rustc prints no version")?.to_string();
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
    fn pinned_compiler_has_a_recorded_profile() {
        let pinned = fs::read_to_string(repository().join("rust-toolchain.toml")).unwrap();
        let channel = pinned.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap();
        let recorded = repository().join(format!("xtask/profile/{}.profdata", channel.trim_matches('"')));
        assert!(recorded.exists(), "{} is missing: cargo xtask train", recorded.display());
    }

    fn wrapped(words: &str) -> String {
        let mut rustc = Command::new(repository().join("xtask/profile/rustc"));
        let output = rustc.arg("echo").args(words.split(' ')).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// The recorded counts are matched by symbol name.
    #[test]
    fn dist_builds_name_symbols_independently_of_a_library_s_dependencies() {
        let library = "--crate-name nacre_proto --crate-type lib -C opt-level=3 -C codegen-units=1 -C metadata=1a2b \
                       -C extra-filename=-3c";
        assert_eq!(wrapped(library), library.replace("1a2b", "nacre") + "\n");
        let others = ["--crate-name bytes --crate-type lib", "--crate-name nacre_bench --crate-type bin"];
        for other in others.map(|other| format!("{other} -C opt-level=3 -C codegen-units=1 -C metadata=1a2b"))
        {
            assert_eq!(wrapped(&other), other.clone() + "\n");
        }
    }

    #[test]
    fn other_builds_are_compiled_as_cargo_asks() {
        for profile in ["-C opt-level=3 -C codegen-units=16", "-C opt-level=2 -C codegen-units=1"] {
            let words = format!("--crate-name nacre_proto --crate-type lib {profile} -C metadata=1a2b");
            assert_eq!(wrapped(&words), words + "\n");
        }
    }
}
