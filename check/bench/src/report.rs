//! The table: medians of all rounds, and Nacre's ratios to the reference and to the probe.

use crate::probe::PROBE;
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
const COLUMNS: [Column; 6] = [
    ("ops/s", |m| Some(m.ops_per_second)),
    ("mean ms", |m| Some(m.latency)),
    ("p99 ms", |m| m.p99),
    ("CPU s/1000", |m| Some(m.cpu_per_1000)),
    ("client CPUs", |m| Some(m.client)),
    ("MiB/OSD", |m| m.resident),
];

impl Table {
    pub fn new(clusters: impl Iterator<Item = &'static str>) -> Table {
        Table { clusters: clusters.collect(), runs: BTreeMap::new() }
    }

    /// Of a cluster, or of the probe.
    pub fn add(&mut self, workload: &Workload, name: &'static str, measured: Measured) {
        self.runs.entry((workload.name, name)).or_default().push(measured);
    }
    /// Whose lines a workload has.
    fn rows(&self, workload: &'static str) -> Vec<&'static str> {
        let probe = self.runs.contains_key(&(workload, PROBE)).then_some(PROBE);
        self.clusters.iter().copied().chain(probe).collect()
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
        let rows = self.rows(workload);
        for (row, &name) in rows.iter().enumerate() {
            let _ = write!(out, "{:<34}{name:<7}", if row == 0 { workload } else { "" });
            for (_, of) in COLUMNS {
                let digits = |value: f64| if value < 10.0 { 3 } else { 0 };
                let value = self.median(workload, name, of);
                let text = value.map_or("-".into(), |value| format!("{value:.*}", digits(value)));
                let _ = write!(out, "{text:>12}");
            }
            out.push('\n');
        }
        let Some(&ours) = self.clusters.last() else { return out };
        for &to in rows.iter().filter(|name| **name != ours) {
            let _ = write!(out, "{:<34}{:<7}", "", format!("/{to}"));
            for (_, of) in COLUMNS {
                let both = self.median(workload, ours, of).zip(self.median(workload, to, of));
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
        for name in self.rows(workload) {
            let mut row = serde_json::json!({ "workload": workload, "cluster": name });
            for (head, of) in COLUMNS {
                row[head] = self.median(workload, name, of).into();
            }
            let _ = writeln!(out, "{row}");
        }
        out
    }
}
