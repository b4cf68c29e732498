//! The failure domain of the default CRUSH rule. Ceph has no such commands: there, a pool gets another rule.

use super::{Answer, Call, Outcome, Row, refuse};
use crate::output;
use crate::services::placement::{Change, DEFAULT_RULE, domain, domains, pools, proposal};
use nacre_base::errno;
use serde_json::{Map, Value, json};

/// Their words, what they do, and the code.
pub const COMMANDS: &[Row] = &[
    ("placement show", "show the failure domain of the default rule", show),
    ("placement failure-domain", "have each copy on another host, rack or OSD", failure_domain),
];

/// As in `hosts`.
pub(super) const SIGNATURES: &[(&str, &str, &str)] = &[
    ("placement show", "", "r"),
    (
        "placement failure-domain",
        "name=type,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "rw",
    ),
];

/// Ceph's name of a kind of bucket.
fn kind_name(call: &Call<'_>, kind: i32) -> String {
    call.pending.map().crush.types.get(&kind).cloned().unwrap_or_default()
}

fn show(call: &mut Call<'_>) -> Outcome {
    let map = call.state.osdmap.map.clone();
    let names: Vec<String> =
        pools(&map).iter().filter_map(|id| map.pool_name(*id).map(String::from)).collect();
    let rule = map.crush.rule_names.get(&(DEFAULT_RULE as i32)).cloned().unwrap_or_default();
    let domain = domain(&map.crush).map(|kind| kind_name(call, kind));
    let of_kind = |name: &str| map.crush.type_by_name(name).map_or(0, |kind| domains(&map, kind));
    let kinds = ["osd", "host", "rack"];
    let have: Map<String, Value> =
        kinds.iter().map(|name| ((*name).to_string(), json!(of_kind(name)))).collect();
    let proposed = proposal(&map).map(|(name, _)| name);
    let value = json!({
        "rule": rule, "failure_domain": domain, "pools": names, "available": have, "proposed": proposed,
    });
    call.show(value, || {
        let counts: Vec<String> = kinds.iter().map(|name| format!("{} {name}s", of_kind(name))).collect();
        let mut text = format!(
            "rule '{rule}': each copy on another {}\npools: {}\nwith OSDs that are in: {}\n",
            domain.as_deref().unwrap_or("bucket, by several steps"),
            if names.is_empty() { "none".to_string() } else { names.join(", ") },
            counts.join(", ")
        );
        if let Some(name) = proposed {
            text += &format!("proposed: `nacre placement failure-domain {name}`\n");
        }
        text
    })
}

fn failure_domain(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("type")?;
    let map = call.pending.map().clone();
    let kind = map.crush.type_by_name(&name);
    let Some(kind) = kind else {
        let known: Vec<&str> = map.crush.types.values().map(String::as_str).collect();
        let text = format!("`{name}` is no kind of bucket: there are {}", known.join(", "));
        return Err(refuse(errno::EINVAL, text));
    };
    if domain(&map.crush) == Some(kind) {
        return Answer::text(format!("Each copy is on another {name} already.\n"));
    }
    let have = domains(&map, kind);
    let copies = usize::try_from(call.option_u64("osd_pool_default_size")).unwrap_or(usize::MAX);
    if have < copies {
        let text = format!(
            "new pools have {copies} copies (osd_pool_default_size), and {have} {name}s have OSDs that are in: there \
             would be no place for all copies. `nacre host set-location HOST {name}=NAME` moves a host"
        );
        return Err(refuse(errno::EBUSY, text));
    }
    let change = Change::of(&map, &call.mon.services.pgs, kind);
    let change =
        change.map_err(|why| refuse(errno::EBUSY, format!("there is no place for all copies: {why}")))?;
    let moves = moves(&change);
    let is_free = change.moved_bytes == 0 && change.unknown == 0;
    if !is_free && !call.args.flag("yes_i_really_mean_it") {
        let text = format!("{moves} Nothing was changed. Confirm with --yes");
        return Err(refuse(errno::EPERM, text));
    }
    change.apply(call.pending);
    Answer::text(format!("Each copy is to be on another {name}. {moves}\n"))
}

/// How much data a change moves, in sentences.
fn moves(change: &Change) -> String {
    let Change { pgs, moved_pgs, bytes, moved_bytes, unknown, .. } = change;
    let mut text = match (*pgs, *moved_bytes) {
        (0, _) => "No pool uses the rule.".to_string(),
        (_, 0) if *unknown == 0 => "No data moves.".to_string(),
        _ => {
            let percent = if *bytes == 0 { 0 } else { moved_bytes.saturating_mul(100).div_ceil(*bytes) };
            let [moved, all] = [*moved_bytes, *bytes].map(output::bytes);
            format!(
                "{moved} of {all} ({percent}%) move to other OSDs, in {moved_pgs} of {pgs} placement groups."
            )
        }
    };
    if *unknown > 0 {
        text += &format!(" {unknown} placement groups have not reported how much data they have.");
    }
    text
}
