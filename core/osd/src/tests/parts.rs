//! Members that lack parts of objects: what is written to them meanwhile, what they get, and what
//! clients see.

use super::store::MemRecord;
use super::world::{POOL, World};
use super::{break_something, read, repair_everything, seeds, write};
use bytes::Bytes;
use nacre_base::{IntervalSet, Name, Rng};
use nacre_proto::maps::map_flags;
use nacre_proto::messages::OsdOpReply;
use nacre_proto::transaction::StoredId;
use nacre_proto::types::{Extent, Op};
use nacre_wire::to_vec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Several messages long.
const LEN_MAX: u64 = 90;

fn write_at(off: u64, data: impl Into<Bytes>) -> Op {
    let data = data.into();
    Op::Write { extent: Extent::new(off, data.len() as u64), data }
}

/// What an object must be: none if it does not exist. Attributes without the object's info.
type Model = Option<MemRecord>;

fn key(rng: &mut Rng) -> Name {
    format!("k{}", rng.below(8)).into()
}

/// One to three random changes, and what they make of the object.
fn change(rng: &mut Rng, count: u32, model: &Model) -> (Vec<Op>, Model) {
    let mut ops = Vec::new();
    let mut record = model.clone();
    for n in 0..=rng.below(3) {
        if n > 0 && rng.chance(500) {
            continue;
        }
        if record.is_some() && rng.chance(60) {
            record = None;
            ops.push(Op::Delete);
            continue;
        }
        let fill = |len: u64| format!("{count:05}").repeat(20)[..len as usize].to_string();
        let existed = record.is_some();
        let kind = if existed { rng.below(12) } else { rng.below(5) };
        let t = record.get_or_insert_default();
        let size = t.data.len() as u64;
        match kind {
            0..=2 => {
                let off = rng.below(LEN_MAX);
                let data = fill(1 + rng.below((LEN_MAX - off).min(30)));
                let end = off as usize + data.len();
                t.data.resize(t.data.len().max(end), 0);
                t.data[off as usize..end].copy_from_slice(data.as_bytes());
                ops.push(write_at(off, data));
            }
            3 => {
                let data = fill(rng.below(LEN_MAX));
                t.data = data.clone().into_bytes();
                ops.push(Op::WriteFull { data: data.into() });
            }
            4 => {
                let pairs: BTreeMap<Name, Bytes> =
                    (0..1 + rng.below(4)).map(|_| (key(rng), Bytes::from(format!("{count}")))).collect();
                t.omap.extend(pairs.clone());
                ops.push(Op::OmapSetVals(pairs));
            }
            5 => {
                let size = rng.below(LEN_MAX);
                t.data.resize(size as usize, 0);
                ops.push(Op::Truncate { size, truncate_size: 0, truncate_seq: 0 });
            }
            6 => {
                let off = rng.below(size + 1);
                let len = rng.below(40);
                let end = (off + len).min(size);
                t.data[off as usize..end as usize].fill(0);
                if off < end && end == size {
                    t.data.truncate(off as usize); // its end is cut off
                }
                ops.push(Op::Zero { off, len });
            }
            7 => {
                let keys: BTreeSet<Name> = (0..3).map(|_| key(rng)).collect();
                t.omap.retain(|key, _| !keys.contains(key));
                ops.push(Op::OmapRmKeys(keys));
            }
            8 => {
                let (begin, end) = (key(rng), key(rng));
                t.omap.retain(|key, _| *key < begin || *key >= end);
                ops.push(Op::OmapRmKeyRange { begin, end });
            }
            9 if rng.chance(300) => {
                t.omap.clear();
                t.header = Bytes::new();
                ops.push(Op::OmapClear);
            }
            9 => {
                t.header = format!("header {count}").into();
                ops.push(Op::OmapSetHeader(t.header.clone()));
            }
            10 => {
                let (name, value) = (key(rng), Bytes::from(format!("{count}")));
                t.attrs.insert(name.clone(), value.clone());
                ops.push(Op::SetXattr { name, value });
            }
            _ => {
                let name = key(rng);
                t.attrs.remove(&name);
                ops.push(Op::RmXattr { name });
            }
        }
    }
    (ops, record)
}

