//! Ceph's own method: shared keys, and tickets that monitors give for other daemons.
//!
//! A client proves to a monitor that it has its key (`Challenge`, `Proof`), and gets tickets: one for the
//! monitors (its session), one for each kind of daemon that it will talk to. A ticket is sealed with a key
//! that the monitors and those daemons share and change every hour (`Keys`); it names its holder and the
//! holder's capabilities, and has a session key that its holder was told as well. A service that gets a
//! ticket (`Authorizer`) challenges its holder; then both are authenticated.
//!
//! Daemons of one kind need no tickets for each other: they have the key that those are sealed with, and so
//! each seals its own.

mod messages;
mod prover;
#[cfg(test)]
mod tests;
mod verifier;

pub(crate) use messages::CephTicketContent;
pub use messages::{
    Authorize, Authorizer, Challenge, Given, Introduction, Proof, SERVICE_AUTH, SERVICE_MDS, SERVICE_MGR,
    SERVICE_MON, SERVICE_OSD, SERVICES, Service, Ticket, TicketContent, TicketRequest,
};
pub use prover::{CephxProver, Due, TicketManager};
pub use verifier::{CephxVerifier, KeyStore, renew};

/// As capabilities name it.
pub fn service_name(service: Service) -> &'static str {
    match service {
        SERVICE_MON => "mon",
        SERVICE_MDS => "mds",
        SERVICE_OSD => "osd",
        SERVICE_MGR => "mgr",
        SERVICE_AUTH => "auth",
        _ => "unknown",
    }
}
