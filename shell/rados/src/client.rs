//! `RadosClient`: a session with a cluster, shared by all its clones.

use crate::config::Config;
use crate::driver::{Answer, Command, Driver, Inbox, Ticket, Waiter};
use crate::pool::Pool;
use crate::throttle::{Permits, Throttle};
use bytes::Bytes;
use nacre_base::{OsdId, PgId, errno};
use nacre_client::{
    ClientConfig, CommandOutput, Failure, Output, Request, RequestKind, ServiceDaemon, Standalone, WatchEvent,
};
use nacre_node::{Caller, Running, Spec};
use nacre_perf::Registry;
use nacre_proto::maps::OsdMap;
use nacre_proto::types::{AddrKind, AddrVec, EntityAddr, EntityType};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// The one timer of the machine.
const TIMER: u64 = 0;

/// A session with a cluster. Clones share the session; it ends when the last of them is dropped.
///
/// Futures may be dropped at any time: what was not sent yet is not sent, and a write that an OSD already
/// has may still happen, once. They run on any executor, except that a timeout needs tokio's.
#[derive(Clone)]
pub struct RadosClient {
    shared: Arc<Shared>,
    timeout: Option<Duration>,
}

struct Shared {
    inbox: Arc<Inbox>,
    caller: Caller<Driver>,
    running: Running<Driver>,
    throttle: Throttle,
    last_ticket: AtomicU64,
    nonce: u32,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.running.stop();
    }
}

impl RadosClient {
    /// Starts a session and returns at once; requests wait until a monitor answers.
    pub fn start(config: Config) -> RadosClient {
        let (nonce, seed) = uuid::Uuid::new_v4().as_u64_pair();
        let nonce = nonce as u32 | 1;
        let spec = Spec {
            name: config.name.to_string(),
            kind: EntityType::Client,
            num: -1,
            auth_name: config.name.clone(),
            key: config.key.clone(),
            addrs: AddrVec::one(EntityAddr { kind: AddrKind::Any, nonce, sock: None }),
            listeners: Vec::new(),
            datagrams: Vec::new(),
            store: None,
            perf: Registry::default(),
            limits: nacre_node::Limits::default(),
        };
        let inbox = Arc::new(Inbox::default());
        let of_machine = ClientConfig { mons: config.mons, hostname: hostname(), timer: TIMER, seed };
        let machine = {
            let inbox = inbox.clone();
            move || Driver::new(Standalone::new(of_machine), inbox)
        };
        let running =
            if config.secure { Running::start_secure(spec, machine) } else { Running::start(spec, machine) };
        let shared = Shared {
            inbox,
            caller: running.caller(),
            running,
            throttle: Throttle::new(&config.limits),
            last_ticket: AtomicU64::new(0),
            nonce,
        };
        RadosClient { shared: Arc::new(shared), timeout: None }
    }

    /// Starts a session and waits for the cluster's newest map.
    pub async fn connect(config: Config) -> Result<RadosClient, Failure> {
        let client = RadosClient::start(config);
        client.wait_for_latest_map().await?;
        Ok(client)
    }

    /// The same session, whose requests fail with ETIMEDOUT after this long, unless they say otherwise.
    pub fn with_timeout(&self, timeout: Duration) -> RadosClient {
        RadosClient { shared: self.shared.clone(), timeout: Some(timeout) }
    }

    /// What tells this client from others of its host, also on the blocklist.
    pub fn nonce(&self) -> u32 {
        self.shared.nonce
    }

    /// Any request; most have a method of their own.
    pub async fn request(&self, request: impl Into<Request>) -> Result<Output, Failure> {
        self.send(request.into(), None).await
    }

    pub(crate) async fn send(
        &self,
        mut request: Request,
        events: Option<mpsc::Sender<WatchEvent>>,
    ) -> Answer {
        let timeout = request.timeout.or(self.timeout);
        let begun = Instant::now();
        let permits = self.permits(&request, timeout).await?;
        request.timeout = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        let ticket = self.shared.last_ticket.fetch_add(1, Ordering::Relaxed) + 1;
        let (reply, answer) = oneshot::channel();
        let mut in_flight = InFlight { shared: &self.shared, ticket: Some(ticket) };
        let waiter = Waiter { reply, permits, events };
        self.shared.push(Command::Submit { ticket, request: Box::new(request), waiter });
        let answer = answer.await;
        in_flight.ticket = None;
        answer.unwrap_or_else(|_| Err(Failure::new(errno::ECANCELED, "the client has stopped")))
    }

