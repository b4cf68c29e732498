//! Measurements beside a real Ceph, always of `dist` builds.

use crate::run::{cargo, step};
use anyhow::Result;

#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Run the same stock clients on Ceph from Debian's packages and on Nacre, alternately.
    VsCeph {
        /// Options of the benchmark: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Count messages, system calls, disk writes and flushes per operation.
    Counts {
        /// Options of the benchmark: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Count the instructions of the core per operation with callgrind (package valgrind).
    Instructions {
        /// Options of the benchmark: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Measure the store alone, without network and OSD, against the bare device.
    Store {
        /// Options of the benchmark: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Fail an OSD while clients write, and let it return, on Ceph and on Nacre.
    Failure {
        /// Options of the benchmark: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Run fio on an image, on Ceph and on Nacre, alternately.
    Rbd {
        /// Options of the benchmark: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Put, get and list objects through radosgw on Ceph and through Nacre's gateway, alternately.
    S3 {
        /// Options of the benchmark: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Create files through Ceph's metadata server, on Ceph and on Nacre, alternately.
    Files {
        /// Options of the benchmark: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Remove a snapshot of many objects while clients write, on Ceph and on Nacre.
    Trim {
        /// Options of the benchmark: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
}

pub fn run(options: &Options) -> Result<()> {
    let (what, options) = match &options.what {
        What::VsCeph { options } => ("vs-ceph", options),
        What::Counts { options } => ("counts", options),
        What::Instructions { options } => ("instructions", options),
        What::Store { options } => ("store", options),
        What::Failure { options } => ("failure", options),
        What::Rbd { options } => ("rbd", options),
        What::S3 { options } => ("s3", options),
        What::Files { options } => ("files", options),
        What::Trim { options } => ("trim", options),
    };
    step("build", cargo().args(["build", "--profile", "dist", "--package", "nacre"]))?;
    let mut command = cargo();
    command
        .args(["run", "--quiet", "--profile", "dist", "--package", "nacre-bench", "--", what])
        .args(options);
    step("benchmark", &mut command)
}
