//! Metrics in Prometheus's text format: https://prometheus.io/docs/instrumenting/exposition_formats/.

use std::collections::BTreeMap;
use std::fmt::Write;

/// What a metric's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Ceph's type for metrics whose value is no measurement.
    Untyped,
}

impl MetricKind {
    fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Untyped => "untyped",
        }
    }
}

/// All metrics of a page. Samples of one metric stand together, whenever they were added.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    metrics: Vec<Metric>,
    by_name: BTreeMap<String, usize>,
}

#[derive(Clone, Debug)]
struct Metric {
    name: String,
    kind: MetricKind,
    help: String,
    /// Lines without the metric's name.
    samples: Vec<String>,
}

impl Exposition {
    /// Declares a metric, which may stay without samples. The first declaration counts.
    pub fn declare(&mut self, name: &str, kind: MetricKind, help: &str) {
        self.metric(name, kind, help);
    }

    /// Adds a sample to a metric, and declares it if it is new.
    pub fn add(&mut self, name: &str, kind: MetricKind, help: &str, labels: &[(&str, &str)], value: f64) {
        let mut line = String::new();
        for (at, (label, text)) in labels.iter().enumerate() {
            line.push_str(if at == 0 { "{" } else { "," });
            line.push_str(label);
            line.push_str("=\"");
            escape(text, true, &mut line);
            line.push('"');
        }
        if !labels.is_empty() {
            line.push('}');
        }
        line.push(' ');
        line.push_str(&number(value));
        self.metric(name, kind, help).samples.push(line);
    }

    fn metric(&mut self, name: &str, kind: MetricKind, help: &str) -> &mut Metric {
        let at = match self.by_name.get(name) {
            Some(at) => *at,
            None => {
                self.by_name.insert(name.to_string(), self.metrics.len());
                self.metrics.push(Metric {
                    name: name.to_string(),
                    kind,
                    help: help.to_string(),
                    samples: Vec::new(),
                });
                self.metrics.len() - 1
            }
        };
        &mut self.metrics[at]
    }

    /// The page.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for Metric { name, kind, help, samples } in &self.metrics {
            if !help.is_empty() {
                out.push_str("# HELP ");
                out.push_str(name);
                out.push(' ');
                escape(help, false, &mut out);
                out.push('\n');
            }
            writeln!(out, "# TYPE {name} {}", kind.name()).expect("memory takes every text");
            for sample in samples {
                out.push_str(name);
                out.push_str(sample);
                out.push('\n');
            }
        }
        out
    }
}

/// As Go reads floating-point numbers.
fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_string(),
        f64::INFINITY => "+Inf".to_string(),
        f64::NEG_INFINITY => "-Inf".to_string(),
        value => format!("{value:?}"),
    }
}

fn escape(text: &str, in_quotes: bool, out: &mut String) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if in_quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_stand_together_below_what_is_said_of_it() {
        let mut page = Exposition::default();
        page.add("a_total", MetricKind::Counter, "Events", &[], 3.0);
        page.declare("b", MetricKind::Untyped, "");
        page.add("c", MetricKind::Gauge, "Two\nlines", &[("x", "1"), ("y", "a\"b\\c\nd")], 0.25);
        page.add("a_total", MetricKind::Counter, "Events", &[("x", "")], f64::NAN);
        let expected = concat!(
            "# HELP a_total Events\n# TYPE a_total counter\na_total 3.0\na_total{x=\"\"} NaN\n",
            "# TYPE b untyped\n",
            "# HELP c Two\\nlines\n# TYPE c gauge\nc{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 0.25\n",
        );
        assert_eq!(page.to_text(), expected);
    }

    #[test]
    fn numbers_are_written_as_go_reads_them() {
        let all = [f64::INFINITY, f64::NEG_INFINITY, 0.0, 1e21, 123_456_789_012.0].map(number);
        assert_eq!(all, ["+Inf", "-Inf", "0.0", "1e21", "123456789012.0"]);
    }
}
