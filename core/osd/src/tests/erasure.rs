//! Erasure-coded pools.

use super::scrub::{listed, scrub};
use super::undo::undo_copies;
use super::world::{POOL, World};
use super::{break_something, read, repair_everything, seeds, write};
use bytes::Bytes;
use nacre_base::{OsdId, Rng, ShardId, SnapId};
use nacre_proto::maps::map_flags;
use nacre_proto::transaction::StoredId;
use nacre_proto::types::{Extent, Op};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn erasure(seed: u64, osds: usize, k: u8, m: u8, pg_num: u32) -> World {
    let mut w = World::new(seed, osds, k + m, k, pg_num);
    w.make_erasure(k, m);
    w.run_until("clean", World::all_clean);
    w
}
pub(super) fn write_at(offset: u64, data: Vec<u8>) -> Vec<Op> {
    vec![Op::Write { extent: Extent::new(offset, data.len() as u64), data: data.into() }]
}
pub(super) fn bytes(rng: &mut Rng, len: u64) -> Vec<u8> {
    (0..len).map(|_| rng.below(255) as u8 + 1).collect()
}
pub(super) fn content(w: &mut World, name: &str) -> Vec<u8> {
    w.run_ops(name, read()).ops[0].data.to_vec()
}
#[test]
fn objects_are_read_back_whole_and_with_any_shard_away() {
    let mut rng = Rng::new(7);
    let mut w = erasure(1, 3, 2, 1, 2);
    let large = bytes(&mut rng, 30_000);
    assert_eq!(w.run_ops("small", write("hello")).result, 0);
    assert_eq!(w.run_ops("large", vec![Op::WriteFull { data: large.clone().into() }]).result, 0);
    for away in 0..3 {
        w.kill(away);
        w.run_until("it is away", |w| !w.map.is_up(OsdId(away as i32)));
        assert_eq!(content(&mut w, "small"), b"hello");
        assert!(content(&mut w, "large") == large, "osd.{away} is away");
        w.start(away);
        w.run_until("clean", World::all_clean);
    }
    // A third of the object and a bit is on each device.
    let stored = w.nodes[0].view.records.iter().filter(|(id, _)| matches!(id, StoredId::Shard(..)));
    assert!(stored.map(|(_, record)| record.data.len()).max().unwrap() < 20_000);
}

#[test]
fn writes_of_all_kinds_give_what_they_give_in_a_replicated_pool() {
    let mut rng = Rng::new(3);
    let mut w = erasure(2, 5, 3, 2, 1);
    let mut model = Vec::new();
    for _ in 0..60 {
        let (at, len) = (rng.below(30_000), 1 + rng.below(9_000));
        let resize = |model: &mut Vec<u8>, size: u64| model.resize(size as usize, 0);
        let ops = match rng.below(7) {
            0 => {
                let data = bytes(&mut rng, len);
                model.extend(&data);
                vec![Op::Append { data: data.into() }]
            }
            1 => {
                resize(&mut model, at);
                vec![Op::Truncate { size: at, truncate_size: 0, truncate_seq: 0 }]
            }
            2 => {
                let size = model.len() as u64;
                if at + len < size {
                    model[at as usize..(at + len) as usize].fill(0);
                } else if at < size {
                    resize(&mut model, at);
                }
                vec![Op::Zero { off: at, len }]
            }
            3 if rng.chance(300) => {
                model = bytes(&mut rng, len);
                vec![Op::WriteFull { data: model.clone().into() }]
            }
            _ => {
                let data = bytes(&mut rng, len);
                let size = (model.len() as u64).max(at + len);
                resize(&mut model, size);
                model[at as usize..(at + len) as usize].copy_from_slice(&data);
                write_at(at, data)
            }
        };
        assert_eq!(w.run_ops("o", ops).result, 0);
        if rng.chance(300) {
            assert!(content(&mut w, "o") == model);
        }
        if rng.chance(100) {
            let away = rng.below(5) as usize;
            w.kill(away);
            w.run_until("it is away", |w| !w.map.is_up(OsdId(away as i32)));
            assert!(content(&mut w, "o") == model, "osd.{away} is away");
            w.start(away);
        }
    }
    repair_everything(&mut w);
    assert!(content(&mut w, "o") == model);
}

