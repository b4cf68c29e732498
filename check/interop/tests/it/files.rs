//! Ceph's own metadata server, `ceph-mds`, and its clients on a cluster.

use anyhow::{Context, Result, ensure};
use nacre_interop::{Cluster, nacre_binary, scripts, send_signal, succeed, text, wait_until};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SOON: Duration = Duration::from_secs(90);

/// Kills the metadata servers and the mounts of a cluster when dropped, also those that went into the
/// background.
struct Processes {
    /// The variable by which they know the cluster, as it stands in their environment.
    variable: String,
    /// Folders that have mounts: the cluster's, and the page's.
    folders: Vec<PathBuf>,
}

impl Processes {
    fn of(c: &Cluster, page: &Path) -> Processes {
        let variable = format!("CEPH_CONF={}", c.conf().display());
        Processes { variable, folders: vec![c.folder().to_owned(), page.to_owned()] }
    }
    /// A process that waits for a mount cannot be killed before the mount's own process is.
    fn kill(&self) {
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
            let is_of_cluster = environment.split(|b| *b == 0).any(|entry| entry == self.variable.as_bytes());
            if is_of_cluster && ["ceph-mds", "ceph-fuse"].contains(&name.trim()) {
                let _ = send_signal(process.file_name().to_string_lossy(), "KILL");
            }
        }
    }
    /// Runs to the end, as `succeed` does, or kills everything after `SOON`.
    fn run(&self, command: &mut Command) -> Result<String> {
        let mut output = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let ended = self.wait(&format!("{command:?}"), child);
        output.rewind()?;
        let mut said = Vec::new();
        output.read_to_end(&mut said)?;
        ended.with_context(|| text(&said))?;
        Ok(text(&said))
    }
    fn wait(&self, what: &str, mut child: Child) -> Result<()> {
        let waited = wait_until(what, SOON, || Ok(child.try_wait()?.is_some()));
        if waited.is_err() {
            self.kill();
            let _ = child.kill();
        }
        let status = child.wait()?;
        waited?;
        ensure!(status.success(), "{what}: {status}");
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for at in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
            if self.folders.iter().any(|folder| Path::new(at).starts_with(folder)) {
                let _ = Command::new("umount").arg("-l").arg(at).status();
            }
        }
    }
}

/// A metadata server; killed when dropped.
pub(crate) struct Mds(Child);

impl Mds {
    pub(crate) fn start(c: &Cluster, name: &str) -> Result<Mds> {
        let keyring = c.folder().join(format!("mds.{name}.keyring"));
        let mut get = c.client("timeout");
        get.args(["60", "ceph", "auth", "get-or-create", &format!("mds.{name}"), "mon", "profile mds"]);
        get.args(["mgr", "profile mds", "mds", "allow *", "osd", "allow rwx"]);
        std::fs::write(&keyring, succeed(&mut get)?)?;
        let mut command = c.client("ceph-mds");
        command.args(["-f", "-i", name]).arg(format!("--keyring={}", keyring.display()));
        command.arg(format!("--log-file={}", c.folder().join(format!("log/mds.{name}.log")).display()));
        command.arg(format!("--admin-socket={}", c.folder().join(format!("mds.{name}.asok")).display()));
        command.args(["--mds-beacon-interval=1", "--mds-tick-interval=1", "--mds-scatter-nudge-interval=1"]);
        let quiet = || Stdio::null();
        Ok(Mds(command.stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn()?))
    }
}

impl Drop for Mds {
    /// Without a chance to say anything.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file system mounted with `ceph-fuse`.
struct Mount<'a> {
    processes: &'a Processes,
    client: Option<Child>,
    at: PathBuf,
}

impl<'a> Mount<'a> {
    fn of(c: &Cluster, processes: &'a Processes, name: &str) -> Result<Mount<'a>> {
        Mount::at(c, processes, name, "mnt")
    }
    fn at(c: &Cluster, processes: &'a Processes, name: &str, at: &str) -> Result<Mount<'a>> {
        let at = c.folder().join(at);
        std::fs::create_dir_all(&at)?;
        let mut command = c.client("ceph-fuse");
        command.arg("-f").arg(&at).args(["--client-fs", name]);
        command.arg(format!("--log-file={}", c.folder().join("log/ceph-fuse.log").display()));
        let quiet = || Stdio::null();
        let client = command.stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn()?;
        let mount = Mount { processes, client: Some(client), at };
        // The table of mounts is read, and the mount itself left alone: it may hang.
        wait_until("the mount", SOON, || Ok(mount.is_mounted()))?;
        Ok(mount)
    }
    fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|at| Path::new(at) == self.at))
    }
    /// A script that knows the mount as `$M`.
    fn script(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-ec", script]).env("M", &self.at);
        command
    }
    fn sh(&self, script: &str) -> Result<String> {
        self.processes.run(&mut self.script(script))
    }
    fn unmount(mut self) -> Result<()> {
        self.processes.run(Command::new("umount").arg(&self.at))?;
        self.processes.wait("ceph-fuse", self.client.take().context("it was started")?)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        if let Some(mut client) = self.client.take() {
            let _ = client.kill();
            let _ = client.wait();
        }
    }
}

/// Until a file system has an active server. Gives its name.
pub(crate) fn wait_active(c: &Cluster, fs: &str) -> Result<String> {
    let mut name = String::new();
    wait_until(&format!("{fs} to have an active server"), SOON, || {
        let map = c.json(&format!("ceph fs get {fs}"))?;
        let infos = map["mdsmap"]["info"].as_object().context("no servers")?;
        let active = infos.values().find(|info| info["state"] == "up:active");
        name = active.and_then(|info| info["name"].as_str()).unwrap_or_default().to_owned();
        Ok(!name.is_empty())
    })?;
    Ok(name)
}

