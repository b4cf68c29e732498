//! Listing the objects of a placement group, page by page. Ceph: PGNLS.

use super::history::History;
use super::{ClientOp, Ctx};
use crate::ops::FlaggedOp;
use bytes::Bytes;
use nacre_base::errno::{EINVAL, EIO, ENOENT};
use nacre_base::{Name, SnapId};
use nacre_machine::{Level, ReadError};
use nacre_proto::types::{ListFilter, ObjectId, Op};
use nacre_wire::{Encode, encode_list, to_vec, versioned};

/// Names on one page. Ceph: `osd_max_pgls`.
const PAGE_MAX: u64 = 1024;
/// Objects examined for one page, so that a namespace that has few of them costs no long turn.
const LOOKED_AT_MAX: usize = if cfg!(test) { 3 } else { 8192 };
/// Instead of a namespace: all of them. Ceph: `librados::all_nspaces`.
const ALL_NAMESPACES: &[u8] = b"\x01";

/// A result of one: the placement group ends here.
const END: i32 = 1;

struct Listed<'a>(&'a ObjectId);

impl Encode for Listed<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.namespace.encode(out);
        self.0.name.encode(out);
        self.0.key.encode(out);
    }
}

impl History {
    /// The result and outputs of a request that lists.
    pub fn list(&self, ctx: &mut Ctx<'_>, op: &ClientOp) -> (i32, Vec<(i32, Bytes)>) {
        let (max, cursor, filter) = match &op.ops[..] {
            [FlaggedOp { op: Op::List { max, cursor, filter, .. }, .. }] => (max, cursor, filter.as_ref()),
            // No pool is a cache, and hits are not counted.
            [FlaggedOp { op: Op::ListHitSets, .. }] => return (0, vec![(0, to_vec(&0_u32).into())]),
            [FlaggedOp { op: Op::GetHitSet, .. }] => return (-ENOENT, Vec::new()),
            _ => return (-EINVAL, Vec::new()), // among other operations it makes no sense
        };
        let namespace = &op.request.locator.namespace;
        match self.page(ctx, namespace, filter, cursor, (*max).clamp(1, PAGE_MAX) as usize) {
            Ok((objects, handle, result)) => {
                let mut out = Vec::new();
                versioned(&mut out, 1, 1, |out| {
                    handle.encode(out);
                    encode_list(out, objects.iter().map(Listed));
                });
                (result, vec![(result, out.into())])
            }
            Err(error) => {
                ctx.log(Level::Error, format!("pg {}: {error}", self.pg));
                (-EIO, Vec::new())
            }
        }
    }

    fn page(
        &self,
        ctx: &Ctx<'_>,
        namespace: &Name,
        filter: Option<&ListFilter>,
        cursor: &ObjectId,
        max: usize,
    ) -> Result<(Vec<ObjectId>, ObjectId, i32), ReadError> {
        let start = self.range.start();
        let from = if *cursor < start { &start } else { cursor };
        // What is here, and what should be here and is missing.
        let here = self.range.objects_from(ctx.store, from, LOOKED_AT_MAX)?;
        let known_to = if here.len() == LOOKED_AT_MAX { here.last().cloned() } else { None };
        let mut all: Vec<&ObjectId> = here.iter().collect();
        all.extend(
            self.missing
                .from(from)
                .map(|(object, _)| object)
                .take_while(|object| known_to.as_ref().is_none_or(|last| *object < last)),
        );
        all.sort();
        all.dedup();
        // Also heads that were deleted and are kept for their clones: so does Ceph, and nothing of an
        // object but its name has to be examined.
        let wanted = |object: &&&ObjectId| {
            object.snap == SnapId::HEAD
                && (namespace.as_bytes() == ALL_NAMESPACES || object.namespace == *namespace)
        };
        let mut all: Vec<&ObjectId> = all.iter().filter(wanted).copied().collect();
        if let Some(filter) = filter {
            let mut passing = Vec::new();
            for object in all {
                // What is missing here is not listed, in Ceph neither.
                match ctx.store.attr(&object.clone().into(), filter.attr.as_bytes()) {
                    Ok(value) if value.as_ref() == Some(&filter.value) => passing.push(object),
                    Ok(_) | Err(ReadError::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            all = passing;
        }
        let mut wanted = all.into_iter();
        let page: Vec<ObjectId> = wanted.by_ref().take(max).cloned().collect();
        if let Some(next) = wanted.next() {
            return Ok((page, next.clone(), 0));
        }
        if let Some(last) = known_to {
            // Nothing comes between an object's head and the name after it.
            return Ok((page, ObjectId { snap: SnapId::DIR, ..last }, 0));
        }
        Ok((page, self.range.next(), END))
    }
}
