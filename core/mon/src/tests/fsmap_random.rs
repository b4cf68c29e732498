//! Metadata servers, monitors and an administrator, who do anything at any time, from a seed. What must hold
//! of every map of file systems on the way is in `check`.

use super::monitors::Group;
use super::*;
use nacre_base::Rng;
use nacre_proto::maps::{CompatSet, FsMap, MdsGid, MdsInfo, MdsMap, MdsRank, MdsState, NO_RANK};
use std::collections::BTreeSet;

/// Of simulated time.
const TICK_MILLIS: u64 = 250;
const NAMES: [&str; 6] = ["m0", "m1", "m2", "m3", "m4", "m5"];
const FILE_SYSTEMS: [&str; 2] = ["a", "b"];

/// A metadata server's process, which does what maps say, as Ceph's does.
struct Server {
    name: &'static str,
    gid: MdsGid,
    /// Its monitor, and its session there.
    session: Option<(usize, ConnId)>,
    seq: u64,
    /// What it does, or wants to do next.
    state: MdsState,
    /// What the newest map says that it does.
    told: MdsState,
    /// Of the newest map that it has.
    epoch: Epoch,
    /// A map had it.
    is_known: bool,
    /// Ticks for which it is stopped, or not started again.
    hangs: u64,
}

struct World {
    group: Group,
    rng: Rng,
    servers: Vec<Server>,
    next_gid: MdsGid,
    /// The newest maps that were checked.
    seen: FsMap,
    osd_epoch: Epoch,
    /// Servers that were in a map, with their addresses.
    met: BTreeMap<MdsGid, AddrVec>,
}

fn own_addr(gid: MdsGid) -> AddrVec {
    addr(6800, gid as u32)
}

fn features() -> CompatSet {
    let mut compat = CompatSet::of_new_file_system();
    compat.incompat.names.insert(7, "mds uses inline data".into());
    compat
}

/// The states that a server may be found in later, if it was in this one.
fn reachable(from: MdsState) -> BTreeSet<MdsState> {
    use MdsState as S;
    let mut found = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(state) = open.pop() {
        let next: &[MdsState] = match state {
            S::STANDBY => &[S::CREATING, S::STARTING, S::REPLAY, S::STANDBY_REPLAY],
            S::STANDBY_REPLAY => &[S::REPLAY],
            S::CREATING | S::STARTING | S::CLIENTREPLAY => &[S::ACTIVE],
            S::REPLAY => &[S::RESOLVE, S::RECONNECT],
            S::RESOLVE => &[S::RECONNECT],
            S::RECONNECT => &[S::REJOIN],
            S::REJOIN => &[S::CLIENTREPLAY, S::ACTIVE],
            S::ACTIVE => &[S::STOPPING],
            _ => &[],
        };
        open.extend(next.iter().filter(|next| found.insert(**next)));
    }
    found
}

impl World {
    fn new(seed: u64, mons: usize) -> World {
        let mut group = Group::of(mons);
        group.pass(10_000);
        let leader = group.leader();
        for osd in 0..3 {
            group.mons[leader].boot(osd, 6900 + osd as u16, 1);
        }
        let mut world = World {
            group,
            rng: Rng::new(seed),
            servers: Vec::new(),
            next_gid: 5000,
            seen: FsMap::default(),
            osd_epoch: Epoch(0),
            met: BTreeMap::new(),
        };
        world.group.pass(1000);
        for fs in FILE_SYSTEMS {
            for pool in ["meta", "data"] {
                let name = format!("{fs}-{pool}");
                world.order(json!({ "prefix": "osd pool create", "pool": name, "pg_num": 1 }));
            }
            let (metadata, data) = (format!("{fs}-meta"), format!("{fs}-data"));
            let new = json!({ "prefix": "fs new", "fs_name": fs, "metadata": metadata, "data": data });
            world.order(new);
        }
        for name in NAMES {
            let gid = world.new_gid();
            world.servers.push(Server {
                name,
                gid,
                session: None,
                seq: 0,
                state: MdsState::BOOT,
                told: MdsState::BOOT,
                epoch: Epoch(0),
                is_known: false,
                hangs: 0,
            });
        }
        assert_eq!(world.newest().1.filesystems.len(), 2);
        world
    }

    fn new_gid(&mut self) -> MdsGid {
        self.next_gid += 1;
        self.next_gid
    }

    /// An administrator's command, with whatever answer.
    fn order(&mut self, command: Value) {
        if let Some(leader) = self.group.find_leader() {
            self.group.mons[leader].run_later(command);
        }
        self.pass(200);
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 50 {
            self.group.pass(50);
            self.check();
        }
    }

