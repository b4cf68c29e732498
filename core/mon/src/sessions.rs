//! Who is connected, and what they want to hear of.

use crate::access::Access;
use crate::mon::Mon;
use crate::state::ConfigWho;
use nacre_base::{Epoch, OsdId, Time};
use nacre_machine::{ConnId, Effect, Peer};
use nacre_proto::messages::{
    Config, FsMapUser, GetConfig, Log, LogLevel, Message, MgrMapMsg, MonMapMsg, MonSub, MonSubscribe,
    OsdMapMsg, PaxosVersion,
};
use nacre_proto::types::EntityType;
use nacre_wire::to_vec;
use std::collections::BTreeMap;

/// Incrementals in one message, as Ceph's `osd_map_message_max`.
const MAPS_PER_MESSAGE: usize = 40;
/// Messages a client may send at once, and then per second.
const BURST: u32 = 5000;
const PER_SECOND: u32 = 1000;
/// Subscriptions of one session.
const SUBSCRIPTIONS_MAX: usize = 64;

#[derive(Default)]
pub struct Sessions {
    all: BTreeMap<ConnId, Session>,
}

pub struct Session {
    pub peer: Peer,
    pub(crate) access: Access,
    /// A monitor that said that it is of this cluster.
    pub is_fellow: bool,
    pub host: String,
    subs: BTreeMap<String, MonSub>,
    /// The newest OSD map that was sent here.
    sent_osdmap: Epoch,
    sent_config: Option<BTreeMap<String, String>>,
    tokens: u32,
    refilled: Time,
}

