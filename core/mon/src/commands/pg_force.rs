//! Groups that operators want recovered or moved before others. The commands only pass it on to the
//! primaries, which forget it when they lead the group no more, or when it is clean; whether they know of it
//! is in the group's state.

use super::scrub::{led_by, named_pools};
use super::{Answer, Call, Outcome, Row, refuse};
use crate::services::pg::stats::all_pgs;
use nacre_base::{PgId, errno};
use nacre_proto::messages::{DaemonMsg, pg_state};
use std::collections::BTreeSet;

pub const COMMANDS: &[Row] = &[
    ("pg force-recovery", "recover placement groups before others", |call| groups(call, RECOVERY, true)),
    ("pg force-backfill", "backfill placement groups before others", |call| groups(call, BACKFILL, true)),
    ("pg cancel-force-recovery", "cancel the forced recovery of placement groups", |call| {
        groups(call, RECOVERY, false)
    }),
    ("pg cancel-force-backfill", "cancel the forced backfill of placement groups", |call| {
        groups(call, BACKFILL, false)
    }),
    ("osd pool force-recovery", "recover the placement groups of pools before others", |call| {
        pools(call, RECOVERY, true)
    }),
    ("osd pool force-backfill", "backfill the placement groups of pools before others", |call| {
        pools(call, BACKFILL, true)
    }),
    ("osd pool cancel-force-recovery", "cancel the forced recovery of pools", |call| {
        pools(call, RECOVERY, false)
    }),
    ("osd pool cancel-force-backfill", "cancel the forced backfill of pools", |call| {
        pools(call, BACKFILL, false)
    }),
];

struct Kind {
    backfill: bool,
    name: &'static str,
    /// What is done, in words of Ceph's answers.
    noun: &'static str,
    verb: &'static str,
    /// States in which there is something to do.
    work: u64,
    forced: u64,
}
const RECOVERY: &Kind = &Kind {
    backfill: false,
    name: "force-recovery",
    noun: "recovery",
    verb: "recovery",
    work: pg_state::DEGRADED | pg_state::RECOVERY_WAIT | pg_state::RECOVERING,
    forced: pg_state::FORCED_RECOVERY,
};
const BACKFILL: &Kind = &Kind {
    backfill: true,
    name: "force-backfill",
    noun: "backfill",
    verb: "backfilling",
    work: pg_state::DEGRADED | pg_state::BACKFILL_WAIT | pg_state::BACKFILLING,
    forced: pg_state::FORCED_BACKFILL,
};

fn groups(call: &mut Call<'_>, kind: &Kind, on: bool) -> Outcome {
    let mut pgs = Vec::new();
    for text in call.args.list("pgid") {
        let pg = text.parse::<PgId>();
        pgs.push(pg.map_err(|()| refuse(errno::EINVAL, format!("invalid pgid '{text}'")))?);
    }
    tell(call, pgs, kind, on)
}

fn pools(call: &mut Call<'_>, kind: &Kind, on: bool) -> Outcome {
    let pools = named_pools(call)?;
    let pgs = all_pgs(&call.state.osdmap.map).filter(|pg| pools.contains(&pg.pool)).collect();
    tell(call, pgs, kind, on)
}

/// As on Ceph, what is wrong with some is an error only if there is no other.
fn tell(call: &mut Call<'_>, pgs: Vec<PgId>, kind: &Kind, on: bool) -> Outcome {
    let map = &call.state.osdmap.map;
    let (mut said, mut code) = (String::new(), None);
    let mut fit = BTreeSet::new();
    for pg in pgs {
        let state = call.mon.services.pgs.pg_state(map, pg);
        let noun = kind.noun;
        let wrong = match on {
            _ if !map.pg_exists(pg) => {
                code = Some(errno::ENOENT);
                "does not exist".to_string()
            }
            true if state & kind.forced != 0 => {
                code = Some(errno::EINVAL);
                format!("{noun} already forced")
            }
            true if state & kind.work == 0 => format!("doesn't require {}", kind.verb),
            false if state & kind.forced == 0 => format!("{noun} not forced"),
            _ => {
                fit.insert(pg);
                continue;
            }
        };
        said += &format!("pg {pg} {wrong}; ");
    }
    for (osd, pgs) in led_by(call, |pg| fit.contains(&pg)) {
        let list: Vec<String> = pgs.iter().map(ToString::to_string).collect();
        let what = if on { kind.name.to_string() } else { format!("cancel-{}", kind.name) };
        said += &format!("instructing pg(s) [{}] on osd.{osd} to {what}; ", list.join(","));
        call.pending.osd_messages.push((osd, DaemonMsg::Force { pgs, backfill: kind.backfill, on }));
    }
    match code {
        Some(code) if fit.is_empty() => Err(refuse(code, said)),
        _ => Answer::said(said),
    }
}
