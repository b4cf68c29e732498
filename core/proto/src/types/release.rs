//! The cluster format: what daemons of different versions may say to each other and store.
//!
//! The monitors agree on one number for the cluster. A daemon says which formats it can use, and one that
//! cannot use the cluster's is refused. What is new in a format is not sent and not stored before
//! `nacre upgrade finish` has raised the number, so that daemons of two versions run side by side until then.
//! A new version adds one to `NEWEST`, and can use the format before it at least.

use nacre_wire::versioned_fields;
use std::fmt;

/// The formats, by what came with them.
pub mod cluster_format {
    /// What daemons use that do not know of formats.
    pub const FIRST: u32 = 1;
    /// OSDs report latencies (`DaemonMsg::Latencies`), and monitors keep records of past upgrades.
    pub const LATENCIES: u32 = 2;
    /// Monitors keep which OSDs are being removed (`ceph orch osd rm`).
    pub const OSD_REMOVALS: u32 = 2;
    /// OSDs hold shards of erasure-coded pools.
    pub const ERASURE_POOLS: u32 = 2;
    /// Monitors agree on file systems and their metadata servers.
    pub const FILE_SYSTEMS: u32 = 2;
    /// OSDs change parity by what changed in data (`Change::Xor`).
    pub const PARITY_DELTAS: u32 = 3;
    /// Shards that OSDs keep for undoing a write may lack what the write does not change.
    pub const PARTIAL_UNDO: u32 = 3;
    /// That of a new cluster.
    pub const NEWEST: u32 = PARITY_DELTAS;
}

/// One version can be upgraded to the next only if both can use the same format.
const _: () = assert!(Formats::ALL.min < Formats::ALL.max);

/// The formats that a daemon can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    /// The oldest.
    pub min: u32,
    /// The newest.
    pub max: u32,
}

impl Formats {
    /// Those of this version.
    pub const ALL: Formats = Formats { min: cluster_format::FIRST, max: cluster_format::NEWEST };

    /// Whether a daemon can be in a cluster of this format.
    pub fn contains(self, format: u32) -> bool {
        (self.min..=self.max).contains(&format)
    }

    /// As `Display` writes it, in daemons' metadata.
    pub fn parse(text: &str) -> Option<Formats> {
        let (min, max) = text.split_once('-')?;
        Some(Formats { min: min.parse().ok()?, max: max.parse().ok()? })
    }
}

/// A daemon that does not know of formats.
impl Default for Formats {
    fn default() -> Formats {
        Formats { min: cluster_format::FIRST, max: cluster_format::FIRST }
    }
}

impl fmt::Display for Formats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}

versioned_fields!(Formats, "formats", min, max);

/// What a daemon says of its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Nacre's version.
    pub version: String,
    /// The cluster formats that it can use.
    pub formats: Formats,
}

/// This program.
impl Default for Release {
    fn default() -> Release {
        Release { version: env!("CARGO_PKG_VERSION").to_string(), formats: Formats::ALL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_as_they_are_written() {
        assert_eq!(Formats::parse(&Formats::ALL.to_string()), Some(Formats::ALL));
        assert_eq!(Formats::parse("2"), None);
        assert!(Formats::default().contains(1) && !Formats::default().contains(2));
    }
}
