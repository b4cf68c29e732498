//! Fewer placement groups while stock clients work.

use nacre_interop::{Cluster, wait_until};
use std::time::Duration;

#[test]
fn a_pool_shrinks_under_load_and_loses_nothing() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create load 8").unwrap();
    c.run("rados -p load put before /etc/os-release").unwrap();
    let load = c.start_load("load").unwrap();

    c.run("ceph osd pool set load pg_num 4").unwrap();
    let pool = || c.json("ceph osd pool ls detail").map(|pools| pools[0].clone());
    assert_eq!(pool().unwrap()["pg_num_target"], 4);
    let pg_num = || pool().map(|pool| pool["pg_num"].as_u64());
    // One OSD dies on the way, and misses some of it.
    wait_until("one group less", Duration::from_secs(60), || Ok(pg_num()? < Some(8))).unwrap();
    c.kill("osd.1").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    c.start("osd.1").unwrap();
    wait_until("four groups", Duration::from_secs(120), || Ok(pg_num()? == Some(4))).unwrap();
    c.wait_clean().unwrap();
    let pool = pool().unwrap();
    assert_eq!((&pool["pg_placement_num"], &pool["pg_num_pending"]), (&4.into(), &4.into()));
    assert_eq!(pool["last_pg_merge_meta"]["source_pgid"], format!("{}.4", pool["pool_id"]));

    load.finish().unwrap();
    let file = std::fs::read_to_string("/etc/os-release").unwrap();
    assert_eq!(c.run("rados -p load get before -").unwrap(), file);
    c.run("ceph osd pool set load pg_num 16").unwrap();
    c.wait_clean().unwrap();
    assert_eq!(c.run("rados -p load get before -").unwrap(), file);
}
