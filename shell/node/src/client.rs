//! Our own client over real sockets, for callers that may block. Others use `nacre-rados`.

use crate::running::Running;
use crate::spec::{Limits, Spec};
use nacre_auth::Secret;
use nacre_base::{Now, errno};
use nacre_client::{ClientConfig, Completion, Failure, Output, Request, RequestId, Standalone};
use nacre_machine::{Effect, Event, Machine, StoreView};
use nacre_perf::Registry;
use nacre_proto::types::{AddrKind, AddrVec, AuthName, EntityAddr, EntityType};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

type Answer = Result<Output, Failure>;

/// A session with a cluster, as `client.admin`. Dropping it ends the session.
pub struct BlockingClient {
    running: Running<Driver>,
}

/// An answer that is on its way.
pub struct Pending(Receiver<Answer>);

impl Pending {
    /// Blocks until the answer is there; a request without a timeout may take forever.
    pub fn wait(self) -> Answer {
        let stopped = || Failure::new(errno::ECANCELED, "the client has stopped");
        self.0.recv().unwrap_or_else(|_| Err(stopped()))
    }
}

impl BlockingClient {
    /// Returns at once: requests wait until a monitor answers. `nonce` tells this client from
    /// others of the same host and should be random.
    /// `key`: that of `client.admin`, if the cluster uses cephx.
    pub fn connect(mons: Vec<EntityAddr>, key: Option<Secret>, nonce: u32, seed: u64) -> BlockingClient {
        let spec = Spec {
            name: "client.admin".to_string(),
            kind: EntityType::Client,
            num: -1,
            auth_name: AuthName::new(EntityType::Client, "admin"),
            key,
            addrs: AddrVec::one(EntityAddr { kind: AddrKind::Any, nonce, sock: None }),
            listeners: Vec::new(),
            datagrams: Vec::new(),
            store: None,
            perf: Registry::default(),
            limits: Limits::default(),
        };
        let config = ClientConfig { mons, hostname: String::new(), timer: 0, seed };
        let machine = move || Driver { client: Standalone::new(config), callers: BTreeMap::new() };
        BlockingClient { running: Running::start(spec, machine) }
    }

    /// Begins a request; several may be under way.
    pub fn submit(&self, request: impl Into<Request>) -> Pending {
        let request = request.into();
        let (caller, answer) = channel();
        self.running.call(move |driver, now, out| driver.submit(now, request, caller, out));
        Pending(answer)
    }

    pub fn request(&self, request: impl Into<Request>) -> Answer {
        self.submit(request).wait()
    }
}

impl Drop for BlockingClient {
    fn drop(&mut self) {
        self.running.stop();
    }
}

/// The client machine, and the callers that wait for its completions.
struct Driver {
    client: Standalone,
    callers: BTreeMap<RequestId, Sender<Answer>>,
}

impl Driver {
    fn submit(&mut self, now: Now, request: Request, caller: Sender<Answer>, out: &mut Vec<Effect>) {
        let id = self.client.submit(now, request, out);
        self.callers.insert(id, caller);
        self.deliver();
    }

    fn deliver(&mut self) {
        for Completion { id, result } in self.client.take_completions() {
            if let Some(caller) = self.callers.remove(&id) {
                // A caller that did not wait does not need the result.
                let _ = caller.send(result);
            }
        }
    }
}

impl Machine for Driver {
    fn handle(&mut self, now: Now, event: Event, store: &dyn StoreView, out: &mut Vec<Effect>) {
        self.client.handle(now, event, store, out);
        self.deliver();
    }
}
