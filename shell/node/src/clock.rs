//! The two clocks whose times are passed to machines.

use nacre_base::{Now, Time, Utime};
use rustix::time::{ClockId, clock_gettime};

/// Both clocks, now. The monotonic one continues while the machine sleeps, so that a lease or a grace
/// period that ended meanwhile has ended.
pub fn now() -> Now {
    let wall = clock_gettime(ClockId::Realtime);
    let wall = Utime { sec: u32::try_from(wall.tv_sec).unwrap_or(0), nsec: wall.tv_nsec as u32 };
    Now { mono: mono(), wall }
}

pub(crate) fn mono() -> Time {
    let t = clock_gettime(ClockId::Boottime);
    Time::from_nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
