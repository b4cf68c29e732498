//! Members that were away for longer than the log reaches back.

use super::world::World;
use super::{append, read, repair_everything, write};
use bytes::Bytes;
use nacre_base::SnapId;
use nacre_proto::types::{Extent, Op};
use std::time::Duration;

fn write_at(off: u64, data: &'static str) -> Vec<Op> {
    vec![Op::Write { extent: Extent::new(off, data.len() as u64), data: Bytes::from_static(data.as_bytes()) }]
}

fn forget_counts(w: &mut World) {
    let nodes = w.nodes.len();
    (0..nodes).for_each(|node| w.kill(node));
    (0..nodes).for_each(|node| w.start(node));
    w.run_until("clean", World::all_clean);
    assert_eq!(w.recovered_bytes(), 0);
}

#[test]
fn member_behind_the_log_tail_gets_only_dirty_ranges() {
    for victim in 0..3 {
        let mut w = World::new(7, 3, 3, 2, 1);
        for name in ["a", "b", "c", "d", "e", "f"] {
            w.run_ops(name, write(&name.repeat(1000)));
        }
        forget_counts(&mut w);
        w.kill(victim);
        for round in 0..15 {
            w.run_ops("a", write_at(100 * (round % 3), "xyz"));
            w.run_ops("b", write_at(7 * round, "1234567"));
        }
        w.run_ops("c", vec![Op::Delete]);
        w.run_ops("d", vec![Op::Delete]);
        w.run_ops("d", write("new"));
        w.run_ops("e", append(" and more"));
        w.run_ops("g", write("made meanwhile"));
        // More writes, so that the log is trimmed past all that.
        (0..20).for_each(|n| drop(w.run_ops("a", write_at(n % 3, "q"))));
        w.start(victim);
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
        // 9 + 105 + 3 + 18 + 14 + 5 bytes of data, and the attributes of five objects.
        assert!(w.recovered_bytes() < 2500, "osd.{victim}: {}", w.recovered_bytes());
        assert_eq!(w.run_ops("c", read()).result, -2);
        assert_eq!(w.run_ops("d", read()).ops[0].data, "new");
    }
}

#[test]
fn member_that_dies_while_receiving_the_dirty_map_still_gets_only_dirty_ranges() {
    let mut w = World::new(8, 3, 3, 2, 1);
    let names: Vec<String> = (0..15).map(|n| format!("o{n}")).collect();
    names.iter().for_each(|name| drop(w.run_ops(name, write(&name.repeat(500)))));
    forget_counts(&mut w);
    w.kill(2);
    for pause in 1..12 {
        names.iter().for_each(|name| drop(w.run_ops(name, write_at(10 * pause, "change"))));
        w.start(2);
        w.run_for(Duration::from_millis(3 * pause));
        w.kill(2);
    }
    repair_everything(&mut w);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
    // 11 changes of 6 bytes to each of 15 objects, whose attributes came up to 12 times.
    assert!(w.recovered_bytes() < 15 * (66 + 12 * 150), "{}", w.recovered_bytes());
}

#[test]
fn oversized_dirty_map_is_dropped_for_an_inventory_scan() {
    let mut w = World::new(9, 3, 3, 2, 1);
    let names: Vec<String> = (0..40).map(|n| format!("o{n}")).collect();
    names.iter().for_each(|name| drop(w.run_ops(name, write(name))));
    forget_counts(&mut w);
    w.kill(1);
    names.iter().for_each(|name| drop(w.run_ops(name, write_at(1, "changed"))));
    w.start(1);
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
}

/// A page that could not be compared with what is here counted as done, and so did the whole scan.
#[test]
fn inventory_scan_waits_until_own_objects_can_be_listed() {
    let mut w = World::new(11, 3, 3, 2, 1);
    w.allow_errors = true;
    let names: Vec<String> = (0..40).map(|n| format!("o{n}")).collect();
    names.iter().for_each(|name| drop(w.run_ops(name, write(name))));
    forget_counts(&mut w);
    w.kill(1);
    names.iter().skip(1).for_each(|name| drop(w.run_ops(name, write_at(1, "changed"))));
    w.run_ops("o0", vec![Op::Delete]);
    w.corrupt(1, |store| store.walks_fail = true);
    w.start(1);
    w.run_for(Duration::from_secs(10));
    assert!(!w.all_clean(), "osd.1 cannot tell which objects it has");
    w.corrupt(1, |store| store.walks_fail = false);
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
}

