//! What an image's header says that the image can do, and what was done to it that older clients do not
//! understand.

use super::types::{features, op_features};
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::Name;
use nacre_base::errno::{EINVAL, ENOEXEC};
use nacre_wire::Decode;

/// ENOEXEC if the image lacks a feature, or is of the first format, which has none.
pub fn require_feature(ctx: &mut Context<'_>, feature: u64) -> Result<(), Stop> {
    let have = ctx.get::<u64>(&Name::from("features"))?.unwrap_or(0);
    if have & feature == feature { Ok(()) } else { fail(ENOEXEC) }
}

pub fn has_feature(ctx: &mut Context<'_>, feature: u64) -> Result<bool, Stop> {
    match require_feature(ctx, feature) {
        Err(Stop::Failed(ENOEXEC)) => Ok(false),
        result => result.map(|()| true),
    }
}

pub fn get_features(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let read_only = input(bytes, |r| {
        let _snap = u64::decode(r)?;
        if r.is_empty() { Ok(false) } else { bool::decode(r) }
    })?;
    let have: u64 = ctx.need(&Name::from("features"))?;
    let mask = if read_only { features::INCOMPATIBLE } else { features::RW_INCOMPATIBLE };
    output(&(have, have & mask))
}

pub fn set_features(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (wanted, mask) = input(bytes, <(u64, u64)>::decode)?;
    let key = Name::from("features");
    let have: u64 = ctx.get(&key)?.unwrap_or(0);
    if mask & features::INTERNAL != 0 {
        return fail(EINVAL);
    }
    let mask = mask & features::ALL; // newer clients may clear what we do not know
    let (enabled, disabled) = (wanted & mask, !wanted & mask);
    if enabled & !features::MUTABLE != 0 || disabled & !(features::MUTABLE | features::DISABLE_ONLY) != 0 {
        return fail(EINVAL);
    }
    ctx.set(&key, &((have & !mask) | enabled))?;
    ok()
}

pub fn get_all_features(_: &mut Context<'_>, _: &[u8]) -> Reply {
    output(&features::ALL)
}

pub fn op_features_get(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    output(&ctx.get::<u64>(&Name::from("op_features"))?.unwrap_or(0))
}

pub fn op_features_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (wanted, mask) = input(bytes, <(u64, u64)>::decode)?;
    if mask & !op_features::ALL != 0 {
        return fail(EINVAL);
    }
    set_op_features(ctx, wanted, mask)?;
    ok()
}

/// Also keeps the feature that says whether there are any.
pub fn set_op_features(ctx: &mut Context<'_>, wanted: u64, mask: u64) -> Result<(), Stop> {
    let (features_key, key) = (Name::from("features"), Name::from("op_features"));
    let have_features: u64 = ctx.need(&features_key)?;
    let have: u64 = ctx.get(&key)?.unwrap_or(0);
    let next = (have & !mask) | (wanted & mask);
    if next == have {
        return Ok(());
    }
    let next_features = if next == 0 {
        ctx.unset(&key)?;
        have_features & !features::OPERATIONS
    } else {
        ctx.set(&key, &next)?;
        have_features | features::OPERATIONS
    };
    if next_features != have_features {
        ctx.set(&features_key, &next_features)?;
    }
    Ok(())
}