#[test]
fn writes_while_a_member_is_away_reach_it_when_it_returns() {
    let mut rng = Rng::new(4);
    for away in 0..3 {
        let mut w = erasure(away as u64, 3, 2, 1, 1);
        let mut model = bytes(&mut rng, 20_000);
        w.run_ops("o", vec![Op::WriteFull { data: model.clone().into() }]);
        w.run_ops("gone", write("x"));
        w.kill(away);
        for _ in 0..5 {
            let (at, data) = (rng.below(15_000), bytes(&mut rng, 3000));
            model[at as usize..at as usize + 3000].copy_from_slice(&data);
            assert_eq!(w.run_ops("o", write_at(at, data)).result, 0);
        }
        w.run_ops("gone", vec![Op::Delete]);
        w.run_ops("new", write("y"));
        w.start(away);
        w.run_until("clean", World::all_clean);
        for other in (0..3).filter(|other| *other != away) {
            w.kill(other);
            w.run_until("it is away", |w| !w.map.is_up(OsdId(other as i32)));
            assert!(content(&mut w, "o") == model, "without osd.{other}");
            assert_eq!(content(&mut w, "new"), b"y");
            assert_eq!(w.run_ops("gone", read()).result, -2);
            w.start(other);
            w.run_until("clean", World::all_clean);
        }
    }
}

#[test]
fn snapshots_keep_what_was() {
    let mut rng = Rng::new(9);
    let mut w = erasure(6, 4, 2, 2, 1);
    let first = bytes(&mut rng, 20_000);
    w.run_ops("o", vec![Op::WriteFull { data: first.clone().into() }]);
    w.write_under(1, &[1]);
    let mut second = first.clone();
    second[5000..9000].fill(7);
    w.run_ops("o", write_at(5000, vec![7; 4000]));
    assert!(content(&mut w, "o") == second);
    let at_first = w.run_at(SnapId(1), "o", read()).ops[0].data.clone();
    assert!(at_first == first);
    w.kill(0);
    w.run_until("it is away", |w| !w.map.is_up(OsdId(0)));
    assert_eq!(w.run_ops("o", vec![Op::Rollback { snap: SnapId(1) }]).result, 0);
    assert!(content(&mut w, "o") == first);
    w.start(0);
    w.run_until("clean", World::all_clean);
    w.remove_snap(1);
    w.write_under(1, &[]);
    w.run_until("trimmed", |w| w.is_trimmed(1));
    assert!(content(&mut w, "o") == first);
}

#[test]
fn omap_is_refused_and_nothing_of_it_stored() {
    let mut w = erasure(7, 3, 2, 1, 1);
    let pairs = BTreeMap::from([("k".into(), Bytes::from("v"))]);
    assert_eq!(w.run_ops("o", vec![Op::OmapSetVals(pairs)]).result, -95);
    assert_eq!(w.run_ops("o", vec![Op::OmapClear]).result, -95);
    assert_eq!(w.run_ops("o", read()).result, -2);
}

#[test]
fn a_shard_moves_to_another_osd_and_an_osd_keeps_its_shard() {
    let mut rng = Rng::new(10);
    let mut w = erasure(8, 4, 2, 1, 1);
    let data = bytes(&mut rng, 25_000);
    w.run_ops("o", vec![Op::WriteFull { data: data.clone().into() }]);
    for placed in [[0, 1, 3], [3, 0, 1], [2, 3, 1], [1, 2, 0]] {
        w.place(vec![(0, placed.map(OsdId).into())]);
        w.run_for(Duration::from_millis(500));
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(5));
        assert!(content(&mut w, "o") == data, "{placed:?}");
        let acting = w.map.pg_to_up_acting(w.map.pgs(POOL).next().unwrap()).acting;
        let mut members: Vec<i32> = acting.iter().map(|osd| osd.0).collect();
        members.sort_unstable();
        let mut wanted = placed.to_vec();
        wanted.sort_unstable();
        assert_eq!(members, wanted);
    }
}

