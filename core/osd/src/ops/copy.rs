//! Copying another object into this one.

use super::draft::Draft;
use super::{OpResult, ok};
use bytes::Bytes;
use nacre_base::{Name, Utime};
use nacre_proto::types::{CopySource, ObjectId, ObjectLocator, object_hash};
use std::collections::BTreeMap;

/// The flags that Ceph knows. All but the last are about cache tiers, and mean nothing here.
pub const FLAGS: u8 = 0x3f;
/// The client says which truncation the copy has.
const FLAG_TRUNCATE_SEQ: u8 = 0x20;

/// Another object, whole, as it was at one version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Copied {
    pub user_version: u64,
    pub mtime: Utime,
    /// Its bytes, in order.
    pub data: Vec<Bytes>,
    /// By the names that clients know.
    pub attrs: BTreeMap<Name, Bytes>,
    pub omap_header: Bytes,
    pub omap: BTreeMap<Name, Bytes>,
}

pub fn hash_of(locator: &ObjectLocator, name: &Name) -> u32 {
    match locator.hash {
        Some(hash) if hash >= 0 => hash as u32,
        _ => object_hash(&locator.namespace, if locator.key.is_empty() { name } else { &locator.key }),
    }
}

/// The object that is meant.
pub fn source_object(source: &CopySource) -> ObjectId {
    let CopySource { name, locator, .. } = source;
    ObjectId {
        pool: locator.pool,
        hash: hash_of(locator, name),
        namespace: locator.namespace.clone(),
        key: if locator.key == *name { Name::default() } else { locator.key.clone() },
        name: name.clone(),
        snap: source.snap,
        max: false,
    }
}

/// Replaces all that the object was.
pub fn copy_from(draft: &mut Draft<'_>, source: &CopySource) -> OpResult {
    let copied = draft.copied(source)?;
    let watchers = std::mem::take(&mut draft.info.watchers);
    if draft.exists {
        draft.remove();
    }
    draft.touch();
    draft.gone = false;
    draft.info.watchers = watchers;
    let mut at = 0;
    for part in &copied.data {
        draft.write(at, part.clone());
        at += part.len() as u64;
    }
    for (name, value) in &copied.attrs {
        draft.set_attr(super::attrs::stored(name), value.clone());
    }
    if !copied.omap_header.is_empty() {
        draft.set_omap_header(copied.omap_header.clone());
    }
    if !copied.omap.is_empty() {
        draft.omap_set(&copied.omap);
    }
    // The source's own truncations order writes to the file that it is part of, not to this one.
    if let Some((seq, size)) = source.truncate.filter(|_| source.flags & FLAG_TRUNCATE_SEQ != 0) {
        draft.info.truncate_seq = seq;
        draft.info.truncate_size = size;
    }
    draft.copied_from = Some((copied.user_version, copied.mtime));
    ok()
}
