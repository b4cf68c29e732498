//! One connection from its first byte to its last: banner, hello, authentication, identities, messages.
//!
//! A `Connection` decides and never does: the shell gives it what a socket received and writes what is
//! in its outbox, in that order. Read `Config`, `Event`, `Phase`, then `Connection::receive`; the `on_*`
//! follow in the order in which the two ends meet them.
//!
//! After an error a connection is dead: the shell writes what is still in the outbox (the peer's
//! explanation, if there is one), logs the reason and closes the socket.

use crate::fault::FaultReason;
use crate::frame::{Frame, FrameReader, FrameWriter, Front, MessageHeader, Preamble, payload};
use crate::handshake::{
    AuthBadMethod, AuthDone, BANNER_PAYLOAD_MAX, BANNER_PAYLOAD_MIN, BANNER_PREFIX, BANNER_PREFIX_V1,
    ClientIdent, FLAG_LOSSY, Hello, Ident, MESSENGER_FEATURES, ServerIdent, banner,
};
use crate::outbox::{COPIED_MAX, Outbox};
use crate::seal::{End, keys};
use crate::sums::Sums;
use crate::tag::Tag;
use crate::{
    FEATURES_REQUIRED_BY_CLIENTS, FEATURES_REQUIRED_BY_SERVICES, FEATURES_REQUIRED_BY_STORAGE,
    FEATURES_SUPPORTED,
};
use bytes::{Buf, Bytes};
use nacre_auth::{
    CONNECTION_MODE_SECURE, Offer, Proved, Prover, SessionSecret, Verdict, Verifier, hmac_sha256, same_bytes,
};
use nacre_base::{Now, Time, Utime, errno};
use nacre_proto::messages::RawMessage;
use nacre_proto::types::{AddrKind, AddrVec, AuthName, EntityAddr, EntityName, EntityType};
use nacre_wire::{DecodeError, to_vec};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// Challenges and refusals before a client is sent away.
const AUTH_ATTEMPTS_MAX: u32 = 16;
/// Keepalives whose answers are remembered as due; older ones are forgotten.
const KEEPALIVES_MAX: usize = 16;
/// AUTH_SIGNATURE when no method gave both ends a key.
const NO_SIGNATURE: [u8; 32] = [0; 32];

/// Longest segments that a peer may announce, in bytes. Nothing is allocated for what exceeds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Everything but messages, also from peers that are not authenticated yet.
    pub control: u32,
    pub front: u32,
    pub middle: u32,
    pub data: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { control: 8 << 10, front: 64 << 20, middle: 4 << 20, data: 128 << 20 }
    }
}

/// What we are to the peer.
#[derive(Clone, Debug)]
pub struct Config {
    pub kind: EntityType,
    /// A daemon's id or rank, a client's global id or -1 before it has one.
    pub num: i64,
    /// Where we listen, as the maps say it. A client listens nowhere: it gives one address of kind `Any`
    /// with its nonce and no socket, and learns its IP from the server.
    pub addrs: AddrVec,
    /// Counts the connections that this process opened; the peer may use it to tell old from new.
    pub global_seq: u64,
    pub features_supported: u64,
    pub features_required: u64,
    pub limits: Limits,
    /// Connections that send on what others of them received share these.
    pub sums: Sums,
    /// From the first byte to the first message.
    pub handshake_timeout: Duration,
}

