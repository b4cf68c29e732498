//! Whether the answers about one key fit some order of the requests.

use crate::version::Versioning;
use std::collections::BTreeSet;

/// Which version is meant. Writes are known by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Null,
    Write(u64),
}

/// A request about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Put { write: u64, only_if_absent: bool, keeps: bool },
    Delete { write: u64, versioning: Versioning },
    DeleteVersion(Which),
    Get,
    GetVersion(Which),
}

/// What came back. For a Put whether it replaced an object, for a Delete whether there was one. Zero is no
/// object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    Existed(bool),
    Refused,
    Found(u64),
    Marker,
}

/// A request, when it was begun, and when and with what it returned.
#[derive(Clone, Debug)]
pub struct Event {
    pub call: Call,
    pub begun: u64,
    /// None: it may have happened at any time since, or never.
    pub returned: Option<(u64, Returned)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    write: u64,
    is_null: bool,
    is_marker: bool,
}

/// The versions of a key, from the oldest to the newest.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    versions: Vec<Version>,
    has_history: bool,
}

impl Key {
    fn current(&self) -> u64 {
        self.versions.last().filter(|version| !version.is_marker).map_or(0, |version| version.write)
    }
    fn find(&self, which: Which) -> Option<usize> {
        self.versions.iter().position(|version| match which {
            Which::Null => version.is_null,
            Which::Write(write) => !version.is_null && version.write == write,
        })
    }
    fn add(&mut self, write: u64, keeps: bool, is_marker: bool) {
        if !keeps && let Some(at) = self.find(Which::Null) {
            self.versions.remove(at);
        }
        self.versions.push(Version { write, is_null: !keeps, is_marker });
        self.has_history |= keeps || is_marker;
    }
    fn remove(&mut self, at: usize) {
        self.versions.remove(at);
        self.has_history &= !self.versions.is_empty();
    }
}

fn step(key: &mut Key, call: Call) -> Returned {
    let existed = key.current() != 0;
    match call {
        Call::Put { only_if_absent: true, .. } if existed => return Returned::Refused,
        Call::Put { write, keeps, .. } => key.add(write, keeps, false),
        Call::Delete { versioning: Versioning::Off, .. } if !key.has_history => key.versions.clear(),
        Call::Delete { write, versioning } => key.add(write, versioning == Versioning::Enabled, true),
        Call::DeleteVersion(which) => {
            let found = key.find(which);
            found.into_iter().for_each(|at| key.remove(at));
            return Returned::Existed(found.is_some());
        }
        Call::Get => return Returned::Found(key.current()),
        Call::GetVersion(which) => {
            return match key.find(which).map(|at| key.versions[at]) {
                None => Returned::Found(0),
                Some(Version { is_marker: true, .. }) => Returned::Marker,
                Some(Version { write, .. }) => Returned::Found(write),
            };
        }
    }
    Returned::Existed(existed)
}

/// Looks for an order in which each request happens between its beginning and its return.
pub fn check(events: &[Event]) -> bool {
    assert!(events.len() < 64);
    let all_returned: u64 =
        events.iter().enumerate().filter(|(_, event)| event.returned.is_some()).map(|(at, _)| 1 << at).sum();
    let mut seen = BTreeSet::new();
    let mut open = vec![(0_u64, Key::default())];
    while let Some((done, key)) = open.pop() {
        if done & all_returned == all_returned {
            return true;
        }
        if !seen.insert((done, key.clone())) {
            continue;
        }
        let left = || events.iter().enumerate().filter(|(at, _)| done & (1 << at) == 0);
        // What has returned comes before everything that begins later.
        let first_return = left().filter_map(|(_, event)| Some(event.returned?.0)).min().unwrap_or(u64::MAX);
        for (at, event) in left().filter(|(_, event)| event.begun <= first_return) {
            let mut next = key.clone();
            let returned = step(&mut next, event.call);
            if event.returned.is_none_or(|(_, expected)| expected == returned) {
                open.push((done | 1 << at, next));
            }
        }
    }
    false
}

#[test]
fn lost_update_is_found() {
    let event = |call, begun, ended, returned| Event { call, begun, returned: Some((ended, returned)) };
    let put = |write| Call::Put { write, only_if_absent: true, keeps: false };
    let both = [event(put(1), 1, 4, Returned::Existed(false)), event(put(2), 2, 3, Returned::Existed(false))];
    assert!(!check(&both));
    let one = [event(put(1), 1, 4, Returned::Existed(false)), event(put(2), 2, 3, Returned::Refused)];
    assert!(check(&one));
    let stale = [event(put(1), 1, 2, Returned::Existed(false)), event(Call::Get, 3, 4, Returned::Found(0))];
    assert!(!check(&stale));
    let unknown = [
        Event { call: put(1), begun: 1, returned: None },
        event(Call::Get, 3, 4, Returned::Found(0)),
        event(Call::Get, 5, 6, Returned::Found(1)),
    ];
    assert!(check(&unknown));
}

#[test]
fn lost_version_is_found() {
    let event =
        |call, at: u64, returned| Event { call, begun: 2 * at, returned: Some((2 * at + 1, returned)) };
    let put = |write| Call::Put { write, only_if_absent: false, keeps: true };
    let delete = Call::Delete { write: 3, versioning: Versioning::Enabled };
    let history = |found| {
        [
            event(put(1), 1, Returned::Existed(false)),
            event(put(2), 2, Returned::Existed(true)),
            event(delete, 3, Returned::Existed(true)),
            event(Call::Get, 4, Returned::Found(0)),
            event(Call::GetVersion(Which::Write(1)), 5, Returned::Found(found)),
            event(Call::DeleteVersion(Which::Write(3)), 6, Returned::Existed(true)),
            event(Call::Get, 7, Returned::Found(2)),
        ]
    };
    assert!(check(&history(1)) && !check(&history(0)));
}
