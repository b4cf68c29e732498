//! What the leader knows of metadata servers: when each was heard last. It gives ranks to standbys, and
//! replaces servers that are silent.

use super::changes;
use super::{Metadata, null_map};
use crate::commands::snaps;
use crate::mon::{Done, Job};
use crate::pending_txn::PendingTxn;
use crate::services::Context;
use nacre_base::{Epoch, Time, Utime};
use nacre_proto::maps::{
    CompatSet, FsMap, MdsGid, MdsInfo, MdsRank, MdsState, NO_FILE_SYSTEM, NO_RANK, mdsmap_flags,
};
use nacre_proto::messages::{LogLevel, MdsBeacon, MdsHealth, MdsLoadTargets, PaxosVersion, RemoveSnaps};
use nacre_proto::types::{AddrKind, AddrVec, EntityAddr, cluster_format};
use std::collections::BTreeMap;
use std::time::Duration;

/// Metadata servers in a cluster.
const SERVERS_MAX: usize = 1000;
/// Bytes of what a server says of itself when it boots; of one that says more nothing is kept.
const METADATA_MAX: usize = 64 << 10;
/// Warnings of one server, and bytes of each with its details.
const WARNINGS_MAX: usize = 32;
const WARNING_MAX: usize = 4 << 10;

/// What the leader knows of metadata servers.
#[derive(Default)]
pub struct MdsMonitor {
    /// When the last beacon of each server arrived.
    heard: BTreeMap<MdsGid, Time>,
    /// When silence was looked for last.
    looked: Option<Time>,
    /// The last server that was refused, which asks again and again.
    refused: Option<MdsGid>,
}

/// Forbids a server to write any more. Gives the epoch of the OSD map that says so.
fn fence(cx: &Context<'_>, addrs: &AddrVec, pending: &mut PendingTxn) -> Epoch {
    let interval = Duration::from_secs_f64(cx.option("mon_mds_blocklist_interval").as_f64().max(0.0));
    let until = cx.now.wall + interval;
    let addrs: Vec<EntityAddr> =
        addrs.0.iter().map(|addr| EntityAddr { kind: AddrKind::Any, ..*addr }).collect();
    pending.edit(|inc| {
        inc.old_blocklist.retain(|old| !addrs.contains(old));
        inc.new_blocklist.extend(addrs.into_iter().map(|addr| (addr, until)));
    });
    pending.map().epoch
}

/// Removes a server. If it has a rank it is fenced first.
pub fn fail(cx: &Context<'_>, gid: MdsGid, pending: &mut PendingTxn) {
    let Some(info) = pending.fsmap(cx.state).info(gid).cloned() else { return };
    let writes = info.rank != NO_RANK && info.state != MdsState::STANDBY_REPLAY;
    let fenced = if writes { fence(cx, &info.addrs, pending) } else { Epoch(0) };
    pending.edit_fsmap(cx.state, |map| changes::erase(map, gid, fenced));
}

/// What a beacon says that the map does not.
enum News {
    /// The monitor knows as much, or more.
    Nothing,
    State(MdsState),
}

