//! Form: formatting, lints, licences, layers, and counts that may only fall.

mod counts;
mod layers;
mod sizes;
mod sources;

use crate::licences;
use crate::run::{cargo, step};
use anyhow::{Context, Result};
use serde_json::Value;

#[derive(clap::Args)]
pub struct Options {
    /// Rewrite files and lower ceilings, instead of reporting only.
    #[arg(long)]
    pub fix: bool,
    /// Leave out what needs compiling.
    #[arg(long)]
    pub quick: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let metadata = metadata()?;
    layers::check(&metadata)?;
    licences::check(&metadata)?;
    let mut format = cargo();
    format.args(["fmt", "--all"]);
    if !options.fix {
        format.arg("--check");
    }
    step("format", &mut format)?;
    let (rust, documents) = (sources::rust()?, sources::documents()?);
    sizes::report(&rust);
    counts::check(&rust, &documents, options.fix)?;
    if options.quick {
        return Ok(());
    }
    let mut lint = cargo();
    lint.args(["clippy", "--workspace", "--all-targets"]);
    if options.fix {
        lint.args(["--fix", "--allow-dirty"]);
    }
    step("lints", lint.args(["--", "-D", "warnings"]))
}

/// Works offline.
fn metadata() -> Result<Value> {
    let platform = "x86_64-unknown-linux-gnu";
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", platform]);
    let output = command.output().context("cannot run cargo metadata")?;
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}
