//! What Ceph's manager does in modules and Nacre does not, or need not: it says so.

use super::{Answer, Call, Outcome, Row};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::SocketAddr;

pub const COMMANDS: &[Row] = &[
    ("telemetry status", "show the telemetry settings: telemetry is never sent", telemetry_status),
    ("telemetry off", "turn telemetry off, which is always so", nothing),
    ("telemetry show", "show the telemetry report: always empty", telemetry_show),
    ("prometheus file_sd_config", "show where the monitors serve metrics, for Prometheus", file_sd_config),
    ("telemetry show-all", "show the telemetry report: always empty", telemetry_show),
];

fn nothing(_: &mut Call<'_>) -> Outcome {
    Answer::said("")
}

/// All monitors: whichever leads has the metrics.
fn file_sd_config(call: &mut Call<'_>) -> Outcome {
    let Some(own) = call.mon.metrics_addrs() else { return Answer::text("[]") };
    let sockets = call.state.monmap.map.by_rank().filter_map(|mon| mon.public_addrs.msgr2()?.sock);
    let targets: BTreeSet<String> =
        sockets.map(|sock| SocketAddr::new(sock.ip(), own.public.port()).to_string()).collect();
    Answer::text(json!([{ "targets": targets, "labels": {} }]).to_string())
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
