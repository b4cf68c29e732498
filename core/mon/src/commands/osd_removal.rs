//! Ending OSDs for good, and whether that costs data.

use super::{Answer, Call, Outcome, Refusal, Row, osd, osd_new, refuse};
use nacre_base::{OsdId, errno};
use nacre_command::Format;
use nacre_proto::maps::osd_state;
use serde_json::json;

pub const COMMANDS: &[Row] = &[
    ("osd rm", "remove OSDs from the map", rm),
    ("osd safe-to-destroy", "check whether OSDs can be destroyed without data loss", safe_to_destroy),
    ("osd destroy", "give up the data of an OSD and keep its id", destroy),
    ("osd purge", "remove an OSD from the maps", purge),
    ("osd purge-new", "remove an OSD that never ran from the maps", purge_new),
    ("osd lost", "declare a down OSD's data lost", lost),
];

/// What is known of OSDs that are to be removed.
#[derive(Default)]
struct Holdings {
    safe: Vec<i32>,
    /// Groups are on them.
    active: Vec<i32>,
    /// They did not say what they hold since no group is on them, and not everything is where it should be.
    unknown: Vec<i32>,
    /// They hold objects that no other OSD may have yet.
    stored: Vec<i32>,
    groups: u64,
}

impl Holdings {
    fn of(call: &Call<'_>, osds: &[OsdId]) -> Holdings {
        let map = &call.state.osdmap.map;
        let groups = call.mon.services.pgs.pgs_by_osd(map);
        // Then no other copies are needed.
        let all_clean = call.mon.services.pgs.all_clean(call.state, map);
        let mut found = Holdings::default();
        for osd in osds {
            let mapped = groups.get(osd).map_or(0, |(all, _)| *all);
            let report = call.mon.services.pgs.osds.get(osd).map(|stat| &stat.report);
            found.groups += mapped;
            // It never was in, so that it never got anything; or what it had is given up already.
            let holds_nothing =
                map.osd(*osd).is_none_or(|osd| osd.state & (osd_state::NEW | osd_state::DESTROYED) != 0);
            let kind = match report {
                _ if mapped > 0 => &mut found.active,
                _ if all_clean || holds_nothing => &mut found.safe,
                Some(report) if report.num_objects > 0 => &mut found.stored,
                // By an older map it may have got some since: a group was perhaps on it.
                Some(report) if report.epoch == map.epoch => &mut found.safe,
                _ => &mut found.unknown,
            };
            kind.push(osd.0);
        }
        found
    }

    /// Why they may not go, if so.
    fn objection(&self) -> Option<Refusal> {
        let Holdings { active, unknown, stored, groups, .. } = self;
        if !active.is_empty() {
            let text = format!("OSD(s) {} have {groups} pgs currently mapped to them. ", join(active));
            return Some(refuse(errno::EBUSY, text));
        }
        let why = match (unknown.is_empty(), stored.is_empty()) {
            (true, true) => return None,
            (false, _) => format!("OSD(s) {} have no reported stats", join(unknown)),
            (true, false) => format!("OSD(s) {} last reported that they hold objects", join(stored)),
        };
        let text =
            format!("{why}, and not all PGs are active+clean; we cannot be sure they aren't still needed. ");
        Some(refuse(errno::EAGAIN, text))
    }
}

fn join(ids: &[i32]) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

fn safe_to_destroy(call: &mut Call<'_>) -> Outcome {
    let found = Holdings::of(call, &osd::asked(call, "ids")?);
    let Holdings { safe, active, unknown, stored, .. } = &found;
    let value =
        json!({ "safe_to_destroy": safe, "active": active, "missing_stats": unknown, "stored_pgs": stored });
    match found.objection() {
        Some(refusal) if call.format == Format::Plain => Err(refusal),
        None if call.format == Format::Plain => {
            let text = "are safe to destroy without reducing data durability.";
            Answer::said(format!("OSD(s) {} {text}", join(safe)))
        }
        _ => call.show(value, String::new),
    }
}

/// What only this OSD has would be lost with it.
fn not_needed(call: &Call<'_>, osd: OsdId) -> Result<(), Refusal> {
    if call.args.flag("force") {
        return Ok(());
    }
    let Some(refusal) = Holdings::of(call, &[osd]).objection() else { return Ok(()) };
    let text = format!(
        "{}\nYou can proceed by passing --force, but be warned that this will likely mean real, permanent data loss.",
        refusal.text
    );
    Err(Refusal { text, ..refusal })
}

fn may_remove(call: &Call<'_>, osd: OsdId) -> Result<(), Refusal> {
    if call.pending.map().is_up(osd) {
        return Err(refuse(errno::EBUSY, format!("osd.{osd} is still up; must be down before removal. ")));
    }
    if call.pending.flips_up(osd) {
        return Err(refuse(errno::EAGAIN, format!("osd.{osd} is changing, try again")));
    }
    Ok(())
}

fn remove(call: &mut Call<'_>, osd: OsdId) -> Result<(), Refusal> {
    may_remove(call, osd)?;
    let state = call.pending.map().osds[osd.index()].state;
    call.pending.flip(osd, state);
    Ok(())
}

