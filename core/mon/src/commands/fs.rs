//! File systems come, go and get settings.

use super::fs_show::{CLIENT_FEATURES, features_of_release, named};
use super::{Answer, Call, Outcome, Refusal, Row, auth, refuse};
use crate::services::fsmap::changes::{self, NewFileSystem};
use crate::services::fsmap::fail as fail_server;
use nacre_auth::{Entity, keyring};
use nacre_base::{PoolId, errno};
use nacre_proto::maps::{
    FeatureSet, FsSettings, MdsGid, MdsMap, MdsState, NO_FILE_SYSTEM, PoolKind, PoolOption, mdsmap_flags,
    pool_flags,
};
use nacre_proto::types::cluster_format;
use std::collections::BTreeMap;

/// Words, help and code of each.
pub const COMMANDS: &[Row] = &[
    ("fs new", "make a file system of two pools", new),
    ("fs rm", "forget a file system that no server serves", rm),
    ("fs fail", "take a file system's ranks from their servers", fail),
    ("fs reset", "forget a file system's ranks, for disaster recovery", reset),
    ("fs set", "set a parameter of a file system", set),
    ("fs flag set", "set a flag of all file systems", flag),
    ("fs compat", "change what a metadata server must understand to serve a file system", compat),
    ("fs required_client_features", "set which features clients must have", required_client_features),
    ("fs add_data_pool", "add a pool for data to a file system", add_data_pool),
    ("fs rm_data_pool", "remove a pool for data from a file system", rm_data_pool),
    ("fs set-default", "set the file system of clients that name none", set_default),
    ("fs set_default", "set the file system of clients that name none", set_default),
    ("fs authorize", "give a client access to directories of a file system", authorize),
];

/// File systems in a cluster, and pools for the data of one.
const FILE_SYSTEMS_MAX: usize = 256;
const DATA_POOLS_MAX: usize = 256;
/// Ceph: `MAX_MDS`.
const MAX_MDS: i64 = 256;
/// Ceph: `CEPH_MIN_STRIPE_UNIT`.
const FILE_SIZE_MIN: i64 = 65_536;
const NAME_MAX: usize = 255;
const APP: &str = "cephfs";
const DEPRECATED: &str = "WARNING: setting min_compat_client is deprecated and may not do what you want.\n\
    The oldest release to set is octopus.\nPlease migrate to `ceph fs required_client_features ...`.";

fn invalid(text: impl Into<String>) -> Refusal {
    refuse(errno::EINVAL, text)
}

