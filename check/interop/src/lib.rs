//! A Nacre cluster of real processes and the stock clients to use it with.
//!
//! Tests live in `tests/it/`. They need the `nacre` binary (built beside them in the same target
//! folder), and the Debian packages that `cargo xtask ci` installs (`xtask/src/ci.rs`). Those that use mounts
//! or network namespaces need root.

pub mod background;
pub mod hosts;
pub mod system;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// A cluster in a folder of its own; stopped and removed when dropped.
pub struct Cluster {
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Three OSDs and a monitor, each a process.
    pub fn up() -> Result<Cluster> {
        Cluster::up_with(&["--processes"])
    }

    pub fn up_with(options: &[&str]) -> Result<Cluster> {
        Cluster::up_at(free_ports()?, options)
    }

    fn up_at(port_base: u16, options: &[&str]) -> Result<Cluster> {
        let cluster = Cluster { folder: tempfile::Builder::new().prefix("nacre-test-").tempdir()? };
        let mut up = cluster.nacre("up");
        // The tests of the gateway ask for it with `--s3`.
        up.args(["--detach", "--no-s3", "--osd-size", "4G", "--port-base"]);
        up.arg(port_base.to_string()).args(options);
        succeed(&mut up)?;
        Ok(cluster)
    }

    /// One that has the addresses of this one, which is down.
    pub fn another_at_its_addresses(&self, options: &[&str]) -> Result<Cluster> {
        let config: Value = serde_json::from_slice(&std::fs::read(self.folder().join("cluster.json"))?)?;
        let base = config["port_base"].as_u64().context("a folder knows its ports")?;
        Cluster::up_at(u16::try_from(base)?, options)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The `nacre` binary with a subcommand such as `mon format`, on this cluster's folder.
    pub fn nacre(&self, subcommand: &str) -> Command {
        let mut command = Command::new(nacre_binary());
        command.args(subcommand.split(' ')).arg("--data").arg(self.folder());
        command
    }

    /// The configuration for stock clients.
    pub fn conf(&self) -> PathBuf {
        self.folder().join("ceph.conf")
    }

    /// A stock program, told where the cluster is.
    pub fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("CEPH_CONF", self.conf()).env_remove("CEPH_ARGS");
        command
    }

    /// Runs a stock command line such as `rados -p rbd ls` and gives its output; words are split
    /// at blanks.
    pub fn run(&self, line: &str) -> Result<String> {
        run_line(self.client("timeout"), line)
    }

    /// The same, whatever the exit status.
    pub fn try_run(&self, line: &str) -> Result<Output> {
        try_line(self.client("timeout"), line)
    }

    pub fn json(&self, line: &str) -> Result<Value> {
        json_line(self.client("timeout"), line)
    }

    /// Runs one of `scripts/` with the system's Python, which has the stock bindings.
    pub fn python(&self, script: &str, arguments: &[&str]) -> Result<String> {
        succeed(self.python_command(script).args(arguments))
    }

    pub fn python_command(&self, script: &str) -> Command {
        let mut command = self.client("/usr/bin/python3");
        command.arg(scripts().join(script));
        command
    }

    /// A process writes objects into a pool as fast as it is answered. Returns when it has begun.
    pub fn start_load(&self, pool: &str) -> Result<Load> {
        Load::start(self.client("/usr/bin/python3"), pool)
    }

    /// SIGKILL to one daemon, such as `osd.1`.
    pub fn kill(&self, daemon: &str) -> Result<()> {
        kill_and_wait(self.pid(daemon)?)
    }

    pub fn signal(&self, daemon: &str, signal: &str) -> Result<()> {
        send_signal(self.pid(daemon)?, signal)
    }

    pub fn start(&self, daemon: &str) -> Result<()> {
        succeed(self.nacre("start").arg(daemon)).map(drop)
    }

