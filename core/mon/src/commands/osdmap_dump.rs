//! The OSD map for people and scripts: `osd dump`.

use super::blocklist::named;
use crate::output::{addrvec, bracketed, float, legacy_addr, list, short, uuid};
use nacre_base::{Epoch, IntervalSet, OsdId, PoolId, Utime};
use nacre_proto::maps::{Osd, OsdMap, Pool, PoolOption, map_flags, osd_state, pool_flags, release};
use nacre_proto::shown::span_text;
use nacre_proto::types::EntityAddr;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Options of pools by number: those that `osd pool set` knows.
pub const POOL_OPTIONS: [(u32, &str); 20] = [
    (0, "scrub_min_interval"),
    (1, "scrub_max_interval"),
    (2, "deep_scrub_interval"),
    (PoolOption::RECOVERY_PRIORITY, "recovery_priority"),
    (4, "recovery_op_priority"),
    (5, "scrub_priority"),
    (6, "compression_mode"),
    (7, "compression_algorithm"),
    (8, "compression_required_ratio"),
    (9, "compression_max_blob_size"),
    (10, "compression_min_blob_size"),
    (11, "csum_type"),
    (12, "csum_max_block"),
    (13, "csum_min_block"),
    (14, "fingerprint_algorithm"),
    (PoolOption::PG_NUM_MIN, "pg_num_min"),
    (PoolOption::TARGET_SIZE_BYTES, "target_size_bytes"),
    (PoolOption::TARGET_SIZE_RATIO, "target_size_ratio"),
    (PoolOption::PG_AUTOSCALE_BIAS, "pg_autoscale_bias"),
    (PoolOption::PG_NUM_MAX, "pg_num_max"),
];

pub fn option_name(number: u32) -> String {
    let known = POOL_OPTIONS.iter().find(|(n, _)| *n == number);
    known.map_or_else(|| format!("option_{number}"), |(_, name)| name.to_string())
}
pub fn option_value(option: &PoolOption) -> Value {
    match option {
        PoolOption::Text(text) => json!(text),
        PoolOption::Int(n) => json!(n),
        PoolOption::Float(x) => float(*x),
    }
}
pub fn autoscale_name(mode: u8) -> &'static str {
    ["off", "warn", "on"].get(usize::from(mode)).copied().unwrap_or("unknown")
}
fn ratio(x: f32) -> Value {
    float(x.into())
}
fn stamp(at: Utime) -> String {
    // Ceph prints times that never were as a plain number.
    if at == Utime::ZERO { "0.000000".to_string() } else { at.to_string() }
}

