//! What stops a monitor that is wrong.

use super::*;

#[test]
#[should_panic(expected = "the osdmap went back from epoch")]
fn a_map_that_goes_back_stops_the_monitor() {
    let mut t = TestMon::fresh();
    let older = t.mon.state.clone();
    t.run(json!({ "prefix": "osd set", "key": "noout" }));
    t.mon.state = older;
    t.event(Event::IdsLow);
}

#[test]
#[should_panic(expected = "was sent mgrmap 1000")]
fn a_map_that_was_sent_before_it_is_committed_stops_the_monitor() {
    let mut t = TestMon::fresh();
    let conn = t.client();
    t.send(conn, subscribe("mgrmap", 0, 0));
    let sent = &mut t.mon.sessions.get_mut(conn).unwrap().sent_maps;
    assert!(sent["mgrmap"] > 0, "{sent:?}");
    sent.insert("mgrmap".to_string(), 1000);
    t.event(Event::IdsLow);
}

#[test]
fn a_client_that_asks_for_later_maps_than_there_are_waits() {
    let mut t = TestMon::fresh();
    for what in ["monmap", "mgrmap", "osdmap"] {
        let conn = t.client();
        t.send(conn, subscribe(what, u64::MAX, 0));
        t.event(Event::IdsLow);
        assert!(t.received(conn).is_empty());
    }
}
