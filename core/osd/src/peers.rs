//! Sessions with other OSDs.
//!
//! Each OSD dials those it has something to ask; answers come on the same session. So two OSDs that
//! talk have a session in each direction, nobody needs to break a tie, and a session's end loses
//! only its owner's questions, who asks again when the next one is open.

use nacre_base::{OsdId, Time};
use nacre_machine::ConnId;
use nacre_proto::types::EntityAddr;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the other end of a session is asked whether it hears us.
pub const PING_EVERY: Duration = Duration::from_millis(500);
/// A session over which nothing came for so long is given up.
const GRACE: Duration = Duration::from_secs(2);
/// How long a dialled OSD that did not answer is left alone.
const REDIAL: Duration = Duration::from_millis(200);

/// Our session with another OSD.
pub struct PeerSession {
    pub conn: ConnId,
    pub addr: EntityAddr,
    pub open: bool,
    /// When something last came over it, or else when it was dialled.
    heard: Time,
}

#[derive(Default)]
pub struct Peers {
    sessions: BTreeMap<OsdId, PeerSession>,
    not_before: BTreeMap<OsdId, Time>,
}

impl Peers {
    /// Whom we have a session with.
    pub fn osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.sessions.keys().copied()
    }
    /// The open session with that OSD.
    pub fn open(&self, osd: OsdId) -> Option<ConnId> {
        self.sessions.get(&osd).filter(|session| session.open).map(|session| session.conn)
    }
    /// Whether it should be dialled now: there is no session, and the last one did not just fail.
    pub fn may_dial(&self, osd: OsdId, now: Time) -> bool {
        !self.sessions.contains_key(&osd) && self.not_before.get(&osd).is_none_or(|t| *t <= now)
    }
    pub fn dialled(&mut self, osd: OsdId, conn: ConnId, addr: EntityAddr, now: Time) {
        self.sessions.insert(osd, PeerSession { conn, addr, open: false, heard: now });
    }
    /// Something came over the session.
    pub fn heard_on(&mut self, osd: OsdId, now: Time) {
        if let Some(session) = self.sessions.get_mut(&osd) {
            session.heard = now;
        }
    }
    /// Sessions over which nothing comes any more, though pings are sent: the network may have lost
    /// them without telling either end. They are to be hung up; asking again opens new ones.
    pub fn dead_sessions(&mut self, now: Time) -> Vec<ConnId> {
        let dead: Vec<(OsdId, ConnId)> = self
            .sessions
            .iter()
            .filter(|(_, session)| now.since(session.heard) > GRACE)
            .map(|(osd, session)| (*osd, session.conn))
            .collect();
        for (osd, _) in &dead {
            self.closed(*osd, now);
        }
        dead.into_iter().map(|(_, conn)| conn).collect()
    }
    pub fn by_conn(&self, conn: ConnId) -> Option<OsdId> {
        self.sessions.iter().find(|(_, session)| session.conn == conn).map(|(osd, _)| *osd)
    }
    pub fn opened(&mut self, osd: OsdId, now: Time) {
        if let Some(session) = self.sessions.get_mut(&osd) {
            session.open = true;
            session.heard = now;
        }
    }
    /// The session is over; gives the address that it was with.
    pub fn closed(&mut self, osd: OsdId, now: Time) -> Option<EntityAddr> {
        let session = self.sessions.remove(&osd)?;
        // Whoever ended a session that worked may be asked at once whether he is still there.
        if !session.open {
            self.not_before.insert(osd, now + REDIAL);
        }
        Some(session.addr)
    }
    /// Sessions with lives that a map does not know any more, to be hung up.
    pub fn outdated(&mut self, current: impl Fn(OsdId) -> Option<EntityAddr>) -> Vec<ConnId> {
        let mut over = Vec::new();
        self.sessions.retain(|&osd, session| {
            let keep = current(osd) == Some(session.addr);
            if !keep {
                over.push(session.conn);
            }
            keep
        });
        self.not_before.clear();
        over
    }
    /// We stood still ourselves for a while: silence until now proves nothing about others.
    pub fn forgive(&mut self, now: Time) {
        self.sessions.values_mut().for_each(|session| session.heard = now);
    }
}
