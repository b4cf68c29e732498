//! The buckets of a user of Ceph's object gateway, with their sizes; the sums are in the omap's header.
//! Ceph: `cls_user`.

use crate::context::stored;
use crate::record::record;
use crate::{Class, Context, Reply, Stop, fail, input, ok, output, r, rw};
use nacre_base::errno::EINVAL;
use nacre_base::{Name, Utime};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};

pub(crate) const CLASS: Class = Class {
    name: "user",
    methods: &[
        rw("set_buckets_info", set_buckets),
        rw("complete_stats_sync", complete_sync),
        rw("remove_bucket", remove_bucket),
        r("list_buckets", list_buckets),
        r("get_header", get_header),
        rw("reset_user_stats", reset_stats),
        rw("reset_user_stats2", reset_stats_in_steps),
    ],
};

const PAGE: u64 = 1000;

/// Which bucket. Ceph: `cls_user_bucket`, written as v7 or as v9.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BucketId {
    name: Name,
    marker: Name,
    id: Name,
    /// Empty where the pools are named.
    placement: Name,
    data_pool: Name,
    index_pool: Name,
    data_extra_pool: Name,
}

impl Encode for BucketId {
    fn encode(&self, out: &mut Vec<u8>) {
        if !self.placement.is_empty() {
            return versioned(out, 9, 8, |out| {
                (&self.name, &self.marker).encode(out);
                (&self.id, &self.placement).encode(out);
            });
        }
        versioned(out, 7, 3, |out| {
            (&self.name, &self.data_pool).encode(out);
            (&self.marker, &self.id).encode(out);
            (&self.index_pool, &self.data_extra_pool).encode(out);
        });
    }
}
impl Decode for BucketId {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("cls_user_bucket", 9, |r, v| {
            let mut bucket = BucketId { name: Decode::decode(r)?, ..BucketId::default() };
            if v < 8 {
                bucket.data_pool = Decode::decode(r)?;
            }
            bucket.marker = Decode::decode(r)?;
            bucket.id = if v <= 3 { Name::from(u64::decode(r)?.to_string()) } else { Decode::decode(r)? };
            if v >= 8 {
                bucket.placement = Decode::decode(r)?;
            }
            if v == 8 && bucket.placement.is_empty() {
                bucket.data_pool = Decode::decode(r)?;
            }
            if matches!(v, 5..8) || (v == 8 && bucket.placement.is_empty()) {
                bucket.index_pool = Decode::decode(r)?;
            }
            if v == 7 || (v == 8 && bucket.placement.is_empty()) {
                bucket.data_extra_pool = Decode::decode(r)?;
            }
            Ok(bucket)
        })
    }
}

/// A bucket and what is in it. Ceph: `cls_user_bucket_entry`, v9, readable since v5.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bucket {
    id: BucketId,
    size: u64,
    size_rounded: u64,
    created: Utime,
    objects: u64,
    /// It counts in the user's sums.
    counted: bool,
}

impl Encode for Bucket {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 9, 5, |out| {
            Name::default().encode(out); // was the bucket's name
            (self.size, self.created.sec).encode(out);
            self.objects.encode(out);
            self.id.encode(out);
            (self.size_rounded, self.counted).encode(out);
            self.created.encode(out);
        });
    }
}
impl Decode for Bucket {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("cls_user_bucket_entry", 9, |r, v| {
            r.bytes()?;
            let (size, seconds) = <(u64, u32)>::decode(r)?;
            let objects = u64::decode(r)?;
            let id = BucketId::decode(r)?;
            let size_rounded = u64::decode(r)?;
            let counted = v >= 6 && bool::decode(r)?;
            let created = if v >= 7 { Utime::decode(r)? } else { Utime { sec: seconds, nsec: 0 } };
            Ok(Bucket { id, size, size_rounded, created, objects, counted })
        })
    }
}

