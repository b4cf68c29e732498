//! What is to be done, and in which order.
//!
//! A task is kept as one key of its pool's (or namespace's) `rbd_task` object, in the form in which Ceph's
//! manager keeps it: each takes over the other's.

use nacre_base::{Time, Utime};
use serde::{Deserialize, Serialize};
use serde_json::ser::{Formatter, PrettyFormatter};
use serde_json::{Map, Serializer, Value};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

const RETRY_AFTER: Duration = Duration::from_secs(30);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// A command that is repeated because its reply got lost gets the result of the first.
const DONE_MAX: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    #[serde(rename = "flatten")]
    Flatten,
    #[serde(rename = "remove")]
    Remove,
    #[serde(rename = "trash remove")]
    TrashRemove,
    #[serde(rename = "migrate execute")]
    MigrateExecute,
    #[serde(rename = "migrate commit")]
    MigrateCommit,
    #[serde(rename = "migrate abort")]
    MigrateAbort,
}

/// What a task is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refs {
    pub action: Action,
    pub pool_name: String,
    pub pool_namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
}

impl Refs {
    /// Whether `wanted`, in which the id may be unknown, means this.
    fn is(&self, wanted: &Refs) -> bool {
        let id = wanted.image_id.as_ref().and(self.image_id.clone());
        Refs { image_id: id, ..self.clone() } == *wanted
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The order in which tasks are done.
    pub sequence: u64,
    pub id: String,
    /// For people.
    pub message: String,
    pub refs: Refs,
    /// Only in memory: a restart tries again at once.
    #[serde(skip)]
    pub state: Progress,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Of the helper that works on it, from 0 to 1.
    pub running: Option<f64>,
    attempts: u32,
    failed: Option<String>,
    /// When to try (again), and how people read that.
    retry: Option<(Time, Utime)>,
}

impl Task {
    /// The key in `rbd_task`.
    pub fn key(&self) -> String {
        format!("{:016X}", self.sequence)
    }

    fn show(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut shown)) = serde_json::to_value(self) else {
            unreachable!("a task is a JSON object")
        };
        let mut add = |name: &str, value: Value| shown.insert(name.to_string(), value);
        let state = &self.state;
        if let Some(why) = &state.failed {
            add("retry_message", why.clone().into());
        }
        if state.attempts > 0 {
            add("retry_attempts", state.attempts.into());
        }
        if let Some((_, at)) = state.retry {
            add("retry_time", at.to_string().trim_end_matches("+0000").into());
        }
        if let Some(progress) = state.running {
            add("in_progress", true.into());
            add("progress", progress.into());
        }
        shown
    }

    /// As it is stored, and as commands show it.
    pub fn to_json(&self) -> String {
        written(&Value::Object(self.show()), Spaced)
    }

    /// As it is listed.
    pub fn to_long_json(&self) -> String {
        written_long(&sorted(self.show()))
    }
}

/// Over many lines, as Ceph's manager writes it.
pub fn written_long(value: &Value) -> String {
    written(value, PrettyFormatter::with_indent(b"    "))
}

/// In one line, as Python writes it.
pub fn written_in_line(value: &Value) -> String {
    written(value, Spaced)
}

fn sorted(map: Map<String, Value>) -> Value {
    let inner = |value| match value {
        Value::Object(map) => sorted(map),
        value => value,
    };
    let map: BTreeMap<String, Value> = map.into_iter().map(|(name, value)| (name, inner(value))).collect();
    Value::Object(map.into_iter().collect())
}

fn written(value: &Value, formatter: impl Formatter) -> String {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, formatter)).expect("memory takes it");
    String::from_utf8(out).expect("JSON is text")
}

/// JSON in one line, with a blank after each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }
    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.begin_object_key(out, first)
    }
}

/// All tasks of a cluster, and the last that were done.
#[derive(Debug, Default)]
pub struct Queue {
    tasks: BTreeMap<u64, Task>,
    done: VecDeque<Task>,
    newest: u64,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
    pub fn next_sequence(&self) -> u64 {
        self.newest + 1
    }
    pub fn insert(&mut self, task: Task) {
        self.newest = self.newest.max(task.sequence);
        self.tasks.insert(task.sequence, task);
    }
    pub fn get_mut(&mut self, sequence: u64) -> Option<&mut Task> {
        self.tasks.get_mut(&sequence)
    }
    pub fn by_id(&mut self, id: &str) -> Option<&mut Task> {
        self.tasks.values_mut().find(|task| task.id == id)
    }
    /// A task that is, or was done lately, about the same.
    pub fn find(&self, wanted: &Refs) -> Option<&Task> {
        self.tasks.values().rev().chain(self.done.iter().rev()).find(|task| task.refs.is(wanted))
    }
    pub fn list(&self) -> String {
        let all = self.tasks.values().map(|task| sorted(task.show())).collect();
        written_long(&Value::Array(all))
    }
    /// The first that may be tried now.
    pub fn due(&self, now: Time) -> Option<&Task> {
        self.tasks.values().find(|task| task.state.retry.is_none_or(|(at, _)| at <= now))
    }
    /// When there will be one.
    pub fn next_due(&self) -> Option<Time> {
        self.tasks.values().map(|task| task.state.retry.map_or(Time::ZERO, |(at, _)| at)).min()
    }

