//! Tests with several OSDs.

mod backoffs;
mod blocklist;
mod common;
mod copies;
mod counters;
mod crossing;
mod dirty;
mod erasure;
mod erasure_cases;
mod forced;
mod image_stats;
mod listing;
mod lost;
mod memory;
mod merges;
mod moves;
mod parity_deltas;
mod parts;
mod peering;
mod query;
mod reply_throttle;
mod scrub;
mod snaps;
mod store;
mod strays;
mod undo;
mod unreadable;
mod watches;
mod world;
mod write_admission;

use bytes::Bytes;
use nacre_base::{Name, OsdId, Rng, SnapId};
use nacre_proto::types::{CopySource, Extent, ObjectLocator, Op, object_hash, op_flags};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
pub use store::MemStore;
pub use world::World;

/// These bytes as a session hands them on, as a part of all that it received at once; with a weak reference
/// that shows whether the buffer is still in use.
pub fn received(bytes: &[u8]) -> (Bytes, Weak<[u8]>) {
    struct Chunk(Arc<[u8]>);
    impl AsRef<[u8]> for Chunk {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let chunk: Arc<[u8]> = [bytes, &[0; 64 << 10]].concat().into();
    let held = Arc::downgrade(&chunk);
    (Bytes::from_owner(Chunk(chunk)).slice(..bytes.len()), held)
}

fn write(text: &str) -> Vec<Op> {
    vec![Op::WriteFull { data: Bytes::copy_from_slice(text.as_bytes()) }]
}
/// To the data, and to the omap as a key.
fn append(text: &str) -> Vec<Op> {
    let data = Bytes::copy_from_slice(text.as_bytes());
    let pairs = BTreeMap::from([(text.into(), data.clone())]);
    vec![Op::Append { data }, Op::OmapSetVals(pairs)]
}
fn read() -> Vec<Op> {
    vec![Op::Read(Extent::new(0, 0))]
}

#[test]
fn written_data_is_read_back_with_one_two_and_three_copies() {
    for size in 1..=3 {
        let mut w = World::new(1, 3, size, 1, 4);
        for name in ["a", "b", "c", "d"] {
            let done = w.run_ops(name, write(name));
            assert_eq!((done.result, done.user_version > 0), (0, true));
            assert_eq!(w.run_ops(name, read()).ops[0].data, name);
        }
        w.run_until("clean", World::all_clean);
        w.assert_replicas_equal();
    }
}

#[test]
fn a_replica_that_was_away_catches_up() {
    let mut w = World::new(2, 3, 3, 2, 4);
    w.run_ops("a", write("old"));
    w.kill(1);
    for n in 0..20 {
        let name = format!("o{n}");
        assert_eq!(w.run_ops(&name, write(&name)).result, 0);
    }
    assert_eq!(w.run_ops("a", vec![Op::Delete]).result, 0);
    w.start(1);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    assert_eq!(w.run_ops("a", read()).result, -2);
}

/// Kills, stops, cuts off, moves or splits something, or repairs it.
fn break_something(w: &mut World, rng: &mut Rng) {
    let osds = w.nodes.len();
    let node = rng.below(osds as u64) as usize;
    let other = rng.below(osds as u64) as usize;
    let pool = w.map.pool(world::POOL).unwrap().clone();
    match rng.below(14) {
        0 if w.is_running(node) => w.kill(node),
        1 | 2 => {
            (0..osds).filter(|n| !w.is_running(*n)).collect::<Vec<_>>().into_iter().for_each(|n| w.start(n))
        }
        3 => w.reset_between(node, other),
        4 => w.reset_between(node, 101),
        5 => w.reset_between(node, 100),
        6 if w.is_running(node) => w.stop(node),
        7 => {
            let mut seed = rng.below(4) as u32;
            if pool.is_erasure() {
                seed %= pool.pg_num;
            }
            let mut all: Vec<OsdId> = (0..osds as i32).map(OsdId).collect();
            for n in (1..all.len()).rev() {
                all.swap(n, rng.below(n as u64 + 1) as usize);
            }
            all.truncate(pool.size.into());
            w.place(vec![(seed, all)]);
        }
        8 if node != other => drop(w.cut.insert((node, other))),
        9 | 10 => {
            for (a, b) in std::mem::take(&mut w.cut) {
                w.reset_between(a, b);
            }
        }
        11 if rng.chance(200) => (0..osds).for_each(|n| w.kill(n)),
        12 if rng.chance(200) => {
            let pg_num = w.map.pool(world::POOL).unwrap().pg_num;
            match rng.below(4) {
                0 if pg_num < 16 => w.split(pg_num + 1 + rng.below(3) as u32),
                _ if pool.is_erasure() => {}
                1 => w.announce_merge(false),
                _ if pg_num > 1 => w.announce_merge(true),
                _ => {}
            }
        }
        _ => {}
    }
}

/// Ends all faults, and waits until every PG is clean.
fn repair_everything(w: &mut World) {
    let osds = w.nodes.len();
    for (a, b) in std::mem::take(&mut w.cut) {
        w.reset_between(a, b);
    }
    // OSDs that are stopping stop first.
    w.run_for(Duration::from_secs(4));
    (0..osds).filter(|n| !w.is_running(*n)).collect::<Vec<_>>().into_iter().for_each(|n| w.start(n));
    w.run_until("all clean at the end", World::all_clean);
}

/// Clients append numbered words to objects while everything breaks; each word must be there once,
/// in order, whatever the answers' ways.
fn torture(seed: u64, rounds: u32) {
    torture_with(seed, rounds, |_| {});
}
fn torture_with(seed: u64, rounds: u32, prepare: impl Fn(&mut World)) {
    let osds = 4;
    let mut w = World::new(seed, osds, 3, 2, 4);
    prepare(&mut w);
    let mut rng = Rng::new(seed ^ 0x5eed);
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut expected: BTreeMap<&str, String> = names.iter().map(|n| (*n, String::new())).collect();
    let mut outstanding: BTreeMap<&str, (u64, String, bool)> = BTreeMap::new();
    let mut count = 0;
    w.run_until("clean", World::all_clean);
    for _ in 0..rounds {
        // Whatever is answered is checked, and followed by something new.
        for name in names {
            if let Some((tid, word, is_read)) = outstanding.get(name).cloned() {
                let Some(reply) = w.replies.remove(&tid) else { continue };
                outstanding.remove(name);
                if is_read {
                    let have = expected.get(name).unwrap();
                    let result = if have.is_empty() { -2 } else { 0 };
                    assert_eq!(reply.result, result, "seed {seed}: read of {name}");
                    assert_eq!(reply.ops[0].data, *have, "seed {seed}: read of {name}");
                } else if word == "delete" {
                    let existed = !expected[name].is_empty();
                    assert_eq!(reply.result, if existed { 0 } else { -2 }, "seed {seed}: delete of {name}");
                    expected.insert(name, String::new());
                } else {
                    assert_eq!(reply.result, 0, "seed {seed}: append to {name}");
                    expected.get_mut(name).unwrap().push_str(&word);
                }
            }
            count += 1;
            let what = match rng.below(10) {
                0 => (vec![Op::Delete], "delete".to_string(), false),
                1..=5 => (append(&format!("{count} ")), format!("{count} "), false),
                _ => (read(), String::new(), true),
            };
            let tid = w.submit(name, what.0);
            outstanding.insert(name, (tid, what.1, what.2));
        }
        break_something(&mut w, &mut rng);
        w.run_for(rng.duration(Duration::from_millis(1), Duration::from_millis(600)));
    }
    repair_everything(&mut w);
    for (name, (tid, word, is_read)) in outstanding {
        let reply = w.reply(tid);
        match (is_read, word.as_str()) {
            (true, _) => {}
            (false, "delete") => drop(expected.insert(name, String::new())),
            _ => {
                assert_eq!(reply.result, 0);
                expected.get_mut(name).unwrap().push_str(&word);
            }
        }
    }
    for (name, have) in expected {
        let reply = w.run_ops(name, read());
        assert_eq!(reply.ops[0].data, have, "seed {seed}: {name} at the end");
    }
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
    assert!(w.backoffs.is_empty(), "seed {seed}: {:?} are to wait for ever", w.backoffs.keys());
}

#[test]
fn no_acknowledged_write_is_lost_or_repeated_under_random_faults() {
    for seed in seeds(30) {
        torture(seed, 60);
    }
}

/// `SEED` and `SEEDS` in the environment choose others.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let count = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(count);
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1_u64);
    (first..first + count).inspect(|seed| eprintln!("seed {seed}"))
}

