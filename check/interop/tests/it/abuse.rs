//! Malformed input on the daemons' ports ends that connection, is logged once, and disturbs no other client.

use nacre_interop::Cluster;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Sends bytes and waits for the daemon to hang up (or to stay silent, for what may continue).
fn abuse(addr: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // The daemon may hang up while we still write.
    let _ = stream.write_all(bytes);
    let mut sink = [0; 4096];
    while matches!(stream.read(&mut sink), Ok(n) if n > 0) {}
}

#[test]
fn garbage_on_every_port_harms_nobody() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("rados -p p put a /etc/hostname").unwrap();

    let dump = c.json("ceph osd dump").unwrap();
    let mut ports: Vec<SocketAddr> = Vec::new();
    for osd in dump["osds"].as_array().unwrap() {
        for list in ["public_addrs", "cluster_addrs"] {
            for addr in osd[list]["addrvec"].as_array().unwrap() {
                ports.push(addr["addr"].as_str().unwrap().parse().unwrap());
            }
        }
    }
    for mon in c.json("ceph mon dump").unwrap()["mons"].as_array().unwrap() {
        for addr in mon["public_addrs"]["addrvec"].as_array().unwrap() {
            ports.push(addr["addr"].as_str().unwrap().parse().unwrap());
        }
    }
    ports.sort();
    ports.dedup();

    let banner = b"ceph v2\n\x10\x00\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let noise: Vec<u8> = (0..5000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut oversize = banner.to_vec();
    oversize.extend([1, 1, 0xff, 0xff, 0xff, 0x7f, 8, 0]);
    oversize.extend([0; 24]);
    for &port in &ports {
        abuse(port, b""); // a port scanner
        abuse(port, b"GET / HTTP/1.1\r\n\r\n");
        abuse(port, b"ceph v027\0\0\0\0\0\0\0\0"); // msgr v1
        abuse(port, &noise);
        abuse(port, &[banner, &noise[..]].concat());
        abuse(port, &banner[..11]);
        abuse(port, &oversize);
    }
    assert_eq!(c.run("rados -p p ls").unwrap(), "a\n");
    assert_eq!(c.json("ceph status").unwrap()["osdmap"]["num_up_osds"], 3);
}
