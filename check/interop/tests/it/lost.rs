//! Unfound objects, and how an operator declares them lost.

use nacre_interop::{Cluster, wait_until};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// As on Ceph: also what was replaced whole, and also while recovery is off. The OSD that had it comes back
/// too late.
#[test]
fn what_nobody_has_any_more_goes_back_to_what_it_was() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 1").unwrap();
    c.run("ceph osd pool set p size 2").unwrap();
    c.run("ceph osd pool set p min_size 1").unwrap();
    c.wait_clean().unwrap();
    let file = c.folder().join("in");
    let put = |text: &str, object: &str, offset: usize| {
        std::fs::write(&file, text).unwrap();
        c.run(&format!("rados -p p put {object} {} --offset {offset}", file.display())).unwrap();
    };
    put("the old content", "whole", 0);
    put("the old content", "part", 0);
    let group = &c.json("ceph pg ls-by-pool p").unwrap()["pg_stats"][0];
    let (pg, acting) = (group["pgid"].as_str().unwrap(), &group["acting"]);
    let [first, second] = [0, 1].map(|n| acting[n].as_i64().unwrap());
    let is_up = |osd: i64| c.json("ceph osd dump").unwrap()["osds"][osd as usize]["up"] == 1;
    let query = || c.json(&format!("ceph pg {pg} query")).unwrap();
    let kill = |osd: i64| {
        c.kill(&format!("osd.{osd}")).unwrap();
        wait_until("it is down", MINUTE, || Ok(!is_up(osd))).unwrap();
    };

    c.run("ceph osd set noout").unwrap();
    kill(second);
    put("NEW", "whole", 0);
    put("NEW", "part", 4);
    put("NEW", "new", 0);
    c.run("ceph osd set norecover").unwrap();
    c.start(&format!("osd.{second}")).unwrap();
    let both_serve = || Ok(is_up(second) && query()["acting"].as_array().map(Vec::len) == Some(2));
    wait_until("both serve", MINUTE, both_serve).unwrap();
    kill(first);
    let unfound = || Ok(c.json(&format!("ceph pg {pg} list_unfound"))?["num_unfound"] == 3);
    wait_until("all are unfound", MINUTE, unfound).unwrap();
    let revert = format!("ceph pg {pg} mark_unfound_lost revert");
    assert!(!c.try_run(&revert).unwrap().status.success(), "somebody may have them");
    c.run(&format!("ceph osd lost {first} --yes-i-really-mean-it")).unwrap();
    c.run(&revert).unwrap();
    let check = || {
        for object in ["whole", "part"] {
            assert_eq!(c.run(&format!("rados -p p get {object} -")).unwrap(), "the old content");
        }
        assert!(!c.try_run("rados -p p get new -").unwrap().status.success());
    };
    check();

    c.run("ceph osd unset norecover").unwrap();
    c.start(&format!("osd.{first}")).unwrap();
    c.wait_clean().unwrap();
    check();
    let stamp = || query()["info"]["history"]["last_deep_scrub_stamp"].clone();
    let before = stamp();
    c.run(&format!("ceph pg deep-scrub {pg}")).unwrap();
    wait_until("copies were compared", MINUTE, || Ok(stamp() != before)).unwrap();
    assert!(!c.run("ceph health detail").unwrap().contains("inconsistent"));
}
