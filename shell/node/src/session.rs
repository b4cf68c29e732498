//! One session: a socket and the connection machine that makes sense of its bytes.
//!
//! Each session is a task of its daemon's thread. It writes what is queued, reads what came, gives it
//! to the connection and the messages to the node; `Session` is what it shares with the node.

use crate::clock;
use crate::counters::MessengerCounters;
use crate::node::Node;
use bytes::{Buf, BytesMut};
use nacre_base::Time;
use nacre_machine::{ConnId, Machine, Peer};
use nacre_msgr::{Connection, FaultReason, PeerIdent};
use nacre_proto::messages::MessageError;
use nacre_proto::types::{EntityAddr, EntityType};
use rustix::net::sockopt;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::ReadHalf;
use tokio::sync::Notify;

/// One read takes at most this much, unless the rest of a large segment is due.
const READ_BYTES: usize = 64 << 10;
/// Pieces in one vectored write.
const WRITE_PIECES: usize = 64;
/// What a session that was hung up may take to write its last words.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);
/// When a client's host is asked whether it is there, and again.
const HOST_IDLE: Duration = Duration::from_secs(2);
const HOST_ASKED_AGAIN: Duration = Duration::from_secs(1);
/// For how long it may answer nothing, asked or sent something.
const HOST_SILENT_MS: u32 = 5000;

pub(crate) struct Session {
    pub(crate) id: ConnId,
    pub(crate) sock: SocketAddr,
    pub(crate) conn: RefCell<Connection>,
    /// Something is to be written, or the session is to end.
    pub(crate) wake: Notify,
    /// Set once, by the first cause that ends the session.
    end: RefCell<Option<End>>,
    /// A monitor gives a global id to a client that has none; the handshake waits until there is one.
    pub(crate) assigns_ids: bool,
    /// The peer, once the handshake is over.
    pub(crate) peer_kind: Cell<Option<EntityType>>,
    last_received: Cell<Time>,
    probed: Cell<bool>,
    /// Since when nothing that waits could be written.
    stalled_since: Cell<Option<Time>>,
    /// Not reading, so silence means nothing.
    pausing: Cell<bool>,
}

/// Why a session is over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("disconnected")]
    HungUp,
    #[error("connection refused")]
    Refused,
    #[error("no reply in time")]
    NoAnswer,
    #[error("{0}")]
    Socket(std::io::Error),
    #[error(transparent)]
    Fault(FaultReason),
    #[error(transparent)]
    Message(MessageError),
    #[error("no tickets: {0}")]
    Tickets(String),
    #[error("{unsent} bytes wait to be sent, limit {limit}")]
    SlowReader { unsent: usize, limit: usize },
    #[error("the peer accepted none of {unsent} waiting bytes for {} s", .since.as_secs())]
    Stalled { unsent: usize, since: Duration },
    #[error("silent for {} s", .0.as_secs())]
    Silent(Duration),
}

impl Session {
    pub(crate) fn new(id: ConnId, sock: SocketAddr, conn: Connection, assigns_ids: bool) -> Rc<Session> {
        Rc::new(Session {
            id,
            sock,
            conn: RefCell::new(conn),
            wake: Notify::new(),
            end: RefCell::new(None),
            assigns_ids,
            peer_kind: Cell::new(None),
            last_received: Cell::new(clock::mono()),
            probed: Cell::new(false),
            stalled_since: Cell::new(None),
            pausing: Cell::new(false),
        })
    }

    /// Lets the session's task end it. The first reason counts.
    pub(crate) fn finish(&self, end: End) {
        self.end.borrow_mut().get_or_insert(end);
        self.wake.notify_one();
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.end.borrow().is_some()
    }

    pub(crate) fn unsent(&self) -> usize {
        self.conn.borrow_mut().queued_bytes()
    }

