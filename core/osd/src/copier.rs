//! Fetches objects of other groups for `copy-from`: an OSD is then a client of another, or of
//! itself. The object is read in one request, the rest of a large omap in more that make sure that
//! it is still the same.

use crate::ops::Copied;
use bytes::Bytes;
use nacre_base::errno::{EINVAL, EIO};
use nacre_base::{Name, PgId, SnapId, Time, Utime};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::{OsdOp, OsdOpItem, OsdOpReply};
use nacre_proto::types::{CopySource, Extent, ObjectLocator, Op, ReqId, SpgId, object_hash, op_flags};
use nacre_wire::{Decode, DecodeError, Reader};
use std::collections::BTreeMap;
use std::time::Duration;

/// A request that was not answered is sent again; it only reads.
const RETRY: Duration = Duration::from_secs(1);
/// Omap pairs in one request.
const PAGE: u64 = 1024;

/// One object on its way.
struct Job {
    pg: PgId,
    read: u64,
    source: CopySource,
    copied: Copied,
    /// The object's version and the last omap key that came, once something did.
    so_far: Option<(u64, Name)>,
    sent: Time,
}

/// For the request `read` of the group: the object, or a negative errno.
pub struct Finished {
    pub pg: PgId,
    pub read: u64,
    pub result: Result<Copied, i32>,
}

#[derive(Default)]
pub struct Copier {
    last: u64,
    jobs: BTreeMap<u64, Job>,
}

impl Copier {
    pub fn start(&mut self, pg: PgId, read: u64, source: CopySource) {
        self.last += 1;
        let job = Job { pg, read, source, copied: Copied::default(), so_far: None, sent: Time::ZERO };
        self.jobs.insert(self.last, job);
    }

    /// Requests to be sent now, by their numbers.
    pub fn due(&mut self, now: Time, map: &OsdMap) -> Vec<(u64, OsdOp)> {
        let mut due = Vec::new();
        for (&tid, job) in &mut self.jobs {
            if job.sent == Time::ZERO || now.since(job.sent) > RETRY {
                job.sent = now;
                due.extend(job.request(map).map(|op| (tid, op)));
            }
        }
        due
    }

    pub fn on_reply(&mut self, tid: u64, reply: &OsdOpReply) -> Option<Finished> {
        let job = self.jobs.get_mut(&tid)?;
        let result = if reply.result < 0 {
            Err(reply.result)
        } else {
            match job.take(reply) {
                Ok(true) => Ok(std::mem::take(&mut job.copied)),
                Ok(false) => {
                    job.sent = Time::ZERO;
                    return None;
                }
                Err(_) => Err(-EIO),
            }
        };
        let job = self.jobs.remove(&tid)?;
        Some(Finished { pg: job.pg, read: job.read, result })
    }

    /// Copies whose source is in no pool of the map.
    pub fn hopeless(&mut self, map: &OsdMap) -> Vec<Finished> {
        let lost = |job: &Job| map.pool(job.source.locator.pool).is_none();
        let gone: Vec<u64> = self.jobs.iter().filter(|(_, job)| lost(job)).map(|(tid, _)| *tid).collect();
        gone.into_iter()
            .filter_map(|tid| self.jobs.remove(&tid))
            .map(|job| Finished { pg: job.pg, read: job.read, result: Err(-EINVAL) })
            .collect()
    }
}

impl Job {
    fn request(&self, map: &OsdMap) -> Option<OsdOp> {
        let ObjectLocator { key, namespace, .. } = &self.source.locator;
        let name = self.source.name.clone();
        let hash = object_hash(namespace, if key.is_empty() { &name } else { key });
        let pg = map.hash_to_pg(self.source.locator.pool, hash)?;
        let omap = |after: Name| Op::OmapGetVals { after, max: PAGE, prefix: Name::default() };
        let ops = match &self.so_far {
            Some((version, after)) => vec![Op::AssertVer { version: *version }, omap(after.clone())],
            None => {
                let version = self.source.version;
                let assert = (version != 0).then_some(Op::AssertVer { version });
                let all =
                    [Op::Read(Extent::default()), Op::GetXattrs, Op::OmapGetHeader, omap(Name::default())];
                assert.into_iter().chain(all).collect()
            }
        };
        Some(OsdOp {
            spg: SpgId::replicated(pg),
            hash,
            epoch: map.epoch,
            flags: op_flags::message::READ,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: Utime::ZERO,
            locator: ObjectLocator { hash: None, ..self.source.locator.clone() },
            name,
            ops: ops.into_iter().map(OsdOpItem::from).collect(),
            snap: SnapId::HEAD,
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        })
    }

    /// Whether that was all.
    fn take(&mut self, reply: &OsdOpReply) -> Result<bool, DecodeError> {
        let mut outputs: Vec<Bytes> = reply.ops.iter().map(|op| op.data.clone()).collect();
        let omap = outputs.pop().unwrap_or_default();
        if self.so_far.is_none() {
            self.copied.omap_header = outputs.pop().unwrap_or_default();
            self.copied.attrs = BTreeMap::decode(&mut Reader::new(&outputs.pop().unwrap_or_default()))?;
            self.copied.data = outputs.pop().unwrap_or_default();
        }
        let mut r = Reader::new(&omap);
        self.copied.omap.extend(BTreeMap::<Name, Bytes>::decode(&mut r)?);
        let more = bool::decode(&mut r)?;
        let last = self.copied.omap.last_key_value().map(|(key, _)| key.clone()).unwrap_or_default();
        self.so_far = Some((reply.user_version, last));
        Ok(!more)
    }
}
