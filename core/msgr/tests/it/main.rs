//! Connections as the shell uses them: with each other, with captured bytes, with liars.

mod allocations;
mod captured;
mod hostile;
mod secure;
mod talking;

use bytes::Bytes;
use nacre_auth::{GlobalIds, NoneProver, NoneVerifier};
use nacre_base::Time;
use nacre_msgr::{Config, Connection, Event, FaultReason, PeerIdent};
use nacre_proto::messages::RawMessage;
use nacre_proto::types::{AddrKind, AddrVec, AuthName, EntityAddr, EntityType};

const NOW: Time = Time { nanos: 1_000_000_000 };
const CLIENT_ID: u64 = 4157;

fn osd_addr() -> EntityAddr {
    EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 77)
}

fn osd_config() -> Config {
    Config::new(EntityType::Osd, 3, AddrVec::one(osd_addr()))
}

fn client_config() -> Config {
    let anywhere = EntityAddr { kind: AddrKind::Any, nonce: 9, sock: None };
    Config::new(EntityType::Client, CLIENT_ID as i64, AddrVec::one(anywhere))
}

fn admin(global_id: u64) -> Box<NoneProver> {
    Box::new(NoneProver { name: AuthName::new(EntityType::Client, "admin"), global_id })
}

fn brought() -> Box<NoneVerifier> {
    Box::new(NoneVerifier { global_ids: GlobalIds::Brought })
}

fn new_client(config: Config) -> Connection {
    Connection::client(NOW, config, osd_addr(), EntityType::Osd, admin(CLIENT_ID))
}

fn new_server(config: Config) -> Connection {
    Connection::server(NOW, config, "127.0.0.1:50000".parse().unwrap(), brought())
}

/// All that `from` wants written, as one piece.
fn written(from: &mut Connection) -> Bytes {
    from.transmit().flatten().collect()
}

fn receive(to: &mut Connection, bytes: impl Into<Bytes>) -> Result<Vec<Event>, FaultReason> {
    let mut events = Vec::new();
    to.receive(NOW, bytes.into(), &mut events).map(|()| events)
}

/// Carries bytes to and fro until both are silent; what a and b made of them.
fn exchange(a: &mut Connection, b: &mut Connection) -> (Vec<Event>, Vec<Event>) {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    while a.queued_bytes() + b.queued_bytes() > 0 {
        of_b.extend(receive(b, written(a)).unwrap());
        of_a.extend(receive(a, written(b)).unwrap());
    }
    (of_a, of_b)
}

/// A client and an OSD that finished their handshake.
fn pair() -> (Connection, Connection) {
    let (mut client, mut server) = (new_client(client_config()), new_server(osd_config()));
    exchange(&mut client, &mut server);
    assert!(client.is_established() && server.is_established());
    (client, server)
}

fn ready(events: &[Event]) -> &PeerIdent {
    let [Event::Ready(ident)] = events else { panic!("{events:?}") };
    ident
}

fn message(tid: u64, front: &'static [u8], data: &'static [u8]) -> RawMessage {
    RawMessage {
        kind: 42,
        version: 8,
        compat: 3,
        tid,
        priority: 63,
        front: Bytes::from_static(front),
        middle: Bytes::new(),
        data: Bytes::from_static(data),
    }
}
