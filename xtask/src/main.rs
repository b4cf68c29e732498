//! The toolbox of the repository: `cargo xtask ci | sim | fuzz | bench | soak | tidy | train`.
//!
//! Each subcommand is a file. They run other programs and print what they run, so that a failing
//! step can be repeated by hand.

mod background;
mod bench;
mod ci;
mod fuzz;
mod licences;
mod package;
mod run;
mod sim;
mod soak;
mod test_run;
mod tidy;
mod timings;
mod train;

use clap::{Parser, Subcommand};

/// Build, test, simulate and measure Nacre.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run everything that must pass before a change lands; `.ci/run` calls this.
    Ci(ci::Options),
    /// Run whole clusters in the simulator, one seed after the other.
    Sim(sim::Options),
    /// Fuzz the decoders.
    Fuzz(fuzz::Options),
    /// Benchmark Nacre, alone or against a real Ceph.
    Bench(bench::Options),
    /// Run long tests on real processes.
    Soak(soak::Options),
    /// Check formatting, lints, licences, layers, and counts that may only fall.
    Tidy(tidy::Options),
    /// Make a Debian package, or an image for containers.
    Package(package::Options),
    /// Record the profile for profile-guided optimisation of `dist` builds.
    Train(train::Options),
}

fn main() -> anyhow::Result<()> {
    std::env::set_current_dir(run::repository())?;
    match Cli::parse().task {
        Task::Ci(options) => ci::run(&options),
        Task::Sim(options) => sim::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Soak(options) => soak::run(&options),
        Task::Tidy(options) => tidy::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Train(options) => train::run(&options),
    }
}
