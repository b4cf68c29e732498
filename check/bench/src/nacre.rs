//! Nacre, three OSDs, each daemon a process.

use crate::cluster::{Cluster, run};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn up(folder: &Path) -> Result<Cluster> {
    let _ = std::fs::remove_dir_all(folder);
    let binary = binary()?;
    let nacre = |subcommand: &str| {
        let mut command = Command::new(&binary);
        command.arg(subcommand).arg("--data").arg(folder);
        command
    };
    run(nacre("up").args(["--processes", "--detach", "--port-base", "27600"]))?;
    let pid = |osd: u32| -> Result<u32> {
        Ok(std::fs::read_to_string(folder.join(format!("run/osd.{osd}.pid")))?.trim().parse()?)
    };
    let osds = (0..3).map(pid).collect::<Result<_>>()?;
    let mut down = nacre("down");
    let start = format!("{} start --data {} osd.{{id}}", binary.display(), folder.display());
    let cluster = Cluster::new("nacre", folder.join("ceph.conf"), osds, start, {
        let folder = folder.to_path_buf();
        move || {
            if let Err(error) = run(&mut down) {
                eprintln!("{error:#}");
            }
            let _ = std::fs::remove_dir_all(&folder);
        }
    });
    cluster.wait_healthy()?;
    Ok(cluster)
}

/// Built beside us, in the same profile.
fn binary() -> Result<PathBuf> {
    let ours = std::env::current_exe()?;
    Ok(ours.parent().context("no folder")?.join("nacre"))
}
