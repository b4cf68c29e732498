//! File systems, with metadata servers that are only sessions.

use super::*;
use nacre_proto::maps::{CompatSet, MdsMap, MdsState};

/// A metadata server that does what the map says, as Ceph's does.
struct Server {
    gid: u64,
    name: &'static str,
    conn: ConnId,
    seq: u64,
    state: MdsState,
    /// Of the newest map that it has.
    epoch: Epoch,
}

impl Server {
    fn start(t: &mut TestMon, gid: u64, name: &'static str) -> Server {
        let conn = t.open(EntityType::Mds, -1, addr(6800, gid as u32));
        let what = [("mdsmap".to_string(), MonSub { start: 0, flags: 0 })].into();
        t.send(conn, MonSubscribe { what, hostname: String::new() });
        let mut server = Server { gid, name, conn, seq: 0, state: MdsState::BOOT, epoch: Epoch(0) };
        server.beacon(t);
        server.follow(t);
        server
    }
    fn beacon(&mut self, t: &mut TestMon) {
        self.seq += 1;
        let mut compat = CompatSet::of_new_file_system();
        compat.incompat.names.insert(7, "mds uses inline data".into());
        let beacon = MdsBeacon {
            version: PaxosVersion(self.epoch.0.into()),
            fsid: [9; 16],
            gid: self.gid,
            state: self.state,
            seq: self.seq,
            name: self.name.into(),
            compat,
            health: Vec::new(),
            metadata: [("ceph_version".to_string(), "16".to_string())].into(),
            features: 1,
            fs: String::new(),
        };
        t.send(self.conn, beacon);
    }
    /// Takes the maps that came, and asks for what comes next, until it works or stands by.
    fn follow(&mut self, t: &mut TestMon) {
        for _ in 0..20 {
            for message in t.received(self.conn) {
                let Message::MdsMap(message) = message else { continue };
                let map: MdsMap = from_slice(&message.map).unwrap();
                self.epoch = map.epoch;
                if let Some(info) = map.infos.get(&self.gid) {
                    self.state = info.state;
                }
            }
            let next = match self.state {
                MdsState::CREATING | MdsState::STARTING => MdsState::ACTIVE,
                MdsState::REPLAY => MdsState::RECONNECT,
                MdsState::RECONNECT => MdsState::REJOIN,
                MdsState::REJOIN => MdsState::ACTIVE,
                MdsState::STOPPING => MdsState::STOPPED,
                MdsState::BOOT => MdsState::BOOT,
                _ => return,
            };
            self.state = next;
            self.beacon(t);
        }
        panic!("mds.{} goes on and on", self.name);
    }
}

/// Time passes while these servers are alive.
fn pass(t: &mut TestMon, servers: &mut [&mut Server], seconds: u64) {
    for _ in 0..seconds {
        for server in servers.iter_mut() {
            server.beacon(t);
            server.follow(t);
        }
        t.pass(Duration::from_secs(1));
        servers.iter_mut().for_each(|server| server.follow(t));
    }
}

fn with_file_system() -> TestMon {
    let (mut t, _) = TestMon::with_osds(3);
    t.create_pool("meta", 8);
    t.create_pool("data", 8);
    let said = t.run(json!({ "prefix": "fs new", "fs_name": "a", "metadata": "meta", "data": "data" }));
    assert_eq!(said, "new fs with metadata pool 1 and data pool 2");
    t
}

fn health(t: &mut TestMon) -> Vec<String> {
    let health = t.json(json!({ "prefix": "health" }));
    health["checks"]
        .as_object()
        .unwrap()
        .keys()
        .filter(|code| code.contains("DS") || code.starts_with("FS"))
        .cloned()
        .collect()
}

fn mds_stat(t: &mut TestMon) -> String {
    t.run(json!({ "prefix": "mds stat" })).trim().to_string()
}

