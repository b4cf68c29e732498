//! The header of a journal, as librbd's journaling keeps it, and appends to its objects.
//! Ceph: `cls_journal`.
//!
//! Entries carry tags; a tag names the writer. A client (a reader such as the image itself or a
//! mirror) says up to where it has read; tags that no client needs any more are forgotten.

use crate::context::{key, stored};
use crate::record::record;
use crate::{Class, Context, Reply, Stop, fail, input, ok, output, r, rw};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::{EEXIST, EINVAL, ENOENT, EOVERFLOW, ESTALE};
use nacre_wire::{Decode, to_vec};
use std::collections::{BTreeMap, BTreeSet};

pub const CLASS: Class = Class {
    name: "journal",
    methods: &[
        rw("create", create),
        r("get_order", |ctx, _| answer::<u8>(ctx, ORDER)),
        r("get_splay_width", |ctx, _| answer::<u8>(ctx, SPLAY_WIDTH)),
        r("get_pool_id", |ctx, _| answer::<i64>(ctx, POOL_ID)),
        r("get_minimum_set", |ctx, _| answer::<u64>(ctx, MINIMUM_SET)),
        rw("set_minimum_set", set_minimum_set),
        r("get_active_set", |ctx, _| answer::<u64>(ctx, ACTIVE_SET)),
        rw("set_active_set", set_active_set),
        r("get_client", get_client),
        rw("client_register", client_register),
        rw("client_update_data", client_update_data),
        rw("client_update_state", client_update_state),
        rw("client_unregister", client_unregister),
        rw("client_commit", client_commit),
        r("client_list", client_list),
        r("get_next_tag_tid", |ctx, _| answer::<u64>(ctx, NEXT_TAG_TID)),
        r("get_tag", get_tag),
        rw("tag_create", tag_create),
        r("tag_list", tag_list),
        rw("guard_append", guard_append),
        rw("append", append),
    ],
};

const ORDER: &str = "order";
const SPLAY_WIDTH: &str = "splay_width";
const POOL_ID: &str = "pool_id";
const MINIMUM_SET: &str = "minimum_set";
const ACTIVE_SET: &str = "active_set";
const NEXT_TAG_TID: &str = "next_tag_tid";
const NEXT_TAG_CLASS: &str = "next_tag_class";
const CLIENT: &str = "client_";
const TAG: &str = "tag_";

const DISCONNECTED: u8 = 1;
/// In a request for a tag: of a class of its own.
const CLASS_NEW: u64 = u64::MAX;

record!(Position, "ObjectPosition", 1, { object: u64, tag: u64, entry: u64 });
record!(SetPosition, "ObjectSetPosition", 1, { objects: Vec<Position> });
record!(Client, "cls::journal::Client", 1, { id: Name, data: Bytes, position: SetPosition, state: u8 });
record!(Tag, "cls::journal::Tag", 1, { tid: u64, class: u64, data: Bytes });

fn tag_key(tid: u64) -> Name {
    Name::from(format!("{TAG}{tid:016x}"))
}

fn header<T: Decode>(ctx: &mut Context<'_>, name: &str) -> Result<T, Stop> {
    match ctx.omap_get(&Name::from(name))? {
        // Here it is EINVAL if what is stored does not decode.
        Some(bytes) => input(&bytes, T::decode),
        None => fail(ENOENT),
    }
}

fn answer<T: Decode + nacre_wire::Encode>(ctx: &mut Context<'_>, name: &str) -> Reply {
    output(&header::<T>(ctx, name)?)
}

fn create(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (order, (splay_width, pool)) = input(bytes, <(u8, (u8, i64))>::decode)?;
    if ctx.omap_get(&Name::from(ORDER))?.is_some() {
        return fail(EEXIST);
    }
    let zero: Bytes = to_vec(&0_u64).into();
    ctx.omap_set_all(
        &[
            (Name::from(ORDER), to_vec(&order).into()),
            (Name::from(SPLAY_WIDTH), to_vec(&splay_width).into()),
            (Name::from(POOL_ID), to_vec(&pool).into()),
            (Name::from(ACTIVE_SET), zero.clone()),
            (Name::from(MINIMUM_SET), zero.clone()),
            (Name::from(NEXT_TAG_TID), zero.clone()),
            (Name::from(NEXT_TAG_CLASS), zero),
        ]
        .into(),
    )?;
    ok()
}

