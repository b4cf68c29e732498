//! What gateways do to objects of a bucket themselves, besides plain operations.

use crate::record::record;
use crate::{Context, Reply, Stop, fail, input, ok};
use bytes::Bytes;
use nacre_base::errno::{ECANCELED, EINVAL, ENOENT};
use nacre_base::{Name, Utime};
use nacre_wire::{Decode, to_vec};
use std::collections::BTreeMap;

record!(RemoveRequest, "rgw_cls_obj_remove_op", 1, {
    /// Attributes that start with one of these stay, and with them the object.
    keep: Vec<Name>,
});
record!(StoreVersionRequest, "rgw_cls_obj_store_pg_ver_op", 1, { attr: Name });
record!(CheckAttrsRequest, "rgw_cls_obj_check_attrs_prefix", 1, { prefix: Name, fail_if_exist: bool });
record!(CheckTimeRequest, "rgw_cls_obj_check_mtime", 2, {
    time: Utime,
    relation: u8,
} since 2 {
    high_precision: bool,
});

fn attrs(ctx: &mut Context<'_>) -> Result<BTreeMap<Name, Bytes>, Stop> {
    match ctx.attrs() {
        Err(Stop::Failed(ENOENT)) => Ok(BTreeMap::new()),
        attrs => attrs,
    }
}

pub(crate) fn remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, RemoveRequest::decode)?;
    let kept = |name: &Name| request.keep.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()));
    let attrs = if request.keep.is_empty() { BTreeMap::new() } else { attrs(ctx)? };
    ctx.remove()?;
    for (name, value) in attrs.into_iter().filter(|(name, _)| kept(name)) {
        ctx.set_attr(&name, value)?;
    }
    ok()
}

pub(crate) fn store_version(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, StoreVersionRequest::decode)?;
    let (version, _) = ctx.version();
    ctx.set_attr(&request.attr, to_vec(&version))?;
    ok()
}

pub(crate) fn check_attrs(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, CheckAttrsRequest::decode)?;
    if request.prefix.is_empty() {
        return fail(EINVAL);
    }
    let prefix = request.prefix.as_bytes();
    let exist = attrs(ctx)?.keys().any(|name| name.as_bytes().starts_with(prefix));
    if exist == request.fail_if_exist { fail(ECANCELED) } else { ok() }
}

/// An object that does not exist is as old as time.
pub(crate) fn check_time(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, CheckTimeRequest::decode)?;
    let cut = |time: Utime| if request.high_precision { time } else { Utime { nsec: 0, ..time } };
    let have = cut(ctx.mtime().unwrap_or(Utime::ZERO));
    let given = cut(request.time);
    let holds = match request.relation {
        0 => have == given,
        1 => have < given,
        2 => have <= given,
        3 => have > given,
        4 => have >= given,
        _ => return fail(EINVAL),
    };
    if holds { ok() } else { fail(ECANCELED) }
}
