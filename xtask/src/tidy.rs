//! Form: formatting, lints, licences.

use crate::licences;
use crate::run::{cargo, step};
use anyhow::Result;

#[derive(clap::Args)]
pub struct Options {
    /// Rewrite files instead of reporting only.
    #[arg(long)]
    pub fix: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let mut format = cargo();
    format.args(["fmt", "--all"]);
    if !options.fix {
        format.arg("--check");
    }
    step("format", &mut format)?;
    let mut lint = cargo();
    lint.args(["clippy", "--workspace", "--all-targets"]);
    if options.fix {
        lint.args(["--fix", "--allow-dirty"]);
    }
    step("lints", lint.args(["--", "-D", "warnings"]))?;
    licences::check()
}
