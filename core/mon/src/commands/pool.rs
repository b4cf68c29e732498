//! Pools come, go and get names and applications.

use super::{Answer, Call, Outcome, Refusal, Row, erasure, osdmap_dump, refuse, snaps};
use crate::mon::Mon;
use crate::pending_txn::PendingTxn;
use crate::services::Options;
use nacre_base::{Epoch, Now, PoolId, errno};
use nacre_crush::CrushMap;
use nacre_erasure::profile::{Profile, Settings};
use nacre_proto::maps::{OsdMap, Pool, PoolKind, pool_flags};
use nacre_proto::messages::{Message, PaxosVersion, PoolOp, PoolOpKind, PoolOpReply};
use nacre_proto::types::cluster_format;
use nacre_wire::to_vec;
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub const COMMANDS: &[Row] = &[
    ("osd pool ls", "list pools", ls),
    ("osd pool create", "create a pool", create),
    ("osd pool rm", "remove a pool and all its data", rm),
    ("osd pool delete", "remove a pool and all its data", rm),
    ("osd pool rename", "rename a pool", rename),
    ("osd pool application enable", "enable an application on a pool", app_enable),
    ("osd pool application disable", "disable an application on a pool", app_disable),
    ("osd pool application set", "set metadata of an application on a pool", app_set),
    ("osd pool application rm", "remove metadata of an application on a pool", app_rm),
    ("osd pool application get", "show the applications of pools", app_get),
];

/// Chunks of one object: a shard's number has seven bits, of which one is for what is undone.
const SHARDS_MAX: u64 = 63;
/// Placement groups in one pool.
const PG_NUM_MAX: u64 = 65_536;

