//! Groups of images that are snapshot together.

use super::features::set_op_features;
use super::types::{GroupImage, GroupImageStatus, GroupSnap, GroupSpec, op_features};
use crate::context::{key, stored};
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::Name;
use nacre_base::errno::{EBADF, EEXIST, EINVAL, EIO, ENOENT};
use nacre_wire::Decode;

const IMAGE: &str = "image_";
const SNAP: &str = "snapshot_";
/// The order in which a group's snapshots were made: a number for each, and the last one given.
const SNAP_ORDER: &str = "snap_order_";
const SNAP_MAX_ORDER: &str = "snap_max_order";
/// In an image's header: the group that it is in.
const REFERENCE: &str = "rbd_group_ref";

const SNAP_INCOMPLETE: u8 = 0;

// ---- a group's images ----

/// `POOL_ID`, the pool as 16 hex digits.
fn image_suffix(image: &GroupImage) -> Name {
    if image.pool == -1 {
        return Name::default();
    }
    Name::new([format!("{:016x}_", image.pool).as_bytes(), image.image.as_bytes()].concat())
}

fn image_from_suffix(suffix: &Name) -> Result<GroupImage, Stop> {
    let text = suffix.to_text();
    let (pool, image) = text.split_once('_').ok_or(Stop::Failed(EIO))?;
    let pool = u64::from_str_radix(pool, 16).map_err(|_| Stop::Failed(EIO))?;
    Ok(GroupImage { image: Name::from(image), pool: pool as i64 })
}

pub fn image_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let status = input(bytes, GroupImageStatus::decode)?;
    if status.image.pool == -1 {
        return fail(EINVAL);
    }
    ctx.set(&key(IMAGE, &image_suffix(&status.image)), &status.state)?;
    ok()
}

pub fn image_remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let image = input(bytes, GroupImage::decode)?;
    ctx.omap_remove(&key(IMAGE, &image_suffix(&image)))?;
    ok()
}

pub fn image_list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(GroupImage, u64)>::decode)?;
    let pairs = ctx.list(IMAGE, image_suffix(&after).as_bytes(), max)?;
    let images: Result<Vec<GroupImageStatus>, Stop> = pairs
        .iter()
        .map(|(suffix, state)| {
            Ok(GroupImageStatus { image: image_from_suffix(suffix)?, state: stored(state)? })
        })
        .collect();
    output(&images?)
}

// ---- an image's group ----

fn reference(ctx: &mut Context<'_>) -> Result<Option<GroupSpec>, Stop> {
    match ctx.omap_get(&Name::from(REFERENCE))? {
        Some(bytes) => input(&bytes, GroupSpec::decode).map(Some),
        None => Ok(None),
    }
}

pub fn add_image_to(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let group = input(bytes, GroupSpec::decode)?;
    match reference(ctx)? {
        Some(before) if before == group => return ok(),
        Some(_) => return fail(EEXIST),
        None => {}
    }
    set_op_features(ctx, op_features::GROUP, op_features::GROUP)?;
    ctx.set(&Name::from(REFERENCE), &group)?;
    ok()
}

pub fn remove_image_from(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let group = input(bytes, GroupSpec::decode)?;
    if reference(ctx)?.ok_or(Stop::Failed(ENOENT))? != group {
        return fail(EBADF);
    }
    ctx.omap_remove(&Name::from(REFERENCE))?;
    set_op_features(ctx, 0, op_features::GROUP)?;
    ok()
}

pub fn of_image(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let none = GroupSpec { pool: -1, group: Name::default() };
    output(&reference(ctx)?.unwrap_or(none))
}

// ---- a group's snapshots ----

pub fn snap_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let snap = input(bytes, GroupSnap::decode)?;
    if snap.name.is_empty() || snap.id.is_empty() {
        return fail(EINVAL);
    }
    let others = ctx.list_all::<GroupSnap>(SNAP)?;
    if others.iter().any(|(_, other)| other.name == snap.name && other.id != snap.id) {
        return fail(EEXIST);
    }
    let snap_key = key(SNAP, &snap.id);
    if snap.state == SNAP_INCOMPLETE {
        let order_key = key(SNAP_ORDER, &snap.id);
        if ctx.omap_get(&snap_key)?.is_some() || ctx.omap_get(&order_key)?.is_some() {
            return fail(EEXIST);
        }
        let last = Name::from(SNAP_MAX_ORDER);
        let order = ctx.get::<u64>(&last)?.unwrap_or(0).wrapping_add(1);
        ctx.set(&last, &order)?;
        ctx.set(&order_key, &order)?;
    }
    ctx.set(&snap_key, &snap)?;
    ok()
}

pub fn snap_remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, Name::decode)?;
    ctx.omap_remove(&key(SNAP, &id))?;
    ctx.omap_remove(&key(SNAP_ORDER, &id))?;
    ok()
}

pub fn snap_get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, Name::decode)?;
    output(&ctx.need::<GroupSnap>(&key(SNAP, &id))?)
}

pub fn snap_list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(GroupSnap, u64)>::decode)?;
    let pairs = ctx.list(SNAP, after.id.as_bytes(), max)?;
    let snaps: Result<Vec<GroupSnap>, Stop> = pairs.iter().map(|(_, snap)| stored(snap)).collect();
    output(&snaps?)
}

/// The numbers of a page of snapshots by their ids. Snapshots of groups from before there were numbers have
/// none.
pub fn snap_list_order(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(Name, u64)>::decode)?;
    let pairs = ctx.list(SNAP_ORDER, after.as_bytes(), max)?;
    let orders: Result<Vec<(Name, u64)>, Stop> =
        pairs.into_iter().map(|(id, order)| Ok((id, stored(&order)?))).collect();
    output(&orders?)
}
