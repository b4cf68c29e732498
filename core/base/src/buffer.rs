//! Memory for large data, which is used again rather than given back.
//!
//! A piece of memory that the system has just given is filled with zeros by it, page by page, as it is
//! touched: for 4 MiB that costs more than to copy them. So those that are free wait here for the next use;
//! `give_back` lets go of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where a buffer begins is a multiple of this: what direct I/O asks for.
const ALIGN: usize = 4096;
/// Buffers are kept by size class: this, twice this, and so on. Longer ones are left to the allocator.
const CLASS_MIN: usize = 4 << 10;
const CLASSES: usize = 11;
/// Buffers of this class and above are slightly larger, for headers and trailers around data of exactly the
/// class's size: in the next class they would waste half of the buffer.
const EXTRA_FROM: usize = 64 << 10;
const EXTRA: usize = 8 << 10;
/// The most bytes that are kept,
const KEPT_MAX: usize = 24 << 20;
/// and the most buffers of one class.
const KEPT_OF_CLASS_MAX: usize = 32;

static FREE: Mutex<Free> = Mutex::new(Free::NONE);

struct Free {
    /// By size class; the most recently used at the end.
    classes: [Vec<Vec<u8>>; CLASSES],
    /// Of all of them together.
    bytes: usize,
}

impl Free {
    const NONE: Free = Free { classes: [const { Vec::new() }; CLASSES], bytes: 0 };

    fn take(&mut self, at: usize) -> Option<Vec<u8>> {
        let raw = self.classes[at].pop()?;
        self.bytes -= raw.len();
        Some(raw)
    }
    fn put(&mut self, at: usize, raw: Vec<u8>) {
        if self.classes[at].len() < KEPT_OF_CLASS_MAX && self.bytes + raw.len() <= KEPT_MAX {
            self.bytes += raw.len();
            self.classes[at].push(raw);
        }
    }
}

fn free() -> MutexGuard<'static, Free> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that begin at a multiple of 4096 in memory. They hold anything until they are written.
#[derive(Debug)]
pub struct Buffer {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` bytes that may be anything.
    pub fn new(len: usize) -> Buffer {
        let place = place_of(len);
        let kept = place.and_then(|at| free().take(at));
        let raw = kept.unwrap_or_else(|| vec![0; place.map_or(len, length_at) + ALIGN]);
        let start = raw.as_ptr().align_offset(ALIGN);
        Buffer { raw, start, len }
    }
}

/// Where buffers of that length wait, if they are kept.
fn place_of(len: usize) -> Option<usize> {
    let most = len.saturating_sub(EXTRA).next_power_of_two();
    let size = if most >= EXTRA_FROM { most } else { len.next_power_of_two().max(CLASS_MIN) };
    let at = (size / CLASS_MIN).trailing_zeros() as usize;
    (at < CLASSES).then_some(at)
}
/// How long those may be that wait there.
fn length_at(at: usize) -> usize {
    let size = CLASS_MIN << at;
    if size >= EXTRA_FROM { size + EXTRA } else { size }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.raw[self.start..self.start + self.len]
    }
}
impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..self.start + self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let raw = std::mem::take(&mut self.raw);
        let Some(at) = place_of(self.len) else { return };
        free().put(at, raw);
    }
}

/// Bytes that wait.
pub fn kept() -> usize {
    free().bytes
}

/// Lets go of all that wait. Gives how many bytes they were.
pub fn give_back() -> usize {
    // The memory itself is freed outside of the lock.
    let all = std::mem::replace(&mut *free(), Free::NONE);
    all.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_aligned_and_used_again() {
        for len in [0, 1, 4096, 65_000, 70_000, 100_000, 4 << 20, (4 << 20) + 1, (4 << 20) + EXTRA + 1] {
            let mut buffer = Buffer::new(len);
            assert_eq!((buffer.as_ref().len(), buffer.as_ref().as_ptr().align_offset(ALIGN)), (len, 0));
            buffer.as_mut().fill(7);
        }
        let many: Vec<Buffer> = (0..20).map(|_| Buffer::new(4 << 20)).collect();
        let few: Vec<Buffer> = (0..100).map(|_| Buffer::new(5000)).collect();
        drop((many, few));
        let waited = kept();
        let kept = give_back();
        assert_eq!(kept, waited);
        assert!(kept > KEPT_MAX / 2 && kept <= KEPT_MAX, "{kept} bytes waited");
        let first = Buffer::new(1 << 20).as_ref().as_ptr();
        assert_eq!(Buffer::new((1 << 20) - 1).as_ref().as_ptr(), first);
        assert_eq!(Buffer::new((1 << 20) + EXTRA).as_ref().as_ptr(), first);
    }
}
