//! What users did, by the hour. Each record is there twice: under its time and under its user.

use crate::context::stored;
use crate::record::record;
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::Name;
use nacre_base::errno::ENODATA;
use nacre_wire::{Decode, DecodeError, Encode, Reader, to_vec, versioned};
use std::collections::{BTreeMap, BTreeSet};

record!(#[derive(Copy, Default)] Counts, "rgw_usage_data", 1, {
    bytes_sent: u64, bytes_received: u64, ops: u64, successful_ops: u64,
});

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.bytes_sent = self.bytes_sent.saturating_add(other.bytes_sent);
        self.bytes_received = self.bytes_received.saturating_add(other.bytes_received);
        self.ops = self.ops.saturating_add(other.ops);
        self.successful_ops = self.successful_ops.saturating_add(other.successful_ops);
    }
}

/// What happened in a bucket in an hour. Ceph: `rgw_usage_log_entry`, v3.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Usage {
    owner: Name,
    /// Empty if that is the owner.
    payer: Name,
    bucket: Name,
    /// In seconds since 1970.
    hour: u64,
    total: Counts,
    by_category: BTreeMap<Name, Counts>,
}

impl Usage {
    fn user(&self) -> &Name {
        if self.payer.is_empty() { &self.owner } else { &self.payer }
    }
    fn add(&mut self, other: &Usage) {
        if self.owner.is_empty() {
            let names = (other.owner.clone(), other.payer.clone(), other.bucket.clone());
            (self.owner, self.payer, self.bucket) = names;
            self.hour = other.hour;
        }
        for (category, counts) in &other.by_category {
            self.by_category.entry(category.clone()).or_default().add(counts);
            self.total.add(counts);
        }
    }
    fn by_time(&self) -> Name {
        let hour = format!("{:011}_", self.hour);
        Name::new([hour.as_bytes(), self.user().as_bytes(), b"_", self.bucket.as_bytes()].concat())
    }
    fn by_user(&self) -> Name {
        let hour = format!("_{:011}_", self.hour);
        Name::new([self.user().as_bytes(), hour.as_bytes(), self.bucket.as_bytes()].concat())
    }
}
impl Encode for Usage {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 3, 1, |out| {
            (&self.owner, &self.bucket).encode(out);
            self.hour.encode(out);
            let Counts { bytes_sent, bytes_received, ops, successful_ops } = self.total;
            ((bytes_sent, bytes_received), (ops, successful_ops)).encode(out);
            self.by_category.encode(out);
            self.payer.encode(out);
        });
    }
}
impl Decode for Usage {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("rgw_usage_log_entry", 3, |r, v| {
            let (owner, bucket) = Decode::decode(r)?;
            let hour = u64::decode(r)?;
            let total = Counts {
                bytes_sent: Decode::decode(r)?,
                bytes_received: Decode::decode(r)?,
                ops: Decode::decode(r)?,
                successful_ops: Decode::decode(r)?,
            };
            let by_category = if v < 2 { [(Name::default(), total)].into() } else { BTreeMap::decode(r)? };
            let payer = if v < 3 { Name::default() } else { Name::decode(r)? };
            Ok(Usage { owner, payer, bucket, hour, total, by_category })
        })
    }
}

record!(UsageList, "rgw_usage_log_info", 1, { usage: Vec<Usage> });
record!(AddRequest, "rgw_cls_usage_log_add_op", 2, { list: UsageList } since 2 { user: Name });
record!(ReadRequest, "rgw_cls_usage_log_read_op", 2, {
    start: u64,
    end: u64,
    /// Of all users if it is empty.
    user: Name,
    /// The last key that was read before.
    after: Name,
    max: u32,
} since 2 {
    bucket: Name,
});
record!(UserBucket, "rgw_user_bucket", 1, { user: Name, bucket: Name });
record!(ReadReply, "rgw_cls_usage_log_read_ret", 1, {
    usage: BTreeMap<UserBucket, Usage>, truncated: bool, next: Name,
});
record!(TrimRequest, "rgw_cls_usage_log_trim_op", 3 compat 2, {
    start: u64,
    end: u64,
    user: Name,
} since 3 {
    bucket: Name,
});

const RECORDS_MAX: u32 = 1000;

pub(crate) fn add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, AddRequest::decode)?;
    let mut sums: BTreeMap<Name, Usage> = BTreeMap::new();
    for usage in &request.list.usage {
        let at = usage.by_time();
        if !sums.contains_key(&at) {
            sums.insert(at.clone(), ctx.get(&at)?.unwrap_or_default());
        }
        sums.entry(at).or_default().add(usage);
    }
    let mut pairs = BTreeMap::new();
    for (at, sum) in sums {
        let value: bytes::Bytes = to_vec(&sum).into();
        pairs.insert(sum.by_user(), value.clone());
        pairs.insert(at, value);
    }
    if !pairs.is_empty() {
        ctx.omap_set_all(&pairs)?;
    }
    ok()
}

