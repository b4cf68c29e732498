//! Memory that a device can read and write without a copy on the way, filled piece by piece.

use nacre_base::Buffer;

/// Bytes that begin at a multiple of `BLOCK` in memory, which is what direct I/O asks for.
#[derive(Debug)]
pub(crate) struct Aligned {
    /// The whole buffer.
    buffer: Buffer,
    len: usize,
}

impl Aligned {
    /// Room for `capacity` bytes; more must not be put in, since growing would move it.
    pub fn with_capacity(capacity: usize) -> Aligned {
        Aligned { buffer: Buffer::new(capacity), len: 0 }
    }
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Aligned {
        let mut buffer = Buffer::new(len);
        buffer.as_mut().fill(0);
        Aligned { buffer, len }
    }
    /// `len` bytes that are to be written before they are examined: they may be anything.
    pub fn unwritten(len: usize) -> Aligned {
        Aligned { buffer: Buffer::new(len), len }
    }
    pub fn len(&self) -> usize {
        self.len
    }
    /// What is added: `len` bytes that are to be written.
    fn grow(&mut self, len: usize) -> &mut [u8] {
        let room = self.buffer.as_mut().get_mut(self.len..self.len + len);
        self.len += len;
        room.expect("an aligned buffer does not grow")
    }
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }
    /// Pads with zeros.
    pub fn pad_to(&mut self, len: usize) {
        self.grow(len - self.len).fill(0);
    }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.as_ref()[..self.len]
    }
}
impl AsMut<[u8]> for Aligned {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut()[..self.len]
    }
}
