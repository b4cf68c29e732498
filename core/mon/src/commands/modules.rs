//! What Ceph's manager does in modules and Nacre does not, or need not: it says so.

use super::{Answer, Call, Outcome, Row};
use serde_json::json;

pub const COMMANDS: &[Row] = &[
    ("telemetry status", "show what is sent to whom: nothing, to nobody", telemetry_status),
    ("telemetry off", "send nothing to anybody, as always", nothing),
    ("telemetry show", "show what would be sent: nothing", telemetry_show),
    ("telemetry show-all", "show what would be sent: nothing", telemetry_show),
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
