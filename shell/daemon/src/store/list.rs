//! `nacre store stat` and `ls`.

use super::Where;
use crate::Format;
use anyhow::{Result, ensure};
use nacre_base::PoolId;
use nacre_machine::StoreView;
use nacre_proto::messages::PoolSpace;
use nacre_proto::transaction::StoredId;
use nacre_store::Store;
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};

#[derive(clap::Args)]
pub struct StatOptions {
    #[command(flatten)]
    store: Where,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    store: Where,
    /// Only objects of the pool with this id
    #[arg(long, value_name = "ID")]
    pool: Option<i64>,
    /// Include the daemon's own records: maps, records of placement groups
    #[arg(long)]
    all: bool,
    /// Output format; json prints one object per line
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub fn stat(options: &StatOptions) -> Result<()> {
    let (store, _, report) = options.store.open()?;
    let space = store.statfs();
    let readable = store.ids().filter_map(|id| id.inspect_err(|error| eprintln!("damaged: {error}")).ok());
    let ids: Vec<StoredId> = readable.collect();
    let count = |of: fn(&StoredId) -> bool| ids.iter().filter(|id| of(id)).count();
    let rows: Vec<(&str, Value)> = vec![
        ("uuid", json!(uuid::Uuid::from_bytes(store.uuid()).to_string())),
        ("device_bytes", json!(space.total)),
        ("available_bytes", json!(space.available)),
        ("allocated_bytes", json!(space.allocated)),
        ("stored_bytes", json!(space.stored)),
        ("omap_bytes", json!(space.omap)),
        ("internal_bytes", json!(space.internal)),
        ("objects", json!(count(|id| id.as_object().is_some()))),
        ("placement_groups", json!(count(|id| matches!(id, StoredId::Pg(_))))),
        ("others", json!(count(|id| matches!(id, StoredId::Meta(_))))),
        ("transactions", json!(report.last.0)),
        ("transactions_in_log", json!(report.last.0 - report.checkpoint.0)),
        ("checkpoints_written", json!(store.checkpoints_written())),
        ("times_lost_transactions", json!(report.losses)),
    ];
    let pools = store.pools();
    match options.format {
        Format::Json => {
            let mut rows: serde_json::Map<String, Value> =
                rows.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
            let pool = |(id, space): &(PoolId, PoolSpace)| {
                let PoolSpace { allocated, stored, omap } = *space;
                json!({ "id": id.0, "allocated_bytes": allocated, "stored_bytes": stored, "omap_bytes": omap })
            };
            rows.insert("pools".to_string(), pools.iter().map(pool).collect());
            println!("{}", serde_json::to_string_pretty(&rows)?);
        }
        Format::Table => {
            for (name, value) in rows {
                println!("{name:<24}{}", value.as_str().map_or_else(|| value.to_string(), str::to_string));
            }
            for (id, PoolSpace { allocated, stored, omap }) in pools {
                let pool = format!("pool {id}");
                println!("{pool:<24}{allocated} allocated, {stored} stored, {omap} in omaps");
            }
        }
    }
    Ok(())
}

pub fn list(options: &Options) -> Result<()> {
    let (store, ..) = options.store.open()?;
    let mut out = BufWriter::new(io::stdout().lock());
    let wanted = |id: &StoredId| match id.as_object() {
        Some((_, object)) => options.pool.is_none_or(|pool| object.pool.0 == pool),
        _ => options.all && options.pool.is_none(),
    };
    if options.format == Format::Table {
        writeln!(out, "{:>12} {:>12} {:>6} {:>8}  NAME", "SIZE", "ALLOCATED", "ATTRS", "KEYS")?;
    }
    let mut damaged = 0;
    for id in store.ids() {
        let line = match id {
            Ok(id) if !wanted(&id) => continue,
            Ok(id) => line(&store, &id).map(|line| (id, line)),
            Err(error) => Err(error.into()),
        };
        let (id, line) = match line {
            Ok(line) => line,
            // Others follow.
            Err(error) => {
                damaged += 1;
                eprintln!("damaged: {error:#}");
                continue;
            }
        };
        match options.format {
            Format::Json => writeln!(out, "{line}")?,
            Format::Table => writeln!(
                out,
                "{:>12} {:>12} {:>6} {:>8}  {id}",
                line["size"].to_string(),
                line["data_bytes"].to_string(),
                line["attrs"].to_string(),
                line["omap_keys"].to_string()
            )?,
        }
    }
    out.flush()?;
    ensure!(damaged == 0, "{damaged} records are damaged");
    Ok(())
}

fn line(store: &Store, id: &StoredId) -> Result<Value> {
    let mut keys = 0_u64;
    store.omap_walk(id, b"", &mut |_, _| {
        keys += 1;
        true
    })?;
    let data: u64 = store.extents(id, 0, u64::MAX)?.iter().map(|(_, len)| len).sum();
    let mut line = json!({
        "id": id.to_string(),
        "size": store.stat(id)?.unwrap_or_default().size,
        "data_bytes": data,
        "attrs": store.attrs(id)?.len(),
        "omap_keys": keys,
    });
    if let Some((_, object)) = id.as_object() {
        line["pool"] = json!(object.pool.0);
        line["namespace"] = json!(object.namespace.to_text());
        line["name"] = json!(object.name.to_text());
    }
    Ok(line)
}
