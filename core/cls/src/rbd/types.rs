//! Stored and sent types of the rbd class. Integers and names are Ceph's.

use crate::record::record;
use nacre_base::{Name, Utime};
use nacre_proto::types::{EntityAddr, EntityName};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};
use std::collections::{BTreeMap, BTreeSet};

/// What an image can do. Ceph: `RBD_FEATURE_*`.
pub mod features {
    pub const LAYERING: u64 = 1;
    pub const STRIPING: u64 = 1 << 1;
    pub const EXCLUSIVE_LOCK: u64 = 1 << 2;
    pub const OBJECT_MAP: u64 = 1 << 3;
    pub const FAST_DIFF: u64 = 1 << 4;
    pub const DEEP_FLATTEN: u64 = 1 << 5;
    pub const JOURNALING: u64 = 1 << 6;
    pub const DATA_POOL: u64 = 1 << 7;
    pub const OPERATIONS: u64 = 1 << 8;
    pub const MIGRATING: u64 = 1 << 9;
    pub const NON_PRIMARY: u64 = 1 << 10;
    pub const DIRTY_CACHE: u64 = 1 << 11;

    pub const ALL: u64 = 0xfff;
    /// A client that does not know them cannot even read.
    pub const INCOMPATIBLE: u64 = LAYERING | STRIPING | DATA_POOL;
    /// A client that does not know them cannot write.
    pub const RW_INCOMPATIBLE: u64 = ALL;
    pub const MUTABLE: u64 = EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | JOURNALING | NON_PRIMARY | DIRTY_CACHE;
    pub const DISABLE_ONLY: u64 = DEEP_FLATTEN;
    /// Kept by the class itself.
    pub const INTERNAL: u64 = OPERATIONS | MIGRATING;
}

/// Which operations an image has been part of. Ceph: `RBD_OPERATION_FEATURE_*`.
pub mod op_features {
    pub const CLONE_PARENT: u64 = 1;
    pub const CLONE_CHILD: u64 = 1 << 1;
    pub const GROUP: u64 = 1 << 2;
    pub const SNAP_TRASH: u64 = 1 << 3;
    pub const ALL: u64 = 0xf;
}

/// Whose a snapshot is. Ceph: `SnapshotNamespace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapNamespace {
    User,
    Group {
        pool: i64,
        group: Name,
        group_snap: Name,
    },
    /// Removed while clones of it live: under which name, and what kind it was.
    Trash {
        original_name: Name,
        original_kind: u32,
    },
    Mirror(MirrorSnap),
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorSnap {
    /// 2 and 3: of an image that is not primary, or no longer.
    pub state: u8,
    pub complete: bool,
    pub peers: BTreeSet<Name>,
    pub primary_mirror: Name,
    pub primary_snap: u64,
    pub last_copied_object: u64,
    pub snap_seqs: BTreeMap<u64, u64>,
}

pub const KIND_USER: u32 = 0;
pub const KIND_GROUP: u32 = 1;
pub const KIND_TRASH: u32 = 2;
pub const KIND_MIRROR: u32 = 3;
const KIND_UNKNOWN: u32 = u32::MAX;

impl SnapNamespace {
    pub fn kind(&self) -> u32 {
        match self {
            SnapNamespace::User => KIND_USER,
            SnapNamespace::Group { .. } => KIND_GROUP,
            SnapNamespace::Trash { .. } => KIND_TRASH,
            SnapNamespace::Mirror(_) => KIND_MIRROR,
            SnapNamespace::Unknown => KIND_UNKNOWN,
        }
    }
}

impl Encode for SnapNamespace {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            self.kind().encode(out);
            match self {
                SnapNamespace::User | SnapNamespace::Unknown => {}
                SnapNamespace::Group { pool, group, group_snap } => {
                    pool.encode(out);
                    group.encode(out);
                    group_snap.encode(out);
                }
                SnapNamespace::Trash { original_name, original_kind } => {
                    original_name.encode(out);
                    original_kind.encode(out);
                }
                SnapNamespace::Mirror(mirror) => {
                    mirror.state.encode(out);
                    mirror.complete.encode(out);
                    mirror.peers.encode(out);
                    mirror.primary_mirror.encode(out);
                    mirror.primary_snap.encode(out);
                    mirror.last_copied_object.encode(out);
                    mirror.snap_seqs.encode(out);
                }
            }
        });
    }
}
impl Decode for SnapNamespace {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("SnapshotNamespace", 1, |r, _| {
            Ok(match u32::decode(r)? {
                KIND_USER => SnapNamespace::User,
                KIND_GROUP => SnapNamespace::Group {
                    pool: Decode::decode(r)?,
                    group: Decode::decode(r)?,
                    group_snap: Decode::decode(r)?,
                },
                KIND_TRASH => SnapNamespace::Trash {
                    original_name: Decode::decode(r)?,
                    original_kind: Decode::decode(r)?,
                },
                KIND_MIRROR => SnapNamespace::Mirror(MirrorSnap {
                    state: Decode::decode(r)?,
                    complete: Decode::decode(r)?,
                    peers: Decode::decode(r)?,
                    primary_mirror: Decode::decode(r)?,
                    primary_snap: Decode::decode(r)?,
                    last_copied_object: Decode::decode(r)?,
                    snap_seqs: Decode::decode(r)?,
                }),
                _ => SnapNamespace::Unknown,
            })
        })
    }
}

