//! Random requests of several gateways, of which some are killed.

use super::linearizable::{Call, Event, Returned, Which, check};
use super::model::World;
use super::{absent, object, tag};
use crate::condition::Condition;
use crate::index::{Answer, Ask, Change, Deletion, GarbageItem, Limits, OpId, Refusal, Ticket};
use crate::leaf::Garbage;
use crate::listing::{Item, Listed, PageRequest};
use crate::record::{Counters, Entry};
use crate::tag::Tag;
use crate::version::{VersionId, Versioning};
use bytes::Bytes;
use nacre_base::Rng;
use nacre_base::errno::ETIMEDOUT;
use nacre_client::{Failure, ObjectReply};
use nacre_wire::from_slice;
use std::collections::{BTreeMap, BTreeSet};

const KEYS: [&str; 7] = ["a", "b", "b/c", "b/d", "c", "d", "e"];
const GATEWAYS: usize = 2;

/// What is asked, so that the answer can be judged.
struct Run {
    world: World,
    rng: Rng,
    now: u64,
    /// Some runs have versions, and some do not.
    has_versions: bool,
    events: Vec<(usize, Event)>,
    by_ticket: BTreeMap<(usize, Ticket), usize>,
    /// Carried out, with an answer on its way.
    replies: Vec<(usize, OpId, Result<ObjectReply, Failure>)>,
    last_write: u64,
    /// The versions that writes made, with the keys.
    versions: Vec<(usize, u64, VersionId)>,
    /// Writes that bring data, and those of them that succeeded.
    with_data: BTreeSet<Tag>,
    data: BTreeSet<Tag>,
}

impl Run {
    fn new(seed: u64, limits: Limits) -> Run {
        Run {
            world: World::with_limits(GATEWAYS as u64, limits),
            rng: Rng::new(seed),
            now: 0,
            has_versions: !seed.is_multiple_of(3),
            events: Vec::new(),
            by_ticket: BTreeMap::new(),
            replies: Vec::new(),
            last_write: 0,
            versions: Vec::new(),
            with_data: BTreeSet::new(),
            data: BTreeSet::new(),
        }
    }

    fn versioning(&mut self) -> Versioning {
        match self.rng.below(4) {
            _ if !self.has_versions => Versioning::Off,
            0 => Versioning::Off,
            1 => Versioning::Suspended,
            _ => Versioning::Enabled,
        }
    }

    /// One of the versions that a key has or had.
    fn version(&mut self, key: usize) -> (Which, VersionId) {
        let of_key: Vec<_> = self.versions.iter().filter(|(of, ..)| *of == key).copied().collect();
        match of_key.get(self.rng.below(of_key.len() as u64 + 1) as usize) {
            Some((_, write, id @ VersionId::Of { .. })) => (Which::Write(*write), *id),
            _ => (Which::Null, VersionId::Null),
        }
    }

    fn begin(&mut self) {
        let gateway = self.rng.below(GATEWAYS as u64) as usize;
        let key = self.rng.below(KEYS.len() as u64) as usize;
        let name = Bytes::from(KEYS[key]);
        let versioning = self.versioning();
        self.last_write += 1;
        let write = self.last_write;
        let kinds = if self.has_versions { 9 } else { 6 };
        let (call, ask) = match self.rng.below(kinds) {
            kind @ 0..3 => {
                let only_if_absent = kind == 0;
                let condition = if only_if_absent { absent() } else { Condition::default() };
                let object = object(tag(write), (kind == 1).then_some(write));
                self.with_data.extend((kind == 1).then_some(tag(write)));
                let keeps = versioning == Versioning::Enabled;
                let put = Change::Put { key: name, object, condition, due: 5, upload: None, keeps };
                (Call::Put { write, only_if_absent, keeps }, Ask::Change(put))
            }
            3 => {
                let deletion = Deletion { key: name, versioning, tag: tag(write), ..Deletion::default() };
                (Call::Delete { write, versioning }, Ask::Change(Change::Delete(Box::new(deletion))))
            }
            4 | 5 => (Call::Get, Ask::Get { key: name }),
            6 | 7 => {
                let (which, version) = self.version(key);
                let version = Some(version);
                let deletion = Deletion { key: name, version, tag: tag(write), ..Deletion::default() };
                (Call::DeleteVersion(which), Ask::Change(Change::Delete(Box::new(deletion))))
            }
            _ => {
                let (which, version) = self.version(key);
                (Call::GetVersion(which), Ask::GetVersion { key: name, version })
            }
        };
        let ticket = self.world.start(gateway, ask);
        self.by_ticket.insert((gateway, ticket), self.events.len());
        self.events.push((key, Event { call, begun: self.now, returned: None }));
    }

