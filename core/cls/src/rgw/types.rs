//! What a bucket's index consists of.

use crate::record::record;
use bytes::Bytes;
use nacre_base::{Name, Utime};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};
use std::collections::{BTreeMap, BTreeSet};

/// Zones that a change has been through.
pub(crate) type Zones = BTreeSet<Name>;

/// What happens to an object, in requests and in the index's log. Ceph: `RGWModifyOp`.
pub(crate) mod modify {
    pub(crate) const ADD: u8 = 0;
    pub(crate) const DELETE: u8 = 1;
    pub(crate) const CANCEL: u8 = 2;
    pub(crate) const LINK_OLH: u8 = 4;
    pub(crate) const LINK_OLH_DELETE_MARKER: u8 = 5;
    pub(crate) const UNLINK_INSTANCE: u8 = 6;
    pub(crate) const SYNC_STOP: u8 = 7;
    pub(crate) const RESYNC: u8 = 8;
}

/// Flags of an entry.
pub(crate) mod flag {
    /// A version of an object.
    pub(crate) const VERSION: u16 = 1;
    /// The version that is the object, where no other is asked for.
    pub(crate) const CURRENT: u16 = 2;
    pub(crate) const DELETE_MARKER: u16 = 4;
    /// Stands where the object would be, were it not for its versions.
    pub(crate) const VERSIONS_ELSEWHERE: u16 = 8;
    /// Not an object but the common prefix of some, up to a delimiter.
    pub(crate) const COMMON_PREFIX: u16 = 0x8000;
}

pub(crate) const LOG_VERSIONED: u16 = 1;
pub(crate) const STATE_COMPLETE: u8 = 1;

record!(
    /// An object's name, and of which version.
    #[derive(Default)]
    ObjectKey, "cls_rgw_obj_key", 1, { name: Name, instance: Name });

impl ObjectKey {
    pub(crate) fn of(name: &Name) -> ObjectKey {
        ObjectKey { name: name.clone(), instance: Name::default() }
    }
}

/// A number in as few bytes as it needs, behind one that tells how many these are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packed(pub u64);

impl Encode for Packed {
    fn encode(&self, out: &mut Vec<u8>) {
        let bytes = self.0.to_le_bytes();
        let len = match self.0 {
            0..=0x7f => return out.push(bytes[0]),
            0x80..0x100 => 1,
            0x100..0x1_0000 => 2,
            0x1_0000..=0x100_0000 => 4,
            _ => 8,
        };
        out.push(0x80 | len as u8);
        out.extend_from_slice(&bytes[..len]);
    }
}
impl Decode for Packed {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let first = u8::decode(r)?;
        Ok(Packed(match first {
            0..=0x7f => first.into(),
            0x81 => u8::decode(r)?.into(),
            0x82 => u16::decode(r)?.into(),
            0x84 => u32::decode(r)?.into(),
            0x88 => u64::decode(r)?,
            _ => return Err(DecodeError::BadValue { what: "a packed number", value: first.into() }),
        }))
    }
}

/// The version of an object's head in its pool. Ceph: `rgw_bucket_entry_ver`, v1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeadVersion {
    /// -1 where it is not known.
    pub pool: i64,
    pub epoch: u64,
}

impl Default for HeadVersion {
    fn default() -> HeadVersion {
        HeadVersion { pool: -1, epoch: 0 }
    }
}
impl Encode for HeadVersion {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            Packed(self.pool.cast_unsigned()).encode(out);
            Packed(self.epoch).encode(out);
        });
    }
}
impl Decode for HeadVersion {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("rgw_bucket_entry_ver", 1, |r, _| {
            Ok(HeadVersion { pool: Packed::decode(r)?.0.cast_signed(), epoch: Packed::decode(r)?.0 })
        })
    }
}

