//! What clients do while everything breaks, and what they are told.

use crate::cluster::Cluster;
use crate::history::{Action, Answer, Entry, Held, linearizable};
use bytes::Bytes;
use nacre_base::{PoolId, Rng, errno};
use nacre_client::{Failure, ObjectReply, ObjectRequest, Output, Request, RequestId};
use nacre_wire::from_slice;
use std::collections::BTreeMap;

/// Each client keeps so many requests in flight.
const DEPTH: usize = 2;

struct InFlight {
    client: usize,
    request: RequestId,
    object: (PoolId, String),
    asked: u64,
    action: Action,
}

pub struct Workload {
    rng: Rng,
    clock: u64,
    in_flight: Vec<InFlight>,
    histories: BTreeMap<(PoolId, String), Vec<Entry>>,
    written: u64,
    pub answered: u64,
}

impl Workload {
    pub fn new(rng: Rng) -> Workload {
        Workload { rng, clock: 0, in_flight: Vec::new(), histories: BTreeMap::new(), written: 0, answered: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Notes what was answered, and asks for more.
    pub fn go_on(&mut self, c: &mut Cluster, pools: &[PoolId]) -> Result<(), String> {
        self.take_answers(c)?;
        for client in 0..c.clients.len() {
            while self.in_flight.iter().filter(|op| op.client == client).count() < DEPTH {
                let pool = *self.rng.pick(pools).expect("there is a pool");
                let name = format!("object.{}", self.rng.below(6));
                let action = self.draw();
                self.ask(c, client, pool, name, action);
            }
        }
        Ok(())
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// In words, for a run that does not end.
    pub fn waits_for(&self) -> String {
        let ops: Vec<String> = self
            .in_flight
            .iter()
            .map(|op| {
                format!("client.{}: {:?} of {} in pool {}", op.client, op.action, op.object.1, op.object.0)
            })
            .collect();
        ops.join(", ")
    }

    fn draw(&mut self) -> Action {
        self.written += 1;
        let word = Bytes::from(format!("<{}>", self.written));
        match self.rng.below(15) {
            0 => Action::WriteFull(word),
            1..=3 => Action::Append(word),
            4 => Action::Write(self.rng.below(20), word),
            // Larger than a block, or than what goes through the log.
            5 => {
                let times = *self.rng.pick(&[2000, 2000, 20_000]).expect("some");
                Action::Write(self.rng.below(8) * 1000, Bytes::from(word.repeat(times)))
            }
            6 => Action::AppendAndKey(format!("key{}", self.rng.below(5)), word),
            7 => Action::Create(word),
            8 => Action::Delete,
            9 => Action::AppendAndAttr(format!("attr{}", self.rng.below(3)), word),
            10 => Action::Truncate(self.rng.below(3) * self.rng.below(5000)),
            11 => Action::Zero(self.rng.below(3) * self.rng.below(4000), 1 + self.rng.below(5000)),
            _ => Action::Read,
        }
    }

    fn ask(&mut self, c: &mut Cluster, client: usize, pool: PoolId, name: String, action: Action) {
        let request = ObjectRequest::new(pool, name.as_str());
        let request = match &action {
            Action::WriteFull(data) => request.write_full(data.clone()),
            Action::Append(data) => request.append(data.clone()),
            Action::Write(offset, data) => request.write(*offset, data.clone()),
            Action::AppendAndKey(key, data) => {
                request.append(data.clone()).omap_set([(key.as_str().into(), data.clone())])
            }
            Action::AppendAndAttr(name, data) => {
                request.append(data.clone()).set_xattr(name.as_str(), data.clone())
            }
            Action::Truncate(size) => request.truncate(*size),
            Action::Zero(offset, len) => request.zero(*offset, *len),
            Action::Create(data) => request.create(true).write_full(data.clone()),
            Action::Delete => request.remove(),
            Action::Read => request.read(0, 0).omap_get("", 100).get_xattrs(),
        };
        let asked = self.tick();
        let request = c.submit(client, Request::from(request));
        self.in_flight.push(InFlight { client, request, object: (pool, name), asked, action });
    }

    pub fn take_answers(&mut self, c: &mut Cluster) -> Result<(), String> {
        let mut waiting = Vec::new();
        for op in std::mem::take(&mut self.in_flight) {
            let Some(result) = c.take(op.client, op.request) else {
                waiting.push(op);
                continue;
            };
            let answer = understand(&op.action, result)
                .map_err(|why| format!("{:?} of {}: {why}", op.action, op.object.1))?;
            self.answered += 1;
            let answered = self.tick();
            let entry = Entry { asked: op.asked, answered, action: op.action, answer };
            self.histories.entry(op.object).or_default().push(entry);
        }
        self.in_flight = waiting;
        Ok(())
    }

    /// Reads every object that was ever written, once more.
    pub fn read_all(&mut self, c: &mut Cluster) {
        let objects: Vec<_> = self.histories.keys().cloned().collect();
        for (pool, name) in objects {
            self.ask(c, 0, pool, name, Action::Read);
        }
    }

    pub fn check(&self) -> Result<(), String> {
        for ((pool, name), entries) in &self.histories {
            linearizable(entries).map_err(|why| format!("{name} in pool {pool}: {why}"))?;
        }
        Ok(())
    }
}

fn understand(action: &Action, result: Result<Output, Failure>) -> Result<Answer, String> {
    match (action, result) {
        (Action::Read, Ok(Output::Object(reply))) => Ok(Answer::Value(held(&reply)?)),
        (Action::Read, Err(e)) if e.errno == errno::ENOENT => Ok(Answer::NotFound),
        (Action::Delete, Err(e)) if e.errno == errno::ENOENT => Ok(Answer::NotFound),
        (Action::Create(_), Err(e)) if e.errno == errno::EEXIST => Ok(Answer::Exists),
        (Action::Read, other) => Err(format!("answered with {other:?}")),
        (_, Ok(Output::Object(_))) => Ok(Answer::Done),
        (_, other) => Err(format!("answered with {other:?}")),
    }
}

fn held(reply: &ObjectReply) -> Result<Held, String> {
    let [data, omap, attrs] = &reply.ops[..] else { return Err(format!("{} outputs", reply.ops.len())) };
    let (pairs, more): (BTreeMap<String, Bytes>, bool) =
        from_slice(&omap.data).map_err(|e| format!("an omap that cannot be read: {e}"))?;
    if more {
        return Err("more keys than were ever set".into());
    }
    let attrs = from_slice(&attrs.data).map_err(|e| format!("attributes that cannot be read: {e}"))?;
    Ok(Held { data: data.data.to_vec(), attrs, omap: pairs })
}
