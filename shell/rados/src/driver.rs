//! The client machine on its own thread, and the callers that wait for its completions.
//!
//! Callers put commands into the inbox. The first that finds it empty wakes the thread, which takes all
//! that came meanwhile: under load many commands cost one wake-up.

use crate::throttle::Permits;
use nacre_base::Now;
use nacre_client::{
    Completion, Failure, Output, Request, RequestId, RequestKind, Standalone, WatchEvent, WatchId,
};
use nacre_machine::{Effect, Event, Machine, StoreView};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot};

pub(crate) type Answer = Result<Output, Failure>;

/// The caller's name for a request, given before the machine has one.
pub(crate) type Ticket = u64;

pub(crate) enum Command {
    Submit {
        ticket: Ticket,
        request: Box<Request>,
        waiter: Waiter,
    },
    /// The caller lost interest.
    Cancel(Ticket),
    /// A watch without an owner.
    Unwatch(WatchId),
}

/// The caller of a request that is in flight.
pub(crate) struct Waiter {
    pub(crate) reply: oneshot::Sender<Answer>,
    pub(crate) permits: Permits,
    /// Of a request for a watch: where its events go.
    pub(crate) events: Option<mpsc::Sender<WatchEvent>>,
}

#[derive(Default)]
pub(crate) struct Inbox(Mutex<Vec<Command>>);

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Command>> {
        self.0.lock().expect("no thread panics while holding it")
    }
    /// True if the inbox was empty: then the thread is to be woken.
    pub(crate) fn push(&self, command: Command) -> bool {
        let mut commands = self.lock();
        commands.push(command);
        commands.len() == 1
    }
}

pub(crate) struct Driver {
    machine: Standalone,
    inbox: Arc<Inbox>,
    waiting: HashMap<RequestId, (Ticket, Waiter)>,
    requests: HashMap<Ticket, RequestId>,
    watches: HashMap<WatchId, mpsc::Sender<WatchEvent>>,
}

impl Driver {
    pub(crate) fn new(machine: Standalone, inbox: Arc<Inbox>) -> Driver {
        let (waiting, requests, watches) = Default::default();
        Driver { machine, inbox, waiting, requests, watches }
    }

    pub(crate) fn take_inbox(&mut self, now: Now, out: &mut Vec<Effect>) {
        let commands = std::mem::take(&mut *self.inbox.lock());
        for command in commands {
            match command {
                Command::Submit { ticket, request, waiter } => {
                    let id = self.machine.submit(now, *request, out);
                    self.waiting.insert(id, (ticket, waiter));
                    self.requests.insert(ticket, id);
                }
                Command::Cancel(ticket) => match self.requests.remove(&ticket) {
                    Some(id) => {
                        self.waiting.remove(&id);
                        self.machine.cancel(id);
                    }
                    // Complete already: if it was for a watch, the caller never got it.
                    None => self.unwatch_abandoned(now, out),
                },
                Command::Unwatch(watch) => self.unwatch(now, watch, out),
            }
        }
        self.deliver(now, out);
    }

    /// Ends a watch, and does not wait for that.
    fn unwatch(&mut self, now: Now, watch: WatchId, out: &mut Vec<Effect>) {
        if self.watches.remove(&watch).is_some() {
            self.machine.submit(now, RequestKind::Unwatch(watch).into(), out);
        }
    }

    fn unwatch_abandoned(&mut self, now: Now, out: &mut Vec<Effect>) {
        let abandoned = self.watches.iter().filter(|(_, events)| events.is_closed());
        let abandoned: Vec<WatchId> = abandoned.map(|(&watch, _)| watch).collect();
        abandoned.into_iter().for_each(|watch| self.unwatch(now, watch, out));
    }

    fn deliver(&mut self, now: Now, out: &mut Vec<Effect>) {
        loop {
            let completions = self.machine.take_completions();
            if completions.is_empty() {
                break;
            }
            for Completion { id, result } in completions {
                let Some((ticket, waiter)) = self.waiting.remove(&id) else { continue };
                self.requests.remove(&ticket);
                let Waiter { reply, permits, events } = waiter;
                drop(permits);
                let watch = match (&result, events) {
                    (Ok(Output::Watching(watch)), Some(events)) => {
                        self.watches.insert(*watch, events);
                        Some(*watch)
                    }
                    _ => None,
                };
                if let (Err(_), Some(watch)) = (reply.send(result), watch) {
                    self.unwatch(now, watch, out);
                }
            }
        }
        for event in self.machine.take_watch_events() {
            let (WatchEvent::Notified { watch, .. } | WatchEvent::Lost { watch, .. }) = &event;
            let (watch, is_over) = (*watch, matches!(event, WatchEvent::Lost { .. }));
            // A watcher that does not keep up misses notifies; their senders see a timeout. The last slot is
            // for the end of the watch.
            if let Some(events) = self.watches.get(&watch)
                && (is_over || events.capacity() > 1)
            {
                let _ = events.try_send(event);
            }
            if is_over {
                self.watches.remove(&watch);
            }
        }
    }
}

impl Machine for Driver {
    fn handle(&mut self, now: Now, event: Event, store: &dyn StoreView, out: &mut Vec<Effect>) {
        self.machine.handle(now, event, store, out);
        self.deliver(now, out);
    }
}