pub fn pool(map: &OsdMap, id: PoolId, id_field: &str) -> Value {
    let pool = &map.pools[&id];
    let snaps: Vec<Value> = pool
        .snaps
        .values()
        .map(|snap| json!({ "snapid": snap.id.0, "stamp": snap.stamp.to_string(), "name": snap.name.to_text() }))
        .collect();
    let mut options: Vec<(String, Value)> =
        pool.options.iter().map(|(number, option)| (option_name(*number), option_value(option))).collect();
    options.sort_by(|a, b| a.0.cmp(&b.0));
    let merge = &pool.last_merge;
    let source = if merge.ready_epoch.0 == 0 { "0.0".to_string() } else { merge.source.to_string() };
    let mut out = Map::new();
    out.insert(id_field.to_string(), json!(id.0));
    let rest = json!({
        "pool_name": map.pool_name(id),
        "create_time": pool.create_time.to_string(),
        "flags": pool.flags,
        "flags_names": pool_flags::names(pool.flags).collect::<Vec<_>>().join(","),
        "type": pool.kind as u8,
        "size": pool.size,
        "min_size": pool.min_size,
        "crush_rule": pool.crush_rule,
        "peering_crush_bucket_count": 0,
        "peering_crush_bucket_target": 0,
        "peering_crush_bucket_barrier": 0,
        "peering_crush_bucket_mandatory_member": OsdId::NONE.0,
        "object_hash": pool.object_hash,
        "pg_autoscale_mode": autoscale_name(pool.autoscale_mode),
        "pg_num": pool.pg_num,
        "pg_placement_num": pool.pgp_num,
        "pg_placement_num_target": pool.pgp_num_target,
        "pg_num_target": pool.pg_num_target,
        "pg_num_pending": pool.pg_num_pending,
        "last_pg_merge_meta": {
            "source_pgid": source,
            "ready_epoch": merge.ready_epoch.0,
            "last_epoch_started": merge.last_epoch_started.0,
            "last_epoch_clean": merge.last_epoch_clean.0,
            "source_version": merge.source_version.to_string(),
            "target_version": merge.target_version.to_string(),
        },
        "last_change": pool.last_change.to_string(),
        "last_force_op_resend": pool.last_force_op_resend.to_string(),
        "last_force_op_resend_prenautilus": pool.last_force_op_resend_prenautilus.to_string(),
        "last_force_op_resend_preluminous": pool.last_force_op_resend_preluminous.to_string(),
        "auid": 0,
        "snap_mode": if pool.has(pool_flags::POOL_SNAPS) { "pool" } else { "selfmanaged" },
        "snap_seq": pool.snap_seq.0,
        "snap_epoch": pool.snap_epoch.0,
        "pool_snaps": snaps,
        "removed_snaps": "[]",
        "quota_max_bytes": pool.quota_max_bytes,
        "quota_max_objects": pool.quota_max_objects,
        "tiers": pool.tiers,
        "tier_of": pool.tier_of,
        "read_tier": pool.read_tier,
        "write_tier": pool.write_tier,
        "cache_mode": "none",
        "target_max_bytes": pool.target_max_bytes,
        "target_max_objects": pool.target_max_objects,
        "cache_target_dirty_ratio_micro": pool.cache_target_dirty_ratio_micro,
        "cache_target_dirty_high_ratio_micro": pool.cache_target_dirty_high_ratio_micro,
        "cache_target_full_ratio_micro": pool.cache_target_full_ratio_micro,
        "cache_min_flush_age": pool.cache_min_flush_age,
        "cache_min_evict_age": pool.cache_min_evict_age,
        "erasure_code_profile": pool.erasure_code_profile,
        "hit_set_params": { "type": "none" },
        "hit_set_period": pool.hit_set_period,
        "hit_set_count": pool.hit_set_count,
        "use_gmt_hitset": pool.use_gmt_hitset,
        "min_read_recency_for_promote": pool.min_read_recency_for_promote,
        "min_write_recency_for_promote": pool.min_write_recency_for_promote,
        "hit_set_grade_decay_rate": pool.hit_set_grade_decay_rate,
        "hit_set_search_last_n": pool.hit_set_search_last_n,
        "grade_table": [],
        "stripe_width": pool.stripe_width,
        "expected_num_objects": pool.expected_num_objects,
        "fast_read": pool.fast_read,
        "options": options.into_iter().collect::<Map<_, _>>(),
        "application_metadata": pool.applications,
    });
    out.extend(rest.as_object().expect("just made").clone());
    Value::Object(out)
}

fn snaps(by_pool: &BTreeMap<PoolId, IntervalSet>) -> Value {
    let ranges = |set: &IntervalSet| -> Value {
        set.iter().map(|r| json!({ "begin": r.start, "length": r.end - r.start })).collect()
    };
    by_pool.iter().map(|(pool, set)| json!({ "pool": pool.0, "snaps": ranges(set) })).collect()
}

