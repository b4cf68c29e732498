//! Keys in an index.
//!
//! ```text
//! NAME                          an object without versions, or a stand-in for one that has some
//! NAME \0v EPOCH \0i INSTANCE   a version, so that listings show the newest first
//! \x80 0_ ID                    the log
//! \x80 1000_ NAME \0i INSTANCE  the same version, for those that know which one; behind it \0d if it is a
//!                               delete marker without an instance
//! \x80 1001_ NAME               which version is the current one
//! ```
//!
//! No UTF-8 text starts with the byte 0x80, so no object is named like a special key.

use super::types::{Entry, ObjectKey};
use nacre_base::Name;

pub(crate) const SPECIAL: u8 = 0x80;
pub(crate) const LOG: &[u8] = b"\x800_";
pub(crate) const INSTANCES: &[u8] = b"\x801000_";
pub(crate) const LOG_END: &[u8] = INSTANCES;
pub(crate) const OLHS: &[u8] = b"\x801001_";
pub(crate) const SPECIAL_END: &[u8] = b"\x809999_";

fn joined(parts: &[&[u8]]) -> Name {
    Name::new(parts.concat())
}

pub(crate) fn is_special(key: &[u8]) -> bool {
    key.first() == Some(&SPECIAL)
}

pub(crate) fn version(key: &ObjectKey) -> Name {
    joined(&[INSTANCES, key.name.as_bytes(), b"\0i", key.instance.as_bytes()])
}

pub(crate) fn null_delete_marker(name: &Name) -> Name {
    joined(&[INSTANCES, name.as_bytes(), b"\0i\0d"])
}

pub(crate) fn olh(name: &Name) -> Name {
    joined(&[OLHS, name.as_bytes()])
}

/// Where the object or the version is, apart from listings.
pub(crate) fn object(key: &ObjectKey) -> Name {
    if key.instance.is_empty() { key.name.clone() } else { version(key) }
}

pub(crate) fn log(id: &[u8]) -> Name {
    joined(&[LOG, id])
}

/// Where listings show the version.
pub(crate) fn listed(entry: &Entry) -> Name {
    let epoch = decreasing(entry.versioned_epoch);
    let key = &entry.key;
    joined(&[key.name.as_bytes(), b"\0v", epoch.as_bytes(), b"\0i", key.instance.as_bytes()])
}

/// Text that sorts the other way round than the number. Its first digit says how many follow.
fn decreasing(number: u64) -> String {
    match number {
        0..0x10 => format!("9{:02}", 0xf - number),
        0x10..0x100 => format!("8{:03}", 0xff - number),
        0x100..0x1000 => format!("7{:04}", 0xfff - number),
        0x1000..0x1_0000 => format!("6{:05}", 0xffff - number),
        0x1_0000..0x1_0000_0000 => format!("5{:010}", 0xffff_ffff - number),
        // As a signed number, like Ceph's.
        _ => format!("4{:020}", number.wrapping_neg().cast_signed()),
    }
}

/// The object that a key of a listing is about. None for a key that no index has.
pub(crate) fn listed_name(key: &[u8]) -> Option<&[u8]> {
    let mut parts = key.split(|&byte| byte == 0);
    let name = parts.next().unwrap_or_default();
    let mut versioned = name.len() == key.len();
    for part in parts {
        versioned = true;
        if let Some(epoch) = part.strip_prefix(b"v") {
            std::str::from_utf8(epoch).ok()?.parse::<i64>().ok()?;
        }
    }
    versioned.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_are_listed_before_older_ones() {
        let epochs = [1, 2, 15, 16, 255, 256, 4095, 4096, 65535, 65536, 0xffff_ffff];
        let keys: Vec<String> = epochs.into_iter().map(decreasing).collect();
        assert!(keys.windows(2).all(|pair| pair[0] > pair[1]), "{keys:?}");
        assert_eq!((&*keys[0], &*keys[3], &*keys[9]), ("914", "8239", "54294901759"));
    }

    #[test]
    fn the_name_in_a_listed_key_is_found() {
        assert_eq!(listed_name(b"a/b"), Some(&b"a/b"[..]));
        assert_eq!(listed_name(b"a\0v913\0ixyz"), Some(&b"a"[..]));
        assert_eq!(listed_name(b"a\0vxx\0ixyz"), None);
    }
}