impl Session {
    pub fn new(peer: Peer, access: Access, now: Time) -> Session {
        Session {
            peer,
            access,
            is_fellow: false,
            host: String::new(),
            subs: BTreeMap::new(),
            sent_osdmap: Epoch(0),
            sent_config: None,
            tokens: BURST,
            refilled: now,
        }
    }
    /// Which monitor of this cluster is there, if it is one.
    pub fn monitor(&self) -> Option<u64> {
        let num = u64::try_from(self.peer.num).ok().filter(|_| self.is_fellow)?;
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
    pub fn insert(&mut self, conn: ConnId, session: Session) {
        self.all.insert(conn, session);
    }
    pub fn remove(&mut self, conn: ConnId) -> Option<Session> {
        self.all.remove(&conn)
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
    pub(crate) fn on_subscribe(&mut self, conn: ConnId, subscribe: MonSubscribe, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get_mut(conn) else { return };
        if !subscribe.hostname.is_empty() {
            session.host = subscribe.hostname;
        }
        for (what, sub) in subscribe.what {
            if !session.access.may_hear(&what) {
                continue;
            }
            if what == "config" {
                session.sent_config = None;
            }
            if session.subs.len() < SUBSCRIPTIONS_MAX || session.subs.contains_key(&what) {
                session.subs.insert(what, sub);
            }
        }
        self.serve_subscriptions(conn, out);
    }

    /// Tells everybody what changed since the OSD map was at `before`.
    pub(crate) fn publish(&mut self, before: Epoch, out: &mut Vec<Effect>) {
        self.tell_keys(out);
        let state = self.state.as_ref().expect("something was applied");
        let new_map = state.osdmap.epoch > before;
        let conns: Vec<ConnId> = self.sessions.iter().map(|(conn, _)| conn).collect();
        for conn in conns {
            self.serve_subscriptions(conn, out);
            let session = self.sessions.get(conn).expect("just seen");
            // A client asks again only when an operation stands still for seconds, so whoever has a
            // map hears of the next one unasked.
            if new_map && session.sent_osdmap > Epoch(0) {
                self.send_osdmaps(conn, session.sent_osdmap.next(), out);
            }
        }
    }

    fn serve_subscriptions(&mut self, conn: ConnId, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get(conn) else { return };
        if self.state.is_none() {
            return;
        }
        let names: Vec<String> = session.subs.keys().cloned().collect();
        for what in names {
            let sub = self.sessions.get(conn).expect("just seen").subs[&what];
            let Some(next) = self.serve_subscription(conn, &what, sub, out) else { continue };
            let session = self.sessions.get_mut(conn).expect("just seen");
            if sub.is_onetime() {
                session.subs.remove(&what);
            } else {
                session.subs.insert(what, MonSub { start: next, ..sub });
            }
        }
    }

    /// Sends what there is of `what` from `sub.start` on; the next start, or none if there is nothing.
    fn serve_subscription(
        &mut self,
        conn: ConnId,
        what: &str,
        sub: MonSub,
        out: &mut Vec<Effect>,
    ) -> Option<u64> {
        let state = self.state.as_ref().expect("the caller checked");
        let mut send = |message: Message| out.push(Effect::Send { conn, tid: 0, message });
        match what {
            "osdmap" => {
                let newest = state.osdmap.epoch;
                if sub.start > newest.0.into() {
                    return None;
                }
                self.send_osdmaps(conn, Epoch(sub.start as u32), out);
                Some(u64::from(newest.0) + 1)
            }
            "monmap" => {
                let epoch = u64::from(state.monmap.epoch.0);
                (sub.start <= epoch).then(|| send(MonMapMsg { map: to_vec(&state.monmap).into() }.into()))?;
                Some(epoch + 1)
            }
            "mgrmap" => {
                let epoch = u64::from(state.mgrmap.epoch.0);
                // Before the first leader said where the manager is there is nothing to tell.
                (epoch > 0 && sub.start <= epoch)
                    .then(|| send(MgrMapMsg { map: to_vec(&state.mgrmap).into() }.into()))?;
                Some(epoch + 1)
            }
            "config" => {
                let values = self.effective_config(conn);
                let session = self.sessions.get_mut(conn).expect("the caller checked");
                if session.sent_config.as_ref() == Some(&values) {
                    return None;
                }
                session.sent_config = Some(values.clone());
                send(Config { values }.into());
                Some(0)
            }
            "fsmap.user" => {
                (sub.start <= 1).then(|| {
                    let none =
                        FsMapUser { epoch: Epoch(1), legacy_client_fscid: -1, filesystems: Vec::new() };
                    send(none.into());
                })?;
                Some(2)
            }
            _ => {
                let level = log_level(what.strip_prefix("log-")?)?;
                // From now on, unless an earlier place was asked for.
                let from = if sub.start == 0 { state.log_seq + 1 } else { sub.start };
                let skip = (state.log.len() as u64).saturating_sub((state.log_seq + 1).saturating_sub(from));
                let entries: Vec<_> = state
                    .log
                    .iter()
                    .skip(skip as usize)
                    .filter(|line| line.level >= level)
                    .cloned()
                    .collect();
                if !entries.is_empty() {
                    let version = PaxosVersion(state.log_seq);
                    send(Log { version, fsid: state.fsid, entries }.into());
                }
                Some(state.log_seq + 1)
            }
        }
    }

    /// The changes from epoch `start` on, or a whole map if there are none that far back.
    fn send_osdmaps(&mut self, conn: ConnId, start: Epoch, out: &mut Vec<Effect>) {
        let state = self.state.as_ref().expect("the caller checked");
        let (oldest, newest) = (state.oldest_osdmap(), state.osdmap.epoch);
        let message = |incrementals, full, oldest| OsdMapMsg {
            fsid: state.fsid,
            incrementals,
            full,
            oldest,
            newest,
            gap_removed_snaps: BTreeMap::new(),
        };
        if start > newest {
            return;
        }
        if start == Epoch(0) || start <= oldest {
            let full = BTreeMap::from([(newest, state.full.clone())]);
            out.push(Effect::Send { conn, tid: 0, message: message(BTreeMap::new(), full, newest).into() });
        } else {
            let all: Vec<_> =
                state.incrementals.range(start..).map(|(e, bytes)| (*e, bytes.clone())).collect();
            for part in all.chunks(MAPS_PER_MESSAGE) {
                let incrementals = part.iter().cloned().collect();
                out.push(Effect::Send {
                    conn,
                    tid: 0,
                    message: message(incrementals, BTreeMap::new(), oldest).into(),
                });
            }
        }
        if let Some(session) = self.sessions.get_mut(conn) {
            session.sent_osdmap = newest;
        }
    }

    fn effective_config(&self, conn: ConnId) -> BTreeMap<String, String> {
        let session = self.sessions.get(conn).expect("the caller checked");
        let id = match session.peer.kind {
            EntityType::Osd => session.peer.num.to_string(),
            _ => String::new(),
        };
        self.config_values(session.peer.kind.to_string(), id, session.host.clone())
    }

    pub(crate) fn effective_config_of(&self, ask: &GetConfig) -> BTreeMap<String, String> {
        let name = ask.name.to_string();
        let (kind, id) = name.split_once('.').unwrap_or((&name, ""));
        self.config_values(kind.to_string(), id.to_string(), ask.host.clone())
    }

    fn config_values(&self, kind: String, id: String, host: String) -> BTreeMap<String, String> {
        let Some(state) = &self.state else { return BTreeMap::new() };
        let class = match (&*kind, id.parse()) {
            ("osd", Ok(osd)) => crate::crush_edit::class_of(&state.osdmap.crush, osd).unwrap_or_default(),
            _ => String::new(),
        };
        let who = ConfigWho { kind, id, host, class };
        state.config_for(&who).into_iter().map(|(name, (value, _))| (name, value)).collect()
    }
}

/// By Ceph's names for the options of `ceph log` and of subscriptions.
pub fn log_level(name: &str) -> Option<LogLevel> {
    Some(match name {
        "debug" => LogLevel::Debug,
        "info" => LogLevel::Info,
        "sec" => LogLevel::Security,
        "warn" | "warning" => LogLevel::Warn,
        "error" => LogLevel::Error,
        _ => return None,
    })
}
