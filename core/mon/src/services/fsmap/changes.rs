//! The steps that change a map of file systems: servers come, get ranks, fail and stop.
//!
//! The caller has set the epoch of the changed map; each step notes it in what it changes.

use nacre_base::{Epoch, PoolId, Utime};
use nacre_proto::maps::{
    Filesystem, FsMap, MdsGid, MdsInfo, MdsMap, MdsRank, MdsState, NO_FILE_SYSTEM, NO_RANK, Ranks,
    mdsmap_flags,
};

/// Changes one file system.
pub fn edit(map: &mut FsMap, fscid: i32, change: impl FnOnce(&mut MdsMap)) {
    let epoch = map.epoch;
    if let Some(fs) = map.filesystems.get_mut(&fscid) {
        change(&mut fs.map);
        fs.map.epoch = epoch;
    }
}

/// Changes what is known of one server.
pub fn edit_server(map: &mut FsMap, gid: MdsGid, change: impl FnOnce(&mut MdsInfo)) {
    let epoch = map.epoch;
    match map.roles.get(&gid).copied() {
        None => {}
        Some(NO_FILE_SYSTEM) => {
            if let Some(info) = map.standbys.get_mut(&gid) {
                change(info);
                map.standby_epochs.insert(gid, epoch);
            }
        }
        Some(fscid) => edit(map, fscid, |fs| {
            if let Some(info) = fs.infos.get_mut(&gid) {
                change(info);
            }
        }),
    }
}

/// A server comes, and stands by.
pub fn insert(map: &mut FsMap, info: MdsInfo) {
    map.roles.insert(info.gid, NO_FILE_SYSTEM);
    map.standby_epochs.insert(info.gid, map.epoch);
    map.standbys.insert(info.gid, info);
}

/// A server that stands by gets a rank: to create it, to start it again, or to replay its journal.
pub fn promote(map: &mut FsMap, gid: MdsGid, fscid: i32, rank: MdsRank) {
    let Some(mut info) = map.info(gid).cloned() else { return };
    let epoch = map.epoch;
    map.standbys.remove(&gid);
    map.standby_epochs.remove(&gid);
    map.roles.insert(gid, fscid);
    edit(map, fscid, |fs| {
        let ranks = &mut fs.ranks;
        info.state = if ranks.stopped.remove(&rank) {
            MdsState::STARTING
        } else if !ranks.in_.contains(&rank) {
            MdsState::CREATING
        } else {
            MdsState::REPLAY
        };
        ranks.failed.remove(&rank);
        ranks.in_.insert(rank);
        ranks.up.insert(rank, gid);
        fs.compat.merge(&info.compat);
        info.rank = rank;
        info.incarnation = epoch.0 as i32;
        fs.infos.insert(gid, info);
    });
}

/// A server that stands by follows the journal of a rank.
pub fn follow(map: &mut FsMap, gid: MdsGid, fscid: i32, rank: MdsRank) {
    let Some(mut info) = map.standbys.remove(&gid) else { return };
    map.standby_epochs.remove(&gid);
    map.roles.insert(gid, fscid);
    edit(map, fscid, |fs| {
        info.rank = rank;
        info.state = MdsState::STANDBY_REPLAY;
        fs.infos.insert(gid, info);
    });
}

/// A server is gone. Its rank fails, unless it never had data. `fenced`: the epoch of the OSD map from which
/// on it can write no more.
pub fn erase(map: &mut FsMap, gid: MdsGid, fenced: Epoch) {
    match map.roles.remove(&gid) {
        None => {}
        Some(NO_FILE_SYSTEM) => {
            map.standbys.remove(&gid);
            map.standby_epochs.remove(&gid);
        }
        Some(fscid) => edit(map, fscid, |fs| {
            let Some(info) = fs.infos.remove(&gid) else { return };
            if info.state == MdsState::STANDBY_REPLAY {
                return;
            }
            let ranks = &mut fs.ranks;
            ranks.up.remove(&info.rank);
            match info.state {
                MdsState::CREATING => drop(ranks.in_.remove(&info.rank)),
                MdsState::STARTING => {
                    ranks.in_.remove(&info.rank);
                    ranks.stopped.insert(info.rank);
                }
                _ => drop(ranks.failed.insert(info.rank)),
            }
            fs.last_failure_osd_epoch = fenced;
        }),
    }
}