    pub fn daemons(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.folder().join("run"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".pid").map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    fn pid(&self, daemon: &str) -> Result<String> {
        let file = self.folder().join("run").join(format!("{daemon}.pid"));
        let pid = std::fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))?;
        Ok(pid.trim().to_owned())
    }

    /// Until every placement group is active+clean.
    /// Groups may still trim snapshots: under a load that makes and removes them, some always do.
    pub fn wait_clean(&self) -> Result<()> {
        wait_until("all placement groups to be active+clean", Duration::from_secs(120), || {
            let status = self.json("ceph status")?;
            let pgs = &status["pgmap"];
            let clean: u64 = pgs["pgs_by_state"].as_array().map_or(0, |states| {
                let clean = states.iter().filter(|s| {
                    s["state_name"].as_str().is_some_and(|name| name.starts_with("active+clean"))
                });
                clean.filter_map(|s| s["count"].as_u64()).sum()
            });
            Ok(pgs["num_pgs"].as_u64() == Some(clean))
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        show_logs(&self.folder().join("log"));
        if let Err(error) = succeed(&mut self.nacre("down")) {
            eprintln!("nacre down: {error:#}");
        }
    }
}

/// `scripts/load.py` at work.
pub struct Load {
    writer: Child,
    said: BufReader<ChildStdout>,
}

impl Load {
    /// `python` is the interpreter, told where the cluster is.
    fn start(mut python: Command, pool: &str) -> Result<Load> {
        python.arg(scripts().join("load.py")).args(["write", pool]);
        let mut writer = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut load = Load { said: BufReader::new(writer.stdout.take().context("it has one")?), writer };
        let line = load.line()?;
        ensure!(line == "writing\n", "the load did not begin: {line}");
        Ok(load)
    }
    /// How many writes were acknowledged until now.
    pub fn count(&mut self) -> Result<u64> {
        self.writer.stdin.as_mut().context("it has one")?.write_all(b"count\n")?;
        let line = self.line()?;
        line.trim().parse().with_context(|| format!("the load says {line}"))
    }
    pub fn signal(&self, signal: &str) -> Result<()> {
        send_signal(self.writer.id(), signal)
    }
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line)
    }
    /// It stops, reads every object that was acknowledged, and finds what it wrote; or this fails.
    pub fn finish(mut self) -> Result<()> {
        self.writer.stdin.take().context("it has one")?.write_all(b"stop\n")?;
        let line = self.line()?;
        let status = self.writer.wait()?;
        ensure!(status.success() && line.starts_with("all good"), "the load ended with {status}: {line}");
        Ok(())
    }
}

/// Shows the ends of the daemons' logs if the test has failed.
fn show_logs(folder: &Path) {
    if !std::thread::panicking() {
        return;
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    logs.sort();
    for log in logs {
        let lines = std::fs::read_to_string(&log).unwrap_or_default();
        let tail: Vec<&str> = lines.lines().rev().take(25).collect();
        eprintln!("--- {}", log.display());
        tail.iter().rev().for_each(|line| eprintln!("{line}"));
    }
}

/// Sends a signal to a process, or to a process group: its id with a minus sign.
pub fn send_signal(process: impl Display, signal: &str) -> Result<()> {
    succeed(Command::new("kill").args([&format!("-{signal}"), "--", &process.to_string()])).map(drop)
}

/// SIGKILL to a process. When this returns, it holds no files, locks or ports.
pub fn kill_and_wait(pid: impl Display) -> Result<()> {
    send_signal(&pid, "KILL")?;
    wait_gone(pid)
}

/// Waits until a killed process is gone. A zombie holds no files once it is the last thread.
fn wait_gone(pid: impl Display) -> Result<()> {
    let process = Path::new("/proc").join(pid.to_string());
    let is_gone = || {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        let threads = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
        threads == 0 || threads == 1 && stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"))
    };
    wait_until("the killed process to be gone", Duration::from_secs(10), || Ok(is_gone()))
}

/// Runs to the end and gives what was printed; fails with everything that was printed.
pub fn succeed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    printed(&format!("{command:?}"), &output)
}

fn printed(command: &str, output: &Output) -> Result<String> {
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{command}: {}\n{said}{errors}", output.status);
    Ok(said)
}

/// Runs a command line, with words split at blanks. `timeout` is a command that runs the program of this
/// name: a client that waits forever is a failure, not a hang.
fn try_line(mut timeout: Command, line: &str) -> Result<Output> {
    timeout.args(["--kill-after=5", "120"]).args(line.split_whitespace());
    timeout.output().with_context(|| format!("cannot run {line}"))
}

fn run_line(timeout: Command, line: &str) -> Result<String> {
    printed(line, &try_line(timeout, line)?)
}

fn json_line(timeout: Command, line: &str) -> Result<Value> {
    let output = run_line(timeout, &format!("{line} --format json"))?;
    serde_json::from_str(&output).with_context(|| format!("{line} gave no JSON: {output}"))
}

/// Sends a request, and gives what comes back until the peer hangs up. `finish` may end the sending side.
pub fn exchange<S: Read + Write>(mut stream: S, request: &[u8], finish: impl FnOnce(&S)) -> Vec<u8> {
    // The peer may have hung up before all is sent.
    let _ = stream.write_all(request);
    finish(&stream);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Says that the running test is skipped, past the capture of its output. `cargo xtask ci` lists these lines.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

pub fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > limit {
            bail!("waited {} s for {what}", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The folder of the tests' scripts.
pub fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// The binary that was built into the same target folder as this test.
pub fn nacre_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("NACRE_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().expect("a test knows its own path");
    let folder = test.parent().and_then(Path::parent).expect("tests are built in target/PROFILE/deps");
    folder.join("nacre")
}

/// A base from which some ports are free, different for each caller in this process. Below the
/// range from which the kernel gives ports to outgoing connections.
fn free_ports() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 200) as u16 * 100;
    for _ in 0..200 {
        let base = 10_000 + first.wrapping_add(NEXT.fetch_add(100, Ordering::Relaxed)) % 15_000;
        if (base..base + 100).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return Ok(base);
        }
    }
    bail!("no 100 free ports in a row")
}
