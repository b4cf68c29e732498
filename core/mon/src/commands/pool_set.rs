//! The settings of pools.

use super::osdmap_dump::{POOL_OPTIONS, autoscale_name, option_value};
use super::pool::check_pgs_per_osd;
use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::draft::Draft;
use crate::mon::Mon;
use crate::present::{bytes, count};
use nacre_base::{Epoch, PoolId, errno};
use nacre_proto::maps::{Pool, PoolOption, pool_flags};
use serde_json::{Map, Value, json};

pub const COMMANDS: &[Row] = &[
    ("osd pool set", "change a setting of a pool", set),
    ("osd pool get", "show the settings of a pool", get),
    ("osd pool set-quota", "limit the objects or bytes of a pool", set_quota),
    ("osd pool get-quota", "show the limits of a pool", get_quota),
];

/// Flags that `osd pool set` switches.
const FLAGS: [(&str, u64); 8] = [
    ("hashpspool", pool_flags::HASHPSPOOL),
    ("nodelete", pool_flags::NODELETE),
    ("nopgchange", pool_flags::NOPGCHANGE),
    ("nosizechange", pool_flags::NOSIZECHANGE),
    ("write_fadvise_dontneed", pool_flags::WRITE_FADVISE_DONTNEED),
    ("noscrub", pool_flags::NOSCRUB),
    ("nodeep-scrub", pool_flags::NODEEP_SCRUB),
    ("bulk", pool_flags::BULK),
];

fn invalid(text: impl Into<String>) -> Refusal {
    refuse(errno::EINVAL, text)
}

fn number(text: &str, var: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| invalid(format!("error parsing integer value '{text}' for {var}")))
}

fn switch(text: &str) -> Result<bool, Refusal> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(invalid("expecting value 'true', 'false', '0', or '1'")),
    }
}

fn set(call: &mut Call<'_>) -> Outcome {
    let id = call.args.pool("pool", call.draft.map())?;
    let (var, val) = (call.args.text("var")?, call.args.text("val")?);
    let pool = call.draft.map().pools[&id].clone();
    match &*var {
        "size" => set_size(call, id, &pool, &val)?,
        "min_size" => {
            let min = number(&val, &var)?;
            if !(1..=pool.size.into()).contains(&min) {
                let text = format!("pool min_size must be between 1 and size, which is set to {}", pool.size);
                return Err(invalid(text));
            }
            change(call, id, |pool, _| pool.min_size = min as u8);
        }
        "pg_num" | "pg_num_actual" => set_groups(call.mon, call.draft, id, number(&val, &var)?)?,
        "pgp_num" | "pgp_num_actual" => {
            let n = number(&val, &var)?;
            if n == 0 || n > pool.pg_num.into() {
                return Err(invalid(format!("specified pgp_num {n} > pg_num {}", pool.pg_num)));
            }
            if pool.has(pool_flags::NOPGCHANGE) {
                return Err(refuse(
                    errno::EPERM,
                    "pool pgp_num change is disabled; unset nopgchange flag first",
                ));
            }
            change(call, id, |pool, _| (pool.pgp_num, pool.pgp_num_target) = (n as u32, n as u32));
        }
        "crush_rule" => {
            let rule = call.draft.map().crush.rule_by_name(&val);
            let rule =
                rule.ok_or_else(|| refuse(errno::ENOENT, format!("crush rule {val} does not exist")))?;
            change(call, id, |pool, _| pool.crush_rule = rule as u8);
        }
        "pg_autoscale_mode" => {
            let mode = (0..3).find(|&mode| autoscale_name(mode) == val);
            let mode = mode.ok_or_else(|| invalid(format!("specified invalid mode {val}")))?;
            change(call, id, |pool, _| pool.autoscale_mode = mode);
        }
        "fast_read" => {
            let on = switch(&val)?;
            if on && !pool.is_erasure() {
                return Err(invalid("fast read is not supported in replication pool"));
            }
            change(call, id, |pool, _| pool.fast_read = on);
        }
        "use_gmt_hitset" => {
            let on = switch(&val)?;
            change(call, id, |pool, _| pool.use_gmt_hitset = on);
        }
        "allow_ec_overwrites" => {
            return Err(refuse(errno::EOPNOTSUPP, format!("not built yet: {var}")));
        }
        var => {
            if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == var) {
                let on = switch(&val)?;
                if var == "hashpspool" && !call.args.flag("yes_i_really_mean_it") {
                    return Err(refuse(
                        errno::EPERM,
                        "are you SURE?  this will remap all placement groups in this pool, this may trigger a lot of \
                         data movement; add --yes-i-really-mean-it if you really do.",
                    ));
                }
                change(call, id, |pool, _| if on { pool.flags |= flag } else { pool.flags &= !flag });
            } else {
                set_option(call, id, var, &val)?;
            }
        }
    }
    Answer::said(format!("set pool {id} {var} to {val}"))
}