    async fn permits(&self, request: &Request, timeout: Option<Duration>) -> Result<Permits, Failure> {
        let throttle = &self.shared.throttle;
        if let Ok(permits) = throttle.try_take(&request.kind) {
            return Ok(permits);
        }
        let take = throttle.take(&request.kind);
        let taken = match timeout {
            None => take.await,
            Some(timeout) => tokio::time::timeout(timeout, take)
                .await
                .map_err(|_| Failure::new(errno::ETIMEDOUT, "too much is in flight"))?,
        };
        taken.map_err(|_| Failure::new(errno::ECANCELED, "the client has stopped"))
    }

    /// Ends a watch, without waiting for it.
    pub(crate) fn unwatch(&self, watch: nacre_client::WatchId) {
        self.shared.push(Command::Unwatch(watch));
    }

    // ---- the cluster ----

    /// Waits for a map as new as any that any client has seen.
    pub async fn wait_for_latest_map(&self) -> Result<Arc<OsdMap>, Failure> {
        match self.request(RequestKind::LatestMap).await? {
            Output::Map(map) => Ok(map),
            other => Err(unexpected(&other)),
        }
    }

    /// A command for the monitors, as one JSON object.
    pub async fn mon_command(
        &self,
        command: impl Into<String>,
        input: impl Into<Bytes>,
    ) -> Result<CommandOutput, Failure> {
        let (command, input) = (command.into(), input.into());
        self.command(RequestKind::MonCommand { command, input }).await
    }
    /// A command for the active manager.
    pub async fn mgr_command(
        &self,
        command: impl Into<String>,
        input: impl Into<Bytes>,
    ) -> Result<CommandOutput, Failure> {
        let (command, input) = (command.into(), input.into());
        self.command(RequestKind::MgrCommand { command, input }).await
    }
    /// Shows this client to the manager as a daemon of a service, such as `ceph -s` shows it, until the
    /// client stops.
    pub async fn register(&self, service: ServiceDaemon) -> Result<(), Failure> {
        match self.request(RequestKind::Register(service)).await? {
            Output::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
    /// A command for one OSD.
    pub async fn osd_command(
        &self,
        osd: OsdId,
        command: impl Into<String>,
        input: impl Into<Bytes>,
    ) -> Result<CommandOutput, Failure> {
        let (command, input) = (command.into(), input.into());
        self.command(RequestKind::OsdCommand { osd, command, input }).await
    }
    /// A command for the primary of a placement group.
    pub async fn pg_command(
        &self,
        pg: PgId,
        command: impl Into<String>,
        input: impl Into<Bytes>,
    ) -> Result<CommandOutput, Failure> {
        let (command, input) = (command.into(), input.into());
        self.command(RequestKind::PgCommand { pg, command, input }).await
    }
    async fn command(&self, kind: RequestKind) -> Result<CommandOutput, Failure> {
        match self.request(kind).await? {
            Output::Command(output) => Ok(output),
            other => Err(unexpected(&other)),
        }
    }

    /// A pool by its name; ENOENT if the newest map has none.
    pub async fn pool(&self, name: &str) -> Result<Pool, Failure> {
        match self.request(Request::lookup_pool(name)).await? {
            Output::Pool(id) => Ok(Pool::new(self.clone(), id)),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a replicated pool, or finds it. The cluster chooses the number of placement groups if `pg_num`
    /// is none.
    pub async fn create_pool(&self, name: &str, pg_num: Option<u32>) -> Result<Pool, Failure> {
        let mut command = json!({ "prefix": "osd pool create", "pool": name });
        if let Some(pg_num) = pg_num {
            command["pg_num"] = pg_num.into();
        }
        self.mon_command(command.to_string(), "").await?;
        self.pool(name).await
    }
}

impl Shared {
    fn push(&self, command: Command) {
        if self.inbox.push(command) {
            self.caller.call(|driver, now, out| driver.take_inbox(now, out));
        }
    }
}

/// Cancels the request when its future is dropped.
struct InFlight<'a> {
    shared: &'a Shared,
    /// None once it is complete.
    ticket: Option<Ticket>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.shared.push(Command::Cancel(ticket));
        }
    }
}

pub(crate) fn unexpected(output: &Output) -> Failure {
    Failure::new(errno::EIO, format!("not an answer to this: {output:?}"))
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
