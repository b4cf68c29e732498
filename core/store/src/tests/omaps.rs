//! Omaps that have leaves: what they show, what of them is in memory, and what a corrupt leaf costs.

use super::paging::{fresh, let_go};
use crate::index::Slot;
use crate::index::omap::{leaf_id, leaf_number};
use crate::testing::SimDisk;
use crate::{BLOCK, EXPORT_HEADER, Import, ImportError, RECORD_HEADER, Store, SubmitError, export};
use bytes::Bytes;
use nacre_base::{Name, PgId, PoolId, Rng, SpgId};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_wire::crc32c;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Pairs = BTreeMap<Name, Bytes>;

fn submit(store: &mut Store, id: &StoredId, change: Change) {
    let mut txn = Transaction::new();
    txn.push(id.clone(), change);
    store.submit(txn).unwrap();
}
fn shown(store: &Store, id: &StoredId, from: &[u8]) -> Pairs {
    let mut pairs = Pairs::new();
    store
        .omap_walk(id, from, &mut |key, value| {
            assert!(pairs.last_key_value().is_none_or(|(last, _)| last < key), "not in order");
            pairs.insert(key.clone(), value.clone());
            true
        })
        .unwrap();
    pairs
}
fn checkpoint(store: &mut Store, disk: &SimDisk) {
    store.request_checkpoint();
    store.settle(disk).unwrap();
    let_go(store);
    store.settle(disk).unwrap();
    assert_eq!(store.check(), [""; 0]);
}
fn key(n: u64) -> Name {
    Name::from(format!("key{n:06}"))
}
fn pairs(range: std::ops::Range<u64>) -> Pairs {
    range.map(|n| (key(n), Bytes::from(vec![n as u8; 50]))).collect()
}
/// Damages the page that has this object, or undoes it.
fn corrupt_page(store: &Store, disk: &SimDisk, id: &StoredId) {
    let run = &store.runs[0];
    let (page, _) = run.fences.page(run.fences.find(id));
    let extent = run.extents[0];
    assert!(page.start + page.len <= extent.len);
    disk.corrupt(u64::from(extent.start + page.start) * BLOCK as u64 + 50);
}
/// Parts that are in memory.
fn parts_here(store: &Store) -> usize {
    let objects = store.index.slots();
    objects.filter(|(id, slot)| leaf_number(id).is_some() && slot.exists()).count()
}

#[test]
fn omaps_of_objects_and_their_copies_are_what_maps_would_be() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let (disk, mut store) = fresh();
        let ids = ["a", "b", "c"].map(StoredId::meta);
        let mut model: BTreeMap<StoredId, Pairs> = BTreeMap::new();
        for step in 0..600 {
            let id = rng.pick(&ids).unwrap().clone();
            let is_old = model.contains_key(&id);
            let map = model.entry(id.clone()).or_default();
            let change = match rng.below(20) {
                0..=8 => {
                    let first = rng.below(900);
                    let some: Pairs = (0..1 + rng.below(40))
                        .map(|n| (key(first + n * n), Bytes::from(vec![step as u8; rng.below(90) as usize])))
                        .collect();
                    map.extend(some.clone());
                    Change::OmapSet(some)
                }
                9..=12 => {
                    let first = rng.below(900);
                    let keys: BTreeSet<Name> = (0..1 + rng.below(60)).map(|n| key(first + n)).collect();
                    map.retain(|key, _| !keys.contains(key));
                    Change::OmapRemove(keys)
                }
                13..=15 => {
                    let begin = if rng.chance(200) { Name::default() } else { key(rng.below(900)) };
                    let end = key(rng.below(1200));
                    map.retain(|key, _| *key < begin || *key >= end);
                    Change::OmapRemoveRange { begin, end }
                }
                16 if rng.chance(300) => {
                    map.clear();
                    Change::OmapClear
                }
                17 if rng.chance(300) => {
                    model.remove(&id);
                    Change::Remove
                }
                18 | 19 if is_old => {
                    let to = rng.pick(&ids).unwrap().clone();
                    let copy = map.clone();
                    model.insert(to.clone(), copy);
                    submit(&mut store, &to, Change::CloneFrom(id));
                    continue;
                }
                _ => Change::Touch,
            };
            submit(&mut store, &id, change);
            let from = key(rng.below(1200));
            for (id, map) in &model {
                let expected: Pairs =
                    map.range(from.clone()..).map(|(k, v)| (k.clone(), v.clone())).collect();
                assert_eq!(shown(&store, id, from.as_bytes()), expected, "seed {seed} step {step}");
                assert_eq!(store.omap_get(id, from.as_bytes()).unwrap().as_ref(), map.get(&from));
            }
            match rng.below(30) {
                0..=2 => checkpoint(&mut store, &disk),
                3 => {
                    store.settle(&*disk).unwrap();
                    (store, _) = Store::open_paged(disk.clone()).unwrap();
                    store.limit_memory(1 << 20);
                }
                // Everything in memory, proved.
                4 => {
                    store.settle(&*disk).unwrap();
                    assert_eq!(Store::open(&*disk).unwrap().0.check(), [""; 0], "seed {seed} step {step}");
                }
                _ => {}
            }
            if rng.chance(100) {
                assert_eq!(store.check(), [""; 0], "seed {seed} step {step}");
            }
        }
        for id in &ids {
            submit(&mut store, id, Change::Remove);
        }
        checkpoint(&mut store, &disk);
        assert_eq!(store.statfs().omap, 0);
    }
}