impl Config {
    pub fn new(kind: EntityType, num: i64, addrs: AddrVec) -> Config {
        let features_required = match kind {
            EntityType::Mon | EntityType::Osd => FEATURES_REQUIRED_BY_STORAGE,
            EntityType::Mds | EntityType::Mgr => FEATURES_REQUIRED_BY_SERVICES,
            EntityType::Client => FEATURES_REQUIRED_BY_CLIENTS,
        };
        Config {
            kind,
            num,
            addrs,
            global_seq: 1,
            features_supported: FEATURES_SUPPORTED,
            features_required,
            limits: Limits::default(),
            sums: Sums::default(),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is over; messages may come, and those that waited are on their way.
    Ready(PeerIdent),
    Message(RawMessage),
    KeepaliveAck {
        rtt: Duration,
    },
}

/// What the handshake showed about the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdent {
    /// A client goes by its global id, a daemon by its own number.
    pub name: EntityName,
    /// The client's entity name. None: the peer is the server.
    pub auth_name: Option<AuthName>,
    /// The same, proved, and what it may do. None: the peer is the server, or the method asks for no proof.
    pub proved: Option<Proved>,
    /// The client's id in this session: the peer's if we are the server, else ours.
    pub global_id: u64,
    /// Where the peer says it listens.
    pub addrs: AddrVec,
    /// The other end of the socket.
    pub sock: SocketAddr,
    /// Our address as the peer sees it.
    pub sees_us_at: EntityAddr,
    pub cookie: u64,
    pub global_seq: u64,
    /// What both ends support.
    pub features: u64,
    /// Whether the session ends with the connection.
    pub lossy: bool,
}

enum Side {
    Client { target: EntityAddr, sock: SocketAddr, peer_kind: EntityType, prover: Box<dyn Prover> },
    Server { sock: SocketAddr, verifier: Box<dyn Verifier> },
}

/// What has been agreed on so far, and so what may come next.
enum Phase {
    Banner(Vec<u8>),
    Hello,
    Authenticating(Hello, Progress),
    /// Authenticated; the peer's signature is due.
    Signing(Hello, Granted),
    Identifying(Hello, Granted),
    Open,
    Failed(FaultReason),
}

#[derive(Clone, Copy, Default)]
struct Progress {
    attempts: u32,
    /// The server challenged a client of this method and for this mode, and waits for the answer.
    challenged: Option<(u32, u32)>,
}

struct Granted {
    global_id: u64,
    auth_name: Option<AuthName>,
    proved: Option<Proved>,
    /// What the peer's signature is to be; without a key, zeros.
    signature: [u8; 32],
}

/// All handshake bytes of both directions. Each end signs them with the session key, so that a man in the
/// middle who changed any of them is found out.
#[derive(Default)]
struct Transcript {
    heard: Vec<u8>,
    said: Vec<u8>,
}

impl Phase {
    fn name(&self) -> &'static str {
        match self {
            Phase::Banner(_) => "banner",
            Phase::Hello => "hello",
            Phase::Authenticating(..) => "authentication",
            Phase::Signing(..) => "signature",
            Phase::Identifying(..) => "identification",
            Phase::Open => "message",
            Phase::Failed(_) => "failed",
        }
    }
}

pub struct Connection {
    config: Config,
    side: Side,
    phase: Phase,
    deadline: Time,
    reader: FrameReader,
    writer: FrameWriter,
    outbox: Outbox,
    /// Sent before the peer was ready for them.
    waiting: VecDeque<RawMessage>,
    in_seq: u64,
    out_seq: u64,
    /// Keepalives on their way: the stamp they carry, and when they left.
    keepalives: VecDeque<(Utime, Time)>,
    /// What the verifier put off: the method, the mode, and what the peer sent for it.
    undecided: Option<(u32, u32, Vec<u8>)>,
    /// Modes that we, as the client, can be in.
    offered: Vec<u32>,
    /// Until it is signed.
    transcript: Option<Box<Transcript>>,
}

impl Connection {
    /// A connection that we opened to `target`, expecting a `peer_kind` there. `target` must have a socket
    /// address.
    pub fn client(
        now: Time,
        config: Config,
        target: EntityAddr,
        peer_kind: EntityType,
        prover: Box<dyn Prover>,
    ) -> Connection {
        let sock = target.sock.expect("a dialled address has a socket address");
        Connection::new(now, config, target, Side::Client { target, sock, peer_kind, prover })
    }

    /// A connection that we accepted from `sock`.
    pub fn server(now: Time, config: Config, sock: SocketAddr, verifier: Box<dyn Verifier>) -> Connection {
        let peer_addr = EntityAddr::msgr2(sock, 0);
        Connection::new(now, config, peer_addr, Side::Server { sock, verifier })
    }

    fn new(now: Time, config: Config, peer_addr: EntityAddr, side: Side) -> Connection {
        let mut connection = Connection {
            deadline: now + config.handshake_timeout,
            config,
            side,
            phase: Phase::Banner(Vec::new()),
            reader: FrameReader::new(),
            writer: FrameWriter::Crc,
            outbox: Outbox::default(),
            waiting: VecDeque::new(),
            in_seq: 0,
            out_seq: 0,
            keepalives: VecDeque::new(),
            undecided: None,
            offered: Vec::new(),
            transcript: Some(Box::new(Transcript { heard: Vec::new(), said: banner().to_vec() })),
        };
        connection.outbox.push(banner());
        let hello = Hello { kind: connection.config.kind, peer_addr };
        connection.say(Tag::Hello, &to_vec(&hello));
        connection
    }

