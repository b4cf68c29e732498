//! Our own client library: what librados is, as a machine.
//!
//! `Client` takes a `Request` and gives, some time later, its `Completion`. Inside, the session with a
//! monitor (`nacre-monc`) keeps the maps fresh; `objecter` knows which OSD serves which object, sends, and
//! sends again when it must; `watches` and `mgr_session` do what their names say. A `Client` is part of a
//! larger machine, which passes it the events of its sessions; `Standalone` is a machine around one
//! client. Start at `Client`, then `request` and `object`.

mod client;
mod mgr_session;
mod mon_host;
mod mon_requests;
mod object;
mod objecter;
mod placements;
mod request;
mod sessions;
mod standalone;
mod watches;

#[cfg(test)]
mod tests;

pub use client::{Client, ClientConfig};
pub use mon_host::{MonHostError, parse_mon_host};
pub use object::{Compare, ObjectRequest};
pub use request::{
    CommandOutput, Completion, Failure, ListCursor, ListEntry, ListPage, ObjectReply, OpOutput, Output,
    Request, RequestId, RequestKind, ServiceDaemon,
};
pub use standalone::Standalone;
pub use watches::{NotifyOutcome, WatchEvent, WatchId};