/// Looks at some or all of an object.
fn look(rng: &mut Rng) -> Vec<Op> {
    match rng.below(5) {
        0 => vec![Op::Read(Extent::new(rng.below(LEN_MAX), 1 + rng.below(20)))],
        1 => vec![Op::OmapGetValsByKeys([key(rng), key(rng)].into())],
        2 => vec![Op::OmapGetVals { after: key(rng), max: 2, prefix: Name::default() }],
        3 => vec![Op::Stat, Op::GetXattrs],
        _ => look_at_all(),
    }
}

fn check(ops: &[Op], reply: &OsdOpReply, model: &Model, what: &str) {
    let Some(record) = model else {
        assert_eq!(reply.result, -2, "{what}");
        return;
    };
    assert_eq!(reply.result, 0, "{what}");
    for (op, got) in ops.iter().zip(&reply.ops) {
        let expected = match op {
            Op::Read(extent) => {
                let size = record.data.len() as u64;
                let end = if extent.len == 0 { size } else { (extent.off + extent.len).min(size) };
                record.data[extent.off.min(end) as usize..end as usize].to_vec()
            }
            Op::GetXattrs => to_vec(&record.attrs),
            Op::OmapGetHeader => record.header.to_vec(),
            Op::OmapGetValsByKeys(keys) => {
                let found: BTreeMap<_, _> = record.omap.iter().filter(|(k, _)| keys.contains(*k)).collect();
                to_vec(&found.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect::<BTreeMap<_, _>>())
            }
            Op::OmapGetVals { after, max, .. } => {
                let all = record.omap.iter().filter(|(k, _)| **k > *after || after.is_empty());
                let all: Vec<_> = all.map(|(k, v)| (k.clone(), v.clone())).collect();
                let page: BTreeMap<_, _> = all.iter().take(*max as usize).cloned().collect();
                let mut out = to_vec(&page);
                out.push(u8::from(all.len() > page.len()));
                out
            }
            Op::Stat => {
                assert_eq!(got.data[..8], (record.data.len() as u64).to_le_bytes(), "{what}");
                continue;
            }
            _ => continue,
        };
        assert_eq!(got.data[..], expected[..], "{what}: {op:?}, {:?}", record);
    }
}

/// Random changes of random parts while everything breaks.
fn torture(seed: u64, rounds: u32) {
    let mut w = World::new(seed, 4, 3, 2, 2);
    let mut rng = Rng::new(seed ^ 0xfeed);
    let mut models: BTreeMap<&str, Model> = NAMES.iter().map(|name| (*name, None)).collect();
    let mut outstanding: BTreeMap<&str, (u64, Vec<Op>, Option<Model>)> = BTreeMap::new();
    let mut count = 0;
    w.run_until("clean", World::all_clean);
    let answered = |w: &mut World,
                    outstanding: &mut BTreeMap<&str, _>,
                    name: &'static str,
                    models: &mut BTreeMap<&str, Model>| {
        let Some((tid, ops, after)): Option<(u64, Vec<Op>, Option<Model>)> = outstanding.get(name).cloned()
        else {
            return;
        };
        let Some(reply) = w.replies.remove(&tid) else { return };
        outstanding.remove(name);
        match after {
            Some(after) => {
                assert_eq!(reply.result, 0, "seed {seed}: {name}: {ops:?}");
                models.insert(name, after);
            }
            None => check(&ops, &reply, &models[name], &format!("seed {seed}: {name}")),
        }
    };
    for _ in 0..rounds {
        for _ in 0..1 + rng.below(6) {
            for name in NAMES {
                answered(&mut w, &mut outstanding, name, &mut models);
                if outstanding.contains_key(name) {
                    continue;
                }
                count += 1;
                let (ops, after) = match rng.below(3) {
                    0 => (look(&mut rng), None),
                    _ => {
                        let (ops, after) = change(&mut rng, count, &models[name]);
                        (ops, Some(after))
                    }
                };
                if ops.is_empty() {
                    continue;
                }
                let tid = w.submit(name, ops.clone());
                outstanding.insert(name, (tid, ops, after));
            }
            w.run_for(rng.duration(Duration::from_millis(1), Duration::from_millis(60)));
        }
        break_something(&mut w, &mut rng);
        w.run_for(rng.duration(Duration::from_millis(1), Duration::from_millis(400)));
    }
    repair_everything(&mut w);
    for name in NAMES {
        if let Some((tid, ..)) = outstanding.get(name) {
            let tid = *tid;
            w.run_until("a reply", |w| w.replies.contains_key(&tid));
            answered(&mut w, &mut outstanding, name, &mut models);
        }
        let reply = w.run_ops(name, look_at_all());
        check(&look_at_all(), &reply, &models[name], &format!("seed {seed}: {name} at the end"));
    }
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
}

