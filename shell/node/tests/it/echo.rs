use crate::toys::{CONN, Echo, Heard, PATIENCE, call, command, listen, send};
use nacre_base::Now;
use nacre_machine::{Closed, Effect, Event, Machine, StoreView};
use nacre_node::{Ended, Limits};
use nacre_proto::types::EntityType;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

#[test]
fn messages_of_all_sizes_come_back_whole_and_in_order() {
    let (server, addr) = listen(EntityType::Mon, Limits::default(), || Echo);
    let (client, hears) = call(addr, EntityType::Mon);
    let sizes = [0, 1, 4096, 100_000, 5 << 20, 3, 20 << 20];
    let messages: Vec<_> = sizes.iter().map(|&len| command("echo", vec![len as u8; len])).collect();
    for (tid, message) in messages.iter().enumerate() {
        send(&client, tid as u64, message.clone());
    }
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    for (tid, message) in messages.into_iter().enumerate() {
        assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Message(tid as u64, message.into()));
    }
    server.stop();
    server.join().unwrap();
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Closed(Closed::Reset));
    client.stop();
    client.join().unwrap();
}

#[test]
fn absent_peer_is_refused_and_another_kind_is_a_fault() {
    let (server, addr) = listen(EntityType::Osd, Limits::default(), || Echo);
    let (_client, hears) = call(addr, EntityType::Mon);
    assert!(matches!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Closed(Closed::Fault(_))));
    server.stop();
    server.join().unwrap();
    let (_client, hears) = call(addr, EntityType::Osd);
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Closed(Closed::Refused));
}

#[test]
fn requests_beyond_the_budget_wait_and_none_is_lost() {
    let limits = Limits { received_max: 1 << 20, unsent_pause: 1 << 20, ..Limits::default() };
    let (_server, addr) = listen(EntityType::Osd, limits, || Echo);
    let (client, hears) = call(addr, EntityType::Osd);
    for tid in 0..200 {
        send(&client, tid, command("echo", vec![tid as u8; 300_000]));
    }
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    for tid in 0..200 {
        let message = command("echo", vec![tid as u8; 300_000]);
        assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Message(tid, message.into()));
    }
}

#[test]
fn last_words_before_a_hangup_arrive() {
    let (server, addr) = listen(EntityType::Osd, Limits::default(), || Echo);
    let (client, hears) = call(addr, EntityType::Osd);
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    send(&client, 1, command("echo", "x"));
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Message(1, command("echo", "x").into()));
    assert!(server.call(|_, _, out| {
        let conn = nacre_machine::ConnId::Accepted(1);
        let message = command("goodbye", vec![1; 3 << 20]);
        out.push(Effect::Send { conn, tid: 2, message });
        out.push(Effect::Hangup { conn });
    }));
    let goodbye = Heard::Message(2, command("goodbye", vec![1; 3 << 20]).into());
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), goodbye);
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Closed(Closed::Reset));
    // A peer that hangs up gets nothing more.
    assert!(client.call(|_, _, out| out.push(Effect::Hangup { conn: CONN })));
}

/// Says so whenever its timer fires.
struct Ticker(Sender<()>);

impl Machine for Ticker {
    fn handle(&mut self, _: Now, event: Event, _: &dyn StoreView, out: &mut Vec<Effect>) {
        match event {
            Event::Timer(_) => drop(self.0.send(())),
            Event::Start => {}
            other => panic!("{other:?} came out of nowhere"),
        }
        out.push(Effect::Arm { timer: 1, after: Duration::from_millis(20) });
    }
}

#[test]
fn daemon_runs_after_its_handle_is_dropped() {
    let (says, ticks) = channel();
    let (ticker, _) = listen(EntityType::Osd, Limits::default(), move || Ticker(says));
    drop(ticker);
    for _ in 0..20 {
        ticks.recv_timeout(PATIENCE).unwrap();
    }
}

/// Echoes, but grants no ids before it is told to.
struct Stingy(Echo);

impl Machine for Stingy {
    fn handle(&mut self, now: Now, event: Event, store: &dyn StoreView, out: &mut Vec<Effect>) {
        if !matches!(event, Event::Start) {
            self.0.handle(now, event, store, out);
        }
    }
}

#[test]
fn a_handshake_waits_until_there_is_an_id_to_give() {
    let (server, addr) = listen(EntityType::Mon, Limits::default(), || Stingy(Echo));
    let (client, hears) = call(addr, EntityType::Mon);
    send(&client, 1, command("echo", "x"));
    assert!(hears.recv_timeout(Duration::from_millis(300)).is_err());
    assert!(server.call(|_, _, out| out.push(Effect::GrantIds(7..9))));
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Message(1, command("echo", "x").into()));
}

/// Fails on the first message.
struct Fragile {
    heard: Sender<()>,
}

impl Machine for Fragile {
    fn handle(&mut self, _: Now, event: Event, _: &dyn StoreView, out: &mut Vec<Effect>) {
        self.heard.send(()).unwrap();
        if let Event::Message { conn, tid, message } = event {
            out.push(Effect::Fail { reason: "the reason".to_string() });
            out.push(Effect::Send { conn, tid, message });
        }
    }
}

#[test]
fn a_machine_that_fails_ends_its_daemon_with_the_reason_and_says_nothing_more() {
    let (to_test, heard) = channel();
    let (server, addr) = listen(EntityType::Osd, Limits::default(), || Fragile { heard: to_test });
    let (client, hears) = call(addr, EntityType::Osd);
    send(&client, 1, command("echo", ""));
    send(&client, 2, command("echo", ""));
    let ended = server.join();
    assert!(matches!(&ended, Err(Ended::Failed(reason)) if reason == "the reason"), "{ended:?}");
    assert_eq!(heard.iter().count(), 3, "the start, the session and one message");
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Closed(Closed::Reset));
    client.stop();
    client.join().unwrap();
}
