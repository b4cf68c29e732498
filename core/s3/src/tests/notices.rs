//! Notices of changes are there exactly if the change is.

use super::model::World;
use super::{absent, delete, object, put, tag};
use crate::condition::Condition;
use crate::index::{Answer, Ask, NoticeItem, NoticesOf, Paused};
use crate::notice::{NoticeBucket, NoticeRule, NoticeSource, Notices, Occasion, event};
use crate::version::Versioning;

fn noted(ask: Ask) -> Ask {
    noted_for(ask, "t")
}

fn noted_for(ask: Ask, topic: &str) -> Ask {
    let Ask::Change(change) = ask else { panic!("{ask:?}") };
    let rule = |id: &str, events: &str| NoticeRule {
        id: id.into(),
        topic: topic.into(),
        events: vec![events.into()],
        ..NoticeRule::default()
    };
    let rules = [rule("made", "ObjectCreated:*"), rule("gone", "ObjectRemoved:*")];
    let (source, bucket) = (&NoticeSource::default(), &NoticeBucket::default());
    let occasion = Occasion { source, bucket, created: event::PUT, versioning: Versioning::Off, due: 7 };
    let notices = Notices::of_change(&change, &rules, occasion);
    Ask::Noted { change, notices }
}

fn waiting(world: &mut World, gateway: usize, of: NoticesOf) -> Vec<NoticeItem> {
    found(world, gateway, of, 100, Paused::default())
}

fn found(world: &mut World, gateway: usize, of: NoticesOf, max: usize, without: Paused) -> Vec<NoticeItem> {
    match world.ask(gateway, Ask::Notices { of, max, without }) {
        Ok(Answer::Notices(items)) => items,
        other => panic!("{other:?}"),
    }
}

fn shown(items: &[NoticeItem]) -> Vec<(&str, &str)> {
    items.iter().map(|item| (item.notice.object.key.as_str(), item.notice.event.as_str())).collect()
}

#[test]
fn changes_that_are_made_are_noted_in_the_same_operation() {
    let mut world = World::new(2);
    world.ask(0, put("a", object(tag(1), None), Condition::default())).unwrap();
    let before = world.operations;
    world.ask(0, noted(put("b", object(tag(2), None), Condition::default()))).unwrap();
    assert_eq!(world.operations - before, 1);
    world.ask(0, noted(put("b", object(tag(3), None), absent()))).unwrap_err();
    world.ask(0, noted(delete("nothing"))).unwrap();
    world.ask(0, noted(delete("b"))).unwrap();
    assert!(waiting(&mut world, 1, NoticesOf::Due { now: 6 }).is_empty());
    let items = waiting(&mut world, 1, NoticesOf::Due { now: 7 });
    assert_eq!(shown(&items), [("b", event::PUT), ("b", event::DELETE)]);
    let (leaf, key) = (items[0].leaf.clone(), items[0].key.clone());
    world.ask(1, Ask::ForgetGarbage { leaf, keys: vec![key] }).unwrap();
    assert_eq!(shown(&waiting(&mut world, 1, NoticesOf::Due { now: 7 })), [("b", event::DELETE)]);
}

#[test]
fn gateway_finds_its_own_notices_before_they_are_due() {
    let mut world = World::new(2);
    // The model's gateways have the numbers 1 and 2.
    world.ask(0, noted(put("a", object(tag(1), None), Condition::default()))).unwrap();
    let own = |key: &'static str| NoticesOf::Own { key: key.into(), now: 6 };
    let found: Vec<usize> = (0..2).map(|gateway| waiting(&mut world, gateway, own("a")).len()).collect();
    assert_eq!(found.iter().sum::<usize>(), 1, "{found:?}");
    // What is due is found by the search in all leaves.
    let later = || NoticesOf::Own { key: "a".into(), now: 8 };
    let found: Vec<usize> = (0..2).map(|gateway| waiting(&mut world, gateway, later()).len()).collect();
    assert_eq!(found, [0, 0]);
}

#[test]
fn notices_of_paused_topics_do_not_hide_others() {
    let mut world = World::new(1);
    // More than a page of a search.
    for number in 1..=1100 {
        world.ask(0, noted_for(put("a", object(tag(number), None), Condition::default()), "down")).unwrap();
    }
    world.ask(0, noted_for(put("b", object(tag(2000), None), Condition::default()), "up")).unwrap();
    let due = NoticesOf::Due { now: 7 };
    let topics = |items: &[NoticeItem]| -> Vec<String> {
        items.iter().map(|item| item.notice.topic.clone()).collect()
    };
    let first = found(&mut world, 0, due.clone(), 200, Paused::default());
    assert!(topics(&first).iter().all(|topic| topic == "down") && first.len() == 200);
    let time = first[0].notice.time;
    let paused = |since| Paused { topics: ["down".to_owned()].into(), since };
    assert_eq!(topics(&found(&mut world, 0, due.clone(), 200, paused(time))), ["up"]);
    // Those that have waited for too long are found, to be given up.
    assert_eq!(found(&mut world, 0, due, 2000, paused(time + 1)).len(), 1101);
}
