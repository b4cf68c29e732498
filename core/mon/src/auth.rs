//! By which keys callers are known: what the driver is told of them, what OSDs are told, and new ones.

use crate::draft::Draft;
use crate::mon::Mon;
use nacre_auth::cephx::{SERVICE_OSD, renew};
use nacre_auth::{Keys, Lifetimes, METHOD_CEPHX, Secret};
use nacre_base::{Now, errno};
use nacre_machine::{ConnId, Effect};
use nacre_proto::messages::{Auth, AuthReply, DaemonMsg};
use std::sync::Arc;
use std::time::Duration;

impl Mon {
    /// For how long tickets are good.
    fn lifetimes(&self) -> Lifetimes {
        let secs = |name: &str| self.option(name).parse().map(Duration::from_secs_f64);
        let default = Lifetimes::default();
        Lifetimes {
            session: secs("auth_mon_ticket_ttl").unwrap_or(default.session),
            service: secs("auth_service_ticket_ttl").unwrap_or(default.service),
        }
    }

    /// Tells the driver and OSDs by which keys callers are known, if that changed.
    pub(crate) fn tell_keys(&mut self, out: &mut Vec<Effect>) {
        let Some(state) = self.state.as_ref().filter(|_| self.config.auth.is_wanted) else { return };
        let (source, lifetimes) = (state.keys.clone(), self.lifetimes());
        // Nearly every batch changes something else.
        let is_told =
            |(of, told): &(Arc<Keys>, Arc<Keys>)| Arc::ptr_eq(of, &source) && told.lifetimes == lifetimes;
        if self.told_keys.as_ref().is_some_and(is_told) {
            return;
        }
        let keys = Arc::new(Keys { lifetimes, ..source.as_ref().clone() });
        let before = self.told_keys.replace((source, keys.clone())).map(|(_, told)| told);
        out.push(Effect::Keys(keys.clone()));
        if before.is_none_or(|before| before.rotating.get(&SERVICE_OSD) != keys.rotating.get(&SERVICE_OSD)) {
            let osds: Vec<_> =
                self.sessions.iter().filter(|(_, s)| s.osd().is_some()).map(|(c, _)| c).collect();
            osds.into_iter().for_each(|conn| self.tell_osd_keys(conn, out));
        }
    }

    /// Tells an OSD by which keys its callers are known. Nobody else can read that.
    pub(crate) fn tell_osd_keys(&self, conn: ConnId, out: &mut Vec<Effect>) {
        let Some((_, keys)) = &self.told_keys else { return };
        let Some(session) = self.sessions.get(conn).filter(|session| session.osd().is_some()) else { return };
        let name = session.peer.proved.as_ref().map(|proved| &proved.name);
        let Some(entity) = name.and_then(|name| keys.entities.get(name)) else { return };
        let sealed = entity.key.seal(&keys.of_service(SERVICE_OSD)).into();
        out.push(Effect::Send { conn, tid: 0, message: DaemonMsg::Keys { sealed }.into() });
    }

    /// Services get another key before the tickets end that the last one sealed.
    pub(crate) fn rotate_keys(&mut self, now: Now, draft: &mut Draft) {
        let Some((_, keys)) = &self.told_keys else { return };
        for service in keys.due(now.wall) {
            draft.batch.rotated.push((service, Secret::generate(now.wall, &mut self.entropy)));
        }
    }

    /// A client wants new tickets.
    pub(crate) fn on_auth(&mut self, now: Now, conn: ConnId, tid: u64, auth: &Auth, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get(conn) else { return };
        let reply = match (&session.peer.proved, &self.told_keys) {
            (Some(proved), Some((_, keys))) if auth.protocol == METHOD_CEPHX => {
                renew(keys, &proved.name, now.wall, &mut self.entropy, &auth.payload)
            }
            _ => Err(errno::EOPNOTSUPP),
        };
        let (result, payload) = match reply {
            Ok(payload) => (0, payload),
            Err(errno) => (-errno, Vec::new()),
        };
        let global_id = u64::try_from(session.peer.num).unwrap_or(0);
        let reply = AuthReply {
            protocol: METHOD_CEPHX,
            result,
            global_id,
            payload: payload.into(),
            text: String::new(),
        };
        out.push(Effect::Send { conn, tid, message: reply.into() });
    }
}
