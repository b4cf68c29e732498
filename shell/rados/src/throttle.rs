//! The cap on what is in flight: callers wait, and the memory that a client takes is bounded.

use crate::config::Limits;
use nacre_client::{ObjectRequest, RequestKind};
use std::sync::Arc;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// Bytes are counted in pieces of this size, since a semaphore counts up to 2^32.
const PIECE: usize = 1024;
/// What a read without a length counts as: the size of a whole object, as most users choose it.
const WHOLE_OBJECT: usize = 4 << 20;

pub(crate) struct Throttle {
    ops: Arc<Semaphore>,
    /// Watches and notifies wait for other clients, which may wait for us: they have a cap of their own.
    lingering: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    bytes_max: u32,
}

/// Held as long as a request is in flight.
pub(crate) struct Permits {
    _op: OwnedSemaphorePermit,
    _bytes: Option<OwnedSemaphorePermit>,
}

impl Throttle {
    pub(crate) fn new(limits: &Limits) -> Throttle {
        let bytes_max = pieces(limits.bytes_in_flight).max(1);
        Throttle {
            ops: Arc::new(Semaphore::new(limits.ops_in_flight.max(1))),
            lingering: Arc::new(Semaphore::new(limits.ops_in_flight.max(1))),
            bytes: Arc::new(Semaphore::new(bytes_max as usize)),
            bytes_max,
        }
    }

    fn cost<'a>(&'a self, request: &RequestKind) -> (&'a Arc<Semaphore>, u32) {
        let (ops, bytes) = match request {
            RequestKind::Object(object) => (&self.ops, object_bytes(object)),
            RequestKind::Notify { payload, .. } => (&self.lingering, payload.len()),
            RequestKind::Watch { .. } | RequestKind::Unwatch(_) => (&self.lingering, 0),
            RequestKind::MonCommand { input, .. }
            | RequestKind::MgrCommand { input, .. }
            | RequestKind::OsdCommand { input, .. }
            | RequestKind::PgCommand { input, .. } => (&self.ops, input.len()),
            _ => (&self.ops, 0),
        };
        // One that is larger than the cap has all of it.
        (ops, pieces(bytes).min(self.bytes_max))
    }

    /// What a request needs, if it need not wait.
    pub(crate) fn try_take(&self, request: &RequestKind) -> Result<Permits, TryAcquireError> {
        let (ops, pieces) = self.cost(request);
        let op = ops.clone().try_acquire_owned()?;
        let bytes = match pieces {
            0 => None,
            pieces => Some(self.bytes.clone().try_acquire_many_owned(pieces)?),
        };
        Ok(Permits { _op: op, _bytes: bytes })
    }

    /// Callers get it in the order in which they asked.
    pub(crate) async fn take(&self, request: &RequestKind) -> Result<Permits, AcquireError> {
        let (ops, pieces) = self.cost(request);
        let op = ops.clone().acquire_owned().await?;
        let bytes = match pieces {
            0 => None,
            pieces => Some(self.bytes.clone().acquire_many_owned(pieces).await?),
        };
        Ok(Permits { _op: op, _bytes: bytes })
    }
}

fn pieces(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX >> 4).min(u32::MAX >> 4)
}

fn object_bytes(object: &ObjectRequest) -> usize {
    object.bytes().saturating_add(object.bytes_read(WHOLE_OBJECT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::PoolId;
    use std::time::Duration;

    fn write(len: usize) -> RequestKind {
        RequestKind::Object(ObjectRequest::new(PoolId(1), "a").write_full(vec![0; len]))
    }

    #[tokio::test]
    async fn callers_wait_for_operations_and_for_bytes() {
        let throttle = Throttle::new(&Limits { ops_in_flight: 2, bytes_in_flight: 8 << 10 });
        let first = throttle.try_take(&write(6 << 10)).unwrap();
        assert!(throttle.try_take(&write(3 << 10)).is_err());
        let second = throttle.try_take(&write(1 << 10)).unwrap();
        assert!(throttle.try_take(&write(0)).is_err());
        drop(first);
        // More than the cap goes alone.
        let large = write(1 << 20);
        let waits = throttle.take(&large);
        tokio::pin!(waits);
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut waits).await.is_err());
        drop(second);
        let alone = waits.await.unwrap();
        assert!(throttle.try_take(&write(1)).is_err());
        drop(alone);
        assert!(throttle.try_take(&write(1)).is_ok());
    }

    #[test]
    fn a_read_counts_as_what_it_may_bring() {
        let throttle = Throttle::new(&Limits { ops_in_flight: 8, bytes_in_flight: 6 << 20 });
        let read = |len| RequestKind::Object(ObjectRequest::new(PoolId(1), "a").read(0, len));
        let _whole = throttle.try_take(&read(0)).unwrap();
        assert!(throttle.try_take(&read(0)).is_err());
        assert!(throttle.try_take(&read(2 << 20)).is_ok());
    }
}
