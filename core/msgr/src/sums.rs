//! Checksums of data segments that need not be made again: what is received is often sent on, and sent
//! to more than one.

use bytes::Bytes;
use nacre_wire::crc32c;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Shorter ones are summed sooner than found.
const LEN_MIN: usize = 1 << 10;
/// This many are known at most: they keep what they are of in memory, and are looked through one by one. As
/// many requests come at a time.
const COUNT_MAX: usize = 64;
/// What was not received is sent once, mostly, as answers to reads are: it is worth being known only where a
/// sum takes long.
const SENT_MIN: usize = 64 << 10;

/// Known to all connections that have a clone of it, until `forget` is called.
#[derive(Clone, Debug)]
pub struct Sums(Rc<RefCell<VecDeque<(Bytes, u32)>>>);

impl Default for Sums {
    /// None are known.
    fn default() -> Sums {
        Sums(Rc::new(RefCell::new(VecDeque::with_capacity(COUNT_MAX))))
    }
}

impl Sums {
    /// `crc` is that of the bytes, from `u32::MAX`. As long as this is known, they stay in memory, so that
    /// nothing else can lie where they do.
    pub fn note(&self, bytes: &Bytes, crc: u32) {
        if bytes.len() < LEN_MIN {
            return;
        }
        let mut known = self.0.borrow_mut();
        if known.len() == COUNT_MAX {
            known.pop_front();
        }
        known.push_back((bytes.clone(), crc));
    }
    pub(crate) fn of(&self, bytes: &Bytes) -> u32 {
        if bytes.len() < LEN_MIN {
            return crc32c(u32::MAX, bytes);
        }
        let is_same =
            |(known, _): &&(Bytes, u32)| (known.as_ptr(), known.len()) == (bytes.as_ptr(), bytes.len());
        let known = self.0.borrow().iter().find(is_same).map(|(_, crc)| *crc);
        known.unwrap_or_else(|| {
            let crc = crc32c(u32::MAX, bytes);
            if bytes.len() >= SENT_MIN {
                self.note(bytes, crc);
            }
            crc
        })
    }
    /// Lets go of them all: when what was received has been dealt with.
    pub fn forget(&self) {
        self.0.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_believed_and_other_bytes_are_summed() {
        let sums = Sums::default();
        let (large, short) = (Bytes::from(vec![7; LEN_MIN]), Bytes::from(vec![7; LEN_MIN - 1]));
        sums.note(&large, 1);
        sums.note(&short, 1);
        assert_eq!((sums.of(&large), sums.of(&short)), (1, crc32c(u32::MAX, &short)));
        let part = large.slice(1..);
        assert_eq!(sums.of(&part), crc32c(u32::MAX, &part));
        sums.forget();
        assert_eq!(sums.of(&large), crc32c(u32::MAX, &large));
        let others: Vec<Bytes> = (0..2 * COUNT_MAX).map(|n| Bytes::from(vec![n as u8; SENT_MIN])).collect();
        assert!(others.iter().all(|bytes| sums.of(bytes) == crc32c(u32::MAX, bytes)));
        assert_eq!(sums.0.borrow().len(), COUNT_MAX);
    }
}