impl MdsMonitor {
    /// A metadata server says what it does.
    pub fn beacon(
        &mut self,
        cx: &Context<'_>,
        job: &Job,
        beacon: &MdsBeacon,
        pending: &mut PendingTxn,
    ) -> Done {
        if beacon.fsid != cx.state.fsid() {
            return Done::Refuse(format!("mds.{} is of another cluster", beacon.name));
        }
        let gid = beacon.gid;
        let Some(info) = pending.fsmap(cx.state).info(gid).cloned() else {
            if beacon.state == MdsState::BOOT {
                match self.boot(cx, job, beacon, pending) {
                    Ok(()) => return answer(beacon),
                    Err(why) if self.refused.replace(gid) != Some(gid) => {
                        cx.log(pending, LogLevel::Warn, why);
                    }
                    Err(_) => {}
                }
            }
            // It learns that it is in no map.
            let epoch = cx.state.fsmap.map.epoch;
            return Done::Reply(Box::new(null_map(cx.state, epoch, None).into()));
        };
        if info.compat != beacon.compat {
            // It is another program than when it booted.
            return answer(beacon);
        }
        self.heard.insert(gid, cx.now.mono);
        if beacon.state == MdsState::BOOT || beacon.seq < info.state_seq {
            return answer(beacon);
        }
        if info.is_laggy() {
            pending.edit_fsmap(cx.state, |map| {
                changes::edit_server(map, gid, |info| info.laggy_since = Utime::ZERO);
            });
        }
        self.note_preference(cx, &info, beacon, pending);
        self.note_health(cx, beacon, pending);
        match news(cx, &info, beacon, pending) {
            News::Nothing => {}
            News::State(MdsState::STOPPED) => return self.stopped(cx, &info, pending),
            News::State(MdsState::DAMAGED) => {
                let text =
                    format!("{} reports that the data of rank {} is damaged", info.human_name(), info.rank);
                cx.log(pending, LogLevel::Error, text);
                let fenced = fence(cx, &info.addrs, pending);
                pending.edit_fsmap(cx.state, |map| changes::damaged(map, gid, fenced));
                self.heard.remove(&gid);
            }
            News::State(MdsState::DNE) => {
                fail(cx, gid, pending);
                self.heard.remove(&gid);
            }
            News::State(state) => {
                if state == MdsState::ACTIVE {
                    let text = format!(
                        "{} is now active in filesystem {} as rank {}",
                        info.human_name(),
                        name_of(pending.fsmap(cx.state), gid),
                        info.rank
                    );
                    cx.log(pending, LogLevel::Info, text);
                }
                pending.edit_fsmap(cx.state, |map| {
                    changes::edit_server(map, gid, |info| {
                        (info.state, info.state_seq) = (state, beacon.seq);
                    });
                });
            }
        }
        answer(beacon)
    }

    fn boot(
        &mut self,
        cx: &Context<'_>,
        job: &Job,
        beacon: &MdsBeacon,
        pending: &mut PendingTxn,
    ) -> Result<(), String> {
        if cx.state.upgrades.format < cluster_format::FILE_SYSTEMS {
            let name = &beacon.name;
            return Err(format!(
                "mds.{name} has to wait for `nacre upgrade finish`: older monitors do not know it"
            ));
        }
        // It had a rank, and does not know yet. A rank of its own would be a rank that cannot write.
        if pending.map().is_blocklisted(&job.from.addrs) {
            let (name, addrs) = (&beacon.name, &job.from.addrs);
            return Err(format!("mds.{name} has to be started again: its address {addrs} is blocklisted"));
        }
        let map = pending.fsmap(cx.state);
        if map.roles.len() >= SERVERS_MAX {
            return Err(format!("mds.{} may not join: there are {SERVERS_MAX} servers", beacon.name));
        }
        let namesake = map.infos().find(|info| info.name == beacon.name).cloned();
        if let Some(old) = namesake.filter(|_| cx.option("mds_enforce_unique_name").as_bool()) {
            cx.log(pending, LogLevel::Info, format!("{} restarted", old.human_name()));
            fail(cx, old.gid, pending);
            self.heard.remove(&old.gid);
        }
        let map = pending.fsmap(cx.state);
        let info = MdsInfo {
            gid: beacon.gid,
            name: beacon.name.clone(),
            rank: NO_RANK,
            incarnation: 0,
            state: MdsState::STANDBY,
            state_seq: beacon.seq,
            addrs: job.from.addrs.clone(),
            laggy_since: Utime::ZERO,
            export_targets: Vec::new(),
            features: beacon.features,
            join_fscid: preference(map, &beacon.fs),
            flags: 0,
            compat: beacon.compat.clone(),
        };
        pending.edit_fsmap(cx.state, |map| changes::insert(map, info));
        let addr = job.from.addrs.to_string();
        let said = [("addr".to_string(), addr)].into_iter().chain(beacon.metadata.clone());
        let said: Metadata = said.collect();
        let bytes: usize = said.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes <= METADATA_MAX {
            pending.batch.fsmap.metadata.push((beacon.gid, said));
        }
        self.heard.insert(beacon.gid, cx.now.mono);
        Ok(())
    }

    fn note_preference(
        &self,
        cx: &Context<'_>,
        info: &MdsInfo,
        beacon: &MdsBeacon,
        pending: &mut PendingTxn,
    ) {
        let wanted = preference(pending.fsmap(cx.state), &beacon.fs);
        if wanted != info.join_fscid {
            pending.edit_fsmap(cx.state, |map| {
                changes::edit_server(map, info.gid, |info| info.join_fscid = wanted);
            });
        }
    }

