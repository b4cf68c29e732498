//! Simulated clusters.

use crate::run::{cargo, step};
use anyhow::Result;
use std::process::Command;

#[derive(clap::Args)]
pub struct Options {
    /// Number of seeds to run, starting at `--from`.
    #[arg(long, default_value_t = 200, conflicts_with = "seed")]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Run one seed, decimal or 0x hexadecimal, and print its trace.
    #[arg(long)]
    seed: Option<String>,
    /// Shrink this failing seed: remove faults that its failure does not need, and print the rest.
    #[arg(long, conflicts_with_all = ["seed", "seeds"])]
    shrink: Option<String>,
    /// Run the script in this file and print its trace.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "shrink"])]
    script: Option<String>,
    /// Simulate an OSD that is down for this many scattered writes, restart all, print memory use.
    #[arg(long, conflicts_with_all = ["seeds", "from", "shrink", "script"])]
    outage_writes: Option<u64>,
    /// With --outage-writes: number of objects of 4 MiB.
    #[arg(long, default_value_t = 256, requires = "outage_writes")]
    objects: u64,
    /// With --outage-writes: memory limit of an OSD in MiB; exceeding it fails the run.
    #[arg(long, default_value_t = 256, requires = "outage_writes")]
    memory_mib: u64,
}

impl Options {
    pub fn seeds(seeds: u64) -> Options {
        Options {
            seeds,
            from: 1,
            seed: None,
            shrink: None,
            script: None,
            outage_writes: None,
            objects: 256,
            memory_mib: 256,
        }
    }
}

pub fn run(options: &Options) -> Result<()> {
    step("simulator", &mut command(options))
}

pub fn command(options: &Options) -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "--profile", "sim", "--package", "nacre-sim", "--"]);
    if let Some(writes) = options.outage_writes {
        command.args(["--outage-writes", &writes.to_string()]);
        command.args(["--objects", &options.objects.to_string()]);
        command.args(["--memory-mib", &options.memory_mib.to_string()]);
        command.args(options.seed.iter().flat_map(|seed| ["--seed", seed]));
        return command;
    }
    match (&options.seed, &options.shrink, &options.script) {
        (Some(seed), ..) => command.args(["--seed", seed]),
        (_, Some(seed), _) => command.args(["--shrink", seed]),
        (.., Some(file)) => command.args(["--script", file]),
        _ => command.args(["--seeds", &options.seeds.to_string(), "--from", &options.from.to_string()]),
    };
    command
}

/// The tests of scripts that found bugs.
pub fn kept_scripts() -> Command {
    let mut command = cargo();
    command.args(["test", "--quiet", "--profile", "sim", "--package", "nacre-sim", "--test", "it"]);
    command
}
