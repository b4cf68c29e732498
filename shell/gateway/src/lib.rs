//! The S3 gateway: HTTP in front of a cluster. It has no state of its own, so that any number of gateways can
//! serve the same buckets.
//!
//! `server` accepts connections, `tls` encrypts them, `service` maps S3's operations to the modules
//! `buckets`, `deletions`, `objects`, `listing` and `uploads`, which ask the machines of `nacre-s3`. `driver`
//! runs the machine of a bucket's index, `store` is the cluster with its pools, `receive` and `send` carry
//! bodies,
//! `unread` ends those that nothing read, `counters` has what is counted, `users` finds keys, `settings` has
//! what can be set on a bucket, `cors` lets pages of other sites in, `website` shows buckets as web sites,
//! `versions`, `locks`, `object_tags` and `attributes` serve what their names say. `lifecycle` carries out
//! the rules that `lifecycle_rules` takes from clients, `garbage` removes what is not needed any more, and
//! `classes` says in which pools data is, `orphans` removes what gateways left that have ended, `expiry`
//! objects that end at a time of their own.
//!
//! `access` checks every request before it is carried out, `policies` and `acls` have what is set on buckets
//! and objects about that, `quotas` what may be written, `rates` how much in a minute; `trace` follows a
//! request to its end, which `usage` counts, and `access_log` writes down. `audit` has a log of what was
//! administered and what was refused. `accounts` has the records of users, `sessions` and `sts` roles and
//! keys for a time, `keystone` users of OpenStack, `secrets` encrypts keys, `admin` administers all of it.
//! `encryption` has what requests ask for about encryption at rest, `keyring` and `vault` the keys for it,
//! `cipher` encrypts bodies. `query` answers requests in forms: `sts`, `iam` and topics. `providers` has
//! whose tokens `web_identity` takes. `members` has the records of accounts of several users, `limits` what
//! names and policies may be, `records` reads and changes records, `recent` remembers some for a short time.
//! `notify` tells topics of changes. `lease` has what one gateway at a time does. `swift` serves the same
//! buckets to clients of OpenStack. `console` has pages for browsers, `post_forms` takes uploads of other
//! pages' forms, which `multipart` reads.

mod access;
mod access_log;
mod accounts;
mod acls;
mod admin;
mod attributes;
mod audit;
mod buckets;
mod checksums;
mod cipher;
mod classes;
mod console;
mod cors;
mod counters;
mod deletions;
mod domains;
mod driver;
mod encryption;
mod errors;
mod expiry;
mod features;
mod front;
mod garbage;
mod iam;
mod keyring;
mod keystone;
mod lease;
mod lifecycle;
mod lifecycle_rules;
mod limits;
mod listing;
mod locks;
mod members;
mod multipart;
mod notify;
mod object_acls;
mod object_tags;
mod objects;
mod orphans;
mod outbound;
mod policies;
mod post_forms;
mod providers;
mod query;
mod quotas;
mod rates;
mod receive;
mod recent;
mod records;
mod secrets;
mod send;
mod server;
mod service;
mod sessions;
mod settings;
mod signing;
mod store;
mod sts;
mod swift;
mod tls;
mod trace;
mod unread;
mod uploads;
mod usage;
mod users;
mod vault;
mod versions;
mod web_identity;
mod website;

pub use admin::{Admin, AdminError, Params, Verb};
pub use audit::AuditLog;
pub use features::{FEATURES, Feature, Support};
pub use keystone::KeystoneOptions;
pub use nacre_perf::Registry;
pub use server::{Gateway, Options};
pub use tls::{Tls, TlsFiles};
pub use users::FirstUser;
pub use vault::VaultOptions;
