//! What daemons left behind when they ended in a panic. They post it when they start again; it is kept
//! with the other keys, where Ceph's manager keeps it.

use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::state::State;
use bytes::Bytes;
use nacre_base::{Utime, errno};
use nacre_command::Format;
use serde_json::{Map, Value, json};

pub const COMMANDS: &[Row] = &[
    ("crash post", "store a crash report", post),
    ("crash ls", "list the crashes", ls),
    ("crash ls-new", "list the crashes that are not archived", ls_new),
    ("crash info", "show a crash report", info),
    ("crash stat", "count the crashes by age", stat),
    ("crash rm", "forget a crash", rm),
    ("crash prune", "remove crashes older than a number of days", prune),
    ("crash archive", "archive a crash", archive),
    ("crash archive-all", "archive all crashes", archive_all),
];

const KEYS: &str = "mgr/crash/crash/";
/// A crash is news for so long: `mgr/crash/warn_recent_interval`.
const RECENT: u32 = 14 * DAY;
const DAY: u32 = 86_400;
const CRASHES_MAX: usize = 1000;
const POST_MAX: usize = 64 << 10;

type Crash = Map<String, Value>;

fn text<'a>(crash: &'a Crash, key: &str) -> &'a str {
    crash.get(key).and_then(Value::as_str).unwrap_or("")
}

/// By id, which begins with the time.
fn all(state: &State) -> impl Iterator<Item = (&str, Crash)> {
    state.kv.pairs.range(KEYS.to_string()..).map_while(|(key, value)| {
        let id = key.strip_prefix(KEYS)?;
        Some((id, serde_json::from_slice(value).unwrap_or_default()))
    })
}

/// How old, in seconds; as it is not known, very old.
fn age(now: Utime, crash: &Crash) -> u32 {
    now.sec.saturating_sub(seconds(text(crash, "timestamp")).unwrap_or(0))
}

/// Since 1970, of `2026-01-31T23:59:59.123456Z`.
fn seconds(stamp: &str) -> Option<u32> {
    let number = |range: std::ops::Range<usize>| stamp.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let possible =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    // Years that start in March, so that the leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let seconds = days * i64::from(DAY) + hour * 3600 + minute * 60 + second;
    u32::try_from(seconds).ok().filter(|_| possible)
}

/// Recent crashes for the health check: daemon, host and time.
pub fn recent(state: &State, now: Utime) -> Vec<String> {
    let news = all(state).filter(|(_, crash)| !crash.contains_key("archived") && age(now, crash) < RECENT);
    let line = |(_, crash): (&str, Crash)| {
        let [who, host, when] = ["entity_name", "utsname_hostname", "timestamp"].map(|key| text(&crash, key));
        format!("{who} crashed on host {host} at {when}")
    };
    news.map(line).collect()
}

fn post(call: &mut Call<'_>) -> Outcome {
    let bad = |why: String| refuse(errno::EINVAL, format!("malformed crash metadata: {why}"));
    if call.input.len() > POST_MAX {
        return Err(bad(format!("more than {POST_MAX} bytes")));
    }
    let crash: Crash = serde_json::from_slice(call.input).map_err(|e| bad(e.to_string()))?;
    let id = text(&crash, "crash_id").to_string();
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_:.".contains(c);
    if id.is_empty() || id.len() > 128 || !id.chars().all(sound) {
        return Err(bad("'crash_id'".into()));
    }
    if seconds(text(&crash, "timestamp")).is_none() {
        return Err(bad("'timestamp'".into()));
    }
    let key = format!("{KEYS}{id}");
    if !call.state.kv.pairs.contains_key(&key) {
        let value = Value::Object(crash).to_string();
        call.pending.batch.kv.push((key, Some(Bytes::from(value))));
        // The oldest make room.
        let have = all(call.state).count();
        let surplus: Vec<String> = all(call.state)
            .take((have + 1).saturating_sub(CRASHES_MAX))
            .map(|(id, _)| id.to_string())
            .collect();
        call.pending.batch.kv.extend(surplus.into_iter().map(|id| (format!("{KEYS}{id}"), None)));
    }
    Answer::said("")
}

