//! What went wrong in other systems with erasure-coded pools.

use super::erasure::{bytes, content, erasure, write_at};
use super::read;
use super::world::{POOL, World};
use nacre_base::{IntervalSet, OsdId, PgId, Rng, ShardId};
use nacre_proto::maps::map_flags;
use nacre_proto::messages::{Command, PgReport, pg_state};
use nacre_proto::transaction::StoredId;
use nacre_proto::types::Op;
use std::collections::BTreeMap;
use std::time::Duration;

const PG: PgId = PgId { pool: POOL, seed: 0 };

/// Objects of this size in the placement group, with their content.
fn fill(w: &mut World, count: usize, size: u64) -> BTreeMap<String, Vec<u8>> {
    let mut rng = Rng::new(size);
    let mut objects = BTreeMap::new();
    for n in 0..count {
        let data = bytes(&mut rng, size);
        assert_eq!(w.run_ops(&format!("o{n}"), vec![Op::WriteFull { data: data.clone().into() }]).result, 0);
        objects.insert(format!("o{n}"), data);
    }
    objects
}
fn assert_content(w: &mut World, objects: &BTreeMap<String, Vec<u8>>) {
    for (name, data) in objects {
        assert!(content(w, name) == *data, "{name}");
    }
}
fn kill(w: &mut World, node: usize) {
    w.kill(node);
    w.run_until("it is away", |w| !w.map.is_up(OsdId(node as i32)));
}
fn place(w: &mut World, osds: &[i32]) {
    w.place(vec![(0, osds.iter().copied().map(OsdId).collect())]);
}
fn set_norecover(w: &mut World, on: bool) {
    let flag = map_flags::NORECOVER;
    w.change(|map, inc| inc.new_flags = Some(if on { map.flags | flag } else { map.flags & !flag }));
}
/// The shards that an OSD has, by the names of their objects.
fn shards(w: &World, node: usize) -> BTreeMap<String, Vec<u8>> {
    let shard = |(id, record): (&StoredId, &super::store::MemRecord)| match id {
        StoredId::Shard(ShardId(0..64), object) => {
            Some((object.name.to_text().into_owned(), record.data.clone()))
        }
        _ => None,
    };
    w.nodes[node].view.records.iter().filter_map(shard).collect()
}
/// The names of those that osd.3 has by now of what osd.2 had.
fn moved(w: &World, old: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    shards(w, 3).into_iter().filter(|(name, data)| old[name] == *data).map(|(name, _)| name).collect()
}

/// They are not unfound although a backfill target has them (Ceph's pull request 46276).
#[test]
fn what_a_newcomer_has_by_now_is_readable_without_the_old_holder() {
    let mut w = erasure(30, 4, 2, 1, 1);
    let objects = fill(&mut w, 40, 9000);
    w.run_for(Duration::from_secs(1));
    let old = shards(&w, 2);
    place(&mut w, &[0, 1, 3]);
    w.run_until("it has some", |w| moved(w, &old).len() > 10);
    w.kill(1);
    w.kill(2);
    w.run_until("both are away", |w| !w.map.is_up(OsdId(1)) && !w.map.is_up(OsdId(2)));
    let reads: BTreeMap<&String, u64> = objects.keys().map(|name| (name, w.submit(name, read()))).collect();
    w.run_for(Duration::from_secs(40));
    let here = moved(&w, &old);
    assert!(here.len() > 10 && here.len() < 40, "{}", here.len());
    for (name, tid) in &reads {
        match w.replies.get(tid) {
            Some(reply) => assert!(reply.ops[0].data == objects[*name], "{name}"),
            None => assert!(!here.contains(name), "{name} is on two OSDs, and cannot be read"),
        }
    }
    w.start(1);
    w.start(2);
    w.run_until("clean", World::all_clean);
    for (name, tid) in reads {
        assert!(w.reply(tid).ops[0].data == objects[name], "{name}");
    }
}

