//! Commands for the active manager: where it is, a session with it while there are some, and answers.
//!
//! A command without an answer is sent again in the next session, as Ceph's own client does it. A client that
//! is a daemon of a service keeps a session, and reports in it.

use crate::request::{CommandOutput, Failure, ServiceDaemon};
use bytes::Bytes;
use nacre_base::{Epoch, Time};
use nacre_machine::{Closed, ConnId, Context, Level};
use nacre_proto::maps::{MgrMap, Uuid};
use nacre_proto::messages::{Message, MgrCommand, MgrOpen, MgrReport, MgrService};
use nacre_proto::types::{EntityAddr, EntityType};
use nacre_wire::from_slice;
use std::collections::BTreeMap;
use std::time::Duration;

/// Between attempts to reach the manager.
const REDIAL: Duration = Duration::from_secs(1);
/// Limits of the time between reports, which the manager chooses.
const PERIOD: std::ops::RangeInclusive<u32> = 1..=60;
/// Health, configuration, queries and tasks of a report: none. Three counts of zero and two absent values.
const NOTHING_ELSE: &[u8] = &[0; 14];

#[derive(Debug, Default)]
pub(crate) struct MgrSession {
    map: Option<MgrMap>,
    conn: Option<ConnId>,
    /// Where that session leads.
    addr: Option<EntityAddr>,
    is_open: bool,
    redial_at: Option<Time>,
    /// By tid, until they are answered.
    commands: BTreeMap<u64, (String, Bytes)>,
    /// What this client is to the manager, if anything.
    service: Option<ServiceDaemon>,
    /// How often the manager wants reports, and when it gets the next.
    period: Duration,
    report_at: Option<Time>,
}

impl MgrSession {
    pub(crate) fn owns(&self, conn: ConnId) -> bool {
        self.conn == Some(conn)
    }
    /// Whether a subscription to the manager map is of use.
    pub(crate) fn wants_map(&self) -> bool {
        self.map.is_none()
    }

    pub(crate) fn submit(
        &mut self,
        tid: u64,
        command: String,
        input: Bytes,
        fsid: Uuid,
        cx: &mut Context<'_>,
    ) {
        if let Some(conn) = self.conn.filter(|_| self.is_open) {
            cx.send(conn, tid, MgrCommand { fsid, cmd: vec![command.clone()], input: input.clone() });
        }
        self.commands.insert(tid, (command, input));
        self.dial(cx);
    }
    /// Shows this client as a daemon of a service from now on.
    pub(crate) fn register(&mut self, service: ServiceDaemon, cx: &mut Context<'_>) {
        self.service = Some(service);
        match self.conn.filter(|_| self.is_open) {
            Some(conn) => self.introduce(conn, cx),
            None => self.dial(cx),
        }
    }
    fn introduce(&self, conn: ConnId, cx: &mut Context<'_>) {
        let Some(ServiceDaemon { service, name, metadata }) = self.service.clone() else { return };
        let said = MgrService { metadata, status: BTreeMap::new() };
        let open = MgrOpen {
            daemon_name: name,
            service_name: service,
            service: Some(said),
            config: Bytes::new(),
            config_defaults: Bytes::new(),
        };
        cx.send(conn, 0, open);
    }
    fn report(&mut self, cx: &mut Context<'_>) {
        let Some((conn, service)) = self.conn.filter(|_| self.is_open).zip(self.service.as_ref()) else {
            return;
        };
        let report = MgrReport {
            daemon_name: service.name.clone(),
            declared: Vec::new(),
            values: Bytes::new(),
            undeclared: Vec::new(),
            service_name: service.service.clone(),
            status: None,
            rest: Bytes::from_static(NOTHING_ELSE),
        };
        cx.send(conn, 0, report);
        self.report_at = Some(cx.now.mono + self.period);
    }

    pub(crate) fn forget(&mut self, tid: u64) {
        self.commands.remove(&tid);
    }
    pub(crate) fn stop(&mut self, cx: &mut Context<'_>) {
        self.hang_up(cx);
        self.redial_at = None;
        self.service = None;
        self.commands.clear();
    }

    fn hang_up(&mut self, cx: &mut Context<'_>) {
        self.conn.take().into_iter().for_each(|conn| cx.hang_up(conn));
        (self.is_open, self.report_at) = (false, None);
    }

    fn dial(&mut self, cx: &mut Context<'_>) {
        let is_idle = self.commands.is_empty() && self.service.is_none();
        if self.conn.is_some() || self.redial_at.is_some() || is_idle {
            return;
        }
        let active = self.map.as_ref().filter(|map| map.available).and_then(|map| map.active_addrs.msgr2());
        let Some(addr) = active else { return };
        self.addr = Some(addr);
        self.conn = Some(cx.dial(addr, EntityType::Mgr));
    }

    /// Gives the epoch of the new map.
    pub(crate) fn on_map(&mut self, map: &[u8], cx: &mut Context<'_>) -> Option<Epoch> {
        let map = match from_slice::<MgrMap>(map) {
            Ok(map) => map,
            Err(e) => {
                cx.log(Level::Warn, format!("the manager map: {e}"));
                return None;
            }
        };
        let epoch = map.epoch;
        if map.active_addrs.msgr2() != self.addr {
            self.hang_up(cx);
        }
        self.map = Some(map);
        self.dial(cx);
        Some(epoch)
    }

    pub(crate) fn on_opened(&mut self, conn: ConnId, fsid: Uuid, cx: &mut Context<'_>) {
        self.is_open = true;
        self.introduce(conn, cx);
        for (&tid, (command, input)) in &self.commands {
            cx.send(conn, tid, MgrCommand { fsid, cmd: vec![command.clone()], input: input.clone() });
        }
    }

    pub(crate) fn on_closed(&mut self, why: &Closed, cx: &mut Context<'_>) {
        cx.log(Level::Debug, format!("the manager: {why}"));
        (self.conn, self.is_open, self.report_at) = (None, false, None);
        self.redial_at = Some(cx.now.mono + REDIAL);
    }

    pub(crate) fn due(&self) -> Option<Time> {
        self.redial_at.into_iter().chain(self.report_at).min()
    }
    pub(crate) fn on_time(&mut self, cx: &mut Context<'_>) {
        if self.redial_at.take_if(|at| *at <= cx.now.mono).is_some() {
            self.dial(cx);
        }
        if self.report_at.take_if(|at| *at <= cx.now.mono).is_some() {
            self.report(cx);
        }
    }

    pub(crate) fn on_message(
        &mut self,
        tid: u64,
        message: Message,
        now: Time,
    ) -> Option<(u64, Result<CommandOutput, Failure>)> {
        let (retval, status, output) = match message {
            Message::MgrCommandReply(reply) => (reply.retval, reply.status, reply.output),
            Message::CommandReply(reply) => (reply.retval, reply.status, reply.output),
            // It answers the introduction.
            Message::MgrConfigure(wanted) => {
                let seconds = wanted.stats_period_secs.clamp(*PERIOD.start(), *PERIOD.end());
                self.period = Duration::from_secs(seconds.into());
                self.report_at = Some(now + self.period);
                return None;
            }
            _ => return None,
        };
        self.commands.remove(&tid)?;
        Some((
            tid,
            match retval {
                0.. => Ok(CommandOutput { status, output }),
                _ => Err(Failure::new(retval.saturating_neg(), status)),
            },
        ))
    }
}
