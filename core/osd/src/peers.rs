//! Sessions with other OSDs.
//!
//! Each OSD dials those it has something to ask; answers come on the same session. So two OSDs that
//! talk have a session in each direction, no tie needs to be broken, and a session's end loses
//! only its owner's questions, which the owner asks again when the next session is open.

use nacre_base::{OsdId, Time};
use nacre_machine::ConnId;
use nacre_proto::types::{EntityAddr, Network};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a session is pinged over which nothing else comes.
pub const PING_EVERY: Duration = Duration::from_millis(500);
/// A session over which nothing came for this long is given up.
const GRACE: Duration = Duration::from_secs(2);
/// How long a dialled OSD that did not answer is left alone.
const REDIAL: Duration = Duration::from_millis(200);
/// Refusals on two networks within this time are one answer.
const SAME_ANSWER: Duration = Duration::from_secs(1);
/// A network on which no session could be opened is not tried again before, while the other one works.
const ELSEWHERE_FOR: Duration = Duration::from_secs(60);

/// Our session with another OSD.
pub struct PeerSession {
    pub conn: ConnId,
    pub addr: EntityAddr,
    pub network: Network,
    pub open: bool,
    /// When something last came over it, or else when it was dialled.
    heard: Time,
}

#[derive(Default)]
pub struct Peers {
    sessions: BTreeMap<OsdId, PeerSession>,
    /// The OSDs of the sessions.
    by_conn: BTreeMap<ConnId, OsdId>,
    not_before: BTreeMap<OsdId, Time>,
    failed: BTreeMap<OsdId, Failed>,
    /// Incarnations with which a session ended or could not be opened, and since when there has been none.
    without: BTreeMap<OsdId, (u32, Time)>,
}

/// The last attempt to open a session that failed.
struct Failed {
    network: Network,
    /// The connection was refused: no process listens there.
    refused: bool,
    at: Time,
}

/// What the end of a session shows about the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The process is gone, as far as this OSD can see.
    Gone,
    /// The connection was refused on that network: the other network decides.
    AskElsewhere,
    Unknown,
}

