//! Bytes to values, checking as it goes.

/// Why some bytes are not the value they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("{needed} bytes needed, {left} left")]
    Short { needed: usize, left: usize },
    #[error("{left} bytes left over")]
    Leftover { left: usize },
    #[error("{what} needs a reader of version {compat}, this one knows {known}")]
    TooNew { what: &'static str, compat: u8, known: u8 },
    #[error("{what}: {value} is not one of its values")]
    BadValue { what: &'static str, value: u64 },
    #[error("{what}: {len} is over the limit of {limit}")]
    TooLong { what: &'static str, len: usize, limit: usize },
}

pub trait Decode: Sized {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// A cursor over bytes that came from outside.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes }
    }
    pub fn remaining(&self) -> usize {
        self.left.len()
    }
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
    /// The bytes not read yet, without reading them.
    pub fn rest(&self) -> &'a [u8] {
        self.left
    }
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        if len > self.left.len() {
            return Err(DecodeError::Short { needed: len, left: self.left.len() });
        }
        let (taken, left) = self.left.split_at(len);
        self.left = left;
        Ok(taken)
    }
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        Ok(self.take(N)?.try_into().expect("take gives what was asked"))
    }
    /// A `u32` length and that many bytes. Ceph: a string or bufferlist.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = u32::decode(self)? as usize;
        self.take(len)
    }
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(DecodeError::Leftover { left }),
        }
    }
    /// Reads an envelope: `body` gets a reader of exactly its content and the sender's version;
    /// what it leaves unread is skipped, as newer senders append. Ceph: `DECODE_START`.
    pub fn versioned<T>(
        &mut self,
        what: &'static str,
        known: u8,
        body: impl FnOnce(&mut Reader<'a>, u8) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let [version, compat] = self.array()?;
        if compat > known {
            return Err(DecodeError::TooNew { what, compat, known });
        }
        let mut inner = Reader::new(self.bytes()?);
        body(&mut inner, version)
    }
    /// The count of a list. It is checked against what is left, each item being at least
    /// `item_len_min` bytes, so that a lying count cannot make anyone allocate.
    pub fn count(&mut self, item_len_min: usize) -> Result<usize, DecodeError> {
        let count = u32::decode(self)? as usize;
        let needed = count.saturating_mul(item_len_min.max(1));
        if needed > self.left.len() {
            return Err(DecodeError::Short { needed, left: self.left.len() });
        }
        Ok(count)
    }
    pub fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.count(1)?;
        // Small at first: an item may be far bigger in memory than its bytes.
        let mut items = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }
}
