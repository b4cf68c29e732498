//! fio with one of Ceph's engines, and what it says.

use crate::cluster::{Cluster, run as output_of};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A job as fio saw it. Times are in milliseconds.
pub struct Said {
    pub ops: f64,
    /// Without the ramp.
    pub seconds: f64,
    pub ops_per_second: f64,
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
}

/// To be told what to do.
pub fn command(cluster: &Cluster, engine: &str, pool: &str, conf: &Path) -> Result<Command> {
    let mut fio = cluster.client("fio");
    // fio leaves files of its own where it runs.
    fio.env("CEPH_CONF", conf).current_dir(cluster.conf.parent().context("no folder")?);
    // The engine first: what only it knows comes behind it.
    fio.args(["--name=bench".into(), format!("--ioengine={engine}"), format!("--pool={pool}")]);
    fio.args(["--clientname=admin", "--output-format=json"]);
    Ok(fio)
}

pub fn run(command: &mut Command, is_write: bool) -> Result<Said> {
    parse(&output_of(command)?, is_write)
}

fn parse(said: &str, is_write: bool) -> Result<Said> {
    // What the engine's library has to say comes before.
    let json = said.find('{').map_or("", |at| &said[at..]);
    let all: Value = serde_json::from_str(json).with_context(|| format!("fio gave no JSON: {said}"))?;
    let done = &all["jobs"][0][if is_write { "write" } else { "read" }];
    let number = |value: &Value| value.as_f64().with_context(|| format!("fio left out a number: {done}"));
    let took = &done["clat_ns"];
    let percentile = |at: &str| number(&took["percentile"][at]).map(|ns| ns / 1e6);
    let ops = number(&done["total_ios"])?;
    ensure!(ops > 0.0, "fio did nothing: {said}");
    Ok(Said {
        ops,
        seconds: number(&done["runtime"])? / 1e3,
        ops_per_second: number(&done["iops"])?,
        mean: number(&took["mean"])? / 1e6,
        p50: percentile("50.000000")?,
        p99: percentile("99.000000")?,
        p999: percentile("99.900000")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fio_says_is_read_behind_what_its_library_says() {
        let said = r#"a warning
            {"jobs": [{"read": {"total_ios": 0}, "write": {"total_ios": 30, "runtime": 1500, "iops": 20.0,
            "clat_ns": {"mean": 2e6, "percentile": {"50.000000": 1000000, "99.000000": 3000000,
            "99.900000": 4000000}}}}]}"#;
        let done = parse(said, true).unwrap();
        assert_eq!((done.ops, done.seconds, done.ops_per_second), (30.0, 1.5, 20.0));
        assert_eq!((done.mean, done.p50, done.p99, done.p999), (2.0, 1.0, 3.0, 4.0));
        assert!(parse(said, false).is_err(), "it read nothing");
        assert!(parse("only a warning", true).is_err());
    }
}