#[test]
fn a_standby_becomes_active_and_another_takes_over_when_it_is_silent() {
    let mut t = with_file_system();
    assert_eq!(health(&mut t), ["MDS_ALL_DOWN", "MDS_UP_LESS_THAN_MAX"]);
    let mut one = Server::start(&mut t, 4200, "one");
    pass(&mut t, &mut [&mut one], 2);
    assert_eq!(mds_stat(&mut t), "a:1 {0=one=up:active}");
    let mut two = Server::start(&mut t, 4201, "two");
    pass(&mut t, &mut [&mut one, &mut two], 2);
    assert_eq!(mds_stat(&mut t), "a:1 {0=one=up:active} 1 up:standby");
    assert_eq!(health(&mut t), [""; 0]);
    let before = t.map().blocklist.len();
    pass(&mut t, &mut [&mut two], 18);
    assert_eq!(mds_stat(&mut t), "a:1 {0=two=up:active}");
    // What the dead server still sends to OSDs is refused, and its successor knows from which map on.
    assert_eq!(t.map().blocklist.len(), before + 1);
    let fs = t.json(json!({ "prefix": "fs get", "fs_name": "a" }));
    let fenced = fs["mdsmap"]["last_failure_osd_epoch"].as_u64().unwrap();
    assert!(fenced > 0 && fenced <= t.map().epoch.0.into());
    assert_eq!(health(&mut t), ["MDS_INSUFFICIENT_STANDBY"]);
    // It lives after all, and learns that it is in no map.
    t.received(one.conn);
    one.beacon(&mut t);
    let answer = t.received(one.conn);
    let removed = answer.iter().any(|message| match message {
        Message::MdsMap(message) => from_slice::<MdsMap>(&message.map).unwrap().infos.is_empty(),
        _ => false,
    });
    assert!(removed, "{answer:?}");
}

#[test]
fn a_lone_server_that_is_silent_keeps_its_rank() {
    let mut t = with_file_system();
    let mut one = Server::start(&mut t, 4200, "one");
    pass(&mut t, &mut [&mut one], 2);
    t.pass(Duration::from_secs(90));
    assert_eq!(mds_stat(&mut t), "a:1 {0=one=up:active(laggy or crashed)}");
    pass(&mut t, &mut [&mut one], 2);
    assert_eq!(mds_stat(&mut t), "a:1 {0=one=up:active}");
}

#[test]
fn a_server_that_starts_again_replaces_its_older_self() {
    let mut t = with_file_system();
    let mut one = Server::start(&mut t, 4200, "one");
    pass(&mut t, &mut [&mut one], 2);
    let mut again = Server::start(&mut t, 4300, "one");
    pass(&mut t, &mut [&mut again], 3);
    assert_eq!(mds_stat(&mut t), "a:1 {0=one=up:active}");
    assert_eq!(t.json(json!({ "prefix": "fs dump" }))["filesystems"][0]["mdsmap"]["up"]["mds_0"], 4300);
    let mut t = t.restart();
    assert_eq!(mds_stat(&mut t), "a:1 {0=one=up:active}", "it is stored");
    assert_eq!(t.json(json!({ "prefix": "mds versions" })), json!({ "16": 1 }));
}

/// It had a rank and lost it before it saw a map.
#[test]
fn a_server_that_boots_although_it_is_fenced_gets_no_rank() {
    let mut t = with_file_system();
    let mut one = Server::start(&mut t, 4200, "one");
    pass(&mut t, &mut [&mut one], 2);
    t.run(json!({ "prefix": "mds fail", "role_or_gid": "one" }));
    one.state = MdsState::BOOT;
    one.beacon(&mut t);
    t.pass(Duration::from_secs(2));
    let dump = t.json(json!({ "prefix": "fs dump" }));
    assert_eq!(dump["standbys"], json!([]));
    assert_eq!(dump["filesystems"][0]["mdsmap"]["up"], json!({}));
    let mut again = Server::start(&mut t, 4300, "one");
    pass(&mut t, &mut [&mut again], 2);
    assert_eq!(mds_stat(&mut t), "a:1 {0=one=up:active}");
}

#[test]
fn requests_of_servers_that_have_not_seen_the_newest_map_are_void() {
    let mut t = with_file_system();
    let mut one = Server::start(&mut t, 4200, "one");
    pass(&mut t, &mut [&mut one], 2);
    let mut two = Server::start(&mut t, 4201, "two");
    pass(&mut t, &mut [&mut one, &mut two], 2);
    two.state = MdsState::ACTIVE;
    two.beacon(&mut t);
    assert_eq!(mds_stat(&mut t), "a:1 {0=one=up:active} 1 up:standby", "a standby gives itself no rank");
    one.epoch = Epoch(1);
    one.state = MdsState::STOPPED;
    one.beacon(&mut t);
    assert_eq!(mds_stat(&mut t), "a:1 {0=one=up:active} 1 up:standby");
}