    /// One of the frames before both know each other.
    fn say(&mut self, tag: Tag, payload: &[u8]) {
        let mut frame = Outbox::default();
        self.writer.put_control(&mut frame, tag, payload);
        let frame = frame.copy_to_bytes(frame.remaining());
        self.transcript.as_mut().expect("nothing is signed yet").said.extend_from_slice(&frame);
        self.outbox.push(frame);
    }

    /// Handles what the socket received, cut in any way. Events pushed before an error happened before it.
    pub fn receive(&mut self, now: Time, mut bytes: Bytes, out: &mut Vec<Event>) -> Result<(), FaultReason> {
        self.fail_with(|c| c.read(now, &mut bytes, out))
    }

    /// The rest of a large segment that is being received: a socket may read straight into it, and its
    /// caller calls `filled` next. None: read into a buffer of your own and `receive` it.
    pub fn wanted(&mut self) -> Option<&mut [u8]> {
        match self.phase {
            Phase::Banner(_) | Phase::Failed(_) => None,
            _ => self.reader.wanted(),
        }
    }

    /// Handles the `len` bytes that were read into `wanted`.
    pub fn filled(&mut self, now: Time, len: usize, out: &mut Vec<Event>) -> Result<(), FaultReason> {
        self.reader.filled(len);
        self.receive(now, Bytes::new(), out)
    }

    /// Sends a message, or keeps it until the handshake is over. A dead connection swallows it: on a lossy
    /// session a message without an answer may be lost.
    pub fn send(&mut self, message: RawMessage) {
        match self.phase {
            Phase::Open => self.put(message, None),
            Phase::Failed(_) => {}
            _ => self.waiting.push_back(message),
        }
    }

    /// The same, of a message whose front is in a buffer that may be used again: empty afterwards.
    pub fn send_behind(&mut self, message: RawMessage, front: &mut Vec<u8>) {
        if self.is_established() && front.len() <= COPIED_MAX {
            self.put(message, Some(front));
            front.clear();
        } else {
            self.send(RawMessage { front: std::mem::take(front).into(), ..message });
        }
    }

    /// Asks the peer whether it is there; the answer is `Event::KeepaliveAck`. Does nothing before the
    /// handshake is over, which has a deadline of its own.
    pub fn keepalive(&mut self, now: Now) {
        if !self.is_established() {
            return;
        }
        if self.keepalives.len() == KEEPALIVES_MAX {
            self.keepalives.pop_front();
        }
        self.keepalives.push_back((now.wall, now.mono));
        self.writer.put_control(&mut self.outbox, Tag::Keepalive2, &to_vec(&now.wall));
    }

    /// What is to be written, for a vectored write that may stop anywhere.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Takes all that is to be written.
    pub fn transmit(&mut self) -> impl Iterator<Item = Bytes> {
        std::iter::from_fn(|| self.outbox.pop())
    }

    /// How much is to be written, without messages that wait for the handshake. A peer that asks but does
    /// not read makes this grow: stop reading from it.
    pub fn queued_bytes(&self) -> usize {
        self.outbox.remaining()
    }

    /// The peer wants to authenticate, and the verifier could not say anything yet. Until `decide`, read
    /// no more from it.
    pub fn is_undecided(&self) -> bool {
        self.undecided.is_some()
    }

    /// Asks the verifier again.
    pub fn decide(&mut self) -> Result<(), FaultReason> {
        self.fail_with(|c| match c.undecided.take() {
            Some((method, mode, payload)) => c.judge(method, mode, payload),
            None => Ok(()),
        })
    }

