//! Whether what clients saw of one object can have come from one object.
//!
//! Each operation takes effect at one moment between its request and its answer: an answered write is
//! seen by every later read, none happens twice, none half. `linearizable` searches for an order of
//! such moments (Wing and Gong's search, with the memory of Lowe).

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// What an object holds; None: there is no such object.
pub type Value = Option<Held>;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    pub data: Vec<u8>,
    pub attrs: BTreeMap<String, Bytes>,
    pub omap: BTreeMap<String, Bytes>,
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
    /// Grows the object too; not one that does not exist.
    Truncate(u64),
    /// From an offset, so many bytes; what reaches to the end is cut off.
    Zero(u64, u64),
    /// Only if there is no object yet.
    Create(Bytes),
    Delete,
    Read,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    NotFound,
    Exists,
    Value(Held),
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// Order of the request and of the answer among all requests and answers.
    pub asked: u64,
    pub answered: u64,
    pub action: Action,
    pub answer: Answer,
}

/// What the action does to the value, if it gives that answer.
fn apply(value: &Value, entry: &Entry) -> Option<Value> {
    let (next, answer) = match (&entry.action, value) {
        (Action::Read, None) => (None, Answer::NotFound),
        (Action::Read, Some(held)) => (Some(held.clone()), Answer::Value(held.clone())),
        (Action::Delete, None) => (None, Answer::NotFound),
        (Action::Delete, Some(_)) => (None, Answer::Done),
        (Action::Create(_), Some(held)) => (Some(held.clone()), Answer::Exists),
        (Action::Truncate(_) | Action::Zero(..), None) => (None, Answer::Done),
        (action, value) => {
            let mut held = value.clone().unwrap_or_default();
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
                Action::Delete | Action::Read => unreachable!("handled above"),
            }
            (Some(held), Answer::Done)
        }
    };
    (answer == entry.answer).then_some(next)
}

/// Err: how far the best attempt came, for whoever has to find out why.
pub fn linearizable(entries: &[Entry]) -> Result<(), String> {
    let mut entries = entries.to_vec();
    entries.sort_by_key(|entry| entry.asked);
    let mut seen = BTreeSet::new();
    // Depth first: (which are done, what the object then holds).
    let mut stack = vec![(vec![0_u64; entries.len().div_ceil(64)], Value::None)];
    let mut best = (0, Value::None, Vec::new());
    while let Some((done, value)) = stack.pop() {
        let is_done = |n: usize| done[n / 64] >> (n % 64) & 1 == 1;
        let left: Vec<usize> = (0..entries.len()).filter(|n| !is_done(*n)).collect();
        // Nothing that was asked after another was answered comes before it.
        let Some(first_answer) = left.iter().map(|n| entries[*n].answered).min() else { return Ok(()) };
        let progress = entries.len() - left.len();
        if progress >= best.0 {
            best = (progress, value.clone(), left.clone());
        }
        for &n in left.iter().take_while(|n| entries[**n].asked < first_answer) {
            if let Some(next) = apply(&value, &entries[n]) {
                let mut with = done.clone();
                with[n / 64] |= 1 << (n % 64);
                if seen.insert((with.clone(), next.clone())) {
                    stack.push((with, next));
                }
            }
        }
    }
    let (progress, value, left) = best;
    let next: Vec<String> = left.iter().take(4).map(|n| format!("{:?}", entries[*n])).collect();
    Err(format!(
        "no order explains it: after {progress} of {} operations the object holds {value:?}, then came {}",
        entries.len(),
        next.join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(asked: u64, answered: u64, action: Action, answer: Answer) -> Entry {
        Entry { asked, answered, action, answer }
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
}
