//! Notices of changes are there exactly if the change is.

use super::model::World;
use super::{absent, delete, object, put, tag};
use crate::condition::Condition;
use crate::index::{Answer, Ask, NoticeItem, NoticesOf};
use crate::notice::{NoticeBucket, NoticeRule, NoticeSource, Notices, Occasion, event};
use crate::version::Versioning;

fn noted(ask: Ask) -> Ask {
    let Ask::Change(change) = ask else { panic!("{ask:?}") };
    let rule = |id: &str, events: &str| NoticeRule {
        id: id.into(),
        topic: "t".into(),
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
    match world.ask(gateway, Ask::Notices { of, max: 100 }) {
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
    let own = |key: &'static str| NoticesOf::Own { key: key.into() };
    let found: Vec<usize> = (0..2).map(|gateway| waiting(&mut world, gateway, own("a")).len()).collect();
    assert_eq!(found.iter().sum::<usize>(), 1, "{found:?}");
}
