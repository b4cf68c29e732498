//! Lists of images, of groups and of namespaces: `name_` and `id_` keys that mirror each other.

use super::is_valid_id;
use crate::context::{key, stored};
use crate::{Context, Reply, Stop, fail, input, ok, output};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::{EBADF, EBUSY, EEXIST, EINVAL, ENOENT, ESTALE};
use nacre_wire::{Decode, to_vec};

const NAME: &str = "name_";
const ID: &str = "id_";

/// A directory that takes no images is about to be removed, with its namespace.
const READY: u8 = 0;
const ADD_DISABLED: u8 = 1;

pub fn get_id(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let name = input(bytes, Name::decode)?;
    output(&ctx.need::<Name>(&key(NAME, &name))?)
}

pub fn get_name(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, Name::decode)?;
    output(&ctx.need::<Name>(&key(ID, &id))?)
}

pub fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(Name, u64)>::decode)?;
    let pairs = ctx.list(NAME, after.as_bytes(), max)?;
    let pairs: Result<Vec<(Name, Name)>, Stop> =
        pairs.into_iter().map(|(name, id)| Ok((name, stored(&id)?))).collect();
    output(&pairs?)
}

/// `renamed`: another name of the id is being taken away.
fn insert(ctx: &mut Context<'_>, name: &Name, id: &Name, renamed: bool) -> Reply {
    if name.is_empty() || !is_valid_id(id) {
        return fail(EINVAL);
    }
    let (name_key, id_key) = (key(NAME, name), key(ID, id));
    if ctx.omap_get(&name_key)?.is_some() {
        return fail(EEXIST);
    }
    if !renamed && ctx.omap_get(&id_key)?.is_some() {
        return fail(EBADF);
    }
    ctx.omap_set_all(&[(name_key, to_vec(id).into()), (id_key, to_vec(name).into())].into())?;
    ok()
}

/// ESTALE if the two do not belong together, as after a rename.
fn take(ctx: &mut Context<'_>, name: &Name, id: &Name) -> Reply {
    let (name_key, id_key) = (key(NAME, name), key(ID, id));
    let stored_id: Name = ctx.need(&name_key)?;
    let stored_name: Name = ctx.need(&id_key)?;
    if stored_name != *name || stored_id != *id {
        return fail(ESTALE);
    }
    ctx.omap_remove(&name_key)?;
    ctx.omap_remove(&id_key)?;
    ok()
}

pub fn add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    ctx.create(false)?;
    let (name, id) = input(bytes, <(Name, Name)>::decode)?;
    insert(ctx, &name, &id, false)
}

pub fn remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (name, id) = input(bytes, <(Name, Name)>::decode)?;
    take(ctx, &name, &id)
}

pub fn rename(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (from, (to, id)) = input(bytes, <(Name, (Name, Name))>::decode)?;
    take(ctx, &from, &id)?;
    insert(ctx, &to, &id, true)
}

pub fn state_assert(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let state = input(bytes, u8::decode)?;
    if ctx.need::<u8>(&Name::from("state"))? != state {
        return fail(ENOENT);
    }
    ok()
}

pub fn state_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    match input(bytes, u8::decode)? {
        READY => ctx.set(&Name::from("state"), &READY)?,
        ADD_DISABLED => {
            ctx.stat()?;
            if !ctx.list(NAME, b"", 1)?.is_empty() {
                return fail(EBUSY);
            }
            ctx.set(&Name::from("state"), &ADD_DISABLED)?;
        }
        _ => return fail(EINVAL),
    }
    ok()
}

// ---- namespaces ----

pub fn namespace_add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let name = key(NAME, &input(bytes, Name::decode)?);
    if ctx.omap_get(&name)?.is_some() {
        return fail(EEXIST);
    }
    ctx.omap_set(&name, Bytes::new())?;
    ok()
}

pub fn namespace_remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let name = key(NAME, &input(bytes, Name::decode)?);
    if ctx.omap_get(&name)?.is_none() {
        return fail(ENOENT);
    }
    ctx.omap_remove(&name)?;
    ok()
}

pub fn namespace_list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(Name, u64)>::decode)?;
    let names: Vec<Name> = ctx.list(NAME, after.as_bytes(), max)?.into_iter().map(|(name, _)| name).collect();
    output(&names)
}