/// What an image is a clone of. Ceph: `cls_rbd_parent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    pub spec: ParentSpec,
    /// How much of the image, from its start, still shows the parent; None once flattened, while
    /// snapshots still do.
    pub head_overlap: Option<u64>,
}

impl Parent {
    pub fn exists(&self) -> bool {
        self.spec.exists()
    }
}

impl Encode for Parent {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 2, 2, |out| {
            self.spec.pool.encode(out);
            self.spec.namespace.encode(out);
            self.spec.image.encode(out);
            self.spec.snap.encode(out);
            self.head_overlap.encode(out);
        });
    }
}
impl Decode for Parent {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("cls_rbd_parent", 2, |r, v| {
            Ok(Parent {
                spec: ParentSpec {
                    pool: Decode::decode(r)?,
                    namespace: if v >= 2 { Decode::decode(r)? } else { Name::default() },
                    image: Decode::decode(r)?,
                    snap: Decode::decode(r)?,
                },
                head_overlap: if v >= 2 { Decode::decode(r)? } else { Some(Decode::decode(r)?) },
            })
        })
    }
}

record!(ParentSpec, "ParentImageSpec", 1, {
    /// -1: there is no parent.
    pool: i64,
    namespace: Name, image: Name, snap: u64,
});

impl Default for ParentSpec {
    fn default() -> ParentSpec {
        let none = nacre_base::SnapId::HEAD.0;
        ParentSpec { pool: -1, namespace: Name::default(), image: Name::default(), snap: none }
    }
}
impl ParentSpec {
    pub fn exists(&self) -> bool {
        self.pool >= 0 && !self.image.is_empty() && self.snap != nacre_base::SnapId::HEAD.0
    }
}

/// A snapshot of an image, under `snapshot_` and its id. Ceph: `cls_rbd_snap`; what version 8 of
/// it no longer holds was in clusters from before 2019.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snap {
    pub id: u64,
    pub name: Name,
    pub image_size: u64,
    /// 0 unprotected, 1 unprotecting, 2 protected
    pub protection: u8,
    pub flags: u64,
    pub namespace: SnapNamespace,
    pub timestamp: Utime,
    pub child_count: u32,
    pub parent_overlap: Option<u64>,
}

impl Encode for Snap {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 8, 8, |out| {
            self.id.encode(out);
            self.name.encode(out);
            self.image_size.encode(out);
            self.protection.encode(out);
            self.flags.encode(out);
            self.namespace.encode(out);
            self.timestamp.encode(out);
            self.child_count.encode(out);
            self.parent_overlap.encode(out);
        });
    }
}
impl Decode for Snap {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("cls_rbd_snap", 8, |r, v| {
            if v < 8 {
                return Err(DecodeError::BadValue { what: "cls_rbd_snap version", value: v.into() });
            }
            Ok(Snap {
                id: Decode::decode(r)?,
                name: Decode::decode(r)?,
                image_size: Decode::decode(r)?,
                protection: Decode::decode(r)?,
                flags: Decode::decode(r)?,
                namespace: Decode::decode(r)?,
                timestamp: Decode::decode(r)?,
                child_count: Decode::decode(r)?,
                parent_overlap: Decode::decode(r)?,
            })
        })
    }
}

/// What `snapshot_get` answers. Ceph: `SnapshotInfo`.
pub struct SnapInfo<'a>(pub &'a Snap);

impl Encode for SnapInfo<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            self.0.id.encode(out);
            self.0.namespace.encode(out);
            self.0.name.encode(out);
            self.0.image_size.encode(out);
            self.0.timestamp.encode(out);
            self.0.child_count.encode(out);
        });
    }
}

/// Ceph: `ChildImageSpec`, whose order in sets is not that of its fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Child {
    pub pool: i64,
    pub namespace: Name,
    pub image: Name,
}

impl Encode for Child {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 2, 1, |out| {
            self.pool.encode(out);
            self.image.encode(out);
            self.namespace.encode(out);
        });
    }
}
impl Decode for Child {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("ChildImageSpec", 2, |r, v| {
            let pool = i64::decode(r)?;
            let image = Name::decode(r)?;
            let namespace = if v >= 2 { Name::decode(r)? } else { Name::default() };
            Ok(Child { pool, namespace, image })
        })
    }
}

/// An image on its way to another place. Ceph: `MigrationSpec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// 1 at the source, 2 at the destination
    pub header_kind: u8,
    pub pool: i64,
    pub namespace: Name,
    pub image_name: Name,
    pub image: Name,
    pub snap_seqs: BTreeMap<u64, u64>,
    pub overlap: u64,
    pub flatten: bool,
    pub mirroring: bool,
    pub state: u8,
    pub description: Name,
    pub mirror_mode: u8,
    pub source_spec: Name,
}