record!(#[derive(Default)] Sums, "cls_user_stats", 1, { objects: u64, bytes: u64, bytes_rounded: u64 });
record!(#[derive(Default)] Header, "cls_user_header", 1, {
    sums: Sums,
    /// When all buckets were last counted.
    synced: Utime,
    updated: Utime,
});
record!(SetRequest, "cls_user_set_buckets_op", 1, {
    buckets: Vec<Bucket>,
    /// Buckets that are not there yet are added; else the sizes of those that are there change.
    add: bool,
    time: Utime,
});
record!(RemoveRequest, "cls_user_remove_bucket_op", 1, { bucket: BucketId });
record!(ListRequest, "cls_user_list_buckets_op", 2, { after: Name, max: i32 } since 2 { end: Name });
record!(ListReply, "cls_user_list_buckets_ret", 1, { buckets: Vec<Bucket>, marker: Name, truncated: bool });
record!(TimeRequest, "cls_user_complete_stats_sync_op", 1, { time: Utime });
record!(HeaderReply, "cls_user_get_header_ret", 1, { header: Header });
record!(ResetRequest, "cls_user_reset_stats2_op", 1, { time: Utime, after: Name, sums: Sums });
record!(ResetReply, "cls_user_reset_stats2_ret", 1, { marker: Name, sums: Sums, truncated: bool });

impl Sums {
    fn add(&mut self, bucket: &Bucket) {
        self.objects = self.objects.wrapping_add(bucket.objects);
        self.bytes = self.bytes.wrapping_add(bucket.size);
        self.bytes_rounded = self.bytes_rounded.wrapping_add(bucket.size_rounded);
    }
    fn subtract(&mut self, bucket: &Bucket) {
        self.objects = self.objects.wrapping_sub(bucket.objects);
        self.bytes = self.bytes.wrapping_sub(bucket.size);
        self.bytes_rounded = self.bytes_rounded.wrapping_sub(bucket.size_rounded);
    }
}

fn header(ctx: &mut Context<'_>) -> Result<Header, Stop> {
    Ok(ctx.header()?.unwrap_or_default())
}

fn set_buckets(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, SetRequest::decode)?;
    let mut header = header(ctx)?;
    let mut changed = std::collections::BTreeMap::<Name, Bucket>::new();
    for update in request.buckets {
        let name = update.id.name.clone();
        if name.is_empty() {
            return fail(EINVAL);
        }
        let before = match changed.remove(&name) {
            Some(bucket) => Some(bucket),
            None => ctx.get(&name)?,
        };
        let mut bucket = match before {
            None if !request.add => continue, // removed meanwhile
            None => update.clone(),
            Some(mut bucket) => {
                if bucket.counted {
                    header.sums.subtract(&bucket);
                }
                if request.add {
                    // The bucket got more shards, or is another one of the same name.
                    bucket.id.id = update.id.id.clone();
                    bucket.created = update.created;
                }
                bucket
            }
        };
        if !request.add {
            bucket.size = update.size;
            bucket.size_rounded = update.size_rounded;
            bucket.objects = update.objects;
        }
        bucket.counted = true;
        header.sums.add(&bucket);
        changed.insert(name, bucket);
    }
    for (name, bucket) in &changed {
        ctx.set(name, bucket)?;
    }
    header.updated = header.updated.max(request.time);
    ctx.set_header(&header)?;
    ok()
}

fn complete_sync(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, TimeRequest::decode)?;
    let mut header = header(ctx)?;
    header.synced = header.synced.max(request.time);
    ctx.set_header(&header)?;
    ok()
}

fn remove_bucket(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let RemoveRequest { bucket } = input(bytes, RemoveRequest::decode)?;
    if bucket.name.is_empty() {
        return fail(EINVAL);
    }
    let mut header = header(ctx)?;
    let Some(found) = ctx.get::<Bucket>(&bucket.name)? else { return ok() };
    ctx.unset(&bucket.name)?;
    if found.counted {
        header.sums.subtract(&found);
        ctx.set_header(&header)?;
    }
    ok()
}

fn list_buckets(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ListRequest::decode)?;
    // A negative number is a big one to Ceph.
    let max = u64::try_from(request.max).unwrap_or(PAGE).min(PAGE);
    let page = ctx.page(request.after.as_bytes(), b"", max)?;
    let mut reply = ListReply { buckets: Vec::new(), marker: Name::default(), truncated: page.more };
    for (name, value) in page.pairs {
        if !request.end.is_empty() && name >= request.end {
            reply.truncated = false;
            break;
        }
        reply.buckets.push(stored(&value)?);
        reply.marker = name;
    }
    if !reply.truncated {
        reply.marker = Name::default();
    }
    output(&reply)
}

