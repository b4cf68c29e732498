//! Versions: what each kind of write leaves of a key.

use super::model::World;
use super::{delete, object, put, tag};
use crate::condition::Condition;
use crate::index::{Answer, Ask, Change, Deletion, Limits, Refusal, Revision};
use crate::leaf::Garbage;
use crate::listing::{Item, Listed, PageRequest};
use crate::lock::{LockMode, LockView, Retention};
use crate::record::{Body, Counters, Entry, Extent, Object};
use crate::version::{VersionId, Versioning};
use nacre_wire::from_slice;
use std::collections::BTreeMap;

/// A PUT in a bucket that keeps versions.
pub fn put_version(key: &'static str, object: Box<Object>) -> Ask {
    let condition = Condition::default();
    Ask::Change(Change::Put { key: key.into(), object, condition, due: 5, upload: None, keeps: true })
}

fn mark(key: &'static str, versioning: Versioning, write: u64) -> Ask {
    let deletion = Deletion { key: key.into(), versioning, due: 5, tag: tag(write), ..Deletion::default() };
    Ask::Change(Change::Delete(Box::new(deletion)))
}

fn delete_version(key: &'static str, version: VersionId, view: LockView) -> Ask {
    let version = Some(version);
    let deletion = Deletion { key: key.into(), version, due: 5, tag: tag(900), view, ..Deletion::default() };
    Ask::Change(Change::Delete(Box::new(deletion)))
}

fn id(stamp: u64, write: u64) -> VersionId {
    VersionId::Of { stamp, tag: tag(write) }
}

/// The versions of all keys, the newest first: `KEY=WRITE`, with `0` for `null` and `-` for markers.
fn versions(world: &mut World) -> Vec<String> {
    let request = PageRequest { max: 1000, listed: Listed::Versions, ..PageRequest::default() };
    let Ok(Answer::Page(page)) = world.ask(0, Ask::Page(request)) else { panic!("no page") };
    let line = |item: &Item| {
        let Item::Key(line, value) = item else { panic!("a prefix without a delimiter") };
        let entry: Entry = from_slice(value).unwrap();
        let key = String::from_utf8(line.split(|byte| *byte == 0).next().unwrap().to_vec()).unwrap();
        let null = if entry.version() == VersionId::Null { "0" } else { "" };
        format!("{key}={null}{}{}", if entry.is_marker { "-" } else { "" }, entry.tag.sequence)
    };
    page.items.iter().map(line).collect()
}