#[test]
fn every_range_is_correct_under_random_faults() {
    for seed in seeds(40) {
        torture(seed, 50);
    }
}

/// All of an object.
fn look_at_all() -> Vec<Op> {
    let all = Op::OmapGetVals { after: Name::default(), max: 100, prefix: Name::default() };
    vec![Op::Read(Extent::new(0, 0)), Op::GetXattrs, Op::OmapGetHeader, all]
}

/// Changes some objects; with replies, or else it is only asked for.
fn change_some(
    w: &mut World,
    rng: &mut Rng,
    models: &mut BTreeMap<&str, Model>,
    count: &mut u32,
) -> Vec<u64> {
    let mut tids = Vec::new();
    for _ in 0..8 {
        let name = *rng.pick(&NAMES).unwrap();
        *count += 1;
        let (ops, after) = change(rng, *count, &models[name]);
        if !ops.is_empty() {
            models.insert(name, after);
            tids.push(w.submit(name, ops));
        }
    }
    tids
}

#[test]
fn divergent_write_of_one_member_is_undone() {
    for seed in seeds(60) {
        let mut w = World::new(seed, 3, 3, 2, 1);
        let mut rng = Rng::new(seed ^ 0xd1f);
        let mut models: BTreeMap<&str, Model> = NAMES.iter().map(|name| (*name, None)).collect();
        let mut count = 0;
        w.run_until("clean", World::all_clean);
        for _ in 0..4 {
            for tid in change_some(&mut w, &mut rng, &mut models, &mut count) {
                assert_eq!(w.reply(tid).result, 0);
            }
        }
        // The primary stores some writes that reach no other OSD, and dies with the client.
        w.cut.extend([(0, 1), (0, 2)]);
        let mut lost = models.clone();
        let tids = change_some(&mut w, &mut rng, &mut lost, &mut count);
        w.run_for(Duration::from_millis(30));
        tids.into_iter().for_each(|tid| w.forget(tid));
        w.kill(0);
        w.cut.clear();
        w.run_until("down", |w| !w.map.is_up(nacre_base::OsdId(0)));
        w.run_ops("a", look_at_all()); // the others serve
        if rng.chance(700) {
            for tid in change_some(&mut w, &mut rng, &mut models, &mut count) {
                assert_eq!(w.reply(tid).result, 0);
            }
        }
        w.start(0);
        w.run_until("back", |w| w.map.is_up(nacre_base::OsdId(0)));
        w.run_until("clean", World::all_clean);
        for name in NAMES {
            let reply = w.run_ops(name, look_at_all());
            check(&look_at_all(), &reply, &models[name], &format!("seed {seed}: {name}"));
        }
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
    }
}

/// Three OSDs, an object of many messages' length, and one OSD that missed a few bytes of it.
fn one_was_away(away: usize) -> World {
    let mut w = World::new(7, 3, 3, 2, 1);
    w.run_ops("a", write(&"old ".repeat(200)));
    w.run_until("clean", World::all_clean);
    w.kill(away);
    w.run_ops("a", vec![write_at(100, "new")]);
    w.run_ops("a", vec![write_at(500, "newer")]);
    w.start(away);
    w
}

