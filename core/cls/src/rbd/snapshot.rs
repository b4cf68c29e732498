//! An image's snapshots: one key each, `snapshot_` and the id in hex.

use super::features::{require_feature, set_op_features};
use super::types::{KIND_TRASH, KIND_USER, Parent, Snap, SnapInfo, SnapNamespace, features, op_features};
use super::{old, uuid};
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::errno::{EBUSY, EDQUOT, EEXIST, EINVAL, EIO, EOPNOTSUPP, ERANGE, ESTALE};
use nacre_base::{Name, SnapId};
use nacre_wire::{Decode, to_vec};

pub const PREFIX: &str = "snapshot_";

const UNPROTECTED: u8 = 0;
const PROTECTED: u8 = 2;

/// Ceph: `CEPH_MAXSNAP`, the largest id that a snapshot can have.
const ID_MAX: u64 = SnapId::HEAD.0 - 1;

pub fn key(id: u64) -> Name {
    Name::from(format!("{PREFIX}{id:016x}"))
}

/// ENOENT if there is none with that id.
pub fn load(ctx: &mut Context<'_>, id: u64) -> Result<Snap, Stop> {
    ctx.need(&key(id))
}

pub fn save(ctx: &mut Context<'_>, snap: &Snap) -> Result<(), Stop> {
    ctx.set(&key(snap.id), snap)
}

/// All of them, oldest first.
pub fn all(ctx: &mut Context<'_>) -> Result<Vec<Snap>, Stop> {
    Ok(ctx.list_all(PREFIX)?.into_iter().map(|(_, snap)| snap).collect())
}
/// All but one, which the call under way changes or removes: it does not see what it wrote.
pub fn others(ctx: &mut Context<'_>, id: u64) -> Result<Vec<Snap>, Stop> {
    Ok(all(ctx)?.into_iter().filter(|other| other.id != id).collect())
}

/// A snapshot's id in a request; the image itself is not meant.
fn id_of(bytes: &[u8]) -> Result<u64, Stop> {
    match input(bytes, SnapId::decode)? {
        SnapId::HEAD => fail(EINVAL),
        snap => Ok(snap.0),
    }
}

fn ids(ctx: &mut Context<'_>) -> Result<Vec<u64>, Stop> {
    let keys = ctx.list(PREFIX, b"", u64::MAX)?;
    keys.iter()
        .map(|(hex, _)| u64::from_str_radix(&hex.to_text(), 16).map_err(|_| Stop::Failed(EIO)))
        .collect()
}

pub fn get_snapcontext(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let newest_first: Vec<u64> = ids(ctx)?.into_iter().rev().collect();
    let seq: u64 = ctx.need(&Name::from("snap_seq"))?;
    output(&(seq, newest_first))
}

pub fn get_name(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = id_of(bytes)?;
    output(&load(ctx, id)?.name)
}

pub fn get_timestamp(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = id_of(bytes)?;
    output(&load(ctx, id)?.timestamp)
}

pub fn get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = id_of(bytes)?;
    output(&SnapInfo(&load(ctx, id)?))
}

pub fn add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (name, id, namespace) = input(bytes, |r| {
        let (name, id) = <(Name, u64)>::decode(r)?;
        let namespace = if r.is_empty() { SnapNamespace::User } else { SnapNamespace::decode(r)? };
        Ok((name, id, namespace))
    })?;
    if namespace == SnapNamespace::Unknown || id > ID_MAX {
        return fail(EINVAL);
    }
    let seq: u64 = ctx.need(&Name::from("snap_seq"))?;
    if id < seq {
        return fail(ESTALE); // another client made a newer one
    }
    let image_size = ctx.need(&Name::from("size"))?;
    let flags = ctx.get(&Name::from("flags"))?.unwrap_or(0);
    let limit = ctx.get(&Name::from("snap_limit"))?.unwrap_or(u64::MAX);
    for (before, other) in all(ctx)?.iter().enumerate() {
        if before as u64 + 1 >= limit {
            return fail(EDQUOT);
        }
        if (other.name == name && other.namespace == namespace) || other.id == id {
            return fail(EEXIST);
        }
    }
    let parent_overlap = ctx.get::<Parent>(&Name::from("parent"))?.and_then(|parent| parent.head_overlap);
    if namespace.kind() == KIND_TRASH {
        set_op_features(ctx, op_features::SNAP_TRASH, op_features::SNAP_TRASH)?;
    }
    ctx.set(&Name::from("snap_seq"), &id)?;
    let timestamp = ctx.now();
    let snap = Snap {
        id,
        name,
        image_size,
        protection: UNPROTECTED,
        flags,
        namespace,
        timestamp,
        child_count: 0,
        parent_overlap,
    };
    save(ctx, &snap)?;
    ok()
}

