//! Tests of `check/interop` that show more the longer they run.

use crate::run::{cargo, step};
use anyhow::Result;

#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Random operations of stock clients against a model, while OSDs are killed and hang.
    Model {
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// To do the same operations again; they meet the OSDs' deaths at other moments.
        #[arg(long)]
        seed: Option<u64>,
    },
}

pub fn run(options: &Options) -> Result<()> {
    let What::Model { minutes, seed } = &options.what;
    step("build", cargo().args(["build", "--release", "--package", "nacre"]))?;
    let mut test = cargo();
    test.args([
        "test",
        "--release",
        "--package",
        "nacre-interop",
        "--test",
        "it",
        "model",
        "--",
        "--nocapture",
    ]);
    test.env("NACRE_MODEL_SECONDS", (minutes * 60).to_string());
    if let Some(seed) = seed {
        test.env("NACRE_MODEL_SEED", seed.to_string());
    }
    step("model", &mut test)
}
