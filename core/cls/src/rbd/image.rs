//! An image's header: size, flags, timestamps; and the object that names its id.

use super::features::require_feature;
use super::is_valid_id;
use super::snapshot;
use super::types::{Parent, features};
use crate::context::stored;
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::errno::{EEXIST, EINVAL, EIO, ENOENT, ENOSYS};
use nacre_base::{Name, SnapId, Utime};
use nacre_wire::{Decode, Encode, to_vec};

const ID_LEN_MAX: u64 = 4096;

pub fn create(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (size, order, features, prefix, data_pool) = input(bytes, |r| {
        let size = u64::decode(r)?;
        let order = u8::decode(r)?;
        let features = u64::decode(r)?;
        let prefix = Name::decode(r)?;
        let data_pool = if r.is_empty() { -1 } else { i64::decode(r)? };
        Ok((size, order, features, prefix, data_pool))
    })?;
    if features & !features::ALL != 0 {
        return fail(ENOSYS);
    }
    if prefix.is_empty() {
        return fail(EINVAL);
    }
    if ctx.omap_get(&Name::from("object_prefix"))?.is_some() {
        return fail(EEXIST);
    }
    let wants_data_pool = features & features::DATA_POOL != 0;
    if features & features::OPERATIONS != 0 || wants_data_pool != (data_pool != -1) {
        return fail(EINVAL);
    }
    let now = to_vec(&ctx.now());
    let mut pairs = vec![
        ("size", to_vec(&size)),
        ("order", to_vec(&order)),
        ("features", to_vec(&features)),
        ("object_prefix", to_vec(&prefix)),
        ("snap_seq", to_vec(&0_u64)),
        ("create_timestamp", now.clone()),
        ("access_timestamp", now.clone()),
        ("modify_timestamp", now),
    ];
    if wants_data_pool {
        pairs.push(("data_pool_id", to_vec(&data_pool)));
    }
    let pairs = pairs.into_iter().map(|(name, value)| (Name::from(name), value.into())).collect();
    ctx.omap_set_all(&pairs)?;
    ok()
}

// ---- size, flags, places ----

pub fn get_size(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let snap = input(bytes, SnapId::decode)?;
    let order: u8 = ctx.need(&Name::from("order"))?;
    let size = match snap {
        SnapId::HEAD => ctx.need(&Name::from("size"))?,
        snap => snapshot::load(ctx, snap.0)?.image_size,
    };
    output(&(order, size))
}

pub fn set_size(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let size = input(bytes, u64::decode)?;
    let before: u64 = ctx.need(&Name::from("size"))?;
    ctx.set(&Name::from("size"), &size)?;
    // What was cut off no longer shows the parent, even if the image grows again.
    let key = Name::from("parent");
    if size < before
        && let Some(mut parent) = ctx.get::<Parent>(&key)?
        && parent.exists()
        && parent.head_overlap.is_some_and(|overlap| overlap > size)
    {
        parent.head_overlap = Some(size);
        ctx.set(&key, &parent)?;
    }
    ok()
}

pub fn get_object_prefix(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    output(&ctx.need::<Name>(&Name::from("object_prefix"))?)
}

pub fn get_data_pool(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    output(&ctx.get::<i64>(&Name::from("data_pool_id"))?.unwrap_or(-1))
}

pub fn get_flags(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    match input(bytes, SnapId::decode)? {
        SnapId::HEAD => output(&ctx.get::<u64>(&Name::from("flags"))?.unwrap_or(0)),
        snap => output(&snapshot::load(ctx, snap.0)?.flags),
    }
}

pub fn set_flags(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (wanted, mask, snap) = input(bytes, |r| {
        let (wanted, mask) = <(u64, u64)>::decode(r)?;
        let snap = if r.is_empty() { SnapId::HEAD } else { SnapId::decode(r)? };
        Ok((wanted, mask, snap))
    })?;
    let merge = |have: u64| (have & !mask) | (wanted & mask);
    if snap == SnapId::HEAD {
        let key = Name::from("flags");
        let have = ctx.get(&key)?.unwrap_or(0);
        ctx.set(&key, &merge(have))?;
    } else {
        let mut snap = snapshot::load(ctx, snap.0)?;
        snap.flags = merge(snap.flags);
        snapshot::save(ctx, &snap)?;
    }
    ok()
}

pub fn get_stripe_unit_count(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    ctx.stat()?;
    require_feature(ctx, features::STRIPING)?;
    let unit = match ctx.get::<u64>(&Name::from("stripe_unit"))? {
        Some(unit) => unit,
        None => match ctx.get::<u8>(&Name::from("order"))? {
            Some(order) => 1_u64.checked_shl(order.into()).ok_or(Stop::Failed(EIO))?,
            None => return fail(EIO),
        },
    };
    let count = ctx.get::<u64>(&Name::from("stripe_count"))?.unwrap_or(1);
    output(&(unit, count))
}

pub fn set_stripe_unit_count(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (unit, count) = input(bytes, <(u64, u64)>::decode)?;
    if unit == 0 || count == 0 {
        return fail(EINVAL);
    }
    ctx.stat()?;
    require_feature(ctx, features::STRIPING)?;
    let order: u8 = ctx.need(&Name::from("order"))?;
    let object_size = 1_u64.checked_shl(order.into()).ok_or(Stop::Failed(EINVAL))?;
    if !object_size.is_multiple_of(unit) {
        return fail(EINVAL);
    }
    ctx.set(&Name::from("stripe_unit"), &unit)?;
    ctx.set(&Name::from("stripe_count"), &count)?;
    ok()
}

// ---- timestamps ----

fn timestamp(ctx: &mut Context<'_>, name: &str) -> Reply {
    output(&ctx.get::<Utime>(&Name::from(name))?.unwrap_or_default())
}
pub fn get_create_timestamp(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    timestamp(ctx, "create_timestamp")
}
pub fn get_access_timestamp(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    timestamp(ctx, "access_timestamp")
}
pub fn get_modify_timestamp(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    timestamp(ctx, "modify_timestamp")
}

fn stamp(ctx: &mut Context<'_>, name: &str) -> Reply {
    ctx.stat()?;
    let now = ctx.now();
    ctx.set(&Name::from(name), &now)?;
    ok()
}
pub fn set_access_timestamp(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    stamp(ctx, "access_timestamp")
}
pub fn set_modify_timestamp(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    stamp(ctx, "modify_timestamp")
}

// ---- rbd_id ----

pub fn get_id(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let size = ctx.stat()?;
    if size == 0 {
        return fail(ENOENT);
    }
    let bytes = ctx.read(0, size.min(ID_LEN_MAX))?;
    output(&stored::<Name>(&bytes)?)
}

pub fn set_id(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let size = ctx.stat()?;
    let id = input(bytes, Name::decode)?;
    if !is_valid_id(&id) {
        return fail(EINVAL);
    }
    if size != 0 {
        return fail(EEXIST);
    }
    let mut out = Vec::new();
    id.encode(&mut out);
    ctx.write(0, out)?;
    ok()
}
