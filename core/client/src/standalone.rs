//! A machine that is one client and no more.

use crate::client::{Client, ClientConfig};
use crate::request::{Completion, Request, RequestId};
use crate::watches::WatchEvent;
use nacre_base::Now;
use nacre_machine::{ConnIds, Context, Effect, Event, Machine, StoreView};

/// A `Client` with session ids of its own.
#[derive(Debug)]
pub struct Standalone {
    client: Client,
    conns: ConnIds,
}

impl Standalone {
    pub fn new(config: ClientConfig) -> Standalone {
        Standalone { client: Client::new(config), conns: ConnIds::default() }
    }
    pub fn client(&self) -> &Client {
        &self.client
    }
    pub fn submit(&mut self, now: Now, request: Request, out: &mut Vec<Effect>) -> RequestId {
        self.client.submit(request, &mut Context { now, conns: &mut self.conns, out })
    }
    pub fn cancel(&mut self, id: RequestId) {
        self.client.cancel(id);
    }
    pub fn take_completions(&mut self) -> Vec<Completion> {
        self.client.take_completions()
    }
    pub fn take_watch_events(&mut self) -> Vec<WatchEvent> {
        self.client.take_watch_events()
    }
}

impl Machine for Standalone {
    fn handle(&mut self, now: Now, event: Event, _: &dyn StoreView, out: &mut Vec<Effect>) {
        let cx = &mut Context { now, conns: &mut self.conns, out };
        match event {
            Event::Start => self.client.start(cx),
            Event::Stop => {
                self.client.stop(cx);
                cx.out.push(Effect::Stopped);
            }
            event => self.client.handle(event, cx),
        }
    }
}
