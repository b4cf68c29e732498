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
    /// The same stock clients against Ceph from Debian's packages and against Nacre, alternately.
    VsCeph {
        /// Passed on: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Messages, system calls, disk writes and flushes that an operation costs Nacre.
    Counts {
        /// Passed on: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Instructions that the core takes for an operation, by callgrind (package valgrind).
    Instructions {
        /// Passed on: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// The store alone, without network and OSD, beside the bare device.
    Store {
        /// Passed on: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// One OSD goes away while clients write, and comes back: on Ceph and on Nacre.
    Failure {
        /// Passed on: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// fio on an image of a virtual machine: on Ceph and on Nacre, alternately.
    Rbd {
        /// Passed on: `-- --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// A snapshot of many objects is removed while clients write: on Ceph and on Nacre.
    Trim {
        /// Passed on: `-- --help` lists them.
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
        What::Trim { options } => ("trim", options),
    };
    step("build", cargo().args(["build", "--profile", "dist", "--package", "nacre"]))?;
    let mut command = cargo();
    command
        .args(["run", "--quiet", "--profile", "dist", "--package", "nacre-bench", "--", what])
        .args(options);
    step("benchmark", &mut command)
}
