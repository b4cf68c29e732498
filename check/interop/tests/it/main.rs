//! Stock clients against real Nacre processes on loopback.

mod abuse;
mod admin;
mod durability;
mod objects;
