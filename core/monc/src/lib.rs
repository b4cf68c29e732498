//! The session that a client or a daemon has with one of the monitors.
//!
//! `MonClient` finds a monitor that answers, keeps subscriptions and requests alive across sessions,
//! and notices a monitor that fell silent. It is a machine inside another one: its owner passes it the
//! events of its session and calls `on_time` when `due` says so. Start at `MonClient`.

mod session;

pub use session::{FromMon, MakeMessage, MonClient, MonClientConfig, Pace};
