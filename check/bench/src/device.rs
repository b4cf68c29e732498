//! What the disk under both clusters gives to who asks for nothing but long writes and reads: with three copies of
//! everything on one disk, clients cannot write faster than a third of that.

use crate::cluster::run;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A file of this many bytes is written and read, past the page cache.
const LEN: &str = "2g";

/// In MiB per second.
pub struct Streams {
    pub write: f64,
    pub read: f64,
}

/// Operations of 4 MiB, 16 under way.
pub fn streams(folder: &Path) -> Result<Streams> {
    let file = folder.join("streams");
    let measured =
        stream(&file, "write").and_then(|write| Ok(Streams { write, read: stream(&file, "read")? }));
    let _ = std::fs::remove_file(&file);
    measured
}

fn stream(file: &Path, way: &str) -> Result<f64> {
    let mut fio = Command::new("fio");
    fio.args([
        "--name=streams",
        "--ioengine=libaio",
        "--direct=1",
        "--bs=4m",
        "--iodepth=16",
        "--output-format=json",
    ]);
    fio.arg(format!("--filename={}", file.display())).arg(format!("--rw={way}")).arg(format!("--size={LEN}"));
    let said = run(&mut fio)?;
    let json = &said[said.find('{').context("fio gave no JSON")?..];
    let all: Value = serde_json::from_str(json)?;
    let bytes =
        all["jobs"][0][way]["bw_bytes"].as_f64().with_context(|| format!("fio left out a number: {all}"))?;
    Ok(bytes / f64::from(1 << 20))
}