#[test]
fn ranks_are_added_and_stopped_as_max_mds_says() {
    let mut t = with_file_system();
    let mut servers: Vec<Server> =
        [(4200, "one"), (4201, "two")].map(|(gid, name)| Server::start(&mut t, gid, name)).into();
    let mut settle = |t: &mut TestMon| {
        let mut all: Vec<&mut Server> = servers.iter_mut().collect();
        pass(t, &mut all, 4);
    };
    settle(&mut t);
    t.run(json!({ "prefix": "fs set", "fs_name": "a", "var": "max_mds", "val": "2" }));
    settle(&mut t);
    assert_eq!(mds_stat(&mut t), "a:2 {0=one=up:active,1=two=up:active}");
    t.run(json!({ "prefix": "fs set", "fs_name": "a", "var": "max_mds", "val": "1" }));
    settle(&mut t);
    let shown = t.json(json!({ "prefix": "fs get", "fs_name": "a" }));
    assert_eq!((&shown["mdsmap"]["in"], &shown["mdsmap"]["stopped"]), (&json!([0]), &json!([1])));
    t.run(json!({ "prefix": "fs set", "fs_name": "a", "var": "allow_standby_replay", "val": "true" }));
    let mut third = Server::start(&mut t, 4202, "three");
    pass(&mut t, &mut [&mut servers[0], &mut third], 3);
    assert_eq!(mds_stat(&mut t), "a:1 {0=one=up:active} 1 up:standby-replay");
}

#[test]
fn a_file_system_is_removed_only_when_no_server_serves_it() {
    let mut t = with_file_system();
    let mut one = Server::start(&mut t, 4200, "one");
    pass(&mut t, &mut [&mut one], 2);
    let sure = json!({ "prefix": "fs rm", "fs_name": "a", "yes_i_really_mean_it": true });
    assert_eq!(t.command(sure.clone()).0, -22);
    let pool = json!({
        "prefix": "osd pool rm", "pool": "data", "pool2": "data", "yes_i_really_really_mean_it": true
    });
    assert_eq!(t.command(pool.clone()).0, -16, "a pool that is in use");
    t.run(json!({ "prefix": "fs fail", "fs_name": "a" }));
    t.run(sure);
    t.run(pool);
    assert_eq!(t.run(json!({ "prefix": "fs ls" })), "No filesystems enabled\n");
}

#[test]
fn a_volume_comes_and_goes_with_its_pools() {
    let (mut t, _) = TestMon::with_osds(3);
    t.run(json!({ "prefix": "fs volume create", "name": "v" }));
    assert_eq!(t.json(json!({ "prefix": "fs volume ls" })), json!([{ "name": "v" }]));
    assert!(t.map().pool_by_name("cephfs.v.meta").is_some());
    t.run(json!({ "prefix": "fs flag set", "flag_name": "enable_multiple", "val": "false" }));
    assert_eq!(t.command(json!({ "prefix": "fs volume create", "name": "w" })).0, -22);
    assert!(t.map().pool_by_name("cephfs.w.meta").is_none(), "no pools are left over");
    let said = t.run(json!({
        "prefix": "fs volume rm", "vol_name": "v", "yes-i-really-mean-it": "--yes-i-really-mean-it"
    }));
    assert_eq!(said, "metadata pool: cephfs.v.meta data pool: ['cephfs.v.data'] removed");
    assert!(t.map().pools.is_empty());
}

#[test]
fn snapshots_of_a_file_system_are_removed_from_its_pool_and_take_no_number() {
    let mut t = with_file_system();
    let conn = t.open(EntityType::Mds, -1, addr(6800, 1));
    let data = t.map().pool_by_name("data").unwrap();
    let snaps: BTreeMap<i32, Vec<_>> = [(data.0 as i32, vec![nacre_base::SnapId(5)])].into();
    let message = RemoveSnaps { version: PaxosVersion(0), snaps: snaps.clone() };
    let Message::RemoveSnaps(answer) = t.ask(conn, message.clone()) else { panic!("no answer") };
    assert_eq!(answer.snaps, snaps);
    let map = t.map();
    let pool = &map.pools[&data];
    assert_eq!(pool.snap_seq.0, 5, "the next is the metadata server's to choose");
    assert!(map.removed_snaps_queue[&data].contains(5) && !map.removed_snaps_queue[&data].contains(6));
    assert!(pool.has(pool_flags::SELFMANAGED_SNAPS) && !pool.has(pool_flags::POOL_SNAPS));
    let epoch = map.epoch;
    t.ask(conn, message);
    assert_eq!(t.map().epoch, epoch, "once is enough");
}

