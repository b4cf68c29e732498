//! The table: medians of all rounds, and Nacre's ratio to the reference.

use crate::cluster::Cluster;
use crate::workload::{Measured, Workload};
use std::collections::BTreeMap;
use std::fmt::Write;

pub struct Table {
    clusters: Vec<&'static str>,
    workloads: Vec<&'static str>,
    runs: BTreeMap<(&'static str, &'static str), Vec<Measured>>,
}

/// Of at least one value.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

type Column = (&'static str, fn(&Measured) -> f64);

/// What each column shows: its head with the unit, and where it is in a measurement.
const COLUMNS: [Column; 4] = [
    ("ops/s", |m| m.ops_per_second),
    ("mean ms", |m| m.latency),
    ("CPU s/1000", |m| m.cpu_per_1000),
    ("MiB/OSD", |m| m.resident),
];

impl Table {
    pub fn new(clusters: impl Iterator<Item = &'static str>) -> Table {
        Table { clusters: clusters.collect(), workloads: Vec::new(), runs: BTreeMap::new() }
    }

    pub fn add(&mut self, workload: &Workload, cluster: &Cluster, measured: Measured) {
        if !self.workloads.contains(&workload.name) {
            self.workloads.push(workload.name);
        }
        self.runs.entry((workload.name, cluster.name)).or_default().push(measured);
    }

    fn median(&self, workload: &'static str, cluster: &'static str, of: fn(&Measured) -> f64) -> f64 {
        median(self.runs[&(workload, cluster)].iter().map(of))
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = write!(out, "{:<34}{:<7}", "workload (medians)", "");
        for (head, _) in COLUMNS {
            let _ = write!(out, "{head:>12}");
        }
        out.push('\n');
        for &workload in &self.workloads {
            for (row, &cluster) in self.clusters.iter().enumerate() {
                let _ = write!(out, "{:<34}{cluster:<7}", if row == 0 { workload } else { "" });
                for (_, of) in COLUMNS {
                    let value = self.median(workload, cluster, of);
                    let digits = if value < 10.0 { 3 } else { 0 };
                    let _ = write!(out, "{value:>12.digits$}");
                }
                out.push('\n');
            }
            if let [reference, ours] = self.clusters[..] {
                let _ = write!(out, "{:<34}{:<7}", "", "ratio");
                for (_, of) in COLUMNS {
                    let ratio = self.median(workload, ours, of) / self.median(workload, reference, of);
                    let _ = write!(out, "{:>12}", format!("{ratio:.2}x"));
                }
                out.push('\n');
            }
        }
        out
    }

    /// One object a line: workload, cluster and its medians.
    pub fn json(&self) -> String {
        let mut out = String::new();
        for &workload in &self.workloads {
            for &cluster in &self.clusters {
                let mut row = serde_json::json!({ "workload": workload, "cluster": cluster });
                for (head, of) in COLUMNS {
                    row[head] = self.median(workload, cluster, of).into();
                }
                let _ = writeln!(out, "{row}");
            }
        }
        out
    }
}
