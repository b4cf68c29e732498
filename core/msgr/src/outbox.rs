//! Bytes that wait to be written.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::IoSlice;

/// What a connection wants written, in order, in the pieces it was made of. As a `Buf` it can be handed
/// to a vectored write as it is.
#[derive(Debug, Default)]
pub struct Outbox {
    /// None of them empty.
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Outbox {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }
    /// The next whole piece.
    pub fn pop(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop_front()?;
        self.len -= piece.len();
        Some(piece)
    }
}

impl Buf for Outbox {
    fn remaining(&self) -> usize {
        self.len
    }
    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }
    fn advance(&mut self, mut n: usize) {
        assert!(n <= self.len, "{n} bytes written of {}", self.len);
        self.len -= n;
        while n > 0 {
            let first = self.pieces.front_mut().expect("`len` counts the pieces");
            if n < first.len() {
                first.advance(n);
                return;
            }
            n -= first.len();
            self.pieces.pop_front();
        }
    }
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = slices.iter_mut().zip(&self.pieces);
        filled.map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }
}
