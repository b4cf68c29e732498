//! `cargo test` with the time that each test program takes.
//!
//! The output passes through as it comes, except that what follows the last test result is held back until
//! `finish`: the caller prints its own lines before, and the runner's closing lines end the output.

use crate::run::shown;
use crate::timings::Timings;
use anyhow::{Context, Result, bail};
use std::io::{self, BufRead, BufReader};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// More failures than this are no accident.
const RETRIED_MAX: usize = 3;

pub struct TestRun {
    /// From the last `test result:` on.
    held: String,
    /// What tests say that could not run here.
    skipped: Vec<String>,
    failed: Vec<Failed>,
    /// Tests that failed beside others and passed alone.
    flaky: Vec<String>,
    status: ExitStatus,
    command: String,
}

/// A test that failed, with its program's name.
#[derive(Clone, Debug, PartialEq)]
struct Failed {
    program: String,
    test: String,
}

impl TestRun {
    /// Adds building and each test program to `timings`.
    pub fn start(mut command: Command, timings: &mut Timings) -> Result<TestRun> {
        let shown = shown(&command);
        println!("\n==> tests: {shown}");
        let (output, input) = io::pipe().context("cannot make a pipe")?;
        // One pipe for both, so that lines keep their order.
        command.stdout(input.try_clone()?).stderr(input);
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot run {shown}"))?;
        // It holds the pipe's other end.
        drop(command);
        let mut parser = Parser::default();
        let mut held = String::new();
        for line in BufReader::new(output).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            parser.take(&line);
            if line.starts_with("test result:") || !held.is_empty() {
                if line.trim_start().starts_with("Running ") {
                    print!("{}", std::mem::take(&mut held));
                    println!("{line}");
                } else {
                    held += &(line + "\n");
                }
            } else {
                println!("{line}");
            }
        }
        let status = child.wait()?;
        let running = parser.programs.iter().map(|(_, took)| *took).sum();
        timings.add("building tests", started.elapsed().saturating_sub(running));
        parser.programs.iter().for_each(|(name, took)| timings.add(&format!("tests: {name}"), *took));
        let Parser { skipped, failed, .. } = parser;
        Ok(TestRun { held, skipped, failed, flaky: Vec::new(), status, command: shown })
    }

    /// Runs failed tests of `program` again, one at a time, if few failed and all are of that program.
    /// `command` runs the program; the names of the tests are added to it.
    ///
    /// Tests of real processes wait for them with deadlines that a machine busy with other work can miss. A
    /// fault of the code fails twice. What passes the second time is listed as flaky.
    pub fn retry(self, program: &str, command: Command, timings: &mut Timings) -> Result<TestRun> {
        let few = (1..=RETRIED_MAX).contains(&self.failed.len());
        if !few || self.failed.iter().any(|failed| !failed.program.starts_with(program)) {
            return Ok(self);
        }
        print!("{}", self.held);
        let mut command = command;
        let tests: Vec<String> = self.failed.into_iter().map(|failed| failed.test).collect();
        command.args(["--", "--exact", "--test-threads=1"]).args(&tests);
        let mut again = TestRun::start(command, timings)?;
        again.skipped.splice(0..0, self.skipped);
        again.flaky = tests.into_iter().filter(|t| !again.failed.iter().any(|f| f.test == *t)).collect();
        Ok(again)
    }

    /// Prints which tests were skipped, which are flaky, and what was held back, and fails if a test did.
    pub fn finish(self) -> Result<()> {
        self.skipped.iter().for_each(|test| println!("skipped: {test}"));
        self.flaky.iter().for_each(|test| println!("flaky: {test}: failed beside other tests, passed alone"));
        print!("{}", self.held);
        if !self.status.success() {
            bail!("tests failed ({}); again: {}", self.status, self.command);
        }
        Ok(())
    }
}

/// Finds the test programs and their times in what cargo and they print, and the tests that were skipped.
#[derive(Default)]
struct Parser {
    current: Option<String>,
    programs: Vec<(String, Duration)>,
    skipped: Vec<String>,
    failed: Vec<Failed>,
    /// The names after the last line `failures:`. The first such line of a program precedes their output.
    failures: Option<Vec<String>>,
}

