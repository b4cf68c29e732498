//! Sessions with clients and daemons, and their subscriptions.

pub mod caps;

use crate::counters::MonCounters;
use crate::mon::Mon;
use crate::services::Options;
use crate::services::log::subscribed_level;
use crate::services::osdmap::maps::updates;
use crate::state::Published;
use caps::SessionCaps;
use nacre_base::{Epoch, OsdId, Time};
use nacre_machine::{ConnId, Effect, Peer};
use nacre_proto::messages::{GetConfig, MonSub, MonSubscribe};
use nacre_proto::types::EntityType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Messages a client may send at once, and then per second.
const BURST: u32 = 5000;
const PER_SECOND: u32 = 1000;
/// Subscriptions of one session.
const SUBSCRIPTIONS_MAX: usize = 64;

pub struct Sessions {
    all: BTreeMap<ConnId, Session>,
    counted: Arc<MonCounters>,
}

pub struct Session {
    pub peer: Peer,
    pub(crate) caps: SessionCaps,
    /// A monitor that said that it is of this cluster.
    pub is_same_cluster: bool,
    pub host: String,
    subs: BTreeMap<String, MonSub>,
    /// The newest OSD map that was sent here.
    pub sent_osdmap: Epoch,
    /// The newest epoch of each map with epochs that a subscription here was sent.
    pub sent_maps: BTreeMap<String, u64>,
    /// The options that were sent here last.
    pub sent_config: Option<BTreeMap<String, String>>,
    tokens: u32,
    refilled: Time,
}

impl Session {
    pub fn new(peer: Peer, caps: SessionCaps, now: Time) -> Session {
        Session {
            peer,
            caps,
            is_same_cluster: false,
            host: String::new(),
            subs: BTreeMap::new(),
            sent_osdmap: Epoch(0),
            sent_maps: BTreeMap::new(),
            sent_config: None,
            tokens: BURST,
            refilled: now,
        }
    }
    /// The monitor of this cluster at that address, if there is one.
    pub fn monitor(&self) -> Option<u64> {
        let num = u64::try_from(self.peer.num).ok().filter(|_| self.is_same_cluster)?;
        // No member has number zero.
        Some(num + 1)
    }
    pub fn osd(&self) -> Option<OsdId> {
        (self.peer.kind == EntityType::Osd).then_some(OsdId(self.peer.num as i32))
    }
    /// Whether one more message is within what this peer may send. Daemons always may.
    pub fn admit(&mut self) -> bool {
        if self.peer.kind != EntityType::Client {
            return true;
        }
        let admitted = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        admitted
    }
}

impl Sessions {
    pub fn new(counted: Arc<MonCounters>) -> Sessions {
        Sessions { all: BTreeMap::new(), counted }
    }
    pub fn insert(&mut self, conn: ConnId, session: Session) {
        self.all.insert(conn, session);
        self.counted.session_add.inc();
        self.counted.num_sessions.set(self.all.len() as u64);
    }
    pub fn remove(&mut self, conn: ConnId) -> Option<Session> {
        let session = self.all.remove(&conn)?;
        self.counted.session_rm.inc();
        self.counted.num_sessions.set(self.all.len() as u64);
        Some(session)
    }
    pub fn get(&self, conn: ConnId) -> Option<&Session> {
        self.all.get(&conn)
    }
    pub fn get_mut(&mut self, conn: ConnId) -> Option<&mut Session> {
        self.all.get_mut(&conn)
    }
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, &Session)> {
        self.all.iter().map(|(conn, session)| (*conn, session))
    }
    /// Whether the OSD has a session here.
    pub fn has_osd(&self, osd: OsdId) -> bool {
        self.iter().any(|(_, session)| session.osd() == Some(osd))
    }
    /// What an OSD that has a session here supports.
    pub fn osd_features(&self, osd: OsdId) -> u64 {
        let session = self.all.values().find(|session| session.osd() == Some(osd));
        session.map_or(0, |session| session.peer.features)
    }
    /// All but monitors.
    pub fn clients(&self) -> Vec<ConnId> {
        self.iter().filter(|(_, s)| s.peer.kind != EntityType::Mon).map(|(conn, _)| conn).collect()
    }
    pub fn refill(&mut self, now: Time) {
        for session in self.all.values_mut() {
            let earned = now.since(session.refilled).as_millis() as u64 * u64::from(PER_SECOND) / 1000;
            if earned > 0 {
                session.tokens = (u64::from(session.tokens) + earned).min(BURST.into()) as u32;
                session.refilled = now;
            }
        }
    }
}

