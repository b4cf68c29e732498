//! Runs the targets with mutated inputs, on the stable toolchain. `docs/fuzzing.md` says how.
//!
//! A case fails when it panics, takes more memory than its target allows for an input of that
//! length, or takes longer than two seconds. Where the inputs come from is decided by the seed alone:
//! case number N of a target is the same bytes in every run.
#![allow(unsafe_code)] // an allocator is unsafe by its signature

use anyhow::Context;
use clap::Parser;
use nacre_base::Rng;
use nacre_corpus::mutate::mutate;
use nacre_corpus::targets::{ALL, Target};
use nacre_wire::crc32c;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Mutates what real Ceph wrote, and looks for what breaks us.
#[derive(Parser)]
struct Args {
    /// Run one target only; `list` prints their names.
    target: Option<String>,
    /// Seconds per target.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Maximum number of cases per target.
    #[arg(long)]
    cases: Option<u64>,
    /// Seed of the mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run the target once with this input file.
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
    /// Folder for failing inputs.
    #[arg(long, default_value = "target/fuzz")]
    out: PathBuf,
}

/// Longest time for a case. In practice they take microseconds.
const SLOW: Duration = Duration::from_secs(2);
/// After this, a case is taken to run for ever.
const HUNG: Duration = Duration::from_secs(20);
/// Longest input, unless the target's samples are longer.
const LEN_MAX: usize = 16 << 10;

struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn grew(by: usize) {
    // What one thread gives back may be another's, so below zero is no mistake.
    let live = LIVE.get().wrapping_add(by);
    LIVE.set(live);
    if (live as isize) > (PEAK.get() as isize) {
        PEAK.set(live);
    }
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        // While a block moves, both the old and the new one exist.
        grew(new);
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        unsafe { System.realloc(ptr, layout, new) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Why a case failed, or how much memory it took at most.
fn run_case(target: &Target, input: &[u8]) -> Result<usize, String> {
    let before = LIVE.get();
    PEAK.set(before);
    let started = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let took = started.elapsed();
    let peak = PEAK.get().wrapping_sub(before);
    if result.is_err() {
        return Err(PANIC.take());
    }
    let max = target.memory_max(input);
    if peak > max {
        return Err(format!("{peak} bytes of memory for {} bytes of input, allowed are {max}", input.len()));
    }
    if took > SLOW {
        return Err(format!("took {took:?}, allowed are {SLOW:?}"));
    }
    Ok(peak)
}

/// Which case runs now, for whoever watches for one that never ends.
static CASE: AtomicU64 = AtomicU64::new(0);
static RUNNING: AtomicBool = AtomicBool::new(false);

fn watch(current: PathBuf) {
    let mut seen = (0, Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let case = CASE.load(Relaxed);
        if case != seen.0 || !RUNNING.load(Relaxed) {
            seen = (case, Instant::now());
        } else if seen.1.elapsed() > HUNG {
            println!("FAIL case {case} does not end; its input is in {}", current.display());
            std::process::exit(1);
        }
    }
}

/// Runs the target until its time is over or a case fails. True if none did.
fn fuzz(target: &Target, args: &Args, current: &File) -> anyhow::Result<bool> {
    let seeds = (target.seeds)();
    let len_max = seeds.iter().map(|seed| 2 * seed.len()).max().unwrap_or(0).max(LEN_MAX);
    // Each target draws its own numbers, so that it finds the same alone and among the others.
    let mut rng = Rng::new(args.seed ^ u64::from(crc32c(0, target.name.as_bytes())) << 32);
    let deadline = Instant::now() + Duration::from_secs(args.seconds);
    let cases_max = args.cases.unwrap_or(u64::MAX);
    let (mut cases, mut peak_max) = (0, 0);
    // A target may build something once, which is not the first case's memory.
    if let Some(first) = seeds.first() {
        let _ = run_case(target, first);
    }
    let mut pool = seeds.clone();
    while cases < cases_max && Instant::now() < deadline {
        let input = match seeds.get(cases as usize) {
            Some(seed) => seed.clone(),
            // Now and then a change of a change: some defects need both.
            None => {
                let from = rng.below(pool.len() as u64) as usize;
                mutate(&mut rng, &pool[from], &pool, len_max)
            }
        };
        // Should the process die of this case, its input is there.
        current.write_all_at(&input, 0)?;
        current.set_len(input.len() as u64)?;
        cases += 1;
        CASE.fetch_add(1, Relaxed);
        RUNNING.store(true, Relaxed);
        let result = run_case(target, &input);
        RUNNING.store(false, Relaxed);
        match result {
            Ok(peak) => peak_max = peak_max.max(peak),
            Err(why) => {
                let file = args.out.join(format!("{}-{:08x}", target.name, crc32c(0, &input)));
                fs::write(&file, &input)?;
                println!("FAIL {} seed={} case={cases}: {why}", target.name, args.seed);
                println!(
                    "  again: cargo run --profile sim --package nacre-corpus --bin fuzz -- --input {} {}",
                    file.display(),
                    target.name
                );
                return Ok(false);
            }
        }
        if cases.is_multiple_of(64) && !pool.is_empty() {
            if pool.len() < 2 * seeds.len() + 64 {
                pool.push(input);
            } else {
                let at = seeds.len() + rng.below((pool.len() - seeds.len()) as u64) as usize;
                pool[at] = input;
            }
        }
    }
    println!(
        "ok   {}: {cases} cases from {} samples, at most {peak_max} bytes of memory",
        target.name,
        seeds.len()
    );
    Ok(true)
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let named = args.target.as_deref();
    if named == Some("list") {
        ALL.iter().for_each(|target| println!("{}", target.name));
        return Ok(ExitCode::SUCCESS);
    }
    let targets: Vec<&Target> = match named {
        None => ALL.iter().collect(),
        Some(name) => {
            vec![Target::named(name).with_context(|| format!("no target {name}; `list` names them"))?]
        }
    };
    std::panic::set_hook(Box::new(|info| PANIC.set(info.to_string().replace('\n', " "))));

    if let Some(file) = &args.input {
        let input = fs::read(file).with_context(|| file.display().to_string())?;
        // Twice: what a target builds once is not this case's memory.
        let _ = run_case(targets[0], &input);
        match run_case(targets[0], &input) {
            Ok(peak) => println!("ok   {}: at most {peak} bytes of memory", targets[0].name),
            Err(why) => {
                println!("FAIL {}: {why}", targets[0].name);
                return Ok(ExitCode::FAILURE);
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let current = args.out.join(format!("current-{}", std::process::id()));
    let file = File::create(&current)?;
    let watched = current.clone();
    std::thread::spawn(move || watch(watched));
    let (mut passed, mut failed) = (0, 0);
    for target in targets {
        if fuzz(target, &args, &file)? {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    fs::remove_file(&current)?;
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