pub(super) fn parse_bool(text: &str) -> Result<bool, Refusal> {
    match text {
        "true" | "yes" | "1" | "y" => Ok(true),
        "false" | "no" | "0" | "n" => Ok(false),
        _ => Err(invalid("value must be false|no|0 or true|yes|1")),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Metadata,
    DefaultData,
    MoreData,
}

fn pool_by_name(call: &Call<'_>, name: &str) -> Result<PoolId, Refusal> {
    let found = call.pending.map().pool_by_name(name);
    found.ok_or_else(|| refuse(errno::ENOENT, format!("pool '{name}' does not exist")))
}

/// Whether a pool may be used by a file system.
fn check_pool(call: &Call<'_>, id: PoolId, kind: Use, force: bool) -> Result<(), Refusal> {
    let map = call.pending.map();
    let Some(pool) = map.pool(id) else {
        return Err(refuse(errno::ENOENT, format!("pool id '{id}' does not exist")));
    };
    let name = map.pool_name(id).unwrap_or_default();
    if pool.has(pool_flags::POOL_SNAPS) {
        let text = format!("pool({id}) already has mon-managed snaps; can't attach pool to fs");
        return Err(refuse(errno::EOPNOTSUPP, text));
    }
    if pool.kind == PoolKind::Erasure {
        let erasure = format!("pool '{name}' (id '{id}') is an erasure-coded pool");
        match kind {
            Use::Metadata => {
                let text = "Use of erasure-coded pools for CephFS metadata is not permitted";
                return Err(invalid(format!("{erasure}.  {text}")));
            }
            Use::DefaultData if !force => {
                return Err(invalid(format!(
                    "{erasure}. Use of an EC pool for the default data pool is discouraged; see the online CephFS \
                     documentation for more information. Use --force to override."
                )));
            }
            _ if !pool.has(pool_flags::EC_OVERWRITES) => {
                return Err(invalid(format!("{erasure}, with no overwrite support")));
            }
            _ => {}
        }
    }
    if force || pool.applications.is_empty() {
        return Ok(());
    }
    let Some(notes) = pool.applications.get(APP) else {
        return Err(invalid(format!(" pool '{name}' (id '{id}') has a non-CephFS application enabled.")));
    };
    let other = ["data", "metadata"].iter().find_map(|kind| Some((kind, notes.get(*kind)?)));
    match other.filter(|(_, fs)| call.pending.fsmap(call.state).by_name(fs).is_some()) {
        Some((kind, fs)) => Err(invalid(format!(
            "RADOS pool '{name}' is already used by filesystem '{fs}' as a '{kind}' pool for application '{APP}'"
        ))),
        None => Ok(()),
    }
}

fn tag(call: &mut Call<'_>, pool: PoolId, kind: &str, fs_name: &str) {
    call.pending.edit_pool(pool, |pool| {
        pool.applications.entry(APP.to_string()).or_default().insert(kind.to_string(), fs_name.to_string());
    });
}

/// Older monitors do not know of file systems.
pub(super) fn check_format(call: &Call<'_>) -> Result<(), Refusal> {
    match call.state.upgrades.format < cluster_format::FILE_SYSTEMS {
        true => {
            let text = "older monitors would not know of it: `nacre upgrade finish` comes first";
            Err(refuse(errno::EOPNOTSUPP, text))
        }
        false => Ok(()),
    }
}

/// Whether there may be another file system, of this name.
pub(super) fn check_another(call: &Call<'_>, name: &str) -> Result<(), Refusal> {
    check_format(call)?;
    let map = call.pending.fsmap(call.state);
    if name.is_empty() {
        return Err(invalid("Filesystem name may not be empty"));
    }
    if name.len() > NAME_MAX {
        return Err(invalid(format!("a file system's name has at most {NAME_MAX} bytes")));
    }
    if !map.filesystems.is_empty() && !map.enable_multiple {
        return Err(invalid(
            "Creation of multiple filesystems is disabled.  To enable this experimental feature, use 'ceph fs flag \
             set enable_multiple true'",
        ));
    }
    match map.filesystems.len() >= FILE_SYSTEMS_MAX {
        true => Err(invalid(format!("there are {FILE_SYSTEMS_MAX} file systems already"))),
        false => Ok(()),
    }
}

/// What `fs new` and `fs volume create` do.
pub(super) fn make(call: &mut Call<'_>, new: &NewFileSystem, force: bool) -> Result<String, Refusal> {
    let overlay = call.args.flag("allow_dangerous_metadata_overlay");
    let (name, map) = (&new.name, call.pending.fsmap(call.state));
    if let Some(known) = map.by_name(name) {
        let same = known.map.data_pools.first() == Some(&new.data);
        return match same && known.map.metadata_pool == Some(new.metadata) {
            true => Ok(format!("filesystem '{name}' already exists")),
            false => Err(invalid(format!("filesystem already exists with name '{name}'"))),
        };
    }
    check_another(call, name)?;
    if new.data == new.metadata {
        return Err(invalid("the pools for metadata and for data must be different ones"));
    }
    let objects = call.mon.services.pgs.pool(call.pending.map(), new.metadata).counts.objects;
    if objects > 0 && !force {
        let pool = call.pending.map().pool_name(new.metadata).unwrap_or_default();
        return Err(invalid(format!(
            "pool '{pool}' already contains some objects. Use an empty pool instead."
        )));
    }
    let uses = |fs: &MdsMap| fs.data_pools.contains(&new.data) || fs.metadata_pool == Some(new.metadata);
    if !overlay && map.filesystems.values().any(|fs| uses(&fs.map)) {
        let text = format!(
            "Filesystem '{name}' is already using one of the specified RADOS pools. This should ONLY be done in \
             emergencies and after careful reading of the documentation. Pass --allow-dangerous-metadata-overlay to \
             permit this."
        );
        return Err(refuse(errno::EEXIST, text));
    }
    match new.fscid {
        Some(_) if !force => {
            return Err(invalid("Pass --force to create a file system with a specific ID"));
        }
        Some(fscid) if map.filesystems.contains_key(&fscid) => {
            return Err(invalid(format!("filesystem already exists with id '{fscid}'")));
        }
        Some(fscid) if fscid < 1 => return Err(invalid("a file system's id is at least 1")),
        _ => {}
    }
    check_pool(call, new.data, Use::DefaultData, force || overlay)?;
    check_pool(call, new.metadata, Use::Metadata, force || overlay)?;
    tag(call, new.data, "data", name);
    tag(call, new.metadata, "metadata", name);
    call.pending.edit_pool(new.metadata, |pool| {
        pool.options.insert(PoolOption::RECOVERY_PRIORITY, PoolOption::Int(5));
        pool.options.insert(PoolOption::PG_NUM_MIN, PoolOption::Int(16));
        pool.options.insert(PoolOption::PG_AUTOSCALE_BIAS, PoolOption::Float(4.0));
    });
    let now = call.now.wall;
    call.pending.edit_fsmap(call.state, |map| changes::create(map, new, now));
    Ok(format!("new fs with metadata pool {} and data pool {}", new.metadata, new.data))
}

fn new(call: &mut Call<'_>) -> Outcome {
    let metadata = pool_by_name(call, &call.args.text("metadata")?)?;
    let data = pool_by_name(call, &call.args.text("data")?)?;
    let fscid = call.args.int_opt("fscid")?.map(i32::try_from).transpose();
    let new = NewFileSystem {
        name: call.args.text("fs_name")?,
        metadata,
        data,
        fscid: fscid.map_err(|_| invalid("a file system's id is at most 2147483647"))?,
        recover: call.args.flag("recover"),
    };
    Answer::said(make(call, &new, call.args.flag("force"))?)
}

/// What `fs rm` and `fs volume rm` do.
pub(super) fn forget(call: &mut Call<'_>, fscid: i32) {
    let fs = &call.pending.fsmap(call.state).filesystems[&fscid].map;
    let followers: Vec<MdsGid> = fs.infos.keys().copied().collect();
    let cx = call.mon.context(call.now);
    followers.into_iter().for_each(|gid| fail_server(&cx, gid, call.pending));
    call.pending.edit_fsmap(call.state, |map| {
        map.filesystems.remove(&fscid);
        if map.default_fscid == fscid {
            map.default_fscid = NO_FILE_SYSTEM;
        }
        let epoch = map.epoch;
        let wanted: Vec<MdsGid> =
            map.standbys.values().filter(|info| info.join_fscid == fscid).map(|info| info.gid).collect();
        for gid in wanted {
            if let Some(info) = map.standbys.get_mut(&gid) {
                info.join_fscid = NO_FILE_SYSTEM;
                map.standby_epochs.insert(gid, epoch);
            }
        }
    });
}

fn rm(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("fs_name")?;
    let Some(fs) = call.pending.fsmap(call.state).by_name(&name) else {
        return Answer::said(format!("filesystem '{name}' does not exist"));
    };
    let fscid = fs.fscid;
    if !fs.map.ranks.up.is_empty() {
        return Err(invalid(
            "all MDS daemons must be inactive/failed before removing filesystem. See `ceph fs fail`.",
        ));
    }
    if !call.args.flag("yes_i_really_mean_it") {
        return Err(refuse(
            errno::EPERM,
            "this is a DESTRUCTIVE operation and will make data in your filesystem permanently inaccessible.  Add \
             --yes-i-really-mean-it if you are sure you wish to continue.",
        ));
    }
    forget(call, fscid);
    Answer::said("")
}

fn edit(call: &mut Call<'_>, fscid: i32, change: impl FnOnce(&mut MdsMap)) {
    call.pending.edit_fsmap(call.state, |map| changes::edit(map, fscid, change));
}

/// Takes all ranks from their servers, and lets no other have them.
pub(super) fn take_down(call: &mut Call<'_>, fscid: i32) {
    edit(call, fscid, |fs| fs.settings.set(mdsmap_flags::NOT_JOINABLE, true));
    fail_servers(call, fscid, |_| true);
}

fn fail_servers(call: &mut Call<'_>, fscid: i32, which: impl Fn(MdsState) -> bool) {
    let fs = &call.pending.fsmap(call.state).filesystems[&fscid].map;
    let servers: Vec<MdsGid> =
        fs.infos.values().filter(|info| which(info.state)).map(|info| info.gid).collect();
    let cx = call.mon.context(call.now);
    servers.into_iter().for_each(|gid| fail_server(&cx, gid, call.pending));
}

fn fail(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("fs_name")?;
    let fscid = named(call, &name)?.fscid;
    take_down(call, fscid);
    Answer::said(format!(
        "{name} marked not joinable; MDS cannot join the cluster. All MDS ranks marked failed."
    ))
}

fn reset(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("fs_name")?;
    let fs = named(call, &name)?;
    let fscid = fs.fscid;
    if !fs.map.ranks.up.is_empty() {
        return Err(invalid(
            "all MDS daemons must be inactive before resetting filesystem: set the cluster_down flag and use `ceph \
             mds fail` to make this so",
        ));
    }
    if !call.args.flag("yes_i_really_mean_it") {
        return Err(refuse(
            errno::EPERM,
            "this is a potentially destructive operation, only for use by experts in disaster recovery.  Add \
             --yes-i-really-mean-it if you are sure you wish to continue.",
        ));
    }
    fail_servers(call, fscid, |_| true);
    call.pending.edit_fsmap(call.state, |map| changes::reset(map, fscid));
    Answer::said("")
}

fn flag(call: &mut Call<'_>) -> Outcome {
    check_format(call)?;
    let (name, value) = (call.args.text("flag_name")?, call.args.text("val")?);
    if name != "enable_multiple" {
        return Err(invalid(format!("Unknown flag '{name}'")));
    }
    let on = parse_bool(&value)?;
    call.pending.edit_fsmap(call.state, |map| {
        map.enable_multiple = on;
        map.ever_enabled_multiple |= on;
    });
    Answer::said("")
}

// ---- settings ----

fn set(call: &mut Call<'_>) -> Outcome {
    let (name, var) = (call.args.text("fs_name")?, call.args.text("var")?);
    let value = call.args.text("val")?;
    let fs = named(call, &name)?;
    let (fscid, mut settings) = (fs.fscid, fs.map.settings.clone());
    let text = match (&*var, &*value) {
        ("allow_standby_replay", value) => {
            let on = parse_bool(value)?;
            if !on {
                fail_servers(call, fscid, |state| state == MdsState::STANDBY_REPLAY);
            }
            settings.set(mdsmap_flags::ALLOW_STANDBY_REPLAY, on);
            String::new()
        }
        ("inline_data", value) if parse_bool(value)? && !call.args.flag("yes_i_really_really_mean_it") => {
            return Err(refuse(
                errno::EPERM,
                "Inline data support is deprecated and will be removed in a future release. Add \
                 --yes-i-really-really-mean-it if you are certain you want this enabled.",
            ));
        }
        (var, value) => set_one(&mut settings, &name, var, value)?,
    };
    edit(call, fscid, |fs| fs.settings = settings);
    Answer::said(text)
}

fn set_one(settings: &mut FsSettings, name: &str, var: &str, value: &str) -> Result<String, Refusal> {
    let number = || -> Result<i64, Refusal> {
        value.parse().map_err(|_| match var {
            "max_mds" => invalid(format!("Expected option value to be integer, got '{value}'")),
            var => invalid(format!("{var} requires an integer value")),
        })
    };
    let out_of_range = |text: String| Err(refuse(errno::ERANGE, text));
    let seconds = || -> Result<u32, Refusal> {
        match number()? {
            n if n < 30 => Err(refuse(errno::ERANGE, format!("{var} must be at least 30s"))),
            n => Ok(u32::try_from(n).unwrap_or(u32::MAX)),
        }
    };
    match var {
        "max_mds" => match number()? {
            n if n <= 0 => return Err(invalid("You must specify at least one MDS")),
            n if n > MAX_MDS => return Err(invalid(format!("may not have more than {MAX_MDS} MDS ranks"))),
            n => {
                settings.set(mdsmap_flags::NOT_JOINABLE, false);
                settings.max_mds = n as i32;
            }
        },
        "max_file_size" => match number()? {
            n if n < FILE_SIZE_MIN => return out_of_range(format!("{var} must at least {FILE_SIZE_MIN}")),
            n => settings.max_file_size = n as u64,
        },
        "standby_count_wanted" => match number()? {
            n if n < 0 => return out_of_range(format!("{var} must be non-negative")),
            n => settings.standby_count_wanted = i32::try_from(n).unwrap_or(i32::MAX),
        },
        "session_timeout" => settings.session_timeout = seconds()?,
        "session_autoclose" => settings.session_autoclose = seconds()?,
        "inline_data" => {
            settings.inline_data = parse_bool(value)?;
            let what = if settings.inline_data { "enabled" } else { "disabled" };
            return Ok(format!("inline data {what}"));
        }
        "balancer" => {
            if value.len() > NAME_MAX {
                return Err(invalid(format!("an object's name has at most {NAME_MAX} bytes here")));
            }
            settings.balancer = value.to_string();
            return Ok(match value.is_empty() {
                true => "unsetting the metadata load balancer".to_string(),
                false => format!("setting the metadata load balancer to {value}"),
            });
        }
        "allow_new_snaps" => {
            let on = parse_bool(value)?;
            settings.set(mdsmap_flags::ALLOW_SNAPS, on);
            return Ok(format!("{} new snapshots", if on { "enabled" } else { "disabled" }));
        }
        "allow_dirfrags" => {
            return Ok(
                "Directory fragmentation is now permanently enabled. This command is DEPRECATED and will be \
                       REMOVED from future releases."
                    .to_string(),
            );
        }
        "down" => {
            if parse_bool(value)? {
                if settings.max_mds > 0 {
                    settings.old_max_mds = std::mem::take(&mut settings.max_mds);
                }
                return Ok(format!("{name} marked down. "));
            }
            settings.max_mds = settings.old_max_mds.max(1);
            return Ok(format!("{name} marked up, max_mds = {}", settings.max_mds));
        }
        "cluster_down" | "joinable" => {
            let joinable = parse_bool(value)? != (var == "cluster_down");
            settings.set(mdsmap_flags::NOT_JOINABLE, !joinable);
            let text = match joinable {
                true => format!("{name} marked joinable; MDS may join as newly active."),
                false => format!("{name} marked not joinable; MDS cannot join as newly active."),
            };
            return Ok(match var {
                "joinable" => text,
                _ => {
                    text + " WARNING: cluster_down flag is deprecated and will be removed in a future version. \
                            Please use \"joinable\"."
                }
            });
        }
        "min_compat_client" => {
            settings.required_client_features = features_of_release(value).ok_or_else(|| {
                let text = "no release of Ceph's that clients can be required to have: jewel to octopus";
                invalid(format!("{value} is {text}"))
            })?;
            return Ok(DEPRECATED.to_string());
        }
        _ => return Err(invalid(format!("unknown variable {var}"))),
    }
    Ok(String::new())
}

fn no_servers(fs: &MdsMap) -> Result<(), Refusal> {
    match fs.ranks.up.is_empty() {
        true => Ok(()),
        false => {
            Err(refuse(errno::EBUSY, "file system must be failed or down; use `ceph fs fail` to bring down"))
        }
    }
}

fn compat(call: &mut Call<'_>) -> Outcome {
    let (name, op) = (call.args.text("fs_name")?, call.args.text("subop")?);
    let feature = call.args.int("feature")?;
    let title = call.args.text_opt("feature_str").unwrap_or_default();
    let fs = named(call, &name)?;
    let (fscid, mut compat) = (fs.fscid, fs.map.compat.clone());
    let feature = u64::try_from(feature).ok().filter(|n| (1..64).contains(n));
    let feature = feature.ok_or_else(|| invalid("Invalid feature"))?;
    no_servers(&fs.map)?;
    let (kind, set): (&str, &mut FeatureSet) = match &*op {
        "rm_compat" | "add_compat" => ("compat", &mut compat.compat),
        _ => ("incompat", &mut compat.incompat),
    };
    let text = match (op.starts_with("rm"), set.names.get(&feature)) {
        (true, Some(_)) => {
            set.names.remove(&feature);
            format!("removed {kind} feature {feature}")
        }
        (true, None) => format!("already removed {kind} feature {feature}"),
        (false, _) if title.is_empty() || title.len() > NAME_MAX => {
            return Err(invalid("adding a feature requires a feature string"));
        }
        (false, Some(known)) if *known == title => "feature already exists".to_string(),
        (false, Some(known)) => {
            return Err(refuse(errno::EEXIST, format!("feature with differing name `{known}' exists")));
        }
        (false, None) => {
            set.names.insert(feature, title.clone());
            format!("added {kind} feature F({feature}, \"{title}\")")
        }
    };
    edit(call, fscid, |fs| fs.compat = compat);
    Answer::said(text)
}

fn required_client_features(call: &mut Call<'_>) -> Outcome {
    let (name, op) = (call.args.text("fs_name")?, call.args.text("subop")?);
    let value = call.args.text("val")?;
    let fs = named(call, &name)?;
    let (fscid, mut bytes) = (fs.fscid, fs.map.settings.required_client_features.clone());
    let by_name = CLIENT_FEATURES.iter().position(|feature| *feature == value && value != "reserved");
    let bit = match by_name {
        Some(bit) => bit,
        None => {
            let number: usize =
                value.parse().map_err(|_| invalid(format!("Invalid feature name: {value}")))?;
            if number >= CLIENT_FEATURES.len() {
                return Err(invalid(format!("Invalid feature id: {number}")));
            }
            number
        }
    };
    let title = CLIENT_FEATURES[bit];
    // Ceph keeps whole words.
    if bytes.len() <= bit / 8 {
        bytes.resize((bit / 64 + 1) * 8, 0);
    }
    let (byte, mask) = (&mut bytes[bit / 8], 1 << (bit % 8));
    let is_set = *byte & mask != 0;
    let text = match (&*op, is_set) {
        ("add", true) => format!("feature '{title}' is already set"),
        ("add", false) => format!("added feature '{title}' to required_client_features"),
        ("rm", false) => format!("feature '{title}' is already unset"),
        ("rm", true) => format!("removed feature '{title}' from required_client_features"),
        (op, _) => return Err(invalid(format!("Must either add or rm a feature; {op} is not recognized"))),
    };
    if op == "add" {
        *byte |= mask
    } else {
        *byte &= !mask
    }
    if bytes.iter().all(|byte| *byte == 0) {
        bytes.clear();
    }
    edit(call, fscid, |fs| fs.settings.required_client_features = bytes);
    Answer::said(text)
}

// ---- pools ----

fn pool_by_name_or_id(call: &Call<'_>) -> Result<PoolId, Refusal> {
    let text = call.args.text("pool")?;
    match (pool_by_name(call, &text), text.parse().ok()) {
        (Err(_), Some(id)) if call.pending.map().pool(PoolId(id)).is_some() => Ok(PoolId(id)),
        (found, _) => found,
    }
}

fn add_data_pool(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("fs_name")?;
    let pool = pool_by_name_or_id(call)?;
    let fs = named(call, &name)?;
    let (fscid, have) = (fs.fscid, fs.map.data_pools.len());
    if fs.map.data_pools.contains(&pool) {
        return Answer::said(format!("data pool {pool} is already on fs {name}"));
    }
    if have >= DATA_POOLS_MAX {
        return Err(invalid(format!("a file system has at most {DATA_POOLS_MAX} pools for data")));
    }
    check_pool(call, pool, Use::MoreData, false)?;
    tag(call, pool, "data", &name);
    edit(call, fscid, |fs| fs.data_pools.push(pool));
    Answer::said(format!("added data pool {pool} to fsmap"))
}

fn rm_data_pool(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("fs_name")?;
    let pool = pool_by_name_or_id(call)?;
    let fs = named(call, &name)?;
    let fscid = fs.fscid;
    if fs.map.data_pools.first() == Some(&pool) {
        return Err(invalid("cannot remove default data pool"));
    }
    if !fs.map.data_pools.contains(&pool) {
        return Answer::said("");
    }
    edit(call, fscid, |fs| fs.data_pools.retain(|other| *other != pool));
    Answer::said(format!("removed data pool {pool} from fsmap"))
}

fn set_default(call: &mut Call<'_>) -> Outcome {
    let fscid = named(call, &call.args.text("fs_name")?)?.fscid;
    call.pending.edit_fsmap(call.state, |map| map.default_fscid = fscid);
    Answer::said("")
}

// ---- access ----

/// The capabilities for paths and permissions, in pairs, each maybe followed by `root_squash`.
fn caps_for(fs: &str, words: &[String]) -> Result<BTreeMap<String, String>, Refusal> {
    let (mut mds, mut writes) = (Vec::new(), false);
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(path) = words.next() {
        let Some(cap) = words.next() else {
            return Err(invalid("Permission flags (e.g. rw) must follow each path"));
        };
        if cap != "r" && !cap.starts_with("rw") {
            return Err(invalid("Permission flags must start with 'r' or 'rw'."));
        }
        if let Some(unknown) = cap.trim_start_matches("rw").chars().find(|c| cap != "r" && !"ps".contains(*c))
        {
            return Err(invalid(format!("Unknown permission flag '{unknown}'.")));
        }
        writes |= cap.starts_with("rw");
        let mut text = format!("allow {cap} fsname={fs}");
        if path != "/" {
            text += &format!(" path={path}");
        }
        if words.next_if_eq(&"root_squash").is_some() {
            text += " root_squash";
        }
        mds.push(text);
    }
    let osd = format!("allow {} tag {APP} data={fs}", if writes { "rw" } else { "r" });
    let mon = format!("allow r fsname={fs}");
    Ok([("mds", mds.join(", ")), ("mon", mon), ("osd", osd)].map(|(k, v)| (k.to_string(), v)).into())
}

fn authorize(call: &mut Call<'_>) -> Outcome {
    let fs = call.args.text("filesystem")?;
    if call.pending.fsmap(call.state).by_name(&fs).is_none() {
        return Err(invalid(format!("filesystem {fs} does not exist.")));
    }
    let caps = caps_for(&fs, &call.args.list("caps"))?;
    let name = auth::changed(call)?;
    let caps = auth::checked(caps.into_iter().collect())?;
    let entity = match call.entity(&name).cloned() {
        Some(known) => {
            if auth::is_there(call, &name, None, &caps).is_err() {
                return Err(invalid(format!(
                    "{name} already has fs capabilities that differ from those supplied. To generate a new auth key \
                     for {name}, first remove {name} from configuration files, execute 'ceph auth rm {name}', then \
                     execute this command again."
                )));
            }
            known
        }
        None => {
            let made = Entity { key: auth::new_preferred_key(call), caps };
            auth::put(call, vec![(name.clone(), made.clone())])?;
            made
        }
    };
    let bare = Entity { key: entity.key.clone(), caps: BTreeMap::new() };
    call.show(auth::rows([(&name, &entity)]), || keyring::print([(&name, &bare)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_permissions_become_capabilities_of_three_kinds() {
        let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let caps = caps_for("a", &words("/ r /b rwps root_squash")).unwrap();
        assert_eq!(caps["mds"], "allow r fsname=a, allow rwps fsname=a path=/b root_squash");
        assert_eq!((&*caps["mon"], &*caps["osd"]), ("allow r fsname=a", "allow rw tag cephfs data=a"));
        assert_eq!(caps_for("a", &words("/ r")).unwrap()["osd"], "allow r tag cephfs data=a");
        assert!(caps_for("a", &words("/ w")).is_err() && caps_for("a", &words("/ rwx")).is_err());
        assert!(caps_for("a", &words("/")).is_err());
    }
}