record!(#[derive(Default)] Meta, "rgw_bucket_dir_entry_meta", 7 compat 3, {
    /// Which of the bucket's statistics the object counts in.
    category: u8,
    /// As stored, which compression and encryption change.
    size: u64,
    mtime: Utime,
    etag: Name,
    owner: Name,
    owner_display_name: Name,
    content_type: Name,
} since 4 {
    /// As clients see it.
    accounted_size: u64,
} since 5 {
    user_data: Name,
} since 6 {
    storage_class: Name,
} since 7 {
    appendable: bool,
});

record!(Pending, "rgw_bucket_pending_info", 2 compat 2, { state: u8, time: Utime, op: u8 });

/// An object in the index. Ceph: `rgw_bucket_dir_entry`, v8, readable since v3.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub key: ObjectKey,
    pub version: HeadVersion,
    pub locator: Name,
    /// Not so while the first write is under way.
    pub exists: bool,
    pub meta: Meta,
    /// Changes under way by their tags, which may be there several times.
    pub pending: Vec<(Name, Pending)>,
    /// The index's version at the last change.
    pub index_version: u64,
    pub tag: Name,
    pub flags: u16,
    /// Orders the versions of an object.
    pub versioned_epoch: u64,
}

impl Entry {
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
    pub(crate) fn is_visible(&self) -> bool {
        (!self.has(flag::VERSION) || self.has(flag::CURRENT)) && !self.has(flag::DELETE_MARKER)
    }
}
impl Encode for Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 8, 3, |out| {
            self.key.name.encode(out);
            self.version.epoch.encode(out);
            self.exists.encode(out);
            self.meta.encode(out);
            self.pending.encode(out);
            self.locator.encode(out);
            self.version.encode(out);
            Packed(self.index_version).encode(out);
            self.tag.encode(out);
            self.key.instance.encode(out);
            self.flags.encode(out);
            self.versioned_epoch.encode(out);
        });
    }
}
impl Decode for Entry {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("rgw_bucket_dir_entry", 8, |r, v| {
            let mut entry = Entry { key: ObjectKey::of(&Name::decode(r)?), ..Entry::default() };
            entry.version.epoch = u64::decode(r)?;
            entry.exists = bool::decode(r)?;
            entry.meta = Meta::decode(r)?;
            entry.pending = Vec::decode(r)?;
            entry.locator = Name::decode(r)?;
            if v >= 4 {
                entry.version = HeadVersion::decode(r)?;
            }
            if v >= 5 {
                entry.index_version = Packed::decode(r)?.0;
                entry.tag = Name::decode(r)?;
            }
            if v >= 6 {
                entry.key.instance = Name::decode(r)?;
            }
            if v >= 7 {
                entry.flags = u16::decode(r)?;
            }
            if v >= 8 {
                entry.versioned_epoch = u64::decode(r)?;
            }
            Ok(entry)
        })
    }
}

record!(OlhLogEntry, "rgw_bucket_olh_log_entry", 1, {
    epoch: u64, op: u8, op_tag: Name, key: ObjectKey, delete_marker: bool,
});
record!(
    /// The versions of an object: which is the current one, and what gateways have yet to do about it.
    #[derive(Default)]
    Olh, "rgw_bucket_olh_entry", 1, {
    key: ObjectKey,
    delete_marker: bool,
    epoch: u64,
    log: BTreeMap<u64, Vec<OlhLogEntry>>,
    tag: Name,
    exists: bool,
    pending_removal: bool,
});

/// A change to the index, for other zones. Ceph: `rgw_bi_log_entry`, v4.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogEntry {
    pub id: Name,
    pub key: ObjectKey,
    pub time: Utime,
    pub version: HeadVersion,
    pub tag: Name,
    pub op: u8,
    pub state: u8,
    pub index_version: u64,
    pub flags: u16,
    /// Of a delete marker: its name and the name to show.
    pub owner: (Name, Name),
    pub zones: Zones,
}

