//! Small overwrites of erasure-coded objects: what they cost, and what remains of them when only some members
//! have them.

use super::erasure::{bytes, content, erasure, write_at};
use super::undo::undo_copies;
use super::world::{POOL, World};
use nacre_base::{OsdId, Rng, ShardId};
use nacre_erasure::code::Code;
use nacre_proto::messages::DaemonMsg;
use nacre_proto::transaction::StoredId;
use nacre_proto::types::{ObjectId, Op, cluster_format};
use std::collections::BTreeMap;
use std::time::Duration;

/// Parity on all disks is that of the data, in each object.
pub(super) fn assert_parity(w: &World, (k, m): (u8, u8), what: &str) {
    let code = Code::reed_solomon(k.into(), m.into());
    let mut objects: BTreeMap<&ObjectId, BTreeMap<usize, &[u8]>> = BTreeMap::new();
    for node in &w.nodes {
        for (id, record) in &node.view.records {
            if let StoredId::Shard(ShardId(shard @ 0..64), object) = id {
                objects.entry(object).or_default().insert(*shard as usize, &record.data);
            }
        }
    }
    for (object, shards) in objects {
        assert_eq!(shards.len(), code.shards(), "{what}: {object}");
        let data: Vec<&[u8]> = (0..code.data_shards()).map(|part| shards[&code.data_shard(part)]).collect();
        for shard in code.parities() {
            let mut parity = vec![0; data[0].len()];
            code.encode(&data, shard, &mut parity);
            assert!(shards[&shard] == parity, "{what}: shard {shard} of {object} is not its parity");
        }
    }
}
fn acting(w: &World) -> Vec<usize> {
    let pg = w.map.pgs(POOL).next().unwrap();
    w.map.pg_to_up_acting(pg).acting.iter().map(|osd| osd.index()).collect()
}

#[test]
fn small_overwrite_reads_once_and_never_parity_and_sends_data_to_one_shard_and_parity() {
    let mut w = erasure(1, 6, 4, 2, 1);
    w.run_ops("o", vec![Op::WriteFull { data: vec![1; 64 << 10].into() }]);
    w.run_for(Duration::from_secs(2));
    for n in 0..16_u64 {
        w.tally = Default::default();
        w.sent.clear();
        assert_eq!(w.run_ops("o", write_at(n * 4096, vec![n as u8 + 2; 4096])).result, 0);
        let parities = &acting(&w)[4..];
        let reads_of_parity: usize = parities.iter().filter_map(|osd| w.tally.reads.get(osd)).sum();
        assert_eq!(reads_of_parity, 0, "before the reply");
        assert!(w.tally.reads.values().sum::<usize>() <= 1, "{n}: {:?}", w.tally);
        assert_eq!(w.tally.stored_with_data, 3, "{n}: the shard that changes, and parity");
        assert!(w.sent.values().sum::<usize>() <= 2 * 5 + 2, "{n}: messages between members");
        w.run_for(Duration::from_secs(1));
        assert_parity(&w, (4, 2), "after a write");
    }
    // All of its columns: nothing is read.
    w.tally = Default::default();
    let all = (0..64 << 10).map(|at| (at / 1000) as u8 + 1).collect();
    w.run_ops("o", write_at(0, all));
    assert_eq!((w.tally.reads.values().sum::<usize>(), w.tally.stored_with_data), (0, 6));
}

#[test]
fn small_overwrite_with_two_data_shards_reads_on_the_primary_only() {
    let mut w = erasure(2, 3, 2, 1, 1);
    w.run_ops("o", vec![Op::WriteFull { data: vec![1; 32 << 10].into() }]);
    w.run_for(Duration::from_secs(2));
    let primary = acting(&w)[0];
    for n in 0..8_u64 {
        w.tally = Default::default();
        assert_eq!(w.run_ops("o", write_at(n * 4096, vec![n as u8 + 2; 4096])).result, 0);
        assert_eq!(w.tally.reads, BTreeMap::from([(primary, 1)]), "{n}");
        assert_eq!(w.tally.stored_with_data, 2);
    }
    w.run_for(Duration::from_secs(1));
    assert_parity(&w, (2, 1), "at the end");
}

/// OSDs of format 2 do not know differences.
#[test]
fn parity_is_written_whole_until_the_cluster_has_the_format_for_differences() {
    let mut w = World::new(4, 6, 6, 5, 1);
    w.make_erasure(4, 2);
    w.format = Some(cluster_format::PARITY_DELTAS - 1);
    w.run_until("clean", World::all_clean);
    w.run_ops("o", vec![Op::WriteFull { data: vec![1; 64 << 10].into() }]);
    assert_eq!(w.run_ops("o", write_at(4096, vec![2; 4096])).result, 0);
    assert_eq!(w.tally.xors, 0);
    w.tell_osds(|| DaemonMsg::Format { format: cluster_format::PARITY_DELTAS }.into());
    w.run_for(Duration::from_secs(1));
    assert_eq!(w.run_ops("o", write_at(8192, vec![3; 4096])).result, 0);
    assert_eq!(w.tally.xors, 2);
    w.run_for(Duration::from_secs(1));
    assert_parity(&w, (4, 2), "at the end");
}