    fn take_answers(&mut self) {
        for (gateway, ticket, result) in std::mem::take(&mut self.world.done) {
            let Some(at) = self.by_ticket.remove(&(gateway, ticket)) else { continue };
            let (key, Event { call, .. }) = &self.events[at];
            let returned = match result {
                Ok(Answer::Put { replaced, version }) => {
                    let Call::Put { write, .. } = call else { panic!("{call:?}") };
                    self.versions.push((*key, *write, version));
                    self.data.extend(Some(tag(*write)).filter(|tag| self.with_data.contains(tag)));
                    Returned::Existed(replaced)
                }
                Ok(Answer::Deleted { existed, version, .. }) => {
                    if let (Call::Delete { write, .. }, Some(version)) = (call, version) {
                        self.versions.push((*key, *write, version));
                    }
                    Returned::Existed(existed)
                }
                Ok(Answer::Object(object)) => Returned::Found(object.entry.tag.sequence),
                Err(Refusal::NoSuchKey | Refusal::NoSuchVersion) => Returned::Found(0),
                Err(Refusal::DeleteMarker { .. }) if *call == Call::Get => Returned::Found(0),
                Err(Refusal::DeleteMarker { .. }) => Returned::Marker,
                Err(Refusal::PreconditionFailed) => Returned::Refused,
                // Unknown, and therefore possible at any time.
                Err(Refusal::Failed(_)) => continue,
                other => panic!("{other:?}"),
            };
            self.events[at].1.returned = Some((self.now, returned));
        }
    }

    fn step(&mut self) {
        self.now += 1;
        match self.rng.below(100) {
            0..30 => self.begin(),
            30..65 if !self.world.sent.is_empty() => {
                let at = self.rng.below(self.world.sent.len() as u64) as usize;
                let reply = self.world.carry_out(at);
                self.replies.push(reply);
            }
            65..97 if !self.replies.is_empty() => {
                let at = self.rng.below(self.replies.len() as u64) as usize;
                let (gateway, op, result) = self.replies.swap_remove(at);
                // Some answers are lost, whether the operation was carried out or not.
                let lost = self.rng.below(20) == 0;
                let result = if lost { Err(Failure::new(ETIMEDOUT, "lost")) } else { result };
                self.world.complete(gateway, op, result);
            }
            97 => self.kill(),
            _ => {}
        }
        self.take_answers();
    }

    /// A gateway ends. Some of what it sent still arrives.
    fn kill(&mut self) {
        let gateway = self.rng.below(GATEWAYS as u64) as usize;
        let rng = &mut self.rng;
        let sent = std::mem::take(&mut self.world.sent);
        let (of_it, others): (Vec<_>, Vec<_>) = sent.into_iter().partition(|(of, ..)| *of == gateway);
        self.world.sent = others.into();
        for (.., request) in of_it {
            if rng.below(2) == 0 {
                let _ = self.world.rados.run(&request);
            }
        }
        self.replies.retain(|(of, ..)| *of != gateway);
        self.by_ticket.retain(|(of, _), _| *of != gateway);
        self.world.gateways[gateway] = self.world.new_gateway();
    }

    fn finish(&mut self) {
        for (gateway, op, result) in std::mem::take(&mut self.replies) {
            self.world.complete(gateway, op, result);
        }
        self.now += 1;
        let done = self.world.settle();
        self.world.done = done;
        self.take_answers();
        assert!(self.by_ticket.is_empty(), "requests without an answer");
        for (at, key) in KEYS.iter().enumerate() {
            let events: Vec<Event> =
                self.events.iter().filter(|(of, _)| *of == at).map(|(_, event)| event.clone()).collect();
            let text: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
            assert!(check(&events), "no order of these explains them, on {key}:\n{}", text.join("\n"));
        }
        let versions = self.check_totals();
        self.remove_all(versions);
    }

    /// Lines of a listing.
    fn lines(&mut self, listed: Listed) -> Vec<(Bytes, Entry)> {
        let all = Ask::Page(PageRequest { max: 1000, listed, ..PageRequest::default() });
        let Ok(Answer::Page(page)) = self.world.ask(0, all) else { panic!("no page") };
        let line = |item: &Item| match item {
            Item::Key(key, value) => (key.clone(), from_slice(value).unwrap()),
            Item::Prefix(_) => panic!("a prefix without a delimiter"),
        };
        page.items.iter().map(line).collect()
    }