    fn note_health(&self, cx: &Context<'_>, beacon: &MdsBeacon, pending: &mut PendingTxn) {
        let bytes = |said: &MdsHealth| {
            let details = said.metadata.iter().map(|(key, value)| key.len() + value.len());
            said.text.len() + details.sum::<usize>()
        };
        let kept = beacon.health.iter().filter(|said| bytes(said) <= WARNING_MAX).take(WARNINGS_MAX);
        let health: Vec<MdsHealth> = kept.cloned().collect();
        let known = cx.state.fsmap.health.get(&beacon.gid).map_or(&[][..], Vec::as_slice);
        if health != known {
            pending.batch.fsmap.health.push((beacon.gid, health));
        }
    }

    /// A rank has ended.
    fn stopped(&mut self, cx: &Context<'_>, info: &MdsInfo, pending: &mut PendingTxn) -> Done {
        let map = pending.fsmap(cx.state);
        let left = map
            .filesystems
            .get(&map.roles[&info.gid])
            .map_or(0, |fs| fs.map.ranks.in_.len().saturating_sub(1));
        let text = format!(
            "{} finished stopping rank {} in filesystem {} (now has {left} ranks)",
            info.human_name(),
            info.rank,
            name_of(map, info.gid)
        );
        cx.log(pending, LogLevel::Info, text);
        let gone = pending.edit_fsmap(cx.state, |map| changes::stop(map, info.gid));
        self.heard.retain(|gid, _| !gone.contains(gid));
        // It is in no map any more, and learns so from this.
        let epoch = pending.fsmap(cx.state).epoch;
        Done::Reply(Box::new(null_map(cx.state, epoch, None).into()))
    }

    /// The ranks that a server may move directories to.
    pub fn load_targets(&self, cx: &Context<'_>, message: &MdsLoadTargets, pending: &mut PendingTxn) -> Done {
        let targets: Vec<MdsRank> = message.targets.iter().copied().collect();
        let known = pending.fsmap(cx.state).info(message.gid);
        if known.is_some_and(|info| info.rank != NO_RANK && info.export_targets != targets) {
            pending.edit_fsmap(cx.state, |map| {
                changes::edit_server(map, message.gid, |info| info.export_targets = targets);
            });
        }
        Done::Silent
    }

    /// Snapshots that no file system has any more are removed from its pools.
    pub fn remove_snaps(&self, cx: &Context<'_>, message: &RemoveSnaps, pending: &mut PendingTxn) -> Done {
        snaps::remove_of_file_system(message, cx.state, pending);
        Done::Reply(Box::new(RemoveSnaps { version: PaxosVersion(0), ..message.clone() }.into()))
    }

    /// Every second, on the leader.
    pub fn periodic(&mut self, cx: &Context<'_>, pending: &mut PendingTxn) {
        self.replace_silent(cx, pending);
        self.assign(cx, pending);
    }

    fn replace_silent(&mut self, cx: &Context<'_>, pending: &mut PendingTxn) {
        let now = cx.now.mono;
        let seconds = |name: &str| Duration::from_secs_f64(cx.option(name).as_f64().max(0.0));
        let grace = seconds("mds_beacon_grace");
        // A monitor that was slow itself has heard no server.
        let was_slow = self.looked.is_some_and(|looked| now.since(looked) > grace / 2);
        self.looked = Some(now);
        let map = pending.fsmap(cx.state);
        self.heard.retain(|gid, _| map.roles.contains_key(gid));
        for gid in map.roles.keys() {
            let heard = self.heard.entry(*gid).or_insert(now);
            if was_slow {
                *heard = now;
            }
        }
        // If no server is heard, it may be the network of the monitors.
        let latest = self.heard.values().max().copied().unwrap_or(now);
        let hears_others = now.since(latest) < seconds("mds_beacon_interval").max(grace / 2);
        let silent: Vec<(MdsGid, Duration)> = self
            .heard
            .iter()
            .map(|(gid, heard)| (*gid, now.since(*heard)))
            .filter(|(_, silence)| *silence >= grace)
            .collect();
        let down_grace = Duration::from_secs(cx.option("mds_beacon_mon_down_grace").as_u64());
        for (gid, silence) in silent {
            if hears_others || silence >= down_grace {
                self.drop_silent(cx, gid, pending);
            }
            let left = pending.fsmap(cx.state).info(gid);
            if left.is_some_and(|info| !info.is_laggy()) {
                let since = cx.now.wall;
                pending.edit_fsmap(cx.state, |map| {
                    changes::edit_server(map, gid, |info| info.laggy_since = since);
                });
            }
        }
    }

