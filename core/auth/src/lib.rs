//! Authentication (keys, tickets) and authorisation (capabilities).
//!
//! `method` is where authentication meets the handshake of a connection (`nacre-msgr`); `none` believes every
//! name, `cephx` shares keys and gives tickets. `keys` is the monitors' table of entities, `caps` what an
//! entity may do.

pub mod caps;
pub mod cephx;
mod crypt;
mod entropy;
mod join_token;
pub mod keyring;
mod keys;
mod method;
mod none;
mod secret;

pub use crypt::Usage;
pub use entropy::Entropy;
pub use join_token::{JoinToken, NotAToken};
pub use keys::{Entity, Holder, Keys, Lifetimes, Rotating};
pub use method::{
    CONNECTION_MODE_CRC, CONNECTION_MODE_SECURE, CONNECTION_SECRET_LEN, GlobalIds, Grant, METHOD_CEPHX,
    METHOD_NONE, Offer, Proved, Prover, SessionSecret, Verdict, Verifier,
};
pub use none::{NoneProver, NoneVerifier};
pub use secret::{KeyType, NotAKey, Sealed, Secret, hmac_sha256, same_bytes};

/// The first byte of AUTH_REQUEST: a client asks a monitor for a session, ...
const ASKS_MONITOR: u8 = 10;
/// ... or shows a ticket to any daemon. Ceph: `AUTH_MODE_AUTHORIZER`.
const SHOWS_TICKET: u8 = 1;
