//! The plugin `jerasure` and its techniques.

use super::settings::Checks;
use super::{Chunks, Profile, ProfileError, SHARDS_MAX, Settings};
use nacre_base::errno;

/// Its chunks are made for vectors of so many bytes.
const VECTOR: u64 = 16;
/// The size of an `int` in its formulas.
const INT: u64 = 4;
const PACKET_SIZE: i64 = 2048;
const PACKET_SIZE_MAX: i64 = 1 << 20;

const TECHNIQUES: [&str; 7] = [
    "reed_sol_van",
    "reed_sol_r6_op",
    "cauchy_orig",
    "cauchy_good",
    "liberation",
    "blaum_roth",
    "liber8tion",
];

/// The numbers of a profile. `w` is the size of the words, in bits.
struct Numbers {
    k: i64,
    m: i64,
    w: i64,
}

/// Checks and completes the settings.
pub fn profile(settings: &mut Settings) -> Result<Profile, ProfileError> {
    let technique = settings.get("technique").cloned().unwrap_or_default();
    if !TECHNIQUES.contains(&&*technique) {
        let text = format!(
            "technique={technique} is not a valid coding technique.  Choose one of the following: {}",
            TECHNIQUES.join(", ")
        );
        return Err(ProfileError { errno: errno::ENOENT, text });
    }
    let mut checks = Checks::new(settings);
    let (numbers, chunks) = match &*technique {
        "reed_sol_van" => vandermonde(&mut checks),
        "reed_sol_r6_op" => raid6(&mut checks),
        "cauchy_orig" | "cauchy_good" => cauchy(&mut checks),
        _ => liberation(&mut checks, &technique),
    };
    checks.finish()?;
    Profile::reed_solomon(settings, numbers.k, numbers.m, chunks)
}

fn numbers(checks: &mut Checks<'_>, k: i64, m: i64, w: i64) -> Numbers {
    let numbers = Numbers { k: checks.int("k", k), m: checks.int("m", m), w: checks.int("w", w) };
    let Numbers { k, m, .. } = numbers;
    if let Some(mapping) = checks.settings().get("mapping").cloned()
        && mapping.len() as i64 != k + m
    {
        checks.fault(format!(
            "mapping {mapping} maps {} chunks instead of the expected {} and will be ignored",
            mapping.len(),
            k + m
        ));
    }
    checks.k_and_m(k, m);
    numbers
}

/// Chunks of a technique that works on so many bytes of each chunk at a time. Numbers that were found wrong
/// are limited here, as their chunks are not used.
fn padded(k: i64, bytes: u64) -> Chunks {
    let k = k.clamp(1, SHARDS_MAX as i64);
    let unit = bytes * INT;
    let unit = if unit.is_multiple_of(VECTOR) { unit } else { bytes * VECTOR };
    Chunks::Padded { alignment: k as u64 * unit }
}

/// The bytes of `w` packets.
fn packets(w: i64, packet: i64) -> u64 {
    (w.clamp(1, 257) * packet.clamp(1, PACKET_SIZE_MAX)) as u64
}

fn vandermonde(checks: &mut Checks<'_>) -> (Numbers, Chunks) {
    let numbers = numbers(checks, 7, 3, 8);
    let Numbers { k, w, .. } = numbers;
    if !matches!(w, 8 | 16 | 32) {
        checks.fault(format!("ReedSolomonVandermonde: w={w} must be one of {{8, 16, 32}} : revert to 8"));
        return (numbers, padded(k, 8));
    }
    let chunks = match checks.flag("jerasure-per-chunk-alignment") {
        true => Chunks::Aligned { alignment: w as u64 * VECTOR },
        false => padded(k, w as u64),
    };
    (numbers, chunks)
}

fn raid6(checks: &mut Checks<'_>) -> (Numbers, Chunks) {
    let numbers = numbers(checks, 7, 2, 8);
    let Numbers { k, m, w } = numbers;
    if m != 2 {
        checks.fault(format!("ReedSolomonRAID6: m={m} must be 2 for RAID6: revert to 2"));
    } else if !matches!(w, 8 | 16 | 32) {
        checks.fault(format!("ReedSolomonRAID6: w={w} must be one of {{8, 16, 32}} : revert to 8 "));
    }
    (numbers, padded(k, w.clamp(8, 32) as u64))
}

