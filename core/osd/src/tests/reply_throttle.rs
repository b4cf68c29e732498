//! Requests that are sent again when the log has forgotten them.

use super::world::World;
use super::{append, read, write};
use bytes::Bytes;
use nacre_base::OsdId;
use nacre_proto::types::Op;

fn create() -> Vec<Op> {
    vec![Op::Create { exclusive: true }]
}

/// The answers to an append and to a request that failed, the numbers of these, and what must come
/// when they are sent again.
struct Sent {
    appended: (u64, u64),
    refused: (u64, i32),
}

impl Sent {
    fn new(w: &mut World) -> Sent {
        let user_version = w.run_ops("a", append("once ")).user_version;
        let appended = (w.last_tid(), user_version);
        let result = w.run_ops("a", create()).result;
        assert_eq!(result, -17);
        Sent { appended, refused: (w.last_tid(), result) }
    }
    fn again(&self, w: &mut World, when: &str) {
        let (tid, user_version) = self.appended;
        let reply = w.run_again(tid, "a", append("once "));
        assert_eq!((reply.result, reply.user_version), (0, user_version), "{when}");
        let (tid, result) = self.refused;
        assert_eq!(w.run_again(tid, "a", create()).result, result, "{when}");
        assert_eq!(w.run_ops("a", read()).ops[0].data, "once ", "{when}");
    }
}

/// More writes than the log keeps.
fn others(w: &mut World) {
    (0..30).for_each(|n| drop(w.run_ops(&format!("o{n}"), write("other"))));
}

#[test]
fn resent_write_beyond_the_log_is_not_applied_twice_by_any_primary() {
    let mut w = World::new(21, 5, 3, 2, 1);
    w.place(vec![(0, vec![OsdId(0), OsdId(1), OsdId(2)])]);
    let sent = Sent::new(&mut w);
    others(&mut w);
    sent.again(&mut w, "to the same primary");
    (0..5).for_each(|osd| w.kill(osd));
    (0..5).for_each(|osd| w.start(osd));
    w.run_until("clean", World::all_clean);
    sent.again(&mut w, "after a restart of all");
    w.kill(0);
    sent.again(&mut w, "to the next primary");
    others(&mut w);
    w.start(0);
    w.run_until("clean", World::all_clean);
    sent.again(&mut w, "to who was away for longer than the log reaches");
    w.place(vec![(0, vec![OsdId(0), OsdId(3), OsdId(4)])]);
    w.run_until("clean", World::all_clean);
    w.place(vec![(0, vec![OsdId(3), OsdId(4), OsdId(1)])]);
    w.run_until("clean", World::all_clean);
    sent.again(&mut w, "to who came to the group since");
    w.split(4);
    w.run_until("clean", World::all_clean);
    others(&mut w);
    sent.again(&mut w, "after a split");
}

/// What it gave out goes with the answer, as the client asked for it.
#[test]
fn outputs_are_remembered_too() {
    let mut w = World::new(22, 3, 3, 2, 1);
    let compare = || {
        let compare = Op::CmpExt { off: 0, data: Bytes::from_static(b"x") };
        vec![compare, Op::Append { data: Bytes::from_static(b"y") }]
    };
    w.run_ops("a", write("abc"));
    let first = w.run_ops("a", compare());
    let tid = w.last_tid();
    others(&mut w);
    let again = w.run_again(tid, "a", compare());
    assert!(first.result < 0);
    assert_eq!(first.ops, again.ops);
}