fn set_minimum_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let set = input(bytes, u64::decode)?;
    if header::<u64>(ctx, ACTIVE_SET)? < set {
        return fail(EINVAL);
    }
    advance(ctx, MINIMUM_SET, set)
}

fn set_active_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let set = input(bytes, u64::decode)?;
    if header::<u64>(ctx, MINIMUM_SET)? > set {
        return fail(EINVAL);
    }
    advance(ctx, ACTIVE_SET, set)
}

/// Moves a number forward; back is ESTALE.
fn advance(ctx: &mut Context<'_>, name: &str, to: u64) -> Reply {
    let from: u64 = header(ctx, name)?;
    if to < from {
        return fail(ESTALE);
    }
    if to > from {
        ctx.set(&Name::from(name), &to)?;
    }
    ok()
}

// ---- clients ----

fn client(ctx: &mut Context<'_>, id: &Name) -> Result<Client, Stop> {
    match ctx.omap_get(&key(CLIENT, id))? {
        Some(bytes) => input(&bytes, Client::decode),
        None => fail(ENOENT),
    }
}

fn save_client(ctx: &mut Context<'_>, client: &Client) -> Reply {
    ctx.set(&key(CLIENT, &client.id), client)?;
    ok()
}

fn get_client(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, Name::decode)?;
    output(&client(ctx, &id)?)
}

fn client_register(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, data) = input(bytes, <(Name, Bytes)>::decode)?;
    header::<u8>(ctx, ORDER)?;
    if ctx.omap_get(&key(CLIENT, &id))?.is_some() {
        return fail(EEXIST);
    }
    // It starts where the slowest reader is; one that has read nothing yet is slowest of all.
    let clients = ctx.list_all::<Client>(CLIENT)?;
    let position = clients
        .into_iter()
        .map(|(_, client)| client.position)
        .min_by_key(|position| position.objects.first().map(|first| (first.tag, first.entry)))
        .unwrap_or(SetPosition { objects: Vec::new() });
    save_client(ctx, &Client { id, data, position, state: 0 })
}

fn client_update_data(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, data) = input(bytes, <(Name, Bytes)>::decode)?;
    let client = client(ctx, &id)?;
    save_client(ctx, &Client { data, ..client })
}

fn client_update_state(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, state) = input(bytes, <(Name, u8)>::decode)?;
    let client = client(ctx, &id)?;
    save_client(ctx, &Client { state, ..client })
}

fn client_unregister(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, Name::decode)?;
    if ctx.omap_get(&key(CLIENT, &id))?.is_none() {
        return fail(ENOENT);
    }
    ctx.unset(&key(CLIENT, &id))?;
    expire_tags(ctx)?;
    ok()
}

fn client_commit(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, position) = input(bytes, <(Name, SetPosition)>::decode)?;
    if position.objects.len() > usize::from(header::<u8>(ctx, SPLAY_WIDTH)?) {
        return fail(EINVAL);
    }
    let client = client(ctx, &id)?;
    if client.position == position {
        return ok();
    }
    save_client(ctx, &Client { position, ..client })
}

fn client_list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(Name, u64)>::decode)?;
    let pairs = ctx.list(CLIENT, after.as_bytes(), max)?;
    let clients: Result<Vec<Client>, Stop> = pairs.iter().map(|(_, value)| stored(value)).collect();
    output(&clients?)
}

// ---- tags ----

/// The oldest tag that a reader at `position` still needs; None if it has read nothing.
fn oldest_needed(position: &SetPosition) -> Option<u64> {
    position.objects.iter().map(|object| object.tag).min()
}

