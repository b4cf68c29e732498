//! Data that clones of an object share is sent to a member once.

use super::world::World;
use super::{read, repair_everything, write};
use bytes::Bytes;
use nacre_base::{IntervalSet, OsdId, Rng, SnapId};
use nacre_proto::transaction::StoredId;
use nacre_proto::types::{Extent, Op};
use std::time::Duration;

const BLOCK: usize = 4096;

fn blocks(at: usize, count: usize, byte: u8) -> Vec<Op> {
    let len = count * BLOCK;
    vec![Op::Write {
        extent: Extent::new((at * BLOCK) as u64, len as u64),
        data: Bytes::from(vec![byte; len]),
    }]
}
fn snap(w: &mut World, seq: u64) {
    w.write_under(seq, &(1..=seq).rev().collect::<Vec<_>>());
}
fn move_to(w: &mut World, osds: [i32; 3]) {
    w.place(vec![(0, osds.map(OsdId).into())]);
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
}
/// Asserts that the metadata of this many objects was sent, and no omap keys.
fn with_metadata(blocks: usize, objects: usize) -> u64 {
    (blocks * BLOCK + objects * 500) as u64
}

#[test]
fn new_member_gets_an_object_and_its_clones_once() {
    let mut w = World::new(1, 4, 3, 2, 1);
    w.run_ops("a", blocks(0, 6, 1));
    for seq in 1..6 {
        snap(&mut w, seq);
        w.run_ops("a", blocks(seq as usize, 1, 10 + seq as u8));
    }
    w.run_ops("a", vec![Op::Rollback { snap: SnapId(2) }]);
    move_to(&mut w, [0, 1, 3]);
    // The first clone, for each newer one what was written in between, and for the head what was undone.
    assert!(w.recovered_bytes() < with_metadata(6 + 4 + 4, 7), "{}", w.recovered_bytes());
    for seq in 1..6 {
        let seen = w.run_at(SnapId(seq), "a", read()).ops[0].data.clone();
        let written: Vec<u8> = (0..6).map(|at| if at > 0 && at < seq as u8 { 10 + at } else { 1 }).collect();
        assert_eq!((0..6).map(|at| seen[at * BLOCK]).collect::<Vec<_>>(), written, "at {seq}");
    }
}

#[test]
fn data_before_a_snapshot_is_sent_once_for_adjacent_clones() {
    for victim in 0..3 {
        let mut w = World::new(2, 3, 3, 2, 1);
        w.run_ops("a", blocks(0, 6, 1));
        w.run_until("clean", World::all_clean);
        w.kill(victim);
        for seq in 1..5 {
            w.run_ops("a", blocks(seq as usize, 1, 10 + seq as u8));
            snap(&mut w, seq);
        }
        w.run_ops("a", blocks(5, 1, 20));
        // Uncommitted writes are pushed first, to every member; only the last writes are uncommitted.
        (0..4).for_each(|_| drop(w.run_ops("b", vec![Op::Create { exclusive: false }])));
        w.start(victim);
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
        assert!(w.recovered_bytes() < with_metadata(5, 7), "osd.{victim}: {}", w.recovered_bytes());
    }
}

#[test]
fn ranges_missing_in_a_clone_are_sent() {
    let mut w = World::new(3, 4, 3, 2, 1);
    w.run_ops("a", blocks(0, 4, 1));
    snap(&mut w, 1);
    w.run_ops("a", blocks(2, 1, 2));
    w.run_until("clean", World::all_clean);
    w.place(vec![(0, [0, 1, 3].map(OsdId).into())]);
    // The clone was recovered, and the device loses it before the head.
    let is_clone = |id: &StoredId| matches!(id, StoredId::Object(o) if o.snap != SnapId::HEAD);
    let has_clone = |w: &World| {
        let of = w.nodes[3].view.records.iter().filter(|(id, _)| is_clone(id));
        of.map(|(_, record)| record.data.len()).sum::<usize>() == 4 * BLOCK
            && w.nodes[3]
                .view
                .records
                .iter()
                .any(|(id, record)| is_clone(id) && record.data[4 * BLOCK - 1] == 1)
    };
    w.run_until("the clone is there", has_clone);
    w.corrupt(3, |store| store.records.retain(|id, _| !is_clone(id)));
    w.run_until("clean", World::all_clean);
    assert_eq!(w.run_ops("a", read()).ops[0].data.len(), 4 * BLOCK);
    let head = |node: usize| w.nodes[node].view.objects().find(|(o, _)| o.snap == SnapId::HEAD).unwrap().1;
    assert!(head(3) == head(0), "they differ");
}

