//! Watches and notifies.

use nacre_interop::Cluster;

#[test]
fn whoever_watches_an_object_hears_of_notifies() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.python("watch.py", &["p"]).unwrap();
}

#[test]
fn watches_get_through_trouble() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    let said = c.python("watchers.py", &["p", "100"]).unwrap();
    assert!(said.ends_with("all good\n"), "{said}");
}
