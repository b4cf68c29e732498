//! What a peer can make a daemon hold, and for how long. Peers freeze behind a relay that stops
//! passing bytes on: the sockets stay open, as those of a machine that lost its power.

use crate::toys::{Echo, Heard, PATIENCE, bind, call, call_as, command, listen, send, serve};
use nacre_base::{Epoch, Now, PgId, PoolId, SnapId};
use nacre_machine::{Closed, Effect, Event, Machine, StoreView};
use nacre_node::Limits;
use nacre_proto::messages::{Message, OsdOp};
use nacre_proto::types::{EntityAddr, EntityType, ObjectLocator, Op, SpgId};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// An `Echo` that tells which sessions ended.
struct Watched(Sender<Closed>);

impl Machine for Watched {
    fn handle(&mut self, now: Now, event: Event, view: &dyn StoreView, out: &mut Vec<Effect>) {
        if let Event::Closed { why, .. } = &event {
            let _ = self.0.send(why.clone());
        }
        Echo.handle(now, event, view, out);
    }
}

fn watched(limits: Limits) -> (nacre_node::Running<Watched>, EntityAddr, Receiver<Closed>) {
    let (ends, ended) = channel();
    let (server, addr) = listen(EntityType::Osd, limits, || Watched(ends));
    (server, addr, ended)
}

/// A watched server that is reached through a relay, by the relay's address.
fn relayed(limits: Limits) -> (nacre_node::Running<Watched>, Relay, Receiver<Closed>) {
    let (ends, ended) = channel();
    let mut listener = bind(EntityType::Osd);
    let relay = Relay::before(listener.addr);
    listener.addr = relay.addr;
    (serve(listener, limits, || Watched(ends)), relay, ended)
}

/// Passes bytes between callers and a server, until it freezes for the first of them.
struct Relay {
    addr: EntityAddr,
    /// Towards the server, and back.
    frozen: [Arc<AtomicBool>; 2],
    /// What it passed on from the server.
    answer_bytes: Arc<AtomicUsize>,
}

impl Relay {
    fn before(server: EntityAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = EntityAddr { sock: Some(listener.local_addr().unwrap()), ..server };
        let frozen: [Arc<AtomicBool>; 2] = Default::default();
        let mut stop = frozen.clone();
        let answer_bytes: Arc<AtomicUsize> = Arc::default();
        let answers = answer_bytes.clone();
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(server.sock.unwrap()).unwrap();
                let there = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let [stop_there, stop_back] = std::mem::take(&mut stop);
                let answers = answers.clone();
                std::thread::spawn(move || pass(there.0, there.1, &stop_there, &AtomicUsize::new(0)));
                std::thread::spawn(move || pass(far, near, &stop_back, &answers));
            }
        });
        Relay { addr, frozen, answer_bytes }
    }

    fn freeze(&self) {
        self.frozen.iter().for_each(|frozen| frozen.store(true, Ordering::SeqCst));
    }

    fn freeze_answers(&self) {
        self.frozen[1].store(true, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, frozen: &AtomicBool, passed: &AtomicUsize) {
    let mut buffer = vec![0; 64 << 10];
    while !frozen.load(Ordering::SeqCst) {
        match from.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(_) if frozen.load(Ordering::SeqCst) => {}
            Ok(len) => {
                to.write_all(&buffer[..len]).unwrap();
                passed.fetch_add(len, Ordering::SeqCst);
            }
        }
    }
    // Both sockets stay open until the test is over.
    let never = (Mutex::new(()), Condvar::new());
    drop(never.1.wait_timeout(never.0.lock().unwrap(), PATIENCE * 2));
}

