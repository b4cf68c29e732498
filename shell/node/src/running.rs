//! A daemon that runs: its thread, and the handle that others hold.

use crate::clock;
use crate::node::Node;
use crate::spec::Spec;
use nacre_base::Now;
use nacre_machine::{Effect, Event, Machine};
use nacre_proto::messages::{Command, Message};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// For the last messages to leave after the machine has stopped.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How often this is polled.
const DRAIN_POLL: Duration = Duration::from_millis(5);

type Call<M> = Box<dyn FnOnce(&mut M, Now, &mut Vec<Effect>) + Send>;

/// What a handle asks of the daemon's thread.
enum Control<M> {
    Stop,
    Call(Call<M>),
    Ask(Box<Message>, oneshot::Sender<Message>),
}

/// A daemon with a thread of its own. Dropping the handle leaves it running.
pub struct Running<M> {
    name: String,
    control: UnboundedSender<Control<M>>,
    thread: JoinHandle<Result<(), Ended>>,
}

/// Why a daemon ended that was not stopped.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error("it panicked")]
    Panicked,
    /// Its machine (`Effect::Fail`), its store or its disk failed. The log has said so.
    #[error("{0}")]
    Failed(String),
}

/// Runs closures on a daemon's thread, from any thread and for longer than the handle lives.
pub struct Caller<M>(UnboundedSender<Control<M>>);

impl<M> Caller<M> {
    /// As `Running::call`.
    pub fn call(&self, f: impl FnOnce(&mut M, Now, &mut Vec<Effect>) + Send + 'static) -> bool {
        self.0.send(Control::Call(Box::new(f))).is_ok()
    }
}

/// Sends commands to a daemon of this process as a client that may do everything, from any thread and for
/// longer than the handle lives. It is the same for daemons of every kind.
#[derive(Clone)]
pub struct LocalClient(Arc<dyn Fn(Message) -> oneshot::Receiver<Message> + Send + Sync>);

impl LocalClient {
    /// `send` hands a message to the daemon, and gives where its answer will be.
    pub fn new(send: impl Fn(Message) -> oneshot::Receiver<Message> + Send + Sync + 'static) -> LocalClient {
        LocalClient(Arc::new(send))
    }

    /// Sends a command in a session of its own. There is no answer if the daemon ends, or ends the session.
    pub fn ask(&self, command: Command) -> oneshot::Receiver<Message> {
        (self.0)(command.into())
    }
}

impl<M: Machine + 'static> Running<M> {
    /// Starts a daemon. The machine is made on its thread, where it stays.
    pub fn start(spec: Spec, machine: impl FnOnce() -> M + Send + 'static) -> Running<M> {
        Running::start_with(spec, false, machine)
    }

    /// The same, with encryption on every connection that it dials. It must have a key.
    pub fn start_secure(spec: Spec, machine: impl FnOnce() -> M + Send + 'static) -> Running<M> {
        Running::start_with(spec, true, machine)
    }

    fn start_with(spec: Spec, secure: bool, machine: impl FnOnce() -> M + Send + 'static) -> Running<M> {
        let name = spec.name.clone();
        let (control, commands) = unbounded_channel();
        let thread = thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("the system gives a daemon its event queue");
                // A task of its own: `block_on` polls its own future whenever any task is ready.
                let daemon = async { tokio::task::spawn_local(run(spec, secure, machine(), commands)).await };
                let ended = LocalSet::new().block_on(&runtime, daemon);
                ended.expect("a daemon that panics ends its thread")
            })
            .expect("the system gives a daemon its threads");
        Running { name, control, thread }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks the machine to stop; the thread ends soon after.
    pub fn stop(&self) {
        // A daemon that is gone has stopped.
        let _ = self.control.send(Control::Stop);
    }

    /// Runs on the daemon's thread, between events. False if the daemon is gone.
    pub fn call(&self, f: impl FnOnce(&mut M, Now, &mut Vec<Effect>) + Send + 'static) -> bool {
        self.control.send(Control::Call(Box::new(f))).is_ok()
    }

    pub fn caller(&self) -> Caller<M> {
        Caller(self.control.clone())
    }

    /// A client of this daemon, which needs no network.
    pub fn local_client(&self) -> LocalClient {
        let control = self.control.clone();
        LocalClient::new(move |request| {
            let (answer, asked) = oneshot::channel();
            // A daemon that is gone drops the sender: there is no answer.
            let _ = control.send(Control::Ask(Box::new(request), answer));
            asked
        })
    }

    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread to end.
    pub fn join(self) -> Result<(), Ended> {
        self.thread.join().unwrap_or(Err(Ended::Panicked))
    }
}

async fn run<M: Machine + 'static>(
    spec: Spec,
    secure: bool,
    machine: M,
    mut commands: UnboundedReceiver<Control<M>>,
) -> Result<(), Ended> {
    let (to, mut from_disk) = unbounded_channel();
    let (node, listeners) = Node::new(spec, secure, machine, to);
    node.turn();
    tokio::task::spawn_local(node.clone().commit());
    tokio::task::spawn_local(node.clone().take_requests());
    for listener in listeners {
        tokio::task::spawn_local(node.clone().accept(listener));
    }
    for network in node.datagram_networks() {
        tokio::task::spawn_local(node.clone().take_datagrams(network));
    }
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut give_up = None;
    while !node.is_stopped() {
        let next_timer = node.next_timer().map(|at| at.since(clock::mono()));
        tokio::select! {
            Some(done) = from_disk.recv() => node.disk_done([done]),
            () = sleep(next_timer.unwrap_or_default()), if next_timer.is_some() => node.fire_timers(),
            () = node.timers_changed.notified() => {}
            // None: the handle was dropped, and the daemon runs on until the process ends.
            Some(command) = commands.recv(), if give_up.is_none() => match command {
                Control::Call(f) => {
                    node.call(f);
                    node.turn();
                }
                Control::Ask(request, answer) => {
                    node.ask(*request, answer);
                    node.turn();
                }
                Control::Stop => {
                    give_up = Some(Instant::now() + node.limits.stop_timeout);
                    node.push(Event::Stop);
                    node.turn();
                }
            },
            () = sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                tracing::error!("did not stop in time, exiting anyway");
                return Ok(());
            }
            _ = sweep.tick() => node.sweep(),
        }
    }
    let drained_by = Instant::now() + DRAIN_TIMEOUT;
    while !node.is_quiet() && Instant::now() < drained_by {
        tokio::select! {
            Some(done) = from_disk.recv() => node.disk_done([done]),
            () = sleep(DRAIN_POLL) => {}
        }
    }
    node.confirm();
    node.failure().map_or(Ok(()), |reason| Err(Ended::Failed(reason)))
}
