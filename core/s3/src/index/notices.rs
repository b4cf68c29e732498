//! The search for notices that wait.

use super::{Refusal, output};
use crate::leaf::{LeafName, due_of, notices_from, pairs};
use crate::notice::Notice;
use bytes::Bytes;
use nacre_base::Name;
use nacre_client::{ObjectReply, ObjectRequest};
use nacre_proto::types::Op;
use nacre_wire::from_slice;
use std::collections::BTreeSet;

/// How many notices are read at once.
const PAGE: u64 = 1000;

/// A notice that waits, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeItem {
    pub leaf: LeafName,
    pub key: Name,
    pub notice: Notice,
}

/// Which notices are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticesOf {
    /// Those that are due at this time, in all leaves.
    Due { now: u64 },
    /// Those of this incarnation of a gateway that are not due yet, in the leaf of a key.
    Own { key: Bytes, now: u64 },
}

/// Notices that are left out of a search, so that others are found behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paused {
    /// Topics to which nothing is sent at present.
    pub topics: BTreeSet<String>,
    /// Notices from before this time, in milliseconds since 1970, are found all the same.
    pub since: u64,
}

impl Paused {
    fn has(&self, notice: &Notice) -> bool {
        notice.time >= self.since && self.topics.contains(&notice.topic)
    }
}

/// What is known after a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched {
    /// The leaf has more.
    Page,
    /// The leaf has no more.
    Leaf,
    /// Nothing else is looked for.
    All,
}

/// A search on its way along the leaves.
#[derive(Debug)]
pub struct NoticeSearch {
    of: NoticesOf,
    max: usize,
    without: Paused,
    /// Within the leaf.
    after: Name,
    found: Vec<NoticeItem>,
}

impl NoticesOf {
    /// What is looked for in a leaf is behind this name.
    fn after(&self) -> Name {
        match self {
            NoticesOf::Due { .. } => notices_from(0),
            NoticesOf::Own { now, .. } => notices_from(*now),
        }
    }
}

impl NoticeSearch {
    /// Finds at most `max` notices.
    pub fn new(of: NoticesOf, max: usize, without: Paused) -> NoticeSearch {
        NoticeSearch { after: of.after(), of, max, without, found: Vec::new() }
    }

    /// The key in whose leaf it begins.
    pub fn start(&self) -> Bytes {
        match &self.of {
            NoticesOf::Due { .. } => Bytes::new(),
            NoticesOf::Own { key, .. } => key.clone(),
        }
    }

    /// Begins again.
    pub fn restart(&mut self) {
        self.found.clear();
        self.after = self.of.after();
    }

    /// What was found.
    pub fn take(&mut self) -> Vec<NoticeItem> {
        std::mem::take(&mut self.found)
    }

    /// Reads the next page.
    pub fn request(&self, request: ObjectRequest) -> ObjectRequest {
        request.op(Op::OmapGetVals { after: self.after.clone(), max: PAGE, prefix: Name::from("n") })
    }

    /// Takes a page of a leaf.
    pub fn on_leaf(
        &mut self,
        leaf: &LeafName,
        reply: &ObjectReply,
        instance: u64,
    ) -> Result<Searched, Refusal> {
        let (page, more) = pairs(output(reply, 1)?)?;
        let last = page.keys().next_back().cloned().filter(|_| more);
        let leaf_done = match self.of {
            NoticesOf::Due { .. } => Searched::Leaf,
            NoticesOf::Own { .. } => Searched::All,
        };
        for (key, value) in page {
            if let NoticesOf::Due { now } = self.of
                && due_of(&key).is_none_or(|due| due > now)
            {
                // Those behind it are due later.
                self.after = self.of.after();
                return Ok(leaf_done);
            }
            let notice: Notice = from_slice(&value)?;
            let is_own = notice.tag.instance == instance;
            let is_meant = is_own || matches!(self.of, NoticesOf::Due { .. });
            if is_meant && !self.without.has(&notice) {
                self.found.push(NoticeItem { leaf: leaf.clone(), key, notice });
            }
            if self.found.len() >= self.max {
                return Ok(Searched::All);
            }
        }
        match last {
            Some(last) => {
                self.after = last;
                Ok(Searched::Page)
            }
            None => {
                self.after = self.of.after();
                Ok(leaf_done)
            }
        }
    }
}
