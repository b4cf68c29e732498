//! Mutated bytes for every decoder.

use crate::run::{cargo, step};
use anyhow::Result;
use std::process::Command;

#[derive(clap::Args)]
pub struct Options {
    /// Run one target only; `list` prints their names.
    target: Option<String>,
    /// Seconds per target.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Options {
    pub fn brief() -> Options {
        Options { target: None, seconds: 2, seed: 1 }
    }
}

pub fn run(options: &Options) -> Result<()> {
    step("fuzz", &mut command(options))
}

pub fn command(options: &Options) -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "--profile", "sim", "--package", "nacre-corpus", "--bin", "fuzz", "--"]);
    command.args(["--seconds", &options.seconds.to_string(), "--seed", &options.seed.to_string()]);
    command.args(&options.target);
    command
}
