//! Tracks clients' requests for operators: the steps of requests in flight and of recent ones, with times.

use crate::counters::Counted;
use nacre_base::{Now, Time, Utime};
use nacre_proto::messages::{OsdOp, OsdOpReply};
use nacre_proto::types::{EntityAddr, EntityName};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A request with more data than this is kept in words only: the history must not hold memory.
const KEPT_DATA_MAX: usize = 64 << 10;
const NANOS: u64 = 1_000_000_000;

/// The times of a request's steps. None: the step did not happen (yet).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    pub arrived: Time,
    /// It reached the head of its object's queue.
    pub started: Option<Time>,
    /// The data that it needs was read.
    pub fetched: Option<Time>,
    /// It was sent to the local disk and the replicas.
    pub sent: Option<Time>,
    /// It is durable on the local disk.
    pub stored: Option<Time>,
    /// It is durable on all replicas.
    pub replicated: Option<Time>,
}

impl Steps {
    pub fn new(arrived: Time) -> Steps {
        Steps { arrived, ..Steps::default() }
    }
    /// The first time counts.
    pub fn start(&mut self, now: Time) {
        self.started.get_or_insert(now);
    }
    /// In the order of time, by Ceph's names where it has any.
    fn events(&self) -> Vec<(&'static str, Time)> {
        let mut events = vec![("initiated", self.arrived)];
        let steps = [
            ("started", self.started),
            ("data_read", self.fetched),
            ("waiting for subops", self.sent),
            ("op_commit", self.stored),
            ("sub_op_commit_rec", self.replicated),
        ];
        events.extend(steps.into_iter().filter_map(|(name, at)| Some((name, at?))));
        events.sort_by_key(|(_, at)| *at);
        events
    }
}

/// Whether a request reads, writes or does both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Both,
}

/// What is known of a request: its client, its operations, its steps. Cheap to copy.
#[derive(Clone, Debug)]
pub struct Request {
    pub op: Arc<OsdOp>,
    pub client: EntityName,
    pub addr: EntityAddr,
    pub tid: u64,
    pub access: Access,
    pub steps: Steps,
}

impl Request {
    pub fn data_len(&self) -> usize {
        self.op.ops.iter().map(|item| item.data.len()).sum()
    }

    fn description(&self) -> String {
        let codes: Vec<&str> = self.op.ops.iter().map(|item| item.op.code.name()).collect();
        let (reqid, pg) = (self.op.request_id(self.client, self.tid), self.op.spg.pg);
        format!("osd_op({reqid} {pg} {} [{}] e{})", self.op.object(), codes.join(","), self.op.epoch)
    }

    /// `waits` says what it waits for.
    pub fn in_flight(&self, now: Now, waits: &str) -> Value {
        self.show(&self.description(), now, now.mono, waits, None)
    }

    fn show(&self, description: &str, now: Now, end: Time, point: &str, last: Option<&str>) -> Value {
        let mut events = self.steps.events();
        events.extend(last.map(|name| (name, end)));
        let ends = events.iter().skip(1).map(|(_, at)| *at).chain([end]).collect::<Vec<_>>();
        let shown: Vec<Value> = events
            .iter()
            .zip(ends)
            .map(|((event, at), next)| {
                json!({
                    "event": event,
                    "time": wall(now, *at).to_string(),
                    "duration": next.since(*at).as_secs_f64(),
                })
            })
            .collect();
        json!({
            "description": description,
            "initiated_at": wall(now, self.steps.arrived).to_string(),
            "age": now.mono.since(self.steps.arrived).as_secs_f64(),
            "duration": end.since(self.steps.arrived).as_secs_f64(),
            "type_data": {
                "flag_point": point,
                "client_info": {
                    "client": self.client.to_string(),
                    "client_addr": self.addr.to_string(),
                    "tid": self.tid,
                },
                "events": shown,
            },
        })
    }

