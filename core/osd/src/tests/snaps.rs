//! Snapshots: kept by all members alike, moved by recovery, trimmed when they are removed.

use super::world::{POOL, World};
use super::{append, read, write};
use bytes::Bytes;
use nacre_base::{IntervalSet, Rng, SnapId};
use nacre_proto::types::{CopySource, Extent, ObjectLocator, Op};
use std::collections::BTreeMap;
use std::time::Duration;

fn delete() -> Vec<Op> {
    vec![Op::Delete]
}
fn at(w: &mut World, snap: u64, name: &str) -> Result<Bytes, i32> {
    let reply = w.run_at(SnapId(snap), name, read());
    if reply.result < 0 { Err(reply.result) } else { Ok(reply.ops[0].data.clone()) }
}

#[test]
fn snapshot_content_survives_changes_of_the_object() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_ops("a", write("one"));
    w.write_under(1, &[1]);
    w.run_ops("a", write("two"));
    w.run_ops("new", write("two"));
    w.write_under(2, &[2, 1]);
    w.run_ops("a", append("!"));
    w.write_under(3, &[3, 2, 1]);
    assert_eq!(w.run_ops("a", delete()).result, 0);
    assert_eq!(w.run_ops("a", delete()).result, -2);
    assert_eq!(w.run_ops("a", read()).result, -2);
    let expect = |w: &mut World| {
        let seen: Vec<_> = (1..=4).map(|snap| at(w, snap, "a")).collect();
        assert_eq!(seen, [Ok("one".into()), Ok("two".into()), Ok("two!".into()), Err(-2)]);
        assert_eq!((at(w, 1, "new"), at(w, 2, "new")), (Err(-2), Ok("two".into())));
        assert_eq!(at(w, 1, "never"), Err(-2));
    };
    expect(&mut w);
    // Created again, without a clone of its absence.
    assert_eq!(w.run_ops("a", vec![Op::Create { exclusive: true }]).result, 0);
    expect_empty(&mut w, "a");
    assert_eq!(w.run_ops("a", write("three")).result, 0);
    expect_three(&mut w);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
}
fn expect_empty(w: &mut World, name: &str) {
    assert_eq!(w.run_ops(name, read()).ops[0].data, "");
}
fn expect_three(w: &mut World) {
    assert_eq!(at(w, 4, "a"), Ok("three".into()));
    assert_eq!((at(w, 1, "a"), at(w, 3, "a")), (Ok("one".into()), Ok("two!".into())));
}

#[test]
fn a_rollback_brings_data_attributes_and_omap_back() {
    let mut w = World::new(2, 3, 3, 2, 4);
    let mut ops = append("old");
    ops.push(Op::SetXattr { name: "x".into(), value: "1".into() });
    w.run_ops("a", ops);
    w.write_under(1, &[1]);
    let mut ops = append("new");
    ops.push(Op::SetXattr { name: "x".into(), value: "2".into() });
    ops.push(Op::SetXattr { name: "y".into(), value: "2".into() });
    w.run_ops("a", ops);
    w.run_ops("later", write("x"));
    let look = || {
        let keys = Op::OmapGetKeys { after: Default::default(), max: 9 };
        let [read] = <[Op; 1]>::try_from(read()).unwrap();
        vec![read, Op::GetXattrs, keys]
    };
    let outputs = |reply: nacre_proto::messages::OsdOpReply| -> Vec<Bytes> {
        reply.ops.into_iter().map(|op| op.data).collect()
    };
    let then = outputs(w.run_at(SnapId(1), "a", look()));
    assert_ne!(outputs(w.run_ops("a", look())), then);
    // Reads of the vector itself see it too, with bytes of the clone.
    let roll = vec![Op::Rollback { snap: SnapId(1) }, Op::Append { data: "+".into() }];
    assert_eq!(w.run_ops("a", roll).result, 0);
    assert_eq!(w.run_ops("a", read()).ops[0].data, "old+");
    assert_eq!(w.run_ops("a", vec![Op::Rollback { snap: SnapId(1) }]).result, 0);
    assert_eq!(outputs(w.run_ops("a", look())), then);
    // What did not exist then goes.
    assert_eq!(w.run_ops("later", vec![Op::Rollback { snap: SnapId(1) }]).result, 0);
    assert_eq!(w.run_ops("later", read()).result, -2);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
}