struct Records {
    usage: Vec<Usage>,
    /// The last key that was read, and whether there may be more.
    last: Name,
    more: bool,
}

/// Up to a page of records. `bucket` of all buckets if it is empty.
fn records(ctx: &mut Context<'_>, request: &ReadRequest) -> Result<Records, Stop> {
    let by_user = !request.user.is_empty();
    let prefix = if by_user { [request.user.as_bytes(), b"_"].concat() } else { Vec::new() };
    let start = Name::new([&prefix, format!("{:011}", request.start).as_bytes()].concat());
    let end = format!("{:011}", request.end);
    let after = if request.after.is_empty() { start } else { request.after.clone() };
    let max = if request.max == 0 { RECORDS_MAX } else { request.max.min(RECORDS_MAX) };
    let page = ctx.page(after.as_bytes(), &prefix, max.into())?;
    let mut records = Records { usage: Vec::new(), last: after, more: page.more };
    for (key, value) in page.pairs {
        if !by_user && key.as_bytes() >= end.as_bytes() {
            records.more = false;
            break;
        }
        let usage: Usage = stored(&value)?;
        if usage.hour >= request.end {
            records.more = false;
            break;
        }
        records.last = key;
        if usage.hour >= request.start && (request.bucket.is_empty() || usage.bucket == request.bucket) {
            records.usage.push(usage);
        }
    }
    Ok(records)
}

pub(crate) fn read(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ReadRequest::decode)?;
    let Records { usage, last, more } = records(ctx, &request)?;
    let mut sums = BTreeMap::new();
    for usage in usage {
        let of = UserBucket { user: usage.user().clone(), bucket: usage.bucket.clone() };
        sums.entry(of).or_insert_with(Usage::default).add(&usage);
    }
    let next = if more { last } else { Name::default() };
    output(&ReadReply { usage: sums, truncated: more, next })
}

/// ENODATA when there is nothing left to trim.
pub(crate) fn trim(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    ctx.stat()?;
    let TrimRequest { start, end, user, bucket } = input(bytes, TrimRequest::decode)?;
    let mut request = ReadRequest { start, end, user, after: Name::default(), max: 0, bucket };
    loop {
        let Records { usage, last, more } = records(ctx, &request)?;
        if usage.is_empty() && more {
            // A page of other buckets' records.
            request.after = last;
            continue;
        }
        if usage.is_empty() {
            return fail(ENODATA);
        }
        let keys: BTreeSet<Name> =
            usage.iter().flat_map(|usage| [usage.by_time(), usage.by_user()]).collect();
        ctx.omap_remove_all(&keys)?;
        return ok();
    }
}

pub(crate) fn clear(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    if ctx.exists() {
        ctx.omap_clear()?;
    }
    ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Memory, decoded, done, error};

    fn name(text: &str) -> Name {
        Name::from(text)
    }

    fn add(object: &mut Memory, user: &str, bucket: &str, hour: u64) {
        let counts = Counts { bytes_sent: 5, ops: 1, ..Counts::default() };
        let by_category = [(name("get_obj"), counts)].into();
        let (owner, bucket) = (name(user), name(bucket));
        let usage = Usage { owner, bucket, hour, total: counts, by_category, ..Usage::default() };
        let list = UsageList { usage: vec![usage] };
        done(object, "rgw.user_usage_log_add", &to_vec(&AddRequest { list, user: name("") }));
    }

    fn read(object: &mut Memory, user: &str, bucket: &str, max: u32) -> ReadReply {
        let (user, bucket, after) = (name(user), name(bucket), name(""));
        let request = ReadRequest { start: 0, end: u64::MAX >> 1, user, after, max, bucket };
        decoded(&done(object, "rgw.user_usage_log_read", &to_vec(&request)))
    }

    #[test]
    fn usage_is_summed_by_user_and_bucket_and_trimmed() {
        let mut object = Memory::default();
        add(&mut object, "u", "a", 3600);
        add(&mut object, "u", "a", 3600);
        add(&mut object, "u", "a", 7200);
        add(&mut object, "v", "b", 3600);
        let reply = read(&mut object, "u", "", 0);
        let sums: Vec<u64> = reply.usage.values().map(|usage| usage.total.ops).collect();
        assert_eq!((sums, reply.truncated), (vec![3], false));
        assert_eq!(read(&mut object, "", "", 0).usage.len(), 2);
        assert_eq!(read(&mut object, "u", "other", 0).usage.len(), 0);
        let page = read(&mut object, "u", "", 1);
        assert_eq!((page.truncated, page.next), (true, name("u_00000003600_a")));
        let trim = TrimRequest { start: 0, end: 7200, user: name("u"), bucket: name("") };
        done(&mut object, "rgw.user_usage_log_trim", &to_vec(&trim));
        assert_eq!(error(&mut object, "rgw.user_usage_log_trim", &to_vec(&trim)), ENODATA);
        assert_eq!(read(&mut object, "", "", 0).usage.len(), 2);
        done(&mut object, "rgw.usage_log_clear", b"");
        assert_eq!(object.omap.len(), 0);
    }
}
