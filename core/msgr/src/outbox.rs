//! Bytes that wait to be written.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Up to this length it costs less to copy a piece behind others than to keep it for itself, and to hand it
/// to the system for itself.
pub(crate) const COPIED_MAX: usize = 2 << 10;
/// Memory for this many copied bytes is kept when all are written; as many that are written free space for
/// others.
const COPIED_KEPT: usize = 64 << 10;

/// What a connection wants written, in order: small pieces behind each other, large ones as they were made.
/// As a `Buf` it can be handed to a vectored write as it is.
#[derive(Debug, Default)]
pub struct Outbox {
    /// None of them empty.
    pieces: VecDeque<Piece>,
    /// Those of all small pieces, behind so many that are written already.
    copied: Vec<u8>,
    written: usize,
    len: usize,
}

#[derive(Debug)]
enum Piece {
    /// This many of the copied bytes.
    Copied(usize),
    Shared(Bytes),
}

impl Outbox {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if piece.len() <= COPIED_MAX {
            return self.put(|out| out.extend_from_slice(&piece));
        }
        self.len += piece.len();
        self.pieces.push_back(Piece::Shared(piece));
    }
    /// What `write` appends.
    pub(crate) fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.copied.len();
        write(&mut self.copied);
        let len = self.copied.len() - start;
        self.len += len;
        match self.pieces.back_mut() {
            Some(Piece::Copied(before)) => *before += len,
            _ if len > 0 => self.pieces.push_back(Piece::Copied(len)),
            _ => {}
        }
    }
    /// The next whole piece.
    pub fn pop(&mut self) -> Option<Bytes> {
        let piece = match self.pieces.front()? {
            Piece::Copied(_) => Bytes::copy_from_slice(self.chunk()),
            Piece::Shared(bytes) => bytes.clone(),
        };
        self.advance(piece.len());
        Some(piece)
    }

    fn forget_written(&mut self) {
        if self.pieces.is_empty() {
            self.copied.clear();
            self.copied.shrink_to(COPIED_KEPT);
            self.written = 0;
        } else if self.written >= COPIED_KEPT {
            self.copied.drain(..self.written);
            self.written = 0;
        }
    }
}

impl Buf for Outbox {
    fn remaining(&self) -> usize {
        self.len
    }
    fn chunk(&self) -> &[u8] {
        match self.pieces.front() {
            None => &[],
            Some(Piece::Copied(len)) => &self.copied[self.written..self.written + len],
            Some(Piece::Shared(bytes)) => bytes,
        }
    }
    fn advance(&mut self, mut n: usize) {
        assert!(n <= self.len, "{n} bytes written of {}", self.len);
        self.len -= n;
        while n > 0 {
            let first = self.pieces.front_mut().expect("`len` counts the pieces");
            let len = match first {
                Piece::Copied(len) => *len,
                Piece::Shared(bytes) => bytes.len(),
            };
            let now = n.min(len);
            n -= now;
            match first {
                Piece::Copied(left) => {
                    self.written += now;
                    *left -= now;
                }
                Piece::Shared(bytes) => bytes.advance(now),
            }
            if now == len {
                self.pieces.pop_front();
            }
        }
        self.forget_written();
    }
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut copied = &self.copied[self.written..];
        let filled = slices.iter_mut().zip(&self.pieces).map(|(slice, piece)| {
            *slice = IoSlice::new(match piece {
                Piece::Copied(len) => copied.split_off(..*len).expect("`copied` has all of them"),
                Piece::Shared(bytes) => bytes,
            });
        });
        filled.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_written_in_their_order_however_they_are_kept() {
        let (mut outbox, mut all) = (Outbox::default(), Vec::new());
        for (at, len) in [3, 5000, 0, 7, 2000, 2049, 2048, 90_000, 1].into_iter().enumerate() {
            let piece = vec![at as u8; len];
            all.extend_from_slice(&piece);
            outbox.push(piece.into());
        }
        let mut slices = [IoSlice::new(&[]); 8];
        let count = outbox.chunks_vectored(&mut slices);
        let lens: Vec<usize> = slices[..count].iter().map(|slice| slice.len()).collect();
        assert_eq!(lens, [3, 5000, 2007, 2049, 2048, 90_000, 1]);
        assert_eq!(slices[..count].iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>(), all);
        let mut written = Vec::new();
        for step in (1..).step_by(700) {
            let n = step.min(outbox.remaining());
            written.extend_from_slice(&outbox.copy_to_bytes(n));
            if written.len() == all.len() {
                break;
            }
        }
        assert_eq!((written, outbox.pop(), outbox.copied.len()), (all, None, 0));
    }

    #[test]
    fn written_bytes_free_space_while_more_are_queued() {
        let mut outbox = Outbox::default();
        (0..1000).for_each(|_| {
            outbox.push(vec![1; 1000].into());
            outbox.push(vec![2; 1000].into());
            outbox.advance(1999);
        });
        assert_eq!(outbox.remaining(), 1000);
        assert!(outbox.copied.len() <= 2 * COPIED_KEPT);
    }
}