    /// The monitor that has applied most, dead or not, and its maps.
    fn newest(&self) -> (OsdMap, FsMap) {
        let states = self.group.mons.iter().filter_map(|t| t.mon.state.as_ref());
        let state = states.max_by_key(|state| (state.fsmap.map.epoch, state.osdmap.map.epoch)).unwrap();
        (state.osdmap.map.as_ref().clone(), state.fsmap.map.as_ref().clone())
    }

    // ---- what must hold ----

    fn check(&mut self) {
        let (osdmap, map) = self.newest();
        if map.epoch == self.seen.epoch {
            return;
        }
        let bytes = to_vec(&map);
        assert_eq!(from_slice::<FsMap>(&bytes).as_ref(), Ok(&map), "it reads back");
        for t in &self.group.mons {
            let other = t.mon.state.as_ref().map(|state| state.fsmap.map.clone());
            assert!(other.is_none_or(|other| other.epoch != map.epoch || *other == map), "one map an epoch");
        }
        for info in map.infos() {
            assert_eq!(map.info(info.gid), Some(info), "every server is in one place");
            let before = self.seen.info(info.gid).map_or(MdsState::STANDBY, |info| info.state);
            assert!(
                reachable(before).contains(&info.state),
                "mds.{} went from {before} to {}",
                info.name,
                info.state
            );
            self.met.insert(info.gid, info.addrs.clone());
        }
        assert_eq!(map.roles.len(), map.infos().count());
        for (fscid, fs) in &map.filesystems {
            check_ranks(&fs.map, &osdmap);
            if let Some(before) = self.seen.filesystems.get(fscid) {
                self.check_fences(&before.map, &fs.map, &osdmap);
            }
        }
        self.seen = map;
        self.osd_epoch = osdmap.epoch;
    }

    /// A rank's holder is blocklisted before there can be another, who knows from which map on.
    fn check_fences(&self, before: &MdsMap, after: &MdsMap, osdmap: &OsdMap) {
        for (rank, gid) in &before.ranks.up {
            if after.ranks.up.get(rank) == Some(gid) {
                continue;
            }
            let successor = after.holder(*rank).map(|info| info.state);
            let ended = after.ranks.stopped.contains(rank) || successor == Some(MdsState::STARTING);
            let was = before.infos[gid].state;
            // One that finds in `REJOIN` that it has no part of the tree ends, too.
            if ended && [MdsState::STOPPING, MdsState::REJOIN].contains(&was) {
                continue;
            }
            assert!(osdmap.is_blocklisted(&self.met[gid]), "{gid}, {was} as rank {rank}, is not fenced");
            let fenced = after.last_failure_osd_epoch;
            assert!(
                self.osd_epoch < fenced && fenced <= osdmap.epoch,
                "fenced in {fenced}, not between {} and {}",
                self.osd_epoch,
                osdmap.epoch
            );
        }
    }

    // ---- what servers do ----

    fn serve(&mut self, n: usize) {
        if self.servers[n].hangs > 0 {
            self.servers[n].hangs -= 1;
            return;
        }
        let Some((mon, conn)) = self.session(n) else { return };
        if self.rng.chance(800) {
            for message in self.group.mons[mon].received(conn) {
                let Message::MdsMap(message) = message else { continue };
                let map: MdsMap = from_slice(&message.map).unwrap();
                self.take(n, &map);
                if self.servers[n].session.is_none() {
                    // It has started again, and takes nothing of its older self's session.
                    return;
                }
            }
        }
        let server = &mut self.servers[n];
        if self.rng.chance(400) && server.state == server.told {
            server.state = match server.state {
                MdsState::CREATING | MdsState::STARTING | MdsState::CLIENTREPLAY => MdsState::ACTIVE,
                MdsState::REPLAY if self.rng.chance(300) => MdsState::RESOLVE,
                MdsState::REPLAY | MdsState::RESOLVE => MdsState::RECONNECT,
                MdsState::RECONNECT => MdsState::REJOIN,
                MdsState::REJOIN if self.rng.chance(500) => MdsState::CLIENTREPLAY,
                MdsState::REJOIN => MdsState::ACTIVE,
                MdsState::STOPPING => MdsState::STOPPED,
                state => state,
            };
        }
        if self.rng.chance(400) {
            let beacon = self.beacon(n);
            self.group.mons[mon].send(conn, beacon);
        }
    }

    /// Its session, if there is a monitor that it can have one with.
    fn session(&mut self, n: usize) -> Option<(usize, ConnId)> {
        if let Some((mon, conn)) = self.servers[n].session {
            let lost = !self.group.is_alive(mon) || self.group.mons[mon].hung_up.contains(&conn);
            if !lost {
                return Some((mon, conn));
            }
        }
        let alive: Vec<usize> = (0..self.group.mons.len()).filter(|n| self.group.is_alive(*n)).collect();
        let mon = *self.rng.pick(&alive)?;
        let t = &mut self.group.mons[mon];
        let conn = t.open(EntityType::Mds, -1, own_addr(self.servers[n].gid));
        let start = u64::from(self.servers[n].epoch.0) + 1;
        t.send(conn, subscribe("mdsmap", start, 0));
        self.servers[n].session = Some((mon, conn));
        Some((mon, conn))
    }

