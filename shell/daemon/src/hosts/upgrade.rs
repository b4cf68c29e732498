//! `nacre upgrade`: the monitors decide (`core/mon/src/services/upgrade.rs`), the hosts' agents restart.

use super::{Folder, Shown, change, show};
use crate::release;
use anyhow::Result;
use serde_json::json;

#[derive(clap::Subcommand)]
pub enum UpgradeCommand {
    /// Show the versions of hosts and daemons, and what an upgrade would wait for.
    Check(Shown),
    /// Restart all daemons of the cluster with the version that is installed.
    ///
    /// Install the new version on all hosts first. Daemons are restarted a few at a time: monitors, then OSDs
    /// by failure domain, then others.
    Start(Folder),
    /// Show the upgrade in progress.
    Status(Shown),
    /// Begin no further step.
    Pause(Folder),
    /// Go on with a paused or halted upgrade.
    Resume(Folder),
    /// End the upgrade where it is.
    Stop(Folder),
    /// Enable what is new, when all daemons run the new version. There is no way back from it.
    Finish {
        /// Daemons that are down need the new version from now on
        #[arg(long)]
        yes_i_really_mean_it: bool,
        #[command(flatten)]
        folder: Folder,
    },
}

/// Carries a command out.
pub fn upgrade(words: &UpgradeCommand) -> Result<()> {
    match words {
        UpgradeCommand::Check(shown) => show(json!({ "prefix": "upgrade check" }), shown),
        UpgradeCommand::Start(folder) => {
            change(json!({ "prefix": "upgrade start", "ceph_version": release::version() }), folder)
        }
        UpgradeCommand::Status(shown) => show(json!({ "prefix": "upgrade status" }), shown),
        UpgradeCommand::Pause(folder) => change(json!({ "prefix": "upgrade pause" }), folder),
        UpgradeCommand::Resume(folder) => change(json!({ "prefix": "upgrade resume" }), folder),
        UpgradeCommand::Stop(folder) => change(json!({ "prefix": "upgrade stop" }), folder),
        UpgradeCommand::Finish { yes_i_really_mean_it, folder } => {
            let words = json!({ "prefix": "upgrade finish", "yes_i_really_mean_it": yes_i_really_mean_it });
            change(words, folder)
        }
    }
}
