//! The log as the Raft library reads it, and the bytes in which it is kept.

use crate::change::Change;
use crate::peer::{NUMBER_MAX, PLAIN, SNAPSHOT, follow, parse};
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::collections::{BTreeMap, VecDeque};

/// What a member had stored when it stopped: the sum of all its `Persist`s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    pub hard_state: Option<Vec<u8>>,
    pub checkpoint: Option<Vec<u8>>,
    /// By index.
    pub entries: BTreeMap<u64, Vec<u8>>,
}

/// What must become durable together. Apply in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persist {
    /// Replaces the hard state: the term, the vote, how far the log is committed.
    pub hard_state: Option<Vec<u8>>,
    /// Replaces the checkpoint.
    pub checkpoint: Option<Vec<u8>>,
    /// Entries from this index on go: another leader's entries take their place.
    pub truncate_from: Option<u64>,
    /// Entries before this index go: they are in the checkpoint.
    pub drop_before: Option<u64>,
    /// Are added, by index.
    pub entries: Vec<(u64, Vec<u8>)>,
}

impl Persist {
    pub fn is_empty(&self) -> bool {
        *self == Persist::default()
    }
}

impl Saved {
    /// What is stored after `persist`.
    pub fn apply(&mut self, persist: &Persist) {
        if let Some(hard_state) = &persist.hard_state {
            self.hard_state = Some(hard_state.clone());
        }
        if let Some(checkpoint) = &persist.checkpoint {
            self.checkpoint = Some(checkpoint.clone());
        }
        if let Some(from) = persist.truncate_from {
            self.entries.split_off(&from);
        }
        if let Some(before) = persist.drop_before {
            self.entries = self.entries.split_off(&before);
        }
        self.entries.extend(persist.entries.iter().cloned());
    }
}

/// What makes member `id` the only one, with everything that it had stored: all others are lost. What they
/// committed and this one never had is lost, too. None if it had no part in the group yet, or is damaged.
pub fn alone(id: u64, saved: &Saved) -> Option<Persist> {
    let mut log = Log::load(saved, &[])?;
    if log.last_index() == 0 {
        return None;
    }
    let mut persist = Persist::default();
    // They would bring others back.
    for entry in log.entries.iter_mut().filter(|entry| Change::of(entry).is_some()) {
        *entry = Entry { data: entry.take_context(), context: Vec::new().into(), ..entry.clone() };
        entry.set_entry_type(EntryType::EntryNormal);
        persist.entries.push((entry.index, bytes_of(entry)));
    }
    let members = ConfState::from((vec![id], Vec::<u64>::new()));
    log.checkpoint.mut_metadata().set_conf_state(members);
    persist.checkpoint = Some(bytes_of(&log.checkpoint));
    Some(persist)
}

/// What makes `id` the only member of a group with this state, in a store that may hold another log. `after`
/// is how far any log of the group before went: its index and its term.
pub fn restored(id: u64, after: (u64, u64), state: Vec<u8>) -> Persist {
    let (index, term) = (after.0 + 1, after.1 + 1);
    let mut checkpoint = Snapshot { data: state.into(), ..Snapshot::default() };
    let metadata = checkpoint.mut_metadata();
    (metadata.index, metadata.term) = (index, term);
    metadata.set_conf_state(ConfState::from((vec![id], Vec::<u64>::new())));
    let hard_state = HardState { term, commit: index, ..HardState::default() };
    Persist {
        hard_state: Some(bytes_of(&hard_state)),
        checkpoint: Some(bytes_of(&checkpoint)),
        truncate_from: Some(0),
        ..Persist::default()
    }
}

/// How far a log went: the index of its last entry, and its term. None if it is damaged.
pub fn reach(saved: &Saved) -> Option<(u64, u64)> {
    let log = Log::load(saved, &[])?;
    Some((log.last_index(), log.hard_state.term))
}

/// The whole log in memory: it is bounded, since what is in the checkpoint is dropped.
pub(crate) struct Log {
    pub hard_state: HardState,
    /// Its metadata also holds the membership then.
    pub checkpoint: Snapshot,
    /// The membership after the last entry that was applied.
    pub members: ConfState,
    /// The index of the last membership change: no member gets entries from before it.
    pub changed_at: u64,
    /// Index and term of the entry before `entries`.
    pub before: (u64, u64),
    pub entries: VecDeque<Entry>,
}

impl Log {
    /// The log of a member that starts for the first time.
    pub fn fresh(members: &[u64]) -> Log {
        let mut checkpoint = Snapshot::default();
        let members = ConfState::from((members.to_vec(), Vec::<u64>::new()));
        checkpoint.mut_metadata().set_conf_state(members.clone());
        let (hard_state, before, entries) = (HardState::default(), (0, 0), VecDeque::new());
        Log { hard_state, checkpoint, members, changed_at: 0, before, entries }
    }

