//! What the disk under both clusters gives to a program that only makes long writes and reads: with three
//! copies of everything on one disk, clients cannot write faster than a third of that, nor recovery copy
//! faster than a program that does nothing else.

use crate::cluster::run;
use crate::report::median;
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
    fio(file, way, &["--bs=4m", &format!("--rw={way}")])
}

/// What the disk gives to a copy, as much read as written, in MiB per second of either.
pub struct Copies {
    pub plain: f64,
    /// Each 16 pieces are flushed: a copy that may still be lost is none.
    pub flushed: f64,
}

/// Pieces of 512 KiB, 16 under way. Medians of three in turn, since a disk differs from second to second.
pub fn copies(folder: &Path) -> Result<Copies> {
    let file = folder.join("streams");
    let copy = |flush: &[&str]| fio(&file, "write", &[&["--bs=512k", "--rw=rw"], flush].concat());
    let both = || Ok((copy(&[])?, copy(&["--fdatasync=16"])?));
    let measured =
        stream(&file, "write").and_then(|_| (0..3).map(|_| both()).collect::<Result<(Vec<_>, Vec<_>)>>());
    let _ = std::fs::remove_file(&file);
    let (plain, flushed) = measured?;
    Ok(Copies { plain: median(plain.into_iter()), flushed: median(flushed.into_iter()) })
}

/// Past the page cache. Gives what was done of one way.
fn fio(file: &Path, way: &str, how: &[&str]) -> Result<f64> {
    let mut fio = Command::new("fio");
    fio.args(["--name=streams", "--ioengine=libaio", "--direct=1", "--iodepth=16", "--output-format=json"]);
    fio.arg(format!("--filename={}", file.display())).arg(format!("--size={LEN}")).args(how);
    let said = run(&mut fio)?;
    let json = &said[said.find('{').context("fio gave no JSON")?..];
    let all: Value = serde_json::from_str(json)?;
    let bytes =
        all["jobs"][0][way]["bw_bytes"].as_f64().with_context(|| format!("fio left out a number: {all}"))?;
    Ok(bytes / f64::from(1 << 20))
}
