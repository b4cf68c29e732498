//! What happens while something else is on its way.

use super::world::{POOL, World};
use super::{read, write};
use crate::pg::Pg;
use nacre_base::{OsdId, PgId};
use nacre_proto::maps::osd_state;
use std::time::Duration;

const PG: PgId = PgId { pool: POOL, seed: 0 };

fn osds(ids: &[i32]) -> Vec<OsdId> {
    ids.iter().copied().map(OsdId).collect()
}

fn group(w: &World, node: usize) -> Option<&Pg> {
    w.nodes[node].osd.as_ref()?.pg(PG)
}

/// The longest log was with one that is no member and died before it gave it: the group waited for it, although another
/// one had all that was acknowledged.
#[test]
fn a_log_that_dies_with_who_had_it_is_taken_from_another() {
    let mut w = World::new(1, 5, 3, 1, 1);
    w.place(vec![(0, osds(&[2, 0, 1]))]);
    w.run_until("clean", World::all_clean);
    w.run_ops("a", write("what everybody has"));
    w.cut.insert((2, 0));
    let newer = w.submit("a", write("what osd.1 has as well"));
    w.run_for(Duration::from_millis(50));
    w.kill(2);
    w.change(|_, inc| {
        inc.new_state.insert(OsdId(2), osd_state::UP);
        inc.new_pg_upmap.insert(PG, osds(&[0, 3, 4]));
    });
    w.run_until("osd.1 is asked", |w| group(w, 0).unwrap().summary().contains("log of osd.1"));
    w.kill(1);
    w.mark_down(OsdId(1));
    w.run_until("clean", World::all_clean);
    assert_eq!(w.reply(newer).result, 0);
    assert_eq!(w.run_ops("a", read()).ops[0].data, "what osd.1 has as well");
}
