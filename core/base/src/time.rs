//! Time as the core sees it: an argument, never a question.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the monotonic clock (the shell uses `CLOCK_BOOTTIME`, the simulator its queue).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    pub nanos: u64,
}

impl Time {
    pub const ZERO: Time = Time { nanos: 0 };

    pub fn from_nanos(nanos: u64) -> Time {
        Time { nanos }
    }
    /// How long ago `earlier` was; zero if it is not in the past.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        Time { nanos: self.nanos.saturating_add(d.as_nanos().min(u64::MAX as u128) as u64) }
    }
}
impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, d: Duration) -> Time {
        Time { nanos: self.nanos.saturating_sub(d.as_nanos().min(u64::MAX as u128) as u64) }
    }
}

/// Wall-clock time, for people and for stamps in maps. Ceph: `utime_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utime {
    pub sec: u32,
    pub nsec: u32,
}

impl Utime {
    pub const ZERO: Utime = Utime { sec: 0, nsec: 0 };

    /// Calendar fields (year, month, day, hour, minute, second), UTC.
    fn civil(self) -> (i64, u32, u32, u32, u32, u32) {
        let days = i64::from(self.sec / 86_400);
        let rest = self.sec % 86_400;
        // Days to a proleptic Gregorian date, with years that start in March so that the leap
        // day is the last of its year.
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let day_of_era = z.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * shifted + 2) / 5 + 1) as u32;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 } as u32;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        (year, month, day, rest / 3600, rest / 60 % 60, rest % 60)
    }
}

impl Add<Duration> for Utime {
    type Output = Utime;
    fn add(self, d: Duration) -> Utime {
        let nanos = u64::from(self.nsec) + u64::from(d.subsec_nanos());
        let secs = u64::from(self.sec).saturating_add(d.as_secs()).saturating_add(nanos / 1_000_000_000);
        Utime { sec: u32::try_from(secs).unwrap_or(u32::MAX), nsec: (nanos % 1_000_000_000) as u32 }
    }
}

/// As Ceph prints it in JSON: `2026-01-31T23:59:59.123456+0000`.
impl fmt::Display for Utime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (y, mo, d, h, mi, s) = self.civil();
        write!(f, "{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{:06}+0000", self.nsec / 1000)
    }
}

/// Both clocks at the moment an event is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    pub mono: Time,
    pub wall: Utime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_print_as_ceph_prints_them() {
        assert_eq!(Utime { sec: 0, nsec: 0 }.to_string(), "1970-01-01T00:00:00.000000+0000");
        let leap = Utime { sec: 1_709_164_799, nsec: 123_456_789 };
        assert_eq!(leap.to_string(), "2024-02-28T23:59:59.123456+0000");
        assert_eq!(Utime { sec: 1_709_164_800, nsec: 0 }.to_string(), "2024-02-29T00:00:00.000000+0000");
        assert_eq!(Utime { sec: 1_767_225_599, nsec: 0 }.to_string(), "2025-12-31T23:59:59.000000+0000");
    }
}
