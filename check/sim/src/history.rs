//! Whether what clients saw of one object can have come from one object.
//!
//! Each operation takes effect at one moment between its request and its answer: an answered write is
//! seen by every later read, none happens twice, none half. `linearizable` searches for an order of
//! such moments (Wing and Gong's search, with the memory of Lowe).

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    pub data: Vec<u8>,
    pub attrs: BTreeMap<String, Bytes>,
    pub omap: BTreeMap<String, Bytes>,
}

/// An object and its past.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    /// None: there is no such object.
    head: Option<Arc<Held>>,
    /// The newest snapshot that a write knew of.
    seq: u64,
    /// What it held in which snapshots, oldest first.
    clones: Vec<(Vec<u64>, Arc<Held>)>,
}

/// What a write is done under: the newest snapshot, and all that there are, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    pub seq: u64,
    pub snaps: Vec<u64>,
}

impl State {
    /// What it held in a snapshot that was not removed.
    fn at(&self, snap: u64) -> Option<Arc<Held>> {
        if snap > self.seq {
            return self.head.clone();
        }
        let clone = self.clones.iter().find(|(snaps, _)| snaps.contains(&snap));
        clone.map(|(_, held)| held.clone())
    }
    /// The same with another head. What it was is kept if the write knows of newer snapshots.
    fn become_held(&self, context: &Context, head: Option<Arc<Held>>) -> State {
        let mut next = self.clone();
        let unseen: Vec<u64> = context.snaps.iter().copied().filter(|snap| *snap > self.seq).collect();
        if let Some(old) = &self.head
            && !unseen.is_empty()
        {
            next.clones.push((unseen, old.clone()));
        }
        next.seq = self.seq.max(context.seq);
        next.head = head;
        next.forgotten()
    }
    /// What nothing is left of is as if it had never been.
    fn forgotten(self) -> State {
        if self.head.is_none() && self.clones.is_empty() { State::default() } else { self }
    }
    /// The same once all removed snapshots are trimmed, if there is something to trim.
    fn trimmed(&self, is_removed: impl Fn(u64) -> bool) -> Option<State> {
        let mut next = self.clone();
        next.clones.retain(|(snaps, _)| !snaps.iter().all(|snap| is_removed(*snap)));
        (next.clones.len() < self.clones.len()).then(|| next.forgotten())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    WriteFull(Bytes),
    Append(Bytes),
    /// At an offset; zeros fill a gap.
    Write(u64, Bytes),
    /// A key and the same bytes at the end, in one operation.
    AppendAndKey(String, Bytes),
    /// An attribute and the same bytes at the end, in one operation.
    AppendAndAttr(String, Bytes),
    /// Whether or not they are there; makes the object.
    RemoveKeyAndAttr(String, String),
    ClearOmap,
    /// Grows the object too; not one that does not exist.
    Truncate(u64),
    /// From an offset, so many bytes; what reaches to the end is cut off.
    Zero(u64, u64),
    /// Only if there is no object yet.
    Create(Bytes),
    Delete,
    /// What it was in that snapshot.
    Rollback(u64),
    Read,
    ReadAt(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    NotFound,
    Exists,
    /// There was no room, and nothing happened.
    Refused,
    Value(Held),
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// Order of the request and of the answer among all requests and answers.
    pub asked: u64,
    pub answered: u64,
    pub action: Action,
    pub context: Context,
    pub answer: Answer,
}

/// What the object can be after the action, if that gives this answer.
fn apply(state: &State, entry: &Entry) -> Vec<State> {
    let read = |held: Option<Arc<Held>>| match held {
        None => Answer::NotFound,
        Some(held) => Answer::Value((*held).clone()),
    };
    if entry.answer == Answer::Refused {
        return vec![state.clone()];
    }
    let (next, answer) = match (&entry.action, &state.head) {
        (Action::Read, head) => (None, read(head.clone())),
        (Action::ReadAt(snap), _) => (None, read(state.at(*snap))),
        (Action::Delete, None) => (None, Answer::NotFound),
        (Action::Delete, Some(_)) => (Some(None), Answer::Done),
        (Action::Create(_), Some(_)) => (None, Answer::Exists),
        (Action::Truncate(_) | Action::Zero(..), None) => (None, Answer::Done),
        (Action::Rollback(snap), None) if state.at(*snap).is_none() => (None, Answer::Done),
        (Action::Rollback(snap), _) => (Some(state.at(*snap)), Answer::Done),
        (action, head) => {
            let mut held = head.as_deref().cloned().unwrap_or_default();
            change(&mut held, action);
            (Some(Some(Arc::new(held))), Answer::Done)
        }
    };
    if answer != entry.answer {
        return Vec::new();
    }
    let Some(head) = next else { return vec![state.clone()] };
    let mut after = vec![state.become_held(&entry.context, head.clone())];
    // What changes nothing need not be taken for a write.
    if head == state.head && after[0] != *state {
        after.push(state.clone());
    }
    after
}

fn change(held: &mut Held, action: &Action) {
    match action {
        Action::WriteFull(data) | Action::Create(data) => held.data = data.to_vec(),
        Action::Append(data) => held.data.extend_from_slice(data),
        Action::AppendAndKey(key, data) => {
            held.data.extend_from_slice(data);
            held.omap.insert(key.clone(), data.clone());
        }
        Action::AppendAndAttr(name, data) => {
            held.data.extend_from_slice(data);
            held.attrs.insert(name.clone(), data.clone());
        }
        Action::RemoveKeyAndAttr(key, name) => {
            held.omap.remove(key);
            held.attrs.remove(name);
        }
        Action::ClearOmap => held.omap.clear(),
        Action::Truncate(size) => held.data.resize(*size as usize, 0),
        Action::Zero(offset, len) => {
            let end = (*offset + *len) as usize;
            if end >= held.data.len() {
                held.data.truncate(*offset as usize);
            } else {
                held.data[*offset as usize..end].fill(0);
            }
        }
        Action::Write(offset, data) => {
            let end = *offset as usize + data.len();
            held.data.resize(held.data.len().max(end), 0);
            held.data[*offset as usize..end].copy_from_slice(data);
        }
        Action::Delete | Action::Read | Action::ReadAt(_) | Action::Rollback(_) => {
            unreachable!("handled by the caller")
        }
    }
}

/// `removed`: snapshots, and since when they may have been trimmed.
/// Err: how far the best attempt came, for whoever has to find out why.
pub fn linearizable(entries: &[Entry], removed: &BTreeMap<u64, u64>) -> Result<(), String> {
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| entry.asked);
    let mut seen = BTreeSet::new();
    // Depth first: (which are done, what the object then is).
    let mut stack = vec![(vec![0_u64; entries.len().div_ceil(64)], State::default())];
    let mut best = (0, State::default(), Vec::new());
    while let Some((done, state)) = stack.pop() {
        let is_done = |n: usize| done[n / 64] >> (n % 64) & 1 == 1;
        let left: Vec<usize> = (0..entries.len()).filter(|n| !is_done(*n)).collect();
        // Nothing that was asked after another was answered comes before it.
        let Some(first_answer) = left.iter().map(|n| entries[*n].answered).min() else { return Ok(()) };
        let progress = entries.len() - left.len();
        if progress >= best.0 {
            best = (progress, state.clone(), left.clone());
        }
        for &n in left.iter().take_while(|n| entries[**n].asked < first_answer) {
            let is_removed = |snap: u64| removed.get(&snap).is_some_and(|since| *since < entries[n].answered);
            let trimmed = state.trimmed(is_removed);
            for next in trimmed.iter().chain([&state]).flat_map(|state| apply(state, &entries[n])) {
                let mut with = done.clone();
                with[n / 64] |= 1 << (n % 64);
                if seen.insert((with.clone(), next.clone())) {
                    stack.push((with, next));
                }
            }
        }
    }
    let (progress, state, left) = best;
    let next: Vec<String> = left.iter().take(4).map(|n| format!("{:?}", entries[*n])).collect();
    let mut text = format!(
        "no order explains it: after {progress} of {} operations came {}, and the object is {state:?}",
        entries.len(),
        next.join(" and ")
    );
    text.truncate(text.floor_char_boundary(FAILURE_MAX));
    Err(text)
}

/// Bytes of what is said of a history that cannot be.
const FAILURE_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(asked: u64, answered: u64, action: Action, answer: Answer) -> Entry {
        Entry { asked, answered, action, context: Context::default(), answer }
    }
    fn linearizable(entries: &[Entry]) -> Result<(), String> {
        super::linearizable(entries, &BTreeMap::new())
    }
    fn append(asked: u64, answered: u64, text: &'static str) -> Entry {
        entry(asked, answered, Action::Append(Bytes::from_static(text.as_bytes())), Answer::Done)
    }
    fn read(asked: u64, answered: u64, text: &str) -> Entry {
        let held = Held { data: text.as_bytes().to_vec(), ..Held::default() };
        entry(asked, answered, Action::Read, Answer::Value(held))
    }

