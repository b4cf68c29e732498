//! The plugin `clay`. Its settings and chunk sizes are Ceph's. The data is stored as a Reed-Solomon code with
//! the same k and m: repairing a shard reads k shards, and not the parts of d shards that a Clay code would
//! read.

use super::settings::Checks;
use super::{Chunks, ISA_ALIGNMENT, Profile, ProfileError, Settings, invalid, jerasure};

/// The plugin divides chunks into q^t pieces for at most so many chunks.
const CHUNKS_MAX: i64 = 254;

/// Checks and completes the settings.
pub fn profile(settings: &mut Settings) -> Result<Profile, ProfileError> {
    let mut checks = Checks::new(settings);
    let (k, m) = (checks.int("k", 4), checks.int("m", 2));
    checks.k_and_m(k, m);
    let d = checks.int("d", k + m - 1);
    let scalar = scalar_alignment(&mut checks);
    if let Err(text) = &scalar {
        checks.fault(text.clone());
    } else if d < k || d > k + m - 1 {
        checks.fault(format!("value of d {d} must be within [ {k},{}]", k + m - 1));
    } else if k + m > CHUNKS_MAX {
        checks.fault(format!("k={k} and m={m} make more than {CHUNKS_MAX} chunks"));
    }
    checks.finish()?;
    let q = (d - k + 1) as u64;
    let t = ((k + m) as u64).div_ceil(q);
    let pieces = q.checked_pow(t as u32).filter(|pieces| *pieces <= 1 << 32);
    let Some(pieces) = pieces else {
        return Err(invalid(format!("k={k}, m={m} and d={d} divide a chunk into too many pieces")));
    };
    let alignment = pieces * k as u64 * scalar.unwrap_or(ISA_ALIGNMENT);
    Profile::reed_solomon(settings, k, m, Chunks::Padded { alignment })
}

/// The smallest chunk of the code with k=2 and m=2 that pairs of pieces are coded with.
fn scalar_alignment(checks: &mut Checks<'_>) -> Result<u64, String> {
    let value = |checks: &mut Checks<'_>, name: &str, default: &str| {
        let value = checks.settings().get(name).cloned().unwrap_or_default();
        if value.is_empty() { default.to_string() } else { value }
    };
    let plugin = value(checks, "scalar_mds", "jerasure");
    let (default, techniques, list): (_, &[&str], _) = match &*plugin {
        "jerasure" => (
            "reed_sol_van",
            &["reed_sol_van", "reed_sol_r6_op", "cauchy_orig", "cauchy_good", "liber8tion"],
            " reed_sol_van', 'reed_sol_r6_op','cauchy_orig','cauchy_good','liber8tion'",
        ),
        "isa" => ("reed_sol_van", &["reed_sol_van", "cauchy"], "'reed_sol_van','cauchy'"),
        "shec" => ("single", &["single", "multiple"], "'single','multiple'"),
        _ => return Err("scalar_mds is not currently supported, use one of 'jerasure', 'isa', 'shec'".into()),
    };
    let technique = value(checks, "technique", default);
    if !techniques.contains(&&*technique) {
        return Err(format!("technique {technique}is not currently supported, use one of{list}"));
    }
    if plugin != "jerasure" {
        return Ok(ISA_ALIGNMENT);
    }
    let mut pair: Settings =
        format!("plugin=jerasure,technique={technique},k=2,m=2,w=8").parse().unwrap_or_default();
    jerasure::profile(&mut pair).map(|profile| profile.chunk_size(1)).map_err(|error| error.text)
}
