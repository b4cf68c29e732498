//! The S3 gateway: HTTP in front of a cluster. It has no state of its own, so that any number of gateways can
//! serve the same buckets.
//!
//! `server` accepts connections, `service` maps S3's operations to the modules `buckets`, `objects`,
//! `listing` and `uploads`, which ask the machines of `nacre-s3`. `driver` runs the machine of a bucket's
//! index, `store` is the cluster with its pools, `receive` and `send` carry bodies, `users` finds keys,
//! `settings` has what can be set on a bucket, `cors` lets pages of other sites in, `versions`, `locks`,
//! `object_tags` and `attributes` serve what their names say. `lifecycle` carries out the rules that
//! `lifecycle_rules` takes from clients, `garbage` removes what is not needed any more, and
//! `orphans` what gateways left that have ended.

mod attributes;
mod buckets;
mod checksums;
mod cors;
mod driver;
mod errors;
mod front;
mod garbage;
mod lifecycle;
mod lifecycle_rules;
mod listing;
mod locks;
mod object_tags;
mod objects;
mod orphans;
mod receive;
mod send;
mod server;
mod service;
mod settings;
mod store;
mod uploads;
mod users;
mod versions;

pub use server::{Gateway, Options};
pub use users::FirstUser;
