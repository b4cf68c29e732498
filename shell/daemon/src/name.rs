//! Names of daemons: `mon.a`, `osd.0`.

use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonName {
    Mon(String),
    Osd(u32),
}

impl DaemonName {
    pub fn mon(id: &str) -> Result<DaemonName> {
        // Part of a path.
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(!id.is_empty() && !id.starts_with('.') && id.chars().all(fine), "`{id}` is not a monitor id");
        Ok(DaemonName::Mon(id.to_string()))
    }
    pub fn osd(id: &str) -> Result<DaemonName> {
        Ok(DaemonName::Osd(id.parse().with_context(|| format!("`{id}` is not an OSD id"))?))
    }
    pub fn is_mon(&self) -> bool {
        matches!(self, DaemonName::Mon(_))
    }
}

impl fmt::Display for DaemonName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonName::Mon(id) => write!(f, "mon.{id}"),
            DaemonName::Osd(id) => write!(f, "osd.{id}"),
        }
    }
}

impl FromStr for DaemonName {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<DaemonName> {
        match text.split_once('.') {
            Some(("mon", id)) => DaemonName::mon(id),
            Some(("osd", id)) => DaemonName::osd(id),
            _ => bail!("a daemon's name is like `mon.a` or `osd.0`"),
        }
    }
}