    /// An attempt is over. One that failed for a passing reason is to be tried again later, and longer
    /// each time.
    pub fn tried(&mut self, sequence: u64, failed: Option<String>, now: Time, wall: Utime) {
        let Some(task) = self.tasks.get_mut(&sequence) else { return };
        let state = &mut task.state;
        state.running = None;
        state.attempts += 1;
        let wait = (RETRY_AFTER * state.attempts.min(100)).min(RETRY_AFTER_MAX);
        let sec = wall.sec.saturating_add(wait.as_secs() as u32);
        state.retry = Some((now + wait, Utime { sec, ..wall }));
        state.failed = failed.or(state.failed.take());
    }

    /// Takes out what is done, or given up.
    pub fn remove(&mut self, sequence: u64, remember: bool) -> Option<Task> {
        let task = self.tasks.remove(&sequence)?;
        if remember {
            self.done.push_back(task.clone());
            while self.done.len() > DONE_MAX {
                self.done.pop_front();
            }
        }
        Some(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(sequence: u64, name: &str) -> Task {
        let refs = Refs {
            action: Action::TrashRemove,
            pool_name: "p".into(),
            pool_namespace: String::new(),
            image_name: Some(name.into()),
            image_id: Some("1f".into()),
        };
        let id = format!("id{sequence}");
        Task { sequence, id, message: format!("Removing {name}"), refs, state: Progress::default() }
    }

    const STORED: &str = r#"{"sequence": 18, "id": "id18", "message": "Removing a", "refs": {"action": "trash remove", "pool_name": "p", "pool_namespace": "", "image_name": "a", "image_id": "1f"}}"#;

    #[test]
    fn a_task_is_stored_as_ceph_stores_it_and_read_again() {
        let task = task(18, "a");
        assert_eq!((task.key().as_str(), task.to_json().as_str()), ("0000000000000012", STORED));
        assert_eq!(serde_json::from_str::<Task>(STORED).unwrap(), task);
        assert!(serde_json::from_str::<Task>(&STORED.replace("trash remove", "explode")).is_err());
        assert!(serde_json::from_str::<Task>("{}").is_err());
    }

    #[test]
    fn repeated_request_finds_its_task_done_or_not() {
        let mut queue = Queue::default();
        queue.insert(task(3, "a"));
        let unknown = Refs { image_id: None, ..task(0, "a").refs };
        assert_eq!(queue.find(&unknown).unwrap().sequence, 3);
        assert_eq!(queue.find(&Refs { image_id: Some("2f".into()), ..unknown.clone() }), None);
        queue.remove(3, true);
        assert_eq!(queue.find(&unknown).unwrap().sequence, 3);
        assert_eq!(queue.next_sequence(), 4);
    }

    #[test]
    fn what_failed_waits_longer_each_time_and_others_go_first() {
        let (mut queue, wall) = (Queue::default(), Utime { sec: 1_800_000_000, nsec: 0 });
        let at = |secs| Time::ZERO + Duration::from_secs(secs);
        queue.insert(task(1, "a"));
        queue.insert(task(2, "b"));
        assert_eq!(queue.due(at(0)).unwrap().sequence, 1);
        queue.tried(1, Some("busy".into()), at(0), wall);
        assert_eq!(queue.due(at(29)).unwrap().sequence, 2);
        queue.remove(2, true);
        assert_eq!((queue.due(at(29)), queue.next_due()), (None, Some(at(30))));
        queue.tried(1, Some("busy".into()), at(30), wall);
        assert_eq!(queue.next_due(), Some(at(90)));
        assert!(
            queue.list().contains("\"retry_message\": \"busy\",\n        \"retry_time\""),
            "{}",
            queue.list()
        );
        queue.remove(1, false);
        assert_eq!((queue.next_due(), queue.find(&task(1, "a").refs)), (None, None));
    }
}
