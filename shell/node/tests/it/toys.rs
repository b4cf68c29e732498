//! Machines small enough to see through.

use bytes::Bytes;
use nacre_base::Now;
use nacre_machine::{Closed, ConnId, Effect, Event, Machine, StoreView};
use nacre_node::{Limits, Listener, Running, Spec};
use nacre_proto::messages::{Command, Message};
use nacre_proto::types::{AddrKind, AddrVec, AuthName, EntityAddr, EntityType};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(20);

/// Sends back what it gets.
pub struct Echo;

impl Machine for Echo {
    fn handle(&mut self, _: Now, event: Event, _: &dyn StoreView, out: &mut Vec<Effect>) {
        match event {
            Event::Start => out.push(Effect::GrantIds(100..1_000_000)),
            Event::Message { conn, tid, message } => out.push(Effect::Send { conn, tid, message }),
            Event::Stop => out.push(Effect::Stopped),
            _ => {}
        }
    }
}

/// Dials one address and passes on what happens there.
pub struct Caller {
    to: EntityAddr,
    kind: EntityType,
    heard: Sender<Heard>,
}

#[derive(Debug, PartialEq)]
pub enum Heard {
    /// With the number that the peer gave.
    Opened(i64),
    Closed(Closed),
    Message(u64, Box<Message>),
}

pub const CONN: ConnId = ConnId::Dialled(1);

impl Machine for Caller {
    fn handle(&mut self, _: Now, event: Event, _: &dyn StoreView, out: &mut Vec<Effect>) {
        let heard = match event {
            Event::Start => return out.push(Effect::Dial { conn: CONN, to: self.to, kind: self.kind }),
            Event::Stop => return out.push(Effect::Stopped),
            Event::Opened { peer, .. } => Heard::Opened(peer.num),
            Event::Closed { why, .. } => Heard::Closed(why),
            Event::Message { tid, message, .. } => Heard::Message(tid, message.into()),
            other => panic!("{other:?} came out of nowhere"),
        };
        let _ = self.heard.send(heard);
    }
}

/// A machine that listens as `kind`, and where.
pub fn listen<M: Machine + 'static>(
    kind: EntityType,
    limits: Limits,
    machine: impl FnOnce() -> M + Send + 'static,
) -> (Running<M>, EntityAddr) {
    let listener = bind(kind);
    let addr = listener.addr;
    (serve(listener, limits, machine), addr)
}

pub fn bind(kind: EntityType) -> Listener {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Listener::bind(any, 7, kind, 3).unwrap()
}

/// A machine behind `listener`, which may say that it is reached elsewhere.
pub fn serve<M: Machine + 'static>(
    listener: Listener,
    limits: Limits,
    machine: impl FnOnce() -> M + Send + 'static,
) -> Running<M> {
    let (kind, addr) = (listener.kind, listener.addr);
    let spec = Spec {
        name: format!("{kind}.3"),
        kind,
        num: 3,
        auth_name: AuthName::new(kind, "3"),
        key: None,
        addrs: AddrVec::one(addr),
        listeners: vec![listener],
        datagrams: Vec::new(),
        store: None,
        perf: Default::default(),
        limits,
    };
    Running::start(spec, machine)
}

pub fn call(to: EntityAddr, kind: EntityType) -> (Running<Caller>, Receiver<Heard>) {
    call_as(EntityType::Client, to, kind)
}

/// The same, of a caller that is `own`.
pub fn call_as(own: EntityType, to: EntityAddr, kind: EntityType) -> (Running<Caller>, Receiver<Heard>) {
    let (heard, hears) = channel();
    let spec = Spec {
        name: own.to_string(),
        kind: own,
        num: -1,
        auth_name: AuthName::new(EntityType::Client, "admin"),
        key: None,
        addrs: AddrVec::one(EntityAddr { kind: AddrKind::Any, nonce: 5, sock: None }),
        listeners: Vec::new(),
        datagrams: Vec::new(),
        store: None,
        perf: Default::default(),
        limits: Limits::default(),
    };
    (Running::start(spec, move || Caller { to, kind, heard }), hears)
}

pub fn command(text: &str, input: impl Into<Bytes>) -> Message {
    Command { fsid: [0; 16], cmd: vec![text.to_string()], input: input.into() }.into()
}

pub fn send(caller: &Running<Caller>, tid: u64, message: Message) {
    assert!(caller.call(move |_, _, out| out.push(Effect::Send { conn: CONN, tid, message })));
}
