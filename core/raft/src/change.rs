//! How the group of members changes: by an entry of the log, one member at a time.
//!
//! A change counts once its entry is applied, and the next one is proposed after that. So the majorities
//! before and after have a member in common, and a member that starts again with the group as it was one
//! change ago cannot be elected beside a leader of the new one.

use crate::peer::{PLAIN, parse};
use raft::eraftpb::{ConfChange, ConfChangeType, Entry, EntryType};

/// The number of a member, which is never given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It begins with a checkpoint in which it is a member: no log from before that reaches it.
    Add(u64),
    Remove(u64),
}

impl Change {
    pub(crate) fn to_library(self) -> ConfChange {
        let (change_type, node_id) = match self {
            Change::Add(id) => (ConfChangeType::AddNode, id),
            Change::Remove(id) => (ConfChangeType::RemoveNode, id),
        };
        ConfChange { change_type, node_id, ..ConfChange::default() }
    }

    /// None if the entry is no change of members that could have been proposed here.
    pub(crate) fn of(entry: &Entry) -> Option<Change> {
        // It carries what it means to the state, as every proposal does.
        if entry.get_entry_type() != EntryType::EntryConfChange || entry.get_context().is_empty() {
            return None;
        }
        let change: ConfChange = parse(entry.get_data(), &PLAIN)?;
        match (change.change_type, change.node_id) {
            (_, 0) => None,
            (ConfChangeType::AddNode, id) => Some(Change::Add(id)),
            (ConfChangeType::RemoveNode, id) => Some(Change::Remove(id)),
            (ConfChangeType::AddLearnerNode, _) => None,
        }
    }
}