/// What another OSD has only begun to get is deleted nowhere else, whether CRUSH wants the old holder as
/// another member or not at all.
#[test]
fn a_shard_stays_until_another_osd_has_all_of_it() {
    let mut rng = Rng::new(12);
    for placed in [[0, 2, 3], [0, 1, 3]] {
        let mut w = erasure(10, 4, 2, 1, 1);
        let data = bytes(&mut rng, 20_000);
        w.run_ops("o", vec![Op::WriteFull { data: data.clone().into() }]);
        let set_norecover = |w: &mut World, on: bool| {
            let flag = map_flags::NORECOVER;
            w.change(|map, inc| inc.new_flags = Some(if on { map.flags | flag } else { map.flags & !flag }));
        };
        set_norecover(&mut w, true);
        let is_active = |w: &World| {
            let pg = w.map.pgs(POOL).next().unwrap();
            w.records.get(&pg).is_some_and(|record| record.acting == w.map.pg_to_up_acting(pg).acting)
        };
        // osd.3 comes for osd.2, and gets nothing.
        w.kill(2);
        w.run_until("it is away", |w| !w.map.is_up(OsdId(2)));
        w.place(vec![(0, [0, 1, 3].map(OsdId).into())]);
        w.run_for(Duration::from_secs(3));
        w.run_until("active", is_active);
        w.kill(1);
        w.run_until("it is away", |w| !w.map.is_up(OsdId(1)));
        w.place(vec![(0, placed.map(OsdId).into())]);
        w.run_for(Duration::from_secs(3));
        w.run_until("active", is_active);
        w.start(2);
        assert!(content(&mut w, "o") == data, "{placed:?}");
        set_norecover(&mut w, false);
        w.start(1);
        w.run_until("clean", World::all_clean);
        assert!(content(&mut w, "o") == data, "{placed:?}");
    }
}

/// As `super::torture`, with bytes at any places of objects.
fn torture(seed: u64, (k, m): (u8, u8), rounds: u32) {
    let osds = usize::from(k + m) + 1;
    let mut w = erasure(seed, osds, k, m, 2);
    let mut rng = Rng::new(seed ^ 0xec);
    let names = ["a", "b", "c", "d"];
    let mut model: BTreeMap<&str, Vec<u8>> = names.iter().map(|name| (*name, Vec::new())).collect();
    let mut outstanding: BTreeMap<&str, (u64, Option<Vec<u8>>)> = BTreeMap::new();
    for _ in 0..rounds {
        for name in names {
            if let Some((tid, after)) = outstanding.get(name).cloned() {
                let Some(reply) = w.replies.remove(&tid) else { continue };
                outstanding.remove(name);
                match after {
                    Some(after) => {
                        assert!(reply.result == 0 || reply.result == -2, "seed {seed}: {name}");
                        model.insert(name, after);
                    }
                    None => assert!(reply.ops[0].data == model[name], "seed {seed}: read of {name}"),
                }
            }
            let mut after = model[name].clone();
            let (at, len) = (rng.below(40_000) as usize, 1 + rng.below(5000) as usize);
            let ops = match rng.below(8) {
                0 => {
                    after.clear();
                    vec![Op::Delete]
                }
                1 => {
                    let data = bytes(&mut rng, len as u64);
                    after = data.clone();
                    vec![Op::WriteFull { data: data.into() }]
                }
                2..=4 => {
                    let data = bytes(&mut rng, len as u64);
                    after.resize(after.len().max(at + len), 0);
                    after[at..at + len].copy_from_slice(&data);
                    write_at(at as u64, data)
                }
                _ => {
                    let tid = w.submit(name, read());
                    outstanding.insert(name, (tid, None));
                    continue;
                }
            };
            let tid = w.submit(name, ops);
            outstanding.insert(name, (tid, Some(after)));
        }
        break_something(&mut w, &mut rng);
        w.run_for(rng.duration(Duration::from_millis(1), Duration::from_millis(600)));
    }
    repair_everything(&mut w);
    for (name, (tid, after)) in outstanding {
        w.reply(tid);
        model.extend(after.map(|after| (name, after)));
    }
    for (name, expected) in model {
        let reply = w.run_ops(name, read());
        assert!(reply.ops[0].data == expected, "seed {seed}: {name} at the end");
    }
    w.run_until("nothing is kept for undo", |w| undo_copies(w) == 0);
}