impl Mon {
    /// Tells the driver and OSDs by which keys callers are known, if that changed.
    pub(crate) fn publish_keys(&mut self, out: &mut Vec<Effect>) {
        let Some(state) = self.state.as_ref().filter(|_| self.config.auth.required) else { return };
        let options = Options { state: Some(state), file: &self.config.options, overrides: &self.overrides };
        if self.services.auth.publish(state, options, out) {
            for (conn, session) in self.sessions.iter() {
                self.services.auth.send_to_osd(conn, session, &mut self.entropy, out);
            }
        }
    }

    pub(crate) fn on_subscribe(&mut self, conn: ConnId, subscribe: MonSubscribe, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get_mut(conn) else { return };
        if !subscribe.hostname.is_empty() {
            session.host = subscribe.hostname;
        }
        for (what, sub) in subscribe.what {
            if !session.caps.may_hear(&what) {
                continue;
            }
            if what == "config" {
                session.sent_config = None;
            }
            if subscribed_level(&what).is_some() {
                session.subs.retain(|other, _| subscribed_level(other).is_none());
            }
            if session.subs.len() < SUBSCRIPTIONS_MAX || session.subs.contains_key(&what) {
                session.subs.insert(what, sub);
            }
        }
        self.serve_subscriptions(conn, out);
    }

    /// Sends all subscribers what changed since the OSD map was at `before`.
    pub(crate) fn publish(&mut self, before: Epoch, out: &mut Vec<Effect>) {
        self.publish_keys(out);
        let conns: Vec<ConnId> = self.sessions.iter().map(|(conn, _)| conn).collect();
        for conn in conns {
            self.serve_subscriptions(conn, out);
            let (Some(session), Some(state)) = (self.sessions.get_mut(conn), &self.state) else { continue };
            // A client asks again only when an operation stands still for seconds. So a session that was sent
            // a map is sent the next one unasked.
            if state.osdmap.map.epoch > before && session.sent_osdmap > Epoch(0) {
                let messages = updates(state, session, session.sent_osdmap.next());
                out.extend(messages.into_iter().map(|message| Effect::Send { conn, tid: 0, message }));
            }
        }
    }

    fn serve_subscriptions(&mut self, conn: ConnId, out: &mut Vec<Effect>) {
        let (Some(session), Some(state)) = (self.sessions.get_mut(conn), &self.state) else { return };
        let subscriptions: Vec<(String, MonSub)> =
            session.subs.iter().map(|(what, sub)| (what.clone(), *sub)).collect();
        for (what, sub) in subscriptions {
            let Some(Published { messages, next }) = state.publish(&what, session, sub.start) else {
                continue;
            };
            out.extend(messages.into_iter().map(|message| Effect::Send { conn, tid: 0, message }));
            if let Some((newest, _)) = state.version(&what) {
                let sent = next - 1;
                assert!(sent <= newest, "{conn} is sent {what} {sent}, and {newest} is committed");
                session.sent_maps.insert(what.clone(), sent);
            }
            if sub.is_onetime() {
                session.subs.remove(&what);
            } else {
                session.subs.insert(what, MonSub { start: next, ..sub });
            }
        }
    }

    pub(crate) fn effective_config_of(&self, ask: &GetConfig) -> BTreeMap<String, String> {
        let name = ask.name.to_string();
        let (kind, id) = name.split_once('.').unwrap_or((&name, ""));
        let Some(state) = &self.state else { return BTreeMap::new() };
        state.config_values(kind.to_string(), id.to_string(), ask.host.clone())
    }
}
