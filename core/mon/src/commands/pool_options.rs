//! The settings of pools that have no field of their own in the map: what values they take.

use super::osdmap_dump::POOL_OPTIONS;
use super::{Refusal, refuse};
use nacre_base::errno;
use nacre_proto::maps::{Pool, PoolOption};

/// How OSDs of Ceph number the sums over blobs.
pub const CSUM_TYPES: [(&str, i64); 6] =
    [("none", 1), ("xxhash32", 2), ("xxhash64", 3), ("crc32c", 4), ("crc32c_16", 5), ("crc32c_8", 6)];

/// What only pools have that are tiers of others, of which there are none.
const TIERS: [&str; 16] = [
    "cache_min_evict_age",
    "cache_min_flush_age",
    "cache_target_dirty_high_ratio",
    "cache_target_dirty_ratio",
    "cache_target_full_ratio",
    "hit_set_count",
    "hit_set_fpp",
    "hit_set_grade_decay_rate",
    "hit_set_period",
    "hit_set_search_last_n",
    "hit_set_type",
    "min_read_recency_for_promote",
    "min_write_recency_for_promote",
    "target_max_bytes",
    "target_max_objects",
    "use_gmt_hitset",
];
const DEDUPLICATION: [&str; 3] = ["dedup_tier", "dedup_chunk_algorithm", "dedup_cdc_chunk_size"];

fn invalid(text: impl Into<String>) -> Refusal {
    refuse(errno::EINVAL, text)
}

/// Why a pool has no such setting, if it is one of Ceph's that need another kind of pool.
pub fn why_absent(pool: &str, var: &str) -> Option<Refusal> {
    if TIERS.contains(&var) {
        let text = format!("pool '{pool}' is not a tier pool: variable not applicable");
        return Some(refuse(errno::EACCES, text));
    }
    if matches!(var, "erasure_code_profile" | "allow_ec_overwrites") {
        let text = format!("pool '{pool}' is not a erasure pool: variable not applicable");
        return Some(refuse(errno::EACCES, text));
    }
    if var == "read_ratio" {
        let text = "not in Nacre: read_ratio, which only the read balancer of Reef uses";
        return Some(refuse(errno::EOPNOTSUPP, text));
    }
    DEDUPLICATION
        .contains(&var)
        .then(|| refuse(errno::EOPNOTSUPP, format!("not in Nacre: {var}, as pools have no deduplication")))
}

pub fn integer(text: &str) -> Result<i64, Refusal> {
    text.parse().map_err(|_| {
        invalid(format!(
            "error parsing integer value '{text}': Expected option value to be integer, got '{text}'"
        ))
    })
}

fn real(text: &str) -> Result<f64, Refusal> {
    text.parse().ok().filter(|x: &f64| x.is_finite()).ok_or_else(|| {
        invalid(format!(
            "error parsing floating point value '{text}': strict_strtod: expected double, got: '{text}'"
        ))
    })
}

/// A number with K, M, G, T, P or E behind it: for powers of 1000, or of 1024 where `Ki` and so on will do
/// too.
pub fn scaled(text: &str, base: i64) -> Result<i64, Refusal> {
    let bad = |why: &str| invalid(format!("error parsing value '{text}': {why}"));
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let letter = if base == 1024 { unit.strip_suffix('i').unwrap_or(unit) } else { unit };
    let power = match letter {
        "" | "B" if letter == unit => 0,
        letter if letter.len() == 1 => {
            1 + "KMGTPE".find(letter).ok_or_else(|| bad("unit prefix not recognized"))?
        }
        _ => return Err(bad("illegal prefix (length > 2)")),
    };
    if digits.starts_with('-') {
        return Err(bad("value should not be negative"));
    }
    let n: i64 = digits.parse().map_err(|_| bad("not a number"))?;
    let scale = base.checked_pow(power as u32);
    scale.and_then(|scale| n.checked_mul(scale)).ok_or_else(|| bad("the value is too large"))
}

/// One of the words that the option takes.
fn word(var: &str, text: &str, words: &[&str]) -> Result<PoolOption, Refusal> {
    match words.contains(&text) {
        true => Ok(PoolOption::Text(text.to_string())),
        false => {
            let what = if var == "compression_mode" { "compression mode" } else { var };
            Err(invalid(format!("unrecognized {what} '{text}'")))
        }
    }
}

/// The option's number and its value; none if that takes it away.
pub fn parse(pool: &Pool, var: &str, val: &str) -> Result<(u32, Option<PoolOption>), Refusal> {
    let Some((option, _)) = POOL_OPTIONS.iter().find(|(_, name)| *name == var) else {
        return Err(invalid(format!("unrecognized variable '{var}'")));
    };
    let text = |words: &[&str]| if val == "unset" { Ok(None) } else { word(var, val, words).map(Some) };
    let number = |n: i64| (n != 0).then_some(PoolOption::Int(n));
    let value = match var {
        "compression_mode" => text(&["none", "passive", "aggressive", "force"])?,
        "compression_algorithm" => text(&["none", "snappy", "zlib", "zstd", "lz4"])?,
        "fingerprint_algorithm" => text(&["sha1", "sha256", "sha512"])?,
        "csum_type" if val == "unset" => None,
        "csum_type" => {
            let kind = CSUM_TYPES.iter().find(|(name, _)| *name == val);
            Some(PoolOption::Int(kind.ok_or_else(|| invalid(format!("unrecognized csum_type '{val}'")))?.1))
        }
        "scrub_min_interval"
        | "scrub_max_interval"
        | "deep_scrub_interval"
        | "compression_required_ratio"
        | "target_size_ratio"
        | "pg_autoscale_bias" => {
            let x = real(val)?;
            check_real(var, x, val)?;
            (x != 0.0).then_some(PoolOption::Float(x))
        }
        "target_size_bytes" => number(scaled(val, 1024)?),
        _ => {
            let n = integer(val)?;
            check_integer(pool, var, n)?;
            number(n)
        }
    };
    Ok((*option, value))
}

fn check_real(var: &str, x: f64, val: &str) -> Result<(), Refusal> {
    match var {
        "compression_required_ratio" if !(0.0..=1.0).contains(&x) => {
            Err(invalid(format!("compression_required_ratio is out of range (0-1): '{val}'")))
        }
        "pg_autoscale_bias" if !(0.0..=1000.0).contains(&x) => {
            Err(invalid("pg_autoscale_bias must be between 0 and 1000"))
        }
        _ if x < 0.0 => Err(invalid(format!("{var} cannot be negative"))),
        _ => Ok(()),
    }
}

fn check_integer(pool: &Pool, var: &str, n: i64) -> Result<(), Refusal> {
    let groups = i64::from(pool.pg_num_target);
    match var {
        "recovery_priority" if !(-10..=10).contains(&n) => {
            Err(invalid("pool recovery_priority must be between -10 and 10"))
        }
        "pg_num_min" if n > groups => Err(invalid(format!("specified pg_num_min {n} > pg_num {groups}"))),
        "pg_num_max" if n > 0 && n < groups => {
            Err(invalid(format!("specified pg_num_max {n} < pg_num {groups}")))
        }
        _ => Ok(()),
    }
}