pub fn rename(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, name) = input(bytes, <(u64, Name)>::decode)?;
    if all(ctx)?.iter().any(|snap| snap.namespace.kind() == KIND_USER && snap.name == name) {
        return fail(EEXIST);
    }
    let snap = load(ctx, id)?;
    if snap.namespace.kind() != KIND_USER {
        return fail(EINVAL);
    }
    save(ctx, &Snap { name, ..snap })?;
    ok()
}

pub fn remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, u64::decode)?;
    let snap = load(ctx, id)?;
    if snap.protection != UNPROTECTED || snap.child_count > 0 {
        return fail(EBUSY);
    }
    ctx.unset(&key(id))?;
    let others = others(ctx, id)?;
    let child_snaps = others.iter().any(|snap| snap.parent_overlap.is_some());
    let trash_snaps = others.iter().any(|snap| snap.namespace.kind() == KIND_TRASH);
    let parent = ctx.get::<Parent>(&Name::from("parent"))?.filter(Parent::exists);
    let head_is_child = parent.as_ref().is_some_and(|parent| parent.head_overlap.is_some());
    let mut unused = 0;
    if !child_snaps && !head_is_child {
        unused |= op_features::CLONE_CHILD;
    }
    if !trash_snaps {
        unused |= op_features::SNAP_TRASH;
    }
    if parent.is_some() && !head_is_child && !child_snaps {
        ctx.unset(&Name::from("parent"))?;
    }
    if unused != 0 {
        set_op_features(ctx, 0, unused)?;
    }
    ok()
}

/// Hides a snapshot that clones still need.
pub fn trash_add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, u64::decode)?;
    let snap = load(ctx, id)?;
    if snap.protection != UNPROTECTED {
        return fail(EBUSY);
    }
    let original_kind = snap.namespace.kind();
    if original_kind == KIND_TRASH {
        return fail(EEXIST);
    }
    set_op_features(ctx, op_features::SNAP_TRASH, op_features::SNAP_TRASH)?;
    let namespace = SnapNamespace::Trash { original_name: snap.name.clone(), original_kind };
    let name = uuid(ctx);
    save(ctx, &Snap { name, namespace, ..snap })?;
    ok()
}

pub fn get_protection(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, u64::decode)?;
    ctx.stat()?;
    if id == SnapId::HEAD.0 {
        return fail(EINVAL);
    }
    match load(ctx, id)?.protection {
        protection if protection > PROTECTED => fail(EIO),
        protection => output(&protection),
    }
}

pub fn set_protection(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, protection) = input(bytes, <(u64, u8)>::decode)?;
    ctx.stat()?;
    require_feature(ctx, features::LAYERING)?;
    if id == SnapId::HEAD.0 || protection > PROTECTED {
        return fail(EINVAL);
    }
    let snap = load(ctx, id)?;
    save(ctx, &Snap { protection, ..snap })?;
    ok()
}

pub fn get_limit(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    output(&ctx.get(&Name::from("snap_limit"))?.unwrap_or(u64::MAX))
}

/// On images of either format.
pub fn set_limit(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let limit = input(bytes, u64::decode)?;
    let key = Name::from("snap_limit");
    if limit == u64::MAX {
        ctx.omap_remove(&key)?;
        return ok();
    }
    let count = match old::count(ctx)? {
        Some(count) => count,
        None => ctx.list(PREFIX, b"", u64::MAX)?.len() as u64,
    };
    if limit < count {
        return fail(ERANGE);
    }
    ctx.omap_set(&key, to_vec(&limit))?;
    ok()
}

/// Whether a writer's snapshot context is newer than what this object has seen, or not.
pub fn assert_snapc_seq(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (seq, state) = input(bytes, <(u64, u8)>::decode)?;
    let newer = ctx.snap_seq().is_none_or(|seen| seq > seen);
    let holds = match state {
        0 => newer,
        1 => !newer,
        _ => return fail(EOPNOTSUPP),
    };
    if holds { ok() } else { fail(ERANGE) }
}
