//! What is in a bucket, or in all of a user's, as one gateway counts it between two reads of the totals.

use crate::record::Counters;

/// An estimate that is never too low as far as this gateway's own writes go. A write reserves what it may add
/// before it begins. One that ends while the totals are read may or may not be in them, and is counted on
/// top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// What was read, and at which time, in milliseconds.
    base: Option<(Counters, u64)>,
    /// Writes that ended since the read began.
    ended: Counters,
    /// Writes that are under way.
    reserved: Counters,
    /// Writes that ended since a further read began.
    during_read: Counters,
}

impl Ledger {
    /// When the totals were read that it has.
    pub fn read_at(&self) -> Option<u64> {
        self.base.map(|(_, time)| time)
    }

    /// The totals with the writes of this gateway; none before the first read.
    pub fn estimate(&self) -> Option<Counters> {
        let (mut sum, _) = self.base?;
        sum.add(self.ended);
        sum.add(self.reserved);
        Some(sum)
    }

    /// A read of the totals begins.
    pub fn begin_read(&mut self) {
        self.during_read = Counters::default();
    }

    /// A read is done that began at this time.
    pub fn end_read(&mut self, totals: Counters, began: u64) {
        self.base = Some((totals, began));
        self.ended = self.during_read;
    }

    /// A write begins that may add this.
    pub fn reserve(&mut self, added: Counters) {
        self.reserved.add(added);
    }

    /// It was carried out, or may have been.
    pub fn keep(&mut self, added: Counters) {
        self.reserved.add(negative(added));
        self.ended.add(added);
        self.during_read.add(added);
    }

    /// It was not carried out.
    pub fn cancel(&mut self, added: Counters) {
        self.reserved.add(negative(added));
    }
}

fn negative(counters: Counters) -> Counters {
    Counters { objects: counters.objects.wrapping_neg(), bytes: counters.bytes.wrapping_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Counters = Counters { objects: 1, bytes: 10 };

    fn objects(ledger: &Ledger) -> i64 {
        ledger.estimate().unwrap().objects
    }

    #[test]
    fn writes_are_counted_from_their_beginning() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.estimate(), None);
        ledger.begin_read();
        ledger.end_read(Counters { objects: 5, bytes: 50 }, 1);
        ledger.reserve(ONE);
        assert_eq!(ledger.estimate(), Some(Counters { objects: 6, bytes: 60 }));
        ledger.keep(ONE);
        assert_eq!(objects(&ledger), 6);
        ledger.reserve(ONE);
        ledger.cancel(ONE);
        assert_eq!(objects(&ledger), 6);
        // The next read has what ended before it.
        ledger.begin_read();
        ledger.end_read(Counters { objects: 6, bytes: 60 }, 2);
        assert_eq!((objects(&ledger), ledger.read_at()), (6, Some(2)));
    }

    #[test]
    fn write_that_ends_during_a_read_of_the_totals_is_counted() {
        let mut ledger = Ledger::default();
        ledger.reserve(ONE);
        ledger.begin_read();
        ledger.keep(ONE);
        ledger.reserve(ONE);
        // The read came too early for it.
        ledger.end_read(Counters::default(), 1);
        assert_eq!(objects(&ledger), 2);
        ledger.keep(ONE);
        ledger.begin_read();
        ledger.end_read(Counters { objects: 2, bytes: 20 }, 2);
        assert_eq!(objects(&ledger), 2);
    }
}
