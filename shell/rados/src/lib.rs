#![doc = include_str!("../../../docs/client.md")]

mod client;
mod config;
mod driver;
mod pool;
mod throttle;
mod watch;

pub use client::RadosClient;
pub use config::{Config, ConfigError, Limits};
pub use nacre_client::{
    CommandOutput, Compare, Failure, ListCursor, ListEntry, ListPage, NotifyOutcome, ObjectReply,
    ObjectRequest, OpOutput, Output, Request, RequestKind, ServiceDaemon, WatchEvent, WatchId,
};
pub use pool::{Objects, Pool, Stat};
pub use watch::Watch;
