//! Copying another object into this one.

use super::draft::Draft;
use super::{OBJECT_SIZE_MAX, OpResult, fail, ok};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::EFBIG;
use nacre_proto::types::CopySource;
use std::collections::BTreeMap;

/// Another object, whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Copied {
    pub data: Bytes,
    /// By the names that clients know.
    pub attrs: BTreeMap<Name, Bytes>,
    pub omap_header: Bytes,
    pub omap: BTreeMap<Name, Bytes>,
}

/// Replaces all that the object was.
pub fn copy_from(draft: &mut Draft<'_>, source: &CopySource) -> OpResult {
    let copied = draft.copied(source)?;
    if copied.data.len() as u64 > OBJECT_SIZE_MAX {
        return fail(EFBIG);
    }
    if draft.exists {
        draft.remove();
    }
    draft.write(0, copied.data.clone());
    for (name, value) in &copied.attrs {
        draft.set_attr(super::attrs::stored(name), value.clone());
    }
    if !copied.omap_header.is_empty() {
        draft.set_omap_header(copied.omap_header.clone());
    }
    if !copied.omap.is_empty() {
        draft.omap_set(&copied.omap);
    }
    if let Some((seq, size)) = source.truncate {
        draft.info.truncate_seq = seq;
        draft.info.truncate_size = size;
    }
    ok()
}
