//! The settings of pools.

use super::osdmap_dump::{POOL_OPTIONS, autoscale_name, option_value};
use super::pool::{check_pgs_per_osd, check_rule};
use super::{Answer, Call, Outcome, Refusal, Row, pool_options, refuse};
use crate::output::{bytes, count};
use crate::pending_txn::PendingTxn;
use crate::services::Options;
use nacre_base::{Epoch, PoolId, errno};
use nacre_erasure::profile::{Profile, Settings};
use nacre_proto::maps::{Pool, PoolOption, pool_flags};
use serde_json::{Map, Value, json};

pub const COMMANDS: &[Row] = &[
    ("osd pool set", "change a setting of a pool", set),
    ("osd pool get", "show the settings of a pool", get),
    ("osd pool set-quota", "limit the objects or bytes of a pool", set_quota),
    ("osd pool get-quota", "show the limits of a pool", get_quota),
];

/// Flags that `osd pool set` switches.
const FLAGS: [(&str, u64); 9] = [
    ("hashpspool", pool_flags::HASHPSPOOL),
    ("nodelete", pool_flags::NODELETE),
    ("nopgchange", pool_flags::NOPGCHANGE),
    ("nosizechange", pool_flags::NOSIZECHANGE),
    ("write_fadvise_dontneed", pool_flags::WRITE_FADVISE_DONTNEED),
    ("noscrub", pool_flags::NOSCRUB),
    ("nodeep-scrub", pool_flags::NODEEP_SCRUB),
    ("eio", pool_flags::EIO),
    ("bulk", pool_flags::BULK),
];

fn invalid(text: impl Into<String>) -> Refusal {
    refuse(errno::EINVAL, text)
}

/// What is below zero is refused as zero is.
fn number(text: &str) -> Result<u64, Refusal> {
    pool_options::integer(text).map(|n| u64::try_from(n).unwrap_or(0))
}

fn switch(text: &str) -> Result<bool, Refusal> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(invalid("expecting value 'true', 'false', '0', or '1'")),
    }
}

