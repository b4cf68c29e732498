//! Indexes that are to get more shards, and the mark on an index that is moving.

use super::index::Index;
use super::types::{Header, Resharding};
use crate::context::stored;
use crate::record::record;
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::errno::EINVAL;
use nacre_base::{Name, Utime};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};

/// A bucket that is to get another number of shards. Ceph: `cls_rgw_reshard_entry`, v1 and v2.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Job {
    time: Utime,
    tenant: Name,
    bucket: Name,
    bucket_id: Name,
    /// Until v1.
    new_instance: Option<Name>,
    old_shards: u32,
    new_shards: u32,
}

impl Encode for Job {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, if self.new_instance.is_some() { 1 } else { 2 }, 1, |out| {
            self.time.encode(out);
            (&self.tenant, &self.bucket).encode(out);
            self.bucket_id.encode(out);
            self.new_instance.iter().for_each(|instance| instance.encode(out));
            (self.old_shards, self.new_shards).encode(out);
        });
    }
}
impl Decode for Job {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("cls_rgw_reshard_entry", 2, |r, v| {
            Ok(Job {
                time: Decode::decode(r)?,
                tenant: Decode::decode(r)?,
                bucket: Decode::decode(r)?,
                bucket_id: Decode::decode(r)?,
                new_instance: if v < 2 { Some(Decode::decode(r)?) } else { None },
                old_shards: Decode::decode(r)?,
                new_shards: Decode::decode(r)?,
            })
        })
    }
}

record!(JobMessage, "cls_rgw_reshard_add_op", 1, { job: Job });
record!(ListRequest, "cls_rgw_reshard_list_op", 1, { max: u32, after: Name });
record!(ListReply, "cls_rgw_reshard_list_ret", 1, { jobs: Vec<Job>, truncated: bool });
record!(RemoveRequest, "cls_rgw_reshard_remove_op", 1, { tenant: Name, bucket: Name, bucket_id: Name });
record!(MarkMessage, "cls_rgw_set_bucket_resharding_op", 1, { mark: Resharding });
record!(GuardRequest, "cls_rgw_guard_bucket_resharding_op", 1, { error: i32 });

const JOBS_MAX: u32 = 1000;

fn key(tenant: &Name, bucket: &Name) -> Name {
    Name::new([tenant.as_bytes(), b":", bucket.as_bytes()].concat())
}

pub(crate) fn add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let JobMessage { job } = input(bytes, JobMessage::decode)?;
    ctx.set(&key(&job.tenant, &job.bucket), &job)?;
    ok()
}

pub(crate) fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ListRequest::decode)?;
    let page = ctx.page(request.after.as_bytes(), b"", request.max.min(JOBS_MAX).into())?;
    let jobs = page.pairs.iter().map(|(_, value)| stored(value)).collect::<Result<_, _>>()?;
    output(&ListReply { jobs, truncated: page.more })
}

pub(crate) fn get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let JobMessage { job } = input(bytes, JobMessage::decode)?;
    let job = ctx.need(&key(&job.tenant, &job.bucket))?;
    output(&JobMessage { job })
}

pub(crate) fn remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, RemoveRequest::decode)?;
    let key = key(&request.tenant, &request.bucket);
    let job: Job = ctx.need(&key)?;
    // The job may be about a bucket of the same name that came later.
    if request.bucket_id.is_empty() || job.bucket_id == request.bucket_id {
        ctx.unset(&key)?;
    }
    ok()
}

fn mark(ctx: &mut Context<'_>, resharding: Resharding) -> Reply {
    let mut index = Index::new(ctx);
    let mut header = index.header()?;
    header.resharding = resharding;
    index.set_header(header);
    index.finish()
}

pub(crate) fn set_mark(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, MarkMessage::decode)?;
    mark(ctx, request.mark)
}

pub(crate) fn clear_mark(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    mark(ctx, Resharding::default())
}

fn marked(ctx: &mut Context<'_>) -> Result<Resharding, Stop> {
    let header: Header = ctx.header()?.unwrap_or_default();
    Ok(header.resharding)
}

/// Fails with the error that the request names if the index is moving.
pub(crate) fn guard(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, GuardRequest::decode)?;
    if marked(ctx)?.status == 0 {
        return ok();
    }
    match request.error {
        error if error < 0 => fail(error.checked_neg().unwrap_or(EINVAL)),
        code => Ok((code, Default::default())),
    }
}

pub(crate) fn get_mark(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let mark = marked(ctx)?;
    output(&MarkMessage { mark })
}
