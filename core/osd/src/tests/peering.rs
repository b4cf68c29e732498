//! Many groups that peer at once.

use super::World;
use std::time::Duration;

const GROUPS: u32 = 1000;

/// Without batches there are a message or two, and a transaction, for each group.
#[test]
fn a_thousand_groups_peer_in_a_few_messages_between_each_two_osds() {
    let mut w = World::new(7, 3, 3, 2, GROUPS);
    let few = |w: &mut World, what: &str| {
        assert!(w.sent.values().all(|sent| *sent <= 7), "{what}: {:?}", w.sent);
        assert!(w.stored.values().all(|stored| *stored <= 12), "{what}: {:?}", w.stored);
        w.sent.clear();
        w.stored.clear();
    };
    w.run_until("clean", World::all_clean);
    few(&mut w, "at first");
    w.kill(1);
    w.run_for(Duration::from_secs(3));
    few(&mut w, "without one");
    w.start(1);
    w.run_until("clean again", World::all_clean);
    few(&mut w, "with it again");
}