/// A device loses this block of the objects that have it, as it shows when the OSD starts. Gives how many.
fn lose_blocks(w: &mut World, node: usize, block: usize, of: impl Fn(SnapId) -> bool) -> usize {
    let disk = &mut w.nodes[node].disk;
    let is_lost = |id: &StoredId, len: usize| {
        matches!(id, StoredId::Object(object) if of(object.snap)) && len > block * BLOCK
    };
    let records = disk.records.iter_mut().filter(|(id, record)| is_lost(id, record.data.len()));
    let lost: Vec<(StoredId, u64)> = records
        .map(|(id, record)| {
            record.data[block * BLOCK..].iter_mut().take(BLOCK).for_each(|byte| *byte = 9);
            (id.clone(), block as u64)
        })
        .collect();
    disk.bad.extend(lost.iter().map(|lost| (lost.clone(), IntervalSet::new())));
    disk.lost.blocks = lost.into_iter().collect();
    disk.lost.blocks.len()
}

/// A member that is down at that time has the data only under the clone's name.
#[test]
fn head_is_not_cloned_while_no_member_is_complete() {
    let mut w = World::new(4, 3, 3, 2, 1);
    w.allow_errors = true;
    w.run_ops("a", blocks(0, 3, 1));
    snap(&mut w, 1);
    w.run_ops("a", blocks(0, 3, 2));
    // Uncommitted writes are pushed to every member first; these writes make those before them committed.
    (0..4).for_each(|_| drop(w.run_ops("b", vec![Op::Create { exclusive: false }])));
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    w.kill(2);
    w.run_until("it is away", |w| !w.map.is_up(OsdId(2)));
    for node in 0..2 {
        w.kill(node);
        assert_eq!(lose_blocks(&mut w, node, 1, |snap| snap != SnapId::HEAD), 1);
        w.start(node);
    }
    let waits = w.submit("a", vec![Op::Rollback { snap: SnapId(1) }]);
    w.run_for(Duration::from_secs(20));
    assert!(!w.replies.contains_key(&waits));
    w.start(2);
    assert_eq!(w.reply(waits).result, 0);
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
    assert_eq!(w.run_ops("a", read()).ops[0].data, vec![1; 3 * BLOCK]);
}

/// Only one name on one device still holds the last block, of which clones share only a part.
#[test]
fn range_is_recovered_from_an_older_clone_that_shares_it() {
    for has in 0..2 {
        let mut w = World::new(4, 2, 2, 1, 1);
        w.allow_errors = true;
        let text = "0123456789".repeat(1000);
        w.run_ops("a", write(&text));
        for seq in 1..3 {
            snap(&mut w, seq);
            w.run_ops("a", blocks(0, 1, seq as u8));
        }
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        for node in 0..2 {
            w.kill(node);
            let of = |snap: SnapId| node != has || snap != SnapId(1);
            assert_eq!(lose_blocks(&mut w, node, 2, of), if node == has { 2 } else { 3 });
        }
        (0..2).for_each(|node| w.start(node));
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
        for snap in [SnapId(1), SnapId(2), SnapId::HEAD] {
            let seen = w.run_at(snap, "a", read()).ops[0].data.clone();
            assert_eq!(seen[BLOCK..], text.as_bytes()[BLOCK..], "osd.{has} has it, at {snap}");
        }
    }
}

/// Heads that are written, cut, rolled back and deleted under snapshots, while members change and die.
#[test]
fn replicas_are_equal_whatever_clones_share() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let mut w = World::new(seed, 4, 3, 2, 1);
        let mut seq = 0;
        for round in 0..6 {
            let away = rng.chance(500).then(|| rng.below(3) as usize);
            away.iter().for_each(|node| w.kill(*node));
            for _ in 0..8 {
                if rng.chance(300) {
                    seq += 1;
                    snap(&mut w, seq);
                }
                let name = ["a", "b"][rng.below(2) as usize];
                let ops = match rng.below(8) {
                    0 => vec![Op::Truncate {
                        size: rng.below(4 * BLOCK as u64),
                        truncate_size: 0,
                        truncate_seq: 0,
                    }],
                    1 if seq > 0 => vec![Op::Rollback { snap: SnapId(1 + rng.below(seq)) }],
                    2 => vec![Op::Delete],
                    3 => vec![Op::Zero { off: rng.below(9000), len: 1 + rng.below(9000) }],
                    4 | 5 => {
                        let data = Bytes::from(vec![rng.below(256) as u8; 1 + rng.below(6000) as usize]);
                        vec![Op::Write { extent: Extent::new(rng.below(9000), data.len() as u64), data }]
                    }
                    _ => blocks(rng.below(3) as usize, 1 + rng.below(2) as usize, rng.below(256) as u8),
                };
                w.run_ops(name, ops);
            }
            repair_everything(&mut w);
            let members = [[0, 1, 3], [3, 2, 1], [0, 1, 2], [2, 3, 0]][round % 4];
            w.place(vec![(0, members.map(OsdId).into())]);
            w.run_for(Duration::from_millis(rng.below(30)));
            if rng.chance(300) {
                let one = rng.below(4) as usize;
                w.kill(one);
                w.run_for(Duration::from_millis(rng.below(50)));
                w.start(one);
            }
            repair_everything(&mut w);
            w.assert_replicas_equal();
        }
    }
}