    /// Adds an answered request to the counters.
    pub fn count(&self, now: Time, reply: &OsdOpReply, counted: &Counted) {
        let (osd, stages, steps) = (&counted.osd, &counted.stages, &self.steps);
        let in_bytes = self.data_len() as u64;
        let out_bytes = reply.ops.iter().map(|result| result.data.len() as u64).sum();
        let whole = now.since(steps.arrived);
        let started = steps.started.unwrap_or(now);
        let process = now.since(started);
        osd.op.inc();
        osd.op_in_bytes.add(in_bytes);
        osd.op_out_bytes.add(out_bytes);
        osd.op_latency.add(whole);
        counted.latencies.add(whole);
        osd.op_process_latency.add(process);
        match self.access {
            Access::Read => {
                osd.op_r.inc();
                osd.op_r_out_bytes.add(out_bytes);
                osd.op_r_latency.add(whole);
                osd.op_r_process_latency.add(process);
                osd.op_r_latency_out_bytes_histogram.add(whole, out_bytes);
            }
            Access::Write => {
                osd.op_w.inc();
                osd.op_w_in_bytes.add(in_bytes);
                osd.op_w_latency.add(whole);
                osd.op_w_process_latency.add(process);
                osd.op_w_latency_in_bytes_histogram.add(whole, in_bytes);
            }
            Access::Both => {
                osd.op_rw.inc();
                osd.op_rw_in_bytes.add(in_bytes);
                osd.op_rw_out_bytes.add(out_bytes);
                osd.op_rw_latency.add(whole);
                osd.op_rw_latency_in_bytes_histogram.add(whole, in_bytes);
            }
        }
        stages.queue.add(started.since(steps.arrived));
        if let Some(fetched) = steps.fetched {
            stages.read.add(fetched.since(started));
        }
        let ready = steps.fetched.unwrap_or(started);
        if let Some(sent) = steps.sent {
            stages.execute.add(sent.since(ready));
            osd.op_w_prepare_latency.add(sent.since(started));
            if let Some(replicated) = steps.replicated {
                stages.replicas.add(replicated.since(sent));
            }
        }
        let everywhere = steps.stored.max(steps.replicated).unwrap_or(ready);
        stages.reply.add(now.since(everywhere));
    }
}

/// What the wall clock showed at `then`, unless it was set since.
fn wall(now: Now, then: Time) -> Utime {
    let nanos = u64::from(now.wall.sec) * NANOS + u64::from(now.wall.nsec);
    let at = nanos.saturating_sub(now.mono.since(then).as_nanos() as u64);
    Utime { sec: (at / NANOS) as u32, nsec: (at % NANOS) as u32 }
}

/// Limits of the history of answered requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    pub size: usize,
    pub duration: Duration,
    /// Of requests that took this long, as many are kept besides.
    pub slow: Duration,
    pub slow_size: usize,
}

struct Answered {
    request: Request,
    /// Where the request itself was too large to keep.
    text: Option<String>,
    at: Time,
}

/// The requests that were answered last, and the slow ones among all.
#[derive(Default)]
pub struct History {
    recent: VecDeque<Answered>,
    slow: VecDeque<Answered>,
}

impl History {
    pub fn add(&mut self, now: Time, request: Request, keep: &Keep) {
        if now.since(request.steps.arrived) >= keep.slow && keep.slow_size > 0 {
            let kept = Answered::new(now, request.clone());
            self.slow.push_back(kept);
        }
        while self.slow.len() > keep.slow_size {
            self.slow.pop_front();
        }
        if keep.size > 0 {
            self.recent.push_back(Answered::new(now, request));
        }
        let is_over = |recent: &VecDeque<Answered>| {
            recent.len() > keep.size || recent.front().is_some_and(|one| now.since(one.at) > keep.duration)
        };
        while is_over(&self.recent) {
            self.recent.pop_front();
        }
    }

    /// `dump_historic_ops`; the slowest first if `by_duration`.
    pub fn recent(&self, now: Now, keep: &Keep, by_duration: bool) -> Value {
        let mut kept: Vec<&Answered> =
            self.recent.iter().filter(|one| now.mono.since(one.at) <= keep.duration).collect();
        if by_duration {
            kept.sort_by_key(|one| std::cmp::Reverse(one.took()));
        }
        let ops: Vec<Value> = kept.iter().map(|one| one.show(now)).collect();
        json!({ "size": keep.size, "duration": keep.duration.as_secs(), "ops": ops })
    }

    /// `dump_historic_slow_ops`.
    pub fn slow(&self, now: Now, keep: &Keep) -> Value {
        let ops: Vec<Value> = self.slow.iter().map(|one| one.show(now)).collect();
        json!({
            "num to keep": keep.slow_size,
            "threshold to keep": keep.slow.as_secs_f64(),
            "Ops": ops,
        })
    }
}

impl Answered {
    fn new(at: Time, mut request: Request) -> Answered {
        let text = (request.data_len() > KEPT_DATA_MAX).then(|| {
            let text = request.description();
            let bare = OsdOp { ops: Vec::new(), ..(*request.op).clone() };
            request.op = Arc::new(bare);
            text
        });
        Answered { request, text, at }
    }
    fn took(&self) -> Duration {
        self.at.since(self.request.steps.arrived)
    }
    fn show(&self, now: Now) -> Value {
        let text = self.text.clone().unwrap_or_else(|| self.request.description());
        self.request.show(&text, now, self.at, "commit sent; apply or cleanup", Some("done"))
    }
}