#[test]
fn small_object_takes_one_block_of_data_and_one_for_each_parity() {
    let mut w = erasure(3, 6, 4, 2, 1);
    w.run_ops("o", vec![Op::WriteFull { data: vec![7; 4096].into() }]);
    w.run_for(Duration::from_secs(1));
    let has_data = |record: &&super::store::MemRecord| record.data.iter().any(|byte| *byte != 0);
    let shards = w.nodes.iter().flat_map(|node| &node.view.records);
    let shards = shards.filter(|(id, _)| matches!(id, StoredId::Shard(..))).map(|(_, record)| record);
    assert_eq!(shards.filter(has_data).count(), 3);
}

#[test]
fn random_small_writes_leave_the_parity_of_the_data_while_members_come_and_go() {
    for (seed, (k, m)) in [(1, (2, 1)), (2, (4, 2)), (3, (3, 2))] {
        let mut rng = Rng::new(seed);
        let osds = usize::from(k + m);
        let mut w = erasure(seed, osds, k, m, 1);
        let mut model = bytes(&mut rng, 60_000);
        w.run_ops("o", vec![Op::WriteFull { data: model.clone().into() }]);
        for round in 0..60 {
            if round % 20 == 10 {
                w.run_until("clean", World::all_clean);
                let away = rng.below(osds as u64) as usize;
                w.kill(away);
                w.run_until("it is away", |w| !w.map.is_up(OsdId(away as i32)));
            }
            if round % 20 == 17 {
                (0..osds)
                    .filter(|osd| !w.is_running(*osd))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|osd| w.start(osd));
            }
            let (at, len) = (rng.below(61_000) as usize, 1 + rng.below(6000) as usize);
            let data = bytes(&mut rng, len as u64);
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].copy_from_slice(&data);
            assert_eq!(w.run_ops("o", write_at(at as u64, data)).result, 0);
        }
        w.run_until("clean", World::all_clean);
        assert!(w.tally.xors > 0, "no parity was changed by a difference");
        assert!(content(&mut w, "o") == model);
        assert_parity(&w, (k, m), "at the end");
    }
}

/// Of objects that are torn: some blocks of each shard stay as they are, so that copies for undo are partial.
const SIZE: usize = 60_000;

/// Two writes, of which each member has none, the first or both (`has`) when all of them stop. Some come back
/// (`back`), then the others.
fn tear(seed: u64, (k, m): (u8, u8), has: &[u8], back: &[usize]) {
    let what = format!("{k}+{m}, members with {has:?} writes, {back:?} come back first");
    let osds = has.len();
    let mut w = erasure(seed, osds, k, m, 1);
    for name in ["a", "b"] {
        w.run_ops(name, vec![Op::WriteFull { data: vec![1; SIZE].into() }]);
    }
    w.run_for(Duration::from_secs(1));
    let mut writes = Vec::new();
    for (n, name) in ["a", "b"].into_iter().enumerate() {
        let slow = (0..osds).filter(|osd| usize::from(has[*osd]) == n);
        slow.for_each(|osd| w.slow_disk(osd, Duration::from_secs(50)));
        writes.push(w.submit(name, write_at(3000, vec![2; 1500])));
        w.run_for(Duration::from_millis(25));
    }
    for osd in 0..osds {
        w.kill(osd);
        w.slow_disk(osd, Duration::ZERO);
    }
    back.iter().for_each(|osd| w.start(*osd));
    // Fewer than `min_size` peer and do not serve.
    let serves = back.len() >= usize::from(k) + usize::from(m > 1);
    if !serves {
        w.run_for(Duration::from_secs(3));
        (0..osds).filter(|osd| !back.contains(osd)).for_each(|osd| w.start(osd));
    }
    let mut expected = vec![1; SIZE];
    expected[3000..4500].fill(2);
    for (name, write) in ["a", "b"].into_iter().zip(writes) {
        assert_eq!(w.reply(write).result, 0, "{what}");
        assert!(content(&mut w, name) == expected, "{what}: {name}");
    }
    (0..osds).filter(|osd| serves && !back.contains(osd)).for_each(|osd| w.start(osd));
    w.run_until("clean", World::all_clean);
    w.run_until("nothing is kept for undo", |w| undo_copies(w) == 0);
    for name in ["a", "b"] {
        assert!(content(&mut w, name) == expected, "{what}: {name} with all");
    }
    assert_parity(&w, (k, m), &what);
}
/// All sets of members of which at least `k` come back. Every third case; all of them with `SEEDS` in the
/// environment.
fn tear_all((k, m): (u8, u8), states: u32) {
    let osds = u32::from(k + m);
    let is_whole = std::env::var("SEEDS").is_ok();
    for torn in 0..states.pow(osds) {
        let has: Vec<u8> = (0..osds).map(|osd| (torn / states.pow(osd) % states) as u8).collect();
        let is_due = |back: &u32| is_whole || (torn + back).is_multiple_of(3);
        for back in (0_u32..1 << osds).filter(|back| back.count_ones() >= u32::from(k)).filter(is_due) {
            let back: Vec<usize> = (0..osds as usize).filter(|osd| back & (1 << osd) != 0).collect();
            tear(u64::from(torn), (k, m), &has, &back);
        }
    }
}

#[test]
fn writes_torn_at_any_place_with_any_survivors_of_two_and_one_lose_nothing() {
    tear_all((2, 1), 3);
}
#[test]
fn writes_torn_at_any_place_with_any_survivors_of_two_and_two_lose_nothing() {
    tear_all((2, 2), 2);
}
