//! A watch on an object, and its events.

use crate::client::RadosClient;
use bytes::Bytes;
use nacre_client::{Failure, ObjectRequest, Output, Request, RequestKind, WatchEvent, WatchId};
use std::time::Duration;
use tokio::sync::mpsc;

/// Events that wait for `next`; when more come, they are dropped, and notifiers see a timeout.
const EVENTS_MAX: usize = 1024;

/// A watch of an object, which continues across restarts of OSDs. Dropping it ends it.
pub struct Watch {
    client: RadosClient,
    object: ObjectRequest,
    id: WatchId,
    events: mpsc::Receiver<WatchEvent>,
}

impl Watch {
    pub(crate) async fn start(
        client: RadosClient,
        object: ObjectRequest,
        timeout: Duration,
    ) -> Result<Watch, Failure> {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let request = Request::from(RequestKind::Watch { object: object.clone(), timeout });
        match client.send(request, Some(sender)).await? {
            Output::Watching(id) => Ok(Watch { client, object, id, events }),
            other => Err(crate::client::unexpected(&other)),
        }
    }

    pub fn id(&self) -> WatchId {
        self.id
    }

    /// The next event; none after `WatchEvent::Lost`, which says that the watch is over.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.events.recv().await
    }

    /// Acknowledges a notify, whose sender gets `reply`.
    pub async fn ack(&self, notify_id: u64, reply: impl Into<Bytes>) -> Result<(), Failure> {
        let ack = self.object.clone().notify_ack(self.id, notify_id, reply);
        self.client.request(ack).await.map(drop)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.client.unwatch(self.id);
    }
}