impl Parser {
    fn take(&mut self, line: &str) {
        if let Some(program) = line.trim_start().strip_prefix("Running ") {
            self.current = Some(program_name(program));
        } else if let Some((_, test)) = line.split_once("skipped: ") {
            // It may follow the name of a test on the same line.
            self.skipped.push(test.to_string());
        } else if line == "failures:" {
            self.failures = Some(Vec::new());
        } else if let Some(test) = line.strip_prefix("    ")
            && let Some(failures) = &mut self.failures
        {
            failures.push(test.to_string());
        } else if let Some(seconds) = line
            .strip_prefix("test result:")
            .and_then(|rest| rest.rsplit_once("finished in ")?.1.strip_suffix('s')?.parse::<f64>().ok())
            && let Some(program) = self.current.take()
        {
            for test in self.failures.take().unwrap_or_default() {
                self.failed.push(Failed { program: program.clone(), test });
            }
            self.programs.push((program, Duration::from_secs_f64(seconds)));
        }
    }
}

/// `tests/it/main.rs (target/debug/deps/it-12ab)` of nacre-interop is told from that of nacre-node by the
/// hash only, so the folder of its source is part of the name.
fn program_name(program: &str) -> String {
    let (source, binary) = program.split_once(" (").unwrap_or((program, ""));
    let binary = binary.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
    let name = binary.rsplit_once('-').map_or(binary, |(name, _hash)| name);
    format!("{name}, {}", source.trim_start_matches("unittests "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_program_has_its_time() {
        let mut parser = Parser::default();
        for line in [
            "     Running unittests src/lib.rs (target/debug/deps/nacre_mon-0123abcd)",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s",
            "     Running tests/it/main.rs (target/debug/deps/it-4567)",
            "test some::test ... ok",
            "test other::test ... skipped: other::test: there is no mirror",
            "failures:",
            "---- third::test stdout ----",
            "    what the test printed",
            "failures:",
            "    third::test",
            "",
            "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 61.25s",
        ] {
            parser.take(line);
        }
        let expected = [
            ("nacre_mon, src/lib.rs".to_string(), Duration::from_millis(1500)),
            ("it, tests/it/main.rs".to_string(), Duration::from_millis(61_250)),
        ];
        assert_eq!(parser.programs, expected);
        assert_eq!(parser.skipped, ["other::test: there is no mirror"]);
        let program = "it, tests/it/main.rs".to_string();
        assert_eq!(parser.failed, [Failed { program, test: "third::test".to_string() }]);
    }

    #[test]
    fn failing_tests_fail_the_run_and_closing_lines_come_last() {
        let mut timings = Timings::default();
        let mut run = |exit: i32| {
            let script = format!("echo 'test result: ok. finished in 0.10s'; echo >&2 end; exit {exit}");
            let mut command = Command::new("sh");
            command.args(["-c", &script]);
            TestRun::start(command, &mut timings).unwrap()
        };
        let failed = run(1);
        assert_eq!(failed.held, "test result: ok. finished in 0.10s\nend\n");
        assert!(failed.finish().is_err());
        assert!(run(0).finish().is_ok());
    }

    fn script(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn a_failure_beside_other_tests_is_tried_again_alone() {
        let failing = |program: &str| {
            let lines = format!(
                "Running x/main.rs (x/{program}-12)\nfailures:\n    a::b\n\ntest result: FAILED. finished in 0.10s"
            );
            script(&format!("printf '{lines}\n'; exit 1"))
        };
        let passing = || script("echo 'test result: ok. finished in 0.10s'");
        let mut timings = Timings::default();
        let mut run = |program: &str, again| {
            let first = TestRun::start(failing(program), &mut timings).unwrap();
            first.retry("interop", again, &mut timings).unwrap()
        };
        let again = run("interop", passing());
        assert_eq!(again.flaky, ["a::b"]);
        assert!(again.finish().is_ok());
        let again = run("interop", failing("interop"));
        assert!(again.flaky.is_empty());
        assert!(again.finish().is_err());
        // Tests of one process pass or fail always.
        assert!(run("nacre_mon", passing()).finish().is_err());
    }
}
