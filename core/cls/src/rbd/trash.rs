//! Images that were removed and can still be restored: `id_` and the image's id.

use super::is_valid_id;
use super::types::TrashImage;
use crate::context::{key, stored};
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::Name;
use nacre_base::errno::{EEXIST, EINVAL, ENOENT, ESTALE};
use nacre_wire::Decode;

const PREFIX: &str = "id_";

pub fn add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    ctx.create(false)?;
    let (id, image) = input(bytes, <(Name, TrashImage)>::decode)?;
    if !is_valid_id(&id) {
        return fail(EINVAL);
    }
    let key = key(PREFIX, &id);
    if ctx.get::<TrashImage>(&key)?.is_some() {
        return fail(EEXIST);
    }
    ctx.set(&key, &image)?;
    ok()
}

pub fn remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let key = key(PREFIX, &input(bytes, Name::decode)?);
    if ctx.omap_get(&key)?.is_none() {
        return fail(ENOENT);
    }
    ctx.omap_remove(&key)?;
    ok()
}

pub fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(Name, u64)>::decode)?;
    let pairs = ctx.list(PREFIX, after.as_bytes(), max)?;
    let pairs: Result<Vec<(Name, TrashImage)>, Stop> =
        pairs.into_iter().map(|(id, image)| Ok((id, stored(&image)?))).collect();
    output(&pairs?)
}

pub fn get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let id = input(bytes, Name::decode)?;
    Ok((0, ctx.omap_get(&key(PREFIX, &id))?.ok_or(Stop::Failed(ENOENT))?))
}

pub fn state_set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (id, (state, expected)) = input(bytes, <(Name, (u8, u8))>::decode)?;
    let key = key(PREFIX, &id);
    let image: TrashImage = ctx.need(&key)?;
    if image.state == expected {
        ctx.set(&key, &TrashImage { state, ..image })?;
    } else if image.state != state {
        return fail(ESTALE);
    }
    ok()
}
