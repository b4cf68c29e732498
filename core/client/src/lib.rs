//! Our own client library: what librados is, as a machine.
//!
//! `Client` takes a `Request` and gives, some time later, its `Completion`. Inside, `mon_session`
//! keeps one session with some monitor and the maps fresh; `objecter` knows which OSD serves which
//! object, sends, and sends again when it must. Start at `Client`, then `request`.

mod client;
mod mon_host;
mod mon_session;
mod objecter;
mod request;
mod wire_out;

#[cfg(test)]
mod tests;

pub use client::Client;
pub use mon_host::{MonHostError, parse_mon_host};
pub use request::{
    CommandOutput, Completion, Failure, ListCursor, ListEntry, ListPage, ObjectReply, ObjectRequest,
    OpOutput, Output, Request, RequestId, RequestKind,
};
