//! Random operations on many objects against a model in memory, while OSDs are killed, hang and
//! come back. `cargo xtask soak model --minutes N` runs it for longer.

use nacre_interop::Cluster;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long, in seconds, and with which seed, if the environment says it.
fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|e| panic!("{name}={value}: {e}")))
}

/// One script that works on a pool until it is told to stop.
pub struct Work {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Work {
    /// Returns when it works.
    pub fn start(c: &Cluster, script: &str, arguments: &[&str]) -> Work {
        let mut command = c.python_command(script);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "working\n");
        Work { child, said }
    }
    fn failed(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
    /// It checks everything once more, and was right all the time; or this panics.
    pub fn stop(mut self) {
        // One that failed reads no more.
        let _ = self.child.stdin.take().unwrap().write_all(b"stop\n");
        let lines: Vec<String> = self.said.lines().map(Result::unwrap).collect();
        assert!(self.child.wait().unwrap().success(), "{}", lines.join("\n"));
        println!("{}", lines.join("\n"));
    }
}

#[test]
fn objects_are_what_a_model_says_whatever_happens_to_osds() {
    let limit = Duration::from_secs(from_environment("NACRE_MODEL_SECONDS").unwrap_or(25));
    let seed = from_environment("NACRE_MODEL_SEED").unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::from(since.subsec_nanos()))
    });
    println!("again: NACRE_MODEL_SEED={seed}");
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create model 16").unwrap();
    let mut work = Work::start(&c, "model.py", &["model", &seed.to_string(), "snaps"]);
    let start = Instant::now();
    // Plain arithmetic on the seed: which OSD, and what becomes of it.
    let mut turn = seed;
    while start.elapsed() < limit && !work.failed() {
        let osd = format!("osd.{}", turn % 3);
        if (turn / 3).is_multiple_of(3) {
            c.signal(&osd, "STOP").unwrap();
            std::thread::sleep(Duration::from_millis(4000));
            c.signal(&osd, "CONT").unwrap();
        } else {
            c.kill(&osd).unwrap();
            std::thread::sleep(Duration::from_millis(1500));
            c.start(&osd).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1000));
        c.wait_clean().unwrap();
        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 3;
    }
    work.stop();
}
