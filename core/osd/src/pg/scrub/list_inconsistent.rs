//! What clients see of findings. Ceph: SCRUBLS, and the types in `scrub_types.h`.

use super::ScrubRecord;
use super::findings::walk_findings;
use crate::object_info::{ATTR, ObjectInfo};
use crate::ops::FlaggedOp;
use crate::pg::{ClientOp, Ctx};
use crate::snap_set::{CloneInfo, SnapSet};
use bytes::Bytes;
use nacre_base::errno::{EAGAIN, EINVAL, EIO};
use nacre_base::{Epoch, Name, SnapId, Utime, Version};
use nacre_machine::Level;
use nacre_proto::messages::scrub::{BadObject, BadSnaps, Finding, Shard, scrub_error as is};
use nacre_proto::types::{ObjectId, ObjectLocator, Op, ReqId, ScrubLs};
use nacre_wire::{Encode, versioned};
use std::collections::BTreeMap;

/// Findings on one page.
const PAGE_MAX: usize = 1000;

impl ScrubRecord {
    /// The result and outputs of a request for what scrubs found.
    pub fn list(&self, ctx: &mut Ctx<'_>, interval: Epoch, op: &ClientOp) -> (i32, Vec<(i32, Bytes)>) {
        let [FlaggedOp { op: Op::ScrubLs(ask), .. }] = &op.ops[..] else {
            return (-EINVAL, Vec::new()); // among other operations it makes no sense
        };
        if ask.interval.0 != 0 && ask.interval != interval {
            return (-EAGAIN, Vec::new()); // the listing begins anew
        }
        let mut page = Vec::new();
        let mut behind = ask.after.0.is_empty();
        let walked = walk_findings(ctx.store, self.pg, &mut |object, finding| {
            if matches!(finding, Finding::Snaps(_)) != ask.snapsets {
                return true;
            }
            if !behind {
                behind = is_at(ask, &object);
                return true;
            }
            page.push(match finding {
                Finding::Object(bad) => inconsistent_object(&object, &bad),
                Finding::Snaps(bad) => {
                    let head = (object.snap == SnapId::HEAD).then(|| ObjectInfo::load(ctx.store, &object));
                    let known = head.and_then(|info| info.ok().flatten()).map(|info| info.snap_set);
                    inconsistent_snapset(&object, &bad, known.as_ref())
                }
            });
            page.len() < PAGE_MAX.min(ask.max.max(1) as usize)
        });
        if let Err(error) = walked {
            ctx.log(Level::Error, format!("pg {}: {error}", self.pg));
            return (-EIO, Vec::new());
        }
        let mut out = Vec::new();
        versioned(&mut out, 1, 1, |out| {
            interval.encode(out);
            page.encode(out);
        });
        (0, vec![(0, out.into())])
    }
}

fn is_at(ask: &ScrubLs, object: &ObjectId) -> bool {
    let (name, namespace, snap) = &ask.after;
    object.name == *name && object.namespace == *namespace && object.snap == *snap
}

/// Ceph: `librados::object_id_t`.
fn object_id(object: &ObjectId, out: &mut Vec<u8>) {
    versioned(out, 1, 1, |out| {
        object.name.encode(out);
        object.namespace.encode(out);
        object.key.encode(out);
        object.snap.encode(out);
    });
}

/// Ceph: `inconsistent_obj_wrapper` v2.
fn inconsistent_object(object: &ObjectId, bad: &BadObject) -> Bytes {
    let union = bad.shards.values().fold(0, |errors, shard| errors | shard.errors);
    let mut out = Vec::new();
    versioned(&mut out, 2, 2, |out| {
        bad.errors.encode(out);
        object_id(object, out);
        bad.user_version.encode(out);
        (bad.shards.len() as u32).encode(out);
        for (osd, shard) in &bad.shards {
            versioned(out, 1, 1, |out| {
                osd.encode(out);
                (-1_i8).encode(out); // no shard of an erasure-coded pool
            });
            encode_shard(object, shard, out);
        }
        union.encode(out);
    });
    out.into()
}

