//! Programs that run at the lowest priority beside something else.

use crate::run::shown;
use crate::timings::Timings;
use anyhow::{Context, Result, bail};
use std::io::{self, Read};
use std::process::{Command, ExitStatus};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Programs that run one after the other. Their output is kept until `finish`.
pub struct Background {
    steps: JoinHandle<Result<Vec<Step>>>,
}

struct Step {
    name: &'static str,
    command: String,
    status: ExitStatus,
    took: Duration,
    output: Vec<u8>,
}

impl Background {
    pub fn start(steps: Vec<(&'static str, Command)>) -> Background {
        let run = move || steps.into_iter().map(|(name, command)| Step::run(name, command)).collect();
        Background { steps: thread::spawn(run) }
    }

    /// Waits until all have ended, prints what they printed, and fails if one of them did.
    pub fn finish(self, timings: &mut Timings) -> Result<()> {
        let steps =
            self.steps.join().map_err(|_| anyhow::anyhow!("the thread of the background steps panicked"))?;
        let mut failed = None;
        for step in steps? {
            println!("\n==> {}, beside the tests: {}", step.name, step.command);
            print!("{}", String::from_utf8_lossy(&step.output));
            println!("==> {}: done in {:.0} s", step.name, step.took.as_secs_f32());
            timings.add_beside(&format!("{}, beside the tests", step.name), step.took);
            if !step.status.success() {
                failed.get_or_insert(format!(
                    "{} failed ({}); again: {}",
                    step.name, step.status, step.command
                ));
            }
        }
        failed.map_or(Ok(()), |why| bail!(why))
    }
}

impl Step {
    fn run(name: &'static str, command: Command) -> Result<Step> {
        let shown = shown(&command);
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
        let (mut output, input) = io::pipe().context("cannot make a pipe")?;
        // One pipe for both, so that lines keep their order.
        nice.stdout(input.try_clone()?).stderr(input);
        let started = Instant::now();
        let mut child = nice.spawn().with_context(|| format!("{name}: cannot run {shown}"))?;
        // It holds the pipe's other end.
        drop(nice);
        let mut text = Vec::new();
        output.read_to_end(&mut text)?;
        Ok(Step { name, command: shown, status: child.wait()?, took: started.elapsed(), output: text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_fails_the_run_and_all_are_timed() {
        let script = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            command
        };
        let mut timings = Timings::default();
        let good = vec![("first", script("test $(nice) = 19")), ("second", script("true"))];
        Background::start(good).finish(&mut timings).unwrap();
        let bad = vec![("first", script("echo why; exit 3")), ("second", script("true"))];
        let error = Background::start(bad).finish(&mut timings).unwrap_err().to_string();
        assert_eq!(error, "first failed (exit status: 3); again: sh -c echo why; exit 3");
        assert_eq!(timings.total(), Duration::ZERO);
    }
}