/// A store that lost something may have lost what was committed: asking only for what changed since
/// would have left it lost.
#[test]
fn member_that_lost_transactions_scans_the_inventory() {
    let mut w = World::new(10, 3, 3, 2, 1);
    w.allow_errors = true;
    for name in ["a", "b", "c"] {
        w.run_ops(name, write("old"));
    }
    let old = w.nodes[1].disk.clone();
    for name in ["a", "b", "c", "d"] {
        w.run_ops(name, write("new"));
    }
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    w.kill(1);
    // The PG's record is complete, and two objects have their old content.
    for (id, record) in old.records.iter().filter(|(_, record)| record.data == b"old").take(2) {
        w.nodes[1].disk.records.insert(id.clone(), record.clone());
    }
    w.nodes[1].disk.lost.times = 1;
    (0..40).for_each(|n| drop(w.run_ops("c", write_at(n % 3, "q"))));
    w.start(1);
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
}

/// Clones that a member missed are made from its own data, whatever happens to the object afterwards.
#[test]
fn snapshots_taken_beyond_the_log_cost_no_copy() {
    for victim in 0..3 {
        let mut w = World::new(11, 3, 3, 2, 1);
        let names = ["changed", "deleted", "replaced", "rolled back", "kept"];
        names.iter().for_each(|name| drop(w.run_ops(name, write(&name.repeat(1000)))));
        // So that all of that is known to be committed.
        (0..8).for_each(|n| drop(w.run_ops("other", write_at(n, "w"))));
        forget_counts(&mut w);
        w.kill(victim);
        names.iter().for_each(|name| drop(w.run_ops(name, write_at(50, "before"))));
        w.write_under(1, &[1]);
        names.iter().for_each(|name| drop(w.run_ops(name, write_at(150, "between"))));
        w.write_under(2, &[2, 1]);
        names.iter().for_each(|name| drop(w.run_ops(name, write_at(250, "after"))));
        w.run_ops("deleted", vec![Op::Delete]);
        w.run_ops("replaced", vec![Op::Delete]);
        w.run_ops("replaced", write("new"));
        w.run_ops("rolled back", vec![Op::Rollback { snap: SnapId(2) }]);
        // All that is out of the log before long.
        (0..20).for_each(|n| drop(w.run_ops("other", write_at(n % 3, "q"))));
        w.start(victim);
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
        // Of 5 heads and 10 clones of 4 to 11 KB: at most 18 bytes of each, and attributes; but a head that
        // is rolled back comes whole.
        assert!(w.recovered_bytes() < 11_000 + 5000, "osd.{victim}: {}", w.recovered_bytes());
        for (snap, seen) in [(1, "before"), (2, "between")] {
            let at = 50 + 100 * (snap as usize - 1);
            for name in names {
                let data = w.run_at(SnapId(snap), name, read()).ops[0].data.clone();
                assert_eq!(&data[at..at + seen.len()], seen.as_bytes(), "{name} at {snap}");
            }
        }
    }
}

#[test]
fn member_that_dies_while_learning_snapshots_copies_no_clone() {
    let mut w = World::new(12, 3, 3, 2, 1);
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| drop(w.run_ops(name, write(&name.repeat(20_000)))));
    (0..8).for_each(|n| drop(w.run_ops("a", write_at(n, "w"))));
    forget_counts(&mut w);
    w.kill(2);
    for round in 1..4 {
        names.iter().for_each(|name| drop(w.run_ops(name, write_at(10 * round, "change"))));
        w.write_under(round, &(1..=round).rev().collect::<Vec<_>>());
        names.iter().for_each(|name| drop(w.run_ops(name, write_at(10 * round, "other!"))));
        (0..12).for_each(|n| drop(w.run_ops("a", write_at(n % 3, "q"))));
        w.start(2);
        w.run_for(Duration::from_millis(7 * round));
        w.kill(2);
    }
    repair_everything(&mut w);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
    assert!(w.recovered_bytes() < 20_000, "{}", w.recovered_bytes());
}