impl Encode for Migration {
    fn encode(&self, out: &mut Vec<u8>) {
        let compat = if self.source_spec.is_empty() { 1 } else { 3 };
        versioned(out, 3, compat, |out| {
            self.header_kind.encode(out);
            self.pool.encode(out);
            self.namespace.encode(out);
            self.image_name.encode(out);
            self.image.encode(out);
            self.snap_seqs.encode(out);
            self.overlap.encode(out);
            self.flatten.encode(out);
            self.mirroring.encode(out);
            self.state.encode(out);
            self.description.encode(out);
            self.mirror_mode.encode(out);
            self.source_spec.encode(out);
        });
    }
}
impl Decode for Migration {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("MigrationSpec", 3, |r, v| {
            Ok(Migration {
                header_kind: Decode::decode(r)?,
                pool: Decode::decode(r)?,
                namespace: Decode::decode(r)?,
                image_name: Decode::decode(r)?,
                image: Decode::decode(r)?,
                snap_seqs: Decode::decode(r)?,
                overlap: Decode::decode(r)?,
                flatten: Decode::decode(r)?,
                mirroring: Decode::decode(r)?,
                state: Decode::decode(r)?,
                description: Decode::decode(r)?,
                mirror_mode: if v >= 2 { Decode::decode(r)? } else { 0 },
                source_spec: if v >= 3 { Decode::decode(r)? } else { Name::default() },
            })
        })
    }
}

record!(GroupSpec, "GroupSpec", 1, { pool: i64, group: Name });
record!(GroupImage, "GroupImageSpec", 1, { image: Name, pool: i64 });
record!(GroupImageStatus, "GroupImageStatus", 1, { image: GroupImage, state: u8 });
record!(ImageSnap, "ImageSnapshotSpec", 1, { pool: i64, image: Name, snap: u64 });
record!(GroupSnap, "GroupSnapshot", 1, {
    id: Name, name: Name,
    /// 0 incomplete, 1 complete
    state: u8,
    snaps: Vec<ImageSnap>,
});

record!(TrashImage, "TrashImageSpec", 2, {
    source: u8, name: Name, deleted: Utime, deferred_until: Utime,
} since 2 { state: u8 });

record!(MirrorPeer, "MirrorPeer", 2, { uuid: Name, site: Name, client: Name, pool: i64 } since 2 {
    /// See `direction`.
    direction: u8,
    mirror: Name,
    last_seen: Utime,
});

/// Which way a mirror copies, seen from here. Ceph: `MirrorPeerDirection`.
pub mod direction {
    pub const RX: u8 = 0;
    pub const TX: u8 = 1;
    pub const RX_TX: u8 = 2;
}

impl MirrorPeer {
    pub fn is_valid(&self) -> bool {
        let known = match self.direction {
            direction::TX => true,
            direction::RX | direction::RX_TX => !self.client.is_empty(),
            _ => false,
        };
        known && !self.uuid.is_empty() && !self.site.is_empty()
    }
}

record!(MirrorImage, "MirrorImage", 2, {
    global_id: Name,
    /// 0 disabling, 1 enabled, 2 disabled, 3 creating
    state: u8,
} since 2 {
    /// 0 by journal, 1 by snapshots
    mode: u8,
});
record!(MirrorImageMap, "MirrorImageMap", 1, { instance: Name, mapped: Utime, data: bytes::Bytes });

/// How one site gets on with an image. Ceph: `MirrorImageSiteStatus`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteStatus {
    /// Empty: this one.
    pub mirror: Name,
    /// 0 unknown, 1 error, then further along with each number
    pub state: u8,
    pub description: Name,
    pub updated: Utime,
    pub up: bool,
}

impl SiteStatus {
    /// Without the envelope. Version 1 has no site.
    pub fn encode_bare(&self, version: u8, out: &mut Vec<u8>) {
        if version >= 2 {
            self.mirror.encode(out);
        }
        self.state.encode(out);
        self.description.encode(out);
        self.updated.encode(out);
        self.up.encode(out);
    }
}
impl Encode for SiteStatus {
    fn encode(&self, out: &mut Vec<u8>) {
        let version = if self.mirror.is_empty() { 1 } else { 2 };
        versioned(out, version, version, |out| self.encode_bare(version, out));
    }
}
impl Decode for SiteStatus {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("MirrorImageSiteStatus", 2, |r, v| {
            Ok(SiteStatus {
                mirror: if v >= 2 { Decode::decode(r)? } else { Name::default() },
                state: Decode::decode(r)?,
                description: Decode::decode(r)?,
                updated: Decode::decode(r)?,
                up: Decode::decode(r)?,
            })
        })
    }
}

record!(
    /// The daemon that reported a status, with an untyped address. Ceph: `entity_inst_t`, in an envelope.
    Origin, "MirrorImageSiteStatusOnDisk", 1, { name: EntityName, addr: EntityAddr }
);
