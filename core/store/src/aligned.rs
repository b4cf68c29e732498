//! Memory that a device can read and write without a copy on the way.

use crate::BLOCK;

/// Bytes that begin at a multiple of `BLOCK` in memory, which is what direct I/O asks for.
#[derive(Debug)]
pub(crate) struct Aligned {
    raw: Vec<u8>,
    start: usize,
}

impl Aligned {
    /// Room for `capacity` bytes; more must not be put in, since growing would move it.
    pub fn with_capacity(capacity: usize) -> Aligned {
        let mut raw: Vec<u8> = Vec::with_capacity(capacity + BLOCK);
        let start = raw.as_ptr().align_offset(BLOCK);
        raw.resize(start, 0);
        Aligned { raw, start }
    }
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Aligned {
        // Not `resize`: large ones come as zeros from the system.
        let mut raw = vec![0_u8; len + BLOCK];
        let start = raw.as_ptr().align_offset(BLOCK);
        raw.truncate(start + len);
        Aligned { raw, start }
    }
    pub fn len(&self) -> usize {
        self.raw.len() - self.start
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn clear(&mut self) {
        self.raw.truncate(self.start);
    }
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        assert!(self.raw.len() + bytes.len() <= self.raw.capacity(), "an aligned buffer does not grow");
        self.raw.extend_from_slice(bytes);
    }
    /// Pads with zeros.
    pub fn pad_to(&mut self, len: usize) {
        assert!(self.start + len <= self.raw.capacity(), "an aligned buffer does not grow");
        self.raw.resize(self.start + len, 0);
    }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.raw[self.start..]
    }
}
impl AsMut<[u8]> for Aligned {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..]
    }
}