impl Encode for LogEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 4, 1, |out| {
            (&self.id, &self.key.name).encode(out);
            self.time.encode(out);
            self.version.encode(out);
            self.tag.encode(out);
            (self.op, self.state).encode(out);
            Packed(self.index_version).encode(out);
            self.key.instance.encode(out);
            self.flags.encode(out);
            self.owner.encode(out);
            self.zones.encode(out);
        });
    }
}
impl Decode for LogEntry {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("rgw_bi_log_entry", 4, |r, v| {
            let id = Name::decode(r)?;
            let mut entry = LogEntry { id, key: ObjectKey::of(&Name::decode(r)?), ..LogEntry::default() };
            entry.time = Utime::decode(r)?;
            entry.version = HeadVersion::decode(r)?;
            entry.tag = Name::decode(r)?;
            (entry.op, entry.state) = Decode::decode(r)?;
            entry.index_version = Packed::decode(r)?.0;
            if v >= 2 {
                entry.key.instance = Name::decode(r)?;
                entry.flags = u16::decode(r)?;
            }
            if v >= 3 {
                entry.owner = Decode::decode(r)?;
            }
            if v >= 4 {
                entry.zones = Decode::decode(r)?;
            }
            Ok(entry)
        })
    }
}

record!(#[derive(Default)] Stats, "rgw_bucket_category_stats", 3 compat 2, {
    total_size: u64,
    total_size_rounded: u64,
    num_entries: u64,
} since 3 {
    actual_size: u64,
});

/// Whether the index moves to more shards, and where to. Ceph: `cls_rgw_bucket_instance_entry`, v1;
/// the fields
/// behind the first are missing in v2, and are there again in v3.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resharding {
    pub status: u8,
    pub bucket_instance: Name,
    pub shards: i32,
}

impl Default for Resharding {
    fn default() -> Resharding {
        Resharding { status: 0, bucket_instance: Name::default(), shards: -1 }
    }
}
impl Encode for Resharding {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            (self.status, &self.bucket_instance).encode(out);
            self.shards.encode(out);
        });
    }
}
impl Decode for Resharding {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("cls_rgw_bucket_instance_entry", 3, |r, v| {
            let status = u8::decode(r)?;
            if v == 2 {
                return Ok(Resharding { status, ..Resharding::default() });
            }
            Ok(Resharding { status, bucket_instance: Decode::decode(r)?, shards: Decode::decode(r)? })
        })
    }
}

record!(
    /// In the header of the index's omap.
    #[derive(Default)]
    Header, "rgw_bucket_dir_header", 7 compat 2, {
    stats: BTreeMap<u8, Stats>,
} since 3 {
    /// Seconds until a change under way counts as given up; zero for the default.
    tag_timeout: u64,
} since 4 {
    /// Counts the changes of the index.
    version: u64,
    master_version: u64,
} since 5 {
    max_marker: Name,
} since 6 {
    resharding: Resharding,
} since 7 {
    sync_stopped: bool,
});

/// Ceph counts what a 4 KiB block has to hold at least.
fn rounded(size: u64) -> u64 {
    size.checked_next_multiple_of(4096).unwrap_or(size)
}

impl Header {
    /// Statistics wrap around where an index was damaged, as Ceph's do; `bucket check --fix` counts anew.
    pub(crate) fn count(&mut self, meta: &Meta) {
        let stats = self.stats.entry(meta.category).or_default();
        stats.num_entries = stats.num_entries.wrapping_add(1);
        stats.total_size = stats.total_size.wrapping_add(meta.accounted_size);
        stats.total_size_rounded = stats.total_size_rounded.wrapping_add(rounded(meta.accounted_size));
        stats.actual_size = stats.actual_size.wrapping_add(meta.size);
    }
    pub(crate) fn discount(&mut self, entry: &Entry) {
        if !entry.exists {
            return;
        }
        let meta = &entry.meta;
        let stats = self.stats.entry(meta.category).or_default();
        stats.num_entries = stats.num_entries.wrapping_sub(1);
        stats.total_size = stats.total_size.wrapping_sub(meta.accounted_size);
        stats.total_size_rounded = stats.total_size_rounded.wrapping_sub(rounded(meta.accounted_size));
        stats.actual_size = stats.actual_size.wrapping_sub(meta.size);
    }
}

record!(RawEntry, "rgw_cls_bi_entry", 1, { kind: u8, key: Name, data: Bytes });
