//! Buckets with a lifecycle, and how far gateways are with them.

use crate::context::stored;
use crate::record::record;
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::Name;
use nacre_base::errno::{EINVAL, ENOENT};
use nacre_wire::{Decode, DecodeError, Encode, Reader, encode_list, versioned};
use std::collections::BTreeMap;

record!(#[derive(Default)] Bucket, "cls_rgw_lc_entry", 1, { bucket: Name, started: u64, status: u32 });
record!(BucketMessage, "cls_rgw_lc_set_entry_op", 2 compat 2, { bucket: Bucket });
record!(MarkerRequest, "cls_rgw_lc_get_entry_op", 1, { marker: Name });

/// A round through the buckets. What gateways keep here grows with their releases: it is given back as it
/// came. Ceph: `cls_rgw_lc_obj_head`.
struct Head(Vec<u8>);

impl Default for Head {
    /// Started never, at no bucket.
    fn default() -> Head {
        let mut head = Vec::new();
        versioned(&mut head, 1, 1, |out| (0_u64, Name::default()).encode(out));
        Head(head)
    }
}
impl Encode for Head {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}
impl Decode for Head {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let all = r.rest();
        let left = r.versioned("cls_rgw_lc_obj_head", 2, |r, _| {
            let _start = u64::decode(r)?;
            r.bytes()?;
            Ok(())
        });
        left?;
        Ok(Head(all[..all.len() - r.remaining()].to_vec()))
    }
}

fn head(r: &mut Reader<'_>) -> Result<Head, DecodeError> {
    r.versioned("cls_rgw_lc_put_head_op", 1, |r, _| Head::decode(r))
}

pub(crate) fn put_head(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let head = input(bytes, head)?;
    ctx.set_header(&head)?;
    ok()
}

pub(crate) fn get_head(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let head: Head = ctx.header()?.unwrap_or_default();
    let mut out = Vec::new();
    versioned(&mut out, 1, 1, |out| head.encode(out));
    Ok((0, out.into()))
}

pub(crate) fn get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, MarkerRequest::decode)?;
    match ctx.omap_get(&request.marker)? {
        Some(value) => output(&BucketMessage { bucket: bucket(&value)? }),
        None => fail(ENOENT),
    }
}

/// The bucket beyond the marker; one without a name if there is none.
pub(crate) fn get_next(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, MarkerRequest::decode)?;
    let page = ctx.page(request.marker.as_bytes(), b"", 1)?;
    let found = page.pairs.first().map(|(_, value)| bucket(value)).transpose()?;
    output(&BucketMessage { bucket: found.unwrap_or_default() })
}

pub(crate) fn set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let BucketMessage { bucket } = input(bytes, BucketMessage::decode)?;
    if bucket.bucket.is_empty() {
        return fail(EINVAL);
    }
    ctx.set(&bucket.bucket, &bucket)?;
    ok()
}

pub(crate) fn remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let BucketMessage { bucket } = input(bytes, BucketMessage::decode)?;
    ctx.omap_remove(&bucket.bucket)?;
    ok()
}

/// Before Ceph 14, a name and a status.
fn bucket(value: &[u8]) -> Result<Bucket, Stop> {
    stored(value).or_else(|stop| {
        let (bucket, status) = stored::<(Name, i32)>(value).map_err(|_| stop)?;
        Ok(Bucket { bucket, started: 0, status: status.cast_unsigned() })
    })
}

struct ListRequest {
    /// Which form of an answer the gateway knows.
    version: u8,
    after: Name,
    max: u32,
}

fn list_request(r: &mut Reader<'_>) -> Result<ListRequest, DecodeError> {
    r.versioned("cls_rgw_lc_list_entries_op", 3, |r, version| {
        Ok(ListRequest { version, after: Name::decode(r)?, max: u32::decode(r)? })
    })
}

pub(crate) fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, list_request)?;
    let page = ctx.page(request.after.as_bytes(), b"", request.max.into())?;
    let buckets = page.pairs.iter().map(|(_, value)| bucket(value)).collect::<Result<Vec<_>, _>>()?;
    let mut out = Vec::new();
    versioned(&mut out, request.version.clamp(1, 3), 1, |out| {
        if request.version < 3 {
            let old: BTreeMap<_, _> = buckets.iter().map(|b| (b.bucket.clone(), b.status)).collect();
            old.encode(out);
        } else {
            encode_list(out, &buckets);
        }
        page.more.encode(out);
    });
    Ok((0, out.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::to_vec;

    #[test]
    fn a_head_of_any_release_comes_back_as_it_was() {
        let mut newer = Vec::new();
        versioned(&mut newer, 2, 2, |out| {
            (7_u64, Name::from("b")).encode(out);
            9_u64.encode(out);
        });
        for bytes in [to_vec(&Head::default()), newer] {
            let mut r = Reader::new(&bytes);
            assert_eq!(to_vec(&Head::decode(&mut r).unwrap()), bytes);
            assert!(r.is_empty());
        }
    }
}
