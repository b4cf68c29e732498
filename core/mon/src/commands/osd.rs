//! Changing OSDs, flags and single placements.

use super::{Answer, Call, Outcome, Refusal, Row, osd_new, refuse};
use crate::output::{list, short};
use nacre_base::{OsdId, PgId, errno};
use nacre_command::parse_osd;
use nacre_proto::maps::{MAX_OSDS, Osd, osd_state, release};
use std::collections::BTreeSet;

pub const COMMANDS: &[Row] = &[
    ("osd in", "mark OSDs in", mark_in),
    ("osd out", "mark OSDs out, so that their data moves to others", mark_out),
    ("osd down", "mark OSDs down; running ones rejoin", mark_down),
    ("osd stop", "mark OSDs down and stop them", stop),
    ("osd reweight", "set the reweight of an OSD, from 0 to 1", reweight),
    ("osd reweightn", "set the reweights of several OSDs", reweightn),
    ("osd primary-affinity", "set the primary affinity of an OSD, from 0 to 1", affinity),
    ("osd new", "register an OSD", osd_new::new),
    ("osd create", "register an OSD", osd_new::new),
    ("osd setmaxosd", "set the maximum number of OSDs", set_max),
    ("osd set-full-ratio", "set the ratio above which OSDs are full", set_ratio),
    ("osd set-nearfull-ratio", "set the ratio above which OSDs are nearly full", set_ratio),
    ("osd set-backfillfull-ratio", "set the ratio above which OSDs receive no backfill", set_ratio),
    ("osd require-osd-release", "set the oldest OSDs that may join", require_release),
    ("osd set-require-min-compat-client", "set the oldest clients that may connect", min_compat),
    ("osd pg-temp", "set the temporary acting set of a placement group", pg_temp),
    ("osd primary-temp", "set the temporary primary of a placement group", primary_temp),
    ("osd pg-upmap", "set the OSDs of a placement group", pg_upmap),
    ("osd rm-pg-upmap", "remove the override of a placement group", rm_pg_upmap),
    ("osd pg-upmap-items", "replace single OSDs of a placement group", pg_upmap_items),
    ("osd rm-pg-upmap-items", "remove the override of a placement group", rm_pg_upmap_items),
];

/// Whether a word stands for every OSD.
pub(super) fn means_all(word: &str) -> bool {
    matches!(word, "all" | "any" | "*")
}

/// The OSDs that a command names, or all.
pub(super) fn asked(call: &Call<'_>, field: &str) -> Result<Vec<OsdId>, Refusal> {
    let mut osds = Vec::new();
    for id in call.args.list(field) {
        match parse_osd(&id) {
            _ if means_all(&id) => return Ok(call.pending.map().osd_ids().collect()),
            Some(osd) => osds.push(osd),
            None => return Err(refuse(errno::EINVAL, format!("invalid osd id '{id}'"))),
        }
    }
    Ok(osds)
}

/// Does something to each OSD of `ids`, collecting what there is to say of each.
fn for_each(call: &mut Call<'_>, each: impl Fn(&mut Call<'_>, OsdId) -> String) -> Outcome {
    let mut said = String::new();
    let ids = call.args.list("ids");
    let all = ids.iter().any(|id| means_all(id));
    if all {
        for osd in call.pending.map().clone().osd_ids() {
            let text = each(call, osd);
            said += if text.contains("already") { "" } else { &text };
        }
        return Answer::said(said);
    }
    for id in ids {
        let osd = parse_osd(&id).ok_or_else(|| refuse(errno::EINVAL, format!("invalid osd id '{id}'")))?;
        said += &match call.pending.map().exists(osd) {
            true => each(call, osd),
            false => format!("osd.{osd} does not exist. "),
        };
    }
    Answer::said(said)
}

fn mark_in(call: &mut Call<'_>) -> Outcome {
    for_each(call, |call, osd| {
        if call.pending.map().is_in(osd) {
            return format!("osd.{osd} is already in. ");
        }
        call.pending.mark_in(osd);
        format!("marked in osd.{osd}. ")
    })
}

fn mark_out(call: &mut Call<'_>) -> Outcome {
    for_each(call, |call, osd| {
        if call.pending.map().is_out(osd) {
            return format!("osd.{osd} is already out. ");
        }
        call.pending.mark_out(osd);
        format!("marked out osd.{osd}. ")
    })
}

fn mark_down(call: &mut Call<'_>) -> Outcome {
    for_each(call, |call, osd| {
        if call.pending.map().is_down(osd) || call.pending.flips_up(osd) {
            return format!("osd.{osd} is already down. ");
        }
        call.pending.mark_down(osd);
        format!("marked down osd.{osd}. ")
    })
}