/// A server that cannot read its rank's journal tells so while it replays.
#[test]
fn a_damaged_rank_waits_until_an_administrator_says_that_it_is_repaired() {
    let mut t = with_file_system();
    let mut one = Server::start(&mut t, 4200, "one");
    pass(&mut t, &mut [&mut one], 2);
    t.run(json!({ "prefix": "mds fail", "role_or_gid": "one" }));
    assert_eq!(mds_stat(&mut t), "a:0/1, 1 failed");
    let conn = t.open(EntityType::Mds, -1, addr(6800, 4201));
    let (name, seq, state, epoch) = ("two", 0, MdsState::BOOT, Epoch(0));
    let mut two = Server { gid: 4201, name, conn, seq, state, epoch };
    two.beacon(&mut t);
    assert_eq!(mds_stat(&mut t), "a:1 {0=two=up:replay}");
    let fs = t.json(json!({ "prefix": "fs get", "fs_name": "a" }));
    two.epoch = Epoch(fs["mdsmap"]["epoch"].as_u64().unwrap() as u32);
    two.state = MdsState::DAMAGED;
    let before = t.map().blocklist.len();
    two.beacon(&mut t);
    assert_eq!(mds_stat(&mut t), "a:0/1, 1 damaged");
    assert_eq!(t.map().blocklist.len(), before + 1);
    assert_eq!(health(&mut t), ["FS_DEGRADED", "MDS_ALL_DOWN", "MDS_DAMAGE"]);
    let mut three = Server::start(&mut t, 4202, "three");
    pass(&mut t, &mut [&mut three], 3);
    assert_eq!(mds_stat(&mut t), "a:0/1 1 up:standby, 1 damaged");
    t.run(json!({ "prefix": "mds repaired", "role": "a:0" }));
    pass(&mut t, &mut [&mut three], 2);
    assert_eq!(mds_stat(&mut t), "a:1 {0=three=up:active}");
}

/// In Ceph's words and codes, where scripts look at them.
#[test]
fn commands_on_file_systems_answer_as_ceph_does() {
    let mut t = with_file_system();
    let mut one = Server::start(&mut t, 4200, "one");
    pass(&mut t, &mut [&mut one], 2);
    assert_eq!(t.json(json!({ "prefix": "node ls", "type": "mds" })), json!({ "": ["one"] }));
    let said = t.json(json!({ "prefix": "mds metadata", "who": "one" }));
    assert_eq!((&said["name"], &said["ceph_version"]), (&Value::Null, &json!("16")));
    t.create_pool("more", 8);
    let again = json!({ "prefix": "fs new", "fs_name": "b", "metadata": "more", "data": "data" });
    assert_eq!(t.command(again).0, -17);
    let set =
        |val: &str| json!({ "prefix": "fs set", "fs_name": "a", "var": "min_compat_client", "val": val });
    t.run(set("nautilus"));
    let fs = t.json(json!({ "prefix": "fs get", "fs_name": "a" }));
    assert_eq!(fs["mdsmap"]["required_client_features"], json!({ "feature_12": "multi_reconnect" }));
    assert_eq!(t.command(set("argonaut")).0, -22);
    let rm = json!({ "prefix": "mds compat rm_incompat", "feature": 5 });
    assert_eq!(t.run(rm.clone()), "removing incompat feature 5");
    assert!(t.run(rm).starts_with("incompat feature 5 not present in compat={}"));
    assert_eq!(
        t.run(json!({ "prefix": "mds ok-to-stop", "ids": ["nope"] })),
        "should be safe to stop [nope]"
    );
    t.run(json!({ "prefix": "fs fail", "fs_name": "a" }));
    // A standby is there, so that only the file system keeps it from taking over.
    let mut two = Server::start(&mut t, 4201, "two");
    pass(&mut t, &mut [&mut two], 1);
    assert_eq!(health(&mut t), ["FS_DEGRADED", "MDS_ALL_DOWN"]);
    let status = t.run(json!({ "prefix": "status" }));
    assert!(status.contains("mds: 0/1 daemons up (1 failed), 1 standby"), "{status}");
}