fn ls(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    if call.args.text_opt("detail").is_some() {
        call.lay_out_as("osd pool ls detail");
        let rows: Value = map.pools.keys().map(|&id| osdmap_dump::pool(map, id, "pool_id")).collect();
        return call.show(rows, || {
            let lines = map.pools.keys().map(|&id| osdmap_dump::pool_line(map, id) + "\n");
            lines.chain(["\n".to_string()]).collect()
        });
    }
    let names: Vec<&String> = map.pool_names.values().collect();
    call.show(json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
}

/// The options of `osd pool create`.
#[derive(Default)]
pub(super) struct Wish {
    pub name: String,
    pub pg_num: u64,
    pub pgp_num: u64,
    pub size: u64,
    pub rule: Option<String>,
    pub autoscale: Option<u8>,
    pub bulk: bool,
    /// Of an erasure-coded pool.
    pub profile: Option<String>,
}

/// Adds a pool to the pending transaction. False if there is one of that name.
pub(super) fn make(mon: &Mon, now: Now, pending: &mut PendingTxn, wish: &Wish) -> Result<bool, Refusal> {
    let map = pending.map().clone();
    if wish.name.is_empty() || wish.name.len() > 1024 {
        return Err(refuse(errno::EINVAL, "a pool needs a name of 1 to 1024 bytes"));
    }
    if map.pool_by_name(&wish.name).is_some() {
        return Ok(false);
    }
    if pending.gives_up_name(&wish.name) {
        pending.defer = true;
        return Ok(false);
    }
    let option = |name: &str| mon.option(name).as_u64();
    let pg_num = if wish.pg_num == 0 { option("osd_pool_default_pg_num") } else { wish.pg_num };
    if !(1..=PG_NUM_MAX).contains(&pg_num) {
        let text = format!("'pg_num' must be greater than 0 and less than or equal to {PG_NUM_MAX}");
        return Err(refuse(errno::ERANGE, text));
    }
    let pgp_num = if wish.pgp_num == 0 { pg_num } else { wish.pgp_num };
    if pgp_num > pg_num {
        let text = format!(
            "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is {pg_num}"
        );
        return Err(refuse(errno::ERANGE, text));
    }
    if let Some(profile) = &wish.profile {
        return make_erasure(mon, now, pending, wish, profile, (pg_num as u32, pgp_num as u32));
    }
    let size = if wish.size == 0 { option("osd_pool_default_size") } else { wish.size };
    if !(1..=10).contains(&size) {
        return Err(refuse(errno::EINVAL, "pool size must be between 1 and 10"));
    }
    check_pgs_per_osd(mon.options(), &map, None, pg_num, size)?;
    let min_size = match option("osd_pool_default_min_size") {
        0 => size - size / 2,
        chosen => chosen.min(size),
    };
    let rule = rule_for(mon, &map, wish.rule.as_deref())?;
    check_rule(&map.crush, rule.into(), PoolKind::Replicated, size)?;
    let pool = Pool::replicated(size as u8, min_size as u8, pg_num as u32, rule, now.wall);
    add(mon, pending, wish, pool, pgp_num as u32);
    Ok(true)
}

/// The same, of an erasure-coded one. A rule is made for it if none is named.
fn make_erasure(
    mon: &Mon,
    now: Now,
    pending: &mut PendingTxn,
    wish: &Wish,
    profile: &str,
    (pg_num, pgp_num): (u32, u32),
) -> Result<bool, Refusal> {
    erasure::make_default(mon, pending, profile);
    let map = pending.map().clone();
    let settings = map.erasure_code_profiles.get(profile).ok_or_else(erasure::no_profile)?;
    let unit = match settings.get("stripe_unit") {
        Some(unit) => nacre_options::bytes(unit).unwrap_or_default(),
        None => mon.option("osd_pool_erasure_code_stripe_unit").as_u64(),
    };
    let code = Profile::new(&mut Settings(settings.clone())).map_err(|e| refuse(e.errno, e.text))?;
    let (k, n) = (code.data_chunk_count() as u64, code.chunk_count() as u64);
    if n > SHARDS_MAX {
        let text = format!("the profile {profile} makes {n} chunks, and a pool may have {SHARDS_MAX}");
        return Err(refuse(errno::EINVAL, text));
    }
    check_pgs_per_osd(mon.options(), &map, None, pg_num.into(), n)?;
    let implicit = if profile == "default" { "erasure-code" } else { &*wish.name };
    let named = wish.rule.as_deref().filter(|rule| !rule.is_empty());
    let rule = match named {
        Some(name) => rule_named(&map.crush, name)?,
        None => match map.crush.rule_by_name(implicit) {
            Some(rule) => rule,
            None => {
                let mut crush = map.crush.as_ref().clone();
                let rule = erasure::add_rule(&mut crush, implicit, settings)?;
                pending.edit_crush(crush);
                rule
            }
        },
    };
    check_rule(&pending.map().crush, rule, PoolKind::Erasure, n)?;
    let min_size = k + u64::min(1, (n - k).saturating_sub(1));
    let width = k * code.chunk_size(k * unit);
    let width = u32::try_from(width).map_err(|_| refuse(errno::EINVAL, "the stripe is too wide"))?;
    let pool = Pool::erasure(n as u8, min_size as u8, pg_num, rule as u8, profile, width, now.wall);
    add(mon, pending, wish, pool, pgp_num);
    Ok(true)
}

/// The new pool, with what all kinds have in common.
fn add(mon: &Mon, pending: &mut PendingTxn, wish: &Wish, mut pool: Pool, pgp_num: u32) {
    pool.pgp_num = pgp_num;
    pool.pgp_num_target = pgp_num;
    pool.flags |= pool_flags::CREATING;
    if wish.bulk || mon.option("osd_pool_default_flag_bulk").as_bool() {
        pool.flags |= pool_flags::BULK;
    }
    pool.autoscale_mode = wish.autoscale.unwrap_or_else(|| {
        match &*mon.option("osd_pool_default_pg_autoscale_mode").to_string() {
            "on" => 2,
            "warn" => 1,
            _ => 0,
        }
    });
    let id = pending.map().pool_max.max(0) + 1;
    pending.edit(|inc| {
        pool.last_change = inc.epoch;
        inc.new_pool_max = Some(id);
        inc.new_pools.insert(PoolId(id.into()), Arc::new(pool));
        inc.new_pool_names.insert(PoolId(id.into()), wish.name.clone());
    });
}

fn rule_named(crush: &CrushMap, name: &str) -> Result<u32, Refusal> {
    let none = || refuse(errno::ENOENT, format!("specified rule {name} doesn't exist"));
    crush.rule_by_name(name).ok_or_else(none)
}

/// The rule by name, or the one that new replicated pools get.
fn rule_for(mon: &Mon, map: &OsdMap, name: Option<&str>) -> Result<u8, Refusal> {
    let id = match name.filter(|name| !name.is_empty()) {
        Some(name) => rule_named(&map.crush, name)?,
        None => {
            let chosen: Option<u32> = mon.option("osd_pool_default_crush_rule").to_string().parse().ok();
            let chosen = chosen.filter(|&id| map.crush.rule(id).is_some());
            let first = || {
                (0..map.crush.rules.len() as u32).find(|&id| map.crush.rule(id).is_some_and(|r| r.kind == 1))
            };
            chosen
                .or_else(first)
                .ok_or_else(|| refuse(errno::ENOENT, "there is no CRUSH rule for replicated pools"))?
        }
    };
    Ok(id as u8)
}

/// Refuses a rule that is not for such pools: clients up to Pacific would find no OSDs for them.
pub fn check_rule(crush: &CrushMap, rule: u32, kind: PoolKind, size: u64) -> Result<(), Refusal> {
    let rule = crush.rule(rule).filter(|rule| rule.kind == kind as u8);
    let text = match rule {
        None => "the crush rule is not for pools of this type",
        Some(rule) if size < rule.min_size.into() => "pool size is smaller than the crush rule min size",
        Some(rule) if size > rule.max_size.into() => "pool size is bigger than the crush rule max size",
        Some(_) => return Ok(()),
    };
    Err(refuse(errno::EINVAL, text))
}

/// Keeps OSDs from having to hold more groups than they manage.
pub fn check_pgs_per_osd(
    options: Options<'_>,
    map: &OsdMap,
    except: Option<PoolId>,
    pg_num: u64,
    size: u64,
) -> Result<(), Refusal> {
    let per_osd: u64 = options.get("mon_max_pg_per_osd").as_u64();
    let osds = map.osd_ids().filter(|&osd| map.is_in(osd)).count().max(3) as u64;
    let pools = map.pools.iter().filter(|(id, _)| Some(**id) != except);
    let have: u64 = pools.map(|(_, pool)| u64::from(pool.pg_num) * u64::from(pool.size)).sum();
    let (all, max) = (have + pg_num * size, per_osd * osds);
    if per_osd > 0 && all > max {
        let which = except.map_or(String::new(), |id| format!("pool id {id}"));
        let text = format!(
            "{which} pg_num {pg_num} size {size} would mean {all} total pgs, which exceeds max {max} \
             (mon_max_pg_per_osd {per_osd} * num_in_osds {osds})"
        );
        return Err(refuse(errno::ERANGE, text));
    }
    Ok(())
}

fn create(call: &mut Call<'_>) -> Outcome {
    let positive = |name: &str| -> Result<u64, Refusal> {
        let value = call.args.int_opt(name)?.unwrap_or(0);
        u64::try_from(value).map_err(|_| refuse(errno::EINVAL, format!("'{name}' must not be negative")))
    };
    let name = call.args.text("pool")?;
    let wanted = call.args.text_opt("pool_type").filter(|kind| !kind.is_empty());
    let wanted = wanted.unwrap_or_else(|| "replicated".to_string());
    let kind = match &*wanted {
        "replicated" => PoolKind::Replicated,
        "erasure" => PoolKind::Erasure,
        other => return Err(refuse(errno::EINVAL, format!("unknown pool type '{other}'"))),
    };
    let map = call.pending.map();
    match map.pool_by_name(&name).map(|id| map.pools[&id].kind) {
        Some(have) if have != kind => {
            let text = format!("pool '{name}' cannot change to type {wanted}");
            return Err(refuse(errno::EINVAL, text));
        }
        _ => {}
    }
    if kind == PoolKind::Erasure && call.state.upgrades.format < cluster_format::ERASURE_POOLS {
        let text = "older OSDs cannot hold erasure-coded pools: `nacre upgrade finish` comes first";
        return Err(refuse(errno::EOPNOTSUPP, text));
    }
    // The tool puts the rule's name where erasure-coded pools have the profile's, and what follows into
    // `rule`.
    let profile = call.args.text_opt("erasure_code_profile").filter(|profile| !profile.is_empty());
    let (profile, rule) = match kind {
        PoolKind::Erasure => (Some(profile.unwrap_or_else(|| "default".into())), call.args.text_opt("rule")),
        PoolKind::Replicated => (None, profile.or(call.args.text_opt("rule"))),
    };
    let autoscale = match call.args.text_opt("autoscale_mode").as_deref() {
        Some("on") => Some(2),
        Some("warn") => Some(1),
        Some("off") => Some(0),
        _ => None,
    };
    let wish = Wish {
        name,
        pg_num: positive("pg_num")?,
        pgp_num: positive("pgp_num")?,
        size: positive("size")?,
        rule,
        autoscale,
        bulk: call.args.flag("bulk"),
        profile,
    };
    let made = make(call.mon, call.now, call.pending, &wish)?;
    let what = if made { "created" } else { "already exists" };
    Answer::said(format!("pool '{}' {what}", wish.name))
}

/// Removes a pool, if it may be.
pub(super) fn delete(mon: &Mon, pending: &mut PendingTxn, id: PoolId) -> Result<(), Refusal> {
    if !mon.option("mon_allow_pool_delete").as_bool() {
        return Err(refuse(
            errno::EPERM,
            "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before you \
             can destroy a pool",
        ));
    }
    let map = pending.map().clone();
    let state = mon.state.as_ref().expect("the caller leads");
    let mut file_systems = pending.fsmap(state).filesystems.values().map(|fs| &fs.map);
    if file_systems.any(|fs| fs.metadata_pool == Some(id) || fs.data_pools.contains(&id)) {
        let name = map.pool_name(id).unwrap_or_default();
        return Err(refuse(errno::EBUSY, format!("pool '{name}' is in use by CephFS")));
    }
    if map.pools[&id].has(pool_flags::NODELETE) {
        let text = "pool deletion is disabled; you must unset nodelete flag for the pool first";
        return Err(refuse(errno::EPERM, text));
    }
    if map.crush.choose_args.contains_key(&id.0) {
        let mut crush = map.crush.as_ref().clone();
        crush.choose_args.remove(&id.0);
        pending.edit_crush(crush);
    }
    pending.edit(|inc| {
        inc.new_pools.remove(&id);
        inc.new_pool_names.remove(&id);
        if !map.pools.contains_key(&id) {
            return;
        }
        inc.old_pools.insert(id);
        // What was said of single groups goes with them.
        for pg in map.pg_temp.keys().filter(|pg| pg.pool == id) {
            inc.new_pg_temp.insert(*pg, Vec::new());
        }
        for pg in map.primary_temp.keys().filter(|pg| pg.pool == id) {
            inc.new_primary_temp.insert(*pg, nacre_base::OsdId(-1));
        }
        inc.new_pg_upmap.retain(|pg, _| pg.pool != id);
        inc.new_pg_upmap_items.retain(|pg, _| pg.pool != id);
        inc.old_pg_upmap.extend(map.pg_upmap.keys().filter(|pg| pg.pool == id));
        inc.old_pg_upmap_items.extend(map.pg_upmap_items.keys().filter(|pg| pg.pool == id));
    });
    Ok(())
}

fn rm(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("pool")?;
    let Some(id) = call.pending.map().pool_by_name(&name) else {
        return Answer::said(format!("pool '{name}' does not exist"));
    };
    let sure = call.args.flag("yes_i_really_really_mean_it")
        || call.args.flag("yes_i_really_really_mean_it_not_faking")
        || call.args.text_opt("sure").as_deref() == Some("--yes-i-really-really-mean-it");
    if call.args.text_opt("pool2").as_deref() != Some(&name) || !sure {
        return Err(refuse(
            errno::EPERM,
            format!(
                "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are *ABSOLUTELY \
                 CERTAIN* that is what you want, pass the pool name *twice*, followed by \
                 --yes-i-really-really-mean-it."
            ),
        ));
    }
    delete(call.mon, call.pending, id)?;
    Answer::said(format!("pool '{name}' removed"))
}

fn rename(call: &mut Call<'_>) -> Outcome {
    let (from, to) = (call.args.text("srcpool")?, call.args.text("destpool")?);
    let map = call.pending.map();
    match (map.pool_by_name(&from), map.pool_by_name(&to)) {
        (None, Some(_)) => Answer::said(format!(
            "pool '{from}' does not exist; pool '{to}' does -- assuming successful rename"
        )),
        (None, None) => Err(refuse(errno::ENOENT, format!("unrecognized pool '{from}'"))),
        (Some(_), Some(_)) => Err(refuse(errno::EEXIST, format!("pool '{to}' already exists"))),
        (Some(_), None) if to.is_empty() => Err(refuse(errno::EINVAL, "a pool needs a name")),
        (Some(id), None) => {
            match call.pending.gives_up_name(&to) {
                true => call.pending.defer = true,
                false => drop(call.pending.edit(|inc| inc.new_pool_names.insert(id, to.clone()))),
            }
            Answer::said(format!("pool '{from}' renamed to '{to}'"))
        }
    }
}

// ---- applications ----

/// On one pool. Ceph: `MAX_POOL_APPLICATIONS`, `MAX_POOL_APPLICATION_KEYS`, `MAX_POOL_APPLICATION_LENGTH`.
const APPS_MAX: usize = 4;
const APP_NOTES_MAX: usize = 64;
const APP_TEXT_MAX: usize = 128;

fn too_long(what: &str, text: &str) -> Refusal {
    refuse(errno::EINVAL, format!("{what} '{text}' too long; max length {APP_TEXT_MAX}"))
}

/// A pool and the name of an application.
fn pool_and_app(call: &Call<'_>) -> Result<(String, PoolId, String), Refusal> {
    let name = call.args.text("pool")?;
    let id = call.args.pool("pool", call.pending.map())?;
    Ok((name, id, call.args.text("app")?))
}

fn app_enable(call: &mut Call<'_>) -> Outcome {
    let (name, id, app) = pool_and_app(call)?;
    if app.is_empty() {
        return Err(refuse(errno::EINVAL, "application name must be provided"));
    }
    let apps = &call.pending.map().pools[&id].applications;
    if !apps.contains_key(&app) {
        if !apps.is_empty() && !call.args.flag("yes_i_really_mean_it") {
            let text = format!(
                "Are you SURE? Pool '{name}' already has an enabled application; pass --yes-i-really-mean-it to proceed \
                 anyway"
            );
            return Err(refuse(errno::EPERM, text));
        }
        if apps.len() >= APPS_MAX {
            let text = format!("too many enabled applications on pool '{name}'; max {APPS_MAX}");
            return Err(refuse(errno::EINVAL, text));
        }
        if app.len() > APP_TEXT_MAX {
            return Err(too_long("application name", &app));
        }
        call.pending.edit_pool(id, |pool| drop(pool.applications.insert(app.clone(), Default::default())));
    }
    Answer::said(format!("enabled application '{app}' on pool '{name}'"))
}

fn app_disable(call: &mut Call<'_>) -> Outcome {
    let (name, id, app) = pool_and_app(call)?;
    if !call.args.flag("yes_i_really_mean_it") {
        return Err(refuse(
            errno::EPERM,
            "Are you SURE? Disabling an application within a pool might result in loss of application functionality; \
             pass --yes-i-really-mean-it to proceed anyway",
        ));
    }
    if !call.pending.map().pools[&id].applications.contains_key(&app) {
        return Answer::said(format!("application '{app}' is not enabled on pool '{name}'"));
    }
    call.pending.edit_pool(id, |pool| drop(pool.applications.remove(&app)));
    Answer::said(format!("disable application '{app}' on pool '{name}'"))
}

fn app_set(call: &mut Call<'_>) -> Outcome {
    let (name, id, app) = pool_and_app(call)?;
    let (key, value) = (call.args.text("key")?, call.args.text("value")?);
    let Some(notes) = call.pending.map().pools[&id].applications.get(&app) else {
        return Err(refuse(errno::ENOENT, format!("application '{app}' is not enabled on pool '{name}'")));
    };
    if key.is_empty() {
        return Err(refuse(errno::EINVAL, "key must be provided"));
    }
    if notes.len() >= APP_NOTES_MAX && !notes.contains_key(&key) {
        let text = format!("too many keys set for application '{app}' on pool '{name}'; max {APP_NOTES_MAX}");
        return Err(refuse(errno::EINVAL, text));
    }
    if key.len() > APP_TEXT_MAX {
        return Err(too_long("key", &app)); // Ceph, too, names the application here
    }
    if value.len() > APP_TEXT_MAX {
        return Err(too_long("value", &value));
    }
    if notes.get(&key) != Some(&value) {
        call.pending.edit_pool(id, |pool| {
            pool.applications.entry(app.clone()).or_default().insert(key.clone(), value.clone());
        });
    }
    Answer::said(format!("set application '{app}' key '{key}' to '{value}' on pool '{name}'"))
}

fn app_rm(call: &mut Call<'_>) -> Outcome {
    let (name, id, app) = pool_and_app(call)?;
    let key = call.args.text("key")?;
    let Some(notes) = call.pending.map().pools[&id].applications.get(&app) else {
        return Err(refuse(errno::ENOENT, format!("application '{app}' is not enabled on pool '{name}'")));
    };
    if !notes.contains_key(&key) {
        return Answer::said(format!("application '{app}' on pool '{name}' does not have key '{key}'"));
    }
    call.pending.edit_pool(id, |pool| {
        pool.applications.entry(app.clone()).or_default().remove(&key);
    });
    Answer::said(format!("removed application '{app}' key '{key}' on pool '{name}'"))
}

fn app_get(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    if call.args.text_opt("pool").is_none_or(|pool| pool.is_empty()) {
        let all: Map<String, Value> = map
            .pools
            .iter()
            .map(|(id, pool)| (map.pool_name(*id).unwrap_or_default().to_string(), json!(pool.applications)))
            .collect();
        return call.show_json(all.into());
    }
    let name = call.args.text("pool")?;
    let apps = &map.pools[&call.args.pool("pool", map)?].applications;
    let Some(app) = call.args.text_opt("app").filter(|app| !app.is_empty()) else {
        call.layout = call.layout.clone().with_root(name);
        return call.show_json(json!(apps));
    };
    let Some(notes) = apps.get(&app) else {
        return Err(refuse(errno::ENOENT, format!("pool '{name}' has no application '{app}'")));
    };
    let Some(key) = call.args.text_opt("key").filter(|key| !key.is_empty()) else {
        call.layout = call.layout.clone().with_root(app);
        return call.show_json(json!(notes));
    };
    match notes.get(&key) {
        Some(value) => Answer::text(format!("{value}\n")),
        None => Err(refuse(
            errno::ENOENT,
            format!("application '{app}' on pool '{name}' does not have key '{key}'"),
        )),
    }
}

// ---- what librados asks for by a message of its own ----

pub fn pool_op(mon: &Mon, now: Now, op: &PoolOp, pending: &mut PendingTxn) -> Message {
    let state = mon.state.as_ref().expect("the caller leads");
    let mut data = None;
    let result = match op.op {
        PoolOpKind::Create => create_op(mon, now, op, pending),
        PoolOpKind::Delete => {
            let id = PoolId(op.pool.into());
            match pending.map().pool(id) {
                None => Err(errno::ENOENT),
                Some(_) => delete(mon, pending, id).map_err(|refusal| refusal.code),
            }
        }
        PoolOpKind::CreateUnmanagedSnap => {
            snaps::create_unmanaged(op, pending).map(|snap| data = Some(to_vec(&snap).into()))
        }
        PoolOpKind::DeleteUnmanagedSnap => snaps::delete_unmanaged(op, state, pending),
        PoolOpKind::CreateSnap => snaps::create(op, pending, now.wall),
        PoolOpKind::DeleteSnap => snaps::delete(op, pending),
        PoolOpKind::Other(_) => Err(errno::EINVAL),
    };
    let code = result.map_or_else(|code| -code, |()| 0);
    PoolOpReply { version: PaxosVersion(0), fsid: state.fsid(), code, epoch: Epoch(0), data }.into()
}

fn create_op(mon: &Mon, now: Now, op: &PoolOp, pending: &mut PendingTxn) -> Result<(), i32> {
    let rule = match u32::try_from(op.crush_rule) {
        Err(_) => None,
        Ok(id) => Some(pending.map().crush.rule_names.get(&(id as i32)).cloned().ok_or(errno::ENOENT)?),
    };
    let wish = Wish { name: op.name.clone(), rule, ..Wish::default() };
    // A repeated request finds its own pool, which is as good.
    make(mon, now, pending, &wish).map(|_| ()).map_err(|refusal| refusal.code)
}