    pub fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// When to call `check_deadline`, while there is a handshake that can be late.
    pub fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Open | Phase::Failed(_) => None,
            _ => Some(self.deadline),
        }
    }

    pub fn check_deadline(&mut self, now: Time) -> Result<(), FaultReason> {
        self.fail_with(|c| match c.deadline() {
            Some(deadline) if now >= deadline => Err(FaultReason::HandshakeTimeout { phase: c.phase.name() }),
            _ => Ok(()),
        })
    }

    /// Why the connection is over when the peer closed its end.
    pub fn peer_closed(&self) -> FaultReason {
        if let Phase::Failed(reason) = &self.phase {
            return reason.clone();
        }
        let inside = if self.reader.is_idle() { "" } else { ", inside a frame" };
        FaultReason::PeerClosed { phase: self.phase.name(), inside }
    }

    fn fail_with(
        &mut self,
        act: impl FnOnce(&mut Connection) -> Result<(), FaultReason>,
    ) -> Result<(), FaultReason> {
        if let Phase::Failed(reason) = &self.phase {
            return Err(reason.clone());
        }
        act(self).inspect_err(|reason| {
            self.phase = Phase::Failed(reason.clone());
            self.reader = FrameReader::new();
            self.waiting.clear();
        })
    }

    fn read(&mut self, now: Time, input: &mut Bytes, out: &mut Vec<Event>) -> Result<(), FaultReason> {
        if let Phase::Banner(got) = &mut self.phase {
            if !read_banner(got, input)? {
                return Ok(());
            }
            let heard = std::mem::take(got);
            self.transcript.as_mut().expect("nothing is signed yet").heard = heard;
            self.phase = Phase::Hello;
        }
        loop {
            let before = self.transcript.is_some().then(|| input.clone());
            let (side, phase, limits) = (&self.side, &self.phase, &self.config.limits);
            let frame = self.reader.next(input, |p| admit(side, phase, limits, p))?;
            if let (Some(before), Some(transcript)) = (before, &mut self.transcript) {
                transcript.heard.extend_from_slice(&before[..before.len() - input.len()]);
            }
            let Some(frame) = frame else { return Ok(()) };
            self.on_frame(now, frame, out)?;
        }
    }

    /// `admit` let through only what the phase knows.
    fn on_frame(&mut self, now: Time, frame: Frame, out: &mut Vec<Event>) -> Result<(), FaultReason> {
        match frame.tag {
            Tag::Hello => self.on_hello(payload(&frame)?),
            Tag::AuthRequest => {
                let Offer { method, modes, payload } = payload(&frame)?;
                self.on_auth_request(method, &modes, payload)
            }
            Tag::AuthRequestMore => {
                let answer: Vec<u8> = payload(&frame)?;
                self.on_auth_answer(answer)
            }
            Tag::AuthBadMethod => {
                let refused: AuthBadMethod = payload(&frame)?;
                let AuthBadMethod { method, errno, methods, .. } = refused;
                if let Side::Client { prover, .. } = &mut self.side {
                    prover.refused();
                }
                Err(FaultReason::AuthRefused { method, errno, allowed: methods })
            }
            Tag::AuthReplyMore => {
                let challenge: Vec<u8> = payload(&frame)?;
                self.on_auth_challenge(&challenge)
            }
            Tag::AuthDone => self.on_auth_done(payload(&frame)?),
            Tag::AuthSignature => self.on_auth_signature(&frame),
            Tag::ClientIdent => {
                let ClientIdent(ident) = payload(&frame)?;
                self.on_client_ident(ident, out)
            }
            Tag::SessionReconnect => {
                // No session outlives its connection here, so the client is to begin anew.
                self.writer.put_control(&mut self.outbox, Tag::SessionReset, &to_vec(&true));
                Ok(())
            }
            Tag::ServerIdent => {
                let ServerIdent(ident) = payload(&frame)?;
                self.on_server_ident(ident, out)
            }
            Tag::IdentMissingFeatures => Err(FaultReason::WeLackFeatures(payload(&frame)?)),
            Tag::Message => self.on_message(frame, out),
            Tag::Keepalive2 => {
                let stamp: Utime = payload(&frame)?;
                self.writer.put_control(&mut self.outbox, Tag::Keepalive2Ack, &to_vec(&stamp));
                Ok(())
            }
            Tag::Keepalive2Ack => {
                self.on_keepalive_ack(now, payload(&frame)?, out);
                Ok(())
            }
            // Nothing is kept for sending again on a lossy session, so nothing can be let go of.
            Tag::Ack => Ok(()),
            tag @ (Tag::SessionReset
            | Tag::SessionRetry
            | Tag::SessionRetryGlobal
            | Tag::SessionReconnectOk
            | Tag::Wait) => unreachable!("{tag} is never admitted"),
        }
    }

    fn on_hello(&mut self, hello: Hello) -> Result<(), FaultReason> {
        let mut offer = None;
        if let Side::Client { peer_kind, prover, .. } = &mut self.side {
            if hello.kind != *peer_kind {
                return Err(FaultReason::WrongKind { expected: *peer_kind, found: hello.kind });
            }
            offer = Some(prover.open(hello.kind));
        }
        if let Some(offer) = offer {
            self.say(Tag::AuthRequest, &to_vec(&offer));
            self.offered = offer.modes;
        }
        self.phase = Phase::Authenticating(hello, Progress::default());
        Ok(())
    }

    fn on_auth_request(&mut self, method: u32, modes: &[u32], payload: Vec<u8>) -> Result<(), FaultReason> {
        if self.undecided.is_some() {
            return Err(FaultReason::UnexpectedTag { tag: Tag::AuthRequest, phase: "undecided" });
        }
        let Side::Server { verifier, .. } = &self.side else { unreachable!("only servers admit it") };
        let allowed = verifier.modes();
        // The client's best of those.
        match modes.iter().find(|mode| allowed.contains(mode)) {
            Some(&mode) if verifier.methods().contains(&method) => self.judge(method, mode, payload),
            _ => self.answer_auth(method, 0, Verdict::Refused { errno: errno::EOPNOTSUPP }),
        }
    }

    fn on_auth_answer(&mut self, answer: Vec<u8>) -> Result<(), FaultReason> {
        let Phase::Authenticating(_, Progress { challenged: Some((method, mode)), .. }) = self.phase else {
            return Err(FaultReason::UnexpectedTag { tag: Tag::AuthRequestMore, phase: self.phase.name() });
        };
        self.judge(method, mode, answer)
    }

    fn judge(&mut self, method: u32, mode: u32, payload: Vec<u8>) -> Result<(), FaultReason> {
        let Side::Server { verifier, .. } = &mut self.side else { unreachable!("only servers judge") };
        match verifier.judge(method, mode, &payload) {
            Verdict::Later => {
                self.undecided = Some((method, mode, payload));
                Ok(())
            }
            verdict => self.answer_auth(method, mode, verdict),
        }
    }

    fn answer_auth(&mut self, method: u32, mode: u32, verdict: Verdict) -> Result<(), FaultReason> {
        let Phase::Authenticating(hello, progress) = &mut self.phase else {
            unreachable!("verdicts are given while authenticating")
        };
        let Side::Server { verifier, .. } = &self.side else { unreachable!("only servers give verdicts") };
        progress.attempts += 1;
        progress.challenged = None;
        let (hello, attempts) = (*hello, progress.attempts);
        match verdict {
            Verdict::Granted(grant) => {
                let done = AuthDone { global_id: grant.global_id, mode, payload: grant.reply };
                self.say(Tag::AuthDone, &to_vec(&done));
                let signature = self.sign(mode, grant.session.as_ref())?;
                let (auth_name, proved) = (Some(grant.name), grant.proved);
                let granted = Granted { global_id: grant.global_id, auth_name, proved, signature };
                self.phase = Phase::Signing(hello, granted);
                return Ok(());
            }
            Verdict::Challenge(challenge) => {
                progress.challenged = Some((method, mode));
                self.say(Tag::AuthReplyMore, &to_vec(&challenge));
            }
            Verdict::Later => unreachable!("`judge` keeps it"),
            // The client may come again on this connection, with another method.
            Verdict::Refused { errno } => {
                let (methods, modes) = (verifier.methods(), verifier.modes());
                let refusal = AuthBadMethod { method, errno, methods, modes };
                self.say(Tag::AuthBadMethod, &to_vec(&refusal));
            }
        }
        if attempts == AUTH_ATTEMPTS_MAX {
            return Err(FaultReason::AuthAttempts(AUTH_ATTEMPTS_MAX));
        }
        Ok(())
    }

    fn on_auth_challenge(&mut self, challenge: &[u8]) -> Result<(), FaultReason> {
        let (Side::Client { prover, .. }, Phase::Authenticating(_, progress)) =
            (&mut self.side, &mut self.phase)
        else {
            unreachable!("only authenticating clients admit it")
        };
        progress.attempts += 1;
        if progress.attempts == AUTH_ATTEMPTS_MAX {
            return Err(FaultReason::AuthAttempts(AUTH_ATTEMPTS_MAX));
        }
        let answer = prover.answer(challenge).ok_or(FaultReason::AuthChallenge)?;
        self.say(Tag::AuthRequestMore, &to_vec(&answer));
        Ok(())
    }

    fn on_auth_done(&mut self, done: AuthDone) -> Result<(), FaultReason> {
        let AuthDone { global_id, mode, payload } = done;
        let (Side::Client { prover, .. }, Phase::Authenticating(hello, _)) = (&mut self.side, &self.phase)
        else {
            unreachable!("only authenticating clients admit it")
        };
        let hello = *hello;
        if !self.offered.contains(&mode) {
            return Err(FaultReason::ConnectionMode(mode));
        }
        let session = prover.granted(global_id, &payload).map_err(FaultReason::NotProved)?;
        let signature = self.sign(mode, session.as_ref())?;
        self.phase = Phase::Signing(hello, Granted { global_id, auth_name: None, proved: None, signature });
        Ok(())
    }

    /// Signs the received bytes, in the connection's mode from here on. Returns the signature that the peer
    /// must send.
    fn sign(&mut self, mode: u32, session: Option<&SessionSecret>) -> Result<[u8; 32], FaultReason> {
        let Transcript { heard, said } = *self.transcript.take().expect("signed once");
        let sign = |bytes: &[u8]| session.map_or(NO_SIGNATURE, |secret| hmac_sha256(&secret.key, bytes));
        if mode == CONNECTION_MODE_SECURE {
            self.go_secure(session.map_or(&[], |secret| &secret.connection))?;
        }
        self.writer.put_control(&mut self.outbox, Tag::AuthSignature, &sign(&heard));
        Ok(sign(&said))
    }

    /// Every frame from here on is in secure mode, in both directions. Both ends do this right behind
    /// AUTH_DONE, so that AUTH_SIGNATURE is the first such frame.
    pub(crate) fn go_secure(&mut self, secret: &[u8]) -> Result<(), FaultReason> {
        let end = match self.side {
            Side::Client { .. } => End::Client,
            Side::Server { .. } => End::Server,
        };
        let (sealer, opener) = keys(secret, end)?;
        self.writer = FrameWriter::Secure(sealer);
        self.reader.secure(opener)
    }

    fn on_auth_signature(&mut self, frame: &Frame) -> Result<(), FaultReason> {
        let Phase::Signing(hello, granted) = std::mem::replace(&mut self.phase, Phase::Hello) else {
            unreachable!("admitted only then")
        };
        if !same_bytes(&frame.segments[0], &granted.signature) {
            return Err(FaultReason::Signature);
        }
        // A daemon has a daemon's key. A client may have one as well, from that daemon's key file.
        if let Some(proved) = granted.proved.as_ref().filter(|_| hello.kind != EntityType::Client)
            && proved.name.kind != hello.kind as u32
        {
            return Err(FaultReason::NotItsKey { kind: hello.kind, name: proved.name.clone() });
        }
        if let Side::Client { target, .. } = &self.side {
            let target = *target;
            let addrs = self.own_addrs(&hello);
            self.put_ident(Tag::ClientIdent, addrs, Some(target));
        }
        self.phase = Phase::Identifying(hello, granted);
        Ok(())
    }

    /// Our addresses, with the IP that the peer sees where we do not know one.
    fn own_addrs(&self, hello: &Hello) -> AddrVec {
        let seen = hello.peer_addr.sock.map(|sock| SocketAddr::new(sock.ip(), 0));
        let fill = |addr: &EntityAddr| EntityAddr { sock: addr.sock.or(seen), ..*addr };
        AddrVec(self.config.addrs.0.iter().map(fill).collect())
    }

    fn put_ident(&mut self, tag: Tag, addrs: AddrVec, target: Option<EntityAddr>) {
        let ident = Ident {
            addrs,
            target,
            num: self.config.num,
            global_seq: self.config.global_seq,
            supported: self.config.features_supported,
            required: self.config.features_required,
            flags: FLAG_LOSSY,
            cookie: 0,
        };
        self.writer.put_control(&mut self.outbox, tag, &to_vec(&ident));
    }

    fn on_client_ident(&mut self, ident: Ident, out: &mut Vec<Event>) -> Result<(), FaultReason> {
        let target = ident.target.expect("a client's identity names its target");
        let here = &self.config.addrs;
        if !here.0.contains(&target) {
            return Err(FaultReason::NotForUs { target, here: here.clone() });
        }
        if ident.addrs.0.first().is_none_or(|a| a.kind == AddrKind::None) {
            return Err(FaultReason::NoAddress);
        }
        let missing = self.config.features_required & !ident.supported;
        if missing != 0 {
            self.writer.put_control(&mut self.outbox, Tag::IdentMissingFeatures, &to_vec(&missing));
            return Err(FaultReason::PeerLacksFeatures(missing));
        }
        let addrs = here.clone();
        self.put_ident(Tag::ServerIdent, addrs, None);
        // Every session of ours is lossy, also where the client would keep it: SERVER_IDENT decides.
        self.open(ident, true, out)
    }

    fn on_server_ident(&mut self, ident: Ident, out: &mut Vec<Event>) -> Result<(), FaultReason> {
        let Side::Client { target, .. } = &self.side else { unreachable!("only clients admit it") };
        // Another daemon may have taken the address, or another incarnation of the same one.
        if !ident.addrs.0.contains(target) {
            return Err(FaultReason::WrongPeer { target: *target, found: ident.addrs });
        }
        let missing = ident.required & !self.config.features_supported;
        if missing != 0 {
            return Err(FaultReason::WeLackFeatures(missing));
        }
        let missing = self.config.features_required & !ident.supported;
        if missing != 0 {
            return Err(FaultReason::PeerLacksFeatures(missing));
        }
        let lossy = ident.flags & FLAG_LOSSY != 0;
        self.open(ident, lossy, out)
    }

    fn open(&mut self, ident: Ident, lossy: bool, out: &mut Vec<Event>) -> Result<(), FaultReason> {
        let Phase::Identifying(hello, granted) = std::mem::replace(&mut self.phase, Phase::Open) else {
            unreachable!("identities are admitted only then")
        };
        let (Side::Client { sock, .. } | Side::Server { sock, .. }) = self.side;
        // What a client says of its own number is not authenticated; its global id is.
        let is_client = granted.auth_name.is_some() && hello.kind == EntityType::Client;
        let num = if is_client { granted.global_id as i64 } else { ident.num };
        // An OSD's number is its name.
        if let Some(Proved { name, .. }) = granted.proved.as_ref().filter(|_| hello.kind == EntityType::Osd)
            && name.id != num.to_string()
        {
            return Err(FaultReason::NotItsNumber { num, name: name.clone() });
        }
        out.push(Event::Ready(PeerIdent {
            name: EntityName::new(hello.kind, num),
            auth_name: granted.auth_name,
            proved: granted.proved,
            global_id: granted.global_id,
            addrs: ident.addrs,
            sock,
            sees_us_at: hello.peer_addr,
            cookie: ident.cookie,
            global_seq: ident.global_seq,
            features: ident.supported & self.config.features_supported,
            lossy,
        }));
        for message in std::mem::take(&mut self.waiting) {
            self.put(message, None);
        }
        Ok(())
    }

    /// `lent` is its front, if that is not in it.
    fn put(&mut self, message: RawMessage, lent: Option<&[u8]>) {
        let RawMessage { kind, version, compat, tid, priority, front, middle, data } = message;
        self.out_seq += 1;
        let header =
            MessageHeader { seq: self.out_seq, tid, kind, priority, version, ack_seq: self.in_seq, compat };
        let front = lent.map_or(Front::Own(front), Front::Lent);
        self.writer.put_message(&mut self.outbox, &header, front, [middle, data], &self.config.sums);
    }

    fn on_message(&mut self, frame: Frame, out: &mut Vec<Event>) -> Result<(), FaultReason> {
        let [head, front, middle, data] = frame.segments;
        let header = MessageHeader::decode(&head);
        let MessageHeader { seq, tid, kind, priority, version, compat, .. } = header;
        // Ceph logs a gap and continues, Linux gives up. Nothing can get lost or come twice inside one TCP
        // connection, and a client that starts anew sends again what matters: give up.
        let expected = self.in_seq + 1;
        if seq != expected {
            return Err(FaultReason::Sequence { expected, found: seq });
        }
        // A message that its sender gave up half-way used its number, too (Linux does this).
        self.in_seq = seq;
        if frame.complete {
            if let Some(crc) = frame.data_crc {
                self.config.sums.note(&data, crc);
            }
            out.push(Event::Message(RawMessage {
                kind,
                version,
                compat,
                tid,
                priority,
                front,
                middle,
                data,
            }));
        }
        Ok(())
    }

    fn on_keepalive_ack(&mut self, now: Time, stamp: Utime, out: &mut Vec<Event>) {
        // Answers come in order, so those before it will not come any more.
        let Some(at) = self.keepalives.iter().position(|&(sent, _)| sent == stamp) else { return };
        let (_, left) = self.keepalives[at];
        self.keepalives.drain(..=at);
        out.push(Event::KeepaliveAck { rtt: now.since(left) });
    }
}

