//! The index on a model of RADOS: several gateways, whose operations happen in any order, whose answers get
//! lost, and which are killed.

mod access;
mod corrupt;
mod large;
mod linearizable;
mod model;
mod notices;
mod random;
mod versions;

use crate::condition::{Condition, Etags};
use crate::index::{Answer, Ask, Change, Deletion, Limits, Refusal};
use crate::leaf::{Garbage, LeafName};
use crate::listing::{Item, PageRequest};
use crate::record::{Body, Counters, Entry, Extent, Head, Object};
use crate::tag::Tag;
use bytes::Bytes;
use model::{BUCKET, World};
use nacre_base::{Name, PoolId};
use nacre_client::ObjectRequest;
use nacre_wire::to_vec;

/// A tag of the first gateway.
pub fn tag(sequence: u64) -> Tag {
    Tag { instance: 1, sequence }
}

/// An object with this tag, and data of this size; none for an inline body.
pub fn object(tag: Tag, data: Option<u64>) -> Box<Object> {
    let entry = Entry {
        tag,
        size: data.unwrap_or(1),
        mtime: 0,
        etag: tag.to_string(),
        owner: "u".into(),
        storage_class: String::new(),
        checksum: String::new(),
        ..Entry::default()
    };
    let body = match data {
        Some(len) => Body::Data(vec![Extent { tag, len }]),
        None => Body::Inline(Bytes::from_static(b"x")),
    };
    Box::new(Object { entry, head: Head { body, ..Head::default() } })
}

/// A request for a PUT.
pub fn put(key: &str, object: Box<Object>, condition: Condition) -> Ask {
    let key = Bytes::copy_from_slice(key.as_bytes());
    Ask::Change(Change::Put { key, object, condition, due: 5, upload: None, keeps: false })
}

/// A request for a DELETE.
pub fn delete(key: &str) -> Ask {
    let key = Bytes::copy_from_slice(key.as_bytes());
    Ask::Change(Change::Delete(Box::new(Deletion { key, due: 5, tag: tag(999), ..Deletion::default() })))
}

/// The answer to a DELETE in a bucket without versions.
pub fn gone(existed: bool) -> Answer {
    Answer::Deleted { existed, version: None, is_marker: false }
}

/// The condition that there is no object.
pub fn absent() -> Condition {
    Condition { if_none_match: Some(Etags::Any), ..Condition::default() }
}

fn names(world: &mut World, request: PageRequest) -> (Vec<String>, bool) {
    let Ok(Answer::Page(page)) = world.ask(0, Ask::Page(request)) else { panic!("no page") };
    let name = |item: &Item| match item {
        Item::Key(key, _) => String::from_utf8(key.to_vec()).unwrap(),
        Item::Prefix(prefix) => format!("{}*", String::from_utf8(prefix.to_vec()).unwrap()),
    };
    (page.items.iter().map(name).collect(), page.is_truncated)
}

#[test]
fn new_key_in_a_known_leaf_takes_one_operation() {
    let mut world = World::new(1);
    world.ask(0, put("a", object(tag(1), None), Condition::default())).unwrap();
    let before = world.operations;
    world.ask(0, put("b", object(tag(2), None), Condition::default())).unwrap();
    assert_eq!(world.operations - before, 1);
    let before = world.operations;
    world.ask(0, Ask::Get { key: "b".into() }).unwrap();
    assert_eq!(world.operations - before, 1);
}

#[test]
fn writes_that_arrive_together_share_an_operation() {
    let mut world = World::new(1);
    world.ask(0, put("a", object(tag(1), None), Condition::default())).unwrap();
    let before = world.operations;
    for n in 0..40 {
        world.start(0, put(&format!("k{n}"), object(tag(n), None), Condition::default()));
    }
    world.settle();
    // The first goes alone, and the others wait for it.
    assert_eq!(world.operations - before, 2);
    let Ok(Answer::Totals(totals)) = world.ask(0, Ask::Totals) else { panic!("no totals") };
    assert_eq!(totals, Counters { objects: 41, bytes: 41 });
}