    fn garbage(&mut self) -> BTreeSet<Tag> {
        let ask = Ask::Garbage { now: u64::MAX, max: 1000 };
        let Ok(Answer::Garbage(items)) = self.world.ask(0, ask) else { panic!("no garbage") };
        let tags = |item: GarbageItem| match item.garbage {
            Garbage::Data(extents) => extents.into_iter().map(|extent| extent.tag),
            other => panic!("{other:?}"),
        };
        items.into_iter().flat_map(tags).collect()
    }

    /// Everything that is listed can be read and is counted. Returns all versions.
    fn check_totals(&mut self) -> Vec<(Bytes, Entry)> {
        let mut counted = Counters::default();
        let garbage = self.garbage();
        let versions = self.lines(Listed::Versions);
        let mut current = Vec::new();
        for (line, entry) in &versions {
            let at = line.iter().position(|byte| *byte == 0).expect("a line of a version");
            let (key, age) = (line.slice(..at), &line[at + 1..]);
            assert!(!garbage.contains(&entry.tag), "the data of {key:?} is garbage");
            let read = self.world.ask(1, Ask::GetVersion { key: key.clone(), version: entry.version() });
            match read {
                Ok(Answer::Object(object)) => assert_eq!(object.entry, *entry),
                Err(Refusal::DeleteMarker { .. }) => assert!(entry.is_marker),
                other => panic!("{key:?} is listed and cannot be read: {other:?}"),
            }
            if !entry.is_marker {
                counted.add(Counters::of_change(None, Some(entry)));
                if age.is_empty() {
                    current.push((key, entry.clone()));
                }
            }
        }
        assert_eq!(self.lines(Listed::Objects), current);
        let totals = self.world.ask(0, Ask::Totals);
        assert_eq!(totals, Ok(Answer::Totals(counted)));
        self.check_pages(&versions);
        versions
    }

    /// The same lines come page by page, also when each page goes on behind the version that was last.
    fn check_pages(&mut self, versions: &[(Bytes, Entry)]) {
        let (mut found, mut key, mut stamp) = (Vec::new(), String::new(), None);
        loop {
            let request = PageRequest { max: 2, ..PageRequest::default() }.versions_behind(&key, stamp);
            let Ok(Answer::Page(page)) = self.world.ask(0, Ask::Page(request)) else { panic!("no page") };
            for item in &page.items {
                let Item::Key(line, value) = item else { panic!("a prefix without a delimiter") };
                let entry: Entry = from_slice(value).unwrap();
                let at = line.iter().position(|byte| *byte == 0).expect("a line of a version");
                (key, stamp) = (String::from_utf8(line[..at].to_vec()).unwrap(), Some(entry.stamp));
                found.push((line.clone(), entry));
            }
            if !page.is_truncated {
                break;
            }
        }
        assert_eq!(found, versions);
    }

    /// Removes all versions in some order. Nothing is left of the keys, and all data is garbage.
    fn remove_all(&mut self, mut versions: Vec<(Bytes, Entry)>) {
        while !versions.is_empty() {
            let at = self.rng.below(versions.len() as u64) as usize;
            let (line, entry) = versions.swap_remove(at);
            let key = line.slice(..line.iter().position(|byte| *byte == 0).expect("a line of a version"));
            self.last_write += 1;
            let (version, tag) = (Some(entry.version()), tag(self.last_write));
            let deletion = Deletion { key, version, tag, ..Deletion::default() };
            let deleted = self.world.ask(1, Ask::Change(Change::Delete(Box::new(deletion))));
            assert!(matches!(deleted, Ok(Answer::Deleted { existed: true, .. })), "{deleted:?}");
        }
        assert_eq!(self.lines(Listed::Versions), Vec::new());
        assert_eq!(self.world.ask(0, Ask::Totals), Ok(Answer::Totals(Counters::default())));
        let garbage = self.garbage();
        let lost: Vec<&Tag> = self.data.difference(&garbage).collect();
        assert_eq!(lost, Vec::<&Tag>::new(), "data that nothing refers to");
    }
}

fn run(seeds: std::ops::Range<u64>, limits: Limits, steps: usize) -> usize {
    let mut leaves = 0;
    for seed in seeds {
        let mut run = Run::new(seed, limits);
        while run.events.len() < steps {
            run.step();
        }
        run.finish();
        leaves += run.world.leaves();
    }
    leaves
}

#[test]
fn answers_of_two_gateways_fit_one_order_and_totals_are_exact() {
    run(0..60, Limits::default(), 80);
}

/// Gateways are killed in the middle of splits, too.
#[test]
fn answers_fit_one_order_while_leaves_split() {
    let limits = Limits { leaf_max: 1, count_after: 2, copy: 1 };
    let leaves = run(1000..1050, limits, 120);
    assert!(leaves > 100, "only {leaves} leaves");
}
