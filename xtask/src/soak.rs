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
    /// Run random operations of stock clients against a model, while OSDs are killed or hang.
    Model {
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// Seed of the operations. Failures of OSDs still happen at other moments.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run models of objects and images, while daemons are killed or hang and an administrator changes the
    /// cluster. After each episode the cluster must be healthy.
    Chaos {
        #[arg(long, default_value_t = 10)]
        episodes: u64,
        /// Seconds of faults per episode. The comparison afterwards takes another minute or two.
        #[arg(long, default_value_t = 240)]
        seconds: u64,
        /// Seed of the faults. They still happen at other moments.
        #[arg(long)]
        seed: Option<u64>,
        /// Keep large objects and images in erasure-coded pools in every episode, and not only in some.
        #[arg(long)]
        erasure: bool,
    },
    /// Run models of trees of files, while metadata servers, OSDs, monitors and clients are killed or hang.
    Files {
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// Seed of the operations and the faults. They still happen at other moments.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run a thousand watchers of one object, each of which must receive every notify once.
    Watchers {
        #[arg(long, default_value_t = 1000)]
        count: u32,
    },
    /// Run five hosts in three racks, while a client writes, links between hosts are cut, slow or bad, and
    /// hosts and racks lose their power. No acknowledged write may be lost.
    Hosts {
        #[arg(long, default_value_t = 10)]
        episodes: u64,
        /// Seed of the faults. They still happen at other moments.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Take one of three hosts with five OSDs each away while a client writes 200 times a second, and bring
    /// it back. Prints how long writes took in each phase.
    HostAway {
        #[arg(long, default_value_t = 190)]
        seconds: u64,
    },
    /// Boot a guest from an image under qemu, and kill the cluster and then the guest's host while it
    /// writes.
    Guest {
        /// Keep the image's data in an erasure-coded pool.
        #[arg(long)]
        erasure: bool,
    },
    /// Let users of Keystone itself use a gateway, over Swift and S3.
    Keystone,
    /// List a bucket of a million keys while it grows, and one of a million delete markers. Then kill OSDs
    /// and a monitor under S3 load, which must see no error, and hold ten thousand idle connections.
    S3 {
        /// Rounds in which two OSDs and the monitor are killed once.
        #[arg(long, default_value_t = 10)]
        rounds: u64,
    },
}

/// What Keystone needs.
const KEYSTONE: [(&str, &str); 3] = [
    ("python3-keystone", "/usr/bin/keystone-manage"),
    ("uwsgi-core", "/usr/bin/uwsgi-core"),
    ("uwsgi-plugin-python3", "/usr/lib/uwsgi/plugins/python3_plugin.so"),
];

pub fn run(options: &Options) -> Result<()> {
    install_packages(&PACKAGES, false)?;
    step("build", cargo().args(["build", "--release", "--package", "nacre"]))?;
    let mut test = cargo();
    test.args(["test", "--release", "--package", "nacre-interop", "--test", "interop"]);
    match &options.what {
        What::Model { minutes, seed } => {
            test.env("NACRE_MODEL_SECONDS", (minutes * 60).to_string());
            if let Some(seed) = seed {
                test.env("NACRE_MODEL_SEED", seed.to_string());
            }
            step("model", test.args(["model", "--", "--nocapture"]))
        }
        What::Chaos { episodes, seconds, seed, erasure } => {
            if *erasure {
                test.env("NACRE_CHAOS_POOLS", "erasure");
            }
            test.env("NACRE_CHAOS_EPISODES", episodes.to_string());
            test.env("NACRE_CHAOS_SECONDS", seconds.to_string());
            if let Some(seed) = seed {
                test.env("NACRE_CHAOS_SEED", seed.to_string());
            }
            step("chaos", test.args(["everything_at_once", "--", "--ignored", "--nocapture"]))
        }
        What::Files { minutes, seed } => {
            test.env("NACRE_FILES_SECONDS", (minutes * 60).to_string());
            if let Some(seed) = seed {
                test.env("NACRE_FILES_SEED", seed.to_string());
            }
            step("files", test.args(["files_are_what", "--", "--nocapture"]))
        }
        What::Watchers { count } => {
            test.env("NACRE_WATCHERS", count.to_string());
            step("watchers", test.args(["watches_get_through_trouble", "--", "--nocapture"]))
        }
        What::Hosts { episodes, seed } => {
            test.env("NACRE_HOSTS_EPISODES", episodes.to_string());
            if let Some(seed) = seed {
                test.env("NACRE_HOSTS_SEED", seed.to_string());
            }
            step("hosts", test.args(["random_faults_of_hosts", "--", "--ignored", "--nocapture"]))
        }
        What::HostAway { seconds } => {
            test.env("NACRE_AWAY_SECONDS", seconds.to_string());
            step("host", test.args(["host_of_five_osds", "--", "--ignored", "--nocapture"]))
        }
        What::Guest { erasure } => {
            if *erasure {
                test.env("NACRE_GUEST_POOL", "erasure");
            }
            step("guest", test.args(["guest", "--", "--ignored", "--nocapture"]))
        }
        What::S3 { rounds } => {
            let mut index = cargo();
            index.args(["test", "--release", "--package", "nacre-s3", "--lib", "million"]);
            step("index", index.args(["--", "--ignored", "--nocapture", "--test-threads=1"]))?;
            test.env("NACRE_S3_ROUNDS", rounds.to_string());
            step("s3", test.args(["--", "are_latency_for_clients", "idle_connections", "--nocapture"]))
        }
        What::Keystone => {
            install_packages(&KEYSTONE, false)?;
            step("keystone", test.args(["users_of_keystone_itself", "--", "--ignored", "--nocapture"]))
        }
    }
}