#[test]
fn replaced_and_deleted_data_becomes_garbage_when_it_is_due() {
    let mut world = World::new(1);
    world.ask(0, put("a", object(tag(1), Some(7)), Condition::default())).unwrap();
    world.ask(0, put("a", object(tag(2), Some(8)), Condition::default())).unwrap();
    world.ask(0, delete("a")).unwrap();
    assert_eq!(world.ask(0, delete("a")).unwrap(), gone(false));
    let mut garbage = |now| match world.ask(0, Ask::Garbage { now, max: 10 }) {
        Ok(Answer::Garbage(items)) => items,
        other => panic!("{other:?}"),
    };
    assert!(garbage(4).is_empty());
    let items = garbage(5);
    let data = |sequence, len| Garbage::Data(vec![Extent { tag: tag(sequence), len }]);
    let found: Vec<Garbage> = items.iter().map(|item| item.garbage.clone()).collect();
    assert_eq!(found, [data(1, 7), data(2, 8)]);
    let leaf = items[0].leaf.clone();
    let keys = items.into_iter().map(|item| item.key).collect();
    world.ask(0, Ask::ForgetGarbage { leaf, keys }).unwrap();
    assert_eq!(world.ask(0, Ask::Garbage { now: 9, max: 10 }).unwrap(), Answer::Garbage(Vec::new()));
    let Ok(Answer::Totals(totals)) = world.ask(0, Ask::Totals) else { panic!("no totals") };
    assert_eq!(totals, Counters::default());
}

/// A change of the metadata alone keeps the data, which must not become garbage.
#[test]
fn data_that_the_new_object_has_too_is_no_garbage() {
    let mut world = World::new(1);
    world.ask(0, put("a", object(tag(1), Some(7)), Condition::default())).unwrap();
    let mut changed = object(tag(2), Some(7));
    changed.head.body = Body::Data(vec![Extent { tag: tag(1), len: 7 }]);
    let same = Condition { tag: Some(tag(1)), ..Condition::default() };
    world.ask(0, put("a", changed.clone(), same.clone())).unwrap();
    assert_eq!(world.ask(0, Ask::Garbage { now: 9, max: 10 }).unwrap(), Answer::Garbage(Vec::new()));
    assert_eq!(world.ask(0, put("a", changed, same)), Err(Refusal::PreconditionFailed));
}

#[test]
fn one_of_many_conditional_writes_succeeds() {
    let mut world = World::new(2);
    for n in 0..64 {
        world.start((n % 2) as usize, put("k", object(tag(n), None), absent()));
    }
    let results = world.settle();
    assert_eq!(results.iter().filter(|(.., result)| result.is_ok()).count(), 1);
    assert_eq!(results.len(), 64);
}

#[test]
fn complete_or_abort_ends_an_upload_but_not_both() {
    for aborts_first in [false, true] {
        let mut world = World::new(2);
        let id = tag(50);
        world.ask(0, Ask::Change(Change::AddUpload { key: "k".into(), id, record: "r".into() })).unwrap();
        let complete = Ask::Change(Change::Put {
            key: "k".into(),
            object: object(tag(1), Some(3)),
            condition: Condition::default(),
            due: 5,
            upload: Some(id),
            keeps: false,
        });
        let abort = Ask::Change(Change::AbortUpload { key: "k".into(), id });
        let (first, second) = if aborts_first { (abort, complete) } else { (complete, abort) };
        world.ask(0, first).unwrap();
        assert_eq!(world.ask(1, second), Err(Refusal::NoSuchUpload));
        let Ok(Answer::Garbage(items)) = world.ask(0, Ask::Garbage { now: 0, max: 9 }) else { panic!() };
        let kept = if aborts_first { Vec::new() } else { vec![tag(1)] };
        assert_eq!(items[0].garbage, Garbage::Upload { id, kept });
    }
}

#[test]
fn pages_follow_the_order_of_bytes_and_skip_common_prefixes() {
    let mut world = World::new(1);
    let mut keys = vec!["obj+", "obj/", "obj1", "\u{e000}", "\u{10000}", "a//", "a///b", "b/1", "b/2", "c"];
    for key in &keys {
        world.ask(0, put(key, object(tag(1), None), Condition::default())).unwrap();
    }
    keys.sort_unstable();
    let all = PageRequest { max: 1000, ..PageRequest::default() };
    assert_eq!(names(&mut world, all.clone()), (keys.iter().map(ToString::to_string).collect(), false));
    // Page by page, also behind keys that do not exist.
    for max in 1..4 {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let request = PageRequest { after: after.clone().into(), max, ..PageRequest::default() };
            let (page, more) = names(&mut world, request);
            assert!(page.len() == max || !more);
            found.extend(page);
            after = found.last().unwrap().clone();
            if !more {
                break;
            }
        }
        assert_eq!(found, keys);
    }
    let request = PageRequest { after: "obj0".into(), ..all.clone() };
    assert_eq!(names(&mut world, request).0[0], "obj1");
    let folders = PageRequest { delimiter: "/".into(), ..all };
    let expected = ["a/*", "b/*", "c", "obj+", "obj/*", "obj1", "\u{e000}", "\u{10000}"];
    assert_eq!(names(&mut world, folders.clone()).0, expected);
    let behind = PageRequest { after: "b/".into(), ..folders.clone() };
    assert_eq!(names(&mut world, behind).0, expected[2..]);
    let within = PageRequest { prefix: "a/".into(), ..folders };
    assert_eq!(names(&mut world, within).0, ["a//*"]);
}