    #[test]
    fn concurrent_writes_may_take_effect_in_either_order() {
        for order in ["ab", "ba"] {
            assert_eq!(linearizable(&[append(1, 4, "a"), append(2, 3, "b"), read(5, 6, order)]), Ok(()));
        }
    }

    #[test]
    fn lost_repeated_and_overtaken_writes_are_found() {
        assert!(linearizable(&[append(1, 2, "a"), append(3, 4, "b"), read(5, 6, "ba")]).is_err());
        assert!(linearizable(&[append(1, 2, "a"), append(3, 4, "b"), read(5, 6, "b")]).is_err());
        assert!(linearizable(&[append(1, 2, "a"), read(5, 6, "aa")]).is_err());
        assert!(linearizable(&[append(1, 2, "a"), entry(3, 4, Action::Read, Answer::NotFound)]).is_err());
    }

    #[test]
    fn a_read_may_see_a_write_that_is_not_answered_yet_but_not_take_it_back() {
        assert_eq!(linearizable(&[append(1, 9, "a"), read(2, 3, "a"), read(4, 5, "a")]), Ok(()));
        let back = [append(1, 9, "a"), read(2, 3, "a"), entry(4, 5, Action::Read, Answer::NotFound)];
        assert!(linearizable(&back).is_err());
    }

    #[test]
    fn a_snapshot_shows_what_was_there_when_a_write_first_knew_of_it() {
        let at = |asked, text: &str| Entry { action: Action::ReadAt(2), ..read(asked, asked + 1, text) };
        let under = |entry: Entry, seq: u64| Entry { context: Context { seq, snaps: vec![seq] }, ..entry };
        let until = [append(1, 2, "a"), at(3, "a"), under(append(5, 6, "b"), 2)];
        let with = |entry: Entry| linearizable(&[&until[..], &[entry]].concat());
        assert_eq!(with(at(7, "a")), Ok(()));
        assert_eq!(with(read(7, 8, "ab")), Ok(()));
        assert!(with(at(7, "ab")).is_err(), "a snapshot does not change");
        assert_eq!(with(entry(7, 8, Action::Rollback(2), Answer::Done)), Ok(()));
        let gone = under(entry(1, 2, Action::Delete, Answer::NotFound), 2);
        assert_eq!(linearizable(&[gone, entry(3, 4, Action::ReadAt(2), Answer::NotFound)]), Ok(()));
    }
}
