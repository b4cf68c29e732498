//! What operators say to the balancer.

use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::services::balancer::{self, score};
use crate::services::config::ConfigKey;
use nacre_base::{PoolId, errno};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub const COMMANDS: &[Row] = &[
    ("balancer status", "show whether the balancer is on, and its last step", status),
    ("balancer on", "turn the balancer on", |call| set(call, "active", Some("true".to_string()))),
    ("balancer off", "turn the balancer off", |call| set(call, "active", Some("false".to_string()))),
    ("balancer mode", "set the mode of the balancer: `upmap` or `none`", mode),
    ("balancer eval", "show the imbalance of the placement groups: 0 is even", eval),
    ("balancer ls", "list the plans of the balancer: always empty, plans are executed at once", no_plans),
    ("balancer pool ls", "list the pools that are balanced; an empty list stands for all", pool_ls),
    ("balancer pool add", "balance these pools", |call| change_pools(call, true)),
    ("balancer pool rm", "exclude pools from balancing", |call| change_pools(call, false)),
];

fn set(call: &mut Call<'_>, name: &str, value: Option<String>) -> Outcome {
    let name = format!("mgr/balancer/{name}");
    let key = ConfigKey { section: "mgr".to_string(), mask: String::new(), name };
    if call.state.config.options.get(&key) != value.as_ref() {
        call.pending.batch.config.push((key, value));
    }
    Answer::said("")
}

fn status(call: &mut Call<'_>) -> Outcome {
    let settings = balancer::settings(call.mon.options());
    let last = call.mon.services.balancer.last.as_ref();
    call.show_json(json!({
        "active": settings.active,
        "last_optimize_duration": "",
        "last_optimize_started": last.map(|(stamp, _)| stamp.to_string()).unwrap_or_default(),
        "mode": settings.mode,
        "optimize_result": last.map(|(_, text)| text.clone()).unwrap_or_default(),
        "plans": [],
    }))
}

fn mode(call: &mut Call<'_>) -> Outcome {
    match &*call.args.text("mode")? {
        "crush-compat" => Err(refuse(
            errno::EOPNOTSUPP,
            "not in Nacre: crush-compat; use `upmap`, which all clients since Luminous support",
        )),
        mode @ ("read" | "upmap-read") => {
            let text = format!(
                "not in Nacre: mode {mode}, as it needs pg-upmap-primary, which clients before Reef cannot read"
            );
            Err(refuse(errno::EOPNOTSUPP, text))
        }
        mode @ ("upmap" | "none") => set(call, "mode", Some(mode.to_string())),
        mode => Err(refuse(errno::EINVAL, format!("no such mode: {mode}; the modes are upmap and none"))),
    }
}

fn eval(call: &mut Call<'_>) -> Outcome {
    let pools = match call.args.text_opt("option") {
        None => balancer::settings(call.mon.options()).pools,
        Some(name) => {
            let pool = call.state.osdmap.map.pool_by_name(&name);
            let unknown = || {
                refuse(
                    errno::EINVAL,
                    format!("option \"{name}\" not a plan or a pool: there are no plans in Nacre"),
                )
            };
            BTreeSet::from([pool.ok_or_else(unknown)?])
        }
    };
    let score = score(&call.state.osdmap.map, &pools);
    let what = if pools.len() == 1 { "pool" } else { "cluster" };
    Answer::text(format!("current {what} score {score:.6} (lower is better)\n"))
}

fn no_plans(call: &mut Call<'_>) -> Outcome {
    call.show_json(json!([]))
}

fn pool_ls(call: &mut Call<'_>) -> Outcome {
    let pools = balancer::settings(call.mon.options()).pools;
    let names: Vec<Value> =
        pools.iter().filter_map(|id| call.state.osdmap.map.pool_name(*id)).map(Value::from).collect();
    call.show_json(names.into())
}

fn change_pools(call: &mut Call<'_>, add: bool) -> Outcome {
    let named: Result<BTreeSet<PoolId>, Refusal> = call
        .args
        .list("pools")
        .iter()
        .map(|name| {
            let pool = call.state.osdmap.map.pool_by_name(name);
            pool.ok_or_else(|| refuse(errno::ENOENT, format!("unrecognized pool '{name}'")))
        })
        .collect();
    let (named, mut pools) = (named?, balancer::settings(call.mon.options()).pools);
    if add {
        pools.extend(named);
    } else {
        pools.retain(|id| !named.contains(id));
    }
    let ids: Vec<String> = pools.iter().map(|id| id.0.to_string()).collect();
    set(call, "pool_ids", (!ids.is_empty()).then(|| ids.join(",")))
}
