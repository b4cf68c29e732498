//! What travels between daemons and clients.
//!
//! `Message` is the list of all; `Envelope` goes to and from the `RawMessage` that the messenger
//! carries. A new message is a struct with a `Body` and one row in `envelope.rs`.

pub mod answer;
mod beat;
mod body;
mod daemon;
mod envelope;
mod images;
mod latencies;
mod mds;
mod mgr;
mod mon;
mod osd;
pub mod part;
pub mod peer;
mod quorum;
mod raw;
pub mod scrub;

pub use beat::Beat;
pub use daemon::*;
pub use envelope::{Envelope, Message, MessageError};
pub use images::*;
pub use latencies::Latencies;
pub use mds::*;
pub use mgr::*;
pub use mon::*;
pub use osd::*;
pub use peer::PeerMsg;
pub use quorum::{MonReport, QuorumMsg, features as quorum_features};
pub use raw::RawMessage;

#[cfg(test)]
mod tests;
