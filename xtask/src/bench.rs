//! Measurements beside a real Ceph.

use crate::run::{cargo, step};
use anyhow::Result;

#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The same stock clients against Ceph from Debian's packages and against Nacre, alternately.
    VsCeph {
        /// Passed on: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
}

pub fn run(options: &Options) -> Result<()> {
    let What::VsCeph { options } = &options.what;
    step("build", cargo().args(["build", "--release", "--package", "nacre"]))?;
    let mut command = cargo();
    command.args(["run", "--quiet", "--release", "--package", "nacre-bench", "--", "vs-ceph"]).args(options);
    step("benchmark", &mut command)
}