fn list(call: &Call<'_>, keep: impl Fn(&Crash) -> bool) -> Outcome {
    let crashes: Vec<(&str, Crash)> = all(call.state).filter(|(_, crash)| keep(crash)).collect();
    if call.format != Format::Plain {
        return call.show_json(crashes.into_iter().map(|(_, crash)| Value::Object(crash)).collect());
    }
    let rows = crashes.iter().map(|(id, crash)| {
        let new = if crash.contains_key("archived") { "" } else { "*" };
        [(*id).to_string(), text(crash, "entity_name").to_string(), new.to_string()]
    });
    let rows: Vec<[String; 3]> =
        std::iter::once(["ID", "ENTITY", "NEW"].map(String::from)).chain(rows).collect();
    if rows.len() == 1 {
        return Answer::text("");
    }
    let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let (first, second, third) = (width(0), width(1), width(2));
    let line = |[id, who, new]: &[String; 3]| format!("{id:<first$}  {who:<second$}  {new:^third$}  \n");
    Answer::text(rows.iter().map(line).collect::<String>())
}
fn ls(call: &mut Call<'_>) -> Outcome {
    list(call, |_| true)
}
fn ls_new(call: &mut Call<'_>) -> Outcome {
    list(call, |crash| !crash.contains_key("archived"))
}

fn find(call: &Call<'_>, what: &str) -> Result<(String, Crash), Refusal> {
    let id = call.args.text("id")?;
    let found = all(call.state).find(|(have, _)| *have == id);
    let (id, crash) = found.ok_or_else(|| refuse(errno::EINVAL, format!("crash {what}: {id} not found")))?;
    Ok((id.to_string(), crash))
}

fn info(call: &mut Call<'_>) -> Outcome {
    let (_, crash) = find(call, "info")?;
    call.show_json(crash.into())
}

fn stat(call: &mut Call<'_>) -> Outcome {
    let ages: Vec<(String, u32)> =
        all(call.state).map(|(id, crash)| (id.to_string(), age(call.now.wall, &crash))).collect();
    let mut lines = vec![format!("{} crashes recorded", ages.len())];
    let mut younger_than = u32::MAX;
    for days in [7, 3, 1] {
        let here = ages.iter().filter(|(_, age)| (days * DAY..younger_than).contains(age));
        let ids: Vec<&str> = here.map(|(id, _)| &**id).collect();
        if !ids.is_empty() {
            lines.push(format!("{} older than {days} days old:\n{}", ids.len(), ids.join("\n")));
        }
        younger_than = days * DAY;
    }
    let value = json!({ "recorded": ages.len() });
    call.show(value, || lines.join("\n"))
}

fn rm(call: &mut Call<'_>) -> Outcome {
    let id = call.args.text("id")?;
    if call.state.kv.pairs.contains_key(&format!("{KEYS}{id}")) {
        call.pending.batch.kv.push((format!("{KEYS}{id}"), None));
    }
    Answer::said("")
}

fn prune(call: &mut Call<'_>) -> Outcome {
    let keep = call.args.text("keep")?;
    let days: u32 = keep.parse().map_err(|_| refuse(errno::EINVAL, "keep argument must be numeric"))?;
    let old = |crash: &Crash| age(call.now.wall, crash) > days.saturating_mul(DAY);
    let gone: Vec<String> =
        all(call.state).filter(|(_, crash)| old(crash)).map(|(id, _)| format!("{KEYS}{id}")).collect();
    call.pending.batch.kv.extend(gone.into_iter().map(|key| (key, None)));
    Answer::said("")
}

fn note_archived(call: &mut Call<'_>, crashes: Vec<(String, Crash)>) {
    for (id, mut crash) in crashes.into_iter().filter(|(_, crash)| !crash.contains_key("archived")) {
        let now = call.now.wall.to_string();
        crash.insert("archived".into(), json!(now.trim_end_matches("+0000").replace('T', " ")));
        let value = Value::Object(crash).to_string();
        call.pending.batch.kv.push((format!("{KEYS}{id}"), Some(value.into())));
    }
}
fn archive(call: &mut Call<'_>) -> Outcome {
    let found = find(call, "archive")?;
    note_archived(call, vec![found]);
    Answer::said("")
}
fn archive_all(call: &mut Call<'_>) -> Outcome {
    let found = all(call.state).map(|(id, crash)| (id.to_string(), crash)).collect();
    note_archived(call, found);
    Answer::said("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_read_as_they_are_printed() {
        for sec in [0, 951_782_400, 951_868_800, 1_800_000_000, 4_102_444_799] {
            assert_eq!(seconds(&Utime { sec, nsec: 7 }.to_string()), Some(sec));
        }
        for bad in ["", "2026", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-01-01T00:00:\u{1f600}"]
        {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
