//! Listings of a PG, as far as they are more than names.

use super::world::World;
use super::write;
use bytes::Bytes;
use nacre_base::Epoch;
use nacre_proto::types::{ListFilter, ObjectId, Op};
use nacre_wire::{Decode, Reader};

type Entry = (Bytes, (Bytes, Bytes));

/// The names of the only PG, page by page.
fn names(w: &mut World, filter: Option<ListFilter>) -> Vec<String> {
    let (mut cursor, mut names) = (ObjectId::min(), Vec::new());
    loop {
        let list = Op::List { max: 2, start_epoch: Epoch(0), cursor, filter: filter.clone() };
        let reply = w.run_ops("", vec![list]);
        let mut r = Reader::new(&reply.ops[0].data);
        let (next, page) =
            r.versioned("page", 1, |r, _| Ok((ObjectId::decode(r)?, Vec::<Entry>::decode(r)?))).unwrap();
        names.extend(page.iter().map(|(_, (name, _))| String::from_utf8_lossy(name).into_owned()));
        if reply.result == 1 {
            names.sort();
            return names;
        }
        cursor = next;
    }
}

#[test]
fn a_listing_may_be_of_those_only_whose_attribute_has_a_value() {
    let mut w = World::new(5, 3, 3, 2, 1);
    for i in 0..9_u8 {
        w.run_ops(&format!("o{i}"), write("x"));
        if i > 0 {
            let value = if i % 2 == 0 { "even" } else { "odd" };
            w.run_ops(&format!("o{i}"), vec![Op::SetXattr { name: "tag".into(), value: value.into() }]);
        }
    }
    let mut of = |attr: &str, value: &'static str| {
        names(&mut w, Some(ListFilter { attr: attr.into(), value: value.into() }))
    };
    assert_eq!(of("_tag", "odd"), ["o1", "o3", "o5", "o7"]);
    assert_eq!(of("_tag", "even"), ["o2", "o4", "o6", "o8"]);
    assert_eq!(of("_tag", ""), [""; 0], "who has none has no empty one");
    assert_eq!(of("tag", "odd"), [""; 0]);
    assert_eq!(names(&mut w, None).len(), 9);
}

#[test]
fn hit_sets_are_kept_only_in_cache_pools() {
    let mut w = World::new(5, 3, 3, 2, 1);
    let listed = w.run_ops("", vec![Op::ListHitSets]);
    assert_eq!((listed.result, &listed.ops[0].data[..]), (0, &[0; 4][..]));
    assert_eq!(w.run_ops("", vec![Op::GetHitSet]).result, -2);
}
