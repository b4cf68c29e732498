//! Values in the cluster that are damaged. Requests may fail, but they do not panic and they end.

use super::model::World;
use super::versions::put_version;
use super::{delete, object, put, tag};
use crate::condition::Condition;
use crate::index::{Answer, Ask, Change, Limits, Refusal};
use crate::leaf::{GENERATION, Garbage, LeafName, LeafRange, RANGE};
use crate::listing::{Listed, PageRequest};
use crate::record::{Body, Counters, Extent, Head};
use crate::version::VersionId;
use bytes::Bytes;
use nacre_base::{Name, PoolId, Rng};
use nacre_client::ObjectRequest;
use nacre_wire::{DecodeError, Encode, from_slice, to_vec, versioned};

/// How many operations a request may take before it counts as one without an end.
const OPERATIONS_MAX: usize = 300;

fn requests() -> Vec<Ask> {
    let page = PageRequest { max: 10, delimiter: "/".into(), ..PageRequest::default() };
    let key = |key: &'static str| Bytes::from(key);
    vec![
        Ask::Get { key: key("k3") },
        Ask::Get { key: key("k9/1") },
        Ask::GetVersion { key: key("k2"), version: VersionId::Null },
        Ask::Page(page.clone()),
        Ask::Page(PageRequest { listed: Listed::Versions, ..page.clone() }),
        Ask::Page(page.uploads_behind("", None)),
        Ask::Totals,
        Ask::Garbage { now: 9, max: 10 },
        Ask::Leaves,
        put("k3", object(tag(70), Some(5)), Condition::default()),
        put("new", object(tag(71), None), Condition::default()),
        delete("k4"),
        Ask::Change(Change::AbortUpload { key: key("u"), id: tag(50) }),
        Ask::Seal,
        Ask::Unseal,
    ]
}

/// A bucket with objects, an upload, garbage and several leaves, of which some may be taking keys over.
fn bucket(rng: &mut Rng) -> World {
    let mut world = World::with_limits(1, Limits { leaf_max: 4, count_after: 3, copy: 2 });
    let upload = Change::AddUpload { key: "u".into(), id: tag(50), record: "r".into() };
    world.ask(0, Ask::Change(upload)).unwrap();
    for n in 0..12 {
        let data = (n % 2 == 0).then_some(n + 1);
        let key = if n % 3 == 0 { format!("k{n}/1") } else { format!("k{n}") };
        world.start(0, put(&key, object(tag(n), data), Condition::default()));
        world.run(0, 4 + rng.below(12) as usize);
    }
    world.start(0, put("k2", object(tag(30), Some(9)), Condition::default()));
    world.start(0, put_version("k4", object(tag(31), Some(9))));
    world.start(0, put_version("k4", object(tag(32), None)));
    world.run(0, 1 + rng.below(40) as usize);
    world
}

#[test]
fn damaged_values_neither_panic_nor_keep_reads_from_ending() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut world = bucket(&mut rng);
        let what = world.rados.damage(&mut rng);
        world.sent.clear();
        for ask in requests() {
            // A gateway that knows nothing yet reads what is damaged.
            world.gateways[0] = world.new_gateway();
            // A write compares what it read with what is there, again and again: damage can keep it busy.
            let must_end = !matches!(ask, Ask::Change(_));
            let text = format!("{ask:?}");
            world.done.clear();
            let ticket = world.start(0, ask);
            world.run(0, OPERATIONS_MAX);
            let ended = world.done.iter().any(|(_, done, _)| *done == ticket);
            assert!(ended || !must_end, "seed {seed}, {what}: {text} does not end");
            world.sent.clear();
        }
    }
}

fn leaf() -> ObjectRequest {
    ObjectRequest::new(PoolId(1), LeafName::first(super::model::BUCKET).0)
}

/// The map says that the leaf has the key, and the leaf says that no leaf has it.
#[test]
fn key_that_no_leaf_has_is_corrupt() {
    let mut world = World::new(2);
    let range = LeafRange { high: Some("m".into()), generation: 2, ..LeafRange::first() };
    let cut = leaf().set_xattr(RANGE, to_vec(&range)).set_xattr(GENERATION, "2");
    world.rados.run(&cut).unwrap();
    for ask in [
        Ask::Get { key: "z".into() },
        put("z", object(tag(1), None), Condition::default()),
        Ask::Page(PageRequest { max: 1, after: "z".into(), ..PageRequest::default() }),
    ] {
        let ticket = world.start(0, ask);
        world.run(0, OPERATIONS_MAX);
        let (_, done, result) = world.done.pop().expect("an answer");
        assert!(done == ticket && matches!(result, Err(Refusal::Corrupt(_))), "{result:?}");
    }
}

#[test]
fn object_whose_sizes_do_not_add_up_is_corrupt() {
    let extent = |len| Extent { tag: tag(1), len };
    for (lens, parts) in [
        (vec![7, 2], vec![]),
        (vec![u64::MAX, 9], vec![]),
        (vec![8], vec![3, 4]),
        (vec![8], vec![u64::MAX, 9]),
    ] {
        let mut world = World::new(1);
        world.ask(0, put("a", object(tag(1), Some(8)), Condition::default())).unwrap();
        let body = Body::Data(lens.into_iter().map(extent).collect());
        let head = Bytes::from(to_vec(&Head { body, parts, ..Head::default() }));
        world.rados.run(&leaf().omap_set([(Name::from("da"), head)])).unwrap();
        let get = world.ask(0, Ask::Get { key: "a".into() });
        assert!(matches!(get, Err(Refusal::Corrupt(_))), "{get:?}");
    }
    let mut world = World::new(1);
    let mut of_parts = object(tag(1), Some(8));
    of_parts.head.parts = vec![5, 0, 3];
    world.ask(0, put("a", of_parts.clone(), Condition::default())).unwrap();
    assert_eq!(world.ask(0, Ask::Get { key: "a".into() }), Ok(Answer::Object(of_parts)));
}

#[test]
fn unknown_kinds_of_values_are_refused() {
    let bad = |what| Err(DecodeError::BadValue { what, value: 7 });
    let mut of_kind_7 = Vec::new();
    versioned(&mut of_kind_7, 1, 1, |out| (7_u8, 0_u32).encode(out));
    assert_eq!(from_slice::<Garbage>(&of_kind_7), bad("s3 garbage").map(|()| Garbage::Data(Vec::new())));
    assert_eq!(from_slice::<Body>(&of_kind_7), bad("s3 body").map(|()| Body::default()));
}

#[test]
fn damaged_counters_do_not_overflow() {
    let mut counters = Counters { objects: i64::MAX, bytes: i64::MIN };
    counters.add(Counters { objects: 1, bytes: -1 });
    assert_eq!(counters, Counters { objects: i64::MIN, bytes: i64::MAX });
    assert_eq!(LeafRange { generation: u64::MAX, ..LeafRange::first() }.next_generation().generation, 0);
}
