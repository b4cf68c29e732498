//! What an administrator does to metadata servers and their ranks.

use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::services::fsmap::{changes, fail as fail_server};
use nacre_base::errno;
use nacre_proto::maps::{
    CompatSet, FeatureSet, FsMap, MdsGid, MdsInfo, MdsRank, MdsState, NO_FILE_SYSTEM, NO_RANK,
};

/// Words, help and code of each.
pub const COMMANDS: &[Row] = &[
    ("mds fail", "take the rank from a metadata server, or remove a standby", fail),
    ("mds repaired", "give a damaged rank to a server again", repaired),
    ("mds rm", "forget a metadata server that has no rank", rm),
    ("mds rmfailed", "forget a failed rank and what was in it", rmfailed),
    ("mds freeze", "leave a metadata server as it is, whatever becomes of it", freeze),
    ("mds compat rm_compat", "remove a feature that servers of new file systems may lack", rm_compat),
    ("mds compat rm_incompat", "remove a feature that servers of new file systems must have", rm_incompat),
    ("mds ok-to-stop", "check whether other servers take over the ranks of these", ok_to_stop),
];

/// A rank: `0`, of the default file system, or `NAME:0` or `ID:0`.
fn parse_role(map: &FsMap, text: &str) -> Result<(i32, MdsRank), Refusal> {
    let (fscid, rank) = match text.split_once(':') {
        None if map.default_fscid == NO_FILE_SYSTEM => {
            return Err(refuse(errno::ENOENT, "No filesystem selected"));
        }
        None => (map.default_fscid, text),
        Some((fs, rank)) => {
            let by_id = fs.parse().ok().filter(|id| map.filesystems.contains_key(id));
            let found = map.by_name(fs).map(|fs| fs.fscid).or(by_id);
            (found.ok_or_else(|| refuse(errno::ENOENT, "Invalid filesystem"))?, rank)
        }
    };
    let number: MdsRank =
        rank.parse().map_err(|_| refuse(errno::EINVAL, format!("Invalid rank '{rank}'")))?;
    let ranks = map.filesystems.get(&fscid).map(|fs| &fs.map.ranks);
    match ranks.is_some_and(|ranks| ranks.in_.contains(&number) || ranks.stopped.contains(&number)) {
        true => Ok((fscid, number)),
        false => Err(refuse(errno::ENOENT, format!("Rank '{rank}' not found"))),
    }
}

/// A server, by rank, global id or name.
fn server(map: &FsMap, text: &str) -> Option<MdsInfo> {
    let by_rank = parse_role(map, text).ok();
    let holder = by_rank.and_then(|(fscid, rank)| map.filesystems[&fscid].map.holder(rank).cloned());
    let by_gid = || text.parse::<MdsGid>().ok().and_then(|gid| map.info(gid)).cloned();
    let by_name = || map.infos().find(|info| info.name == text).cloned();
    holder.or_else(by_gid).or_else(by_name)
}

fn fail(call: &mut Call<'_>) -> Outcome {
    let text = call.args.text("role_or_gid")?;
    let Some(info) = server(call.pending.fsmap(call.state), &text) else {
        let why = "does not exist, is not up or you lack the permission to see.";
        return Answer::said(format!("MDS named '{text}' {why}"));
    };
    let cx = call.mon.context(call.now);
    fail_server(&cx, info.gid, call.pending);
    Answer::said(format!("failed mds gid {}", info.gid))
}

fn repaired(call: &mut Call<'_>) -> Outcome {
    let map = call.pending.fsmap(call.state);
    let (fscid, rank) = parse_role(map, &call.args.text("role")?)?;
    if !map.filesystems[&fscid].map.ranks.damaged.contains(&rank) {
        return Answer::said("nothing to do: rank is not damaged");
    }
    call.pending.edit_fsmap(call.state, |map| {
        changes::edit(map, fscid, |fs| {
            fs.ranks.damaged.remove(&rank);
            fs.ranks.failed.insert(rank);
        });
    });
    Answer::said(format!("repaired: restoring rank {fscid}:{rank}"))
}

