//! What the primary counts for its reports to the monitors.

use super::PgEffect;
use nacre_base::{IntervalSet, Utime};
use nacre_proto::messages::{PgCounts, pg_state};

#[derive(Default)]
pub struct Stats {
    /// Work that was done; what there is of objects is counted in `PgInfo`.
    pub counts: PgCounts,
    last_change: Utime,
    last_active: Utime,
    last_clean: Utime,
    /// `pg_state` bits of the last report.
    reported_state: u64,
    /// Snapshots for which clones were made, not reported to the monitors yet.
    new_snaps: IntervalSet,
}

impl Stats {
    /// Requests a report if the state changed.
    pub fn note_state(&mut self, state: u64, wall: Utime, out: &mut Vec<PgEffect>) {
        if state & pg_state::CLEAN != 0 {
            self.last_clean = wall;
        }
        if state != self.reported_state {
            self.reported_state = state;
            self.last_change = wall;
            out.push(PgEffect::Report);
        }
    }
    pub fn note_active(&mut self, wall: Utime) {
        self.last_active = wall;
    }
    pub fn reported_state(&self) -> u64 {
        self.reported_state
    }
    pub fn last_change(&self) -> Utime {
        self.last_change
    }
    pub fn last_active(&self) -> Utime {
        self.last_active
    }
    pub fn last_clean(&self) -> Utime {
        self.last_clean
    }
    /// Takes over the work of a placement group that merges into this one.
    pub fn join(&mut self, other: &Stats) {
        self.counts.work = self.counts.work.plus(other.counts.work);
    }

    pub fn note_read(&mut self, bytes: u64) {
        self.counts.work.reads += 1;
        self.counts.work.read_bytes += bytes;
    }
    pub fn note_write(&mut self, bytes: u64) {
        self.counts.work.writes += 1;
        self.counts.work.write_bytes += bytes;
    }
    pub fn note_recovered_bytes(&mut self, bytes: u64) {
        self.counts.work.recovered_bytes += bytes;
    }
    pub fn note_recovered_object(&mut self) {
        self.counts.work.recovered_objects += 1;
    }

    /// Clones may have been made for these.
    pub fn note_new_snaps(&mut self, snaps: &IntervalSet) {
        self.new_snaps.add(snaps);
    }
    pub fn take_new_snaps(&mut self) -> IntervalSet {
        std::mem::take(&mut self.new_snaps)
    }
}
