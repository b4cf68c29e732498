//! What daemons say when they are asked for their version.
//!
//! Programs that manage Ceph read a version, an id and a release from it, and take what they need for newer
//! features from the version. So each daemon says which version of Ceph it stands in for. Nacre's own version
//! comes last, and without a blank before its number: Proxmox takes the last number that follows one.

/// The release of Ceph that Nacre stands in for.
pub const CEPH_RELEASE: &str = "pacific";
/// Its version.
pub const CEPH_VERSION_SHORT: &str = "16.2.15";
/// Nacre's version.
pub const NACRE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// As `ceph version` shows it of this version of Nacre, for example `ceph version 16.2.15 (6e61...) pacific
/// (stable) nacre-0.1.0`.
pub fn ceph_version(version: &str) -> String {
    format!("ceph version {CEPH_VERSION_SHORT} ({}) {CEPH_RELEASE} (stable) nacre-{version}", build_id())
}

/// Forty hexadecimal digits, which in Ceph are those of a commit: they spell `nacre` and its version.
pub fn build_id() -> String {
    let digits: String = format!("nacre {NACRE_VERSION}").bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits:0<40.40}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How programs read it: by blanks (ceph_exporter, cephadm), by what precedes the version (Rook), by
    /// an id in parentheses right behind it (Proxmox, Ceph's dashboard), and by the last number after a
    /// blank (Proxmox).
    #[test]
    fn version_is_read_by_what_reads_cephs() {
        let said = ceph_version(NACRE_VERSION);
        let words: Vec<&str> = said.split(' ').collect();
        assert_eq!(words[..3], ["ceph", "version", "16.2.15"]);
        let id = words[3].strip_prefix('(').and_then(|id| id.strip_suffix(')')).unwrap();
        assert!(id.len() == 40 && id.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)), "{id}");
        assert_eq!(words[4..6], ["pacific", "(stable)"]);
        let numbers = words.iter().filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        assert_eq!(numbers.collect::<Vec<_>>(), [&"16.2.15"], "no other word may be taken for the version");
        assert!(said.ends_with(&format!(" nacre-{NACRE_VERSION}")));
    }
}
