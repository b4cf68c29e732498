//! What operators have single groups do.

use super::{Answer, Call, Outcome, Row, refuse};
use nacre_base::{OsdId, PgId, errno};
use nacre_proto::messages::{LogLevel, PgRecord, pg_state};

pub const COMMANDS: &[Row] = &[
    ("pg repeer", "restart the peering of a placement group", repeer),
    ("osd force-create-pg", "recreate a placement group whose copies are all lost, empty", force_create),
];

/// The members change places for as long as peering takes: that is another interval for each OSD that
/// has the group. Its primary then asks for the order that CRUSH wants, which is one more.
fn repeer(call: &mut Call<'_>) -> Outcome {
    let pg = call.args.pg("pgid")?;
    let map = call.pending.map();
    if !map.pg_exists(pg) {
        return Err(refuse(errno::ENOENT, format!("pg '{pg}' does not exist")));
    }
    let placed = map.pg_to_up_acting(pg);
    let mut acting: Vec<OsdId> = placed.acting.iter().copied().filter(|osd| osd.is_some()).collect();
    let Some(primary) = placed.acting_primary else {
        return Err(refuse(errno::EAGAIN, format!("pg {pg} has no primary now")));
    };
    match &mut acting[..] {
        [] | [_] => {
            let text = format!(
                "pg {pg} is only on osd.{primary}: `ceph osd down {primary}` restarts the peering of all \
                 its placement groups"
            );
            return Err(refuse(errno::EAGAIN, text));
        }
        // Two can only change places.
        [one, other] => std::mem::swap(one, other),
        // The others do, so that clients find the same primary.
        [_, others @ ..] => others.rotate_left(1),
    }
    call.pending.edit(|inc| drop(inc.new_pg_temp.insert(pg, acting)));
    Answer::said(format!("instructing pg {pg} to repeer"))
}

const LOSES_DATA: &str = "the placement group would be recreated empty: its data is given up for good, and \
                          copies that return later are emptied. Only if all copies are lost, pass \
                          --yes-i-really-mean-it to proceed.";

/// The activation record then names no OSD, so that no primary waits for those it named, or takes what others
/// have. Only a group that does not serve may lose its record: one that serves would lose what it
/// acknowledges.
fn force_create(call: &mut Call<'_>) -> Outcome {
    let pg = call.args.pg("pgid")?;
    if !call.pending.map().pg_exists(pg) {
        return Err(refuse(errno::ENOENT, format!("pg {pg} should not exist")));
    }
    if !call.args.flag("yes_i_really_mean_it") {
        return Err(refuse(errno::EPERM, LOSES_DATA));
    }
    let drafted = call.pending.batch.pgs.iter().rev().find(|(have, _)| *have == pg);
    let record = drafted.map(|(_, record)| record).or_else(|| call.state.pgs.records.get(&pg)).cloned();
    let Some(record) = record.filter(|record| !record.is_void()) else {
        return Answer::said(format!("pg {pg} already creating"));
    };
    let holders: Vec<String> = record
        .acting
        .iter()
        .filter(|osd| may_serve(call, pg, &record, **osd))
        .map(|osd| format!("osd.{osd}"))
        .collect();
    if !holders.is_empty() {
        let text = format!("pg {pg} is not lost: {} may have it", holders.join(", "));
        return Err(refuse(errno::EBUSY, text));
    }
    call.pending.batch.pgs.push((pg, PgRecord { acting: Vec::new(), ..record }));
    let text = format!("pg {pg} was given up and is recreated empty");
    call.mon.context(call.now).log(call.pending, LogLevel::Warn, text);
    Answer::said(format!("pg {pg} now creating, ok"))
}

/// Whether a member that served the placement group last may do so again: it is up, and the primary has not
/// said since that it asked and found nothing. What it said before the group began to serve in that very
/// interval does not count.
fn may_serve(call: &Call<'_>, pg: PgId, record: &PgRecord, osd: OsdId) -> bool {
    let map = call.pending.map();
    let Some(known) = map.osd(osd).filter(|_| map.is_up(osd)) else { return false };
    let asked = call.mon.services.pgs.pgs.get(&pg).is_some_and(|stat| {
        Some(stat.from) == map.pg_to_up_acting(pg).acting_primary
            && stat.report.state & pg_state::DOWN != 0
            && stat.map_epoch >= known.info.up_from.0
            && stat.report.interval > record.interval
    });
    !asked
}