/// Ceph: `shard_info_wrapper` v3.
fn encode_shard(object: &ObjectId, shard: &Shard, out: &mut Vec<u8>) {
    versioned(out, 3, 3, |out| {
        shard.errors.encode(out);
        shard.primary.encode(out);
        if shard.errors & is::shard::MISSING != 0 {
            return;
        }
        let mut attrs: BTreeMap<Name, Bytes> = shard.attrs.clone();
        // Ours means nothing to clients; they look for Ceph's under the same name.
        let ours = attrs.remove(ATTR);
        let info = match shard.errors {
            errors if errors & is::shard::INFO_MISSING != 0 => None,
            // Clients show it as it is, and crash if there is none.
            errors if errors & is::shard::INFO_CORRUPTED != 0 => Some(ours.unwrap_or_default()),
            _ => Some(object_info(object, shard).into()),
        };
        attrs.extend(info.map(|info| (Name::new(ATTR), info)));
        attrs.encode(out);
        shard.size.encode(out);
        shard.omap_digest.is_some().encode(out);
        shard.omap_digest.unwrap_or_default().encode(out);
        shard.data_digest.is_some().encode(out);
        shard.data_digest.unwrap_or_default().encode(out);
        shard.selected.encode(out);
    });
}

/// Ceph: `object_info_t` v17.
fn object_info(object: &ObjectId, shard: &Shard) -> Vec<u8> {
    const FLAGS: u32 = 0;
    let mut out = Vec::new();
    versioned(&mut out, 17, 8, |out| {
        object.encode(out);
        let locator = ObjectLocator {
            key: object.key.clone(),
            namespace: object.namespace.clone(),
            ..ObjectLocator::new(object.pool)
        };
        locator.encode(out);
        0_u32.encode(out); // was a category
        shard.version.encode(out);
        Version::ZERO.encode(out); // the version before it
        ReqId::default().encode(out);
        shard.size.encode(out);
        shard.mtime.encode(out);
        match object.snap {
            SnapId::HEAD => ReqId::default().encode(out), // was a lock
            _ => 0_u32.encode(out),                       // was a list of snapshots
        }
        (0_u64, 0_u64).encode(out); // truncations: of CephFS alone
        false.encode(out); // lost
        0_u32.encode(out); // watchers, as they once were
        Version::new(Epoch(0), shard.user_version).encode(out);
        false.encode(out); // tmap
        0_u32.encode(out); // watchers
        FLAGS.encode(out);
        Utime::ZERO.encode(out); // of the OSD's own clock
        (u32::MAX, u32::MAX).encode(out); // digests, which the flags say are not there
        (0_u64, 0_u64).encode(out); // hints
        0_u32.encode(out);
    });
    out
}

/// Ceph: `inconsistent_snapset_wrapper` v2.
fn inconsistent_snapset(object: &ObjectId, bad: &BadSnaps, known: Option<&SnapSet>) -> Bytes {
    let mut out = Vec::new();
    versioned(&mut out, 2, 1, |out| {
        bad.errors.encode(out);
        object_id(object, out);
        bad.extra.encode(out);
        bad.missing.encode(out);
        known.map_or_else(Bytes::new, snapset).encode(out);
    });
    out.into()
}

/// Ceph: `SnapSet` v3.
fn snapset(set: &SnapSet) -> Bytes {
    let mut out = Vec::new();
    let of_clones = |out: &mut Vec<u8>, encode: &dyn Fn(&CloneInfo, &mut Vec<u8>)| {
        (set.clones.len() as u32).encode(out);
        for (snap, clone) in &set.clones {
            snap.encode(out);
            encode(clone, out);
        }
    };
    versioned(&mut out, 3, 2, |out| {
        set.seq.encode(out);
        true.encode(out); // there is a head
        0_u32.encode(out); // were the snapshots
        of_clones(out, &|_, _| {});
        of_clones(out, &|clone, out| clone.overlap.encode(out));
        of_clones(out, &|clone, out| clone.size.encode(out));
        of_clones(out, &|clone, out| clone.snaps.encode(out));
    });
    out.into()
}
