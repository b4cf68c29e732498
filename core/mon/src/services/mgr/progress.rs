//! How far recovery is, and how long it will take. Known to the leader alone, as what it rests on.

use crate::output::uuid;
use crate::services::leader_hints::PastRecovery;
use nacre_base::{Now, Time, Utime};
use nacre_proto::messages::{PgReport, pg_state};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// Ended ones that are remembered.
const COMPLETED_MAX: usize = 20;
const BAR: usize = 30;
/// A new leader has reports of every PG after this time.
const HEARD_OF_ALL: Duration = Duration::from_secs(10);
const TITLE: &str = "Global Recovery Event";

/// From the first PG that recovers until none does.
struct Episode {
    started: Time,
    started_at: Utime,
    /// Copies of objects that were to be made or moved, when that was most.
    most: u64,
    left: u64,
    now: Time,
}

#[derive(Default)]
pub struct Progress {
    current: Option<Episode>,
    /// With when they ended.
    completed: VecDeque<(Episode, Utime)>,
    /// Until then, that no PG recovers says nothing.
    patient_until: Time,
}

impl Episode {
    /// From 0 to 1.
    fn done(&self) -> f64 {
        1.0 - self.left as f64 / self.most.max(1) as f64
    }
    fn lasts(&self) -> Duration {
        self.now.since(self.started)
    }
    /// At the pace so far; none while there is no pace.
    fn remaining(&self) -> Option<Duration> {
        let done = self.most - self.left;
        (done > 0 && self.left > 0).then(|| self.lasts().mul_f64(self.left as f64 / done as f64))
    }
    fn id(&self) -> String {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&self.started_at.sec.to_be_bytes());
        id[4..8].copy_from_slice(&self.started_at.nsec.to_be_bytes());
        uuid(&id)
    }
    /// Two lines, the second one this much indented.
    fn text(&self, indent: usize) -> String {
        let full = ((self.done() * BAR as f64) as usize).min(BAR);
        let bar = "=".repeat(full) + &".".repeat(BAR - full);
        let remaining = match self.remaining() {
            Some(time) => format!(" (remaining: {})", pretty(time)),
            None => String::new(),
        };
        format!("{TITLE} ({})\n{}[{bar}]{remaining}", pretty(self.lasts()), " ".repeat(indent))
    }
    fn json(&self, ended: Option<Utime>) -> Value {
        let seconds = |at: Utime| f64::from(at.sec) + f64::from(at.nsec) / 1e9;
        let mut row = json!({
            "id": self.id(),
            "message": TITLE,
            "refs": ["global"],
            "add_to_ceph_s": true,
            "started_at": seconds(self.started_at),
        });
        match ended {
            Some(at) => row["finished_at"] = json!(seconds(at)),
            None => {
                row["progress"] = json!(self.done());
                row["time_remaining"] = self.remaining().map_or(Value::Null, |time| json!(time.as_secs()));
            }
        }
        row
    }
}

fn pretty(time: Duration) -> String {
    match time.as_secs() {
        secs @ 0..120 => format!("{secs}s"),
        secs @ 120..7_200 => format!("{}m", secs / 60),
        secs @ 7_200..172_800 => format!("{}h", secs / 3_600),
        secs => format!("{}d", secs / 86_400),
    }
}

impl Progress {
    /// What a new leader should know of it.
    pub fn save(&self, now: Time) -> Option<PastRecovery> {
        let episode = self.current.as_ref()?;
        let age = now.since(episode.started).as_secs() as u32;
        Some(PastRecovery { age, started_at: episode.started_at, most: episode.most })
    }
    pub fn restore(&mut self, now: Time, past: Option<&PastRecovery>) {
        self.patient_until = now + HEARD_OF_ALL;
        self.current = past.map(|past| Episode {
            started: now - Duration::from_secs(past.age.into()),
            started_at: past.started_at,
            most: past.most,
            left: past.most,
            now,
        });
    }

    /// What primaries say now; once a second.
    pub fn observe<'a>(&mut self, now: Now, reports: impl Iterator<Item = &'a PgReport>) {
        let work = pg_state::RECOVERING
            | pg_state::BACKFILLING
            | pg_state::RECOVERY_WAIT
            | pg_state::BACKFILL_WAIT
            | pg_state::RECOVERY_UNFOUND
            | pg_state::BACKFILL_UNFOUND;
        let mut left = None;
        for report in reports.filter(|report| report.state & work != 0) {
            *left.get_or_insert(0) += report.counts.degraded + report.counts.misplaced;
        }
        match (left, &mut self.current) {
            (None, Some(_)) if now.mono < self.patient_until => {}
            (None, current) => {
                self.completed.extend(current.take().map(|episode| (episode, now.wall)));
                while self.completed.len() > COMPLETED_MAX {
                    self.completed.pop_front();
                }
            }
            (Some(left), Some(episode)) => {
                (episode.left, episode.most, episode.now) = (left, episode.most.max(left), now.mono);
            }
            (Some(left), none) => {
                let (started, started_at) = (now.mono, now.wall);
                *none = Some(Episode { started, started_at, most: left, left, now: now.mono });
            }
        }
    }

    /// What is under way is watched from now on, as if it had begun now.
    pub fn clear(&mut self) {
        self.current = None;
        self.completed.clear();
    }

    /// For `ceph -s`, and `ceph progress`, which indent differently.
    pub fn text(&self, indent: usize) -> Option<String> {
        self.current.as_ref().map(|episode| episode.text(indent))
    }
    /// As part of the status.
    pub fn status_json(&self) -> Value {
        let event = self.current.iter().map(|episode| {
            let row =
                json!({ "message": episode.text(6), "progress": episode.done(), "add_to_ceph_s": true });
            (episode.id(), row)
        });
        Value::Object(event.collect())
    }
    pub fn json(&self) -> Value {
        let completed: Vec<Value> =
            self.completed.iter().map(|(episode, ended)| episode.json(Some(*ended))).collect();
        let events: Vec<Value> = self.current.iter().map(|episode| episode.json(None)).collect();
        json!({ "completed": completed, "events": events })
    }
}
