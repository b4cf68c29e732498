//! Capabilities: what an entity may do, as Ceph's administrators write it: `allow rw pool=data`, `profile
//! rbd`.
//!
//! Capabilities are one text per kind of daemon, kept with the entity's key and read by the daemon that gets
//! a request: `MonCaps`, `OsdCaps`, `MgrCaps`; `mds` has none, as Nacre has no metadata server. Each is a
//! list of grants. Reading accepts what Ceph 16 accepts and gives it the same meaning; the one addition is
//! that a blank text grants nothing (Ceph's manual says so, Ceph's monitor refuses it).
//!
//! Start with `osd.rs`. The monitor's and the manager's have the same form, a question about services
//! and commands, and share `cursor.rs` (reading) and `constraint.rs` (what a command's arguments must
//! be). What profiles stand for is in `mon/profiles.rs`, and beside the other two's types.
//!
//! Texts come from the network: their length is bounded, each grant is read once from left to right
//! without recursion, and a text takes memory in proportion to its length. Profiles therefore are
//! tables in the program, and patterns are compiled when they are asked about.

mod constraint;
mod cursor;
pub mod mds;
mod mgr;
mod mon;
mod network;
mod osd;
mod pattern;
#[cfg(test)]
mod tests;

pub use mgr::MgrCaps;
pub use mon::MonCaps;
pub use osd::{ClassCall, OsdAccess, OsdCaps};

use std::fmt;

/// The longest text that is read.
pub const CAPS_LEN_MAX: usize = 64 << 10;

/// Why a text is no capability. What is shown is Ceph's sentence, which `ceph auth add` passes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapsError {
    #[error("{daemon} capability parse failed, it is {len} bytes long, limit {CAPS_LEN_MAX}")]
    TooLong { daemon: &'static str, len: usize },
    /// All before byte `at` of `text` was understood.
    #[error("{}", Stopped { daemon, text, at: *at })]
    Stopped { daemon: &'static str, text: String, at: usize },
    /// Only the manager is particular about profiles; Ceph writes their errors one after the other.
    #[error("mgr capability parse failed during profile evaluation: {0}")]
    Profile(String),
}

struct Stopped<'a> {
    daemon: &'a str,
    text: &'a str,
    at: usize,
}

impl fmt::Display for Stopped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stopped { daemon, text, at } = *self;
        write!(f, "{daemon} capability parse failed, stopped at ")?;
        match &text[at..] {
            // The parsers of OSDs and metadata servers have no words for the end.
            "" if !matches!(daemon, "osd" | "mds") => write!(f, "end of '{text}'"),
            rest => write!(f, "'{rest}' of '{text}'"),
        }
    }
}

/// What is wanted of a monitor or a manager, or what a grant gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permission {
    pub read: bool,
    pub write: bool,
    pub exec: bool,
}

impl Permission {
    const NONE: Permission = Permission { read: false, write: false, exec: false };
    pub const R: Permission = Permission { read: true, ..Permission::NONE };
    pub const W: Permission = Permission { write: true, ..Permission::NONE };
    const RW: Permission = Permission { read: true, write: true, exec: false };
    const RWX: Permission = Permission { read: true, write: true, exec: true };

    /// Whether these suffice for `want`.
    fn covers(self, want: Permission) -> bool {
        self.read >= want.read && self.write >= want.write && self.exec >= want.exec
    }
    fn and(self, other: Permission) -> Permission {
        Permission {
            read: self.read | other.read,
            write: self.write | other.write,
            exec: self.exec | other.exec,
        }
    }
}

/// What a monitor's or a manager's grant gives: letters, or `*`, which is more than all letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allow {
    Everything,
    Only(Permission),
}

impl Allow {
    fn permission(self) -> Permission {
        match self {
            Allow::Everything => Permission::RWX,
            Allow::Only(permission) => permission,
        }
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Allow::Only(permission) = self else {
            return f.write_str("*");
        };
        for (given, letter) in [(permission.read, "r"), (permission.write, "w"), (permission.exec, "x")] {
            if given {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

/// A text value, in quotes where Ceph prints it so. What was read never has both kinds of quotes: it
/// ended at the kind with which it began.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let quote = if self.0.contains('"') { '\'' } else { '"' };
        match self.0 {
            word if !word.is_empty() && word.bytes().all(plain) => f.write_str(word),
            text => write!(f, "{quote}{text}{quote}"),
        }
    }
}

/// Grants as one text.
fn write_grants<G: fmt::Display>(f: &mut fmt::Formatter<'_>, grants: &[G]) -> fmt::Result {
    for (n, grant) in grants.iter().enumerate() {
        write!(f, "{}{grant}", if n == 0 { "" } else { ", " })?;
    }
    Ok(())
}
