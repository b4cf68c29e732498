//! The table: medians of all rounds, and Nacre's ratio to the reference.

use crate::cluster::Cluster;
use crate::workload::{Measured, Workload};
use std::collections::BTreeMap;
use std::fmt::Write;

pub struct Table {
    clusters: Vec<&'static str>,
    runs: BTreeMap<(&'static str, &'static str), Vec<Measured>>,
}

/// Of at least one value.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

type Column = (&'static str, fn(&Measured) -> Option<f64>);

/// What each column shows: its head with the unit, and where it is in a measurement.
const COLUMNS: [Column; 5] = [
    ("ops/s", |m| Some(m.ops_per_second)),
    ("mean ms", |m| Some(m.latency)),
    ("p99 ms", |m| m.p99),
    ("CPU s/1000", |m| Some(m.cpu_per_1000)),
    ("MiB/OSD", |m| Some(m.resident)),
];

impl Table {
    pub fn new(clusters: impl Iterator<Item = &'static str>) -> Table {
        Table { clusters: clusters.collect(), runs: BTreeMap::new() }
    }

    pub fn add(&mut self, workload: &Workload, cluster: &Cluster, measured: Measured) {
        self.runs.entry((workload.name, cluster.name)).or_default().push(measured);
    }

    /// None if none of the runs has it.
    fn median(
        &self,
        workload: &'static str,
        cluster: &'static str,
        of: fn(&Measured) -> Option<f64>,
    ) -> Option<f64> {
        let values: Vec<f64> = self.runs[&(workload, cluster)].iter().filter_map(of).collect();
        (!values.is_empty()).then(|| median(values.into_iter()))
    }

    /// What each column of `text` shows.
    pub fn head() -> String {
        let mut out = format!("{:<34}{:<7}", "workload (medians)", "");
        for (head, _) in COLUMNS {
            let _ = write!(out, "{head:>12}");
        }
        out
    }

    /// A workload's lines.
    pub fn text(&self, workload: &'static str) -> String {
        let mut out = String::new();
        for (row, &cluster) in self.clusters.iter().enumerate() {
            let _ = write!(out, "{:<34}{cluster:<7}", if row == 0 { workload } else { "" });
            for (_, of) in COLUMNS {
                let digits = |value: f64| if value < 10.0 { 3 } else { 0 };
                let value = self.median(workload, cluster, of);
                let text = value.map_or("-".into(), |value| format!("{value:.*}", digits(value)));
                let _ = write!(out, "{text:>12}");
            }
            out.push('\n');
        }
        if let [reference, ours] = self.clusters[..] {
            let _ = write!(out, "{:<34}{:<7}", "", "ratio");
            for (_, of) in COLUMNS {
                let both = self.median(workload, ours, of).zip(self.median(workload, reference, of));
                let text = both.map_or("-".into(), |(ours, theirs)| format!("{:.2}x", ours / theirs));
                let _ = write!(out, "{text:>12}");
            }
            out.push('\n');
        }
        out
    }

    /// One object a line: workload, cluster and its medians.
    pub fn json(&self, workload: &'static str) -> String {
        let mut out = String::new();
        for &cluster in &self.clusters {
            let mut row = serde_json::json!({ "workload": workload, "cluster": cluster });
            for (head, of) in COLUMNS {
                row[head] = self.median(workload, cluster, of).into();
            }
            let _ = writeln!(out, "{row}");
        }
        out
    }
}
