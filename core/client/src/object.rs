//! Operations on one object, and how to put several together.

use crate::watches::WatchId;
use bytes::Bytes;
use nacre_base::{Name, PoolId, SnapId, Utime};
use nacre_proto::messages::OsdOpItem;
use nacre_proto::types::{CopySource, Extent, Op, op_flags};
use std::collections::{BTreeMap, BTreeSet};

/// Operations on one object, carried out in order and all or none.
#[derive(Clone, Debug)]
pub struct ObjectRequest {
    pub pool: PoolId,
    pub namespace: Name,
    /// Placed by this instead of the name, unless empty.
    pub key: Name,
    pub name: Name,
    pub ops: Vec<OsdOpItem>,
    /// What to read; writes go to the head.
    pub snap: SnapId,
    /// The snapshot context of writes: the newest snapshot, and all, newest first.
    pub snap_seq: SnapId,
    pub snaps: Vec<SnapId>,
    /// What the object's modification time becomes; none for the time of `submit`.
    pub mtime: Option<Utime>,
    /// `op_flags::message` in addition to those that follow from the operations.
    pub flags: u32,
}

impl ObjectRequest {
    pub fn new(pool: PoolId, name: impl Into<Name>) -> ObjectRequest {
        ObjectRequest {
            pool,
            namespace: Name::default(),
            key: Name::default(),
            name: name.into(),
            ops: Vec::new(),
            snap: SnapId::HEAD,
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            mtime: None,
            flags: 0,
        }
    }
    pub fn namespace(mut self, namespace: impl Into<Name>) -> Self {
        self.namespace = namespace.into();
        self
    }
    pub fn key(mut self, key: impl Into<Name>) -> Self {
        self.key = key.into();
        self
    }
    pub fn op(mut self, op: Op) -> Self {
        self.ops.push(op.into());
        self
    }
    /// Sets `op_flags::op` on the last operation.
    pub fn op_flags(mut self, flags: u32) -> Self {
        if let Some(last) = self.ops.last_mut() {
            last.op.flags |= flags;
        }
        self
    }
    /// The last operation may fail, and those behind it are carried out all the same; its errno is in
    /// `OpOutput::rval`.
    pub fn fail_ok(self) -> Self {
        self.op_flags(op_flags::op::FAILOK)
    }
    /// Writes give each operation's return code and output, too; without, they give only a result.
    pub fn return_vector(self) -> Self {
        self.flags(op_flags::message::RETURNVEC)
    }
    /// A write fails with ENOSPC or EDQUOT while the cluster or the pool is full; without, it waits.
    pub fn fail_if_full(self) -> Self {
        self.flags(op_flags::message::FULL_TRY)
    }
    /// Reads what the object was in this snapshot.
    pub fn at_snap(mut self, snap: SnapId) -> Self {
        self.snap = snap;
        self
    }
    /// The snapshot context of writes: the newest snapshot, and all, newest first.
    pub fn snap_context(mut self, seq: SnapId, snaps: Vec<SnapId>) -> Self {
        (self.snap_seq, self.snaps) = (seq, snaps);
        self
    }
    /// Sets `op_flags::message`.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags |= flags;
        self
    }

    pub fn read(self, off: u64, len: u64) -> Self {
        self.op(Op::Read(Extent::new(off, len)))
    }
    pub fn stat(self) -> Self {
        self.op(Op::Stat)
    }
    pub fn write(self, off: u64, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        self.op(Op::Write { extent: Extent::new(off, data.len() as u64), data })
    }
    pub fn write_full(self, data: impl Into<Bytes>) -> Self {
        self.op(Op::WriteFull { data: data.into() })
    }
    pub fn append(self, data: impl Into<Bytes>) -> Self {
        self.op(Op::Append { data: data.into() })
    }
    pub fn create(self, exclusive: bool) -> Self {
        self.op(Op::Create { exclusive })
    }
    pub fn truncate(self, size: u64) -> Self {
        self.op(Op::Truncate { size, truncate_size: 0, truncate_seq: 0 })
    }
    pub fn zero(self, off: u64, len: u64) -> Self {
        self.op(Op::Zero { off, len })
    }
    pub fn remove(self) -> Self {
        self.op(Op::Delete)
    }
    pub fn get_xattr(self, name: impl Into<Name>) -> Self {
        self.op(Op::GetXattr { name: name.into() })
    }
    /// Output: `BTreeMap<Name, Bytes>`.
    pub fn get_xattrs(self) -> Self {
        self.op(Op::GetXattrs)
    }
    pub fn set_xattr(self, name: impl Into<Name>, value: impl Into<Bytes>) -> Self {
        self.op(Op::SetXattr { name: name.into(), value: value.into() })
    }
    pub fn remove_xattr(self, name: impl Into<Name>) -> Self {
        self.op(Op::RmXattr { name: name.into() })
    }
    pub fn omap_set(self, pairs: impl IntoIterator<Item = (Name, Bytes)>) -> Self {
        self.op(Op::OmapSetVals(pairs.into_iter().collect()))
    }
    pub fn omap_remove(self, keys: impl IntoIterator<Item = Name>) -> Self {
        self.op(Op::OmapRmKeys(keys.into_iter().collect()))
    }
    pub fn omap_clear(self) -> Self {
        self.op(Op::OmapClear)
    }
    /// Output: `BTreeMap<Name, Bytes>`, then whether there is more.
    pub fn omap_get(self, after: impl Into<Name>, max: u64) -> Self {
        self.op(Op::OmapGetVals { after: after.into(), max, prefix: Name::default() })
    }
    /// Output: `BTreeMap<Name, Bytes>` of those that exist.
    pub fn omap_get_keys(self, keys: BTreeSet<Name>) -> Self {
        self.op(Op::OmapGetValsByKeys(keys))
    }

    /// Output: the omap's header.
    pub fn omap_get_header(self) -> Self {
        self.op(Op::OmapGetHeader)
    }
    pub fn omap_set_header(self, header: impl Into<Bytes>) -> Self {
        self.op(Op::OmapSetHeader(header.into()))
    }
    /// Fails with ECANCELED unless the value of `key` compares so.
    pub fn omap_compare(self, key: impl Into<Name>, how: Compare, value: impl Into<Bytes>) -> Self {
        let pair = (value.into(), i32::from(how as u8));
        self.op(Op::OmapCmp(BTreeMap::from([(key.into(), pair)])))
    }
    /// Fails with ECANCELED unless the attribute compares so, byte by byte.
    pub fn compare_xattr(self, name: impl Into<Name>, how: Compare, value: impl Into<Bytes>) -> Self {
        self.op(Op::CmpXattr { name: name.into(), value: value.into(), op: how as u8, mode: 1 })
    }
    /// Fails with ERANGE or EOVERFLOW unless the object has just this version.
    pub fn assert_version(self, version: u64) -> Self {
        self.op(Op::AssertVer { version })
    }
    /// Fails with ENOENT unless the object exists.
    pub fn assert_exists(self) -> Self {
        self.stat()
    }
    /// Calls a method of an object class. Output: what the method returns.
    pub fn exec(self, class: impl Into<Name>, method: impl Into<Name>, input: impl Into<Bytes>) -> Self {
        self.op(Op::Call { class: class.into(), method: method.into(), input: input.into() })
    }
    /// Makes the object a copy of another one: data, attributes and omap.
    pub fn copy_from(self, source: CopySource) -> Self {
        self.op(Op::CopyFrom(source))
    }
    /// Acknowledges a notify.
    pub fn notify_ack(self, watch: WatchId, notify_id: u64, reply: impl Into<Bytes>) -> Self {
        self.op(Op::NotifyAck { notify_id, cookie: watch.0, reply: reply.into() })
    }
    /// Output: an encoded list of the object's watchers.
    pub fn list_watchers(self) -> Self {
        self.op(Op::ListWatchers)
    }
    /// How much data the operations bring.
    pub fn bytes(&self) -> usize {
        self.ops.iter().map(|item| item.data.len()).sum()
    }
    /// How much data the reads ask for; `whole` stands for one to the end of the object.
    pub fn bytes_read(&self, whole: usize) -> usize {
        let reads = self.ops.iter().map(|item| match item.parse() {
            Ok(Op::Read(extent) | Op::SparseRead(extent)) if extent.len == 0 => whole,
            Ok(Op::Read(extent) | Op::SparseRead(extent)) => {
                usize::try_from(extent.len).unwrap_or(usize::MAX)
            }
            _ => 0,
        });
        reads.fold(0, usize::saturating_add)
    }

    /// Whether any operation says that it reads, and whether any says that it writes.
    pub(crate) fn modes(&self) -> (bool, bool) {
        let writes = |item: &OsdOpItem| item.op.code.is_write();
        let flagged = |flag| self.flags & flag != 0;
        let reads = self.ops.iter().any(|item| !writes(item)) || flagged(op_flags::message::READ);
        (reads, self.ops.iter().any(writes) || flagged(op_flags::message::WRITE))
    }
}

/// How a stored value must relate to a given one. Ceph: `CEPH_OSD_CMPXATTR_OP_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compare {
    Equal = 1,
    NotEqual = 2,
    Greater = 3,
    GreaterOrEqual = 4,
    Less = 5,
    LessOrEqual = 6,
}
