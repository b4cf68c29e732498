//! What clients do to images, counted while a monitor wants to know.

use super::world::{POOL, World};
use super::{read, write};
use nacre_proto::messages::{DaemonMsg, ImageCounts, ImageKey};
use std::time::Duration;

#[test]
fn requests_are_counted_per_image_while_enabled() {
    let mut w = World::new(1, 3, 3, 2, 4);
    w.run_until("clean", World::all_clean);
    let object = |n: u32| format!("rbd_data.1f.{n:016x}");
    assert_eq!(w.run_ops(&object(0), write("before")).result, 0);
    w.tell_osds(|| DaemonMsg::CountImages { seconds: 20 }.into());
    for n in 0..8 {
        assert_eq!(w.run_ops(&object(n), write("12345")).result, 0);
    }
    assert_eq!(w.run_ops(&object(3), read()).ops[0].data, "12345");
    assert_eq!(w.run_ops("rbd_header.1f", write("other")).result, 0);
    w.run_for(Duration::from_secs(30));
    assert_eq!(w.run_ops(&object(0), write("after")).result, 0);
    w.run_for(Duration::from_secs(10));

    let key = ImageKey { pool: POOL, namespace: String::new(), id: "1f".to_string() };
    assert!(w.image_work.iter().all(|work| work.image == key), "{:?}", w.image_work);
    let sum = w.image_work.iter().fold(ImageCounts::default(), |sum, work| sum.plus(work.counts));
    assert_eq!((sum.writes, sum.write_bytes, sum.reads, sum.read_bytes), (8, 40, 1, 5));
    assert!(sum.write_nanos / sum.writes > sum.read_nanos, "{sum:?}");
}