/// A server found its rank's data damaged: no other is to try.
pub fn damaged(map: &mut FsMap, gid: MdsGid, fenced: Epoch) {
    let role = map.roles.get(&gid).copied().zip(map.info(gid).map(|info| info.rank));
    erase(map, gid, fenced);
    if let Some((fscid, rank)) = role.filter(|(_, rank)| *rank != NO_RANK) {
        edit(map, fscid, |fs| {
            fs.ranks.in_.insert(rank);
            fs.ranks.failed.remove(&rank);
            fs.ranks.damaged.insert(rank);
        });
    }
}

/// A rank has handed everything to others, and ends. Gives the servers that are gone with it.
pub fn stop(map: &mut FsMap, gid: MdsGid) -> Vec<MdsGid> {
    let Some(fscid) = map.roles.remove(&gid) else { return Vec::new() };
    let mut gone = vec![gid];
    edit(map, fscid, |fs| {
        let Some(info) = fs.infos.remove(&gid) else { return };
        fs.ranks.up.remove(&info.rank);
        fs.ranks.in_.remove(&info.rank);
        fs.ranks.stopped.insert(info.rank);
        let followers = fs.infos.values().filter(|other| other.rank == info.rank).map(|other| other.gid);
        gone.extend(followers);
        fs.infos.retain(|_, other| other.rank != info.rank);
    });
    map.roles.retain(|gid, _| !gone.contains(gid));
    gone
}

/// The server that is to take over a rank: one that follows its journal, else the standby that suits best.
pub fn replacement(map: &FsMap, fscid: i32, rank: MdsRank) -> Option<MdsGid> {
    let fs = &map.filesystems.get(&fscid)?.map;
    match fs.follower(rank) {
        Some(follower) if follower.is_frozen() => None,
        Some(follower) if !follower.is_laggy() => Some(follower.gid),
        _ => available_standby(map, fscid),
    }
}

/// A standby that knows the file system's features: one that prefers this file system, else one without a
/// preference, else any.
pub fn available_standby(map: &FsMap, fscid: i32) -> Option<MdsGid> {
    let fs = &map.filesystems.get(&fscid)?.map;
    let fits = |info: &&MdsInfo| {
        !info.is_laggy()
            && !info.is_frozen()
            && info.compat.may_write(&fs.compat)
            && (fs.is_upgradeable() || fs.compat.may_write(&info.compat))
    };
    let preference = |info: &&MdsInfo| match info.join_fscid {
        wanted if wanted == fscid => 0,
        NO_FILE_SYSTEM => 1,
        _ => 2,
    };
    map.standbys.values().filter(fits).min_by_key(preference).map(|info| info.gid)
}

/// Whether a standby may follow the rank's journal.
pub fn may_be_followed(fs: &MdsMap, rank: MdsRank) -> bool {
    fs.holder(rank).is_some_and(|holder| !holder.state.is_recovering()) && fs.follower(rank).is_none()
}

/// What `fs new` asks for.
#[derive(Clone, Debug)]
pub struct NewFileSystem {
    pub name: String,
    pub metadata: PoolId,
    pub data: PoolId,
    /// None: the next one.
    pub fscid: Option<i32>,
    /// The pools have a file system's data already.
    pub recover: bool,
}

/// Adds a file system. Gives its id.
pub fn create(map: &mut FsMap, new: &NewFileSystem, now: Utime) -> i32 {
    let mut fs = MdsMap {
        epoch: map.epoch,
        fs_name: new.name.clone(),
        enabled: true,
        data_pools: vec![new.data],
        metadata_pool: Some(new.metadata),
        compat: map.default_compat.clone(),
        created: now,
        modified: now,
        ..MdsMap::default()
    };
    if new.recover {
        fs.ranks.in_.insert(0);
        fs.ranks.failed.insert(0);
        fs.settings.set(mdsmap_flags::NOT_JOINABLE, true);
    }
    let fscid = new.fscid.unwrap_or(map.next_fscid as i32);
    map.next_fscid = map.next_fscid.max(fscid as u64 + 1);
    map.filesystems.insert(fscid, Filesystem { fscid, map: fs });
    if map.filesystems.len() == 1 {
        map.default_fscid = fscid;
    }
    fscid
}

