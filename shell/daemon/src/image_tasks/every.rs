//! When something is to be done again and again: `2h` from a time of the day on, say.

use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;

const MINUTES_OF_DAY: u32 = 24 * 60;

/// How often, in minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Interval(u32);

impl FromStr for Interval {
    type Err = ();

    fn from_str(text: &str) -> Result<Interval, ()> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or(())?;
        let (count, unit) = text.split_at(digits);
        let minutes = match unit {
            "m" => 1,
            "h" => 60,
            "d" => MINUTES_OF_DAY,
            _ => return Err(()),
        };
        let count: u32 = count.parse().map_err(|_| ())?;
        count.checked_mul(minutes).filter(|&minutes| minutes > 0).map(Interval).ok_or(())
    }
}
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            minutes if minutes.is_multiple_of(MINUTES_OF_DAY) => write!(f, "{}d", minutes / MINUTES_OF_DAY),
            minutes if minutes.is_multiple_of(60) => write!(f, "{}h", minutes / 60),
            minutes => write!(f, "{minutes}m"),
        }
    }
}

/// A time of the day, as far east of UTC as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimeOfDay {
    minutes: u32,
    /// Minutes; none was given: it is UTC.
    east: Option<i32>,
}

impl TimeOfDay {
    /// Minutes since midnight UTC.
    fn utc(&self) -> u32 {
        (self.minutes as i32 - self.east.unwrap_or(0)).rem_euclid(MINUTES_OF_DAY as i32) as u32
    }
}

fn clock(text: &str) -> Result<u32, ()> {
    let mut parts = text.split(':');
    let mut part = |below: u32| {
        let part: u32 = parts.next().unwrap_or("0").parse().map_err(|_| ())?;
        if part < below { Ok(part) } else { Err(()) }
    };
    let (hours, minutes, _seconds) = (part(24)?, part(60)?, part(60)?);
    if parts.next().is_some() { Err(()) } else { Ok(hours * 60 + minutes) }
}

impl FromStr for TimeOfDay {
    type Err = ();

    /// `[DATET]HH:MM[:SS][Z|+HH:MM|-HH:MM]`; neither the date nor the seconds matter.
    fn from_str(text: &str) -> Result<TimeOfDay, ()> {
        let text = text.rsplit_once('T').map_or(text, |(_, time)| time);
        let (time, east) = match text.find(['+', '-', 'Z']) {
            None => (text, None),
            Some(at) => {
                let (time, zone) = text.split_at(at);
                let minutes = if zone == "Z" { 0 } else { clock(&zone[1..])? as i32 };
                (time, Some(if zone.starts_with('-') { -minutes } else { minutes }))
            }
        };
        if !time.contains(':') {
            return Err(());
        }
        Ok(TimeOfDay { minutes: clock(time)?, east })
    }
}
impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}:00", self.minutes / 60, self.minutes % 60)?;
        let Some(east) = self.east else { return Ok(()) };
        let sign = if east < 0 { '-' } else { '+' };
        write!(f, "{sign}{:02}:{:02}", east.abs() / 60, east.abs() % 60)
    }
}

/// One entry of a schedule: how often, and from which time of the day on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Every {
    interval: Interval,
    start: Option<TimeOfDay>,
}

impl Every {
    /// Or which of the two words is none.
    pub fn parse<'a>(interval: &'a str, start: Option<&'a str>) -> Result<Every, &'a str> {
        let start = start.filter(|start| !start.is_empty());
        Ok(Every {
            interval: interval.parse().map_err(|()| interval)?,
            start: start.map(|start| start.parse().map_err(|()| start)).transpose()?,
        })
    }

    /// The first time from `minute` on, in minutes since 1970. Without a start it is as if there had been
    /// one at the first midnight of all.
    pub fn next(&self, minute: u64) -> u64 {
        let interval = u64::from(self.interval.0);
        let phase = u64::from(self.start.map_or(0, |start| start.utc())) % interval;
        let behind = (minute + interval - phase) % interval;
        if behind == 0 { minute } else { minute + interval - behind }
    }

    pub fn to_json(self) -> Value {
        json!({ "interval": self.interval.to_string(), "start_time": self.start.map(|start| start.to_string()) })
    }
    pub fn from_json(value: &Value) -> Option<Every> {
        Every::parse(value["interval"].as_str()?, value["start_time"].as_str()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(interval: &str, start: &str) -> Every {
        Every::parse(interval, Some(start)).unwrap()
    }

    #[test]
    fn intervals_and_times_are_read_and_written_in_one_form() {
        let form = |interval: &str, start: &str| {
            let said = every(interval, start).to_json();
            assert_eq!(Every::from_json(&said), Some(every(interval, start)));
            (said["interval"].as_str().unwrap().to_owned(), said["start_time"].as_str().map(str::to_owned))
        };
        assert_eq!(form("24h", ""), ("1d".into(), None));
        assert_eq!(form("90m", "14:00:00-05:00"), ("90m".into(), Some("14:00:00-05:00".into())));
        assert_eq!(form("120m", "2021-01-01T00:30"), ("2h".into(), Some("00:30:00".into())));
        assert_eq!(form("3d", "7:05Z"), ("3d".into(), Some("07:05:00+00:00".into())));
        for bad in ["", "5", "m", "0h", "5x", "-1d", "99999999999d", "4294967295d"] {
            assert_eq!(Every::parse(bad, None), Err(bad));
        }
        for bad in ["nonsense", "25:00", "1:60", "12", "1:2:3:4", "1:00+x", "1:00+25:00"] {
            assert_eq!(Every::parse("1d", Some(bad)), Err(bad));
        }
    }

    #[test]
    fn the_next_time_is_a_whole_number_of_intervals_from_the_start() {
        const DAY: u64 = 24 * 60;
        assert_eq!(every("1d", "").next(DAY), DAY);
        assert_eq!(every("1d", "").next(DAY + 1), 2 * DAY);
        assert_eq!(every("2h", "00:30").next(DAY), DAY + 30);
        assert_eq!(every("2h", "00:30").next(DAY + 31), DAY + 150);
        assert_eq!(every("1d", "14:00:00-05:00").next(DAY), DAY + 19 * 60);
        assert_eq!(every("1d", "01:00+03:00").next(DAY), DAY + 22 * 60);
        assert_eq!(every("7m", "").next(8), 14);
    }
}
