//! Objects that are to be removed later, as gateways kept them before there were queues (class `rgw_gc`).
//! Each chain of objects is there twice: under its tag and under its time.

use super::types::ObjectKey;
use crate::record::record;
use crate::{Context, Reply, Stop, input, ok, output};
use nacre_base::{Name, Utime};
use nacre_wire::{Decode, to_vec};
use std::time::Duration;

record!(Tail, "cls_rgw_obj", 2, {
    pool: Name,
    name: Name,
    locator: Name,
} since 2 {
    key: ObjectKey,
});
record!(#[derive(Default)] Chain, "cls_rgw_obj_chain", 1, { objects: Vec<Tail> });
record!(
    /// Objects to remove, and when.
    Garbage, "cls_rgw_gc_obj_info", 1, { tag: Name, chain: Chain, time: Utime });
record!(SetRequest, "cls_rgw_gc_set_entry_op", 1, { seconds: u32, garbage: Garbage });
record!(DeferRequest, "cls_rgw_gc_defer_entry_op", 1, { seconds: u32, tag: Name });
record!(ListRequest, "cls_rgw_gc_list_op", 2, {
    marker: Name,
    max: u32,
} since 2 {
    expired_only: bool,
});
record!(ListReply, "cls_rgw_gc_list_ret", 2, { garbage: Vec<Garbage>, next: Name, truncated: bool });
record!(RemoveRequest, "cls_rgw_gc_remove_op", 1, { tags: Vec<Name> });

pub(crate) const LIST_DEFAULT: u32 = 128;
const TIMES: &[u8] = b"1_";

fn by_tag(tag: &Name) -> Name {
    crate::context::key("0_", tag)
}
fn by_time(time: Utime) -> Name {
    Name::from(format!("1_{:011}.{:09}", time.sec, time.nsec))
}

fn put(ctx: &mut Context<'_>, mut garbage: Garbage, seconds: u32) -> Reply {
    let before = ctx.get::<Garbage>(&by_tag(&garbage.tag))?;
    garbage.time = ctx.now() + Duration::from_secs(seconds.into());
    let at = by_time(garbage.time);
    if let Some(old) = before.map(|before| by_time(before.time)).filter(|old| *old != at) {
        ctx.unset(&old)?;
    }
    let value: bytes::Bytes = to_vec(&garbage).into();
    ctx.omap_set_all(&[(by_tag(&garbage.tag), value.clone()), (at, value)].into())?;
    ok()
}

pub(crate) fn set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, SetRequest::decode)?;
    put(ctx, request.garbage, request.seconds)
}

pub(crate) fn defer(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, DeferRequest::decode)?;
    let garbage = ctx.need(&by_tag(&request.tag))?;
    put(ctx, garbage, request.seconds)
}

pub(crate) fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ListRequest::decode)?;
    let max = if request.max == 0 { LIST_DEFAULT } else { request.max };
    let end = by_time(ctx.now());
    let page = ctx.page(request.marker.as_bytes(), TIMES, max.into())?;
    let mut reply = ListReply { garbage: Vec::new(), next: Name::default(), truncated: page.more };
    for (key, value) in page.pairs {
        if request.expired_only && key >= end {
            reply.truncated = false;
            break;
        }
        reply.garbage.push(crate::context::stored(&value)?);
        reply.next = key;
    }
    if !reply.truncated {
        reply.next = Name::default();
    }
    output(&reply)
}

fn keys_of(ctx: &mut Context<'_>, tag: &Name) -> Result<Vec<Name>, Stop> {
    let garbage = ctx.get::<Garbage>(&by_tag(tag))?;
    Ok(garbage.map_or_else(Vec::new, |garbage| vec![by_tag(tag), by_time(garbage.time)]))
}

pub(crate) fn remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, RemoveRequest::decode)?;
    let mut keys = std::collections::BTreeSet::new();
    for tag in &request.tags {
        keys.extend(keys_of(ctx, tag)?);
    }
    ctx.omap_remove_all(&keys)?;
    ok()
}
