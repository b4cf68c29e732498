//! Flags of the cluster, of CRUSH nodes, of device classes and of single OSDs.

use super::{Answer, Call, Outcome, Row, refuse};
use nacre_base::{OsdId, errno};
use nacre_command::parse_osd;
use nacre_proto::maps::{map_flags, osd_state};

pub const COMMANDS: &[Row] = &[
    ("osd set", "set a flag of the whole cluster", set_flag),
    ("osd unset", "clear a flag of the whole cluster", unset_flag),
    ("osd pause", "pause all client requests", |call| change_flag(call, "pause", true)),
    ("osd unpause", "resume client requests", |call| change_flag(call, "pause", false)),
    ("osd set-group", "set flags of OSDs, CRUSH nodes or device classes", set_group),
    ("osd unset-group", "clear flags of OSDs, CRUSH nodes or device classes", unset_group),
    ("osd add-noup", "keep some OSDs from being marked up", |call| one_flag(call, osd_state::NOUP, true)),
    ("osd add-nodown", "keep some OSDs from being marked down", |call| {
        one_flag(call, osd_state::NODOWN, true)
    }),
    ("osd add-noin", "keep some OSDs from being marked in", |call| one_flag(call, osd_state::NOIN, true)),
    ("osd add-noout", "keep some OSDs from being marked out", |call| one_flag(call, osd_state::NOOUT, true)),
    ("osd rm-noup", "let some OSDs be marked up again", |call| one_flag(call, osd_state::NOUP, false)),
    ("osd rm-nodown", "let some OSDs be marked down again", |call| one_flag(call, osd_state::NODOWN, false)),
    ("osd rm-noin", "let some OSDs be marked in again", |call| one_flag(call, osd_state::NOIN, false)),
    ("osd rm-noout", "let some OSDs be marked out again", |call| one_flag(call, osd_state::NOOUT, false)),
];

/// The flags that operators may set, by the name that commands use.
const FLAGS: [(&str, u32); 13] = [
    ("pause", map_flags::PAUSERD | map_flags::PAUSEWR),
    ("noup", map_flags::NOUP),
    ("nodown", map_flags::NODOWN),
    ("noout", map_flags::NOOUT),
    ("noin", map_flags::NOIN),
    ("nobackfill", map_flags::NOBACKFILL),
    ("norebalance", map_flags::NOREBALANCE),
    ("norecover", map_flags::NORECOVER),
    ("noscrub", map_flags::NOSCRUB),
    ("nodeep-scrub", map_flags::NODEEP_SCRUB),
    ("notieragent", map_flags::NOTIERAGENT),
    ("nosnaptrim", map_flags::NOSNAPTRIM),
    ("pglog_hardlimit", map_flags::PGLOG_HARDLIMIT),
];

fn change_flag(call: &mut Call<'_>, key: &str, on: bool) -> Outcome {
    let flag = FLAGS.iter().find(|(name, _)| *name == key);
    let Some((_, bits)) = flag else {
        return Err(refuse(errno::EINVAL, format!("unrecognized flag '{key}'")));
    };
    if (call.pending.map().flags & bits == *bits) != on || (!on && call.pending.map().flags & bits != 0) {
        call.pending.set_flag(*bits, on);
    }
    let names: Vec<&str> = map_flags::names(*bits).collect();
    Answer::said(format!("{} is {}", names.join(","), if on { "set" } else { "unset" }))
}
fn set_flag(call: &mut Call<'_>) -> Outcome {
    let key = call.args.text("key")?;
    change_flag(call, &key, true)
}
fn unset_flag(call: &mut Call<'_>) -> Outcome {
    let key = call.args.text("key")?;
    change_flag(call, &key, false)
}

/// What a flag applies to.
enum Group {
    Osd(OsdId),
    Node(i32),
    Class(i32),
}

fn groups(call: &Call<'_>, who: &str) -> Option<Vec<Group>> {
    let map = call.pending.map();
    if matches!(who, "all" | "any" | "*") {
        return Some(map.osd_ids().map(Group::Osd).collect());
    }
    if let Some(osd) = parse_osd(who).or_else(|| map.crush.item_by_name(who).filter(|id| *id >= 0).map(OsdId))
    {
        return map.exists(osd).then(|| vec![Group::Osd(osd)]);
    }
    let node = map.crush.item_by_name(who).map(Group::Node);
    node.or_else(|| map.crush.class_by_name(who).map(Group::Class)).map(|group| vec![group])
}

fn change(call: &mut Call<'_>, group: &Group, bits: u32, on: bool) {
    let next = |have: u32| if on { have | bits } else { have & !bits };
    let map = call.pending.map().clone();
    match *group {
        Group::Osd(osd) => {
            let have = map.osds[osd.index()].state;
            if next(have) != have {
                call.pending.flip(osd, next(have) ^ have);
            }
        }
        Group::Node(id) => {
            let have = map.crush_node_flags.get(&id).copied().unwrap_or(0);
            if next(have) != have {
                call.pending.edit(|inc| inc.new_crush_node_flags.insert(id, next(have)));
            }
        }
        Group::Class(id) => {
            let have = map.device_class_flags.get(&id).copied().unwrap_or(0);
            if next(have) != have {
                call.pending.edit(|inc| inc.new_device_class_flags.insert(id, next(have)));
            }
        }
    }
}

fn change_group(call: &mut Call<'_>, on: bool) -> Outcome {
    let mut bits = 0;
    for name in call.args.text("flags")?.split(',') {
        bits |= match name {
            "noup" => osd_state::NOUP,
            "nodown" => osd_state::NODOWN,
            "noin" => osd_state::NOIN,
            "noout" => osd_state::NOOUT,
            _ => {
                return Err(refuse(
                    errno::EINVAL,
                    format!("unrecognized flag '{name}', must be one of {{noup,nodown,noin,noout}}"),
                ));
            }
        };
    }
    let mut said = String::new();
    for who in call.args.list("who") {
        if let Some(osd) = parse_osd(&who).filter(|osd| !call.pending.map().exists(*osd)) {
            said += &format!("osd.{osd} does not exist. ");
            continue;
        }
        let Some(groups) = groups(call, &who) else {
            return Err(refuse(errno::EINVAL, format!("invalid osd id, crush node or device class '{who}'")));
        };
        groups.iter().for_each(|group| change(call, group, bits, on));
    }
    Answer::said(said)
}
fn set_group(call: &mut Call<'_>) -> Outcome {
    change_group(call, true)
}
fn unset_group(call: &mut Call<'_>) -> Outcome {
    change_group(call, false)
}

/// The older commands, of one flag each. Words that mean nothing are an error only if no other word is left.
fn one_flag(call: &mut Call<'_>, bit: u32, on: bool) -> Outcome {
    let (mut unknown, mut absent, mut known) = (String::new(), String::new(), false);
    for id in call.args.list("ids") {
        if let Some(osd) = parse_osd(&id).filter(|osd| !call.pending.map().exists(*osd)) {
            absent += &format!("osd.{osd} does not exist. ");
            known = true;
            continue;
        }
        let Some(groups) = groups(call, &id) else {
            unknown += &format!("unable to parse osd id or crush node or device class: \"{id}\". ");
            continue;
        };
        known = true;
        groups.iter().for_each(|group| change(call, group, bit, on));
    }
    match known || unknown.is_empty() {
        true => Answer::said(unknown + &absent),
        false => Err(refuse(errno::EINVAL, unknown)),
    }
}
