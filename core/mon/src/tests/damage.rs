//! A disk that holds something else than the monitor wrote ends it with a reason, and not by a panic.

use super::*;
use crate::Batch;

/// Starts the monitor again on what a damaged disk holds, and gives the reason why it ended.
fn restarted(t: TestMon) -> String {
    let t = t.restart();
    assert!(t.mon.state.is_none() && t.sent.is_empty(), "it does nothing with what it could read");
    t.failure.expect("it ended")
}

impl TestMon {
    /// What the disk holds of the Raft log under these keys.
    fn stored(&mut self, prefix: &str) -> Vec<&mut Bytes> {
        let omap = self.store.0.get_mut(&StoredId::meta("raft")).expect("it stored something");
        omap.iter_mut().filter(|(key, _)| key.to_text().starts_with(prefix)).map(|(_, value)| value).collect()
    }
}

/// Makes what begins with these bytes something that only a later version can decode.
fn damage(stored: &mut Bytes, begins: &[u8]) {
    let mut bytes = stored.to_vec();
    let at = bytes.windows(begins.len()).rposition(|window| window == begins).expect("it is stored here");
    bytes[at + 1] = 200;
    *stored = bytes.into();
}

/// What the monitor keeps of a batch of its own: the versions, the length, then the proposer.
fn damage_batch(stored: &mut Bytes) {
    let begins = |bytes: &[u8]| bytes[..2] == [9, 1] && bytes[6..] == 1_u64.to_le_bytes();
    let batch = stored.windows(14).find(|window| begins(window)).expect("a batch").to_vec();
    damage(stored, &batch);
}

#[test]
fn an_unreadable_store_ends_the_monitor_with_a_reason() {
    let mut t = TestMon::fresh();
    t.store.1 = Some(ReadError::Device("input/output error".to_string()));
    let reason = restarted(t);
    assert!(
        reason.contains("it cannot be read: device: input/output error. Remove this monitor"),
        "{reason}"
    );
}

#[test]
fn a_damaged_raft_log_ends_the_monitor_with_a_reason() {
    for key in ["hard", "checkpoint", "entry/"] {
        let mut t = TestMon::fresh();
        **t.stored(key).last_mut().expect("one") = Bytes::from_static(b"\xff\xff\xff");
        let reason = restarted(t);
        assert!(reason.contains("mon.a cannot use its store: the Raft log is damaged. "), "{key}: {reason}");
    }
}

#[test]
fn a_damaged_checkpoint_ends_the_monitor_with_a_reason() {
    let mut t = TestMon::fresh();
    let monmap = to_vec(&t.mon.state.as_ref().unwrap().monmap.map);
    let has_checkpoint =
        |t: &mut TestMon| t.stored("checkpoint")[0].windows(monmap.len()).any(|window| window == monmap);
    for n in 0.. {
        if has_checkpoint(&mut t) {
            break;
        }
        assert!(n < 600, "no checkpoint");
        t.run(json!({ "prefix": "config-key set", "key": "k", "val": n.to_string() }));
    }
    damage(t.stored("checkpoint")[0], &monmap);
    let reason = restarted(t);
    assert!(reason.contains("the checkpoint at entry ") && reason.contains(" is damaged: "), "{reason}");
    assert!(reason.contains("`ceph mon rm a`"), "{reason}");
}

#[test]
fn a_damaged_entry_ends_the_monitor_before_any_entry_is_applied() {
    let mut t = TestMon::fresh();
    t.run(json!({ "prefix": "config-key set", "key": "k", "val": "v" }));
    damage_batch(t.stored("entry/").last_mut().expect("one"));
    let reason = restarted(t);
    assert!(reason.contains(": entry ") && reason.contains(" of the Raft log is damaged: "), "{reason}");
}

#[test]
fn a_damaged_osdmap_change_in_an_entry_ends_the_monitor_as_well() {
    let mut t = TestMon::fresh();
    t.run(json!({ "prefix": "osd set", "key": "noout" }));
    let change = t.mon.state.as_ref().unwrap().osdmap.incrementals.last_key_value().unwrap().1.to_vec();
    let holds = |stored: &Bytes| stored.windows(change.len()).any(|window| window == change);
    let entry = t.stored("entry/").into_iter().find(|stored| holds(stored)).expect("its entry");
    damage(entry, &change);
    let reason = restarted(t);
    assert!(reason.contains(": entry ") && reason.contains(" of the Raft log is damaged: "), "{reason}");
}

/// Every member would stop, and stop again after a restart.
#[test]
fn entry_with_an_undecodable_osdmap_change_is_not_taken_from_a_peer() {
    let mut group = monitors::Group::of(3);
    group.pass(10_000);
    let leader = group.leader();
    let mut batch = Batch::default();
    batch.osdmap.incremental = Some(Bytes::from_static(b"no incremental"));
    group.mons[leader].mon.propose_bytes(&to_vec(&batch));
    group.mons[leader].event(Event::IdsLow);
    group.pass(2000);
    assert!(group.mons.iter().all(|mon| mon.failure.is_none()));
}

#[test]
fn an_undecodable_committed_entry_ends_a_running_monitor_and_nothing_is_applied() {
    let mut t = TestMon::fresh();
    let before = to_vec(t.mon.state.as_ref().unwrap());
    t.mon.propose_bytes(b"no batch");
    t.event(Event::IdsLow);
    assert!(t.failure.as_ref().is_some_and(|reason| reason.contains(" of the Raft log is damaged: ")));
    assert!(to_vec(t.mon.state.as_ref().unwrap()) == before);
}
