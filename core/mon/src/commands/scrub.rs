//! Having the copies of objects compared, and wrong ones replaced. The commands only pass it on: what
//! comes of it is in the state of groups and in health.

use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::services::pg::stats::all_pgs;
use nacre_base::{OsdId, PgId, PoolId, errno};
use nacre_command::parse_osd;
use nacre_proto::messages::DaemonMsg;
use std::collections::BTreeMap;

pub const COMMANDS: &[Row] = &[
    ("pg scrub", "scrub a placement group: compare the metadata of its copies", |call| one(call, LIGHT)),
    ("pg deep-scrub", "deep-scrub a placement group: read and compare its copies", |call| one(call, DEEP)),
    ("pg repair", "repair a placement group: deep-scrub it and replace wrong copies", |call| {
        one(call, REPAIR)
    }),
    ("osd scrub", "scrub the placement groups of a primary", |call| osds(call, LIGHT)),
    ("osd deep-scrub", "deep-scrub the placement groups of a primary", |call| osds(call, DEEP)),
    ("osd repair", "repair the placement groups of a primary", |call| osds(call, REPAIR)),
    ("osd pool scrub", "scrub the placement groups of pools", |call| pools(call, LIGHT)),
    ("osd pool deep-scrub", "deep-scrub the placement groups of pools", |call| pools(call, DEEP)),
    ("osd pool repair", "repair the placement groups of pools", |call| pools(call, REPAIR)),
];

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    deep: bool,
    repair: bool,
}
const LIGHT: Kind = Kind { name: "scrub", deep: false, repair: false };
const DEEP: Kind = Kind { name: "deep-scrub", deep: true, repair: false };
const REPAIR: Kind = Kind { name: "repair", deep: true, repair: true };

impl Kind {
    fn of(self, pgs: Vec<PgId>) -> DaemonMsg {
        DaemonMsg::Scrub { pgs, deep: self.deep, repair: self.repair }
    }
}

fn one(call: &mut Call<'_>, kind: Kind) -> Outcome {
    let pg = call.args.pg("pgid")?;
    let map = call.state.osdmap.map.clone();
    if !map.pg_exists(pg) {
        return Err(refuse(errno::ENOENT, format!("pg {pg} does not exist")));
    }
    let Some(osd) = map.pg_to_up_acting(pg).acting_primary else {
        return Err(refuse(errno::EAGAIN, format!("pg {pg} has no primary osd")));
    };
    call.pending.osd_messages.push((osd, kind.of(vec![pg])));
    Answer::said(format!("instructing pg {pg} on osd.{osd} to {}", kind.name))
}

fn osds(call: &mut Call<'_>, kind: Kind) -> Outcome {
    let who = call.args.text("who")?;
    let map = call.state.osdmap.map.clone();
    let osds: Vec<OsdId> = match &*who {
        "*" | "all" | "any" => map.up_osds().collect(),
        one => {
            let Some(osd) = parse_osd(one) else {
                let text = format!("Expected option value to be integer, got '{one}'invalid osd '{one}'");
                return Err(refuse(errno::EINVAL, text));
            };
            if !map.is_up(osd) {
                return Err(refuse(errno::EAGAIN, format!("osd.{osd} is not up")));
            }
            vec![osd]
        }
    };
    let mut led = led_by(call, |_| true);
    for osd in &osds {
        if let Some(pgs) = led.remove(osd) {
            call.pending.osd_messages.push((*osd, kind.of(pgs)));
        }
    }
    let ids: Vec<String> = osds.iter().map(ToString::to_string).collect();
    Answer::said(format!("instructed osd(s) {} to {}", ids.join(","), kind.name))
}

fn pools(call: &mut Call<'_>, kind: Kind) -> Outcome {
    let pools = named_pools(call)?;
    for (osd, pgs) in led_by(call, |pg| pools.contains(&pg.pool)) {
        call.pending.osd_messages.push((osd, kind.of(pgs)));
    }
    Answer::said("")
}

/// Those that a command is about.
pub fn named_pools(call: &Call<'_>) -> Result<Vec<PoolId>, Refusal> {
    let unknown = |name: &str| refuse(errno::ENOENT, format!("unrecognized pool '{name}'"));
    let id = |name: String| call.state.osdmap.map.pool_by_name(&name).ok_or_else(|| unknown(&name));
    call.args.list("who").into_iter().map(id).collect()
}

/// Placement groups by their primary.
pub fn led_by(call: &Call<'_>, wanted: impl Fn(PgId) -> bool) -> BTreeMap<OsdId, Vec<PgId>> {
    let map = &call.state.osdmap.map;
    let mut led: BTreeMap<OsdId, Vec<PgId>> = BTreeMap::new();
    for pg in all_pgs(map).filter(|pg| wanted(*pg)) {
        if let Some(osd) = map.pg_to_up_acting(pg).acting_primary {
            led.entry(osd).or_default().push(pg);
        }
    }
    led
}