    /// Called about once a second: looks for peers that are late, slow or gone.
    pub(crate) fn sweep(&self, limits: &crate::Limits) {
        if self.is_ending() {
            return;
        }
        let now = clock::now();
        if let Err(reason) = self.conn.borrow_mut().check_deadline(now.mono) {
            return self.finish(End::Fault(reason));
        }
        let may_stall = match self.peer_kind.get() {
            Some(EntityType::Client) => limits.stalled_client_timeout,
            _ => limits.stalled_timeout,
        };
        if let Some(since) = self.stalled_since.get().map(|t| now.mono.since(t))
            && since > may_stall
        {
            return self.finish(End::Stalled { unsent: self.unsent(), since });
        }
        // Clients get no keepalive: Linux's closes a connection on which one arrives. The kernel of a
        // client's host is asked instead (`watch_host`).
        if matches!(self.peer_kind.get(), None | Some(EntityType::Client)) {
            return;
        }
        let silent = now.mono.since(self.last_received.get());
        if self.pausing.get() || silent < limits.idle_probe {
            return;
        }
        if silent > limits.idle_timeout {
            self.finish(End::Silent(silent));
        } else if !self.probed.replace(true) {
            self.conn.borrow_mut().keepalive(now);
            self.wake.notify_one();
        }
    }