/// Edits the pool if that makes a difference.
fn change(call: &mut Call<'_>, id: PoolId, edit: impl Fn(&mut Pool, Epoch)) {
    change_in(call.draft, id, edit);
}
fn change_in(draft: &mut Draft, id: PoolId, edit: impl Fn(&mut Pool, Epoch)) {
    let before = &draft.map().pools[&id];
    let next = draft.committed_map().epoch.next();
    let mut after = before.as_ref().clone();
    edit(&mut after, next);
    if after != **before {
        draft.edit_pool(id, |pool| *pool = after);
    }
}

fn set_size(call: &mut Call<'_>, id: PoolId, pool: &Pool, val: &str) -> Result<(), Refusal> {
    let size = number(val, "size")?;
    if pool.has(pool_flags::NOSIZECHANGE) {
        return Err(refuse(
            errno::EPERM,
            "pool size change is disabled; you must unset nosizechange flag for the pool first",
        ));
    }
    if pool.is_erasure() {
        return Err(refuse(errno::EOPNOTSUPP, "can not change the size of an erasure-coded pool"));
    }
    if !(1..=10).contains(&size) {
        return Err(invalid("pool size must be between 1 and 10"));
    }
    if size == 1 {
        if !call.option_bool("mon_allow_pool_size_one") {
            let text = "configuring pool size as 1 is disabled by default.";
            return Err(refuse(errno::EPERM, text));
        }
        if !call.args.flag("yes_i_really_mean_it") {
            return Err(refuse(
                errno::EPERM,
                "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY CERTAIN* \
                 that is what you want, pass the flag --yes-i-really-mean-it.",
            ));
        }
    }
    check_pgs_per_osd(call.mon, call.draft.map(), Some(id), u64::from(pool.pg_num) * size)?;
    let wished = call.option_u64("osd_pool_default_min_size");
    let min_size = if wished == 0 { size - size / 2 } else { wished.min(size) };
    change(call, id, |pool, _| (pool.size, pool.min_size) = (size as u8, min_size as u8));
    Ok(())
}

/// More placement groups at once, or fewer one by one.
pub(crate) fn set_groups(mon: &Mon, draft: &mut Draft, id: PoolId, n: u64) -> Result<(), Refusal> {
    let pool = draft.map().pools[&id].clone();
    if n == u64::from(pool.pg_num_target) {
        return Ok(());
    }
    if pool.has(pool_flags::NOPGCHANGE) {
        let text = "pool pg_num change is disabled; you must unset nopgchange flag for the pool first";
        return Err(refuse(errno::EPERM, text));
    }
    if n == 0 || n > 65_536 {
        return Err(refuse(errno::ERANGE, "'pg_num' must be greater than 0 and less than or equal to 65536"));
    }
    let limit = |option: u32| match pool.options.get(&option) {
        Some(PoolOption::Int(limit)) => *limit,
        _ => 0,
    };
    let (min, max) = (limit(PoolOption::PG_NUM_MIN), limit(PoolOption::PG_NUM_MAX));
    if min > 0 && (n as i64) < min {
        return Err(invalid(format!("specified pg_num {n} < pg_num_min {min}")));
    }
    if max > 0 && n as i64 > max {
        return Err(invalid(format!("specified pg_num {n} > pg_num_max {max}")));
    }
    if pool.has(pool_flags::CREATING) {
        return Err(refuse(errno::EBUSY, "pool is still being created"));
    }
    if n < u64::from(pool.pg_num) {
        // One group at a time goes, see `merges.rs`.
        change_in(draft, id, |pool, _| {
            pool.pg_num_target = n as u32;
            pool.pgp_num_target = pool.pgp_num_target.min(n as u32);
        });
        return Ok(());
    }
    check_pgs_per_osd(mon, draft.map(), Some(id), n * u64::from(pool.size))?;
    let follow = pool.pgp_num_target == pool.pg_num_target;
    change_in(draft, id, |pool, epoch| {
        let n = n as u32;
        (pool.pg_num, pool.pg_num_target, pool.pg_num_pending) = (n, n, n);
        if follow {
            (pool.pgp_num, pool.pgp_num_target) = (n, n);
        }
        pool.resend_all(epoch);
    });
    Ok(())
}

fn set_option(call: &mut Call<'_>, id: PoolId, var: &str, val: &str) -> Result<(), Refusal> {
    let Some((option, _)) = POOL_OPTIONS.iter().find(|(_, name)| *name == var) else {
        return Err(invalid(format!("unrecognized variable '{var}'")));
    };
    let value = match var {
        "compression_mode" | "compression_algorithm" | "csum_type" | "fingerprint_algorithm" => {
            (val != "unset").then(|| PoolOption::Text(val.to_string()))
        }
        "scrub_min_interval"
        | "scrub_max_interval"
        | "deep_scrub_interval"
        | "compression_required_ratio"
        | "target_size_ratio"
        | "pg_autoscale_bias" => {
            let x: f64 =
                val.parse().map_err(|_| invalid(format!("error parsing floating point value '{val}'")))?;
            if !x.is_finite() || x < 0.0 {
                return Err(invalid(format!("{var} must be a number that is not negative")));
            }
            (x != 0.0).then_some(PoolOption::Float(x))
        }
        _ => {
            let n: i64 = val.parse().map_err(|_| invalid(format!("error parsing integer value '{val}'")))?;
            (n != 0).then_some(PoolOption::Int(n))
        }
    };
    change(call, id, |pool, _| {
        match value.clone() {
            Some(value) => drop(pool.options.insert(*option, value)),
            None => drop(pool.options.remove(option)),
        };
    });
    Ok(())
}

