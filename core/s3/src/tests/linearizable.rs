//! Whether the answers about one key fit some order of the requests.

use std::collections::BTreeSet;

/// A request about a key. Writes are known by numbers, and zero is no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Put { write: u64, only_if_absent: bool },
    Delete,
    Get,
}

/// What came back. For a Put whether it replaced an object, for a Delete whether there was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    Existed(bool),
    Refused,
    Found(u64),
}

/// A request, when it was begun, and when and with what it returned.
#[derive(Clone, Debug)]
pub struct Event {
    pub call: Call,
    pub begun: u64,
    /// None: it may have happened at any time since, or never.
    pub returned: Option<(u64, Returned)>,
}

fn step(state: u64, call: Call) -> (u64, Returned) {
    match call {
        Call::Put { only_if_absent: true, .. } if state != 0 => (state, Returned::Refused),
        Call::Put { write, .. } => (write, Returned::Existed(state != 0)),
        Call::Delete => (0, Returned::Existed(state != 0)),
        Call::Get => (state, Returned::Found(state)),
    }
}

/// Looks for an order in which each request happens between its beginning and its return.
pub fn check(events: &[Event]) -> bool {
    assert!(events.len() < 64);
    let all_returned: u64 =
        events.iter().enumerate().filter(|(_, event)| event.returned.is_some()).map(|(at, _)| 1 << at).sum();
    let mut seen = BTreeSet::new();
    let mut open = vec![(0_u64, 0_u64)];
    while let Some((done, state)) = open.pop() {
        if done & all_returned == all_returned {
            return true;
        }
        if !seen.insert((done, state)) {
            continue;
        }
        let left = || events.iter().enumerate().filter(|(at, _)| done & (1 << at) == 0);
        // What has returned comes before everything that begins later.
        let first_return = left().filter_map(|(_, event)| Some(event.returned?.0)).min().unwrap_or(u64::MAX);
        for (at, event) in left().filter(|(_, event)| event.begun <= first_return) {
            let (next, returned) = step(state, event.call);
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
    let put = |write| Call::Put { write, only_if_absent: true };
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