fn set(call: &mut Call<'_>) -> Outcome {
    let id = call.args.pool("pool", call.pending.map())?;
    let (var, val) = (call.args.text("var")?, call.args.text("val")?);
    let pool = call.pending.map().pools[&id].clone();
    match &*var {
        "size" => set_size(call, id, &pool, &val)?,
        "min_size" => {
            if pool.has(pool_flags::NOSIZECHANGE) {
                let text =
                    "pool min size change is disabled; you must unset nosizechange flag for the pool first";
                return Err(refuse(errno::EPERM, text));
            }
            let min = number(&val)?;
            let least = least_min_size(call, &pool);
            if !(least..=pool.size.into()).contains(&min) {
                let text =
                    format!("pool min_size must be between {least} and size, which is set to {}", pool.size);
                return Err(invalid(text));
            }
            change(call, id, |pool, _| pool.min_size = min as u8);
        }
        "pg_num" | "pg_num_actual" => set_groups(call.mon.options(), call.pending, id, number(&val)?)?,
        "pgp_num" | "pgp_num_actual" => {
            let n = number(&val)?;
            if n == 0 || n > pool.pg_num.into() {
                return Err(invalid(match n {
                    0 => "specified pgp_num must > 0, but you set to 0".to_string(),
                    n => format!("specified pgp_num {n} > pg_num {}", pool.pg_num),
                }));
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
            let rule = call.pending.map().crush.rule_by_name(&val);
            let rule =
                rule.ok_or_else(|| refuse(errno::ENOENT, format!("crush rule {val} does not exist")))?;
            check_rule(&call.pending.map().crush, rule, pool.kind, pool.size.into())?;
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
        "allow_ec_overwrites" => {
            if !pool.is_erasure() {
                return Err(invalid("ec overwrites can only be enabled for an erasure coded pool"));
            }
            if !switch(&val)? {
                return Err(invalid("ec overwrites cannot be disabled once enabled"));
            }
            change(call, id, |pool, _| pool.flags |= pool_flags::EC_OVERWRITES);
        }
        var => {
            if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == var) {
                let on = switch(&val)?;
                if var == "hashpspool" && !call.args.flag("yes_i_really_mean_it") {
                    return Err(refuse(
                        errno::EPERM,
                        "are you SURE?  this will remap all placement groups in this pool, this triggers large \
                         data movement, pass --yes-i-really-mean-it if you really do.",
                    ));
                }
                change(call, id, |pool, _| if on { pool.flags |= flag } else { pool.flags &= !flag });
            } else if !set_option(call, id, &pool, var, &val)? {
                return Answer::said(format!("unset pool {id} {var}"));
            }
        }
    }
    Answer::said(format!("set pool {id} {var} to {val}"))
}

/// One copy suffices for reading, or as many chunks as there are of data.
fn least_min_size(call: &Call<'_>, pool: &Pool) -> u64 {
    let map = call.pending.map();
    let profile = map.erasure_code_profiles.get(&pool.erasure_code_profile).filter(|_| pool.is_erasure());
    let profile = profile.and_then(|settings| Profile::new(&mut Settings(settings.clone())).ok());
    profile.map_or(1, |profile| profile.data_chunk_count() as u64)
}

/// Edits the pool if that makes a difference.
fn change(call: &mut Call<'_>, id: PoolId, edit: impl Fn(&mut Pool, Epoch)) {
    change_in(call.pending, id, edit);
}
fn change_in(pending: &mut PendingTxn, id: PoolId, edit: impl Fn(&mut Pool, Epoch)) {
    let before = &pending.map().pools[&id];
    let next = pending.committed_map().epoch.next();
    let mut after = before.as_ref().clone();
    edit(&mut after, next);
    if after != **before {
        pending.edit_pool(id, |pool| *pool = after);
    }
}

fn set_size(call: &mut Call<'_>, id: PoolId, pool: &Pool, val: &str) -> Result<(), Refusal> {
    let size = number(val)?;
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
    check_rule(&call.pending.map().crush, pool.crush_rule.into(), pool.kind, size)?;
    check_pgs_per_osd(call.mon.options(), call.pending.map(), Some(id), pool.pg_num.into(), size)?;
    let wished = call.option_u64("osd_pool_default_min_size");
    let min_size = if wished == 0 { size - size / 2 } else { wished.min(size) };
    change(call, id, |pool, _| (pool.size, pool.min_size) = (size as u8, min_size as u8));
    Ok(())
}

/// More placement groups at once, or fewer one by one.
pub(crate) fn set_groups(
    options: Options<'_>,
    pending: &mut PendingTxn,
    id: PoolId,
    n: u64,
) -> Result<(), Refusal> {
    let pool = pending.map().pools[&id].clone();
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
    if n < u64::from(pool.pg_num) && pool.is_erasure() {
        let text = "the placement groups of an erasure-coded pool cannot become fewer: merging them is not \
                    built yet";
        return Err(refuse(errno::EOPNOTSUPP, text));
    }
    if n < u64::from(pool.pg_num) {
        // One placement group at a time goes, see `services/osdmap/pg_merge.rs`.
        change_in(pending, id, |pool, _| {
            pool.pg_num_target = n as u32;
            pool.pgp_num_target = pool.pgp_num_target.min(n as u32);
        });
        return Ok(());
    }
    check_pgs_per_osd(options, pending.map(), Some(id), n, pool.size.into())?;
    let follow = pool.pgp_num_target == pool.pg_num_target;
    change_in(pending, id, |pool, epoch| {
        let n = n as u32;
        (pool.pg_num, pool.pg_num_target, pool.pg_num_pending) = (n, n, n);
        if follow {
            (pool.pgp_num, pool.pgp_num_target) = (n, n);
        }
        pool.resend_all(epoch);
    });
    Ok(())
}

/// Whether the setting is there afterwards.
fn set_option(call: &mut Call<'_>, id: PoolId, pool: &Pool, var: &str, val: &str) -> Result<bool, Refusal> {
    if let Some(refusal) = pool_options::why_absent(&call.args.text("pool")?, var) {
        return Err(refusal);
    }
    let (option, value) = pool_options::parse(pool, var, val)?;
    change(call, id, |pool, _| {
        match value.clone() {
            Some(value) => drop(pool.options.insert(option, value)),
            None => drop(pool.options.remove(&option)),
        };
    });
    Ok(value.is_some() || val != "unset")
}

fn get(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
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
    if pool.is_erasure() {
        all.push(("erasure_code_profile", json!(pool.erasure_code_profile)));
        all.push(("allow_ec_overwrites", json!(pool.has(pool_flags::EC_OVERWRITES))));
    }
    for (option, option_name) in POOL_OPTIONS {
        if option == PoolOption::PG_NUM_MIN {
            all.push(("pg_autoscale_mode", json!(autoscale_name(pool.autoscale_mode))));
        }
        if let Some(value) = pool.options.get(&option) {
            all.push((option_name, shown_option(option_name, value)));
        }
    }
    all.push(shown(last));
    if var == "all" {
        // Tools of Pacific do not know it.
        all.retain(|(have, value)| *have != "eio" || *value == json!(true));
    } else {
        all.retain(|(have, _)| *have == var);
        if all.is_empty() {
            if POOL_OPTIONS.iter().any(|(_, option)| *option == var) {
                return Err(refuse(errno::ENOENT, format!("option '{var}' is not set on pool '{name}'")));
            }
            let unknown = || invalid(format!("pools have no setting '{var}'"));
            return Err(pool_options::why_absent(&name, &var).unwrap_or_else(unknown));
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

/// As it was given.
fn shown_option(name: &str, value: &PoolOption) -> Value {
    let by_name = |n: i64| pool_options::CSUM_TYPES.iter().find(|(_, number)| *number == n);
    match value {
        PoolOption::Int(n) if name == "csum_type" => by_name(*n).map_or(json!(n), |(name, _)| json!(name)),
        value => option_value(value),
    }
}

fn set_quota(call: &mut Call<'_>) -> Outcome {
    let id = call.args.pool("pool", call.pending.map())?;
    let (name, field, val) = (call.args.text("pool")?, call.args.text("field")?, call.args.text("val")?);
    let n = pool_options::scaled(&val, if field == "max_bytes" { 1024 } else { 1000 })? as u64;
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
    let map = &call.state.osdmap.map;
    let id = call.args.pool("pool", map)?;
    let name = call.args.text("pool")?;
    let pool = &map.pools[&id];
    let counts = call.mon.services.pgs.pool(map, id).counts;
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