/// For each class its newest tag up to and with `tid`: older ones of it are of no use.
fn newest_by_class(tags: &[(Name, Tag)], tid: u64) -> BTreeMap<u64, u64> {
    let end = tags.iter().position(|(_, tag)| tag.tid >= tid).map_or(tags.len(), |at| at + 1);
    tags[..end].iter().map(|(_, tag)| (tag.class, tag.tid)).collect()
}

/// Forgets the tags that every connected client has left behind.
fn expire_tags(ctx: &mut Context<'_>) -> Result<(), Stop> {
    let mut oldest = u64::MAX;
    for (_, client) in ctx.list_all::<Client>(CLIENT)? {
        if client.state != DISCONNECTED {
            let Some(needed) = oldest_needed(&client.position) else { return Ok(()) };
            oldest = oldest.min(needed);
        }
    }
    if oldest == u64::MAX {
        return Ok(());
    }
    let tags = ctx.list_all::<Tag>(TAG)?;
    if tags.iter().any(|(key, tag)| *key != &*format!("{:016x}", tag.tid)) {
        return fail(EINVAL);
    }
    let kept_from = newest_by_class(&tags, oldest);
    for (_, tag) in tags.iter().take_while(|(_, tag)| tag.tid < oldest) {
        if tag.tid < kept_from[&tag.class] {
            ctx.unset(&tag_key(tag.tid))?;
        }
    }
    Ok(())
}

fn get_tag(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let tid = input(bytes, u64::decode)?;
    match ctx.omap_get(&tag_key(tid))? {
        Some(bytes) => output(&input(&bytes, Tag::decode)?),
        None => fail(ENOENT),
    }
}

fn tag_create(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (tid, (mut class, data)) = input(bytes, <(u64, (u64, Bytes))>::decode)?;
    if ctx.omap_get(&tag_key(tid))?.is_some() {
        return fail(EEXIST);
    }
    if tid != header::<u64>(ctx, NEXT_TAG_TID)? {
        return fail(ESTALE);
    }
    let next_class: u64 = header(ctx, NEXT_TAG_CLASS)?;
    if class == CLASS_NEW {
        class = next_class;
        ctx.set(&Name::from(NEXT_TAG_CLASS), &next_class.wrapping_add(1))?;
    } else if class >= next_class {
        return fail(EINVAL);
    }
    expire_tags(ctx)?;
    ctx.set(&Name::from(NEXT_TAG_TID), &tid.wrapping_add(1))?;
    ctx.set(&tag_key(tid), &Tag { tid, class, data })?;
    ok()
}

fn tag_list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, (max, (client_id, class))) = input(bytes, <(u64, (u64, (Name, Option<u64>)))>::decode)?;
    let client = client(ctx, &client_id)?;
    let tags = ctx.list_all::<Tag>(TAG)?;
    let needed_from = match oldest_needed(&client.position) {
        Some(oldest) => newest_by_class(&tags, oldest),
        None => BTreeMap::new(),
    };
    let listed: BTreeSet<Tag> = tags
        .into_iter()
        .map(|(_, tag)| tag)
        .filter(|tag| after == 0 || tag.tid > after)
        .filter(|tag| needed_from.get(&tag.class).is_none_or(|&from| tag.tid >= from))
        .filter(|tag| class.is_none_or(|class| class == tag.class))
        .take(usize::try_from(max).unwrap_or(usize::MAX))
        .collect();
    output(&listed)
}

// ---- entries ----

/// EOVERFLOW once an object of entries is as long as it should become.
fn guard(ctx: &Context<'_>, soft_max: u64) -> Result<u64, Stop> {
    match ctx.stat() {
        Ok(size) if size >= soft_max => fail(EOVERFLOW),
        Err(Stop::Failed(ENOENT)) => Ok(0),
        size => size,
    }
}

fn guard_append(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let soft_max = input(bytes, u64::decode)?;
    guard(ctx, soft_max)?;
    ok()
}

fn append(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (soft_max, data) = input(bytes, <(u64, Bytes)>::decode)?;
    let end = guard(ctx, soft_max)?;
    ctx.write(end, data)?;
    ok()
}