/// A running OSD exits when it sees this in the map. It returns when it is started again.
fn stop(call: &mut Call<'_>) -> Outcome {
    for_each(call, |call, osd| {
        let known = call.pending.map().osds[osd.index()].state;
        if known & osd_state::STOP != 0 {
            return format!("osd.{osd} is already stopped. ");
        }
        if known & osd_state::UP != 0 && !call.pending.flips_up(osd) {
            call.pending.mark_down(osd);
        }
        call.pending.flip(osd, osd_state::STOP);
        format!("stop {}osd.{osd}. ", if known & osd_state::UP != 0 { "" } else { "down " })
    })
}

fn fraction(name: &str, x: f64) -> Result<u32, Refusal> {
    if !(0.0..=1.0).contains(&x) {
        return Err(refuse(errno::EINVAL, format!("{name} must be >= 0 and <= 1")));
    }
    Ok((x * 65536.0) as u32)
}

pub(super) fn existing(call: &Call<'_>, name: &str) -> Result<OsdId, Refusal> {
    let osd = call.args.osd(name)?;
    if !call.pending.map().exists(osd) {
        return Err(refuse(errno::ENOENT, format!("osd.{osd} does not exist")));
    }
    Ok(osd)
}

fn reweight(call: &mut Call<'_>) -> Outcome {
    let x = call.args.float("weight")?;
    let weight = fraction("weight", x)?;
    let osd = existing(call, "id")?;
    call.pending.set_weight(osd, weight);
    Answer::said(format!("reweighted osd.{osd} to {} ({weight:x})", short(x)))
}

fn reweightn(call: &mut Call<'_>) -> Outcome {
    let text = call.args.text("weights")?;
    let weights: std::collections::BTreeMap<String, u32> = serde_json::from_str(&text.replace('\'', "\""))
        .map_err(|_| refuse(errno::EINVAL, format!("unable to parse 'weights' value '{text}'")))?;
    for (osd, weight) in weights {
        let osd = parse_osd(&osd).filter(|&osd| call.pending.map().exists(osd));
        let osd = osd.ok_or_else(|| refuse(errno::ENOENT, "an osd in 'weights' does not exist"))?;
        call.pending.set_weight(osd, weight.min(Osd::IN));
    }
    Answer::said("")
}

fn affinity(call: &mut Call<'_>) -> Outcome {
    let x = call.args.float("weight")?;
    let weight = fraction("weight", x)?;
    let osd = existing(call, "id")?;
    call.pending.edit(|inc| inc.new_primary_affinity.insert(osd, weight));
    Answer::said(format!("set osd.{osd} primary-affinity to {} ({weight:x})", short(x)))
}

fn set_max(call: &mut Call<'_>) -> Outcome {
    let max = call.args.int("newmax")?;
    let max = u32::try_from(max).ok().filter(|&max| max <= MAX_OSDS);
    let max = max.ok_or_else(|| refuse(errno::ERANGE, format!("max_osd must be from 0 to {MAX_OSDS}")))?;
    let map = call.pending.map();
    if let Some(osd) = map.osd_ids().find(|osd| osd.0 as u32 >= max) {
        let text =
            format!("cannot shrink max_osd to {max} because osd.{osd} (and possibly others) still in use");
        return Err(refuse(errno::EBUSY, text));
    }
    if max != map.max_osd() {
        call.pending.edit(|inc| inc.new_max_osd = Some(max));
    }
    Answer::said(format!("set new max_osd = {max}"))
}

fn set_ratio(call: &mut Call<'_>) -> Outcome {
    let ratio = call.args.float("ratio")?;
    fraction("ratio", ratio)?;
    let prefix = call.args.text("prefix")?;
    let value = Some(ratio as f32);
    call.pending.edit(|inc| match &*prefix {
        "osd set-full-ratio" => inc.new_full_ratio = value,
        "osd set-nearfull-ratio" => inc.new_nearfull_ratio = value,
        _ => inc.new_backfillfull_ratio = value,
    });
    Answer::said(format!("{prefix} {}", short(ratio)))
}

fn release_of(name: &str) -> Result<u8, Refusal> {
    release::by_name(name).ok_or_else(|| refuse(errno::EINVAL, format!("unrecognized release {name}")))
}

fn require_release(call: &mut Call<'_>) -> Outcome {
    let wanted = release_of(&call.args.text("release")?)?;
    match wanted.cmp(&call.pending.map().require_osd_release) {
        std::cmp::Ordering::Equal => Answer::said(""),
        std::cmp::Ordering::Less => {
            Err(refuse(errno::EPERM, "require_osd_release cannot be lowered once it has been set"))
        }
        std::cmp::Ordering::Greater => Err(refuse(
            errno::EPERM,
            "not all OSDs that are up support that release: Nacre's support pacific",
        )),
    }
}

fn min_compat(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("version")?;
    let wanted = release_of(&name)?;
    if wanted > release::PACIFIC {
        return Err(refuse(
            errno::EPERM,
            format!(
                "not in Nacre: cannot require {name}, since the cluster uses nothing that clients up to pacific do not \
                 support, and its own daemons would be refused"
            ),
        ));
    }
    if wanted != call.pending.map().require_min_compat_client {
        call.pending.edit(|inc| inc.new_require_min_compat_client = Some(wanted));
    }
    Answer::said(format!("set require_min_compat_client to {name}"))
}