#[test]
fn only_what_changed_is_recovered() {
    for away in [0, 1, 2] {
        let mut w = one_was_away(away);
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
        // The object's info and its attributes' names come with the bytes.
        let bytes = w.recovered_bytes();
        assert!((8..300).contains(&bytes), "{bytes} bytes for eight");
    }
}

#[test]
fn requests_do_not_wait_for_bytes_that_they_do_not_touch() {
    for away in [0, 1, 2] {
        let mut w = World::new(7, 3, 3, 2, 1);
        w.run_ops("a", write(&"old ".repeat(500)));
        w.run_until("clean", World::all_clean);
        w.kill(away);
        w.run_ops("a", write(&"new ".repeat(500)));
        // Only another object has uncommitted parts.
        w.run_ops("b", write("b"));
        w.run_ops("c", write("c"));
        w.start(away);
        let up = nacre_base::OsdId(away as i32);
        w.run_until("up", |w| w.map.is_up(up));
        let done = w.run_ops("a", vec![write_at(1000, "between")]);
        assert_eq!(done.result, 0);
        assert!(!w.all_clean(), "its bytes came in less time than one write takes");
        let around = w.run_ops("a", vec![Op::Read(Extent::new(996, 16))]);
        assert_eq!(around.ops[0].data, "new between new ");
        assert!(!w.all_clean(), "its bytes came in less time than one read takes");
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
        let text = w.run_ops("a", read()).ops[0].data.clone();
        assert_eq!(text, ["new ".repeat(250), "between ".into(), "new ".repeat(248)].concat());
    }
}

/// The store of one OSD has a corrupt byte and detects it.
fn spoil(w: &mut World, osd: usize, name: &str, block: u64) {
    let objects: Vec<_> = w.nodes[osd].view.objects().map(|(object, _)| object.clone()).collect();
    let object = objects.into_iter().find(|object| object.name == name).unwrap();
    let node = &mut w.nodes[osd];
    for store in [&mut node.view, &mut node.disk] {
        let id = StoredId::Object(object.clone());
        let data = &mut store.records.get_mut(&id).unwrap().data;
        data[block as usize * 4096] ^= 1;
        store.bad.insert((id, block), IntervalSet::new());
    }
}

#[test]
fn bad_block_is_read_from_another_copy_and_repaired() {
    let mut w = World::new(3, 3, 3, 2, 1);
    let text = "0123456789".repeat(1000);
    w.run_ops("a", write(&text));
    w.run_until("clean", World::all_clean);
    for block in [0, 2] {
        spoil(&mut w, 0, "a", block);
    }
    let reply = w.run_ops("a", vec![Op::Read(Extent::new(10, 9990))]);
    assert_eq!(reply.ops[0].data, text[10..]);
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
    assert!(w.nodes[0].disk.bad.is_empty());
    // A bad block that is found while it is pushed to another OSD.
    w.kill(2);
    w.run_ops("a", vec![write_at(5, "new")]);
    spoil(&mut w, 0, "a", 0);
    w.start(2);
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
    let text = ["01234new89", &text[10..]].concat();
    assert_eq!(w.run_ops("a", read()).ops[0].data, text);
}

/// No OSD can send the bad block for a moment: a request that reads it waits, and others do not.
#[test]
fn read_that_waits_for_a_block_delays_no_other_read() {
    let mut w = World::new(3, 3, 3, 2, 1);
    let text = "0123456789".repeat(1000);
    w.run_ops("a", write(&text));
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    spoil(&mut w, 0, "a", 0);
    w.cut.extend([(0, 1), (0, 2)]);
    let waits = w.submit("a", vec![Op::Read(Extent::new(10, 10))]);
    let before = w.now;
    let others = [4096, 8192].map(|at| w.submit("a", vec![Op::Read(Extent::new(at, 10))]));
    for (tid, at) in others.into_iter().zip([4096, 8192]) {
        assert_eq!(w.reply(tid).ops[0].data, text[at..at + 10]);
    }
    let took = w.now.since(before);
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert!(!w.replies.contains_key(&waits));
    // A client's write stays behind its own read.
    let later = w.submit("a", vec![write_at(5000, "new")]);
    w.run_for(Duration::from_millis(200));
    assert!(!w.replies.contains_key(&later) && !w.replies.contains_key(&waits));
    w.cut.clear();
    for other in [1, 2] {
        w.reset_between(0, other);
    }
    assert_eq!(w.reply(waits).ops[0].data, text[10..20]);
    assert_eq!(w.reply(later).result, 0);
    w.run_until("clean", World::all_clean);
}

