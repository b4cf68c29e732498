//! Simulated clusters.

use crate::run::{cargo, step};
use anyhow::Result;

#[derive(clap::Args)]
pub struct Options {
    /// How many seeds to run, from `--from` on.
    #[arg(long, default_value_t = 200, conflicts_with = "seed")]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// One seed only, decimal or 0x hexadecimal, with its trace printed.
    #[arg(long)]
    seed: Option<String>,
    /// Leaves out of this seed's faults what its failure does not need, and prints the rest.
    #[arg(long, conflicts_with_all = ["seed", "seeds"])]
    shrink: Option<String>,
    /// Runs the script in this file, with its trace printed.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "shrink"])]
    script: Option<String>,
}

impl Options {
    pub fn seeds(seeds: u64) -> Options {
        Options { seeds, from: 1, seed: None, shrink: None, script: None }
    }
}

pub fn run(options: &Options) -> Result<()> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--profile", "sim", "--package", "nacre-sim", "--"]);
    match (&options.seed, &options.shrink, &options.script) {
        (Some(seed), ..) => command.args(["--seed", seed]),
        (_, Some(seed), _) => command.args(["--shrink", seed]),
        (.., Some(file)) => command.args(["--script", file]),
        _ => command.args(["--seeds", &options.seeds.to_string(), "--from", &options.from.to_string()]),
    };
    step("simulator", &mut command)
}