/// Each write of its group changes its beginning, its middle and its end.
#[test]
fn pg_record_has_no_leaves_unless_very_long() {
    let (disk, mut store) = fresh();
    let id = StoredId::Pg(SpgId::replicated(PgId { pool: PoolId(1), seed: 3 }));
    let mut model = Pairs::new();
    let mut set = |store: &mut Store, range| {
        model.extend(pairs(range));
        submit(store, &id, Change::OmapSet(model.clone()));
        checkpoint(store, &disk);
        assert_eq!(shown(store, &id, b""), model);
        store.index.total.leaves_made
    };
    assert_eq!(set(&mut store, 0..200), 0);
    assert!(set(&mut store, 200..1000) > 8);
}

#[test]
fn reading_a_key_loads_one_leaf_and_a_range_two() {
    let (disk, mut store) = fresh();
    let id = StoredId::meta("a");
    submit(&mut store, &id, Change::OmapSet(pairs(0..5000)));
    checkpoint(&mut store, &disk);
    let leaves = store.index.total.leaves_made;
    assert!(leaves > 100 && parts_here(&store) == 0, "{leaves} leaves");
    submit(&mut store, &id, Change::OmapSet([(key(2500), Bytes::from_static(b"new"))].into()));
    assert_eq!(parts_here(&store), 1);
    submit(&mut store, &id, Change::OmapRemoveRange { begin: key(1000), end: key(4000) });
    assert!(parts_here(&store) <= 2, "its ends, and where something changed is gone");
    checkpoint(&mut store, &disk);
    // A copy has the same leaves.
    let copy = StoredId::meta("b");
    submit(&mut store, &copy, Change::CloneFrom(id.clone()));
    submit(&mut store, &copy, Change::OmapSet([(key(10), Bytes::from_static(b"copy"))].into()));
    assert!(parts_here(&store) <= 2, "one of them, and its copy");
    submit(&mut store, &id, Change::Remove);
    checkpoint(&mut store, &disk);
    assert_eq!(shown(&store, &copy, b"").len(), 2000);
    assert_eq!(store.omap_get(&copy, key(10).as_bytes()), Ok(Some(Bytes::from_static(b"copy"))));
    assert!(store.ids().map(Result::unwrap).eq([copy.clone()]));
    // What is left of many is few.
    for n in 0..5000 {
        if n % 100 != 0 {
            submit(&mut store, &copy, Change::OmapRemove([key(n)].into()));
        }
    }
    let left = store.find(&copy).unwrap().unwrap();
    assert!(left.object().omap().leaves.list().len() <= 1, "they are one piece");
    assert_eq!(shown(&store, &copy, b"").len(), 20);
}

/// A leaf that had been short before, beside the one that an operation changed, was joined with the next one,
/// of which a checkpoint under way did not know: it wrote that there was no such leaf, and its keys were
/// lost.
#[test]
fn a_checkpoint_has_leaves_as_they_were_when_it_began() {
    let (disk, mut store) = fresh();
    let id = StoredId::meta("a");
    submit(&mut store, &id, Change::OmapSet(pairs(0..200)));
    checkpoint(&mut store, &disk);
    let list = store.find(&id).unwrap().unwrap().object().omap().leaves.list().to_vec();
    let keys_of = |at: usize| -> Vec<Name> {
        let all = (0..200).map(key);
        all.filter(|key| (&list[at].first..&list[at + 1].first).contains(&key)).collect()
    };
    // Short, and neither of its neighbours is in memory.
    submit(&mut store, &id, Change::OmapRemove(keys_of(2).into_iter().skip(1).collect()));
    submit(&mut store, &id, Change::OmapRemove(keys_of(3).into_iter().skip(10).collect()));
    store.request_checkpoint();
    let batch = store.take_batch().unwrap();
    let [begin, end] = [2, 4].map(|n| keys_of(1)[n].clone());
    submit(&mut store, &id, Change::OmapRemoveRange { begin, end });
    let expected = shown(&store, &id, b"");
    let done = batch.commit(&*disk).unwrap();
    store.finished(done);
    store.settle(&*disk).unwrap();
    let (store, _) = Store::open_paged(disk).unwrap();
    assert_eq!(shown(&store, &id, b""), expected);
    assert_eq!(store.check(), [""; 0]);
}

