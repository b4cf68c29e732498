//! Clones: an image's parent, a snapshot's children.
//!
//! The first way to clone needs a protected snapshot and lists children in `rbd_children`; the
//! second lists them with the snapshot, which may be removed before them (`snapshot::trash_add`).

use super::features::{has_feature, require_feature, set_op_features};
use super::snapshot;
use super::types::{Child, KIND_TRASH, Parent, ParentSpec, Snap, features, op_features};
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::errno::{EEXIST, EINVAL, ENOENT, ENOEXEC, EXDEV};
use nacre_base::{Name, SnapId};
use nacre_wire::{Decode, DecodeError, Reader, to_vec};
use std::collections::BTreeSet;

fn load(ctx: &mut Context<'_>) -> Result<Option<Parent>, Stop> {
    ctx.get(&Name::from("parent"))
}

// ---- the clone's side ----

pub fn get(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    ctx.stat()?;
    let parent = if has_feature(ctx, features::LAYERING)? { load(ctx)? } else { None };
    output(&parent.map(|parent| parent.spec).unwrap_or_default())
}

pub fn get_overlap(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let snap = input(bytes, SnapId::decode)?;
    if !has_feature(ctx, features::LAYERING)? {
        return output(&None::<u64>);
    }
    output(&match snap {
        SnapId::HEAD => load(ctx)?.and_then(|parent| parent.head_overlap),
        snap => snapshot::load(ctx, snap.0)?.parent_overlap,
    })
}

/// For clients that know neither namespaces nor flattened images with unflattened snapshots.
pub fn get_legacy(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let snap = input(bytes, SnapId::decode)?;
    ctx.stat()?;
    let mut shown = None;
    if has_feature(ctx, features::LAYERING)? {
        let parent = load(ctx)?;
        if parent.as_ref().is_some_and(|parent| !parent.spec.namespace.is_empty()) {
            return fail(EXDEV);
        }
        let overlap = match snap {
            SnapId::HEAD => parent.as_ref().map(|parent| parent.head_overlap.unwrap_or(0)),
            snap => ctx.get::<Snap>(&snapshot::key(snap.0))?.and_then(|snap| snap.parent_overlap),
        };
        if let Some(overlap) = overlap {
            let parent = parent.filter(Parent::exists).ok_or(Stop::Failed(EINVAL))?;
            shown = Some((parent.spec, overlap));
        }
    }
    let (spec, overlap) = shown.unwrap_or_default();
    output(&(spec.pool, (spec.image, (spec.snap, overlap))))
}

fn attach_to(ctx: &mut Context<'_>, spec: ParentSpec, overlap: u64, again: bool) -> Reply {
    ctx.stat()?;
    require_feature(ctx, features::LAYERING)?;
    if !spec.exists() || overlap == 0 {
        return fail(EINVAL);
    }
    if let Some(before) = load(ctx)?
        && (before.head_overlap.is_some() || before.spec != spec)
        && !again
    {
        return fail(EEXIST);
    }
    let size: u64 = ctx.need(&Name::from("size"))?;
    ctx.set(&Name::from("parent"), &Parent { spec, head_overlap: Some(overlap.min(size)) })?;
    ok()
}

pub fn attach(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (spec, overlap, again) = input(bytes, |r| {
        let (spec, overlap) = <(ParentSpec, u64)>::decode(r)?;
        let again = if r.is_empty() { false } else { bool::decode(r)? };
        Ok((spec, overlap, again))
    })?;
    attach_to(ctx, spec, overlap, again)
}

pub fn set_legacy(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (spec, overlap) = input(bytes, |r| {
        let pool = i64::decode(r)?;
        let image = Name::decode(r)?;
        let spec = ParentSpec { pool, namespace: Name::default(), image, snap: u64::decode(r)? };
        Ok((spec, u64::decode(r)?))
    })?;
    attach_to(ctx, spec, overlap, false)
}

pub fn detach(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    detach_from(ctx, false)
}

pub fn remove_legacy(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    detach_from(ctx, true)
}