/// Every `console` block of the page on files, in a folder whose `nacre-data` is a running cluster.
fn run_the_page(c: &Cluster, processes: &Processes, here: &Path) -> Result<()> {
    std::os::unix::fs::symlink(c.folder(), here.join("nacre-data"))?;
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/files.md"))?;
    let mut ran = 0;
    for block in page.split("```console\n").skip(1) {
        let lines = block.split("```").next().unwrap_or_default().lines();
        let commands: Vec<&str> = lines.filter_map(|line| line.strip_prefix("$ ")).collect();
        let script = format!("set -e\n{}", commands.join("\n"));
        processes.run(c.client("bash").args(["-c", &script]).current_dir(here))?;
        ran += commands.len();
    }
    ensure!(ran > 10, "only {ran} commands were found");
    Ok(())
}

/// What `docs/files.md` shows, what programs do, and what is left when a metadata server dies.
#[test]
fn files_of_stock_metadata_servers_outlive_the_servers() -> Result<()> {
    let c = Cluster::up()?;
    let here = tempfile::Builder::new().prefix("nacre-test-").tempdir()?;
    let processes = Processes::of(&c, here.path());
    run_the_page(&c, &processes, here.path())?;

    c.run("ceph fs volume create a")?;
    let mut servers = vec![("one", Mds::start(&c, "one")?)];
    wait_active(&c, "a")?;
    servers.push(("two", Mds::start(&c, "two")?));
    let m = Mount::of(&c, &processes, "a")?;
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let tree = tree.display();
    m.sh(&format!("cp -r {tree} $M/tree; diff -r {tree} $M/tree; ln $M/tree/s3.md $M/hard; sync"))?;
    m.unmount()?;
    let m = Mount::of(&c, &processes, "a")?;
    m.sh(&format!("diff -r {tree} $M/tree; cmp $M/hard $M/tree/s3.md; test $(stat -c %h $M/hard) = 2"))?;

    // Another client, and another file system at the same time, with a server of its own.
    let other = Mount::at(&c, &processes, "a", "other")?;
    let locks = processes.run(
        Command::new("/usr/bin/python3").arg(scripts().join("files_locks.py")).args([&m.at, &other.at]),
    )?;
    ensure!(locks == "all good\n", "{locks}");
    other.unmount()?;
    c.run("ceph fs volume create b")?;
    wait_active(&c, "b")?;
    servers.push(("three", Mds::start(&c, "three")?));
    let b = Mount::at(&c, &processes, "b", "other")?;
    b.sh("echo b > $M/hard; sync $M/hard")?;
    m.sh("! grep -q ^b$ $M/hard")?;
    b.unmount()?;

    // What other interfaces have: quotas, snapshots, layouts, more pools.
    c.run("ceph osd pool create more 8")?;
    c.run("ceph fs add_data_pool a more")?;
    let script = scripts().join("files.py");
    let said = c.run(&format!("/usr/bin/python3 {} a more", script.display()))?;
    ensure!(said == "all good\n", "{said}");

    // Its server dies while files are written.
    wait_until("a server to stand by", SOON, || Ok(c.json("ceph status")?["fsmap"]["up:standby"] == 1))?;
    let status = c.run("ceph -s")?;
    ensure!(status.contains("mds: 2/2 daemons up, 1 standby"), "{status}");
    let first = wait_active(&c, "a")?;
    let status = c.run("ceph fs status a")?;
    ensure!(status.contains(&format!("active  {first}")), "{status}");
    c.run("ceph config set mon mds_beacon_grace 5")?;
    let fenced_before = c.run("ceph osd blocklist ls")?;
    let writes = "for n in $(seq 150); do echo $n > $M/w$n; sync $M/w$n; done; rm $M/w150";
    let writer = m.script(writes).spawn()?;
    wait_until("a file", SOON, || Ok(m.sh("test -e $M/w10").is_ok()))?;
    let at = servers.iter().position(|(name, _)| *name == first).context("an unknown server")?;
    drop(servers.remove(at));
    processes.wait("the writer", writer)?;
    let second = wait_active(&c, "a")?;
    ensure!(second != first, "{second} was killed");
    let fenced = c.run("ceph osd blocklist ls")?;
    ensure!(fenced.lines().count() > fenced_before.lines().count(), "{first} is not fenced: {fenced}");
    m.sh("for n in $(seq 149); do test $(cat $M/w$n) = $n; done; ! test -e $M/w150")?;
    m.unmount()
}

/// Clients work after a model while daemons and clients are killed and stopped: `scripts/files_chaos.py`.
/// `cargo xtask soak files` runs it for longer.
#[test]
fn files_are_what_a_model_says_whatever_is_killed() -> Result<()> {
    let from_environment = |name: &str| std::env::var(name).ok();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let seed = from_environment("NACRE_FILES_SEED").unwrap_or_else(|| now.to_string());
    let seconds = from_environment("NACRE_FILES_SECONDS").unwrap_or_else(|| "6".to_string());
    println!("again: NACRE_FILES_SEED={seed}");
    let c = Cluster::up_with(&["--processes", "--mons", "3"])?;
    let _processes = Processes::of(&c, c.folder());
    let mut chaos = c.python_command("files_chaos.py");
    chaos.arg(c.folder()).arg(nacre_binary()).args([seed, seconds]).stdin(Stdio::null());
    ensure!(chaos.status()?.success(), "the files are not as they should be");
    Ok(())
}
