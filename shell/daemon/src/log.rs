//! Where log lines go. Each line has the name of its thread, which is the name of its daemon.

use anyhow::{Context, Result};
use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::prelude::*;

/// From the environment: `NACRE_LOG=debug` for more, `NACRE_LOG=warn` for less.
fn level() -> LevelFilter {
    std::env::var("NACRE_LOG").ok().and_then(|text| text.parse().ok()).unwrap_or(LevelFilter::INFO)
}

/// The HTTP library reports every refused request as an error.
fn is_ours(metadata: &tracing::Metadata<'_>) -> bool {
    !metadata.target().starts_with("s3s")
}

/// For a daemon in a process of its own. The parent process decides where stderr goes.
pub fn to_stderr() {
    let lines = layer()
        .with_target(false)
        .with_thread_names(true)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    let lines = lines.with_filter(filter_fn(is_ours)).with_filter(level());
    tracing_subscriber::registry().with(lines).init();
}

/// For daemons in the process of `nacre up`. Errors also go to the terminal.
pub fn to_file(path: &Path) -> Result<()> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let lines =
        layer().with_target(false).with_thread_names(true).with_ansi(false).with_writer(Mutex::new(file));
    let errors = layer().with_target(false).with_thread_names(true).without_time().with_writer(io::stderr);
    tracing_subscriber::registry()
        .with(lines.with_filter(level()))
        .with(errors.with_filter(LevelFilter::ERROR))
        .init();
    Ok(())
}