fn copy_from(name: &str) -> Vec<Op> {
    vec![Op::CopyFrom(CopySource {
        snap: SnapId::HEAD,
        version: 0,
        flags: 0,
        fadvise: 0,
        name: name.into(),
        locator: ObjectLocator::new(world::POOL),
        truncate: None,
    })]
}

#[test]
fn copy_from_copies_all_of_an_object_from_any_pg() {
    let mut w = World::new(3, 3, 3, 2, 8);
    let pairs: BTreeMap<_, _> = (0..3000).map(|n| (format!("k{n:04}").into(), Bytes::from("v"))).collect();
    let set = vec![
        Op::WriteFull { data: Bytes::from("data") },
        Op::SetXattr { name: "x".into(), value: Bytes::from("1") },
        Op::OmapSetVals(pairs),
        Op::OmapSetHeader(Bytes::from("h")),
    ];
    assert_eq!(w.run_ops("source", set).result, 0);
    for n in 0..8 {
        let name = format!("copy{n}");
        assert_eq!(w.run_ops(&name, append("old")).result, 0);
        assert_eq!(w.run_ops(&name, copy_from("source")).result, 0);
        let all = vec![
            Op::Read(Extent::new(0, 0)),
            Op::GetXattr { name: "x".into() },
            Op::OmapGetHeader,
            Op::OmapGetVals { after: "k2998".into(), max: 5, prefix: Name::default() },
        ];
        let reply = w.run_ops(&name, all);
        let outputs: Vec<&[u8]> = reply.ops.iter().map(|op| &op.data[..]).collect();
        assert_eq!(outputs[..3], [&b"data"[..], b"1", b"h"]);
        assert_eq!(outputs[3], [&b"\x01\0\0\0\x05\0\0\0k2999\x01\0\0\0v\0"[..]].concat());
    }
    assert_eq!(w.run_ops("copy0", copy_from("missing")).result, -2);
    assert_eq!(w.run_ops("copy0", copy_from("copy0")).result, -22);
}

