//! What Ceph's manager does in modules and Nacre does not, or need not: it says so.

use super::{Answer, Call, Outcome, Row, refuse};
use nacre_base::errno;
use serde_json::json;

pub const COMMANDS: &[Row] = &[
    ("telemetry status", "show what is sent to whom: nothing, to nobody", telemetry_status),
    ("telemetry off", "send nothing to anybody, as always", nothing),
    ("telemetry show", "show what would be sent: nothing", telemetry_show),
    ("telemetry show-all", "show what would be sent: nothing", telemetry_show),
    ("balancer status", "show whether groups are moved for balance: they are not", balancer_status),
    ("balancer off", "do not move groups for balance, as now", nothing),
    ("balancer mode", "choose how groups are moved for balance: `none`", balancer_mode),
    ("balancer ls", "list the plans for balance: there are none", no_plans),
    ("balancer pool ls", "list the pools that are balanced: there are none", no_plans),
];

const NO_BALANCER: &str = "not built yet in Nacre: a balancer (`ceph osd reweight-by-utilization` and \
                           `ceph osd pg-upmap-items` are there)";

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

fn balancer_status(call: &mut Call<'_>) -> Outcome {
    call.show_json(json!({
        "active": false,
        "last_optimize_duration": "",
        "last_optimize_started": "",
        "mode": "none",
        "optimize_result": NO_BALANCER,
        "plans": [],
    }))
}

fn balancer_mode(call: &mut Call<'_>) -> Outcome {
    match &*call.args.text("mode")? {
        "none" => Answer::said(""),
        _ => Err(refuse(errno::EOPNOTSUPP, NO_BALANCER)),
    }
}

fn no_plans(call: &mut Call<'_>) -> Outcome {
    call.show_json(json!([]))
}
