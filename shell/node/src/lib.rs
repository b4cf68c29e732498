//! Carries out what machines decide: sockets, disks, clocks and threads.
//!
//! Each daemon has one thread that owns its sockets, its machine and the index of its store, and a
//! few for its disk. `Spec` says what a daemon is, `Running::start` starts it; `node` is where events
//! come together and effects are carried out, `session` one socket.

mod authentication;
mod budget;
mod client;
mod clock;
mod counters;
mod disk;
mod ids;
mod local_sessions;
mod node;
mod pace;
mod parts;
mod port_holder;
mod process;
mod requests;
mod ring;
mod running;
mod session;
mod spec;
mod storage;
mod timers;

pub use authentication::entropy;
pub use client::{BlockingClient, Pending};
pub use clock::now;
pub use disk::{FileDisk, forget};
pub use port_holder::{PortHolder, outgoing_ports};
pub use process::{abort_on_panic, raise_open_files, tune_allocator};
pub use running::{Caller, Ended, LocalClient, Running};
pub use spec::{BindError, Limits, Listener, MEMORY_DEFAULT, Spec};
