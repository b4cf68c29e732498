//! Nacre, each daemon a process.

use crate::cluster::{Cluster, OSD_BYTES, Shape, Starts, run};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The first of its ports, counted from the shape's.
const PORTS: u16 = 260;

/// Three OSDs.
pub fn up(folder: &Path, fill: bool) -> Result<Cluster> {
    up_with(folder, Shape::default(), fill)
}

pub fn up_with(folder: &Path, shape: Shape, fill: bool) -> Result<Cluster> {
    let _ = std::fs::remove_dir_all(folder);
    let binary = binary()?;
    let nacre = |subcommand: &str| {
        let mut command = Command::new(&binary);
        command.arg(subcommand).arg("--data").arg(folder);
        command
    };
    let port = (shape.port_base + PORTS).to_string();
    let osds = shape.osds.to_string();
    let mut up = nacre("up");
    // The Ceph beside it asks for no proof, either.
    up.args(["--processes", "--detach", "--auth", "none", "--port-base", &port, "--osds", &osds]);
    if fill {
        up.args(["--preallocate", "--osd-size", &OSD_BYTES.to_string()]);
    }
    if let Some(memory) = shape.memory_mib {
        up.args(["--memory", &format!("{memory}M")]);
    }
    run(&mut up)?;
    let pid = |name: String| -> Result<u32> {
        Ok(std::fs::read_to_string(folder.join(format!("run/{name}.pid")))?.trim().parse()?)
    };
    let osds = (0..shape.osds).map(|osd| pid(format!("osd.{osd}"))).collect::<Result<_>>()?;
    let pids = (vec![pid("mon.a".to_string())?], osds);
    let mut down = nacre("down");
    let start = |daemon: &str| format!("{} start --data {} {daemon}", binary.display(), folder.display());
    let starts = Starts { osd: start("osd.{id}"), mon: start("mon.a") };
    let cluster = Cluster::new("nacre", folder.join("ceph.conf"), pids, starts, {
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
