//! Operations on an object's omap.

use super::attrs::holds;
use super::draft::Draft;
use super::{OMAP_BYTES_MAX, OMAP_ENTRIES_MAX, OpResult, Stop, fail, ok, output};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::{ECANCELED, EINVAL, ENOENT};
use nacre_wire::{Encode, encode_list, encode_map};
use std::collections::{BTreeMap, BTreeSet};

/// Pairs after `after` whose key starts with `prefix`, and whether there are more than fit.
fn page(
    draft: &Draft<'_>,
    after: &Name,
    max: u64,
    prefix: &Name,
) -> Result<(Vec<(Name, Bytes)>, bool), Stop> {
    let max = max.min(OMAP_ENTRIES_MAX) as usize;
    // The first key that can follow `after`. An empty key follows nothing, and is in no listing.
    let from = [after.as_bytes(), &[0]].concat();
    let from = if from[..] < *prefix.as_bytes() { prefix.as_bytes().to_vec() } else { from };
    let (mut pairs, mut bytes, mut more) = (Vec::new(), 0, false);
    draft.omap_walk(&from, &mut |key, value| {
        if !key.as_bytes().starts_with(prefix.as_bytes()) {
            return false;
        }
        if pairs.len() >= max || bytes >= OMAP_BYTES_MAX {
            more = true;
            return false;
        }
        bytes += key.len() + value.len();
        pairs.push((key.clone(), value.clone()));
        true
    })?;
    Ok((pairs, more))
}

pub fn get_keys(draft: &mut Draft<'_>, after: &Name, max: u64) -> OpResult {
    let (pairs, more) = page(draft, after, max, &Name::default())?;
    let mut out = Vec::new();
    encode_list(&mut out, pairs.iter().map(|(key, _)| key));
    more.encode(&mut out);
    output(out)
}

pub fn get_values(draft: &mut Draft<'_>, after: &Name, max: u64, prefix: &Name) -> OpResult {
    let (pairs, more) = page(draft, after, max, prefix)?;
    let mut out = Vec::new();
    encode_map(&mut out, pairs.iter().map(|(key, value)| (key, value)));
    more.encode(&mut out);
    output(out)
}

pub fn get_header(draft: &mut Draft<'_>) -> OpResult {
    output(draft.omap_header()?)
}

pub fn get_by_keys(draft: &mut Draft<'_>, keys: &BTreeSet<Name>) -> OpResult {
    let mut found = BTreeMap::new();
    for key in keys {
        if let Some(value) = draft.omap_get(key)? {
            found.insert(key.clone(), value);
        }
    }
    let mut out = Vec::new();
    found.encode(&mut out);
    output(out)
}

/// Compares like an attribute's: equal, less and greater are the only ways there are. Here it is
/// the stored value that is on the left, and bytes have signs: Ceph compares those of its buffers as
/// `char`s.
pub fn compare(draft: &mut Draft<'_>, asserts: &BTreeMap<Name, (Bytes, i32)>) -> OpResult {
    if !draft.exists || draft.omap_is_new() {
        return fail(ENOENT);
    }
    for (key, (value, op)) in asserts {
        let have = draft.omap_get(key)?.unwrap_or_default();
        if !matches!(op, 1 | 3 | 5) {
            return fail(EINVAL);
        }
        if holds(*op, signed(&have).cmp(signed(value))) != Some(true) {
            return fail(ECANCELED);
        }
    }
    ok()
}

fn signed(bytes: &[u8]) -> impl Iterator<Item = i8> {
    bytes.iter().map(|&byte| byte.cast_signed())
}

pub fn set(draft: &mut Draft<'_>, pairs: &BTreeMap<Name, Bytes>) -> OpResult {
    draft.omap_set(pairs);
    ok()
}

pub fn set_header(draft: &mut Draft<'_>, header: &Bytes) -> OpResult {
    draft.set_omap_header(header.clone());
    ok()
}

pub fn clear(draft: &mut Draft<'_>) -> OpResult {
    if !draft.exists {
        return fail(ENOENT);
    }
    // Where there is nothing, nothing changes: the object is as old as it was.
    if !draft.omap_is_empty()? {
        draft.omap_clear();
    }
    ok()
}

pub fn remove(draft: &mut Draft<'_>, keys: &BTreeSet<Name>) -> OpResult {
    if !draft.exists {
        return fail(ENOENT);
    }
    draft.omap_remove(keys);
    ok()
}

pub fn remove_range(draft: &mut Draft<'_>, begin: &Name, end: &Name) -> OpResult {
    if !draft.exists {
        return fail(ENOENT);
    }
    draft.omap_remove_range(begin, end);
    ok()
}