fn cauchy(checks: &mut Checks<'_>) -> (Numbers, Chunks) {
    let numbers = numbers(checks, 7, 3, 8);
    let packet = checks.int("packetsize", PACKET_SIZE);
    let per_chunk = checks.flag("jerasure-per-chunk-alignment");
    check_sizes(checks, &numbers, packet);
    let bytes = packets(numbers.w, packet);
    let chunks = match per_chunk {
        true => Chunks::Aligned { alignment: bytes.next_multiple_of(VECTOR) },
        false => padded(numbers.k, bytes),
    };
    (numbers, chunks)
}

/// What Ceph's plugin does not check, and then fails with.
fn check_sizes(checks: &mut Checks<'_>, numbers: &Numbers, packet: i64) {
    if !(1..=PACKET_SIZE_MAX).contains(&packet) {
        checks.fault(format!("packetsize={packet} must be from 1 to {PACKET_SIZE_MAX}"));
    }
    if !(1..=32).contains(&numbers.w) {
        checks.fault(format!("w={} must be from 1 to 32", numbers.w));
    } else if numbers.w < 32 && numbers.k + numbers.m > 1 << numbers.w {
        checks.fault(format!(
            "k + m = {} must be at most 2^w = {}",
            numbers.k + numbers.m,
            1u64 << numbers.w
        ));
    }
}

/// The techniques with two parities from few XORs.
fn liberation(checks: &mut Checks<'_>, technique: &str) -> (Numbers, Chunks) {
    let default = if technique == "liber8tion" { 8 } else { 7 };
    let mut numbers = numbers(checks, 2, 2, default);
    if technique == "liber8tion" {
        let Numbers { m, w, .. } = numbers;
        if m != 2 {
            checks.fault(format!("liber8tion: m={m} must be 2 for liber8tion: revert to 2"));
        }
        if w != default {
            checks.fault(format!("liber8tion: w={w} must be 8 for liber8tion: revert to 8"));
        }
        numbers.w = default;
    }
    let packet = checks.int("packetsize", PACKET_SIZE);
    let mut faults = liberation_faults(technique, &numbers, packet);
    if !faults.is_empty() {
        faults.push(format!("reverting to k=2, w={default}, packetsize={PACKET_SIZE}"));
    }
    faults.into_iter().for_each(|fault| checks.fault(fault));
    let chunks = padded(numbers.k, packets(numbers.w, packet));
    (numbers, chunks)
}

fn liberation_faults(technique: &str, &Numbers { k, w, .. }: &Numbers, packet: i64) -> Vec<String> {
    let mut faults = Vec::new();
    if k > w {
        faults.push(format!("k={k} must be less than or equal to w={w}"));
    }
    match technique {
        "liberation" if w <= 2 || !is_prime(w) => {
            faults.push(format!("w={w} must be greater than two and be prime"));
        }
        // Long ago 7 was the default of blaum_roth, and it works.
        "blaum_roth" if w != 7 && (w <= 2 || !is_prime(w + 1)) => {
            faults.push(format!("w={w} must be greater than two and w+1 must be prime"));
        }
        _ => {}
    }
    if packet == 0 {
        faults.push("packetsize=0 must be set".into());
    } else if technique != "liber8tion" && packet % INT as i64 != 0 {
        faults.push(format!("packetsize={packet} must be a multiple of sizeof(int) = {INT}"));
    }
    if !(0..=PACKET_SIZE_MAX).contains(&packet) {
        faults.push(format!("packetsize={packet} must be from 1 to {PACKET_SIZE_MAX}"));
    }
    faults
}

fn is_prime(n: i64) -> bool {
    (2..=257).contains(&n) && (2..n).take_while(|factor| factor * factor <= n).all(|factor| n % factor != 0)
}
