//! The S3 gateway: HTTP in front of a cluster. It has no state of its own, so that any number of gateways can
//! serve the same buckets.
//!
//! `server` accepts connections, `service` maps S3's operations to the modules `buckets`, `objects`,
//! `listing` and `uploads`, which ask the machines of `nacre-s3`. `driver` runs the machine of a bucket's
//! index, `store` is the cluster with its pools, `receive` and `send` carry bodies, `users` finds keys,
//! `settings` has what can be set on a bucket, `cors` lets pages of other sites in, `garbage` removes what is
//! not needed any more.

mod buckets;
mod checksums;
mod cors;
mod driver;
mod errors;
mod front;
mod garbage;
mod listing;
mod objects;
mod receive;
mod send;
mod server;
mod service;
mod settings;
mod store;
mod uploads;
mod users;

pub use server::{Gateway, Options};
pub use users::FirstUser;