/// Ceph's tracker 50351.
#[test]
fn what_a_member_lacks_is_known_after_its_restart() {
    let mut rng = Rng::new(31);
    let mut w = erasure(31, 4, 2, 2, 1);
    let mut objects = fill(&mut w, 2, 14_000);
    set_norecover(&mut w, true);
    kill(&mut w, 3);
    for (name, data) in &mut objects {
        let new = bytes(&mut rng, 7000);
        data[5000..12_000].copy_from_slice(&new);
        assert_eq!(w.run_ops(name, write_at(5000, new)).result, 0);
    }
    for _ in 0..3 {
        w.start(3);
        w.run_until("it is up", |w| w.map.is_up(OsdId(3)));
        w.run_for(Duration::from_secs(5));
        kill(&mut w, 3);
    }
    w.start(3);
    w.run_until("it is up", |w| w.map.is_up(OsdId(3)));
    w.run_for(Duration::from_secs(5));
    // Just enough others are left: they must be asked.
    for away in [1, 2] {
        kill(&mut w, away);
        assert_content(&mut w, &objects);
        w.start(away);
        w.run_until("it is up", |w| w.map.is_up(OsdId(away as i32)));
        w.run_for(Duration::from_secs(5));
    }
    set_norecover(&mut w, false);
    w.run_until("clean", World::all_clean);
    kill(&mut w, 0);
    assert_content(&mut w, &objects);
}

/// Ceph's tracker 21382.
#[test]
fn objects_are_recovered_from_other_shards_where_some_cannot_be_read() {
    let mut w = erasure(32, 6, 3, 2, 1);
    let objects = fill(&mut w, 6, 13_000);
    w.run_for(Duration::from_secs(1));
    w.allow_errors = true;
    for (n, name) in objects.keys().enumerate() {
        w.corrupt(1 + n % 2, |store| {
            let is_its = |id: &&StoredId| {
                matches!(id, StoredId::Shard(ShardId(0..64), object) if object.name.to_text() == *name)
            };
            let id = store.records.keys().find(is_its).unwrap().clone();
            store.bad.insert((id, 0), IntervalSet::new());
        });
    }
    kill(&mut w, 4);
    place(&mut w, &[0, 1, 2, 3, 5]);
    w.run_until("clean", World::all_clean);
    assert_content(&mut w, &objects);
    kill(&mut w, 3);
    assert_content(&mut w, &objects);
}

/// Ceph's tracker 10353: as many hosts as chunks, of which CRUSH does not find one.
#[test]
fn an_empty_place_counts_as_degraded_once_for_each_object() {
    let mut w = erasure(33, 4, 2, 2, 1);
    let objects = fill(&mut w, 5, 5000);
    kill(&mut w, 2);
    place(&mut w, &[0, 1, OsdId::NONE.0, 3]);
    let expected = pg_state::ACTIVE | pg_state::UNDERSIZED | pg_state::DEGRADED;
    w.run_until("it is counted", |w| {
        let counted = |report: &PgReport| (report.state, report.counts.degraded);
        w.reports.get(&PG).map(counted) == Some((expected, objects.len() as u64))
    });
    assert_eq!((w.reports[&PG].counts.misplaced, w.reports[&PG].counts.unfound), (0, 0));
    assert_content(&mut w, &objects);
    w.start(2);
    place(&mut w, &[0, 1, 2, 3]);
    w.run_until("clean", World::all_clean);
    w.run_until("none is counted", |w| w.reports[&PG].counts.degraded == 0);
}

/// Ceph's tracker 62338: what is left decodes everything, and is less than `min_size`.
#[test]
fn newcomers_make_a_group_serve_again_that_had_fewer_shards_than_min_size() {
    let mut w = erasure(34, 6, 2, 2, 1);
    let mut objects = fill(&mut w, 4, 9000);
    w.kill(2);
    w.kill(3);
    w.run_until("both are away", |w| !w.map.is_up(OsdId(2)) && !w.map.is_up(OsdId(3)));
    let waits = w.submit("o0", write_at(100, vec![9; 50]));
    w.run_for(Duration::from_secs(20));
    assert!(!w.replies.contains_key(&waits), "a write was on two of four OSDs");
    place(&mut w, &[0, 1, 4, 5]);
    assert_eq!(w.reply(waits).result, 0);
    objects.get_mut("o0").unwrap()[100..150].fill(9);
    w.run_until("clean", World::all_clean);
    for away in [0, 1] {
        kill(&mut w, away);
        assert_content(&mut w, &objects);
        w.start(away);
        w.run_until("clean", World::all_clean);
    }
}