fn get(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap;
    let id = call.args.pool("pool", map)?;
    let name = call.args.text("pool")?;
    let pool = &map.pools[&id];
    let var = call.args.text("var")?;
    let mut all: Vec<(&str, Value)> = vec![
        ("size", json!(pool.size)),
        ("min_size", json!(pool.min_size)),
        ("pg_num", json!(pool.pg_num)),
        ("pgp_num", json!(pool.pgp_num)),
        ("crush_rule", json!(map.crush.rule_names.get(&pool.crush_rule.into()))),
    ];
    let (last, others) = FLAGS.split_last().expect("it is not empty");
    let shown = |(flag, bit): &(&'static str, u64)| (*flag, json!(pool.has(*bit)));
    all.extend(others.iter().map(shown));
    all.push(("use_gmt_hitset", json!(pool.use_gmt_hitset)));
    all.push(("fast_read", json!(u8::from(pool.fast_read))));
    all.push(("pg_autoscale_mode", json!(autoscale_name(pool.autoscale_mode))));
    all.push(shown(last));
    for (option, option_name) in POOL_OPTIONS {
        if let Some(value) = pool.options.get(&option) {
            all.push((option_name, option_value(value)));
        }
    }
    if var != "all" {
        all.retain(|(have, _)| *have == var);
        if all.is_empty() {
            if POOL_OPTIONS.iter().any(|(_, option)| *option == var) {
                return Err(refuse(errno::ENOENT, format!("option '{var}' is not set on pool '{name}'")));
            }
            let text = format!(
                "'{var}' is not a setting of a {} pool",
                if pool.is_erasure() { "erasure" } else { "replicated" }
            );
            return Err(refuse(errno::EACCES, text));
        }
    }
    let mut value = Map::new();
    value.insert("pool".to_string(), json!(name));
    value.insert("pool_id".to_string(), json!(id.0));
    value.extend(all.iter().map(|(name, value)| (name.to_string(), value.clone())));
    call.show(value.into(), || {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        all.iter()
            .map(|(name, value)| match (*name, value) {
                ("use_gmt_hitset", Value::Bool(on)) => format!("{name}: {}\n", u8::from(*on)),
                _ => format!("{name}: {}\n", text(value)),
            })
            .collect()
    })
}

fn set_quota(call: &mut Call<'_>) -> Outcome {
    let id = call.args.pool("pool", call.draft.map())?;
    let (name, field, val) = (call.args.text("pool")?, call.args.text("field")?, call.args.text("val")?);
    let bad = |why: &str| invalid(format!("error parsing value '{val}': {why}"));
    let digits = val.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = &val[digits.len()..];
    let n: u64 = digits.parse().map_err(|_| bad("not a number"))?;
    let shift = match (&*field, unit.trim_end_matches("iB").trim_end_matches('B')) {
        (_, "") => 0,
        ("max_bytes", "K") => 10,
        ("max_bytes", "M") => 20,
        ("max_bytes", "G") => 30,
        ("max_bytes", "T") => 40,
        ("max_bytes", "P") => 50,
        _ => return Err(bad("strict_si_cast: unit prefix not recognized")),
    };
    let n = n.checked_shl(shift).filter(|m| m >> shift == n).ok_or_else(|| bad("too large"))?;
    match &*field {
        "max_objects" => change(call, id, |pool, _| pool.quota_max_objects = n),
        "max_bytes" => change(call, id, |pool, _| pool.quota_max_bytes = n),
        _ => {
            return Err(invalid(format!(
                "unrecognized field '{field}', should be 'max_bytes' or 'max_objects'"
            )));
        }
    }
    Answer::said(format!("set-quota {field} = {n} for pool {name}"))
}

fn get_quota(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap;
    let id = call.args.pool("pool", map)?;
    let name = call.args.text("pool")?;
    let pool = &map.pools[&id];
    let counts = call.mon.stats.pool(map, id).counts;
    let value = json!({
        "pool_name": name,
        "pool_id": id.0,
        "quota_max_objects": pool.quota_max_objects,
        "current_num_objects": counts.objects,
        "quota_max_bytes": pool.quota_max_bytes,
        "current_num_bytes": counts.bytes,
    });
    call.show(value, || {
        let objects = match pool.quota_max_objects {
            0 => "N/A".to_string(),
            n => format!("{} objects  (current num objects: {} objects)", count(n), count(counts.objects)),
        };
        let size = match pool.quota_max_bytes {
            0 => "N/A".to_string(),
            n => format!("{}  (current num bytes: {} bytes)", bytes(n), counts.bytes),
        };
        format!("quotas for pool '{name}':\n  max objects: {objects}\n  max bytes  : {size}\n")
    })
}
