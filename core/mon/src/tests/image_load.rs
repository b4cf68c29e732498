//! What clients do to images.

use super::*;

fn image(id: &str) -> ImageKey {
    ImageKey { pool: PoolId(1), namespace: String::new(), id: id.to_string() }
}

fn figures(t: &mut TestMon) -> (Vec<crate::ImageFigures>, Vec<Effect>) {
    let mut out = Vec::new();
    (t.mon.image_figures(t.now, &mut out), out)
}

#[test]
fn image_load_is_counted_while_it_is_queried() {
    let (mut t, conns) = TestMon::with_osds(2);
    let (seen, out) = figures(&mut t);
    assert!(seen.is_empty());
    let told = |effect: &Effect| match effect {
        Effect::Send { conn, message: Message::Daemon(DaemonMsg::CountImages { seconds }), .. } => {
            Some((*conn, *seconds))
        }
        _ => None,
    };
    assert!(out.iter().filter_map(told).eq([(conns[0], 70), (conns[1], 70)]), "{out:?}");
    // Not each time.
    assert!(figures(&mut t).1.is_empty());
    t.pass(Duration::from_secs(1));

    let counts = ImageCounts {
        writes: 40,
        reads: 1,
        write_bytes: 1000,
        read_bytes: 10,
        write_nanos: 8_000_000,
        read_nanos: 500,
    };
    let work = || vec![ImageWork { image: image("1f"), counts }];
    t.send(conns[0], DaemonMsg::Images(work()));
    t.send(conns[1], DaemonMsg::Images(work()));
    t.pass(Duration::from_secs(4));
    let (seen, _) = figures(&mut t);
    assert_eq!(seen.len(), 1);
    assert_eq!((&seen[0].image, seen[0].totals), (&image("1f"), counts.plus(counts).to_array()));
    let [writes, reads, write_bytes, _, write_time, read_time] = seen[0].rates;
    assert_eq!((writes, reads, write_bytes), (20.0, 0.5, 500.0));
    // Of an operation; of less than one a second as if there were one.
    assert_eq!((write_time, read_time), (200_000.0, 250.0));

    t.pass(Duration::from_secs(20));
    assert_eq!(figures(&mut t).0[0].rates, [0.0; 6]);
    t.pass(Duration::from_secs(62));
    t.send(conns[0], DaemonMsg::Images(work()));
    let (seen, out) = figures(&mut t);
    assert_eq!((seen.len(), out.len()), (0, 2));
}
