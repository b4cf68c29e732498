//! Operations of cache tiers and manifests. There are none of either: answers are those of pools in Ceph that
//! have none.

use super::draft::Draft;
use super::{OpResult, fail, ok, output};
use nacre_base::errno::{EINVAL, ENOENT, EOPNOTSUPP};
use nacre_proto::types::OpCode;
use nacre_wire::to_vec;

/// Whether `answer` knows an answer to it.
pub fn is_about_tiers(code: OpCode) -> bool {
    matches!(
        code,
        OpCode::CACHE_PIN
            | OpCode::CACHE_UNPIN
            | OpCode::CACHE_FLUSH
            | OpCode::CACHE_TRY_FLUSH
            | OpCode::CACHE_EVICT
            | OpCode::TIER_PROMOTE
            | OpCode::TIER_FLUSH
            | OpCode::TIER_EVICT
            | OpCode::SET_REDIRECT
            | OpCode::SET_CHUNK
            | OpCode::UNSET_MANIFEST
    )
}

pub fn answer(draft: &Draft<'_>, code: OpCode) -> OpResult {
    match code {
        // The pool is asked first.
        OpCode::CACHE_PIN
        | OpCode::CACHE_UNPIN
        | OpCode::CACHE_FLUSH
        | OpCode::CACHE_TRY_FLUSH
        | OpCode::CACHE_EVICT => fail(EINVAL),
        _ if !draft.exists => fail(ENOENT),
        // All of it is here, and belongs nowhere else.
        OpCode::TIER_PROMOTE | OpCode::TIER_FLUSH => ok(),
        OpCode::TIER_EVICT => fail(EINVAL),
        _ => fail(EOPNOTSUPP),
    }
}

pub fn is_dirty(draft: &Draft<'_>) -> OpResult {
    output(to_vec(&!draft.info.clean))
}

/// Nothing that clients count as a change, and nothing at all where the object was not dirty before the
/// request.
pub fn undirty(draft: &mut Draft<'_>) -> OpResult {
    if draft.exists && draft.is_stored() && !draft.info.clean {
        draft.modified = true;
        draft.cleaned = true;
    }
    ok()
}
