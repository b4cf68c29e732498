//! Whether a daemon's thread may wait for the disk itself, where io_uring does not wait for it.
//!
//! Two threads that wake each other cost more than a small write to a fast device. So where a daemon has
//! nothing else to do, as with one client that waits for each of its writes, its own thread commits. When
//! there is more to do, or the device is slow, it does not wait, and continues.

use std::time::Duration;

/// A batch of more bytes takes the device longer than waking a thread.
const SMALL: usize = 64 << 10;
/// Messages between two batches when there is nearly nothing to do: a request, and the replicas' answers.
const CALM: u32 = 4;
/// A device that usually takes longer is not waited for.
const FAST: Duration = Duration::from_millis(1);
/// How much a single batch says about what is usual.
const WEIGHT: u32 = 8;

#[derive(Debug)]
pub(crate) struct Pace {
    /// Since the last batch.
    arrived: u32,
    /// How long a batch takes.
    usual: Duration,
}

impl Default for Pace {
    /// Slow, until it is known better.
    fn default() -> Pace {
        Pace { arrived: 0, usual: 10 * FAST }
    }
}

impl Pace {
    /// A message came.
    pub(crate) fn arrived(&mut self) {
        self.arrived = self.arrived.saturating_add(1);
    }
    /// A batch is durable.
    pub(crate) fn committed(&mut self, took: Duration) {
        self.arrived = 0;
        self.usual = (self.usual * (WEIGHT - 1) + took) / WEIGHT;
    }
    pub(crate) fn may_block(&self, batch_bytes: usize) -> bool {
        batch_bytes <= SMALL && self.arrived <= CALM && self.usual <= FAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_polls_only_for_small_batches_on_fast_devices() {
        let mut pace = Pace::default();
        assert!(!pace.may_block(4096), "the device is not known yet");
        (0..40).for_each(|_| pace.committed(Duration::from_micros(200)));
        assert!(pace.may_block(4096) && !pace.may_block(1 << 20));
        (0..5).for_each(|_| pace.arrived());
        assert!(!pace.may_block(4096), "there is more to do");
        pace.committed(Duration::from_micros(200));
        assert!(pace.may_block(4096));
        pace.committed(Duration::from_millis(50));
        assert!(!pace.may_block(4096), "the device hung");
        (0..40).for_each(|_| pace.committed(Duration::from_micros(200)));
        assert!(pace.may_block(4096), "and came back");
    }
}
