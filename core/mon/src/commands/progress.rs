//! Progress of recovery: `ceph progress`, and whether it is shown at all.

use super::{Answer, Call, Outcome, Row};
use crate::services::config::ConfigKey;

pub const COMMANDS: &[Row] = &[
    ("progress", "show the progress of recovery", show),
    ("progress json", "show the progress of recovery as JSON", show_json),
    ("progress clear", "reset progress tracking", clear),
    ("progress on", "turn progress tracking on", |call| switch(call, true)),
    ("progress off", "turn progress tracking off", |call| switch(call, false)),
];

/// Ceph's option of the manager's module.
pub(crate) const SHOWS_PROGRESS: &str = "mgr/progress/enabled";

fn show(call: &mut Call<'_>) -> Outcome {
    match call.mon.services.pgs.progress.text(4) {
        Some(text) => Answer::text(text + "\n"),
        None => Answer::said("Nothing in progress"),
    }
}

fn show_json(call: &mut Call<'_>) -> Outcome {
    call.show_json(call.mon.services.pgs.progress.json())
}

fn clear(call: &mut Call<'_>) -> Outcome {
    call.pending.clear_progress = true;
    Answer::said("")
}

fn switch(call: &mut Call<'_>, on: bool) -> Outcome {
    let word = if on { "enabled" } else { "disabled" };
    if call.option(SHOWS_PROGRESS).as_bool() == on {
        return Answer::said(format!("progress already {word}!"));
    }
    let key = ConfigKey { section: "mgr".into(), mask: String::new(), name: SHOWS_PROGRESS.into() };
    call.pending.batch.config.push((key, Some(on.to_string())));
    call.pending.clear_progress = true;
    Answer::said(format!("progress {word}"))
}