fn detach_from(ctx: &mut Context<'_>, legacy: bool) -> Reply {
    ctx.stat()?;
    let have = ctx.get::<u64>(&Name::from("features"))?.unwrap_or(0);
    if have & features::LAYERING == 0 {
        return fail(ENOEXEC);
    }
    let parent = load(ctx)?.ok_or(Stop::Failed(ENOENT))?;
    if legacy && !parent.spec.namespace.is_empty() {
        return fail(EXDEV);
    }
    if parent.head_overlap.is_none() {
        return fail(ENOENT);
    }
    let child_snaps: Vec<Snap> =
        snapshot::all(ctx)?.into_iter().filter(|snap| snap.parent_overlap.is_some()).collect();
    let deep = have & features::DEEP_FLATTEN != 0;
    if child_snaps.is_empty() || deep {
        for snap in child_snaps {
            snapshot::save(ctx, &Snap { parent_overlap: None, ..snap })?;
        }
        ctx.unset(&Name::from("parent"))?;
        set_op_features(ctx, 0, op_features::CLONE_CHILD)?;
    } else {
        // Snapshots still show the parent.
        ctx.set(&Name::from("parent"), &Parent { head_overlap: None, ..parent })?;
    }
    ok()
}

// ---- the parent's side, second way ----

fn children_key(snap: u64) -> Name {
    Name::from(format!("snap_children_{snap:016x}"))
}

pub fn child_attach(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, child) = input(bytes, <(u64, Child)>::decode)?;
    let mut snap = snapshot::load(ctx, id)?;
    if snap.namespace.kind() == KIND_TRASH {
        return fail(ENOENT);
    }
    let key = children_key(id);
    let mut children = ctx.get::<BTreeSet<Child>>(&key)?.unwrap_or_default();
    if !children.insert(child) {
        return fail(EEXIST);
    }
    ctx.set(&key, &children)?;
    snap.child_count = snap.child_count.saturating_add(1);
    snapshot::save(ctx, &snap)?;
    set_op_features(ctx, op_features::CLONE_PARENT, op_features::CLONE_PARENT)?;
    ok()
}

pub fn child_detach(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, child) = input(bytes, <(u64, Child)>::decode)?;
    let mut snap = snapshot::load(ctx, id)?;
    let key = children_key(id);
    let mut children = ctx.get::<BTreeSet<Child>>(&key)?.unwrap_or_default();
    if snap.child_count as usize != children.len() {
        return fail(EINVAL);
    }
    if !children.remove(&child) {
        return fail(ENOENT);
    }
    if children.is_empty() {
        ctx.unset(&key)?;
    } else {
        ctx.set(&key, &children)?;
    }
    snap.child_count -= 1;
    snapshot::save(ctx, &snap)?;
    if snap.child_count == 0 && !snapshot::others(ctx, id)?.iter().any(|other| other.child_count > 0) {
        set_op_features(ctx, 0, op_features::CLONE_PARENT)?;
    }
    ok()
}

pub fn children_list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, u64::decode)?;
    snapshot::load(ctx, id)?;
    output(&ctx.need::<BTreeSet<Child>>(&children_key(id))?)
}

// ---- rbd_children, first way ----

/// Pool, image and snapshot as they are encoded are themselves the key.
fn parent_key(r: &mut Reader<'_>) -> Result<Name, DecodeError> {
    Ok(Name::new(to_vec(&<(u64, (Name, u64))>::decode(r)?)))
}

fn parent_and_child(r: &mut Reader<'_>) -> Result<(Name, Name), DecodeError> {
    Ok((parent_key(r)?, Name::decode(r)?))
}

pub fn add_child(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (key, child) = input(bytes, parent_and_child)?;
    let mut children = ctx.get::<BTreeSet<Name>>(&key)?.unwrap_or_default();
    if !children.insert(child) {
        return fail(EEXIST);
    }
    ctx.set(&key, &children)?;
    ok()
}

pub fn remove_child(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (key, child) = input(bytes, parent_and_child)?;
    let mut children: BTreeSet<Name> = ctx.need(&key)?;
    if !children.remove(&child) {
        return fail(ENOENT);
    }
    if children.is_empty() {
        ctx.omap_remove(&key)?;
    } else {
        ctx.set(&key, &children)?;
    }
    ok()
}

pub fn get_children(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let key = input(bytes, parent_key)?;
    output(&ctx.need::<BTreeSet<Name>>(&key)?)
}