/// Takes the banner off `input`. True once it is complete and the peer is one to talk to.
fn read_banner(got: &mut Vec<u8>, input: &mut Bytes) -> Result<bool, FaultReason> {
    let prefix_len = BANNER_PREFIX.len();
    // Looked at byte by byte, so that a peer of another kind is recognised although it says little.
    let seen: Vec<u8> = got.iter().chain(input.iter()).copied().take(prefix_len + 8).collect();
    let common = seen.len().min(prefix_len);
    if seen[..common] != BANNER_PREFIX[..common] {
        if seen.starts_with(BANNER_PREFIX_V1) {
            return Err(FaultReason::MessengerV1);
        }
        return Err(FaultReason::NotCeph { start: seen.escape_ascii().to_string() });
    }
    let mut fill = |len: usize| {
        let n = len.saturating_sub(got.len()).min(input.len());
        got.extend_from_slice(&input.split_to(n));
        got.len() >= len
    };
    if !fill(prefix_len + 2) {
        return Ok(false);
    }
    let len = u16::from_le_bytes([seen[prefix_len], seen[prefix_len + 1]]);
    if !(BANNER_PAYLOAD_MIN..=BANNER_PAYLOAD_MAX).contains(&len) {
        let (min, max) = (BANNER_PAYLOAD_MIN, BANNER_PAYLOAD_MAX);
        return Err(FaultReason::BannerLength { len, min, max });
    }
    if !fill(prefix_len + 2 + usize::from(len)) {
        return Ok(false);
    }
    let mut payload = &got[prefix_len + 2..];
    let (supported, required) = (payload.get_u64_le(), payload.get_u64_le());
    if MESSENGER_FEATURES & !supported != 0 || required & !MESSENGER_FEATURES != 0 {
        return Err(FaultReason::BannerFeatures { supported, required, ours: MESSENGER_FEATURES });
    }
    Ok(true)
}