/// As after a start that found a part of the log corrupt.
#[test]
fn lost_block_enters_the_missing_set_and_is_recovered() {
    for osd in 0..3 {
        let mut w = World::new(3, 3, 3, 2, 1);
        w.allow_errors = true;
        let text = "0123456789".repeat(1000);
        w.run_ops("a", write(&text));
        w.run_until("clean", World::all_clean);
        w.kill(osd);
        w.run_ops("b", write("b"));
        spoil(&mut w, osd, "a", 1);
        let lost = w.nodes[osd].disk.bad.keys().cloned().collect();
        w.nodes[osd].disk.lost.blocks = lost;
        w.start(osd);
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
        assert!(w.nodes[osd].disk.bad.is_empty());
        assert_eq!(w.run_ops("a", read()).ops[0].data, text);
    }
}

#[test]
fn osd_with_a_rolled_back_store_is_untrusted_and_recovers_everything() {
    let mut w = World::new(4, 3, 3, 2, 4);
    w.allow_errors = true;
    let names = ["a", "b", "c", "d", "e", "f"];
    names.iter().for_each(|name| assert_eq!(w.run_ops(name, write("old")).result, 0));
    w.run_until("clean", World::all_clean);
    let old = w.nodes[0].disk.clone();
    names[..4].iter().for_each(|name| assert_eq!(w.run_ops(name, write("new")).result, 0));
    w.run_ops("g", write("new"));
    w.run_ops("f", vec![Op::Delete]);
    w.run_until("clean", World::all_clean);
    // The others are down, and only the OSD that lost its record is up.
    (0..3).for_each(|node| w.kill(node));
    w.nodes[0].disk = old;
    w.nodes[0].disk.lost.times = 1;
    w.start(0);
    let tid = w.submit("a", read());
    w.run_for(Duration::from_secs(20));
    assert!(!w.replies.contains_key(&tid), "it served what it had");
    (1..3).for_each(|node| w.start(node));
    assert_eq!(w.reply(tid).ops[0].data, "new");
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
    assert_eq!(w.run_ops("f", read()).result, -2);
    // It reports the loss once. After that its record counts again.
    w.kill(0);
    w.start(0);
    w.run_until("clean", World::all_clean);
    (1..3).for_each(|node| w.kill(node));
    w.run_until("alone", |w| !w.map.is_up(nacre_base::OsdId(1)) && !w.map.is_up(nacre_base::OsdId(2)));
    (1..3).for_each(|node| w.start(node));
    w.run_until("clean", World::all_clean);
    assert_eq!(w.run_ops("e", read()).ops[0].data, "old");
}

#[test]
fn bad_block_without_another_copy_is_a_read_error() {
    let mut w = World::new(3, 1, 1, 1, 1);
    w.allow_errors = true;
    w.run_ops("a", write(&"0123456789".repeat(1000)));
    spoil(&mut w, 0, "a", 1);
    assert_eq!(w.run_ops("a", vec![Op::Read(Extent::new(0, 4096))]).result, 0);
    assert_eq!(w.run_ops("a", read()).result, -5);
    assert_eq!(w.nodes[0].view.bad.len(), 1);
}

#[test]
fn read_of_a_bad_block_waits_for_an_absent_copy() {
    let mut w = World::new(3, 2, 2, 1, 1);
    w.allow_errors = true;
    let text = "0123456789".repeat(1000);
    w.run_ops("a", write(&text));
    w.run_until("clean", World::all_clean);
    w.kill(1);
    w.run_until("alone", |w| !w.map.is_up(nacre_base::OsdId(1)));
    spoil(&mut w, 0, "a", 1);
    let waits = w.submit("a", read());
    w.run_for(Duration::from_secs(20));
    assert!(!w.replies.contains_key(&waits));
    assert_eq!(w.run_ops("a", vec![Op::Read(Extent::new(0, 4096))]).ops[0].data, text[..4096]);
    w.start(1);
    assert_eq!(w.reply(waits).ops[0].data, text);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
}

