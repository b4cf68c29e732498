//! I/O statistics of each image, counted while they are asked for: `rbd perf image iostat`.

use crate::op_tracker::{Access, Request};
use nacre_base::Time;
use nacre_proto::messages::{ImageCounts, ImageKey, ImageWork, OsdOpReply};
use std::collections::BTreeMap;
use std::time::Duration;

/// Of more images at a time, the rest is not counted.
const IMAGES_MAX: usize = 1000;
/// The longest time for which statistics may be requested.
const WANTED_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub struct ImageStats {
    until: Option<Time>,
    counted: BTreeMap<ImageKey, ImageCounts>,
}

impl ImageStats {
    pub fn count_for(&mut self, now: Time, time: Duration) {
        self.until = Some(now + time.min(WANTED_MAX));
    }

    /// A request that is answered now.
    pub fn add(&mut self, now: Time, request: &Request, reply: &OsdOpReply) {
        if self.until.is_none() {
            return;
        }
        let at = &request.op.locator;
        let (namespace, object) = (at.namespace.to_string(), request.op.name.to_string());
        let Some(image) = ImageKey::of_object(at.pool, &namespace, &object) else { return };
        if self.counted.len() >= IMAGES_MAX && !self.counted.contains_key(&image) {
            return;
        }
        let nanos = now.since(request.steps.arrived).as_nanos() as u64;
        let mut done = ImageCounts::default();
        if request.access != Access::Read {
            (done.writes, done.write_bytes, done.write_nanos) = (1, request.data_len() as u64, nanos);
        }
        if request.access != Access::Write {
            let bytes = reply.ops.iter().map(|result| result.data.len() as u64).sum();
            (done.reads, done.read_bytes, done.read_nanos) = (1, bytes, nanos);
        }
        let counts = self.counted.entry(image).or_default();
        *counts = counts.plus(done);
    }

    /// What is to be reported.
    pub fn take(&mut self, now: Time) -> Vec<ImageWork> {
        self.until = self.until.filter(|until| now < *until);
        let counted = std::mem::take(&mut self.counted);
        counted.into_iter().map(|(image, counts)| ImageWork { image, counts }).collect()
    }
}