fn get_header(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let header = header(ctx)?;
    output(&HeaderReply { header })
}

/// Adds up the next page of buckets.
fn sum(ctx: &mut Context<'_>, after: &Name, sums: Sums) -> Result<ResetReply, Stop> {
    let page = ctx.page(after.as_bytes(), b"", PAGE)?;
    let mut reply = ResetReply { marker: Name::default(), sums, truncated: page.more };
    for (name, value) in page.pairs {
        reply.sums.add(&stored(&value)?);
        reply.marker = name;
    }
    Ok(reply)
}

fn reset_stats(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, TimeRequest::decode)?;
    let mut reply = sum(ctx, &Name::default(), Sums::default())?;
    while reply.truncated {
        reply = sum(ctx, &reply.marker, reply.sums)?;
    }
    ctx.set_header(&Header { sums: reply.sums, updated: request.time, ..Header::default() })?;
    ok()
}

/// The same for as many buckets as there are: the caller repeats it until nothing is left.
fn reset_stats_in_steps(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ResetRequest::decode)?;
    let reply = sum(ctx, &request.after, request.sums)?;
    if !reply.truncated {
        let sums = reply.sums.clone();
        ctx.set_header(&Header { sums, updated: request.time, ..Header::default() })?;
    }
    output(&reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Memory, NOW, decoded, done, enveloped, hex};
    use nacre_wire::{from_slice, to_vec};

    /// As a gateway of Ceph 16.2.15 stored it.
    const STORED: &str = concat!(
        "0905a30000000000000000000000000000007da00b6b000000000000000007037400000006000000676f6c64656e0000",
        "00002b00000038333138666261302d386434332d343531642d613036392d6236626438346266633734382e343132302e",
        "312b00000038333138666261302d386434332d343531642d613036392d6236626438346266633734382e343132302e31",
        "00000000000000000000000000000000017da00b6bcda31929"
    );

    #[test]
    fn a_bucket_is_read_and_written_as_ceph_writes_it() {
        let bucket: Bucket = from_slice(&hex(STORED)).unwrap();
        assert_eq!((bucket.id.name.clone(), bucket.counted), (Name::from("golden"), true));
        assert_eq!(to_vec(&bucket), hex(STORED));
        let mut placed = bucket.id;
        (placed.data_pool, placed.placement) = (Name::default(), Name::from("default"));
        assert_eq!(from_slice(&to_vec(&placed)), Ok(placed));
    }

    fn sums(object: &mut Memory) -> (u64, u64) {
        let reply: HeaderReply = decoded(&done(object, "user.get_header", b""));
        (reply.header.sums.objects, reply.header.sums.bytes)
    }

    #[test]
    fn sums_follow_the_buckets() {
        let mut object = Memory::default();
        let bucket = |name: &str, objects: u64| {
            let id = BucketId { name: Name::from(name), ..BucketId::default() };
            let size = objects * 10;
            Bucket { id, size, size_rounded: size, created: NOW, objects, counted: false }
        };
        let set = |buckets: Vec<Bucket>, add: bool| to_vec(&SetRequest { buckets, add, time: NOW });
        done(&mut object, "user.set_buckets_info", &set(vec![bucket("a", 1), bucket("b", 2)], true));
        assert_eq!(sums(&mut object), (3, 30));
        done(&mut object, "user.set_buckets_info", &set(vec![bucket("a", 5), bucket("gone", 7)], false));
        assert_eq!(sums(&mut object), (7, 70));
        let list = enveloped(|out| (Name::default(), 1_i32).encode(out));
        let reply: ListReply = decoded(&done(&mut object, "user.list_buckets", &list));
        assert_eq!((reply.buckets.len(), reply.truncated, reply.marker), (1, true, Name::from("a")));
        done(&mut object, "user.remove_bucket", &to_vec(&RemoveRequest { bucket: bucket("a", 0).id }));
        assert_eq!(sums(&mut object), (2, 20));
        done(&mut object, "user.reset_user_stats", &to_vec(&TimeRequest { time: NOW }));
        assert_eq!(sums(&mut object), (2, 20));
        let again = ResetRequest { time: NOW, after: Name::default(), sums: Sums::default() };
        done(&mut object, "user.reset_user_stats2", &to_vec(&again));
        assert_eq!(sums(&mut object), (2, 20));
    }
}