#[test]
fn a_snapshot_can_be_copied_from() {
    let mut w = World::new(3, 3, 2, 1, 4);
    let text = "longer than one part of a copy, which is short in tests";
    w.run_ops("a", write(text));
    w.write_under(1, &[1]);
    w.run_ops("a", write("new"));
    for to in ["b", "c", "d", "a"] {
        let source = CopySource {
            snap: SnapId(1),
            version: 0,
            flags: 0,
            fadvise: 0,
            name: "a".into(),
            locator: ObjectLocator::new(POOL),
            truncate: None,
        };
        assert_eq!(w.run_ops(to, vec![Op::CopyFrom(source)]).result, 0);
        assert_eq!(w.run_ops(to, read()).ops[0].data, text);
    }
}

#[test]
fn requests_that_snapshots_forbid_are_refused() {
    let mut w = World::new(4, 1, 1, 1, 4);
    w.write_under(5, &[5, 4]);
    w.run_ops("a", write("x"));
    assert_eq!(w.run_at(SnapId(4), "a", write("y")).result, -22);
    assert_eq!(w.run_at(SnapId::DIR, "a", read()).result, -22);
    assert_eq!(w.run_ops("a", vec![Op::ListSnaps]).result, -22);
    w.write_under(5, &[4, 5]);
    assert_eq!(w.run_ops("a", write("y")).result, -22);
    // Under an older context nothing new is kept, and nothing is lost.
    w.write_under(3, &[3]);
    assert_eq!(w.run_ops("a", write("y")).result, 0);
    assert_eq!(w.clones(), 0);
}

#[test]
fn recovery_sends_clones_to_returning_members() {
    let mut w = World::new(5, 3, 3, 2, 4);
    for n in 0..6 {
        w.run_ops(&format!("o{n}"), write("before snapshots, and longer than one part of a push"));
    }
    w.write_under(1, &[1]);
    w.kill(1);
    for n in 0..6 {
        w.run_ops(&format!("o{n}"), append("while it is away"));
    }
    w.write_under(2, &[2, 1]);
    for n in 0..3 {
        w.run_ops(&format!("o{n}"), delete());
    }
    w.start(1);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    assert_eq!(w.clones(), 3 * (6 + 3));
    assert_eq!(w.indexed(), 3 * (6 + 3));
    // And to an empty new member.
    w.kill(2);
    for n in 0..40 {
        w.run_ops(&format!("p{n}"), write("so that the log ends"));
    }
    w.start(2);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    assert_eq!(at(&mut w, 1, "o1"), Ok("before snapshots, and longer than one part of a push".into()));
}

#[test]
fn a_snapshot_that_a_member_missed_costs_it_no_copy() {
    let mut w = World::new(8, 3, 3, 2, 1);
    w.run_ops("a", write(&"x".repeat(5000)));
    w.run_until("clean", World::all_clean);
    w.kill(1);
    w.write_under(1, &[1]);
    w.run_ops("a", vec![Op::Write { extent: Extent::new(7, 3), data: "new".into() }]);
    w.start(1);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    let bytes: u64 = w
        .nodes
        .iter()
        .filter_map(|node| node.osd.as_ref())
        .flat_map(|osd| osd.pgs())
        .map(|pg| pg.counts().work.recovered_bytes)
        .sum();
    assert!(0 < bytes && bytes < 1000, "{bytes} bytes for three and two objects' metadata");
}

