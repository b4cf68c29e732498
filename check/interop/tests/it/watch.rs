//! Watches and notifies, and the stock `rbd`, which lives on them.

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

#[test]
fn images_are_made_filled_resized_and_removed() {
    let c = Cluster::up().unwrap();
    let rbd = |arguments: &str| c.run(&format!("rbd {arguments}")).unwrap();
    c.run("ceph osd pool create rbd 8").unwrap();
    rbd("create --size 64M one");
    let info = rbd("info one");
    assert!(info.contains("size 64 MiB in 16 objects"), "{info}");
    assert!(info.contains("layering, exclusive-lock, object-map, fast-diff, deep-flatten"), "{info}");
    rbd("bench --io-type write --io-size 4096 --io-total 256K --io-threads 1 one");

    let (file, back) = (c.folder().join("in"), c.folder().join("out"));
    let content: Vec<u8> = (0..5_000_000_u32).map(|i| (i / 7) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    rbd(&format!("import {} two", file.display()));
    rbd(&format!("export two {}", back.display()));
    assert!(std::fs::read(&back).unwrap() == content);

    rbd("resize --size 128M one");
    rbd("rename one three");
    rbd("image-meta set three key value");
    assert!(rbd("image-meta ls three").contains("value"));
    rbd("trash mv three");
    let id = rbd("trash ls").split_whitespace().next().unwrap().to_string();
    rbd(&format!("trash restore {id}"));
    assert_eq!(rbd("ls"), "three\ntwo\n");
    for image in ["two", "three"] {
        rbd(&format!("rm --no-progress {image}"));
    }
    assert_eq!(rbd("ls"), "");
}
