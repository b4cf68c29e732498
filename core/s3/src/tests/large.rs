//! Buckets with very many keys: what a page of a listing costs. The tests of CI have some ten thousand keys,
//! those that `cargo xtask soak s3` runs a million.

use super::model::World;
use super::{object, tag};
use crate::condition::Condition;
use crate::index::{Answer, Ask, Change, Deletion, Limits};
use crate::listing::{Item, Listed, Page, PageRequest};
use crate::record::Counters;
use crate::version::Versioning;
use bytes::Bytes;
use nacre_base::Rng;
use std::collections::BTreeSet;

/// Requests that are under way at the same time.
const AT_ONCE: u64 = 200;

fn put_key(key: String, write: u64, keeps: bool) -> Ask {
    let (object, condition) = (object(tag(write), None), Condition::default());
    Ask::Change(Change::Put { key: key.into(), object, condition, due: 5, upload: None, keeps })
}

/// Carries out all operations that are under way, and those that follow from them.
fn settle(world: &mut World) {
    for (_, _, result) in world.settle() {
        result.unwrap();
    }
}

/// A page that a gateway asks for, while up to `others` operations of the other gateway run before each of
/// its own. How many operations it took.
fn page_among(world: &mut World, request: PageRequest, others: usize) -> (Page, usize) {
    let ticket = world.start(1, Ask::Page(request));
    let mut own = 0;
    loop {
        if let Some(at) = world.done.iter().position(|(_, found, _)| *found == ticket) {
            let (.., result) = world.done.remove(at);
            let Ok(Answer::Page(page)) = result else { panic!("no page: {result:?}") };
            return (page, own);
        }
        world.run(0, others);
        assert!(world.run(1, 1), "the page is neither there nor under way");
        own += 1;
    }
}

/// Case 10: pages with a delimiter while keys are written and leaves split. Each costs few operations,
/// whatever the number of keys, and no key that was there is missing or shown twice.
fn pages_stay_short_while_leaves_split(keys: u64, limits: Limits) {
    let mut world = World::with_limits(2, limits);
    let mut rng = Rng::new(10);
    // A tenth of the keys are below a folder of their own; most folders have a thousand.
    let name = |n: u64| match n % 10 {
        0 => format!("alone-{n:08}/x"),
        _ => format!("folder-{:04}/{n:08}", n * 7919 % (keys / 1000)),
    };
    let mut order: Vec<u64> = (0..keys).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let (early, late) = order.split_at(order.len() / 2);
    for (at, n) in early.iter().enumerate() {
        world.start(0, put_key(name(*n), *n, false));
        if at as u64 % AT_ONCE == AT_ONCE - 1 {
            settle(&mut world);
        }
    }
    settle(&mut world);
    let folder_of = |n: &u64| format!("{}/", name(*n).split('/').next().unwrap());
    let before: BTreeSet<String> = early.iter().map(folder_of).collect();
    let (mut late, mut costs, mut found) = (late.iter(), Vec::new(), Vec::new());
    let leaves_before = world.leaves();
    let mut request = PageRequest { delimiter: "/".into(), max: 1000, ..PageRequest::default() };
    loop {
        for n in late.by_ref().take((keys / 60) as usize) {
            world.start(0, put_key(name(*n), *n, false));
        }
        let (page, cost) = page_among(&mut world, request.clone(), 20);
        costs.push(cost);
        found.extend(page.items.iter().map(|item| {
            let Item::Prefix(prefix) = item else { panic!("a key without a folder: {item:?}") };
            String::from_utf8(prefix.to_vec()).unwrap()
        }));
        if !page.is_truncated {
            break;
        }
        request.after = page.items.last().unwrap().marker().clone();
    }
    for n in late {
        world.start(0, put_key(name(*n), *n, false));
    }
    settle(&mut world);
    assert!(world.leaves() > leaves_before, "no leaf was split");
    let is_rising = found.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(is_rising, "a folder was shown twice, or out of order");
    let found: BTreeSet<String> = found.into_iter().collect();
    let missing: Vec<_> = before.difference(&found).take(3).collect();
    assert!(missing.is_empty(), "not shown: {missing:?}");
    costs.sort_unstable();
    let p99 = costs[(costs.len() - 1) * 99 / 100];
    println!("{keys} keys, {} leaves, {} pages: p99 {p99} operations", world.leaves(), costs.len());
    // A page reads once behind each folder of many keys.
    assert!(p99 <= PAGE_COST_MAX + (keys / 1000) as usize, "{costs:?}");
}

