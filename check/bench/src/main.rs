//! Measures Nacre beside a real Ceph: the same stock clients, the same disk, the same run.
//!
//! Absolute figures depend on the machine and on the day; the ratios are what to look at.

mod beside;
mod client;
mod cluster;
mod counts;
mod device;
mod failure;
mod files;
mod fio;
mod instructions;
mod nacre;
mod plot;
mod pools;
mod probe;
mod rbd;
mod reference;
mod report;
mod s3;
mod store;
mod trim;
mod vs_ceph;
mod workload;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run the same stock clients on Ceph from Debian's packages and on Nacre, alternately.
    VsCeph(vs_ceph::Options),
    /// Something goes away while clients write, and comes back.
    Failure(failure::Options),
    /// fio on an image: Ceph and Nacre, alternately.
    Rbd(rbd::Options),
    /// Objects over HTTP: radosgw on Ceph and Nacre's gateway on Nacre, alternately.
    S3(s3::Options),
    /// Files through Ceph's metadata server: Ceph's OSDs and Nacre's, alternately.
    Files(files::Options),
    /// A snapshot of many objects is removed while clients write.
    Trim(trim::Options),
    /// One process of the probe that `rbd` measures beside the clusters; started by it.
    #[command(hide = true)]
    Probe(probe::Options),
    /// Count messages, system calls, disk writes and flushes per operation.
    Counts(counts::Options),
    /// Instructions that the core takes for an operation, without network, OSD and device.
    Instructions(instructions::Options),
    /// Does this many operations of one kind; started by `instructions`.
    #[command(hide = true)]
    Work(instructions::Work),
    /// Measure the asynchronous client, as a gateway process uses it, against the cluster of `CEPH_CONF`.
    Client(client::Options),
    /// Measure the store alone, without network and OSD, against the bare device.
    Store(store::Options),
}

fn main() -> Result<()> {
    match Cli::parse().what {
        What::VsCeph(options) => vs_ceph::measure(&options),
        What::Failure(options) => failure::measure(&options),
        What::Rbd(options) => rbd::measure(&options),
        What::S3(options) => s3::measure(&options),
        What::Files(options) => files::measure(&options),
        What::Trim(options) => trim::measure(&options),
        What::Probe(options) => probe::serve(&options),
        What::Counts(options) => counts::count(&options),
        What::Instructions(options) => instructions::count(&options),
        What::Work(work) => instructions::work(&work),
        What::Client(options) => client::measure(&options),
        What::Store(options) => store::measure(&options),
    }
}
