//! Counts received bytes that are still referenced.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// What a request takes beside its data while a machine has it.
const REQUEST: usize = 2 << 10;

/// Counts received bytes until the last reference to them is gone, wherever that is: in a machine's
/// queue, in a transaction on its way to the disk.
pub(crate) struct Budget {
    used: AtomicUsize,
    limit: usize,
    /// Wakes readers that wait for memory.
    pub(crate) room: Notify,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget { used: AtomicUsize::new(0), limit, room: Notify::new() })
    }
    pub(crate) fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.limit
    }
    /// Bytes that are held now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
    /// The same bytes, counted until they are dropped, and so is what a request takes beside its data.
    pub(crate) fn charge(self: &Arc<Budget>, bytes: Bytes) -> Bytes {
        let charged = Charged { bytes, budget: self.clone() };
        self.used.fetch_add(charged.weight(), Ordering::Relaxed);
        Bytes::from_owner(charged)
    }
}

struct Charged {
    bytes: Bytes,
    budget: Arc<Budget>,
}

impl Charged {
    fn weight(&self) -> usize {
        self.bytes.len() + REQUEST
    }
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
impl Drop for Charged {
    fn drop(&mut self) {
        let before = self.budget.used.fetch_sub(self.weight(), Ordering::Relaxed);
        if before >= self.budget.limit {
            self.budget.room.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_the_last_slice_is_gone() {
        let budget = Budget::new(4);
        let slice = {
            let bytes = budget.charge(Bytes::from_static(b"hello"));
            assert!(budget.is_full());
            bytes.slice(1..2)
        };
        assert!(budget.is_full());
        assert_eq!(slice, "e");
        drop(slice);
        assert!(!budget.is_full());
        let none = budget.charge(Bytes::new());
        assert!(budget.is_full() && none.is_empty());
        drop(none);
        assert_eq!(budget.used(), 0);
    }
}