    /// None if the bytes are not what a `Persist` had.
    pub fn load(saved: &Saved, members: &[u64]) -> Option<Log> {
        let mut log = Log::fresh(members);
        if let Some(bytes) = &saved.hard_state {
            log.hard_state = parse::<HardState>(bytes, &PLAIN)?;
        }
        if let Some(bytes) = &saved.checkpoint {
            log.checkpoint = parse::<Snapshot>(bytes, &SNAPSHOT)?;
            log.members = log.checkpoint.get_metadata().get_conf_state().clone();
            crate::peer::members(&log.members)?;
        }
        for bytes in saved.entries.values() {
            log.entries.push_back(parse::<Entry>(bytes, &PLAIN)?);
        }
        let metadata = log.checkpoint.get_metadata();
        log.before = match log.entries.front() {
            None => (metadata.index, metadata.term),
            // The entry before the first is only asked for by members that fell behind; those get
            // the checkpoint.
            Some(first) if first.index == metadata.index + 1 => (metadata.index, metadata.term),
            Some(first) => {
                let before = (first.index, first.term);
                log.entries.pop_front();
                before
            }
        };
        // No holes, nothing missing between the checkpoint and the log, and no term that was not begun.
        let hard = &log.hard_state;
        let whole = follow(&log.entries, log.before.0, log.before.1, hard.term)
            && log.before.0 <= metadata.index
            && log.before.1 <= hard.term
            && (metadata.index..=log.last_index()).contains(&hard.commit)
            && hard.commit.max(hard.term).max(hard.vote) < NUMBER_MAX;
        whole.then_some(log)
    }

    pub fn last_index(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    fn get(&self, index: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(index.checked_sub(self.before.0 + 1)?).ok()?)
    }

    /// Adds entries, replacing those that another leader had put there.
    pub fn append(&mut self, new: &[Entry], persist: &mut Persist) {
        let Some(first) = new.first() else { return };
        assert!(first.index > self.before.0, "entry {} is compacted already", first.index);
        if first.index <= self.last_index() {
            self.entries.truncate((first.index - self.before.0 - 1) as usize);
            persist.truncate_from = Some(first.index);
        }
        self.entries.extend(new.iter().cloned());
        persist.entries.extend(new.iter().map(|entry| (entry.index, bytes_of(entry))));
    }

    /// Another member's checkpoint takes the place of everything.
    pub fn install(&mut self, checkpoint: Snapshot, persist: &mut Persist) {
        let metadata = checkpoint.get_metadata();
        self.before = (metadata.index, metadata.term);
        self.entries.clear();
        self.members = metadata.get_conf_state().clone();
        persist.checkpoint = Some(bytes_of(&checkpoint));
        persist.truncate_from = Some(0);
        self.checkpoint = checkpoint;
    }

    /// A checkpoint of `state` after entry `index`; of the entries in it, this many, and this many bytes of
    /// them, are kept for members that are a little behind.
    pub fn compact(&mut self, index: u64, state: Vec<u8>, (tail, mut room): (u64, usize)) -> Persist {
        let term = self.term(index).expect("only what is in the log is applied");
        let metadata = self.checkpoint.mut_metadata();
        (metadata.index, metadata.term) = (index, term);
        metadata.set_conf_state(self.members.clone());
        self.checkpoint.data = state.into();
        let in_it = self.entries.iter().rev().skip_while(|entry| entry.index > index).take(tail as usize);
        let kept = in_it.take_while(|entry| {
            let fits = entry.data.len() <= room;
            room = room.saturating_sub(entry.data.len());
            fits
        });
        let keep_from = (index - kept.count() as u64).max(self.changed_at);
        while self.before.0 < keep_from {
            let entry = self.entries.pop_front().expect("the log reaches to the checkpoint");
            self.before = (entry.index, entry.term);
        }
        Persist {
            checkpoint: Some(bytes_of(&self.checkpoint)),
            // The last dropped one stays on disk: its term is needed to match a follower's log.
            drop_before: Some(self.before.0),
            ..Persist::default()
        }
    }
}

pub(crate) fn bytes_of(message: &impl protobuf::Message) -> Vec<u8> {
    message.write_to_bytes().expect("protobuf encodes what it made")
}

impl Storage for Log {
    fn initial_state(&self) -> Result<RaftState> {
        let members = self.checkpoint.get_metadata().get_conf_state().clone();
        Ok(RaftState::new(self.hard_state.clone(), members))
    }
    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.before.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let range = (low - self.before.0 - 1) as usize..(high - self.before.0 - 1) as usize;
        let mut entries: Vec<Entry> = self.entries.range(range).cloned().collect();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }
    fn term(&self, index: u64) -> Result<u64> {
        if index == self.before.0 {
            return Ok(self.before.1);
        }
        if index < self.before.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.get(index).map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }
    fn first_index(&self) -> Result<u64> {
        Ok(self.before.0 + 1)
    }
    fn last_index(&self) -> Result<u64> {
        Ok(Log::last_index(self))
    }
    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        let metadata = self.checkpoint.get_metadata();
        let index = metadata.index;
        // An added member waits for the checkpoint that has it.
        let is_in = metadata.get_conf_state().get_voters().contains(&to);
        if index == 0 || index < request_index || !is_in {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(self.checkpoint.clone())
    }
}