#[test]
fn long_keys_that_have_much_in_common_make_leaves_as_well() {
    let (disk, mut store) = fresh();
    let id = StoredId::meta("a");
    let long = |n: u32| Name::from(format!("{}{n:05}", "folder/".repeat(8)));
    for n in 0..300 {
        submit(&mut store, &id, Change::OmapSet([(long(n * 7 % 300), Bytes::from_static(b"x"))].into()));
    }
    checkpoint(&mut store, &disk);
    assert!(store.index.total.leaves_made > 8);
    assert_eq!(shown(&store, &id, long(200).as_bytes()).len(), 100);
}

#[test]
fn a_corrupt_leaf_is_an_error_for_its_keys_until_they_are_gone() {
    let (disk, mut store) = fresh();
    let id = StoredId::meta("a");
    submit(&mut store, &id, Change::OmapSet(pairs(0..2000)));
    checkpoint(&mut store, &disk);
    let found = store.find(&id).unwrap().unwrap();
    let leaves = &found.object().omap().leaves;
    let bad = leaf_id(leaves.list()[leaves.at(key(1000).as_bytes())].number);
    corrupt_page(&store, &disk, &bad);
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    store.limit_memory(1 << 20);
    let get = |store: &Store, n| store.omap_get(&id, key(n).as_bytes());
    let is_bad = |store: &Store, n| matches!(get(store, n), Err(ReadError::Unreadable { id, .. }) if id == StoredId::meta("a"));
    assert!(
        is_bad(&store, 1000) && get(&store, 0).unwrap().is_some() && get(&store, 1999).unwrap().is_some()
    );
    assert!(store.omap_walk(&id, b"", &mut |_, _| true).is_err());
    // A copy of it is as bad, and nothing that is set there is readable.
    let copy = StoredId::meta("copy");
    submit(&mut store, &copy, Change::CloneFrom(id.clone()));
    for id in [&id, &copy] {
        submit(&mut store, id, Change::OmapSet([(key(1000), Bytes::from_static(b"new"))].into()));
    }
    submit(&mut store, &id, Change::OmapSet([(key(1999), Bytes::from_static(b"new"))].into()));
    for _ in 0..2 {
        assert!(is_bad(&store, 1000) && store.omap_get(&copy, key(1000).as_bytes()).is_err());
        assert_eq!(get(&store, 1999), Ok(Some(Bytes::from_static(b"new"))));
        store.request_checkpoint();
        store.settle(&*disk).unwrap();
        (store, _) = Store::open_paged(disk.clone()).unwrap();
    }
    // All of it goes, and all is well.
    submit(&mut store, &id, Change::OmapRemoveRange { begin: key(300), end: key(1700) });
    submit(&mut store, &id, Change::OmapSet([(key(1000), Bytes::from_static(b"again"))].into()));
    submit(&mut store, &copy, Change::OmapClear);
    store.request_checkpoint();
    store.settle(&*disk).unwrap();
    let (store, _) = Store::open_paged(disk).unwrap();
    assert_eq!(shown(&store, &id, b"").len(), 601);
    assert_eq!(shown(&store, &copy, b"").len(), 0);
    assert!(!matches!(store.index.slot(&bad), Some(Slot::Object(_))));
}

/// An object with many leaves, many others, and a copy that shares all leaves, in pages of their own.
fn object_and_copy() -> (Arc<SimDisk>, Store, [StoredId; 2]) {
    let (disk, mut store) = fresh();
    let [id, copy] = ["m", "z"].map(StoredId::meta);
    submit(&mut store, &id, Change::OmapSet(pairs(0..2000)));
    submit(&mut store, &copy, Change::CloneFrom(id.clone()));
    for name in (0..600).map(|n| format!("{}{n:03}", if n < 300 { "b" } else { "n" })) {
        let attrs = [(key(0), Bytes::from(vec![1; 100]))].into();
        submit(&mut store, &StoredId::Meta(Name::from(name)), Change::SetAttrs(attrs));
    }
    checkpoint(&mut store, &disk);
    (disk, store, [id, copy])
}
/// What was submitted is safe in the log, and in no checkpoint.
fn log_only(store: &mut Store, disk: &SimDisk) {
    let done = store.take_batch().unwrap().commit(disk).unwrap();
    store.finished(done);
}