/// Forgets all ranks but the first, which is to be replayed.
pub fn reset(map: &mut FsMap, fscid: i32) {
    let compat = map.default_compat.clone();
    edit(map, fscid, |fs| {
        let before = std::mem::take(fs);
        *fs = MdsMap {
            fs_name: before.fs_name,
            enabled: true,
            data_pools: before.data_pools,
            metadata_pool: before.metadata_pool,
            compat,
            created: before.created,
            settings: before.settings,
            // What a server sent before it failed may still be on its way.
            last_failure_osd_epoch: before.last_failure_osd_epoch,
            ranks: Ranks { in_: [0].into(), failed: [0].into(), ..Ranks::default() },
            ..MdsMap::default()
        };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_proto::maps::CompatSet;
    use nacre_proto::types::AddrVec;

    fn server(gid: MdsGid) -> MdsInfo {
        let mut compat = CompatSet::of_new_file_system();
        compat.incompat.names.insert(7, "mds uses inline data".into());
        MdsInfo {
            gid,
            name: format!("m{gid}"),
            rank: NO_RANK,
            incarnation: 0,
            state: MdsState::STANDBY,
            state_seq: 1,
            addrs: AddrVec::default(),
            laggy_since: Utime::ZERO,
            export_targets: Vec::new(),
            features: 0,
            join_fscid: NO_FILE_SYSTEM,
            flags: 0,
            compat,
        }
    }

    fn with_file_system(servers: &[MdsGid]) -> FsMap {
        let mut map = FsMap { epoch: Epoch(5), ..FsMap::default() };
        let new = NewFileSystem {
            name: "fs".into(),
            metadata: PoolId(1),
            data: PoolId(2),
            fscid: None,
            recover: false,
        };
        assert_eq!(create(&mut map, &new, Utime::ZERO), 1);
        servers.iter().for_each(|gid| insert(&mut map, server(*gid)));
        map
    }
    fn fs(map: &FsMap) -> &MdsMap {
        &map.filesystems[&1].map
    }

    #[test]
    fn a_rank_is_created_once_and_replayed_after_a_failure() {
        let mut map = with_file_system(&[10, 11, 12]);
        promote(&mut map, 10, 1, 0);
        assert_eq!(fs(&map).holder(0).unwrap().state, MdsState::CREATING);
        assert_eq!(fs(&map).compat.incompat.names.len(), 10, "its server's features are the file system's");
        erase(&mut map, 10, Epoch(0));
        assert!(fs(&map).ranks.in_.is_empty(), "it was not created");
        promote(&mut map, 11, 1, 0);
        edit_server(&mut map, 11, |info| info.state = MdsState::ACTIVE);
        erase(&mut map, 11, Epoch(33));
        assert_eq!(fs(&map).ranks.failed, [0].into());
        assert_eq!(fs(&map).last_failure_osd_epoch, Epoch(33));
        promote(&mut map, 12, 1, 0);
        assert_eq!(fs(&map).holder(0).unwrap().state, MdsState::REPLAY);
        assert!(fs(&map).ranks.failed.is_empty() && map.standbys.is_empty());
    }

    #[test]
    fn a_stopped_rank_takes_its_follower_along_and_starts_again() {
        let mut map = with_file_system(&[10, 11, 12]);
        promote(&mut map, 10, 1, 0);
        edit_server(&mut map, 10, |info| info.state = MdsState::ACTIVE);
        follow(&mut map, 11, 1, 0);
        assert_eq!(replacement(&map, 1, 0), Some(11), "the follower comes first");
        assert_eq!(stop(&mut map, 10), [10, 11]);
        assert_eq!((fs(&map).ranks.stopped.len(), map.roles.len()), (1, 1));
        promote(&mut map, 12, 1, 0);
        assert_eq!(fs(&map).holder(0).unwrap().state, MdsState::STARTING);
    }

    #[test]
    fn a_standby_takes_over_what_it_understands_and_prefers() {
        let mut map = with_file_system(&[10, 11, 12, 13]);
        edit_server(&mut map, 10, |info| info.join_fscid = 2);
        edit_server(&mut map, 12, |info| info.join_fscid = 1);
        edit_server(&mut map, 13, |info| info.compat.incompat.names.clear());
        assert_eq!(available_standby(&map, 1), Some(12));
        edit_server(&mut map, 12, |info| info.laggy_since = Utime { sec: 1, nsec: 0 });
        assert_eq!(available_standby(&map, 1), Some(11));
        erase(&mut map, 11, Epoch(0));
        assert_eq!(available_standby(&map, 1), Some(10), "the last resort");
        erase(&mut map, 10, Epoch(0));
        assert_eq!(available_standby(&map, 1), None, "the other one lacks features");
    }

    #[test]
    fn a_damaged_rank_is_not_given_away() {
        let mut map = with_file_system(&[10]);
        promote(&mut map, 10, 1, 0);
        damaged(&mut map, 10, Epoch(3));
        assert_eq!((fs(&map).ranks.damaged.len(), fs(&map).ranks.failed.len()), (1, 0));
        assert!(fs(&map).is_degraded());
    }
}
