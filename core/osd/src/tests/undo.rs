//! What members of erasure-coded placement groups keep for undoing writes, and for how long.

use super::erasure::{content, erasure, write_at};
use super::world::{POOL, World};
use nacre_base::ShardId;
use nacre_proto::messages::DaemonMsg;
use nacre_proto::transaction::StoredId;
use nacre_proto::types::{Op, cluster_format};
use std::collections::BTreeMap;
use std::time::Duration;

fn is_undo(id: &&StoredId) -> bool {
    matches!(id, StoredId::Shard(ShardId(64..), _))
}
/// What is stored for undoing writes, on all disks.
pub(super) fn undo_copies(w: &World) -> usize {
    let running = w.nodes.iter().filter(|node| node.osd.is_some());
    running.map(|node| node.view.records.keys().filter(is_undo).count()).sum()
}

#[test]
fn what_only_some_members_have_is_taken_back() {
    for seed in 0..6 {
        let mut w = erasure(seed, 3, 2, 1, 1);
        w.run_ops("o", vec![Op::WriteFull { data: vec![1; 12_000].into() }]);
        w.run_for(Duration::from_secs(1));
        // The disk of one member is slow: it never has what the others have.
        w.slow_disk(seed as usize % 3, Duration::from_secs(50));
        let written = w.submit("o", write_at(2000, vec![2; 9000]));
        w.run_for(Duration::from_millis(20 + seed * 6));
        assert!(!w.replies.contains_key(&written), "not all members have it");
        (0..3).for_each(|node| w.kill(node));
        (0..3).for_each(|node| w.start(node));
        w.run_until("clean", World::all_clean);
        assert_eq!(w.reply(written).result, 0);
        let mut expected = vec![1; 12_000];
        expected[2000..11_000].fill(2);
        assert!(content(&mut w, "o") == expected);
    }
}

#[test]
fn a_small_write_copies_only_the_blocks_that_it_changes() {
    let mut w = erasure(3, 3, 2, 1, 1);
    w.run_ops("o", vec![Op::WriteFull { data: vec![1; 400 << 10].into() }]);
    w.run_for(Duration::from_secs(1));
    w.tally = Default::default();
    w.run_ops("o", write_at(20_000, vec![2; 4096]));
    // Of the data and of its parity. The third member only gets attributes.
    assert_eq!((w.tally.copied_whole, &*w.tally.copied_blocks), (0, &[2, 2][..]));
    w.tally = Default::default();
    w.run_ops("o", write_at(0, vec![3; 400 << 10]));
    assert_eq!((w.tally.copied_whole, &*w.tally.copied_blocks), (3, &[][..]));
}

/// OSDs of format 2 would take them for whole copies.
#[test]
fn copies_for_undo_are_whole_until_the_cluster_has_the_format_for_partial_ones() {
    let mut w = World::new(3, 3, 3, 2, 1);
    w.make_erasure(2, 1);
    w.format = Some(cluster_format::PARTIAL_UNDO - 1);
    w.run_until("clean", World::all_clean);
    w.run_ops("o", vec![Op::WriteFull { data: vec![1; 400 << 10].into() }]);
    w.tally = Default::default();
    w.run_ops("o", write_at(20_000, vec![2; 4096]));
    assert_eq!((w.tally.copied_whole, &*w.tally.copied_blocks), (3, &[][..]));
    w.tell_osds(|| DaemonMsg::Format { format: cluster_format::PARTIAL_UNDO }.into());
    w.run_for(Duration::from_secs(1));
    w.tally = Default::default();
    w.run_ops("o", write_at(20_000, vec![3; 4096]));
    assert_eq!((w.tally.copied_whole, &*w.tally.copied_blocks), (0, &[2, 2][..]));
}

/// Makes the copies from before some of the writes on a node undecodable, the newest being the first.
fn damage_copies(w: &mut World, node: usize, which: &[bool]) {
    w.corrupt(node, |store| {
        let ids: Vec<StoredId> = store.records.keys().filter(is_undo).rev().cloned().collect();
        assert_eq!(ids.len(), which.len());
        for id in ids.iter().zip(which).filter(|(_, is_damaged)| **is_damaged).map(|(id, _)| id) {
            let attrs = &mut store.records.get_mut(id).unwrap().attrs;
            attrs.insert("rest".into(), bytes::Bytes::from_static(b"?"));
        }
    });
}

#[test]
fn writes_are_taken_back_beside_a_member_whose_copies_cannot_be_decoded() {
    for which in [[true, false], [false, true], [true, true]] {
        let mut w = erasure(7, 3, 2, 1, 1);
        w.run_ops("o", vec![Op::WriteFull { data: vec![1; 60_000].into() }]);
        w.run_for(Duration::from_secs(1));
        w.slow_disk(2, Duration::from_secs(50));
        let first = w.submit("o", write_at(3000, vec![2; 1500]));
        w.run_for(Duration::from_millis(25));
        let second = w.submit("o", write_at(40_000, vec![3; 1500]));
        w.run_for(Duration::from_millis(25));
        (0..3).for_each(|node| w.kill(node));
        w.slow_disk(2, Duration::ZERO);
        damage_copies(&mut w, 0, &which);
        (0..3).for_each(|node| w.start(node));
        assert_eq!((w.reply(first).result, w.reply(second).result), (0, 0), "{which:?}");
        w.run_until("clean", World::all_clean);
        let mut expected = vec![1; 60_000];
        expected[3000..4500].fill(2);
        expected[40_000..41_500].fill(3);
        assert!(content(&mut w, "o") == expected, "{which:?}");
        w.run_until("nothing is kept for undo", |w| undo_copies(w) == 0);
        super::parity_deltas::assert_parity(&w, (2, 1), "at the end");
    }
}

#[test]
fn nothing_is_kept_for_undo_once_all_members_have_it() {
    let mut w = erasure(5, 3, 2, 1, 2);
    for n in 0..30 {
        w.run_ops(&format!("o{}", n % 5), write_at(n * 500, vec![n as u8 + 1; 700]));
    }
    w.run_until("nothing is kept for undo", |w| undo_copies(w) == 0);
}

#[test]
fn a_lost_session_does_not_leave_anything_for_undo() {
    let mut w = erasure(5, 3, 2, 1, 1);
    w.run_ops("o", write_at(0, vec![1; 700]));
    w.run_ops("o", write_at(0, vec![2; 700]));
    w.run_until("the primary keeps nothing, and told the others", |w| undo_copies(w) == 2);
    let pg = w.map.pgs(POOL).next().unwrap();
    let acting = w.map.pg_to_up_acting(pg).acting;
    for other in &acting[1..] {
        w.reset_between(acting[0].index(), other.index());
    }
    assert_eq!(undo_copies(&w), 2);
    w.run_until("nothing is kept for undo", |w| undo_copies(w) == 0);
    // They are told again, and have nothing to do.
    w.run_for(Duration::from_secs(5));
    w.stored.clear();
    for other in &acting[1..] {
        w.reset_between(acting[0].index(), other.index());
    }
    w.run_for(Duration::from_secs(5));
    assert_eq!(w.stored, BTreeMap::new());
}
