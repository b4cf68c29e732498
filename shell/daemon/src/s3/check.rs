//! `nacre s3 check`: what the data of gateways belongs to, and whether all of it is there.

use super::admin::{COMMAND, Cluster, audit_log};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use nacre_gateway::{Admin, AdminError};
use nacre_rados::{Config, RadosClient};
use serde_json::Value;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often a long check says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// How the result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// `nacre s3 check`
#[derive(Args)]
pub struct Check {
    #[command(flatten)]
    pub cluster: Cluster,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Remove data that nothing has, and that is older than any write can take.
    #[arg(long)]
    delete_orphans: bool,
}

impl Check {
    /// Checks a cluster. Fails if data of an object is missing.
    pub fn run(&self, config: Config) -> Result<()> {
        let said = Mutex::new(Instant::now());
        let progress = |line: String| {
            let mut said = said.lock().expect("no code panics with it");
            if said.elapsed() >= PROGRESS_EVERY {
                *said = Instant::now();
                eprintln!("{line}");
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let audit = self.cluster.audit_log.as_deref().map(audit_log).transpose()?;
        let found = runtime.block_on(async {
            let client = RadosClient::connect(config).await?;
            let found = Admin::new(&client).check(self.delete_orphans, &progress).await;
            if let Some(audit) = audit {
                let params = [("delete-orphans".to_owned(), self.delete_orphans.to_string())].into();
                audit.administered(
                    COMMAND,
                    "",
                    "Check",
                    &params,
                    found.as_ref().err().map(AdminError::noted),
                );
            }
            Ok::<_, anyhow::Error>(found?)
        })?;
        match self.format {
            Format::Json => println!("{}", serde_json::to_string_pretty(&found)?),
            Format::Table => print!("{}", table(&found)),
        }
        match found["missing"].as_array().map_or(0, Vec::len) {
            0 => Ok(()),
            count => bail!("{count} versions of objects lack data"),
        }
    }
}

/// A number of bytes for people.
fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", units[unit]) }
}

fn sum(value: &Value, name: &str) -> (u64, String) {
    let of = |field: &str| value[name][field].as_u64().unwrap_or_default();
    (of("count"), bytes(of("bytes")))
}

fn table(found: &Value) -> String {
    let titles = ["BUCKET", "VERSIONS", "IN INDEX", "IN DATA POOL", "UPLOADS", "GARBAGE"];
    let mut lines = vec![titles.map(str::to_owned)];
    let buckets = found["buckets"].as_array().map(Vec::as_slice).unwrap_or_default();
    for bucket in buckets.iter().chain(found.get("total")) {
        let of = |name: &str| sum(bucket, name).1;
        lines.push([
            bucket["bucket"].as_str().unwrap_or("total").to_owned(),
            sum(bucket, "versions").0.to_string(),
            of("in_index"),
            of("in_data_pool"),
            of("uploads"),
            of("garbage"),
        ]);
    }
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(widths.iter().copied()).enumerate();
        let cells = cells.map(|(at, (cell, width))| match at {
            0 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    for (name, label) in [("in_flight", "on its way or just written"), ("orphans", "orphans")] {
        let (count, size) = sum(found, name);
        text.push_str(&format!("{label}: {count} writes, {size}\n"));
    }
    for name in found["orphan_names"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        text.push_str(&format!("  {name}\n"));
    }
    let number = |name: &str| found[name].as_u64().unwrap_or_default();
    if number("deleted_orphans") > 0 {
        text.push_str(&format!("deleted orphans: {}\n", number("deleted_orphans")));
    }
    if number("foreign_objects") > 0 {
        text.push_str(&format!(
            "objects in the data pool that are not of gateways: {}\n",
            number("foreign_objects")
        ));
    }
    for lost in found["missing"].as_array().into_iter().flatten() {
        let of = |name: &str| lost[name].as_str().unwrap_or_default().to_owned();
        let (bucket, key, version) = (of("bucket"), of("key"), of("version"));
        text.push_str(&format!("MISSING DATA: {bucket}/{key} version {version}: {}\n", of("data")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn table_has_a_line_for_each_bucket_and_the_total() {
        let sums = |bytes: u64| json!({ "count": 1, "bytes": bytes });
        let bucket = |name: Value| {
            json!({ "bucket": name, "versions": sums(1), "in_index": sums(0), "in_data_pool": sums(1536),
                    "uploads": sums(0), "garbage": sums(1 << 30) })
        };
        let found = json!({
            "buckets": [bucket(json!("photos"))], "total": bucket(Value::Null), "in_flight": sums(0),
            "orphans": sums(7), "orphan_names": ["x"], "deleted_orphans": 0, "foreign_objects": 2,
            "missing": [{ "bucket": "b", "key": "k", "version": "null", "data": "d" }],
        });
        let text = table(&found);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "photos         1       0 B       1.5 KiB      0 B  1.0 GiB");
        assert!(lines[2].starts_with("total ") && lines[4] == "orphans: 1 writes, 7 B", "{text}");
        assert!(text.ends_with("MISSING DATA: b/k version null: d\n"), "{text}");
    }
}
