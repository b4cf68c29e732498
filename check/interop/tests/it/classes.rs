//! Object classes, called by the stock `rados` and python3-rados.

use nacre_interop::Cluster;

#[test]
fn methods_run_where_the_object_is() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.python("classes.py", &["p"]).unwrap();
}

#[test]
fn rados_locks_and_unlocks_objects() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("rados -p p create obj").unwrap();
    c.run("rados -p p lock get obj mine --lock-cookie c1").unwrap();
    assert!(!c.try_run("rados -p p lock get obj mine --lock-cookie c2").unwrap().status.success());
    assert!(c.run("rados -p p lock list obj").unwrap().contains(r#"{"name":"mine"}"#));
    let info: serde_json::Value =
        serde_json::from_str(&c.run("rados -p p lock info obj mine").unwrap()).unwrap();
    assert_eq!(info["type"], "exclusive");
    assert_eq!(info["lockers"][0]["cookie"], "c1");
    let holder = info["lockers"][0]["name"].as_str().unwrap();
    c.run(&format!("rados -p p lock break obj mine {holder} --lock-cookie c1")).unwrap();
    c.run("rados -p p lock get obj mine --lock-cookie c2").unwrap();
}
