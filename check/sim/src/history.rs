//! Linearizability: whether the replies that clients got for one object are those of one object.
//!
//! Each operation takes effect at one moment between its request and its reply: an acknowledged write is seen
//! by every later read, none happens twice, none partially. `linearizable` searches for an order of such
//! moments (Wing and Gong's search with Lowe's memoization).

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contents {
    pub data: Vec<u8>,
    pub attrs: BTreeMap<String, Bytes>,
    pub omap: BTreeMap<String, Bytes>,
}

/// An object with its clones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    /// None: the head does not exist.
    head: Option<Arc<Contents>>,
    /// The newest snapshot in the context of any write so far.
    seq: u64,
    /// Clones with the snapshots that they belong to, oldest first.
    clones: Vec<(Vec<u64>, Arc<Contents>)>,
}

/// The snapshot context of a write: the newest snapshot, and all existing ones, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapContext {
    pub seq: u64,
    pub snaps: Vec<u64>,
}

impl State {
    /// The contents in a snapshot that was not removed.
    fn at(&self, snap: u64) -> Option<Arc<Contents>> {
        if snap > self.seq {
            return self.head.clone();
        }
        let clone = self.clones.iter().find(|(snaps, _)| snaps.contains(&snap));
        clone.map(|(_, contents)| contents.clone())
    }
    /// The same with another head. The old head becomes a clone if the context has newer snapshots.
    fn with_head(&self, context: &SnapContext, head: Option<Arc<Contents>>) -> State {
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
    /// An object without head and clones equals one that never existed.
    fn forgotten(self) -> State {
        if self.head.is_none() && self.clones.is_empty() { State::default() } else { self }
    }
    /// The same after removed snapshots are trimmed; None if there is nothing to trim.
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
    /// Appends bytes and sets an omap key to the same bytes, in one operation.
    AppendAndKey(String, Bytes),
    /// Appends bytes and sets an attribute to the same bytes, in one operation.
    AppendAndAttr(String, Bytes),
    /// Whether or not they exist; creates the object.
    RemoveKeyAndAttr(String, String),
    ClearOmap,
    /// Also grows the object; does not create it.
    Truncate(u64),
    /// (offset, length); truncates if the range reaches the end.
    Zero(u64, u64),
    /// Fails if the object exists.
    Create(Bytes),
    Delete,
    /// Rolls back to that snapshot.
    Rollback(u64),
    Read,
    ReadAt(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    NotFound,
    Exists,
    /// Out of space; the operation had no effect.
    Refused,
    Value(Contents),
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// Positions of the request and of the reply in the order of all requests and replies.
    pub asked: u64,
    pub answered: u64,
    pub action: Action,
    pub context: SnapContext,
    pub answer: Answer,
}

/// The possible states after an operation that was answered like this.
fn apply(state: &State, entry: &Entry) -> Vec<State> {
    let read = |contents: Option<Arc<Contents>>| match contents {
        None => Answer::NotFound,
        Some(contents) => Answer::Value((*contents).clone()),
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
            let mut contents = head.as_deref().cloned().unwrap_or_default();
            change(&mut contents, action);
            (Some(Some(Arc::new(contents))), Answer::Done)
        }
    };
    if answer != entry.answer {
        return Vec::new();
    }
    let Some(head) = next else { return vec![state.clone()] };
    let mut after = vec![state.with_head(&entry.context, head.clone())];
    // An operation that changes nothing need not count as a write.
    if head == state.head && after[0] != *state {
        after.push(state.clone());
    }
    after
}

fn change(contents: &mut Contents, action: &Action) {
    match action {
        Action::WriteFull(data) | Action::Create(data) => contents.data = data.to_vec(),
        Action::Append(data) => contents.data.extend_from_slice(data),
        Action::AppendAndKey(key, data) => {
            contents.data.extend_from_slice(data);
            contents.omap.insert(key.clone(), data.clone());
        }
        Action::AppendAndAttr(name, data) => {
            contents.data.extend_from_slice(data);
            contents.attrs.insert(name.clone(), data.clone());
        }
        Action::RemoveKeyAndAttr(key, name) => {
            contents.omap.remove(key);
            contents.attrs.remove(name);
        }
        Action::ClearOmap => contents.omap.clear(),
        Action::Truncate(size) => contents.data.resize(*size as usize, 0),
        Action::Zero(offset, len) => {
            let end = (*offset + *len) as usize;
            if end >= contents.data.len() {
                contents.data.truncate(*offset as usize);
            } else {
                contents.data[*offset as usize..end].fill(0);
            }
        }
        Action::Write(offset, data) => {
            let end = *offset as usize + data.len();
            contents.data.resize(contents.data.len().max(end), 0);
            contents.data[*offset as usize..end].copy_from_slice(data);
        }
        Action::Delete | Action::Read | Action::ReadAt(_) | Action::Rollback(_) => {
            unreachable!("handled by the caller")
        }
    }
}

/// `removed`: removed snapshots, and since when they may be trimmed.
/// Err: the longest prefix that was explained, as a starting point for the investigation.
pub fn linearizable(entries: &[Entry], removed: &BTreeMap<u64, u64>) -> Result<(), String> {
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| entry.asked);
    let mut seen = BTreeSet::new();
    // Depth first: (bit set of operations done, state of the object).
    let mut stack = vec![(vec![0_u64; entries.len().div_ceil(64)], State::default())];
    let mut best = (0, State::default(), Vec::new());
    while let Some((done, state)) = stack.pop() {
        let is_done = |n: usize| done[n / 64] >> (n % 64) & 1 == 1;
        let left: Vec<usize> = (0..entries.len()).filter(|n| !is_done(*n)).collect();
        // No operation requested after another's reply comes before that one.
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

/// Longest report of a history that is not linearizable, in bytes.
const FAILURE_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(asked: u64, answered: u64, action: Action, answer: Answer) -> Entry {
        Entry { asked, answered, action, context: SnapContext::default(), answer }
    }
    fn linearizable(entries: &[Entry]) -> Result<(), String> {
        super::linearizable(entries, &BTreeMap::new())
    }
    fn append(asked: u64, answered: u64, text: &'static str) -> Entry {
        entry(asked, answered, Action::Append(Bytes::from_static(text.as_bytes())), Answer::Done)
    }
    fn read(asked: u64, answered: u64, text: &str) -> Entry {
        let contents = Contents { data: text.as_bytes().to_vec(), ..Contents::default() };
        entry(asked, answered, Action::Read, Answer::Value(contents))
    }

    #[test]
    fn concurrent_writes_may_take_effect_in_either_order() {
        for order in ["ab", "ba"] {
            assert_eq!(linearizable(&[append(1, 4, "a"), append(2, 3, "b"), read(5, 6, order)]), Ok(()));
        }
    }

    #[test]
    fn lost_repeated_and_reordered_writes_are_found() {
        assert!(linearizable(&[append(1, 2, "a"), append(3, 4, "b"), read(5, 6, "ba")]).is_err());
        assert!(linearizable(&[append(1, 2, "a"), append(3, 4, "b"), read(5, 6, "b")]).is_err());
        assert!(linearizable(&[append(1, 2, "a"), read(5, 6, "aa")]).is_err());
        assert!(linearizable(&[append(1, 2, "a"), entry(3, 4, Action::Read, Answer::NotFound)]).is_err());
    }

    #[test]
    fn reads_may_see_unacknowledged_writes_but_never_go_back() {
        assert_eq!(linearizable(&[append(1, 9, "a"), read(2, 3, "a"), read(4, 5, "a")]), Ok(()));
        let back = [append(1, 9, "a"), read(2, 3, "a"), entry(4, 5, Action::Read, Answer::NotFound)];
        assert!(linearizable(&back).is_err());
    }

    #[test]
    fn a_snapshot_shows_the_object_before_the_first_write_in_its_context() {
        let at = |asked, text: &str| Entry { action: Action::ReadAt(2), ..read(asked, asked + 1, text) };
        let under =
            |entry: Entry, seq: u64| Entry { context: SnapContext { seq, snaps: vec![seq] }, ..entry };
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