/// What one member wrote to a bad block without the others is good, and the rest of it is theirs.
#[test]
fn write_to_a_bad_block_spreads_and_its_rest_is_recovered() {
    for (bad, other) in [(0, 1), (1, 0)] {
        let mut w = World::new(3, 2, 2, 1, 1);
        w.allow_errors = true;
        let text = "0123456789".repeat(1000);
        w.run_ops("a", write(&text));
        w.run_until("clean", World::all_clean);
        w.kill(other);
        spoil(&mut w, bad, "a", 1);
        assert_eq!(w.run_ops("a", vec![write_at(5000, "new"), write_at(6000, "er")]).result, 0);
        w.start(other);
        w.run_until("clean", World::all_clean);
        let new = [&text[..5000], "new", &text[5003..6000], "er", &text[6002..]].concat();
        assert_eq!(w.run_ops("a", read()).ops[0].data, new);
        // A bad block of a replica stays until a scrub reads it.
        let primary = bad == 0;
        w.run_for(Duration::from_secs(1));
        assert_eq!(w.nodes[bad].disk.bad.is_empty(), primary);
        if primary {
            w.assert_replicas_equal();
        }
        w.kill(1 - bad);
        w.run_until("alone", |w| !w.map.is_up(nacre_base::OsdId(1 - bad as i32)));
        assert_eq!(w.run_ops("a", vec![Op::Read(Extent::new(0, 4096))]).ops[0].data, new[..4096]);
    }
}

#[test]
fn only_copy_is_recovered_except_for_its_bad_block() {
    for (bad, other) in [(0, 1), (1, 0)] {
        let mut w = World::new(3, 2, 2, 1, 1);
        w.allow_errors = true;
        w.run_ops("b", write("b"));
        w.run_until("clean", World::all_clean);
        w.kill(other);
        let text = "0123456789".repeat(1000);
        w.run_ops("a", write(&text));
        spoil(&mut w, bad, "a", 1);
        w.run_ops("a", vec![write_at(5000, "new")]);
        w.start(other);
        w.run_for(Duration::from_secs(60));
        assert!(!w.all_clean());
        assert!((1..4).contains(&w.errors), "{} complaints of one block in a minute", w.errors);
        let id = w.nodes[other].disk.objects().find(|(object, _)| object.name == "a");
        let data = &id.expect("it came").1.data;
        let new = [&text[..4096], &"\0".repeat(904), "new", &"\0".repeat(3189), &text[8192..]].concat();
        assert!(data == new.as_bytes());
    }
}

#[test]
fn norecover_allows_only_recovery_for_waiting_requests() {
    let mut w = World::new(5, 3, 3, 2, 1);
    w.run_ops("a", write(&"old ".repeat(200)));
    w.run_until("clean", World::all_clean);
    w.change(|map, inc| inc.new_flags = Some(map.flags | map_flags::NORECOVER));
    w.kill(0);
    for off in [100, 300, 500] {
        w.run_ops("a", vec![write_at(off, "new")]);
    }
    w.run_ops("b", write("b"));
    w.start(0);
    let back = |w: &World| w.map.is_up(nacre_base::OsdId(0));
    w.run_until("back", back);
    assert_eq!(w.run_ops("a", vec![Op::Read(Extent::new(299, 6))]).ops[0].data, " new o"[..6]);
    w.run_for(Duration::from_secs(10));
    assert!(!w.all_clean());
    let pg = w.map.pgs(POOL).next().unwrap();
    let words = w.nodes[0].osd.as_ref().unwrap().pg(pg).unwrap().recovery_words(&w.map);
    assert_eq!(
        words,
        "osd.0 lacks all of 0 objects and parts of 1; 0 transfers are in progress; the flag norecover holds it back"
    );
    w.change(|map, inc| inc.new_flags = Some(map.flags & !map_flags::NORECOVER));
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
}
