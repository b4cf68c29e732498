//! What the monitor does, one module for each service.
//!
//! A service may have a slice of the agreed state with its delta and its publication (`state::Slice`), and what
//! only this process knows: reports of daemons, what was said last.

pub mod auth;
pub mod autoscale;
pub mod balancer;
pub mod config;
pub mod fsmap;
pub mod health;
pub mod kv;
pub mod leader_hints;
pub mod log;
pub mod mgr;
pub mod monmap;
pub mod osdmap;
pub mod pg;