    /// Writes until nothing is left or the socket takes no more. True if something is left.
    fn write(&self, stream: &TcpStream, counters: &MessengerCounters) -> Result<bool, End> {
        let mut conn = self.conn.borrow_mut();
        let outbox = conn.outbox();
        while outbox.has_remaining() {
            let mut pieces = [IoSlice::new(&[]); WRITE_PIECES];
            let count = outbox.chunks_vectored(&mut pieces);
            match stream.try_write_vectored(&pieces[..count]) {
                Ok(written) => {
                    counters.msgr_send_calls.inc();
                    counters.msgr_send_bytes.add(written as u64);
                    outbox.advance(written);
                    self.stalled_since.set(None);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if self.stalled_since.get().is_none() {
                        self.stalled_since.set(Some(clock::mono()));
                    }
                    return Ok(true);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(End::Socket(e)),
            }
        }
        Ok(false)
    }

    /// Reads once, as soon as there is something. What came before an error is in `events`.
    ///
    /// A read that does not fill its buffer has emptied the socket, and the next one waits without
    /// asking the system again.
    fn poll_read(
        &self,
        context: &mut Context<'_>,
        reader: &mut ReadHalf<'_>,
        buffer: &mut BytesMut,
        events: &mut Vec<nacre_msgr::Event>,
        counters: &MessengerCounters,
    ) -> Poll<Result<(), End>> {
        let mut conn = self.conn.borrow_mut();
        // Nothing is lost with a future of this kind that is not ready: it is made anew each time.
        let (read, direct) = match conn.wanted() {
            Some(rest) => (pin!(reader.read(rest)).poll(context), true),
            None => {
                if buffer.capacity() < READ_BYTES / 8 {
                    buffer.reserve(READ_BYTES);
                }
                (pin!(reader.read_buf(buffer)).poll(context), false)
            }
        };
        let len = match ready!(read) {
            Ok(0) => return Poll::Ready(Err(End::Fault(conn.peer_closed()))),
            Ok(len) => {
                counters.msgr_recv_calls.inc();
                counters.msgr_recv_bytes.add(len as u64);
                len
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => return Poll::Ready(Ok(())),
            Err(e) => return Poll::Ready(Err(End::Socket(e))),
        };
        let now = clock::mono();
        self.last_received.set(now);
        self.probed.set(false);
        let result = if direct {
            conn.filled(now, len, events)
        } else {
            conn.receive(now, buffer.split().freeze(), events)
        };
        Poll::Ready(result.map_err(End::Fault))
    }
}

/// A session that we dial: connects first.
pub(crate) async fn dial<M: Machine + 'static>(node: Rc<Node<M>>, session: Rc<Session>) {
    let connected = tokio::select! {
        connected = TcpStream::connect(session.sock) => Some(connected),
        () = ended(&session) => None,
    };
    match connected {
        Some(Ok(stream)) => return run(node, session, stream).await,
        Some(Err(e)) => session.finish(match e.kind() {
            ErrorKind::ConnectionRefused => End::Refused,
            ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => End::NoAnswer,
            _ => End::Socket(e),
        }),
        None => {}
    }
    over(&node, &session);
}

async fn ended(session: &Session) {
    while !session.is_ending() {
        session.wake.notified().await;
    }
}

/// Runs a connected session to its end.
pub(crate) async fn run<M: Machine + 'static>(
    node: Rc<Node<M>>,
    session: Rc<Session>,
    mut stream: TcpStream,
) {
    // Requests and replies are written whole: waiting for more only makes them late.
    if let Err(e) = stream.set_nodelay(true) {
        session.finish(End::Socket(e));
    }
    if let Err(end) = converse(&node, &session, &mut stream).await {
        session.finish(end);
    }
    over(&node, &session);
    // What is still sent to the peer: the machine's last messages, or why the peer is refused.
    let last_words = async {
        while let Ok(true) = session.write(&stream, &node.counters) {
            if stream.writable().await.is_err() {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LAST_WORDS_TIMEOUT, last_words).await;
}

fn over<M: Machine + 'static>(node: &Rc<Node<M>>, session: &Session) {
    let end = session.end.borrow_mut().replace(End::HungUp).unwrap_or(End::HungUp);
    node.session_over(session, end);
}

async fn converse<M: Machine + 'static>(
    node: &Rc<Node<M>>,
    session: &Session,
    stream: &mut TcpStream,
) -> Result<(), End> {
    let (mut reader, writer) = stream.split();
    let writer: &TcpStream = writer.as_ref();
    let mut buffer = BytesMut::new();
    let mut events = Vec::new();
    loop {
        if session.is_ending() {
            return Ok(());
        }
        let room = node.room();
        // Registered before the checks, so that space freed in between is not missed.
        tokio::pin!(room);
        session.conn.borrow_mut().decide().map_err(End::Fault)?;
        let waits_for_id = session.conn.borrow().is_undecided();
        let blocked = session.write(writer, &node.counters)?;
        let reading = node.may_read(session);
        session.pausing.set(!reading);
        let read = poll_fn(|context| {
            session.poll_read(context, &mut reader, &mut buffer, &mut events, &node.counters)
        });
        let result = tokio::select! {
            result = read, if reading => result,
            writable = writer.writable(), if blocked => {
                writable.map_err(End::Socket)?;
                continue;
            }
            () = session.wake.notified() => continue,
            () = room, if !reading || waits_for_id => continue,
        };
        // The machine gets the messages before the fault, and then the fault.
        for event in events.drain(..) {
            match event {
                nacre_msgr::Event::Ready(ident) => {
                    node.opened(session, &ident);
                    if session.peer_kind.get() == Some(EntityType::Client) {
                        watch_host(writer).map_err(|e| End::Socket(e.into()))?;
                    }
                }
                nacre_msgr::Event::Message(raw) => node.received(session, raw)?,
                nacre_msgr::Event::KeepaliveAck { .. } => {}
            }
        }
        node.turn();
        result?;
    }
}

/// A host that lost its power closes no connection, and others wait for what its clients held. Its
/// kernel is asked, which answers for a client that hangs as well.
fn watch_host(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(stream, HOST_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, HOST_ASKED_AGAIN)?;
    sockopt::set_tcp_user_timeout(stream, HOST_SILENT_MS)?;
    sockopt::set_socket_keepalive(stream, true)
}

pub(crate) fn peer(ident: &PeerIdent) -> Option<Peer> {
    let kind = EntityType::from_byte(ident.name.kind).ok()?;
    Some(Peer {
        kind,
        num: ident.name.num,
        addrs: ident.addrs.clone(),
        observed: EntityAddr::msgr2(ident.sock, 0),
        features: ident.features,
        auth_name: ident.auth_name.clone(),
        proved: ident.proved.clone(),
    })
}