fn rm(call: &mut Call<'_>) -> Outcome {
    let (mut said, mut removed, mut refused) = (String::new(), Vec::new(), None);
    for osd in osd::asked(call, "ids")? {
        if !call.pending.map().exists(osd) {
            said += &format!("osd.{osd} does not exist. ");
            continue;
        }
        match remove(call, osd) {
            Ok(()) => removed.push(format!("osd.{osd}")),
            Err(refusal) => {
                said += &refusal.text;
                refused = Some(refusal);
            }
        }
    }
    if let Some(refusal) = refused.filter(|_| removed.is_empty()) {
        return Err(Refusal { text: said, ..refusal });
    }
    if !removed.is_empty() {
        said += &format!("removed {}", removed.join(", "));
    }
    Answer::said(said)
}

fn sure(call: &Call<'_>, what: &str) -> Result<(), Refusal> {
    if call.args.flag("yes_i_really_mean_it") || call.args.flag("force") {
        return Ok(());
    }
    Err(refuse(
        errno::EPERM,
        format!(
            "Are you SURE? {what}, and it cannot be undone. Add --yes-i-really-mean-it if you really do."
        ),
    ))
}

/// An OSD that may go, or what to say instead.
fn leaving(call: &Call<'_>) -> Result<Result<OsdId, Answer>, Refusal> {
    let osd = call.args.osd("id")?;
    if !call.pending.map().exists(osd) {
        return Ok(Err(Answer { status: format!("osd.{osd} does not exist"), output: Vec::new() }));
    }
    not_needed(call, osd)?;
    if call.pending.map().is_up(osd) {
        return Err(refuse(errno::EBUSY, format!("osd.{osd} is not `down`.")));
    }
    Ok(Ok(osd))
}

fn destroy(call: &mut Call<'_>) -> Outcome {
    match leaving(call)? {
        Ok(osd) => give_up(call, osd),
        Err(answer) => Ok(answer),
    }
}

/// Keeps the number of an OSD that is down for another disk.
pub(super) fn give_up(call: &mut Call<'_>, osd: OsdId) -> Outcome {
    may_remove(call, osd)?;
    let known = &call.pending.map().osds[osd.index()];
    let (uuid, is_destroyed) = (known.uuid, known.has(osd_state::DESTROYED));
    if !is_destroyed {
        call.pending.flip(osd, osd_state::DESTROYED);
        call.pending.edit(|inc| inc.new_uuid.insert(osd, [0; 16]));
    }
    osd_new::forget_keys(call, osd, &uuid);
    Answer::said(format!("destroyed osd.{osd}"))
}

fn purge(call: &mut Call<'_>) -> Outcome {
    match leaving(call)? {
        Ok(osd) => forget(call, osd),
        Err(answer) => Ok(answer),
    }
}

/// Takes back `osd new`: what never ran holds nothing.
fn purge_new(call: &mut Call<'_>) -> Outcome {
    let osd = call.args.osd("id")?;
    sure(call, &format!("This removes osd.{osd} from the maps"))?;
    let map = call.pending.map();
    if !map.exists(osd) {
        return Answer::said(format!("osd.{osd} does not exist"));
    }
    if !map.osds[osd.index()].has(osd_state::NEW) {
        return Err(refuse(errno::EPERM, format!("osd.{osd} is not new: it ran before")));
    }
    forget(call, osd)
}

/// Whether all OSDs of a host may be forgotten. `lost`: what only they have is given up.
pub(super) fn may_forget(call: &Call<'_>, osds: &[OsdId], lost: bool) -> Result<(), Refusal> {
    if let Some(refusal) = Holdings::of(call, osds).objection().filter(|_| !lost && !osds.is_empty()) {
        return Err(refusal);
    }
    if let Some(osd) = osds.iter().find(|osd| call.pending.map().is_up(**osd)) {
        return Err(refuse(errno::EBUSY, format!("osd.{osd} is up: stop it first")));
    }
    osds.iter().try_for_each(|osd| may_remove(call, *osd))
}

/// Fails if an OSD has what no other OSD may have yet.
pub(super) fn may_forget_data(call: &Call<'_>, osd: OsdId) -> Result<(), Refusal> {
    match Holdings::of(call, &[osd]).objection() {
        Some(refusal) => Err(refusal),
        None => Ok(()),
    }
}

pub(super) fn forget(call: &mut Call<'_>, osd: OsdId) -> Outcome {
    let uuid = call.pending.map().osds[osd.index()].uuid;
    remove(call, osd)?;
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.remove_item(&format!("osd.{osd}")).is_ok() {
        call.pending.edit_crush(crush);
    }
    osd_new::forget_keys(call, osd, &uuid);
    Answer::said(format!("purged osd.{osd}"))
}

fn lost(call: &mut Call<'_>) -> Outcome {
    let osd = super::osd::existing(call, "id")?;
    sure(
        call,
        &format!("This might mean real, permanent data loss: data that only osd.{osd} has is given up"),
    )?;
    let map = call.pending.map().clone();
    if map.is_up(osd) {
        return Err(refuse(errno::EBUSY, format!("osd.{osd} is not down or doesn't exist")));
    }
    let at = map.osds[osd.index()].info.down_at;
    call.pending.edit(|inc| inc.new_lost.insert(osd, at));
    Answer::said(format!("marked osd lost in epoch {at}"))
}
