//! Bits that clients set on messages to OSDs and on the operations in them.

/// Flags of a whole request or reply. Ceph: `CEPH_OSD_FLAG_*`.
pub mod message {
    pub const ACK: u32 = 0x1;
    pub const ONDISK: u32 = 0x4;
    /// Not the first attempt.
    pub const RETRY: u32 = 0x8;
    pub const READ: u32 = 0x10;
    pub const WRITE: u32 = 0x20;
    /// Refuse a write whose snapshot context is older than the object's.
    pub const ORDERSNAP: u32 = 0x40;
    pub const BALANCE_READS: u32 = 0x100;
    /// Carried out by no release.
    pub const PARALLELEXEC: u32 = 0x200;
    /// About the placement group, not an object.
    pub const PGOP: u32 = 0x400;
    pub const EXEC: u32 = 0x800;
    pub const LOCALIZE_READS: u32 = 0x2000;
    /// Order this read among the writes.
    pub const RWORDERED: u32 = 0x4000;
    pub const IGNORE_CACHE: u32 = 0x8000;
    pub const SKIPRWLOCKS: u32 = 0x1_0000;
    pub const IGNORE_OVERLAY: u32 = 0x2_0000;
    pub const FLUSH: u32 = 0x4_0000;
    pub const MAP_SNAP_CLONE: u32 = 0x8_0000;
    /// Use the request's snapshot context even where the pool has its own.
    pub const ENFORCE_SNAPC: u32 = 0x10_0000;
    pub const REDIRECTED: u32 = 0x20_0000;
    pub const KNOWN_REDIR: u32 = 0x40_0000;
    /// Answer with an error rather than wait when the cluster is full.
    pub const FULL_TRY: u32 = 0x80_0000;
    pub const FULL_FORCE: u32 = 0x100_0000;
    pub const IGNORE_REDIRECT: u32 = 0x200_0000;
    /// Return each operation's output and code even for writes.
    pub const RETURNVEC: u32 = 0x400_0000;

    const NAMES: [(u32, &str); 24] = [
        (ACK, "ack"),
        (ONDISK, "ondisk"),
        (RETRY, "retry"),
        (READ, "read"),
        (WRITE, "write"),
        (ORDERSNAP, "ordersnap"),
        (BALANCE_READS, "balance_reads"),
        (PARALLELEXEC, "parallelexec"),
        (PGOP, "pgop"),
        (EXEC, "exec"),
        (LOCALIZE_READS, "localize_reads"),
        (RWORDERED, "rwordered"),
        (IGNORE_CACHE, "ignore_cache"),
        (SKIPRWLOCKS, "skiprwlocks"),
        (IGNORE_OVERLAY, "ignore_overlay"),
        (FLUSH, "flush"),
        (MAP_SNAP_CLONE, "map_snap_clone"),
        (ENFORCE_SNAPC, "enforce_snapc"),
        (REDIRECTED, "redirected"),
        (KNOWN_REDIR, "known_if_redirected"),
        (FULL_TRY, "full_try"),
        (FULL_FORCE, "full_force"),
        (IGNORE_REDIRECT, "ignore_redirect"),
        (RETURNVEC, "returnvec"),
    ];

    /// For logs, as Ceph joins them: `ondisk+write+known_if_redirected`.
    pub fn name(flags: u32) -> String {
        let set: Vec<&str> =
            NAMES.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
        set.join("+")
    }
}

/// Flags of one operation. Ceph: `CEPH_OSD_OP_FLAG_*`.
pub mod op {
    /// Fail a create if the object exists.
    pub const EXCL: u32 = 0x1;
    /// Go on with the next operation if this one fails.
    pub const FAILOK: u32 = 0x2;
    pub const FADVISE_RANDOM: u32 = 0x4;
    pub const FADVISE_SEQUENTIAL: u32 = 0x8;
    pub const FADVISE_WILLNEED: u32 = 0x10;
    pub const FADVISE_DONTNEED: u32 = 0x20;
    pub const FADVISE_NOCACHE: u32 = 0x40;
    pub const FADVISE_FUA: u32 = 0x80;
}
