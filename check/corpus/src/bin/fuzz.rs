//! Runs the targets with mutated inputs, on the stable toolchain. `docs/fuzzing.md` says how.
//!
//! A case fails when it panics, uses more memory than its target allows for an input of that length, or takes
//! longer than two seconds. The seed alone determines the inputs: case number N of a target has the same
//! bytes in every run.
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

/// Mutates recordings of real Ceph and looks for inputs that break a decoder.
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

/// Longest time of a case. Most take microseconds.
const SLOW: Duration = Duration::from_secs(2);
/// A case that takes longer is assumed to hang.
const HUNG: Duration = Duration::from_secs(20);
/// Longest input, unless the target's samples are longer.
const LEN_MAX: usize = 16 << 10;

struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn grew(by: usize) {
    // A thread may free memory that another one allocated, so the count may be negative.
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
        // During a reallocation both the old and the new block exist.
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

/// Err: why the case failed. Ok: its peak memory.
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

/// The current case, for the watchdog that reports hanging ones.
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

/// Runs the target until its time is up or a case fails. True if none failed.
fn fuzz(target: &Target, args: &Args, current: &File) -> anyhow::Result<bool> {
    let seeds = (target.seeds)();
    let len_max = seeds.iter().map(|seed| 2 * seed.len()).max().unwrap_or(0).max(LEN_MAX);
    // Each target has a generator of its own, so that it gets the same inputs alone and among others.
    let mut rng = Rng::new(args.seed ^ u64::from(crc32c(0, target.name.as_bytes())) << 32);
    let deadline = Instant::now() + Duration::from_secs(args.seconds);
    let cases_max = args.cases.unwrap_or(u64::MAX);
    let (mut cases, mut peak_max) = (0, 0);
    // Lazily built state of a target must not count as the first case's memory.
    if let Some(first) = seeds.first() {
        let _ = run_case(target, first);
    }
    let mut pool = seeds.clone();
    while cases < cases_max && Instant::now() < deadline {
        let input = match seeds.get(cases as usize) {
            Some(seed) => seed.clone(),
            // Sometimes a mutation of a mutation: some defects need both.
            None => {
                let from = rng.below(pool.len() as u64) as usize;
                mutate(&mut rng, &pool[from], &pool, len_max)
            }
        };
        // If the process dies, the input of the current case is in this file.
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
        // Run twice: lazily built state must not count as this case's memory.
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