    /// Removes a silent server, unless it has a rank that no other can take over.
    fn drop_silent(&mut self, cx: &Context<'_>, gid: MdsGid, pending: &mut PendingTxn) {
        let map = pending.fsmap(cx.state);
        let Some(info) = map.info(gid).cloned().filter(|info| !info.is_frozen()) else { return };
        let fscid = map.roles[&gid];
        let holds_rank = info.rank != NO_RANK && info.state != MdsState::STANDBY_REPLAY;
        let successor = changes::replacement(map, fscid, info.rank).filter(|_| holds_rank);
        if holds_rank {
            let joinable = map.filesystems.get(&fscid).is_some_and(|fs| fs.map.is_joinable());
            let Some(successor) = successor.filter(|_| joinable) else { return };
            let standby = map.info(successor).map(MdsInfo::human_name).unwrap_or_default();
            let text = format!(
                "{} is not responding, replacing it as rank {} with standby {standby}",
                info.human_name(),
                info.rank
            );
            cx.log(pending, LogLevel::Warn, text);
        }
        fail(cx, gid, pending);
        self.heard.remove(&gid);
        if let Some(successor) = successor {
            pending.edit_fsmap(cx.state, |map| changes::promote(map, successor, fscid, info.rank));
        }
        let text =
            format!("MDS {} is removed because it is dead or otherwise unavailable.", info.human_name());
        cx.log(pending, LogLevel::Info, text);
    }

    /// Gives ranks to standbys, and has ranks stop that are too many.
    pub fn assign(&self, cx: &Context<'_>, pending: &mut PendingTxn) {
        let ids: Vec<i32> = pending.fsmap(cx.state).filesystems.keys().copied().collect();
        for fscid in ids {
            want_standby(cx, fscid, pending);
            resize(cx, fscid, pending);
            replace_failed(cx, fscid, pending);
            assign_followers(cx, fscid, pending);
        }
    }
}

fn preference(map: &FsMap, name: &str) -> i32 {
    map.by_name(name).filter(|_| !name.is_empty()).map_or(NO_FILE_SYSTEM, |fs| fs.fscid)
}

fn name_of(map: &FsMap, gid: MdsGid) -> String {
    let fs = map.roles.get(&gid).and_then(|fscid| map.filesystems.get(fscid));
    fs.map(|fs| fs.map.fs_name.clone()).unwrap_or_default()
}

/// The numbers of the beacon, which its sender compares with those that it sent.
fn answer(beacon: &MdsBeacon) -> Done {
    let answer = MdsBeacon {
        version: PaxosVersion(0),
        compat: CompatSet::default(),
        health: Vec::new(),
        metadata: Metadata::new(),
        fs: String::new(),
        ..beacon.clone()
    };
    Done::Reply(Box::new(answer.into()))
}

/// Whether the beacon asks for another state. Requests from before the sender saw what the monitors decided
/// about it are void.
fn news(cx: &Context<'_>, info: &MdsInfo, beacon: &MdsBeacon, pending: &PendingTxn) -> News {
    let state = beacon.state;
    if state == MdsState::DNE {
        return News::State(state);
    }
    let committed = &cx.state.fsmap.map;
    let (gid, same) = (info.gid, committed.info(info.gid) == Some(info));
    let epoch = match committed.roles.get(&gid) {
        Some(fscid) if *fscid != NO_FILE_SYSTEM => committed.filesystems.get(fscid).map(|fs| fs.map.epoch),
        _ => committed.standby_epochs.get(&gid).copied(),
    };
    let seen = epoch.is_some_and(|epoch| beacon.version.0 == u64::from(epoch.0));
    // A change of this batch that is not about this server leaves its request good.
    let is_laggy_only = committed.info(gid).is_some_and(|known| known.state == info.state);
    let holds_rank = info.rank != NO_RANK && info.state != MdsState::STANDBY_REPLAY;
    let asks = state != info.state && seen && (same || is_laggy_only);
    match asks && holds_rank && may_ask(info.state, state) && pending.fsmap(cx.state).info(gid).is_some() {
        true => News::State(state),
        false => News::Nothing,
    }
}

/// Whether a server with a rank may go from one state to another by itself. It may find damage at any time.
fn may_ask(from: MdsState, next: MdsState) -> bool {
    match from {
        _ if next == MdsState::DAMAGED => true,
        MdsState::CREATING | MdsState::STARTING => next == MdsState::ACTIVE,
        MdsState::STOPPING => next == MdsState::STOPPED,
        state => state.is_recovering() && state.may_become(next),
    }
}

