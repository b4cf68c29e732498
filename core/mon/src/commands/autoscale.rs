//! What operators ask and tell of numbers of placement groups that follow what pools hold.

use super::osdmap_dump::autoscale_name;
use super::{Answer, Call, Outcome, Row};
use crate::output::Align::{Left, Right};
use crate::output::{Table, float};
use crate::services::autoscale::{OFF, ON, advice};
use crate::services::config::ConfigKey;
use nacre_base::PoolId;
use serde_json::{Value, json};

pub const COMMANDS: &[Row] = &[
    (
        "osd pool autoscale-status",
        "show the current and recommended numbers of placement groups of pools",
        status,
    ),
    ("osd pool get noautoscale", "show whether autoscaling is disabled for all pools", get),
    ("osd pool set noautoscale", "disable autoscaling for all pools and new ones", |call| {
        set_all(call, true)
    }),
    ("osd pool unset noautoscale", "enable autoscaling for all pools and new ones", |call| {
        set_all(call, false)
    }),
];

const NOAUTOSCALE: &str = "mgr/pg_autoscaler/noautoscale";

fn status(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    let all = advice(&call.mon.context(call.now), &call.mon.services.pgs, map);
    let name = |id: PoolId| map.pool_name(id).unwrap_or_default().to_string();
    let mode = |id: PoolId| autoscale_name(map.pool(id).map_or(OFF, |pool| pool.autoscale_mode));
    let groups = |id: PoolId| map.pool(id).map_or(0, |pool| pool.pg_num_target);
    let adjusts = |id: PoolId, is_off: bool| is_off && mode(id) == "on";
    let rows: Vec<Value> = all
        .iter()
        .map(|a| {
            json!({
                "pool_id": a.pool.0,
                "pool_name": name(a.pool),
                "crush_root_id": a.root,
                "pg_autoscale_mode": mode(a.pool),
                "pg_num_target": groups(a.pool),
                "logical_used": a.stored,
                "target_bytes": a.target_bytes,
                "raw_used_rate": float(a.rate),
                "subtree_capacity": a.capacity,
                "actual_raw_used": float(a.raw_stored()),
                "raw_used": float(a.raw_wanted()),
                "actual_capacity_ratio": float(a.raw_stored() / a.capacity as f64),
                "capacity_ratio": float(a.ratio()),
                "target_ratio": float(a.target_ratio),
                "effective_target_ratio": float(a.effective_target_ratio),
                "pg_num_ideal": a.ideal,
                "pg_num_final": a.best,
                "would_adjust": adjusts(a.pool, a.is_off),
                "bias": float(a.bias),
                "bulk": a.bulk,
            })
        })
        .collect();
    call.show(rows.into(), || {
        let right = |heading| (heading, Right, Right);
        let mut table = Table::new(&[
            ("POOL", Left, Left),
            right("SIZE"),
            right("TARGET SIZE"),
            right("RATE"),
            right("RAW CAPACITY"),
            right("RATIO"),
            right("TARGET RATIO"),
            right("EFFECTIVE RATIO"),
            right("BIAS"),
            right("PG_NUM"),
            right("NEW PG_NUM"),
            ("AUTOSCALE", Left, Left),
            ("BULK", Left, Left),
        ]);
        for a in &all {
            let some = |there: bool, text: String| if there { text } else { String::new() };
            table.row([
                name(a.pool),
                six(a.stored),
                some(a.target_bytes > 0, six(a.target_bytes)),
                format!("{:.1}", a.rate),
                six(a.capacity),
                format!("{:.4}", a.ratio()),
                some(a.target_ratio > 0.0, format!("{:.4}", a.target_ratio)),
                some(a.effective_target_ratio > 0.0, format!("{:.4}", a.effective_target_ratio)),
                format!("{:.1}", a.bias),
                groups(a.pool).to_string(),
                some(a.is_off && mode(a.pool) != "off", a.best.to_string()),
                mode(a.pool).to_string(),
                if a.bulk { "True" } else { "False" }.to_string(),
            ]);
        }
        table.render()
    })
}

/// A number of bytes in six characters, as Ceph's manager has them: `  19 `, `29.99G`.
fn six(bytes: u64) -> String {
    const UNITS: [char; 7] = [' ', 'k', 'M', 'G', 'T', 'P', 'E'];
    let unit = (0..7).find(|unit| (bytes >> (10 * unit)).to_string().len() <= 5).unwrap_or(6);
    if unit == 0 {
        return format!("{bytes:>5}{}", UNITS[0]);
    }
    let text = format!("{:.6}", bytes as f64 / 2_f64.powi(10 * unit as i32));
    let cut = &text[..5];
    match cut.strip_suffix('.') {
        Some(whole) => format!(" {whole}{}", UNITS[unit]),
        None => format!("{cut}{}", UNITS[unit]),
    }
}

fn is_set(call: &Call<'_>) -> bool {
    call.option(NOAUTOSCALE).as_bool()
}

fn get(call: &mut Call<'_>) -> Outcome {
    Answer::said(format!("noautoscale is {}", if is_set(call) { "on" } else { "off" }))
}

fn set_all(call: &mut Call<'_>, off: bool) -> Outcome {
    if is_set(call) == off {
        return Answer::said(format!("noautoscale is already {}!", if off { "set" } else { "unset" }));
    }
    let mode = if off { "off" } else { "on" };
    let set = |section: &str, name: &str, value: &str| {
        let key = ConfigKey { section: section.into(), mask: String::new(), name: name.into() };
        (key, Some(value.to_string()))
    };
    call.pending.batch.config.push(set("mgr", NOAUTOSCALE, if off { "true" } else { "false" }));
    call.pending.batch.config.push(set("global", "osd_pool_default_pg_autoscale_mode", mode));
    let wanted = if off { OFF } else { ON };
    let pools = call.pending.map().pools.iter();
    let others: Vec<PoolId> =
        pools.filter(|(_, pool)| pool.autoscale_mode != wanted).map(|(id, _)| *id).collect();
    for id in others {
        call.pending.edit_pool(id, |pool| pool.autoscale_mode = wanted);
    }
    let what = if off { "set" } else { "unset" };
    Answer::said(format!("noautoscale is {what}, all pools now have autoscale {mode}"))
}

#[cfg(test)]
mod tests {
    use super::six;

    #[test]
    fn bytes_take_six_characters() {
        let of = [0, 19, 99_999, 1 << 20, 5_767_168, 32_212_254_720, 3 << 40];
        let texts = ["    0 ", "   19 ", "99999 ", " 1024k", " 5632k", "30720M", " 3072G"];
        assert_eq!(of.map(six), texts);
    }
}