// ---- single placements ----

fn pg(call: &Call<'_>) -> Result<PgId, Refusal> {
    let pg = call.args.pg("pgid")?;
    if !call.pending.map().pg_exists(pg) {
        return Err(refuse(errno::ENOENT, format!("pg '{pg}' does not exist")));
    }
    Ok(pg)
}

/// OSDs that exist, as many as the pool has copies.
fn osds(call: &Call<'_>, field: &str) -> Result<Vec<OsdId>, Refusal> {
    let osds = call.args.osds(field)?;
    match osds.iter().find(|&&osd| !call.pending.map().exists(osd)) {
        Some(osd) => Err(refuse(errno::ENOENT, format!("osd.{osd} does not exist"))),
        None => Ok(osds),
    }
}

fn distinct(osds: &[OsdId]) -> Result<(), Refusal> {
    let set: BTreeSet<_> = osds.iter().collect();
    if set.len() != osds.len() {
        return Err(refuse(errno::EINVAL, "an osd is listed twice"));
    }
    Ok(())
}

fn pg_temp(call: &mut Call<'_>) -> Outcome {
    let (pg, osds) = (pg(call)?, osds(call, "id")?);
    distinct(&osds)?;
    let known = call.pending.map().pg_temp.get(&pg).cloned().unwrap_or_default();
    if known != osds {
        call.pending.edit(|inc| inc.new_pg_temp.insert(pg, osds.clone()));
    }
    Answer::said(match osds.is_empty() {
        true => format!("done cleaning up pg_temp of {pg}"),
        false => format!("set {pg} pg_temp mapping to {}", list(&osds)),
    })
}

fn primary_temp(call: &mut Call<'_>) -> Outcome {
    let pg = pg(call)?;
    let clear = matches!(call.args.text_opt("id").as_deref(), None | Some("-1"));
    if clear {
        if call.pending.map().primary_temp.contains_key(&pg) {
            call.pending.edit(|inc| inc.new_primary_temp.insert(pg, OsdId(-1)));
        }
        return Answer::said(format!("clear {pg} primary_temp mapping"));
    }
    let osd = existing(call, "id")?;
    call.pending.edit(|inc| inc.new_primary_temp.insert(pg, osd));
    Answer::said(format!("set {pg} primary_temp mapping to {osd}"))
}

fn pg_upmap(call: &mut Call<'_>) -> Outcome {
    let (pg, osds) = (pg(call)?, osds(call, "id")?);
    distinct(&osds)?;
    let pool = &call.pending.map().pools[&pg.pool];
    if osds.len() < pool.min_size.into() || osds.len() > pool.size.into() {
        let text = format!(
            "num of osds in mapping ({}) should be between pool min_size ({}) and size ({})",
            osds.len(),
            pool.min_size,
            pool.size
        );
        return Err(refuse(errno::EINVAL, text));
    }
    let text = format!("set {pg} pg_upmap mapping to {}", list(&osds));
    call.pending.edit(|inc| {
        inc.old_pg_upmap.remove(&pg);
        inc.new_pg_upmap.insert(pg, osds);
    });
    Answer::said(text)
}

fn rm_pg_upmap(call: &mut Call<'_>) -> Outcome {
    let pg = pg(call)?;
    if call.pending.map().pg_upmap.contains_key(&pg) {
        call.pending.edit(|inc| {
            inc.new_pg_upmap.remove(&pg);
            inc.old_pg_upmap.insert(pg);
        });
    }
    Answer::said(format!("clear {pg} pg_upmap mapping"))
}

fn pg_upmap_items(call: &mut Call<'_>) -> Outcome {
    let (pg, osds) = (pg(call)?, osds(call, "id")?);
    if osds.is_empty() || osds.len() % 2 != 0 {
        return Err(refuse(errno::EINVAL, "you must specify pairs of OSDs (from, to)"));
    }
    let mut pairs = Vec::new();
    for pair in osds.chunks(2) {
        let (from, to) = (pair[0], pair[1]);
        if from == to {
            return Err(refuse(errno::EINVAL, format!("from osd.{from} == to osd.{to}")));
        }
        pairs.push((from, to));
    }
    let shown = pairs.iter().map(|(from, to)| format!("{from}->{to}"));
    let text = format!("set {pg} pg_upmap_items mapping to {}", list(shown));
    call.pending.edit(|inc| {
        inc.old_pg_upmap_items.remove(&pg);
        inc.new_pg_upmap_items.insert(pg, pairs);
    });
    Answer::said(text)
}

fn rm_pg_upmap_items(call: &mut Call<'_>) -> Outcome {
    let pg = pg(call)?;
    if call.pending.map().pg_upmap_items.contains_key(&pg) {
        call.pending.edit(|inc| {
            inc.new_pg_upmap_items.remove(&pg);
            inc.old_pg_upmap_items.insert(pg);
        });
    }
    Answer::said(format!("clear {pg} pg_upmap_items mapping"))
}
