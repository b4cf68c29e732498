//! Sessions of clients in this process, such as its admin sockets: a command each, and the answer to it.

use nacre_machine::{Closed, ConnId, Event, Peer};
use nacre_proto::messages::Message;
use nacre_proto::types::{AddrVec, EntityAddr, EntityType};
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// The clients that wait for an answer.
#[derive(Default)]
pub(crate) struct LocalSessions(BTreeMap<ConnId, oneshot::Sender<Message>>);

impl LocalSessions {
    /// A client that may do everything sends a command.
    pub(crate) fn open(
        &mut self,
        conn: ConnId,
        request: Message,
        answer: oneshot::Sender<Message>,
    ) -> [Event; 2] {
        self.0.insert(conn, answer);
        let peer = Peer {
            kind: EntityType::Client,
            num: -1,
            addrs: AddrVec::default(),
            observed: EntityAddr::default(),
            features: 0,
            auth_name: None,
            proved: None,
        };
        [Event::Opened { conn, peer }, Event::Message { conn, tid: 1, message: request }]
    }

    pub(crate) fn has(&self, conn: ConnId) -> bool {
        self.0.contains_key(&conn)
    }

    /// The machine answers, which ends the session. It also sends what all clients get, such as maps.
    pub(crate) fn answer(&mut self, conn: ConnId, message: Message) -> Option<Event> {
        if !matches!(message, Message::CommandReply(_)) {
            return None;
        }
        let waits = self.0.remove(&conn)?;
        // A client that waits no longer misses nothing.
        let _ = waits.send(message);
        Some(Event::Closed { conn, why: Closed::Reset })
    }

    pub(crate) fn hang_up(&mut self, conn: ConnId) {
        self.0.remove(&conn);
    }

    /// Ends the sessions whose clients wait no longer.
    pub(crate) fn abandoned(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.0
            .extract_if(.., |_, waits| waits.is_closed())
            .map(|(conn, _)| Event::Closed { conn, why: Closed::Reset })
    }
}
