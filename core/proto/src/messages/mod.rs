//! What travels between daemons and clients.

mod raw;

pub use raw::RawMessage;