#[test]
fn one_session_too_many_is_turned_away_until_another_leaves() {
    let limits = Limits { sessions_max: 1, ..Limits::default() };
    let (_server, addr, ended) = watched(limits);
    let (first, hears_first) = call(addr, EntityType::Osd);
    assert_eq!(hears_first.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    let (_second, hears_second) = call(addr, EntityType::Osd);
    assert!(matches!(hears_second.recv_timeout(PATIENCE).unwrap(), Heard::Closed(_)));
    send(&first, 1, command("still served?", "yes"));
    assert!(matches!(hears_first.recv_timeout(PATIENCE).unwrap(), Heard::Message(1, _)));
    first.stop();
    first.join().unwrap();
    ended.recv_timeout(PATIENCE).unwrap();
    let (_third, hears_third) = call(addr, EntityType::Osd);
    assert_eq!(hears_third.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
}

#[test]
fn silent_peer_is_disconnected_and_idle_peer_is_kept() {
    let limits = Limits {
        idle_probe: Duration::from_millis(200),
        idle_timeout: Duration::from_secs(3),
        ..Limits::default()
    };
    let (_server, relay, ended) = relayed(limits);
    let (_dead, hears_dead) = call_as(EntityType::Osd, relay.addr, EntityType::Osd);
    assert_eq!(hears_dead.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    let (idle, hears_idle) = call_as(EntityType::Osd, relay.addr, EntityType::Osd);
    assert_eq!(hears_idle.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    relay.freeze();
    let why = ended.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(&why, Closed::Fault(text) if text.starts_with("silent for")), "{why:?}");
    // It was silent for longer, but for its answers to the probes.
    assert!(ended.try_recv().is_err());
    send(&idle, 1, command("still served?", "yes"));
    assert!(matches!(hears_idle.recv_timeout(PATIENCE).unwrap(), Heard::Message(1, _)));
}

#[test]
fn idle_client_gets_no_keepalive_and_is_kept() {
    let limits = Limits {
        idle_probe: Duration::from_millis(100),
        idle_timeout: Duration::from_secs(1),
        ..Limits::default()
    };
    let (_server, relay, ended) = relayed(limits);
    let (idle, hears) = call(relay.addr, EntityType::Osd);
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    // The relay counts bytes just after it passed them on.
    std::thread::sleep(Duration::from_millis(50));
    let answered = relay.answer_bytes.load(Ordering::SeqCst);
    assert!(answered > 0);
    assert!(ended.recv_timeout(Duration::from_secs(3)).is_err());
    assert_eq!(relay.answer_bytes.load(Ordering::SeqCst), answered);
    send(&idle, 1, command("still served?", "yes"));
    assert!(matches!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Message(1, _)));
}

#[test]
fn a_peer_that_takes_nothing_of_what_waits_for_it_is_cut() {
    let limits = Limits { stalled_client_timeout: Duration::from_millis(500), ..Limits::default() };
    let (_server, relay, ended) = relayed(limits);
    let (client, hears) = call(relay.addr, EntityType::Osd);
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    relay.freeze_answers();
    // More than the sockets' buffers hold.
    for tid in 0..40 {
        send(&client, tid, command("echo", vec![7; 1 << 20]));
    }
    let why = ended.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(&why, Closed::Fault(text) if text.starts_with("the peer accepted none of")), "{why:?}");
}

#[test]
fn slow_reader_is_disconnected_before_replies_fill_memory() {
    // Without a pause of its requests, so that only the last limit holds.
    let limits = Limits { unsent_pause: usize::MAX, unsent_max: 1 << 20, ..Limits::default() };
    let (_server, addr, ended) = watched(limits);
    let (client, hears) = call(addr, EntityType::Osd);
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    send(&client, 1, command("echo", vec![7; 8 << 20]));
    let why = ended.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(&why, Closed::Fault(text) if text.contains("limit 1048576")), "{why:?}");
}

/// Keeps what it gets, and tells how much that is.
struct Keep(Vec<Message>, Sender<usize>);

impl Machine for Keep {
    fn handle(&mut self, now: Now, event: Event, view: &dyn StoreView, out: &mut Vec<Effect>) {
        if let Event::Message { message, .. } = event {
            self.0.push(message);
            let _ = self.1.send(self.0.len());
        } else {
            Echo.handle(now, event, view, out);
        }
    }
}

/// Without data: it asks whether an object is there.
fn stat() -> Message {
    let pg = PgId { pool: PoolId(1), seed: 0 };
    let request = OsdOp {
        spg: SpgId::replicated(pg),
        hash: 0,
        epoch: Epoch(1),
        flags: 0,
        reqid: Default::default(),
        client_inc: 0,
        mtime: Default::default(),
        locator: ObjectLocator { pool: pg.pool, key: "".into(), namespace: "".into(), hash: None },
        name: "object".into(),
        ops: vec![Op::Stat.into()],
        snap: SnapId::HEAD,
        snap_seq: SnapId(0),
        snaps: Vec::new(),
        retry_attempt: 0,
        features: 0,
    };
    Message::OsdOp(request.into())
}

#[test]
fn requests_without_data_are_limited_by_memory() {
    let (heard, hears_kept) = channel();
    let limits = Limits { received_max: 1 << 20, ..Limits::default() };
    let (server, addr) = listen(EntityType::Osd, limits, || Keep(Vec::new(), heard));
    let (client, hears) = call(addr, EntityType::Osd);
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    const SENT: usize = 4000;
    (0..SENT).for_each(|tid| send(&client, tid as u64, stat()));
    let mut kept = 0;
    while let Ok(more) = hears_kept.recv_timeout(if kept == 0 { PATIENCE } else { Duration::from_secs(1) }) {
        kept = more;
    }
    // Of 2 KiB each, and what one look into the socket brought.
    assert!((512..1200).contains(&kept), "{kept} are kept");
    // Answered messages free space, until all have arrived.
    let mut all = kept;
    while all < SENT {
        assert!(server.call(|machine, _, _| machine.0.clear()));
        all += 1;
        assert_eq!(hears_kept.recv_timeout(PATIENCE).unwrap(), 1);
        while hears_kept.recv_timeout(Duration::from_millis(300)).is_ok() {
            all += 1;
        }
    }
    assert_eq!(all, SENT);
}
