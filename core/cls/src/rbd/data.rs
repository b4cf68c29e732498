//! Data objects: filled from a parent, and freed of zeros.

use crate::{Context, Reply, Stop, fail, input, ok};
use bytes::Bytes;
use nacre_base::errno::EINVAL;
use nacre_wire::Decode;
use std::collections::BTreeMap;

/// Writes what the parent shows, unless the object is there already.
pub fn copyup(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    if !ctx.exists() {
        ctx.write(0, bytes.to_vec())?;
    }
    ok()
}

/// The same with holes: extents, and the bytes of all of them.
pub fn sparse_copyup(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (extents, data) = input(bytes, <(BTreeMap<u64, u64>, Bytes)>::decode)?;
    if ctx.exists() {
        return ok();
    }
    if extents.is_empty() {
        ctx.create(true)?;
    }
    let mut left = data;
    for (offset, len) in extents {
        if len > left.len() as u64 {
            return fail(EINVAL);
        }
        ctx.write(offset, left.split_to(len as usize))?;
    }
    ok()
}

/// Frees blocks of `sparse_size` zeros; removes the object if nothing else is in it and that is
/// wished.
pub fn sparsify(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (sparse_size, remove_empty) = input(bytes, <(u64, bool)>::decode)?;
    let size = ctx.stat()?;
    if sparse_size == 0 {
        return fail(EINVAL);
    }
    let data = ctx.read(0, size)?;
    let is_zero = |block: &[u8]| block.iter().all(|&byte| byte == 0);
    if is_zero(&data) {
        if remove_empty {
            ctx.remove()?;
        } else if !data.is_empty() {
            ctx.truncate(0)?;
        }
        return ok();
    }
    let sparse_size = usize::try_from(sparse_size).unwrap_or(usize::MAX);
    if !data.chunks(sparse_size).any(is_zero) {
        return ok();
    }
    ctx.truncate(0)?;
    write_nonzero(ctx, &data, sparse_size)?;
    ok()
}

fn write_nonzero(ctx: &mut Context<'_>, data: &Bytes, block: usize) -> Result<(), Stop> {
    let mut run: Option<usize> = None;
    for start in (0..data.len()).step_by(block) {
        let end = start.saturating_add(block).min(data.len());
        let zero = data[start..end].iter().all(|&byte| byte == 0);
        match (zero, run) {
            (false, None) => run = Some(start),
            (true, Some(from)) => {
                ctx.write(from as u64, data.slice(from..start))?;
                run = None;
            }
            _ => {}
        }
    }
    match run {
        Some(from) => ctx.write(from as u64, data.slice(from..)),
        None => Ok(()),
    }
}