    fn take(&mut self, n: usize, map: &MdsMap) {
        let server = &mut self.servers[n];
        if map.epoch < server.epoch {
            return;
        }
        server.epoch = map.epoch;
        match map.infos.get(&server.gid) {
            Some(info) => {
                (server.state, server.told, server.is_known) = (info.state, info.state, true);
            }
            None if server.is_known => self.start_again(n, 0),
            None => {}
        }
    }

    fn start_again(&mut self, n: usize, after: u64) {
        let gid = self.new_gid();
        let name = self.servers[n].name;
        let (state, epoch) = (MdsState::BOOT, Epoch(0));
        self.servers[n] = Server {
            name,
            gid,
            session: None,
            seq: 0,
            state,
            told: state,
            epoch,
            is_known: false,
            hangs: after,
        };
    }

    fn beacon(&mut self, n: usize) -> MdsBeacon {
        let server = &mut self.servers[n];
        server.seq += 1;
        MdsBeacon {
            version: PaxosVersion(server.epoch.0.into()),
            fsid: [9; 16],
            gid: server.gid,
            state: server.state,
            seq: server.seq,
            name: server.name.into(),
            compat: features(),
            health: Vec::new(),
            metadata: [("ceph_version".to_string(), "16".to_string())].into(),
            features: 1,
            fs: String::new(),
        }
    }

    /// A beacon that no working server sends.
    fn odd_beacon(&mut self) {
        let n = self.rng.below(self.servers.len() as u64) as usize;
        let Some((mon, conn)) = self.session(n) else { return };
        let mut beacon = self.beacon(n);
        beacon.state = MdsState(self.rng.between(0, 30) as i32 - 12);
        // None boots with another's, which monitors gave when it authenticated.
        if beacon.state != MdsState::BOOT && self.rng.chance(300) {
            beacon.gid = self.rng.between(4990, self.next_gid + 2);
        }
        if self.rng.chance(300) {
            beacon.seq = self.rng.below(beacon.seq + 1);
        }
        if self.rng.chance(300) {
            beacon.version = PaxosVersion(self.rng.below(u64::from(self.seen.epoch.0) + 3));
        }
        if self.rng.chance(100) {
            beacon.compat = CompatSet::default();
        }
        if self.rng.chance(100) {
            beacon.name = String::new();
        }
        self.group.mons[mon].send(conn, beacon);
    }

    // ---- what goes wrong, and what an administrator does ----

    fn disturb(&mut self) {
        let n = self.rng.below(self.servers.len() as u64) as usize;
        match self.rng.below(20) {
            0..3 => {
                let after = self.rng.below(60);
                self.start_again(n, after);
            }
            3..6 => self.servers[n].hangs += self.rng.below(160),
            6..8 => self.odd_beacon(),
            8 => self.damage(n),
            9..12 => self.disturb_monitors(),
            _ => {
                let command = self.command(n);
                self.order(command);
            }
        }
    }

    /// A server that replays finds that it cannot.
    fn damage(&mut self, n: usize) {
        let server = &mut self.servers[n];
        if [server.state, server.told] == [MdsState::REPLAY; 2] {
            server.state = MdsState::DAMAGED;
        }
    }

    fn disturb_monitors(&mut self) {
        let mon = self.rng.below(self.group.mons.len() as u64) as usize;
        match self.rng.below(3) {
            // Its process does not run for a while.
            0 => {
                let at = self.group.mons[mon].now.mono + Duration::from_secs(self.rng.below(30));
                self.group.mons.iter_mut().for_each(|t| t.set_time(at));
            }
            1 => self.group.mons[mon].now.wall.sec += self.rng.below(100) as u32,
            _ if self.group.is_alive(mon) => {
                self.group.kill(mon);
                let away = self.rng.below(8000);
                self.pass(away);
                self.group.restart(mon);
                let there = |server: &&mut Server| server.session.is_some_and(|(at, _)| at == mon);
                self.servers.iter_mut().filter(there).for_each(|server| server.session = None);
            }
            _ => {}
        }
    }

