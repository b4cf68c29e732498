//! Stock clients against real Nacre processes on loopback.

mod abuse;
mod admin;
mod auth;
mod chaos;
mod classes;
mod counters;
mod daemons;
mod devices;
mod docs;
mod durability;
mod guest;
mod images;
mod krbd;
mod lost;
mod mirroring;
mod model;
mod monitors;
mod objects;
mod rados_client;
mod scrub;
mod shrinking;
mod stores;
mod stuck;
mod transcripts;
mod two_clients;
mod watch;
