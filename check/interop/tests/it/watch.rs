//! Watches and notifies.

use nacre_interop::Cluster;

#[test]
fn whoever_watches_an_object_hears_of_notifies() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.python("watch.py", &["p"]).unwrap();
}

/// `cargo xtask soak watchers` has a thousand of them.
#[test]
fn watches_get_through_trouble() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    let count = std::env::var("NACRE_WATCHERS").unwrap_or_else(|_| "100".to_string());
    let said = c.python("watchers.py", &["p", &count]).unwrap();
    assert!(said.ends_with("all good\n"), "{said}");
    print!("{said}");
}
