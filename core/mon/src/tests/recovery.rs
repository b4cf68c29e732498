//! A cluster goes on with one monitor, from what it has or from a backup.

use super::monitors::Group;
use super::*;
use crate::{Backup, Recovery, RecoveryError};

fn backup(t: &mut TestMon) -> Backup {
    let conn = t.client();
    let cmd = vec![json!({ "prefix": "mon backup" }).to_string()];
    let ask = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() };
    let Message::MonCommandAck(ack) = t.ask(conn, ask) else { panic!("no answer") };
    assert_eq!(ack.retval, 0);
    Backup::from_bytes(&ack.output).unwrap()
}

/// Two of three are lost. They come back later, with what they had.
#[test]
fn monitor_that_is_left_continues_alone_and_the_others_never_decide_again() {
    let mut group = Group::of(3);
    group.pass(10_000);
    assert_eq!(group.run(json!({ "prefix": "osd set", "key": "noout" })).0, 0);
    let leader = group.leader();
    let last = (leader + 1) % 3;
    let lost: Vec<usize> = (0..3).filter(|n| *n != last).collect();
    let before = group.mons[last].map();
    lost.iter().for_each(|n| group.kill(*n));
    group.pass(5000);
    let mut store = std::mem::take(&mut group.mons[last].store);
    let config = group.mons[last].config.clone();
    let recovery = Recovery::of_store(config.id, &store).unwrap();
    assert_eq!((recovery.fsid(), recovery.monitors().len()), ([9; 16], 3));
    let addrs = config.members[last].addrs.clone();
    store.apply(recovery.lone(config.id, &config.name, addrs, "vm", group.mons[last].now.wall));
    group.mons[last] = TestMon::start_with(config.clone(), store, group.mons[last].now);
    group.pass(3000);
    let map = group.mons[last].map();
    assert!(map.flags & map_flags::NOOUT != 0);
    assert!(map.epoch.0 >= before.epoch.0 + 10_000, "daemons may have maps that were lost: {}", map.epoch);
    assert_eq!(group.members(last), [config.id]);
    assert_eq!(group.run(json!({ "prefix": "osd set", "key": "noin" })).0, 0);

    lost.iter().for_each(|n| group.revive(*n));
    for n in &lost {
        let (config, now) = (group.mons[*n].config.clone(), group.mons[last].now);
        let store = std::mem::take(&mut group.mons[*n].store);
        group.mons[*n] = TestMon::start_with(config, store, now);
    }
    group.pass(10_000);
    assert!(lost.iter().any(|n| group.mons[*n].mon.retired.is_some()), "the one that was told first stops");
    assert_eq!(group.leader(), last);
    assert_eq!(group.members(last), [config.id]);
    assert!(matches!(Recovery::of_store(7, &Omaps::default()), Err(RecoveryError::Empty)));
}

#[test]
fn monitor_is_restored_from_a_backup_under_a_new_number() {
    let (mut t, osds) = TestMon::with_osds(3);
    t.run(json!({ "prefix": "config-key set", "key": "k", "val": "v" }));
    let pool = t.create_pool("p", 8);
    t.activate(&osds, pool);
    let backup = backup(&mut t);
    t.create_pool("lost", 8);
    let bytes = backup.to_bytes();
    assert!(matches!(Backup::from_bytes(&bytes[1..]), Err(RecoveryError::NoBackup)));
    assert!(matches!(Backup::from_bytes(&bytes[..bytes.len() - 1]), Err(RecoveryError::Undecodable(_))));
    let recovery = Recovery::of_backup(&Backup::from_bytes(&bytes).unwrap()).unwrap();
    assert_eq!((recovery.counts(), recovery.next_id()), ((3, 1), 1002));

    let own = Member { id: 1002, name: "n".into(), addrs: addr(3311, 0), initial: false };
    let config = MonConfig { id: 1002, name: "n".into(), members: vec![own], ..t.config.clone() };
    let mut store = Omaps::default();
    store.apply(recovery.lone(1002, "n", addr(3311, 0), "vm", t.now.wall));
    let mut restored = TestMon::start_with(config, store, t.now);
    restored.pass(Duration::from_secs(3));
    assert_eq!(restored.run(json!({ "prefix": "config-key get", "key": "k" })).trim_end(), "v");
    assert_eq!(restored.map().pools.len(), 1);
    let dump = restored.json(json!({ "prefix": "mon dump" }));
    assert_eq!((dump["mons"].as_array().unwrap().len(), &dump["mons"][0]["name"]), (1, &json!("n")));
    // The first monitor is told so when it comes by.
    assert!(restored.mon.state.as_ref().unwrap().monmap.was_removed(1));
    // An OSD that has a newer map than the backup boots.
    restored.boot(0, 6900, 9);
    assert!(restored.map().is_up(OsdId(0)));
}