#[test]
fn removed_snapshots_are_trimmed_and_what_others_share_stays() {
    let mut w = World::new(6, 3, 3, 2, 4);
    let names: Vec<String> = (0..30).map(|n| format!("o{n}")).collect();
    for (seq, snaps) in [(0, &[][..]), (1, &[1]), (2, &[2, 1]), (3, &[3, 2, 1])] {
        w.write_under(seq, snaps);
        for name in &names {
            w.run_ops(name, append(&format!("{seq}")));
        }
    }
    w.write_under(4, &[4, 3, 2, 1]);
    for name in &names[..10] {
        w.run_ops(name, delete());
    }
    w.run_until("clean", World::all_clean);
    assert_eq!(w.clones(), 3 * (90 + 10));
    w.remove_snap(2);
    w.run_until("trimmed", |w| w.is_trimmed(2));
    assert_eq!(w.clones(), 3 * (60 + 10));
    assert_eq!((at(&mut w, 1, "o0"), at(&mut w, 2, "o0")), (Ok("0".into()), Err(-2)));
    assert_eq!((at(&mut w, 3, "o0"), at(&mut w, 3, "o29")), (Ok("012".into()), Ok("012".into())));
    for snap in [1, 3, 4] {
        w.remove_snap(snap);
    }
    w.run_until("trimmed", |w| [1, 3, 4].iter().all(|snap| w.is_trimmed(*snap)));
    assert_eq!((w.clones(), w.indexed()), (0, 0));
    // Heads that were kept for their clones went with the last one.
    w.run_for(Duration::from_secs(8));
    let count = |w: &World| -> (u64, u64) {
        let counts = w.reports.values().map(|report| (report.counts.objects, report.counts.bytes));
        counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    assert_eq!(count(&w), (20, 20 * 4));
    w.assert_replicas_equal();
    assert_eq!(w.run_ops("o29", read()).ops[0].data, "0123");
}

/// Its client waited while the pool was full, and did not learn that the snapshot had been removed to free
/// space.
#[test]
fn clone_of_a_removed_snapshot_is_reported_and_trimmed() {
    let mut w = World::new(8, 3, 3, 2, 4);
    w.run_ops("a", write("old"));
    w.write_under(2, &[2]);
    w.run_ops("b", write("first seen with the snapshot"));
    w.remove_snap(2);
    w.run_until("trimmed", |w| w.is_trimmed(2));
    w.change(|_, inc| drop(inc.new_purged_snaps.insert(POOL, (2..3).into())));
    w.run_until("forgotten", |w| !w.is_trimmed(2));
    assert!(w.kept.is_empty());
    w.run_ops("a", write("new"));
    assert_eq!(w.clones(), 3);
    w.run_until("told", |w| w.kept.contains(2));
    w.remove_snap(2);
    w.run_until("trimmed", |w| w.is_trimmed(2));
    assert_eq!((w.clones(), w.indexed()), (0, 0));
    assert_eq!(w.run_ops("a", read()).ops[0].data, "new");
}

#[test]
fn trimming_continues_under_another_primary_and_after_a_split() {
    let mut w = World::new(7, 4, 3, 2, 2);
    let names: Vec<String> = (0..40).map(|n| format!("o{n}")).collect();
    for (seq, snaps) in [(0, &[][..]), (1, &[1])] {
        w.write_under(seq, snaps);
        names.iter().for_each(|name| assert_eq!(w.run_ops(name, append("x")).result, 0));
    }
    w.remove_snap(1);
    w.run_until("begun", |w| w.clones() < 3 * 40);
    w.kill(0);
    w.split(8);
    w.start(0);
    w.run_until("trimmed", |w| w.is_trimmed(1) && w.all_clean());
    assert_eq!((w.clones(), w.indexed()), (0, 0));
    w.assert_replicas_equal();
}

/// What an object was in each snapshot, and is.
#[derive(Default)]
struct Model {
    now: Option<String>,
    snaps: BTreeMap<u64, Option<String>>,
}

/// Clients write, delete, roll back and take and remove snapshots while OSDs die and come back.
/// No snapshot ever changes.
fn torture(seed: u64, rounds: u32) {
    let mut rng = Rng::new(seed);
    let mut w = World::new(seed, 4, 3, 2, 4);
    let names: Vec<String> = (0..6).map(|n| format!("o{n}")).collect();
    let mut models: BTreeMap<&str, Model> = names.iter().map(|n| (n.as_str(), Model::default())).collect();
    let (mut seq, mut snaps, mut removed) = (0_u64, Vec::<u64>::new(), IntervalSet::new());
    for round in 0..rounds {
        match rng.below(10) {
            0 => {
                // As clients do it: the id comes from the monitors, later writes know of it.
                seq += 1;
                snaps.insert(0, seq);
                models.values_mut().for_each(|m| drop(m.snaps.insert(seq, m.now.clone())));
            }
            1 if !snaps.is_empty() => {
                let gone = snaps.remove(rng.below(snaps.len() as u64) as usize);
                models.values_mut().for_each(|m| drop(m.snaps.remove(&gone)));
                w.remove_snap(gone);
                removed.insert(gone..gone + 1);
            }
            2 => {
                let node = rng.below(4) as usize;
                if w.is_running(node) {
                    let others = (0..4).filter(|n| w.is_running(*n)).count();
                    if others == 4 {
                        w.kill(node);
                    }
                } else {
                    w.start(node);
                }
            }
            _ => {}
        }
        w.write_under(seq, &snaps);
        let name = names[rng.below(6) as usize].as_str();
        let model = models.get_mut(name).unwrap();
        match rng.below(8) {
            0 => {
                let expected = if model.now.take().is_some() { 0 } else { -2 };
                assert_eq!(w.run_ops(name, delete()).result, expected, "round {round}");
            }
            1 if !snaps.is_empty() => {
                let snap = snaps[rng.below(snaps.len() as u64) as usize];
                let then = model.snaps[&snap].clone();
                assert_eq!(w.run_ops(name, vec![Op::Rollback { snap: SnapId(snap) }]).result, 0);
                model.now = then;
            }
            _ => {
                let text = format!("[{round} of {name}]");
                assert_eq!(w.run_ops(name, append(&text)).result, 0);
                model.now.get_or_insert_default().push_str(&text);
            }
        }
        let name = names[rng.below(6) as usize].as_str();
        check(&mut w, name, &models[name], round);
    }
    for node in 0..4 {
        if !w.is_running(node) {
            w.start(node);
        }
    }
    w.run_until("clean", World::all_clean);
    w.run_until("trimmed", |w| removed.iter().flatten().all(|snap| w.is_trimmed(snap)));
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    names.iter().for_each(|name| check(&mut w, name, &models[name.as_str()], rounds));
    snaps.iter().for_each(|snap| w.remove_snap(*snap));
    w.run_until("trimmed", |w| snaps.iter().all(|snap| w.is_trimmed(*snap)));
    assert_eq!((w.clones(), w.indexed()), (0, 0));
}

fn check(w: &mut World, name: &str, model: &Model, round: u32) {
    let as_bytes = |text: &Option<String>| text.clone().map(Bytes::from).ok_or(-2);
    for (snap, then) in &model.snaps {
        assert_eq!(at(w, *snap, name), as_bytes(then), "{name} at {snap} in round {round}");
    }
    let reply = w.run_ops(name, read());
    let now = if reply.result < 0 { Err(reply.result) } else { Ok(reply.ops[0].data.clone()) };
    assert_eq!(now, as_bytes(&model.now), "{name} in round {round}");
}

#[test]
fn snapshots_never_change_under_random_faults() {
    (100..106).for_each(|seed| torture(seed, 120));
}