#[test]
fn no_acknowledged_bytes_are_lost_under_random_faults() {
    for seed in seeds(6) {
        torture(seed, [(2, 1), (2, 2), (3, 2)][seed as usize % 3], 40);
    }
}

#[test]
fn gathered_bytes_are_limited() {
    let mut rng = Rng::new(11);
    let mut w = erasure(9, 3, 2, 1, 1);
    let data = bytes(&mut rng, 40_000);
    for n in 0..4 {
        w.run_ops(&format!("o{n}"), vec![Op::WriteFull { data: data.clone().into() }]);
    }
    w.kill(0);
    w.run_until("it is away", |w| !w.map.is_up(OsdId(0)));
    // More than a placement group gathers at a time, which it checks after every event.
    let reads: Vec<u64> = (0..12).map(|n| w.submit(&format!("o{}", n % 4), read())).collect();
    for read in reads {
        assert!(w.reply(read).ops[0].data == data);
    }
}

#[test]
fn a_slow_disk_does_not_set_how_long_reads_take() {
    let mut rng = Rng::new(13);
    for slow in 0..3 {
        let mut w = erasure(14, 3, 2, 1, 1);
        let data = bytes(&mut rng, 30_000);
        w.run_ops("o", vec![Op::WriteFull { data: data.clone().into() }]);
        w.tally.slow_reads.insert(slow, Duration::from_secs(5));
        for _ in 0..20 {
            let begun = w.now;
            assert!(content(&mut w, "o") == data);
            let took = w.now.since(begun);
            assert!(took < Duration::from_millis(200), "osd.{slow} is slow, and a read took {took:?}");
        }
        // Also what is written in part.
        let begun = w.now;
        assert_eq!(w.run_ops("o", write_at(9000, vec![1; 500])).result, 0);
        assert!(w.now.since(begun) < Duration::from_millis(300), "osd.{slow} is slow");
    }
}

#[test]
fn with_fast_read_what_comes_first_counts() {
    let mut rng = Rng::new(15);
    let mut w = erasure(16, 5, 3, 2, 1);
    let data = bytes(&mut rng, 50_000);
    w.run_ops("o", vec![Op::WriteFull { data: data.clone().into() }]);
    let mut pool = w.map.pool(POOL).unwrap().clone();
    pool.fast_read = true;
    w.change(|_, inc| drop(inc.new_pools.insert(POOL, pool.into())));
    w.run_for(Duration::from_secs(1));
    for slow in [[0, 1], [1, 2], [0, 3], [3, 4]] {
        w.tally.slow_reads = slow.into_iter().map(|node| (node, Duration::from_secs(5))).collect();
        let begun = w.now;
        assert!(content(&mut w, "o") == data);
        let took = w.now.since(begun);
        assert!(took < Duration::from_millis(100), "{slow:?} are slow, and a read took {took:?}");
    }
    // Fewer than all.
    w.tally.slow_reads.clear();
    w.kill(1);
    w.run_until("it is away", |w| !w.map.is_up(OsdId(1)));
    assert!(content(&mut w, "o") == data);
}

/// A byte of a shard becomes another, and its disk does not notice.
fn corrupt_shard(w: &mut World, node: usize) {
    w.corrupt(node, |store| {
        let is_shard = |id: &StoredId| matches!(id, StoredId::Shard(ShardId(0..64), _));
        let (_, record) = store.records.iter_mut().find(|(id, _)| is_shard(id)).unwrap();
        record.data[5000] ^= 3;
    });
}