/// Whether a frame may come now and be that big. Checked before anything is allocated for it.
fn admit(side: &Side, phase: &Phase, limits: &Limits, p: &Preamble) -> Result<(), FaultReason> {
    use Tag::*;
    let tag = p.tag;
    let expected: &[Tag] = match (phase, side) {
        (Phase::Hello, _) => &[Hello],
        (Phase::Authenticating(..), Side::Server { .. }) => &[AuthRequest, AuthRequestMore],
        (Phase::Authenticating(..), Side::Client { .. }) => &[AuthDone, AuthReplyMore, AuthBadMethod],
        (Phase::Signing(..), _) => &[AuthSignature],
        (Phase::Identifying(..), Side::Server { .. }) => &[ClientIdent, SessionReconnect],
        (Phase::Identifying(..), Side::Client { .. }) => &[ServerIdent, IdentMissingFeatures],
        (Phase::Open, _) => &[Message, Keepalive2, Keepalive2Ack, Ack],
        (Phase::Banner(_) | Phase::Failed(_), _) => &[],
    };
    if !expected.contains(&tag) {
        return Err(FaultReason::UnexpectedTag { tag, phase: phase.name() });
    }
    let (needed, left) = (MessageHeader::LEN, p.lens[0] as usize);
    if tag == Message && left < needed {
        return Err(FaultReason::Malformed { tag, error: DecodeError::Short { needed, left } });
    }
    if tag != Message && p.count != 1 {
        return Err(FaultReason::SegmentCount { tag, count: p.count });
    }
    let most = match tag {
        Message => [MessageHeader::LEN as u32, limits.front, limits.middle, limits.data],
        _ => [limits.control, 0, 0, 0],
    };
    for (index, (len, limit)) in p.lens.into_iter().zip(most).enumerate() {
        if len > limit {
            return Err(FaultReason::SegmentTooLong { tag, index, len, limit });
        }
    }
    Ok(())
}
