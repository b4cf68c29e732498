//! Settings and notes that people keep with an image or a pool: `metadata_` and a name.

use crate::context::key;
use crate::{Context, Reply, Stop, input, ok, output};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::ENOENT;
use nacre_wire::Decode;
use std::collections::BTreeMap;

const PREFIX: &str = "metadata_";
/// When a client does not say how many.
const LIST_DEFAULT: u64 = 64;

pub fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (after, max) = input(bytes, <(Name, u64)>::decode)?;
    let max = if max == 0 { LIST_DEFAULT } else { max };
    let mut pairs = ctx.list(PREFIX, after.as_bytes(), max.saturating_add(1))?;
    // A page begins after a name, so that what has none is never listed. Clients of 16.2 take the rest to
    // pieces if it is.
    pairs.retain(|(name, _)| !name.as_bytes().is_empty());
    pairs.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    output(&pairs)
}

pub fn set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let pairs = input(bytes, BTreeMap::<Name, Bytes>::decode)?;
    ctx.omap_set_all(&pairs.into_iter().map(|(name, value)| (key(PREFIX, &name), value)).collect())?;
    ok()
}

pub fn remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let name = input(bytes, Name::decode)?;
    ctx.omap_remove(&key(PREFIX, &name))?;
    ok()
}

pub fn get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let name = input(bytes, Name::decode)?;
    output(&ctx.omap_get(&key(PREFIX, &name))?.ok_or(Stop::Failed(ENOENT))?)
}
