//! A byte budget with reservations that end when they are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the bytes that are held.
pub struct Memory {
    most: u64,
    held: Arc<AtomicU64>,
}

/// This many bytes; none any more when this is dropped, however that comes about.
#[derive(Debug)]
pub struct Held {
    bytes: u64,
    all: Arc<AtomicU64>,
}

impl Held {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Memory {
    pub fn new(most: u64) -> Memory {
        Memory { most, held: Arc::default() }
    }
    pub fn most(&self) -> u64 {
        self.most
    }
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
    pub fn hold(&self, bytes: u64) -> Held {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Held { bytes, all: self.held.clone() }
    }
}

/// Whether there is memory for this many bytes beside those that are held. What is larger than all that there
/// is goes alone.
pub fn fits(bytes: u64, held: u64, most: u64) -> bool {
    held == 0 || held.saturating_add(bytes) <= most
}