impl Peers {
    /// OSDs with a session.
    pub fn osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.sessions.keys().copied()
    }
    /// The open session with that OSD, and the network on which it is.
    pub fn open(&self, osd: OsdId) -> Option<(ConnId, Network)> {
        self.sessions.get(&osd).filter(|session| session.open).map(|session| (session.conn, session.network))
    }
    /// Since when there has been no session with that incarnation although one was wanted.
    pub fn without_since(&self, osd: OsdId, life: u32) -> Option<Time> {
        self.without.get(&osd).filter(|(of, _)| *of == life).map(|(_, since)| *since)
    }
    /// OSDs without a session although one is wanted.
    pub fn wanted(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.without.keys().copied()
    }
    /// Whether it should be dialled now: there is no session, and the last one did not just fail.
    pub fn may_dial(&self, osd: OsdId, now: Time) -> bool {
        !self.sessions.contains_key(&osd) && self.not_before.get(&osd).is_none_or(|t| *t <= now)
    }
    pub fn dialled(&mut self, osd: OsdId, conn: ConnId, addr: EntityAddr, network: Network, now: Time) {
        let session = PeerSession { conn, addr, network, open: false, heard: now };
        if let Some(before) = self.sessions.insert(osd, session) {
            self.by_conn.remove(&before.conn);
        }
        self.by_conn.insert(conn, osd);
    }
    /// The nonce of the address that we talk to, or try to.
    pub fn life(&self, osd: OsdId) -> Option<u32> {
        self.sessions.get(&osd).map(|session| session.addr.nonce)
    }
    /// The network on which we talk to it, or try to.
    pub fn network(&self, osd: OsdId) -> Option<Network> {
        self.sessions.get(&osd).map(|session| session.network)
    }
    /// Which network to dial an OSD on that has both: the one that did not just fail.
    pub fn network_to_dial(&self, osd: OsdId, preferred: Network) -> Network {
        self.failed.get(&osd).map_or(preferred, |failed| failed.network.other())
    }
    /// The open sessions that should be on another network.
    pub fn misplaced(&self, now: Time, preferred: impl Fn(OsdId) -> Option<Network>) -> Vec<(OsdId, ConnId)> {
        let failed = |osd, network| {
            let last: Option<&Failed> = self.failed.get(&osd);
            last.is_some_and(|last| last.network == network && now.since(last.at) < ELSEWHERE_FOR)
        };
        let elsewhere = |osd: OsdId, session: &PeerSession| {
            let preferred = preferred(osd).filter(|network| *network != session.network);
            session.open && preferred.is_some_and(|network| !failed(osd, network))
        };
        self.sessions
            .iter()
            .filter(|(osd, session)| elsewhere(**osd, session))
            .map(|(osd, session)| (*osd, session.conn))
            .collect()
    }
    /// Whether there is no session over which something came lately.
    pub fn is_quiet(&self, osd: OsdId, now: Time) -> bool {
        self.sessions.get(&osd).is_none_or(|session| now.since(session.heard) >= PING_EVERY)
    }
    /// Something came over the session, which is on this network.
    pub fn heard_on(&mut self, osd: OsdId, now: Time) -> Option<Network> {
        let session = self.sessions.get_mut(&osd)?;
        session.heard = now;
        Some(session.network)
    }
    /// Sessions over which nothing comes any more, though pings are sent: the network may have lost
    /// them without either end noticing. The caller closes them; dialling again opens new ones.
    pub fn dead_sessions(&mut self, now: Time) -> Vec<ConnId> {
        let dead: Vec<(OsdId, ConnId)> = self
            .sessions
            .iter()
            .filter(|(_, session)| now.since(session.heard) > GRACE)
            .map(|(osd, session)| (*osd, session.conn))
            .collect();
        for (osd, _) in &dead {
            self.closed(*osd, now, false);
        }
        dead.into_iter().map(|(_, conn)| conn).collect()
    }
    pub fn by_conn(&self, conn: ConnId) -> Option<OsdId> {
        self.by_conn.get(&conn).copied()
    }
    pub fn opened(&mut self, osd: OsdId, now: Time) {
        if let Some(session) = self.sessions.get_mut(&osd) {
            session.open = true;
            session.heard = now;
            self.without.remove(&osd);
            let network = session.network;
            if self.failed.get(&osd).is_some_and(|failed| failed.network == network) {
                self.failed.remove(&osd);
            }
        }
    }
    /// The session is over. `refused`: the connection was refused.
    pub fn closed(&mut self, osd: OsdId, now: Time, refused: bool) {
        let Some(session) = self.sessions.remove(&osd) else { return };
        self.by_conn.remove(&session.conn);
        let without = self.without.entry(osd).or_insert((session.addr.nonce, now));
        if without.0 != session.addr.nonce {
            *without = (session.addr.nonce, now);
        }
        // After the end of a session that was open, the OSD may be dialled again at once.
        if !session.open {
            self.not_before.insert(osd, now + REDIAL);
            self.failed.insert(osd, Failed { network: session.network, refused, at: now });
        }
    }
    /// The same, for an OSD with an address on two networks (`two`) or on one.
    pub fn refused(&mut self, osd: OsdId, now: Time, two: bool) -> Ended {
        let Some(network) = self.network(osd) else { return Ended::Unknown };
        let elsewhere = self.failed.get(&osd).is_some_and(|failed| {
            failed.refused && failed.network != network && now.since(failed.at) < SAME_ANSWER
        });
        self.closed(osd, now, true);
        if two && !elsewhere {
            self.not_before.remove(&osd);
            return Ended::AskElsewhere;
        }
        Ended::Gone
    }
    /// Sessions with incarnations that are not in the map any more, to be closed.
    pub fn outdated(&mut self, current: impl Fn(OsdId, Network) -> Option<EntityAddr>) -> Vec<ConnId> {
        let mut over = Vec::new();
        self.sessions.retain(|&osd, session| {
            let keep = current(osd, session.network) == Some(session.addr);
            if !keep {
                over.push(session.conn);
                self.by_conn.remove(&session.conn);
            }
            keep
        });
        self.not_before.clear();
        self.failed.clear();
        over
    }
    /// Incarnations that are not in the map any more are not wanted; one that returns starts anew.
    pub fn want_only(&mut self, is_up: impl Fn(OsdId, u32) -> bool) {
        self.without.retain(|osd, (life, _)| is_up(*osd, *life));
    }
    /// We stood still ourselves for a while: silence until now proves nothing about others.
    pub fn forgive(&mut self, now: Time) {
        self.sessions.values_mut().for_each(|session| session.heard = now);
        self.without.values_mut().for_each(|(_, since)| *since = now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: OsdId = OsdId(1);

    #[test]
    fn session_is_wanted_while_the_incarnation_is_up() {
        let at = |secs: u64| Time::from_nanos(secs * 1_000_000_000);
        let mut peers = Peers::default();
        let fails = |peers: &mut Peers, life, secs| {
            let addr = EntityAddr::msgr2(([127, 0, 0, 1], 6800).into(), life);
            peers.dialled(OTHER, ConnId::Dialled(secs), addr, Network::Public, at(secs));
            peers.closed(OTHER, at(secs), true);
        };
        fails(&mut peers, 7, 10);
        fails(&mut peers, 7, 12);
        assert_eq!((peers.without_since(OTHER, 7), peers.without_since(OTHER, 8)), (Some(at(10)), None));
        fails(&mut peers, 8, 20);
        assert_eq!((peers.without_since(OTHER, 7), peers.without_since(OTHER, 8)), (None, Some(at(20))));
        // It is down; when it is up again, no session was tried yet.
        peers.want_only(|_, _| false);
        assert_eq!(peers.without_since(OTHER, 8), None);

        fails(&mut peers, 8, 30);
        let addr = EntityAddr::msgr2(([127, 0, 0, 1], 6800).into(), 8);
        peers.dialled(OTHER, ConnId::Dialled(31), addr, Network::Public, at(31));
        assert_eq!(peers.without_since(OTHER, 8), Some(at(30)));
        peers.opened(OTHER, at(32));
        assert_eq!(peers.without_since(OTHER, 8), None);
    }
}
