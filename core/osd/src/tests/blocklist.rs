//! Clients that are cut off while requests of theirs wait.

use super::world::World;
use super::{append, read, write};
use nacre_base::errno::{ENOENT, ESHUTDOWN};
use nacre_base::{OsdId, Utime};
use nacre_proto::types::{Op, WatchAction};
use std::time::Duration;

/// Its only client.
fn fence(w: &mut World) {
    let addr = w.client_addr();
    w.change(|_, inc| {
        inc.new_blocklist.insert(addr, Utime { sec: u32::MAX, nsec: 0 });
    });
    w.run_for(Duration::from_millis(100));
}
fn forgive(w: &mut World) {
    let addr = w.client_addr();
    w.change(|_, inc| inc.old_blocklist.push(addr));
}

#[test]
fn op_of_a_client_blocklisted_while_waiting_for_members_is_dropped() {
    let mut w = World::new(1, 3, 3, 2, 1);
    w.client_features = !(1 << 57); // it cannot be asked to keep its requests
    w.place(vec![(0, vec![OsdId(0), OsdId(1), OsdId(2)])]);
    w.run_until("clean", World::all_clean);
    [1, 2].into_iter().for_each(|n| w.kill(n));
    w.run_until("two are down", |w| !w.map.is_up(OsdId(1)) && !w.map.is_up(OsdId(2)));
    let tid = w.submit("a", write("too late"));
    w.run_for(Duration::from_millis(100));
    fence(&mut w);
    w.start(1);
    assert_eq!(w.reply(tid).result, -ESHUTDOWN);
    w.run_for(Duration::from_secs(1));
    forgive(&mut w);
    assert_eq!(w.run_ops("a", read()).result, -ENOENT);
}

#[test]
fn op_of_a_client_blocklisted_while_waiting_for_space_is_dropped() {
    let mut w = World::new(2, 3, 3, 2, 1);
    w.run_ops("a", write("old"));
    w.nodes[2].view.free = Some(20 << 20);
    w.run_for(Duration::from_secs(1));
    let tid = w.submit("a", append("new"));
    w.run_for(Duration::from_secs(1));
    assert!(!w.replies.contains_key(&tid));
    fence(&mut w);
    w.nodes[2].view.free = None;
    assert_eq!(w.reply(tid).result, -ESHUTDOWN);
    forgive(&mut w);
    assert_eq!(w.run_ops("a", read()).ops[0].data, "old");
}

#[test]
fn blocklisted_client_loses_its_watches() {
    let mut w = World::new(3, 3, 3, 2, 1);
    w.run_ops("a", write("x"));
    let watch = Op::Watch { cookie: 7, action: WatchAction::Watch, generation: 0, timeout_secs: 30 };
    assert_eq!(w.run_ops("a", vec![watch]).result, 0);
    fence(&mut w);
    w.run_for(Duration::from_secs(3));
    forgive(&mut w);
    let count = w.run_ops("a", vec![Op::ListWatchers]).ops[0].data[6];
    assert_eq!(count, 0);
}