/// The most operations of one page, without those that read behind folders of many keys.
const PAGE_COST_MAX: usize = 200;

/// Case 9: keys of which nothing but delete markers is left do not slow a plain listing, and when all
/// versions are removed by two gateways at the same time, nothing remains.
fn markers_do_not_slow_plain_listings(keys: u64, limits: Limits) {
    let mut world = World::with_limits(2, limits);
    let name = |n: u64| format!("{n:08}");
    let deletion = |n: u64| Deletion {
        key: name(n).into(),
        versioning: Versioning::Enabled,
        due: 5,
        tag: tag(keys + n),
        ..Deletion::default()
    };
    for begin in (0..keys).step_by(AT_ONCE as usize) {
        let some = begin..(begin + AT_ONCE).min(keys);
        for n in some.clone() {
            world.start(0, put_key(name(n), n, true));
        }
        settle(&mut world);
        // One key of a thousand stays.
        for n in some.filter(|n| n % 1000 != 7) {
            world.start(0, Ask::Change(Change::Delete(Box::new(deletion(n)))));
        }
        settle(&mut world);
    }
    let left = Counters { objects: 0, bytes: 0 };
    let plain = PageRequest { max: 1000, ..PageRequest::default() };
    let (page, cost) = page_among(&mut world, plain.clone(), 0);
    assert_eq!(page.items.len() as u64, (keys / 1000).min(1000));
    // The leaves have to be looked at, and nothing else.
    let leaves = world.leaves();
    println!("{keys} delete markers, {leaves} leaves: {cost} operations for a page over all of them");
    assert!(cost <= 2 * leaves + 2, "{cost} operations for {leaves} leaves");
    let versions = PageRequest { listed: Listed::Versions, ..plain.clone() };
    loop {
        let (page, _) = page_among(&mut world, versions.clone(), 0);
        if page.items.is_empty() {
            break;
        }
        for (at, item) in page.items.iter().enumerate() {
            let Item::Key(line, value) = item else { panic!("a prefix without a delimiter") };
            let entry: crate::record::Entry = nacre_wire::from_slice(value).unwrap();
            let key = Bytes::copy_from_slice(line.split(|byte| *byte == 0).next().unwrap());
            let one = Deletion { key, version: Some(entry.version()), due: 5, ..deletion(at as u64) };
            world.start(at % 2, Ask::Change(Change::Delete(Box::new(one))));
        }
        settle(&mut world);
    }
    assert!(page_among(&mut world, plain, 0).0.items.is_empty());
    assert_eq!(world.ask(1, Ask::Totals), Ok(Answer::Totals(left)));
}

const SMALL: Limits = Limits { leaf_max: 500, count_after: 100, copy: 50 };

#[test]
fn pages_of_thousands_of_folders_stay_short_while_leaves_split() {
    pages_stay_short_while_leaves_split(20_000, SMALL);
}

#[test]
fn thousands_of_delete_markers_do_not_slow_plain_listings() {
    markers_do_not_slow_plain_listings(5_000, SMALL);
}

#[test]
#[ignore = "takes minutes: cargo xtask soak s3"]
fn pages_of_a_million_keys_stay_short_while_leaves_split() {
    pages_stay_short_while_leaves_split(1_000_000, Limits::default());
}

#[test]
#[ignore = "takes minutes: cargo xtask soak s3"]
fn million_delete_markers_do_not_slow_plain_listings() {
    markers_do_not_slow_plain_listings(1_000_000, Limits::default());
}