fn rm(call: &mut Call<'_>) -> Outcome {
    let gid = call.args.int("gid")? as MdsGid;
    let Some(info) = call.pending.fsmap(call.state).info(gid).cloned() else {
        return Answer::said(format!("mds gid {gid} does not exist"));
    };
    if info.rank != NO_RANK && info.state != MdsState::STANDBY_REPLAY {
        let text = format!("cannot remove active mds.{} rank {}", info.name, info.rank);
        return Err(refuse(errno::EBUSY, text));
    }
    let cx = call.mon.context(call.now);
    fail_server(&cx, gid, call.pending);
    Answer::said(format!("removed mds gid {gid}"))
}

fn rmfailed(call: &mut Call<'_>) -> Outcome {
    if !call.args.flag("yes_i_really_mean_it") {
        return Err(refuse(
            errno::EPERM,
            "WARNING: this can make your filesystem inaccessible! Add --yes-i-really-mean-it if you are sure you wish \
             to continue.",
        ));
    }
    let text = call.args.text("role")?;
    let map = call.pending.fsmap(call.state);
    let (fscid, rank) =
        parse_role(map, &text).map_err(|_| refuse(errno::EINVAL, format!("invalid role '{text}'")))?;
    if !map.filesystems[&fscid].map.ranks.failed.contains(&rank) {
        return Answer::said(format!("mds.{fscid}:{rank} is not failed"));
    }
    call.pending.edit_fsmap(call.state, |map| {
        changes::edit(map, fscid, |fs| {
            fs.ranks.failed.remove(&rank);
            fs.ranks.in_.remove(&rank);
        });
    });
    Answer::said(format!("removed failed mds.{fscid}:{rank}"))
}

fn freeze(call: &mut Call<'_>) -> Outcome {
    let text = call.args.text("role_or_gid")?;
    let on = super::fs::parse_bool(&call.args.text("val")?)?;
    let found = server(call.pending.fsmap(call.state), &text);
    let absent = || refuse(errno::EINVAL, format!("MDS named '{text}' does not exist, or is not up"));
    let gid = found.ok_or_else(absent)?.gid;
    call.pending.edit_fsmap(call.state, |map| {
        changes::edit_server(map, gid, |info| info.flags = if on { MdsInfo::FROZEN } else { 0 });
    });
    Answer::said(format!("{} mds.{gid}", if on { "freezing" } else { "unfreezing" }))
}

fn rm_compat(call: &mut Call<'_>) -> Outcome {
    rm_feature(call, "compat", |compat| &mut compat.compat)
}

fn rm_incompat(call: &mut Call<'_>) -> Outcome {
    rm_feature(call, "incompat", |compat| &mut compat.incompat)
}

/// Of what new file systems begin with.
fn rm_feature(call: &mut Call<'_>, kind: &str, of: fn(&mut CompatSet) -> &mut FeatureSet) -> Outcome {
    let feature = call.args.int("feature")?;
    let number = u64::try_from(feature).unwrap_or(0);
    let mut compat = call.pending.fsmap(call.state).default_compat.clone();
    if of(&mut compat).names.remove(&number).is_none() {
        return Answer::said(format!("{kind} feature {feature} not present in {compat}"));
    }
    call.pending.edit_fsmap(call.state, |map| map.default_compat = compat);
    Answer::said(format!("removing {kind} feature {feature}"))
}

fn ok_to_stop(call: &mut Call<'_>) -> Outcome {
    let map = call.state.fsmap.map.clone();
    let ids = call.args.list("ids");
    let named = |id: &String| map.infos().find(|info| info.name == id.trim_start_matches("mds."));
    let all: Vec<&MdsInfo> = match ids.iter().any(|id| matches!(&**id, "*" | "all" | "any")) {
        true => map.infos().collect(),
        false => ids.iter().filter_map(named).collect(),
    };
    let (active, standby): (Vec<&MdsInfo>, Vec<&MdsInfo>) =
        all.iter().copied().partition(|info| info.rank != NO_RANK && info.state != MdsState::STANDBY_REPLAY);
    let idle = map.infos().filter(|info| info.rank == NO_RANK || info.state == MdsState::STANDBY_REPLAY);
    let left = idle.count() - standby.len();
    let gids =
        |infos: &[&MdsInfo]| infos.iter().map(|info| info.gid.to_string()).collect::<Vec<_>>().join(",");
    match active.len() > left {
        true => Err(refuse(
            errno::EBUSY,
            format!(
                "insufficent standby MDS daemons to stop active gids {} and/or standby gids {}",
                gids(&active),
                gids(&standby)
            ),
        )),
        false => Answer::said(format!("should be safe to stop [{}]", ids.join(","))),
    }
}