#[test]
fn writes_that_grow_wait_while_the_disk_of_any_shard_is_full() {
    let mut w = erasure(36, 3, 2, 1, 1);
    let mut objects = fill(&mut w, 2, 20_000);
    for node in 0..3 {
        w.nodes[node].view.free = Some(20 << 20);
        w.run_for(Duration::from_secs(1));
        let data = vec![node as u8 + 1; 9000];
        let grows = w.submit("o0", vec![Op::Append { data: data.clone().into() }]);
        w.run_for(Duration::from_secs(3));
        assert!(!w.replies.contains_key(&grows), "the disk of osd.{node} is full");
        assert_content(&mut w, &objects);
        w.nodes[node].view.free = None;
        assert_eq!(w.reply(grows).result, 0);
        objects.get_mut("o0").unwrap().extend(data);
    }
    assert_content(&mut w, &objects);
    w.run_until("clean", World::all_clean);
}

#[test]
fn objects_of_which_too_few_shards_are_left_are_unfound_and_can_be_deleted() {
    let mut w = erasure(37, 3, 2, 1, 1);
    let mut objects = fill(&mut w, 5, 9000);
    set_norecover(&mut w, true);
    kill(&mut w, 2);
    for name in ["o1", "o3"] {
        assert_eq!(w.run_ops(name, vec![Op::WriteFull { data: vec![7; 9000].into() }]).result, 0);
        objects.remove(name);
    }
    w.start(2);
    w.run_until("it is up", |w| w.map.is_up(OsdId(2)));
    w.run_for(Duration::from_secs(5));
    kill(&mut w, 1);
    set_norecover(&mut w, false);
    w.run_until("two are unfound", |w| w.reports.get(&PG).is_some_and(|report| report.counts.unfound == 2));
    let waits = ["o1", "o3"].map(|name| w.submit(name, read()));
    assert_content(&mut w, &objects);
    let mark = |w: &mut World, how: &str| {
        let text = format!(r#"{{"prefix": "mark_unfound_lost", "pgid": "1.0", "mulcmd": "{how}"}}"#);
        w.tell_osds(|| Command { fsid: [1; 16], cmd: vec![text.clone()], input: Default::default() }.into());
        w.run_for(Duration::from_secs(3));
    };
    // The OSD that is away may have them; then not. What they were is on too few OSDs as well.
    for lost in [false, true] {
        mark(&mut w, if lost { "revert" } else { "delete" });
        assert!(waits.iter().all(|tid| !w.replies.contains_key(tid)), "declared lost: {lost}");
        w.change(|map, inc| {
            inc.new_lost.insert(OsdId(1), map.osd(OsdId(1)).unwrap().info.down_at);
        });
        w.run_for(Duration::from_secs(1));
    }
    mark(&mut w, "delete");
    assert!(waits.into_iter().all(|tid| w.reply(tid).result == -2));
    w.run_until("none is unfound", |w| w.reports[&PG].counts.unfound == 0);
    assert_content(&mut w, &objects);
}

/// Reads of clients do not starve recovery (tracker 71655 is about the opposite).
#[test]
fn recovery_goes_on_while_a_client_reads_all_the_time() {
    let mut w = erasure(11, 4, 2, 1, 1);
    // Pushes are tiny in tests: each shard takes several.
    let objects = fill(&mut w, 8, 100);
    place(&mut w, &[0, 1, 3]);
    let names: Vec<&String> = objects.keys().collect();
    let is_there = |w: &World| w.map.pg_to_up_acting(PG).acting.contains(&OsdId(3)) && w.all_clean();
    let mut reads = 0;
    while !is_there(&w) {
        let name = names[reads % names.len()];
        assert!(content(&mut w, name) == objects[name]);
        w.run_for(Duration::from_millis(20));
        reads += 1;
        assert!(reads < 3000, "{}", w.describe());
    }
}
