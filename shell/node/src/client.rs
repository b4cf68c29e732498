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
use std::sync::{Arc, Mutex};

type Answer = Result<Output, Failure>;

/// A session with a cluster. Dropping it ends the session.
pub struct BlockingClient {
    running: Running<Driver>,
    trouble: Trouble,
}

/// Why the last connection ended or did not begin. None since one is open.
type Trouble = Arc<Mutex<Option<String>>>;

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
    /// As `client.admin`: see `connect_as`.
    pub fn connect(mons: Vec<EntityAddr>, key: Option<Secret>, nonce: u32, seed: u64) -> BlockingClient {
        BlockingClient::connect_as(AuthName::new(EntityType::Client, "admin"), mons, key, nonce, seed)
    }

    /// Returns at once: requests wait until a monitor answers. `nonce` tells this client from
    /// others of the same host and should be random.
    /// `key`: that of the entity, if the cluster uses cephx.
    pub fn connect_as(
        name: AuthName,
        mons: Vec<EntityAddr>,
        key: Option<Secret>,
        nonce: u32,
        seed: u64,
    ) -> BlockingClient {
        let spec = Spec {
            name: name.to_string(),
            kind: EntityType::Client,
            num: -1,
            auth_name: name,
            key,
            addrs: AddrVec::one(EntityAddr { kind: AddrKind::Any, nonce, sock: None }),
            listeners: Vec::new(),
            datagrams: Vec::new(),
            store: None,
            perf: Registry::default(),
            limits: Limits::default(),
        };
        let config = ClientConfig { mons, hostname: String::new(), timer: 0, seed };
        let trouble = Trouble::default();
        let noted = trouble.clone();
        let machine =
            move || Driver { client: Standalone::new(config), callers: BTreeMap::new(), trouble: noted };
        BlockingClient { running: Running::start(spec, machine), trouble }
    }

    /// Why no monitor answers, as the last attempt to reach one ended.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().expect("no thread panics with it").clone()
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
    trouble: Trouble,
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
        let trouble = match &event {
            Event::Opened { .. } => Some(None),
            Event::Closed { why, .. } => Some(Some(why.to_string())),
            _ => None,
        };
        if let Some(trouble) = trouble {
            *self.trouble.lock().expect("no thread panics with it") = trouble;
        }
        self.client.handle(now, event, store, out);
        self.deliver();
    }
}