#[test]
fn mutual_copy_from_does_not_deadlock() {
    let mut w = World::new(4, 3, 3, 2, 8);
    w.run_ops("a", write("of a"));
    w.run_ops("b", write("of b"));
    let tids = [w.submit("a", copy_from("b")), w.submit("b", copy_from("a"))];
    for tid in tids {
        assert_eq!(w.reply(tid).result, 0);
    }
}

#[test]
fn split_pg_recounts_its_statistics() {
    let mut w = World::new(5, 3, 3, 2, 1);
    for n in 0..20 {
        w.run_ops(&format!("o{n}"), write("12345"));
    }
    w.split(4);
    w.run_until("clean", World::all_clean);
    for n in 20..30 {
        w.run_ops(&format!("o{n}"), write("123"));
    }
    w.run_ops("o3", vec![Op::Delete]);
    let sums = |w: &World| {
        let counts = w.reports.values().map(|report| report.counts);
        counts.fold((0, 0), |sum, c| (sum.0 + c.objects, sum.1 + c.bytes))
    };
    w.run_until("true numbers", |w| sums(w) == (29, 19 * 5 + 10 * 3));
    w.run_for(Duration::from_secs(10));
    assert_eq!(sums(&w), (29, 19 * 5 + 10 * 3));
}

#[test]
fn a_request_that_is_to_be_carried_out_in_parallel_is_refused() {
    let mut w = World::new(5, 3, 3, 2, 4);
    let (parallel, hash) = (op_flags::message::PARALLELEXEC, object_hash(&Name::default(), &"o".into()));
    let tid = w.submit_with(ObjectLocator::new(world::POOL), "o".into(), hash, parallel, write("x"));
    assert_eq!(w.reply(tid).result, -22);
    assert_eq!(w.run_ops("o", read()).result, -2);
}
