//! Random requests of several gateways, of which some are killed.

use super::linearizable::{Call, Event, Returned, check};
use super::model::World;
use super::{absent, delete, object, put, tag};
use crate::condition::Condition;
use crate::index::{Answer, Ask, Limits, OpId, Refusal, Ticket};
use crate::listing::{Item, PageRequest};
use crate::record::{Counters, Entry};
use nacre_base::Rng;
use nacre_base::errno::ETIMEDOUT;
use nacre_client::{Failure, ObjectReply};
use nacre_wire::from_slice;
use std::collections::BTreeMap;

const KEYS: [&str; 7] = ["a", "b", "b/c", "b/d", "c", "d", "e"];
const GATEWAYS: usize = 2;

/// What is asked, so that the answer can be judged.
struct Run {
    world: World,
    rng: Rng,
    now: u64,
    events: Vec<(usize, Event)>,
    by_ticket: BTreeMap<(usize, Ticket), usize>,
    /// Carried out, with an answer on its way.
    replies: Vec<(usize, OpId, Result<ObjectReply, Failure>)>,
    last_write: u64,
}

impl Run {
    fn begin(&mut self) {
        let gateway = self.rng.below(GATEWAYS as u64) as usize;
        let key = self.rng.below(KEYS.len() as u64) as usize;
        let (call, ask) = match self.rng.below(6) {
            kind @ 0..3 => {
                self.last_write += 1;
                let only_if_absent = kind == 0;
                let condition = if only_if_absent { absent() } else { Condition::default() };
                let data = (kind == 1).then_some(self.last_write);
                let ask = put(KEYS[key], object(tag(self.last_write), data), condition);
                (Call::Put { write: self.last_write, only_if_absent }, ask)
            }
            3 => (Call::Delete, delete(KEYS[key])),
            _ => (Call::Get, Ask::Get { key: KEYS[key].into() }),
        };
        let ticket = self.world.start(gateway, ask);
        self.by_ticket.insert((gateway, ticket), self.events.len());
        self.events.push((key, Event { call, begun: self.now, returned: None }));
    }

    fn take_answers(&mut self) {
        for (gateway, ticket, result) in std::mem::take(&mut self.world.done) {
            let Some(at) = self.by_ticket.remove(&(gateway, ticket)) else { continue };
            let returned = match result {
                Ok(Answer::Put { replaced }) => Returned::Existed(replaced),
                Ok(Answer::Deleted { existed }) => Returned::Existed(existed),
                Ok(Answer::Object(object)) => Returned::Found(object.entry.tag.sequence),
                Err(Refusal::NoSuchKey) => Returned::Found(0),
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
        self.check_totals();
    }

    fn check_totals(&mut self) {
        let all = Ask::Page(PageRequest { max: 1000, ..PageRequest::default() });
        let Ok(Answer::Page(page)) = self.world.ask(0, all) else { panic!("no page") };
        let mut counted = Counters::default();
        for item in &page.items {
            let Item::Key(key, value) = item else { panic!("a prefix without a delimiter") };
            let entry: Entry = from_slice(value).unwrap();
            counted.add(Counters::of_change(None, Some(&entry)));
            let Ok(Answer::Object(object)) = self.world.ask(1, Ask::Get { key: key.clone() }) else {
                panic!("{key:?} is listed and cannot be read");
            };
            assert_eq!(object.entry, entry);
        }
        let totals = self.world.ask(0, Ask::Totals);
        assert_eq!(totals, Ok(Answer::Totals(counted)));
    }
}

fn run(seeds: std::ops::Range<u64>, limits: Limits, steps: usize) -> usize {
    let mut leaves = 0;
    for seed in seeds {
        let mut run = Run {
            world: World::with_limits(GATEWAYS as u64, limits),
            rng: Rng::new(seed),
            now: 0,
            events: Vec::new(),
            by_ticket: BTreeMap::new(),
            replies: Vec::new(),
            last_write: 0,
        };
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
