//! Weights that CRUSH uses for one pool, or for all that have none of their own (`compat`), beside the
//! buckets'.

use super::crush::edit_error;
use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::output::float;
use nacre_base::{PoolId, errno};
use nacre_crush::CrushMap;
use nacre_proto::maps::OsdMap;
use serde_json::{Map, Value, json};

pub const COMMANDS: &[Row] = &[
    ("osd crush weight-set ls", "list the weight sets", ls),
    ("osd crush weight-set dump", "show the weight sets", dump),
    ("osd crush weight-set create-compat", "create a weight set for all pools without their own", |call| {
        create(call, COMPAT, 1)
    }),
    ("osd crush weight-set create", "create a weight set for a pool", create_for_pool),
    ("osd crush weight-set rm-compat", "remove the weight set of all pools", |call| rm(call, COMPAT)),
    ("osd crush weight-set rm", "remove the weight set of a pool", |call| {
        let set = pool_set(call)?;
        rm(call, set)
    }),
    ("osd crush weight-set reweight-compat", "set an item's weight in the weight set of all pools", |call| {
        reweight(call, COMPAT)
    }),
    ("osd crush weight-set reweight", "set an item's weight in the weight set of a pool", |call| {
        let set = pool_set(call)?;
        reweight(call, set)
    }),
];

/// The set of all pools that have none of their own.
const COMPAT: i64 = -1;

/// What sets are called, with their numbers.
pub(super) fn names(map: &OsdMap) -> Vec<(i64, String)> {
    let name = |set: &i64| match *set {
        COMPAT => Some("(compat)".to_string()),
        pool => map.pool_name(PoolId(pool)).map(str::to_string),
    };
    map.crush.choose_args.keys().filter_map(|set| Some((*set, name(set)?))).collect()
}

pub(super) fn real(weight: u32) -> Value {
    float(f64::from(weight) / 65_536.0)
}

/// What an item weighs in each set.
pub(super) fn weights_of(map: &OsdMap, item: i32) -> Value {
    let row = |(set, name): (i64, String)| {
        let weights: Vec<Value> = map.crush.weights_in_set(set, item).into_iter().map(real).collect();
        (!weights.is_empty()).then(|| (name, Value::from(weights)))
    };
    names(map).into_iter().filter_map(row).collect::<Map<String, Value>>().into()
}

pub(super) fn all_json(crush: &CrushMap) -> Value {
    let sets = crush.choose_args.iter().map(|(set, args)| {
        let buckets = args.iter().map(|(at, arg)| {
            let reals = |weights: &Vec<u32>| weights.iter().copied().map(real).collect::<Vec<_>>();
            let mut row = json!({ "bucket_id": -1 - i64::from(*at) });
            if !arg.weight_sets.is_empty() {
                row["weight_set"] = arg.weight_sets.iter().map(reals).collect();
            }
            if !arg.ids.is_empty() {
                row["ids"] = json!(arg.ids);
            }
            row
        });
        (set.to_string(), buckets.collect::<Vec<_>>().into())
    });
    sets.collect::<Map<String, Value>>().into()
}

fn ls(call: &mut Call<'_>) -> Outcome {
    let names: Vec<String> = names(&call.state.osdmap.map).into_iter().map(|(_, name)| name).collect();
    call.show(json!(names), || names.iter().map(|name| format!("{name}\n")).collect())
}

fn dump(call: &mut Call<'_>) -> Outcome {
    call.show_json(all_json(&call.state.osdmap.map.crush))
}

fn pool_set(call: &Call<'_>) -> Result<i64, Refusal> {
    let name = call.args.text("pool")?;
    let pool = call.pending.map().pool_by_name(&name);
    Ok(pool.ok_or_else(|| refuse(errno::ENOENT, format!("pool '{name}' not found")))?.0)
}

fn create_for_pool(call: &mut Call<'_>) -> Outcome {
    let set = pool_set(call)?;
    let positional = call.args.text("mode")? == "positional";
    let size = call.pending.map().pool(PoolId(set)).map_or(1, |pool| pool.size.into());
    create(call, set, if positional { size } else { 1 })
}

fn create(call: &mut Call<'_>, set: i64, positions: usize) -> Outcome {
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.choose_args.contains_key(&set) {
        return Answer::said(match set {
            COMPAT => "compat weight-set already created".to_string(),
            _ => format!("weight-set for pool '{}' already created", call.args.text("pool")?),
        });
    }
    crush.create_weight_set(set, positions).map_err(edit_error)?;
    call.pending.edit_crush(crush);
    Answer::said("")
}

fn rm(call: &mut Call<'_>, set: i64) -> Outcome {
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.choose_args.remove(&set).is_some() {
        call.pending.edit_crush(crush);
    }
    Answer::said("")
}

fn reweight(call: &mut Call<'_>, set: i64) -> Outcome {
    let item = call.args.text("item")?;
    let mut crush = call.pending.map().crush.as_ref().clone();
    let Some(positions) = crush.weight_set_positions(set) else {
        let text = match set {
            COMPAT => "no backward-compatible weight-set".to_string(),
            _ => format!("no weight-set for pool '{}'", call.args.text("pool")?),
        };
        return Err(refuse(errno::ENOENT, text));
    };
    if crush.item_by_name(&item).is_none() {
        return Err(refuse(errno::ENOENT, format!("item '{item}' does not exist")));
    }
    let mut weights = Vec::new();
    for text in call.args.list("weight") {
        let x: Option<f64> = text.parse().ok().filter(|x| (0.0..=65_535.0).contains(x));
        let x = x.ok_or_else(|| refuse(errno::EINVAL, "weight must be >= 0 and at most 65535"))?;
        weights.push((x * 65_536.0) as u32);
    }
    if weights.len() != positions {
        return Err(refuse(errno::EINVAL, format!("must specify exact {positions} weight values")));
    }
    crush.reweight_in_set(set, &item, &weights).map_err(edit_error)?;
    if crush != *call.pending.map().crush {
        call.pending.edit_crush(crush);
    }
    Answer::said("")
}