#[test]
fn sealed_bucket_refuses_writes_and_one_with_objects_is_not_sealed() {
    let mut world = World::new(2);
    world.ask(1, put("a", object(tag(1), None), Condition::default())).unwrap();
    assert_eq!(world.ask(0, Ask::Seal), Err(Refusal::NotEmpty));
    world.ask(1, delete("a")).unwrap();
    assert_eq!(world.ask(0, Ask::Seal), Ok(Answer::Done));
    // The other gateway does not know it yet.
    let late = put("b", object(tag(2), None), Condition::default());
    assert_eq!(world.ask(1, late), Err(Refusal::NoSuchBucket));
    // Not taken for a missing key: the name may belong to another bucket by now.
    assert_eq!(world.ask(1, Ask::Get { key: "b".into() }), Err(Refusal::NoSuchBucket));
}

/// The gateway that seals is gone before all leaves are sealed.
#[test]
fn sealing_that_was_left_half_done_is_undone_by_another_gateway() {
    let limits = Limits { leaf_max: 4, count_after: 4, copy: 7 };
    for operations in 0..20 {
        let mut world = World::with_limits(2, limits);
        for n in 0..12 {
            world.ask(0, put(&format!("k{n:02}"), object(tag(n), None), Condition::default())).unwrap();
        }
        for n in 0..12 {
            world.ask(0, delete(&format!("k{n:02}"))).unwrap();
        }
        world.start(0, Ask::Seal);
        world.run(0, operations);
        world.sent.retain(|(of, ..)| *of != 0);
        assert_eq!(world.ask(1, Ask::Unseal), Ok(Answer::Done));
        for key in ["a", "k05", "z"] {
            let put = put(key, object(tag(50), None), Condition::default());
            assert!(world.ask(1, put).is_ok(), "{key} after {operations} operations");
        }
    }
}

/// A PUT into a later leaf comes while the earlier ones are sealed already.
#[test]
fn bucket_that_is_not_sealed_after_all_takes_writes_again() {
    let mut world = World::with_limits(2, Limits { leaf_max: 4, count_after: 4, copy: 7 });
    for n in 0..12 {
        world.ask(0, put(&format!("k{n:02}"), object(tag(n), None), Condition::default())).unwrap();
    }
    for n in 0..12 {
        world.ask(0, delete(&format!("k{n:02}"))).unwrap();
    }
    let leaves = world.leaves();
    assert!(leaves > 2, "{leaves} leaves");
    let seal = world.start(0, Ask::Seal);
    // The first leaf is read and sealed.
    assert!(world.run(0, 2));
    let last = put("k99", object(tag(50), None), Condition::default());
    world.ask(1, last).unwrap();
    let done = std::mem::take(&mut world.done);
    let sealed = done
        .iter()
        .chain(&world.settle())
        .any(|(_, ticket, result)| *ticket == seal && *result == Err(Refusal::NotEmpty));
    assert!(sealed || world.ask(0, Ask::Seal) == Err(Refusal::NotEmpty));
    world.ask(1, put("a", object(tag(51), None), Condition::default())).unwrap();
    world.ask(1, Ask::Get { key: "a".into() }).unwrap();
}

