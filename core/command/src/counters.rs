//! The commands that show a daemon's counters, which are the same for daemons of all kinds.

use crate::{Args, Refusal, refuse};
use nacre_base::errno::EINVAL;
use nacre_perf::Registry;
use serde_json::{Value, json};

const FILTER: &str = "name=logger,type=CephString,req=false name=counter,type=CephString,req=false";

/// Name, arguments in Ceph's notation, help.
pub const PERF_COMMANDS: &[(&str, &str, &str)] = &[
    ("perf dump", FILTER, "show counters"),
    ("perf histogram dump", FILTER, "show latency histograms"),
    ("perf histogram schema", "", "describe the histograms"),
    ("perf reset", "name=var,type=CephString", "reset counters: all, or one set by name"),
    ("perf schema", "", "describe the counters"),
];

/// The answer to one of `PERF_COMMANDS`; None for any other command.
pub fn perf(prefix: &str, args: Args<'_>, counters: &Registry) -> Option<Result<Value, Refusal>> {
    let (set, counter) = (args.str("logger"), args.str("counter"));
    Some(Ok(match prefix {
        "perf dump" | "perfcounters_dump" => counters.dump(set, counter),
        "perf schema" | "perfcounters_schema" => counters.schema(),
        "perf histogram dump" => counters.histograms(set, counter),
        "perf histogram schema" => counters.histogram_schema(),
        "perf reset" => match args.str("var") {
            "" => return Some(Err(refuse(EINVAL, "'perf reset' requires the name of a set, or 'all'"))),
            set if counters.reset(set) => json!({ "success": format!("perf reset {set}") }),
            set => json!({ "error": format!("Not find: {set}") }),
        },
        _ => return None,
    }))
}