#[test]
fn deep_scrub_finds_shards_that_do_not_fit_together_and_repair_those_that_it_can_tell() {
    let mut rng = Rng::new(17);
    for node in 0..4 {
        let mut w = erasure(18, 4, 2, 2, 1);
        let data = bytes(&mut rng, 30_000);
        w.run_ops("o", vec![Op::WriteFull { data: data.clone().into() }]);
        assert_eq!(scrub(&mut w, true, false).scrub.errors(), 0);
        corrupt_shard(&mut w, node);
        assert_eq!(scrub(&mut w, false, false).scrub.errors(), 0, "metadata is as it was");
        assert_eq!(scrub(&mut w, true, false).scrub.deep_errors, 1, "osd.{node}");
        assert_eq!(listed(&mut w, false), 1);
        assert_eq!(scrub(&mut w, true, true).scrub.errors(), 0, "osd.{node}");
        w.run_until("clean", World::all_clean);
        assert_eq!(scrub(&mut w, true, false).scrub.errors(), 0);
        assert!(content(&mut w, "o") == data, "osd.{node}");
        super::parity_deltas::assert_parity(&w, (2, 2), "after a repair");
    }
}

#[test]
fn with_one_parity_a_shard_that_does_not_fit_is_reported_and_none_is_replaced() {
    let mut rng = Rng::new(19);
    let mut w = erasure(20, 3, 2, 1, 1);
    w.run_ops("o", vec![Op::WriteFull { data: bytes(&mut rng, 30_000).into() }]);
    corrupt_shard(&mut w, 1);
    let before = w.nodes[1].view.records.clone();
    assert_eq!(scrub(&mut w, true, true).scrub.deep_errors, 1);
    assert_eq!(listed(&mut w, false), 1);
    let is_shard = |(id, _): &(&StoredId, &super::store::MemRecord)| matches!(id, StoredId::Shard(..));
    assert!(w.nodes[1].view.records.iter().filter(is_shard).eq(before.iter().filter(is_shard)));
}

#[test]
fn a_shard_that_lost_its_end_is_not_read() {
    let mut rng = Rng::new(21);
    for node in 0..3 {
        let mut w = erasure(22, 3, 2, 1, 1);
        let data = bytes(&mut rng, 30_000);
        w.run_ops("o", vec![Op::WriteFull { data: data.clone().into() }]);
        w.run_for(Duration::from_secs(1));
        w.corrupt(node, |store| {
            let shards = store.records.iter_mut().filter(|(id, _)| matches!(id, StoredId::Shard(..)));
            shards.for_each(|(_, record)| record.data.truncate(3000));
        });
        assert!(content(&mut w, "o") == data, "osd.{node}");
        assert_eq!(scrub(&mut w, true, true).scrub.errors(), 0, "osd.{node}");
        w.run_until("clean", World::all_clean);
        super::parity_deltas::assert_parity(&w, (2, 1), "after a repair");
        assert!(content(&mut w, "o") == data, "osd.{node}");
    }
}

#[test]
fn a_placement_group_serves_with_min_size_shards_and_waits_with_fewer() {
    let mut rng = Rng::new(23);
    for (k, m, down) in [(2, 1, 1), (2, 2, 1), (4, 2, 1)] {
        let n = usize::from(k + m);
        let mut w = World::new(24, n, k + m, if m > 1 { k + 1 } else { k }, 1);
        w.make_erasure(k, m);
        w.run_until("clean", World::all_clean);
        let data = bytes(&mut rng, 20_000);
        w.run_ops("o", vec![Op::WriteFull { data: data.clone().into() }]);
        (0..down).for_each(|node| w.kill(node));
        assert!(content(&mut w, "o") == data, "{k}+{m} without {down}");
        assert_eq!(w.run_ops("o", write_at(100, vec![1; 10])).result, 0);
        w.kill(down);
        w.run_for(Duration::from_secs(20));
        // Neither data nor "no such object".
        let waits = w.submit("o", read());
        let gone = w.submit("gone", read());
        w.run_for(Duration::from_secs(30));
        assert!(!w.replies.contains_key(&waits) && !w.replies.contains_key(&gone), "{k}+{m}");
        w.start(down);
        assert_eq!(w.reply(waits).ops[0].data[200..], data[200..]);
        assert_eq!(w.reply(gone).result, -2);
    }
}