fn totals(world: &mut World) -> (i64, i64) {
    match world.ask(0, Ask::Totals) {
        Ok(Answer::Totals(Counters { objects, bytes })) => (objects, bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn writes_and_deletes_keep_what_was_before() {
    let mut world = World::new(1);
    world.ask(0, put("k", object(tag(1), Some(10)), Condition::default())).unwrap();
    let answer = world.ask(0, put_version("k", object(tag(2), Some(20))));
    assert_eq!(answer, Ok(Answer::Put { replaced: true, version: id(1, 2) }));
    let marker = world.ask(0, mark("k", Versioning::Enabled, 3));
    let made = Answer::Deleted { existed: true, version: Some(id(2, 3)), is_marker: true };
    assert_eq!(marker, Ok(made));
    assert_eq!(versions(&mut world), ["k=-3", "k=2", "k=01"]);
    assert_eq!(totals(&mut world), (2, 30));
    let gone = Refusal::DeleteMarker { version: id(2, 3), mtime: 0 };
    assert_eq!(world.ask(0, Ask::Get { key: "k".into() }), Err(gone));
    // A new object is put on top of the marker, with one operation on an unknown key.
    world.ask(0, put_version("k", object(tag(4), None))).unwrap();
    assert_eq!(versions(&mut world), ["k=4", "k=-3", "k=2", "k=01"]);
    let mut read = |version| world.ask(0, Ask::GetVersion { key: "k".into(), version });
    assert_eq!(read(VersionId::Null), Ok(Answer::Object(object(tag(1), Some(10)))));
    assert!(matches!(read(id(1, 2)), Ok(Answer::Object(found)) if found.entry.tag == tag(2)));
    assert!(matches!(read(id(2, 3)), Err(Refusal::DeleteMarker { .. })));
    // The tag belongs to the name.
    assert_eq!(read(id(1, 3)), Err(Refusal::NoSuchVersion));
    assert_eq!(world.ask(0, Ask::Seal), Err(Refusal::NotEmpty));
}

#[test]
fn removed_version_gives_way_to_the_one_before() {
    let mut world = World::new(1);
    for write in 1..=3 {
        world.ask(0, put_version("k", object(tag(write), Some(10)))).unwrap();
    }
    world.ask(0, mark("k", Versioning::Enabled, 4)).unwrap();
    let mut remove = |version| world.ask(0, delete_version("k", version, LockView::default())).unwrap();
    let removed = |version, is_marker| Answer::Deleted { existed: true, version: Some(version), is_marker };
    // The middle, the marker, and what is current then.
    assert_eq!(remove(id(2, 2)), removed(id(2, 2), false));
    assert_eq!(remove(id(4, 4)), removed(id(4, 4), true));
    assert_eq!(versions(&mut world), ["k=3", "k=1"]);
    world.ask(0, delete_version("k", id(3, 3), LockView::default())).unwrap();
    assert!(
        matches!(world.ask(0, Ask::Get { key: "k".into() }), Ok(Answer::Object(it)) if it.entry.tag == tag(1))
    );
    world.ask(0, delete_version("k", id(1, 1), LockView::default())).unwrap();
    assert_eq!(world.ask(0, Ask::Get { key: "k".into() }), Err(Refusal::NoSuchKey));
    let Ok(Answer::Garbage(items)) = world.ask(0, Ask::Garbage { now: 9, max: 9 }) else {
        panic!("no garbage")
    };
    assert_eq!((items.len(), totals(&mut world)), (3, (0, 0)));
    // Nothing is left of the key, so that the bucket is empty.
    assert_eq!(world.ask(0, Ask::Seal), Ok(Answer::Done));
}

#[test]
fn suspended_bucket_has_one_null_version() {
    let mut world = World::new(1);
    world.ask(0, put("k", object(tag(1), Some(10)), Condition::default())).unwrap();
    world.ask(0, put_version("k", object(tag(2), Some(20)))).unwrap();
    world.ask(0, put_version("k", object(tag(3), Some(30)))).unwrap();
    // The null version is the oldest. It is replaced by the newest.
    let answer = world.ask(0, put("k", object(tag(4), Some(40)), Condition::default()));
    assert_eq!(answer, Ok(Answer::Put { replaced: true, version: VersionId::Null }));
    assert_eq!(versions(&mut world), ["k=04", "k=3", "k=2"]);
    world.ask(0, put("k", object(tag(5), Some(50)), Condition::default())).unwrap();
    assert_eq!(versions(&mut world), ["k=05", "k=3", "k=2"]);
    world.ask(0, mark("k", Versioning::Suspended, 6)).unwrap();
    assert_eq!(versions(&mut world), ["k=0-6", "k=3", "k=2"]);
    assert_eq!(totals(&mut world), (2, 50));
    world.ask(0, put_version("k", object(tag(7), None))).unwrap();
    world.ask(0, delete_version("k", VersionId::Null, LockView::default())).unwrap();
    assert_eq!(versions(&mut world), ["k=7", "k=3", "k=2"]);
    let Ok(Answer::Garbage(items)) = world.ask(0, Ask::Garbage { now: 9, max: 9 }) else {
        panic!("no garbage")
    };
    let data = |write: u64| Garbage::Data(vec![Extent { tag: tag(write), len: write * 10 }]);
    let found: Vec<Garbage> = items.into_iter().map(|item| item.garbage).collect();
    assert_eq!(found, [data(1), data(4), data(5)]);
    // Without an object, a marker is made only where there are versions.
    world.ask(0, mark("new", Versioning::Suspended, 8)).unwrap();
    world.ask(0, mark("none", Versioning::Off, 9)).unwrap();
    assert_eq!(versions(&mut world)[3..], ["new=0-8"]);
}

/// The gateway of the copy does not know yet that the bucket keeps versions.
#[test]
fn data_of_a_version_that_stays_is_not_shared() {
    let mut world = World::new(1);
    world.ask(0, put_version("k", object(tag(1), Some(7)))).unwrap();
    let mut changed = object(tag(2), Some(7));
    changed.head.body = Body::Data(vec![Extent { tag: tag(1), len: 7 }]);
    assert_eq!(world.ask(0, put("k", changed, Condition::default())), Err(Refusal::PreconditionFailed));
    assert_eq!(versions(&mut world), ["k=1"]);
}

#[test]
fn locked_version_stays_until_its_time() {
    let mut world = World::new(1);
    let locked = |write, mode| {
        let mut object = object(tag(write), Some(10));
        object.head.lock.retention = Some(Retention { mode, until: 100 });
        object
    };
    world.ask(0, put_version("k", locked(1, LockMode::Governance))).unwrap();
    world.ask(0, put_version("k", locked(2, LockMode::Compliance))).unwrap();
    let view = |now, bypass| LockView { now, bypass };
    let mut remove = |version, view| world.ask(0, delete_version("k", version, view)).map(drop);
    assert_eq!(remove(id(1, 1), view(50, false)), Err(Refusal::Locked));
    assert_eq!(remove(id(2, 2), view(50, true)), Err(Refusal::Locked));
    assert_eq!(remove(id(1, 1), view(50, true)), Ok(()));
    let revise = |revision| {
        Ask::Change(Change::Revise {
            key: "k".into(),
            version: Some(id(2, 2)),
            made_by: None,
            revision,
            tag: tag(3),
        })
    };
    let shorter = Some(Retention { mode: LockMode::Compliance, until: 60 });
    let shorten = revise(Revision::Retention { new: shorter, view: view(50, true) });
    assert_eq!(world.ask(0, shorten), Err(Refusal::Locked));
    world.ask(0, revise(Revision::LegalHold(true))).unwrap();
    let late = delete_version("k", id(2, 2), view(100, false));
    assert_eq!(world.ask(0, late.clone()), Err(Refusal::Locked));
    world.ask(0, revise(Revision::LegalHold(false))).unwrap();
    world.ask(0, late).unwrap();
    assert_eq!(versions(&mut world), [] as [String; 0]);
}

#[test]
fn revised_version_stays_the_same_version() {
    let mut world = World::new(1);
    world.ask(0, put_version("k", object(tag(1), None))).unwrap();
    world.ask(0, put_version("k", object(tag(2), Some(9)))).unwrap();
    let tags = |value: &str| BTreeMap::from([("t".to_owned(), value.to_owned())]);
    for (version, stamp) in [(None, 2), (Some(id(1, 1)), 1)] {
        let revision = Revision::Tags(tags("x"));
        let revise = Change::Revise { key: "k".into(), version, made_by: None, revision, tag: tag(3) };
        assert_eq!(world.ask(0, Ask::Change(revise)), Ok(Answer::Revised { version: id(stamp, stamp) }));
        let read = world.ask(0, Ask::GetVersion { key: "k".into(), version: id(stamp, stamp) });
        assert!(matches!(read, Ok(Answer::Object(found)) if found.head.tags == tags("x")));
    }
    assert_eq!((versions(&mut world).len(), totals(&mut world)), (2, (2, 10)));
    assert_eq!(world.ask(0, Ask::Garbage { now: 9, max: 9 }), Ok(Answer::Garbage(Vec::new())));
    // The version that another write made is not changed.
    for (made_by, expected) in [(tag(1), Err(Refusal::PreconditionFailed)), (tag(2), Ok(()))] {
        let (made_by, revision) = (Some(made_by), Revision::Tags(tags("z")));
        let revise = Change::Revise { key: "k".into(), version: None, made_by, revision, tag: tag(5) };
        assert_eq!(world.ask(0, Ask::Change(revise)).map(drop), expected);
    }
    let revision = Revision::Tags(tags("y"));
    let revise = Change::Revise { key: "none".into(), version: None, made_by: None, revision, tag: tag(4) };
    assert_eq!(world.ask(0, Ask::Change(revise)), Err(Refusal::NoSuchKey));
}

/// All versions of a key move together with it, however far the move is when a version is removed.
#[test]
fn versions_are_found_while_their_key_is_being_moved() {
    let limits = Limits { leaf_max: 4, count_after: 8, copy: 2 };
    for (moves, reads) in (0..60).flat_map(|moves| (0..8).map(move |reads| (moves, reads))) {
        let mut world = World::with_limits(2, limits);
        for write in 1..=3 {
            world.ask(0, put_version("k7", object(tag(write), Some(10)))).unwrap();
        }
        for n in 0..7 {
            let key = ["k0", "k1", "k2", "k3", "k4", "k5", "k6"][n];
            world.start(0, put(key, object(tag(10 + n as u64), None), Condition::default()));
        }
        world.run(0, moves);
        // The neighbours of the one in the middle may be in either leaf.
        let removed = world.start(1, delete_version("k7", id(2, 2), LockView::default()));
        world.run(1, reads);
        while world.run(0, 1) {}
        let done = world.settle();
        let (.., result) = done.iter().find(|(_, ticket, _)| *ticket == removed).expect("an answer");
        let expected = Answer::Deleted { existed: true, version: Some(id(2, 2)), is_marker: false };
        assert_eq!(*result, Ok(expected), "after {moves} and {reads}");
        let of_key: Vec<String> =
            versions(&mut world).into_iter().filter(|it| it.starts_with("k7")).collect();
        assert_eq!(of_key, ["k7=3", "k7=1"], "after {moves} and {reads}");
        for version in [id(3, 3), id(1, 1)] {
            let read = world.ask(0, Ask::GetVersion { key: "k7".into(), version });
            assert!(matches!(read, Ok(Answer::Object(_))), "{version} after {moves} and {reads}: {read:?}");
            world.ask(0, delete_version("k7", version, LockView::default())).unwrap();
        }
        assert_eq!(world.ask(1, Ask::Get { key: "k7".into() }), Err(Refusal::NoSuchKey));
    }
}

#[test]
fn versions_count_when_leaves_are_split() {
    let mut world = World::with_limits(1, Limits { leaf_max: 20, count_after: 5, copy: 7 });
    let keys = ["a", "b", "c", "d"];
    for write in 0..100 {
        world.ask(0, put_version(keys[write % 4], object(tag(write as u64), None))).unwrap();
    }
    assert_eq!((world.leaves(), versions(&mut world).len()), (4, 100));
    // The last key alone has more than a leaf should have, and stays where it is.
    for key in keys {
        world.ask(0, mark(key, Versioning::Enabled, 200)).unwrap();
        world.ask(0, delete(key)).unwrap();
    }
    assert_eq!(totals(&mut world), (100, 100));
}
