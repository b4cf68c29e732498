//! A real Ceph from Debian's packages: one monitor, one manager, BlueStore OSDs, on loopback.
//!
//! Everything that is not said here is Ceph's default.

use crate::cluster::{Cluster, OSD_BYTES, Shape, Starts, run};
use anyhow::{Context, Result, bail, ensure};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Whatever else is measured beside full block files needs no more.
const OTHERS_BYTES: u64 = 10 << 30;
/// Upstream links it, Debian does not.
pub const TCMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4";

/// Three OSDs.
pub fn up(folder: &Path, tcmalloc: bool, fill: bool) -> Result<Cluster> {
    up_with(folder, Shape::default(), tcmalloc, fill)
}

pub fn up_with(folder: &Path, shape: Shape, tcmalloc: bool, fill: bool) -> Result<Cluster> {
    let port = shape.port_base;
    let programs = ["ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "monmaptool"];
    if let Some(missing) = programs.iter().find(|program| !Path::new("/usr/bin").join(program).exists()) {
        bail!("{missing} is missing: apt-get install ceph-mon ceph-mgr ceph-osd ceph-common");
    }
    if tcmalloc && !Path::new(TCMALLOC).exists() {
        bail!("{TCMALLOC} is missing: apt-get install libgoogle-perftools4");
    }
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder)?;
    if fill {
        ensure_room_to_fill(folder, shape.osds)?;
    }
    let conf = folder.join("ceph.conf");
    let fsid = uuid::Uuid::new_v4().to_string();
    std::fs::write(&conf, configuration(folder, &fsid, port))?;

    let mut daemons = Daemons(Vec::new());
    let monmap = folder.join("monmap");
    let addresses = format!("[v2:127.0.0.1:{port},v1:127.0.0.1:{}]", port + 1);
    let mut make = Command::new("monmaptool");
    make.args(["--create", "--clobber", "--fsid", &fsid, "--set-min-mon-release", "pacific"]);
    run(make.args(["--addv", "a", &addresses]).arg(&monmap))?;
    let program = |name: &str, id: &str| {
        let mut command = Command::new(name);
        command.arg("-c").arg(&conf).args(["-i", id]);
        command
    };
    run(program("ceph-mon", "a").arg("--mkfs").arg("--monmap").arg(&monmap))?;
    let mon = daemons.start(folder, "mon.a", program("ceph-mon", "a").arg("-f"))?;
    std::fs::create_dir_all(folder.join("mgr.x"))?;
    let mgr = daemons.start(folder, "mgr.x", program("ceph-mgr", "x").arg("-f"))?;

    let ceph = |words: &[&str]| run(Command::new("ceph").env("CEPH_CONF", &conf).args(words));
    let mut osds = Vec::new();
    for id in (0..shape.osds).map(|id| id.to_string()) {
        let data = folder.join(format!("osd.{id}"));
        std::fs::create_dir_all(&data)?;
        if fill {
            write_zeros(&data.join("block"))?;
        }
        let uuid = uuid::Uuid::new_v4().to_string();
        ceph(&["osd", "new", &uuid, &id])?;
        run(program("ceph-osd", &id).args(["--mkfs", "--osd-uuid", &uuid, "--no-mon-config"]))?;
        let mut start = program("ceph-osd", &id);
        if tcmalloc {
            start.env("LD_PRELOAD", TCMALLOC);
        }
        osds.push(daemons.start(folder, &format!("osd.{id}"), start.arg("-f"))?);
    }

    let pids = folder.join("started");
    // Remembered, as it is no child of ours.
    let start = |daemon: &str, id: &str| {
        format!("ceph-{daemon} -c {} -i {id} -f & echo $! >> {}", conf.display(), pids.display())
    };
    let starts = Starts { osd: start("osd", "{id}"), mon: start("mon", "a") + "; " + &start("mgr", "x") };
    let cluster = Cluster::new("ceph", conf.clone(), (vec![mon, mgr], osds), starts, {
        let folder = folder.to_path_buf();
        move || {
            drop(daemons);
            for pid in std::fs::read_to_string(&pids).unwrap_or_default().lines() {
                let _ = Command::new("kill").args(["-9", pid]).status();
            }
            let _ = std::fs::remove_dir_all(&folder);
        }
    });
    cluster.wait_healthy()?;
    Ok(cluster)
}

fn configuration(folder: &Path, fsid: &str, port: u16) -> String {
    let folder = folder.display();
    format!(
        "[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{port},v1:127.0.0.1:{v1}]
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
run_dir = {folder}
crash_dir = {folder}
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_port_min = {ports}
ms_bind_port_max = {ports_end}
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_delete = true
mon_warn_on_pool_no_app = false
mon_osd_reporter_subtree_level = osd
mon_data_avail_warn = 5
auth_allow_insecure_global_id_reclaim = true
mon_warn_on_insecure_global_id_reclaim_allowed = false
[mon]
mon_data = {folder}/mon.$id
log_file = {folder}/$name.log
[mgr]
mgr_data = {folder}/mgr.$id
log_file = {folder}/$name.log
[osd]
osd_data = {folder}/osd.$id
log_file = {folder}/$name.log
osd_objectstore = bluestore
bluestore_block_create = true
bluestore_block_size = {OSD_BYTES}
osd_memory_target = 1073741824
# A virtual disk often says that it rotates; these are Ceph's own values for one that does not.
bluestore_debug_enforce_settings = ssd
# A drill stops and starts the same OSDs. One that was marked down five times in ten minutes exits for good.
osd_max_markdown_count = 1000
osd_op_num_shards = 8
osd_op_num_threads_per_shard = 2
",
        v1 = port + 1,
        ports = port + 20,
        ports_end = port + 250,
    )
}

/// A file system that is full in the middle of a run ends the daemons of both clusters, whose files are full.
fn ensure_room_to_fill(folder: &Path, osds: u32) -> Result<()> {
    let needed = 2 * u64::from(osds) * OSD_BYTES + OTHERS_BYTES;
    let stat = rustix::fs::statvfs(folder).context("cannot see how much room there is")?;
    let free = stat.f_bavail * stat.f_frsize;
    ensure!(
        free >= needed,
        "{} has {} GiB free, and --fill needs {}: make room, or measure elsewhere with --folder",
        folder.display(),
        free >> 30,
        needed >> 30
    );
    Ok(())
}

fn write_zeros(file: &Path) -> Result<()> {
    let mut file = std::fs::File::create(file)?;
    let zeros = vec![0; 4 << 20];
    for _ in 0..OSD_BYTES / zeros.len() as u64 {
        file.write_all(&zeros)?;
    }
    file.sync_all().context("cannot write the block file")
}

/// Started by us, ended by us.
struct Daemons(Vec<Child>);

impl Daemons {
    fn start(&mut self, folder: &Path, name: &str, command: &mut Command) -> Result<u32> {
        let log = std::fs::File::create(folder.join(format!("{name}.out")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let pid = child.id();
        self.0.push(child);
        Ok(pid)
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A benchmark's data need no clean end.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
