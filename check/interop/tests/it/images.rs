//! Images through librbd: what drivers of virtual machines do with them.

use nacre_interop::{Cluster, succeed};

#[test]
fn drivers_of_virtual_machines_find_all_that_they_call() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create volumes 8").unwrap();
    c.run("rbd pool init volumes").unwrap();
    c.python("drivers.py", &["volumes"]).unwrap();
}

#[test]
fn fio_and_qemu_read_from_an_image_what_they_wrote() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create images 8").unwrap();
    c.run("rbd pool init images").unwrap();
    c.run("rbd create --size 64M images/fio").unwrap();
    let mut fio = c.client("fio");
    fio.args(["--name=x", "--ioengine=rbd", "--clientname=admin", "--pool=images", "--rbdname=fio"]);
    fio.args(["--rw=randrw", "--bs=16k", "--iodepth=8", "--size=8M", "--verify=crc32c", "--do_verify=1"]);
    succeed(fio.current_dir(c.folder())).unwrap();

    let file = c.folder().join("raw");
    let content: Vec<u8> = (0..3_000_320_u32).map(|i| (i / 7) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let image = format!("rbd:images/qemu:conf={}", c.conf().display());
    c.run(&format!("qemu-img convert -f raw -O raw {} {image}", file.display())).unwrap();
    let mut io = c.client("qemu-io");
    for line in ["write -P 7 64k 64k", "flush", "read -P 7 64k 64k", "discard 0 1M", "read -P 0 64k 64k"] {
        io.args(["-c", line]);
    }
    let said = succeed(io.args(["-f", "raw", &image])).unwrap();
    assert!(!said.contains("failed"), "{said}");
    c.run("rbd snap create images/qemu@s").unwrap();
    c.run(&format!("qemu-img resize -f raw {image} 8M")).unwrap();
    let back = c.folder().join("back");
    c.run(&format!("qemu-img convert -f raw -O raw {image} {}", back.display())).unwrap();
    let back = std::fs::read(&back).unwrap();
    assert_eq!(back.len(), 8 << 20);
    assert!(back[1 << 20..content.len()] == content[1 << 20..], "what was not discarded is as written");
}
