//! `cargo xtask sim`: many seeds, or one with its trace.

use clap::{Parser, value_parser};
use nacre_sim::{Outage, Outcome, Script, Seed, run_script, run_seed, shrink};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Runs whole clusters in virtual time, each drawn from a seed.
#[derive(Parser)]
#[command(name = "cargo xtask sim", bin_name = "cargo xtask sim")]
struct Options {
    /// Number of seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Run one seed, decimal or 0x hexadecimal, and print its trace.
    #[arg(long)]
    seed: Option<String>,
    /// Continue with further seeds for this time.
    #[arg(long)]
    minutes: Option<u64>,
    /// Shrink this failing seed: remove faults that its failure does not need, and print the rest.
    #[arg(long, conflicts_with = "seed")]
    shrink: Option<String>,
    /// Run the script in this file and print its trace.
    #[arg(long, conflicts_with_all = ["seed", "shrink"])]
    script: Option<PathBuf>,
    /// Simulate an OSD that is down for this many scattered writes, restart all, print memory use.
    #[arg(long, conflicts_with_all = ["seeds", "from", "minutes", "shrink", "script"], value_parser = value_parser!(u64).range(..=WRITES_MAX))]
    outage_writes: Option<u64>,
    /// With --outage-writes: number of objects of 4 MiB.
    #[arg(long, default_value_t = 256, requires = "outage_writes", value_parser = value_parser!(u64).range(1..=1 << 20))]
    objects: u64,
    /// With --outage-writes: memory limit of an OSD in MiB; exceeding it fails the run.
    #[arg(long, default_value_t = 256, requires = "outage_writes", value_parser = value_parser!(u32).range(1..=1 << 20))]
    memory_mib: u32,
    /// With --seed, --script or --outage-writes: do not print the trace.
    #[arg(long)]
    quiet: bool,
}

/// Numbers of writes are kept in 32 bits.
const WRITES_MAX: u64 = 4_000_000_000;

/// One of this many seeds is run twice, and both runs must be equal.
const TWICE_EVERY: u64 = 10;

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(writes) = options.outage_writes {
        return outage(&options, writes);
    }
    match one(&options) {
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
        Ok(Some(script)) if options.shrink.is_some() => return shrunk(&script),
        Ok(Some(script)) => {
            let outcome = run_script(&script, !options.quiet);
            println!("{script}");
            println!(
                "trace hash {:016x}, {} steps, {} answers, at most {} KiB of memory in an OSD",
                outcome.hash,
                outcome.steps,
                outcome.answered,
                outcome.memory >> 10
            );
            return report(script.seed, &outcome);
        }
        Ok(None) => {}
    }

    // A panic fails the run; its location is printed with the seed.
    std::panic::set_hook(Box::new(|info| {
        if let Some(place) = info.location() {
            eprintln!("panic at {place}");
        }
    }));
    let started = Instant::now();
    let limit = options.minutes.map(|minutes| Duration::from_secs(minutes * 60));
    let next = AtomicU64::new(options.from);
    let failed = Mutex::new(Vec::new());
    let totals = Mutex::new((0_u64, 0_u64, 0_u64, 0_usize));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let over = match limit {
                Some(limit) => started.elapsed() > limit,
                None => seed >= options.from + options.seeds,
            };
            if over {
                return;
            }
            let mut outcome = run_seed(Seed(seed), false);
            if seed.is_multiple_of(TWICE_EVERY) && outcome.failure.is_none() {
                let again = run_seed(Seed(seed), false);
                if again.hash != outcome.hash {
                    outcome.failure =
                        Some(format!("not the same twice: {:016x}, then {:016x}", outcome.hash, again.hash));
                }
            }
            let mut totals = totals.lock().expect("no thread panics while it holds the lock");
            totals.0 += 1;
            totals.1 += outcome.steps;
            totals.2 += outcome.answered;
            totals.3 = totals.3.max(outcome.memory);
            if outcome.failure.is_some() {
                report(seed, &outcome);
                failed.lock().expect("no thread panics while it holds the lock").push(seed);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));

    let failed = failed.into_inner().expect("no thread panicked while it held the lock").len() as u64;
    let (runs, steps, answers, memory) =
        totals.into_inner().expect("no thread panicked while it held the lock");
    let seconds = started.elapsed().as_secs();
    let memory = memory >> 10;
    println!(
        "{runs} clusters, {steps} events, {answers} answers checked, at most {memory} KiB of memory in an OSD, in \
         {seconds} s"
    );
    println!("{} passed, {failed} failed", runs - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn outage(options: &Options, writes: u64) -> ExitCode {
    let seed = match options.seed.as_deref().map_or(Ok(1), number) {
        Ok(seed) => seed,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let (objects, memory) = (options.objects, (options.memory_mib as usize) << 20);
    let outage = Outage { seed, objects, memory, tell: !options.quiet, ..Outage::new(writes) };
    let started = Instant::now();
    match outage.run() {
        Ok(report) => {
            println!(
                "{writes} writes to {objects} objects while one of three OSDs was down, then all restarted"
            );
            println!("{report}, in {} s", started.elapsed().as_secs());
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("FAIL seed={seed:#x}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The script of a single run, if one was requested.
fn one(options: &Options) -> Result<Option<Script>, String> {
    if let Some(file) = &options.script {
        let text = std::fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
        return text.parse().map(Some).map_err(|why| format!("{}: {why}", file.display()));
    }
    let Some(text) = options.seed.as_ref().or(options.shrink.as_ref()) else { return Ok(None) };
    Ok(Some(Script::draw(number(text)?)))
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("'{text}' is not a seed: use a number, decimal or 0x hexadecimal"))
}

fn shrunk(script: &Script) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let Some(why) = run_script(script, false).failure else {
        println!("seed {:#x} does not fail", script.seed);
        return ExitCode::SUCCESS;
    };
    println!("{} faults: {why}", script.steps.len());
    let small = shrink(script, |found, why| println!("{} faults: {why}", found.steps.len()));
    println!("\n{small}\nkeep it in a file; again: cargo xtask sim --script FILE");
    ExitCode::FAILURE
}

/// Prints a failure and the command that replays it.
fn report(seed: u64, outcome: &Outcome) -> ExitCode {
    let Some(why) = &outcome.failure else { return ExitCode::SUCCESS };
    println!("FAIL seed={seed:#x} step={}: {why}\n  again: cargo xtask sim --seed {seed:#x}", outcome.steps);
    ExitCode::FAILURE
}