pub fn pool_line(map: &OsdMap, id: PoolId) -> String {
    let pool: &Pool = &map.pools[&id];
    let kind = if pool.is_erasure() {
        format!("erasure profile {}", pool.erasure_code_profile)
    } else {
        "replicated".to_string()
    };
    let mut line = format!(
        "pool {id} '{}' {kind} size {} min_size {} crush_rule {} object_hash rjenkins pg_num {} pgp_num {}",
        map.pool_name(id).unwrap_or_default(),
        pool.size,
        pool.min_size,
        pool.crush_rule,
        pool.pg_num,
        pool.pgp_num,
    );
    if pool.pg_num_target != pool.pg_num {
        line += &format!(" pg_num_target {}", pool.pg_num_target);
    }
    if pool.pgp_num_target != pool.pgp_num {
        line += &format!(" pgp_num_target {}", pool.pgp_num_target);
    }
    line +=
        &format!(" autoscale_mode {} last_change {}", autoscale_name(pool.autoscale_mode), pool.last_change);
    let resend = [
        pool.last_force_op_resend,
        pool.last_force_op_resend_prenautilus,
        pool.last_force_op_resend_preluminous,
    ];
    if resend.iter().any(|epoch| epoch.0 > 0) {
        line += &format!(" lfor {}/{}/{}", resend[0], resend[1], resend[2]);
    }
    let flags: Vec<&str> = pool_flags::names(pool.flags).collect();
    if !flags.is_empty() {
        line += &format!(" flags {}", flags.join(","));
    }
    if pool.quota_max_bytes > 0 {
        line += &format!(" max_bytes {}", pool.quota_max_bytes);
    }
    if pool.quota_max_objects > 0 {
        line += &format!(" max_objects {}", pool.quota_max_objects);
    }
    line += &format!(" stripe_width {}", pool.stripe_width);
    if pool.fast_read {
        line += " fast_read 1";
    }
    let mut options: Vec<(String, String)> = pool
        .options
        .iter()
        .map(|(number, option)| {
            let text = match option {
                PoolOption::Text(text) => text.clone(),
                PoolOption::Int(n) => n.to_string(),
                PoolOption::Float(x) => short(*x),
            };
            (option_name(*number), text)
        })
        .collect();
    options.sort();
    options.iter().for_each(|(name, value)| line += &format!(" {name} {value}"));
    if !pool.applications.is_empty() {
        let names: Vec<&str> = pool.applications.keys().map(String::as_str).collect();
        line += &format!(" application {}", names.join(","));
    }
    for snap in pool.snaps.values() {
        line += &format!("\n\tsnap {} '{}' {}", snap.id.0, snap.name, snap.stamp);
    }
    if let Some(queue) = map.removed_snaps_queue.get(&id) {
        line += &format!("\n\tremoved_snaps_queue {}", span_text(queue));
    }
    line
}

fn osd(map: &OsdMap, id: OsdId) -> Value {
    let osd = map.osd(id).expect("the caller walks those that exist");
    let info = &osd.info;
    json!({
        "osd": id.0,
        "uuid": uuid(&osd.uuid),
        "up": u8::from(map.is_up(id)),
        "in": u8::from(map.is_in(id)),
        "weight": float(f64::from(map.weight(id)) / f64::from(Osd::IN)),
        "primary_affinity": affinity(map, id),
        "last_clean_begin": info.last_clean_begin.0,
        "last_clean_end": info.last_clean_end.0,
        "up_from": info.up_from.0,
        "up_thru": info.up_thru.0,
        "down_at": info.down_at.0,
        "lost_at": info.lost_at.0,
        "public_addrs": addrvec(&osd.public_addrs),
        "cluster_addrs": addrvec(&osd.cluster_addrs),
        "heartbeat_back_addrs": addrvec(&osd.hb_back_addrs),
        "heartbeat_front_addrs": addrvec(&osd.hb_front_addrs),
        "public_addr": legacy_addr(&osd.public_addrs),
        "cluster_addr": legacy_addr(&osd.cluster_addrs),
        "heartbeat_back_addr": legacy_addr(&osd.hb_back_addrs),
        "heartbeat_front_addr": legacy_addr(&osd.hb_front_addrs),
        "state": state_words(osd.state),
    })
}

pub fn affinity(map: &OsdMap, id: OsdId) -> Value {
    float(f64::from(map.primary_affinity(id)) / f64::from(Osd::DEFAULT_AFFINITY))
}