#[test]
fn object_with_unreadable_leaf_list_stays_lost_and_its_copy_does_not() {
    let (disk, store, [id, copy]) = object_and_copy();
    corrupt_page(&store, &disk, &id);
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    submit(&mut store, &id, Change::OmapSet([(key(1000), Bytes::from_static(b"new"))].into()));
    submit(&mut store, &copy, Change::OmapSet([(key(1000), Bytes::from_static(b"new"))].into()));
    submit(&mut store, &copy, Change::OmapRemoveRange { begin: key(10), end: key(990) });
    log_only(&mut store, &disk);
    let is_right = |store: &Store| {
        assert!(matches!(store.omap_get(&id, key(0).as_bytes()), Err(ReadError::Unreadable { .. })));
        assert_eq!(store.omap_get(&copy, key(1000).as_bytes()), Ok(Some(Bytes::from_static(b"new"))));
        assert_eq!(shown(store, &copy, b"").len(), 1020);
    };
    is_right(&store);
    // Now the list can be read: its leaves are released.
    corrupt_page(&store, &disk, &id);
    is_right(&Store::open(&*disk).unwrap().0);
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    is_right(&store);
    submit(&mut store, &id, Change::Remove);
    checkpoint(&mut store, &disk);
    let (mut store, _) = Store::open(&*disk).unwrap();
    assert_eq!(store.check(), [""; 0]);
    submit(&mut store, &copy, Change::Remove);
    checkpoint(&mut store, &disk);
    assert_eq!(store.statfs().omap, 0, "no leaf is left");
}

#[test]
fn store_opens_after_a_leaf_was_unreadable_only_before_replay() {
    let (disk, store, [id, copy]) = object_and_copy();
    let found = store.find(&id).unwrap().unwrap();
    let leaves = &found.object().omap().leaves;
    let bad = leaf_id(leaves.list()[leaves.at(key(1000).as_bytes())].number);
    drop(found);
    corrupt_page(&store, &disk, &bad);
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    for (id, keys) in [(&id, 990..1010), (&copy, 995..1005)] {
        submit(&mut store, id, Change::OmapSet([(key(1000), Bytes::from(vec![7; 3000]))].into()));
        submit(&mut store, id, Change::OmapRemoveRange { begin: key(keys.start), end: key(keys.end) });
        submit(&mut store, id, Change::OmapSet([(key(1000), Bytes::from_static(b"new"))].into()));
    }
    log_only(&mut store, &disk);
    assert!(store.omap_get(&id, key(1000).as_bytes()).is_err());
    corrupt_page(&store, &disk, &bad);
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    for store in [&store, &Store::open(&*disk).unwrap().0] {
        assert_eq!(store.check(), [""; 0]);
        assert_eq!([&id, &copy].map(|id| shown(store, id, b"").len()), [1981, 1991]);
    }
    checkpoint(&mut store, &disk);
    assert_eq!(Store::open(&*disk).unwrap().0.check(), [""; 0]);
}

#[test]
fn daemons_cannot_use_the_names_of_leaves() {
    let (disk, mut store) = fresh();
    submit(&mut store, &StoredId::meta("a"), Change::OmapSet(pairs(0..500)));
    assert!(store.ids().map(Result::unwrap).eq([StoredId::meta("a")]));
    for (id, change) in [
        (leaf_id(1), Change::Remove),
        (StoredId::meta("b"), Change::CloneFrom(leaf_id(1))),
        (StoredId::meta(""), Change::Touch),
    ] {
        let mut txn = Transaction::new();
        txn.push(id, change);
        assert!(matches!(store.submit(txn), Err(SubmitError::Reserved { .. })));
    }
    store.settle(&*disk).unwrap();
    // An export has what is stored, not how.
    submit(&mut store, &StoredId::meta("\x01"), Change::Touch);
    submit(&mut store, &StoredId::meta("a"), Change::Remove);
    let mut out = Vec::new();
    let sink = |bytes: &[u8]| -> Result<(), ()> {
        out.extend_from_slice(bytes);
        Ok(())
    };
    assert_eq!(export(&store, &*disk, |_| true, sink), Ok((1, Vec::new())));
    // An import makes nothing of that kind either.
    let (header, record) = out.split_first_chunk_mut::<EXPORT_HEADER>().unwrap();
    let mut import = Import::begin(header).unwrap();
    let len = u32::from_le_bytes(record[..4].try_into().unwrap()) as usize;
    let (header, payload) = record.split_at_mut(RECORD_HEADER);
    let payload = &mut payload[..len];
    let name = payload.iter().rposition(|byte| *byte == 1).unwrap();
    payload[name] = 0;
    header[4..].copy_from_slice(&crc32c(u32::MAX, payload).to_le_bytes());
    let header: &[u8; RECORD_HEADER] = (&*header).try_into().unwrap();
    let imported = import.record(header, payload, &mut store, &*disk);
    assert_eq!(imported, Err(ImportError::Order { number: 0, what: "an object that only a store makes" }));
}
