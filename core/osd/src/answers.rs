//! Memory for what clients read: data of much more than a block is read when there is memory for it, and
//! counts until the last of it is gone, which is when the client's socket has taken it.
//!
//! A client that takes its time, or a lease that a hung member does not renew, keeps answers here. With many
//! clients that read whole objects that would be any amount.

use bytes::Bytes;
use nacre_base::PgId;
use nacre_proto::messages::OsdOpReply;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Answers with no more data are sent as they come. Each client can make but so many wait
/// before it is not read from (the shell's limit).
const SMALL: u64 = 64 << 10;

pub struct Answers {
    /// Bytes.
    most: u64,
    held: Arc<AtomicU64>,
    /// Groups with reads that wait, and how many bytes the first of those brings. Who has waited longest goes first.
    waiting: RefCell<VecDeque<(PgId, u64)>>,
    /// Whose turn it is.
    woken: Cell<Option<PgId>>,
}

/// Bytes that are read, or were; none any more when this is dropped, however that comes about.
#[derive(Debug)]
pub struct Held {
    bytes: u64,
    all: Arc<AtomicU64>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Data of an answer that counts.
struct Counted {
    data: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Answers {
    pub fn new(most: u64) -> Answers {
        Answers { most, held: Arc::default(), waiting: RefCell::default(), woken: Cell::default() }
    }
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
    pub fn has_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }
    fn hold(&self, bytes: u64) -> Held {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Held { bytes, all: self.held.clone() }
    }
    /// What is larger than all that there is goes alone.
    fn fits(&self, bytes: u64) -> bool {
        let held = self.held();
        bytes <= SMALL || held == 0 || held + bytes <= self.most
    }

    /// Whether a read of so many bytes may begin. If not, its group hears when there may be memory for it; then it may begin
    /// reads that have waited. Nobody goes before those who wait.
    pub fn take(&self, pg: PgId, bytes: u64, has_waited: bool) -> Option<Held> {
        let mut waiting = self.waiting.borrow_mut();
        let may = bytes <= SMALL || waiting.is_empty() || has_waited && self.woken.get() == Some(pg);
        if may && self.fits(bytes) {
            return Some(self.hold(if bytes <= SMALL { 0 } else { bytes }));
        }
        if !waiting.iter().any(|(other, _)| *other == pg) {
            waiting.push_back((pg, bytes));
        }
        None
    }
    /// A group for whose first read there is memory now.
    pub fn next_waiting(&self) -> Option<PgId> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.front().filter(|(_, bytes)| self.fits(*bytes)).map(|(pg, _)| *pg);
        if first.is_some() {
            waiting.pop_front();
        }
        self.woken.set(first);
        first
    }

    /// The answer's data counts until it is gone.
    pub fn count(&self, reply: &mut OsdOpReply) {
        let bytes: u64 = reply.ops.iter().map(|result| result.data.len() as u64).sum();
        if bytes <= SMALL {
            return;
        }
        for result in reply.ops.iter_mut().filter(|result| !result.data.is_empty()) {
            let data = std::mem::take(&mut result.data);
            let _held = self.hold(data.len() as u64);
            result.data = Bytes::from_owner(Counted { data, _held });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::PoolId;

    const MIB: u64 = 1 << 20;

    fn pg(seed: u32) -> PgId {
        PgId { pool: PoolId(1), seed }
    }

    #[test]
    fn reads_wait_in_turn_for_memory_and_one_always_goes() {
        let answers = Answers::new(8 * MIB);
        let alone = answers.take(pg(0), 100 * MIB, false).unwrap();
        assert!(answers.take(pg(1), 6 * MIB, false).is_none());
        assert!(answers.take(pg(2), MIB, false).is_none());
        assert!(answers.take(pg(2), MIB, false).is_none(), "it waits already");
        assert!(answers.take(pg(3), SMALL, false).is_some(), "small ones wait for nothing");
        assert_eq!(answers.next_waiting(), None);
        drop(alone);
        assert!(answers.take(pg(4), MIB, false).is_none(), "others wait");
        assert_eq!(answers.next_waiting(), Some(pg(1)));
        let first = answers.take(pg(1), 6 * MIB, true).unwrap();
        assert!(answers.take(pg(1), 6 * MIB, true).is_none(), "its next one is behind the others");
        assert_eq!(answers.next_waiting(), Some(pg(2)));
        let second = answers.take(pg(2), MIB, true).unwrap();
        assert_eq!(answers.next_waiting(), Some(pg(4)));
        assert_eq!(answers.next_waiting(), None);
        drop((first, second));
        assert_eq!((answers.next_waiting(), answers.has_waiting()), (Some(pg(1)), false));
        assert_eq!(answers.held(), 0);
    }
}