pub fn osd_line(map: &OsdMap, id: OsdId) -> String {
    let osd = map.osd(id).expect("the caller walks those that exist");
    let info = &osd.info;
    let mut line = format!(
        "osd.{id} {} {} weight {}",
        if map.is_up(id) { "up  " } else { "down" },
        if map.is_in(id) { "in " } else { "out" },
        short(f64::from(map.weight(id)) / f64::from(Osd::IN)),
    );
    if map.primary_affinity(id) != Osd::DEFAULT_AFFINITY {
        let affinity = f64::from(map.primary_affinity(id)) / f64::from(Osd::DEFAULT_AFFINITY);
        line += &format!(" primary_affinity {}", short(affinity));
    }
    line += &format!(
        " up_from {} up_thru {} down_at {} last_clean_interval [{},{})",
        info.up_from, info.up_thru, info.down_at, info.last_clean_begin, info.last_clean_end
    );
    if info.lost_at != Epoch(0) {
        line += &format!(" lost_at {}", info.lost_at);
    }
    let addrs = |addrs: &nacre_proto::types::AddrVec| {
        if addrs.0.is_empty() { String::new() } else { bracketed(addrs) }
    };
    line += &format!(
        " {} {} {}",
        addrs(&osd.public_addrs),
        addrs(&osd.cluster_addrs),
        state_words(osd.state).join(",")
    );
    if osd.uuid != [0; 16] {
        line += &format!(" {}", uuid(&osd.uuid));
    }
    line
}

/// What is said of an OSD's state, in the order in which Ceph says it.
pub fn state_words(bits: u32) -> Vec<&'static str> {
    let mut words: Vec<&str> = osd_state::names(bits).collect();
    words.sort_unstable();
    words
}

/// Which clients the features in use need.
fn min_compat_client(map: &OsdMap) -> &'static str {
    if map.pg_upmap.is_empty() && map.pg_upmap_items.is_empty() { "jewel" } else { "luminous" }
}