/// Once a file system works with a standby, the lack of one is worth a warning.
fn want_standby(cx: &Context<'_>, fscid: i32, pending: &mut PendingTxn) {
    let map = pending.fsmap(cx.state);
    let fs = &map.filesystems[&fscid].map;
    let standbys = map.standbys.len() + fs.count(MdsState::STANDBY_REPLAY);
    if fs.settings.standby_count_wanted < 0 && fs.count(MdsState::ACTIVE) > 0 && standbys > 0 {
        pending.edit_fsmap(cx.state, |map| {
            changes::edit(map, fscid, |fs| fs.settings.standby_count_wanted = 1);
        });
    }
}

fn promote(cx: &Context<'_>, fscid: i32, (gid, rank): (MdsGid, MdsRank), pending: &mut PendingTxn) {
    pending.edit_fsmap(cx.state, |map| changes::promote(map, gid, fscid, rank));
}

/// One rank more or less, if there are to be more or less.
fn resize(cx: &Context<'_>, fscid: i32, pending: &mut PendingTxn) {
    let map = pending.fsmap(cx.state);
    let fs = &map.filesystems[&fscid].map;
    let committed = cx.state.fsmap.map.filesystems.get(&fscid);
    if !fs.is_resizeable() || committed.is_some_and(|fs| !fs.map.is_resizeable()) {
        return;
    }
    let (now, wanted) = (fs.ranks.in_.len() as i32, fs.settings.max_mds);
    let fs_name = &fs.fs_name;
    if now < wanted && fs.is_joinable() {
        let rank = (0..).find(|rank| !fs.ranks.in_.contains(rank)).unwrap_or(0);
        let Some(gid) = changes::replacement(map, fscid, rank) else { return };
        let name = map.info(gid).map(MdsInfo::human_name).unwrap_or_default();
        let text =
            format!("{name} assigned to filesystem {fs_name} as rank {rank} (now has {} ranks)", now + 1);
        cx.log(pending, LogLevel::Info, text);
        promote(cx, fscid, (gid, rank), pending);
    } else if now > wanted {
        // A rank before the last one may have been forgotten.
        let last = fs.ranks.in_.last().and_then(|rank| fs.holder(*rank));
        let Some(last) = last.filter(|info| info.state == MdsState::ACTIVE) else { return };
        let (gid, text) = (last.gid, format!("stopping {}", last.human_name()));
        cx.log(pending, LogLevel::Info, text);
        pending.edit_fsmap(cx.state, |map| {
            changes::edit_server(map, gid, |info| info.state = MdsState::STOPPING);
        });
    }
}

/// Failed ranks are taken over.
fn replace_failed(cx: &Context<'_>, fscid: i32, pending: &mut PendingTxn) {
    let fs = &pending.fsmap(cx.state).filesystems[&fscid].map;
    if !fs.is_joinable() {
        return;
    }
    for rank in fs.ranks.failed.clone() {
        let map = pending.fsmap(cx.state);
        let Some(gid) = changes::replacement(map, fscid, rank) else { return };
        let name = map.info(gid).map(MdsInfo::human_name).unwrap_or_default();
        let fs_name = &map.filesystems[&fscid].map.fs_name;
        let text = format!("Standby {name} assigned to filesystem {fs_name} as rank {rank}");
        cx.log(pending, LogLevel::Info, text);
        promote(cx, fscid, (gid, rank), pending);
    }
}

/// Standbys that are left follow the journals of ranks, where that is allowed.
fn assign_followers(cx: &Context<'_>, fscid: i32, pending: &mut PendingTxn) {
    loop {
        let map = pending.fsmap(cx.state);
        let fs = &map.filesystems[&fscid].map;
        let allowed = fs.settings.has(mdsmap_flags::ALLOW_STANDBY_REPLAY) && fs.is_joinable();
        if !allowed || !fs.is_resizeable() {
            return;
        }
        let rank = fs.ranks.in_.iter().copied().find(|rank| changes::may_be_followed(fs, *rank));
        let Some((gid, rank)) = changes::available_standby(map, fscid).zip(rank) else { return };
        pending.edit_fsmap(cx.state, |map| changes::follow(map, gid, fscid, rank));
    }
}