/// Pages, prefixes and totals over many leaves, and a gateway that knows only the first of them.
#[test]
fn bucket_grows_by_splits_and_lists_in_order() {
    let mut world = World::with_limits(2, Limits { leaf_max: 20, count_after: 5, copy: 7 });
    // In an order that is neither rising nor falling.
    let name = |n: u64| format!("{:03}/{n}", n * 7 % 400);
    // The second gateway reads the map before there are other leaves.
    world.ask(1, put("000", object(tag(1), None), Condition::default())).unwrap();
    for n in 0..400 {
        world.ask(0, put(&name(n), object(tag(n), Some(n + 1)), Condition::default())).unwrap();
    }
    assert!(world.leaves() > 15, "{} leaves", world.leaves());
    let mut expected: Vec<String> = (0..400).map(name).chain(["000".to_string()]).collect();
    expected.sort_unstable();
    for gateway in [1, 0] {
        let Ok(Answer::Page(page)) =
            world.ask(gateway, Ask::Page(PageRequest { max: 1000, ..PageRequest::default() }))
        else {
            panic!("no page")
        };
        let found = page.items.iter().map(|item| String::from_utf8(item.marker().to_vec()).unwrap());
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
    let folders = PageRequest { delimiter: "/".into(), max: 1000, ..PageRequest::default() };
    assert_eq!(names(&mut world, folders).0.len(), 401);
    for n in (0..400).step_by(3) {
        assert_eq!(world.ask(1, delete(&name(n))), Ok(gone(true)), "{n}");
        assert_eq!(world.ask(0, Ask::Get { key: name(n).into() }), Err(Refusal::NoSuchKey));
    }
    let left = (0..400_i64).filter(|n| n % 3 != 0);
    let totals =
        Counters { objects: left.clone().count() as i64 + 1, bytes: left.map(|n| n + 1).sum::<i64>() + 1 };
    assert_eq!(world.ask(1, Ask::Totals), Ok(Answer::Totals(totals)));
    assert_eq!(world.ask(1, Ask::Seal), Err(Refusal::NotEmpty));
}

/// A key moves between the read of the new leaf and that of the old one.
#[test]
fn delete_finds_a_key_that_is_being_moved() {
    let limits = Limits { leaf_max: 4, count_after: 8, copy: 2 };
    // Some operations of the gateway that splits, some of the one that deletes, and then the others.
    for (moves, reads) in (0..40).flat_map(|moves| (0..8).map(move |reads| (moves, reads))) {
        let mut world = World::with_limits(2, limits);
        for n in 0..8 {
            world.start(0, put(&format!("k{n}"), object(tag(n), None), Condition::default()));
        }
        world.run(0, moves);
        let is_there = world.done.iter().filter(|(.., result)| result.is_ok()).count() == 8;
        let deleted = world.start(1, delete("k7"));
        world.run(1, reads);
        while world.run(0, 1) {}
        let done = world.settle();
        let (.., result) = done.iter().find(|(_, ticket, _)| *ticket == deleted).expect("an answer");
        if is_there {
            assert_eq!(*result, Ok(gone(true)), "after {moves} and {reads}");
            assert_eq!(world.ask(0, Ask::Get { key: "k7".into() }), Err(Refusal::NoSuchKey));
        }
    }
}

/// Not taken for an empty body: reads would be wrong, and writes would note no garbage.
#[test]
fn entry_without_its_head_is_corrupt() {
    let key = |kind: &str| Name::from(kind);
    let leaf = || ObjectRequest::new(PoolId(1), LeafName::first(BUCKET).0);
    for (removed, set) in [(true, None), (false, Some(to_vec(&Head::default())))] {
        let mut world = World::new(1);
        world.ask(0, put("a", object(tag(1), None), Condition::default())).unwrap();
        if removed {
            world.rados.run(&leaf().omap_remove([key("da")])).unwrap();
        }
        if let Some(head) = set {
            world.rados.run(&leaf().omap_set([(key("da"), Bytes::from(head))])).unwrap();
        }
        let get = world.ask(0, Ask::Get { key: "a".into() });
        assert!(matches!(get, Err(Refusal::Corrupt(_))), "{get:?}");
        let deleted = world.ask(0, delete("a"));
        assert!(matches!(deleted, Err(Refusal::Corrupt(_))), "{deleted:?}");
    }
}

/// A page that ends with a common prefix is not followed by the same page.
#[test]
fn pages_of_uploads_go_on_behind_a_common_prefix() {
    let mut world = World::new(1);
    for (n, key) in ["photos/1", "photos/2", "z"].into_iter().enumerate() {
        let (key, id) = (Bytes::from(key), tag(n as u64));
        world.ask(0, Ask::Change(Change::AddUpload { key, id, record: "r".into() })).unwrap();
    }
    let request = || PageRequest { delimiter: "/".into(), max: 1, ..PageRequest::default() };
    let first = names(&mut world, request().uploads_behind("", None));
    assert_eq!(first, (vec!["photos/*".to_string()], true));
    let second = names(&mut world, request().uploads_behind("photos/", None));
    assert_eq!(second, (vec![format!("z\0{}", tag(2))], false));
    let behind = PageRequest { delimiter: Bytes::new(), ..request() };
    let behind = names(&mut world, behind.uploads_behind("photos/1", Some(&tag(0).to_string())));
    assert_eq!(behind, (vec![format!("photos/2\0{}", tag(1))], true));
}
