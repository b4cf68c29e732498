//! Copies that an OSD holds of PGs that have moved away from it.

use super::world::World;
use super::write;
use nacre_base::OsdId;
use std::time::Duration;

/// Found by the simulator, marking OSDs out while others were down. An OSD that starts takes the
/// interval of a PG to begin at its newest map; the primary dropped the notification with that
/// interval, and the OSD never learned the right one.
#[test]
fn restarted_stray_reports_and_is_deleted() {
    let mut w = World::new(1, 4, 3, 2, 1);
    w.run_until("clean", World::all_clean);
    assert_eq!(w.run_ops("a", write("x")).result, 0);
    let holds = |w: &World, node: usize| w.nodes[node].disk.objects().count() == 1;
    w.run_for(Duration::from_secs(1));
    assert!(holds(&w, 2));
    w.kill(2);
    w.mark_down(OsdId(2));
    w.place(vec![(0, [0, 1, 3].map(OsdId).into())]);
    w.run_until("clean without osd.2", |w| w.all_clean() && holds(w, 3));
    // The stray gets the map, and dies before its notification reaches the primary.
    w.cut.extend([(0, 2), (1, 2), (2, 3)]);
    w.start(2);
    w.run_for(Duration::from_secs(1));
    assert!(holds(&w, 2));
    w.kill(2);
    w.mark_down(OsdId(2));
    w.cut.clear();
    w.start(2);
    w.run_until("the old copy is gone", |w| !holds(w, 2));
}
