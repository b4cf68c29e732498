//! What Ceph's manager does in modules and Nacre does not, or need not: it says so.

use super::{Answer, Call, Outcome, Row};
use serde_json::json;

pub const COMMANDS: &[Row] = &[
    ("telemetry status", "show the telemetry settings: telemetry is never sent", telemetry_status),
    ("telemetry off", "turn telemetry off, which is always so", nothing),
    ("telemetry show", "show the telemetry report: always empty", telemetry_show),
    ("telemetry show-all", "show the telemetry report: always empty", telemetry_show),
];

fn nothing(_: &mut Call<'_>) -> Outcome {
    Answer::said("")
}

fn telemetry_status(call: &mut Call<'_>) -> Outcome {
    call.show_json(json!({
        "url": null,
        "enabled": false,
        "last_opt_revision": 1,
        "leaderboard": false,
        "interval": 24,
        "device_url": null,
        "contact": null,
        "organization": null,
        "description": null,
        "proxy": null,
        "channel_basic": false,
        "channel_ident": false,
        "channel_crash": false,
        "channel_device": false,
        "last_upload": null,
    }))
}

fn telemetry_show(call: &mut Call<'_>) -> Outcome {
    call.show_json(json!({}))
}