pub fn dump(map: &OsdMap) -> Value {
    let mut flags_set: Vec<&str> = map_flags::names(map.flags).collect();
    flags_set.sort_unstable();
    let xinfos: Vec<Value> = map
        .osd_ids()
        .map(|id| {
            let xinfo = &map.osds[id.index()].xinfo;
            json!({
                "osd": id.0,
                "down_stamp": stamp(xinfo.down_stamp),
                "laggy_probability": float(f64::from(xinfo.laggy_probability) / f64::from(u32::MAX)),
                "laggy_interval": xinfo.laggy_interval,
                "features": xinfo.features,
                "old_weight": xinfo.old_weight,
                "last_purged_snaps_scrub": stamp(xinfo.last_purged_snaps_scrub),
                "dead_epoch": xinfo.dead_epoch.0,
            })
        })
        .collect();
    let ids = |osds: &[OsdId]| osds.iter().map(|osd| osd.0).collect::<Vec<_>>();
    let entries = |list: &BTreeMap<EntityAddr, Utime>| -> Map<String, Value> {
        list.iter().map(|(addr, until)| (named(addr), json!(until.to_string()))).collect()
    };
    json!({
        "epoch": map.epoch.0,
        "fsid": uuid(&map.fsid),
        "created": map.created.to_string(),
        "modified": map.modified.to_string(),
        "last_up_change": stamp(map.last_up_change),
        "last_in_change": stamp(map.last_in_change),
        "flags": map_flags::names(map.flags).collect::<Vec<_>>().join(","),
        "flags_num": map.flags,
        "flags_set": flags_set,
        "crush_version": map.crush_version,
        "full_ratio": ratio(map.ratios.full),
        "backfillfull_ratio": ratio(map.ratios.backfillfull),
        "nearfull_ratio": ratio(map.ratios.nearfull),
        "cluster_snapshot": map.cluster_snapshot,
        "pool_max": map.pool_max,
        "max_osd": map.max_osd(),
        "require_min_compat_client": release::name(map.require_min_compat_client),
        "min_compat_client": min_compat_client(map),
        "require_osd_release": release::name(map.require_osd_release),
        "pools": map.pools.keys().map(|&id| pool(map, id, "pool")).collect::<Vec<_>>(),
        "osds": map.osd_ids().map(|id| osd(map, id)).collect::<Vec<_>>(),
        "osd_xinfo": xinfos,
        "pg_upmap": map.pg_upmap.iter()
            .map(|(pg, osds)| json!({ "pgid": pg.to_string(), "osds": ids(osds) })).collect::<Vec<_>>(),
        "pg_upmap_items": map.pg_upmap_items.iter()
            .map(|(pg, pairs)| json!({
                "pgid": pg.to_string(),
                "mappings": pairs.iter().map(|(from, to)| json!({ "from": from.0, "to": to.0 })).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        "pg_temp": map.pg_temp.iter()
            .map(|(pg, osds)| json!({ "pgid": pg.to_string(), "osds": ids(osds) })).collect::<Vec<_>>(),
        "primary_temp": map.primary_temp.iter()
            .map(|(pg, osd)| json!({ "pgid": pg.to_string(), "osd": osd.0 })).collect::<Vec<_>>(),
        "blocklist": entries(&map.blocklist),
        "range_blocklist": entries(&map.range_blocklist),
        "erasure_code_profiles": map.erasure_code_profiles,
        "removed_snaps_queue": snaps(&map.removed_snaps_queue),
        "new_removed_snaps": snaps(&map.new_removed_snaps),
        "new_purged_snaps": snaps(&map.new_purged_snaps),
        "crush_node_flags": map.crush_node_flags.iter()
            .map(|(id, bits)| (map.crush.names.get(id).cloned().unwrap_or_default(), flag_names(*bits)))
            .collect::<BTreeMap<_, _>>(),
        "device_class_flags": map.device_class_flags.iter()
            .map(|(id, bits)| (map.crush.class_names.get(id).cloned().unwrap_or_default(), flag_names(*bits)))
            .collect::<BTreeMap<_, _>>(),
        "stretch_mode": {
            "stretch_mode_enabled": false,
            "stretch_bucket_count": 0,
            "degraded_stretch_mode": 0,
            "recovering_stretch_mode": 0,
            "stretch_mode_bucket": 0,
        },
    })
}

pub fn text(map: &OsdMap) -> String {
    let mut out = format!(
        "epoch {}\nfsid {}\ncreated {}\nmodified {}\nflags {}\ncrush_version {}\nfull_ratio {}\nbackfillfull_ratio {}\n\
         nearfull_ratio {}\nrequire_min_compat_client {}\nmin_compat_client {}\nrequire_osd_release {}\n\
         stretch_mode_enabled false\n",
        map.epoch,
        uuid(&map.fsid),
        map.created,
        map.modified,
        map_flags::names(map.flags).collect::<Vec<_>>().join(","),
        map.crush_version,
        map.ratios.full,
        map.ratios.backfillfull,
        map.ratios.nearfull,
        release::name(map.require_min_compat_client).unwrap_or("unknown"),
        min_compat_client(map),
        release::name(map.require_osd_release).unwrap_or("unknown"),
    );
    map.pools.keys().for_each(|&id| out += &format!("{}\n", pool_line(map, id)));
    out += &format!("max_osd {}\n", map.max_osd());
    map.osd_ids().for_each(|id| out += &format!("{}\n", osd_line(map, id)));
    for (pg, osds) in map.pg_upmap.iter() {
        out += &format!("pg_upmap {pg} {}\n", list(osds));
    }
    for (pg, pairs) in map.pg_upmap_items.iter() {
        let flat = pairs.iter().flat_map(|(from, to)| [from, to]);
        out += &format!("pg_upmap_items {pg} {}\n", list(flat));
    }
    for (pg, osds) in map.pg_temp.iter() {
        out += &format!("pg_temp {pg} {}\n", list(osds));
    }
    for (pg, osd) in map.primary_temp.iter() {
        out += &format!("primary_temp {pg} {osd}\n");
    }
    for (addr, until) in map.blocklist.iter() {
        out += &format!("blocklist {} expires {until}\n", named(addr));
    }
    for (addr, until) in map.range_blocklist.iter() {
        out += &format!("range blocklist {} expires {until}\n", named(addr));
    }
    out.pop();
    out
}

fn flag_names(bits: u32) -> Vec<&'static str> {
    osd_state::names(bits).collect()
}
