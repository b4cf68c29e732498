//! What commands say.

use super::*;

fn busy() -> TestMon {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("rbd", 8);
    t.activate(&conns, pool);
    t.run(json!({ "prefix": "osd pool application enable", "pool": "rbd", "app": "rbd" }));
    t.report(&conns, pool);
    t
}

#[test]
fn status_says_how_the_cluster_is() {
    let mut t = busy();
    let status = t.json(json!({ "prefix": "status" }));
    assert_eq!(status["health"]["status"], "HEALTH_OK", "{status}");
    assert_eq!(status["pgmap"]["pgs_by_state"], json!([{ "state_name": "active+clean", "count": 8 }]));
    assert_eq!(status["osdmap"]["num_up_osds"], 3);
    let text = t.run(json!({ "prefix": "status" }));
    assert!(text.contains("    mgr: a(active, since 2s)\n    osd: 3 osds: 3 up"), "{text}");
    assert!(text.ends_with(
        "    pools:   1 pools, 8 pgs\n    objects: 16 objects, 64 KiB\n    usage:   3 GiB used, 27 GiB / 30 GiB avail\n    \
         pgs:     8 active+clean\n \n"
    ));
}
