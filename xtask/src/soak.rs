//! Tests of `check/interop` that show more the longer they run, or need more than others.

use crate::ci::{PACKAGES, install_packages};
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
    /// Models of objects and of images, while daemons are killed and hang and administrators do all
    /// that they do; after each episode everything must be well.
    Chaos {
        #[arg(long, default_value_t = 10)]
        episodes: u64,
        /// Of an episode's faults; a minute or two more until all is compared.
        #[arg(long, default_value_t = 240)]
        seconds: u64,
        /// To have the same faults again; they meet the cluster at other moments.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Very many watchers of one object, all of whom hear of every notify once.
    Watchers {
        #[arg(long, default_value_t = 1000)]
        count: u32,
    },
    /// A guest under qemu that boots from an image and writes, while the cluster and then its host
    /// are killed.
    Guest,
}

/// What a guest is made of and runs in; its kernel is downloaded and not installed.
const GUEST_PACKAGES: [(&str, &str); 4] = [
    ("qemu-system-x86", "/usr/bin/qemu-system-x86_64"),
    ("busybox-static", "/usr/share/doc/busybox-static"),
    ("cpio", "/usr/bin/cpio"),
    ("e2fsprogs", "/usr/sbin/mkfs.ext4"),
];

pub fn run(options: &Options) -> Result<()> {
    install_packages(&PACKAGES, false)?;
    step("build", cargo().args(["build", "--release", "--package", "nacre"]))?;
    let mut test = cargo();
    test.args(["test", "--release", "--package", "nacre-interop", "--test", "it"]);
    match &options.what {
        What::Model { minutes, seed } => {
            test.env("NACRE_MODEL_SECONDS", (minutes * 60).to_string());
            if let Some(seed) = seed {
                test.env("NACRE_MODEL_SEED", seed.to_string());
            }
            step("model", test.args(["model", "--", "--nocapture"]))
        }
        What::Chaos { episodes, seconds, seed } => {
            test.env("NACRE_CHAOS_EPISODES", episodes.to_string());
            test.env("NACRE_CHAOS_SECONDS", seconds.to_string());
            if let Some(seed) = seed {
                test.env("NACRE_CHAOS_SEED", seed.to_string());
            }
            step("chaos", test.args(["everything_at_once", "--", "--ignored", "--nocapture"]))
        }
        What::Watchers { count } => {
            test.env("NACRE_WATCHERS", count.to_string());
            step("watchers", test.args(["watches_get_through_trouble", "--", "--nocapture"]))
        }
        What::Guest => {
            install_packages(&GUEST_PACKAGES, false)?;
            step("guest", test.args(["guest", "--", "--ignored", "--nocapture"]))
        }
    }
}