    fn command(&mut self, n: usize) -> Value {
        let fs = FILE_SYSTEMS[self.rng.below(2) as usize];
        let role = format!("{fs}:{}", self.rng.below(3));
        let mut set = |var: &str, values: &[&str]| {
            let value = values[self.rng.below(values.len() as u64) as usize];
            json!({ "prefix": "fs set", "fs_name": fs, "var": var, "val": value })
        };
        let (server, gid) = (&self.servers[n].name, self.servers[n].gid);
        match n as u64 + 6 * (gid % 2) {
            0 | 1 => set("max_mds", &["1", "2", "3"]),
            2 => set("allow_standby_replay", &["true", "false"]),
            3 => set("joinable", &["true", "true", "false"]),
            4 => set("down", &["true", "false", "false"]),
            5 => json!({ "prefix": "mds fail", "role_or_gid": server }),
            6 => json!({ "prefix": "mds fail", "role_or_gid": role }),
            7 => json!({ "prefix": "fs fail", "fs_name": fs }),
            8 => json!({ "prefix": "mds repaired", "role": role }),
            // Not the first, without which there is no tree.
            9 => {
                let role = format!("{fs}:{}", 1 + self.rng.below(2));
                json!({ "prefix": "mds rmfailed", "role": role, "yes_i_really_mean_it": true })
            }
            10 => json!({ "prefix": "mds rm", "gid": gid }),
            _ => json!({ "prefix": "fs reset", "fs_name": fs, "yes_i_really_mean_it": true }),
        }
    }

    fn tick(&mut self) {
        for n in 0..self.servers.len() {
            self.serve(n);
            self.check();
        }
        self.pass(TICK_MILLIS);
    }

    /// An administrator and servers do what is right, and after a while the file systems work again.
    fn settle(&mut self) {
        self.servers.iter_mut().for_each(|server| server.hangs = 0);
        for ticks in 0..600 {
            // Damage may be reported late, and a command may be lost with its monitor.
            if ticks % 100 == 0 {
                self.repair();
            }
            self.tick();
            let well = |fs: &MdsMap| {
                fs.ranks.in_ == [0].into() && fs.holder(0).is_some_and(|info| info.state == MdsState::ACTIVE)
            };
            if self.seen.filesystems.values().all(|fs| well(&fs.map)) {
                return;
            }
        }
        for fs in self.seen.filesystems.values() {
            println!("{} {:?} {:?}", fs.map.fs_name, fs.map.ranks, fs.map.settings);
        }
        let said = self.seen.infos().map(|info| format!("{} {} {}", info.name, info.gid, info.state));
        panic!("the file systems do not come back: {:#?}", said.collect::<Vec<_>>());
    }

    fn repair(&mut self) {
        // No server may add its features to a file system that was reset while standbys may follow ranks, as
        // in Ceph.
        let settings =
            [("down", "false"), ("joinable", "true"), ("max_mds", "1"), ("allow_standby_replay", "false")];
        for fs in FILE_SYSTEMS {
            for (var, val) in settings {
                self.order(json!({ "prefix": "fs set", "fs_name": fs, "var": var, "val": val }));
            }
            for rank in 0..3 {
                self.order(json!({ "prefix": "mds repaired", "role": format!("{fs}:{rank}") }));
            }
        }
    }
}

fn check_ranks(fs: &MdsMap, osdmap: &OsdMap) {
    let ranks = &fs.ranks;
    let name = &fs.fs_name;
    let up: BTreeSet<MdsRank> = ranks.up.keys().copied().collect();
    let parts = [&up, &ranks.failed, &ranks.damaged];
    let together: BTreeSet<MdsRank> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    assert_eq!(together, ranks.in_, "{name}: what is in is up, failed or damaged");
    assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), ranks.in_.len(), "{name}: one of these");
    assert!(ranks.stopped.is_disjoint(&ranks.in_), "{name}: {ranks:?}");
    for (rank, gid) in &ranks.up {
        let info = &fs.infos[gid];
        assert_eq!(info.rank, *rank);
        assert!(!osdmap.is_blocklisted(&info.addrs), "{name}: a fenced server has rank {rank}");
    }
    let followers = |info: &&MdsInfo| info.state == MdsState::STANDBY_REPLAY;
    for info in fs.infos.values() {
        assert_ne!(info.rank, NO_RANK);
        assert!(ranks.in_.contains(&info.rank), "{name}: mds.{} has no rank to be at", info.name);
        assert_eq!(
            followers(&info),
            ranks.up.get(&info.rank) != Some(&info.gid),
            "{name}: one holder a rank"
        );
    }
}

fn run(seeds: std::ops::Range<u64>, mons: usize, ticks: u64) {
    for seed in seeds {
        println!("seed {seed}, {mons} monitors");
        let mut world = World::new(seed, mons);
        for _ in 0..3 {
            for _ in 0..ticks {
                if world.rng.chance(150) {
                    world.disturb();
                }
                world.tick();
            }
            world.settle();
        }
    }
}

#[test]
fn ranks_have_one_holder_each_whatever_servers_and_administrators_do() {
    run(10..14, 1, 200);
}

#[test]
fn ranks_have_one_holder_each_while_monitors_die_and_elect() {
    run(100..102, 3, 100);
}
