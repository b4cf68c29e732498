//! Invalid input from peers, which must not disturb other sessions.

use crate::toys::{Echo, Heard, PATIENCE, call, command, listen, send};
use nacre_node::Limits;
use nacre_proto::types::EntityType;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// Collects log lines; every thread of this test binary writes into it.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;
    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

/// A banner, and a HELLO preamble that announces a segment of `len` bytes.
fn hello(len: u32) -> Vec<u8> {
    let mut bytes = b"ceph v2\n\x10\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
    let mut preamble = vec![1, 1];
    preamble.extend(len.to_le_bytes());
    preamble.extend(8_u16.to_le_bytes());
    preamble.resize(28, 0);
    let crc = nacre_wire::crc32c(0, &preamble);
    preamble.extend(crc.to_le_bytes());
    bytes.extend(preamble);
    bytes
}

#[test]
fn foreign_peer_costs_one_log_line_and_disturbs_no_other() {
    let lines = Lines::default();
    tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false).with_target(false).init();
    let limits = Limits { handshake_timeout: Duration::from_millis(500), ..Limits::default() };
    let (_server, addr) = listen(EntityType::Mon, limits, || Echo);
    let (client, hears) = call(addr, EntityType::Mon);
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Heard::Opened(3));

    let mut noise = vec![0_u8; 4096];
    let mut rng = nacre_base::Rng::new(1);
    noise.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
    noise[0] = b'X';
    let cases: [(&str, Vec<u8>, bool, &str); 7] = [
        ("port scanner", vec![], true, "the peer closed the connection in the banner phase"),
        ("v1 client", b"ceph v027\0\0\0\0".to_vec(), false, "messenger v1"),
        ("web browser", b"GET / HTTP/1.1\r\n\r\n".to_vec(), false, "not a Ceph peer"),
        ("noise", noise, false, "not a Ceph peer"),
        ("oversized", hello(0xffff_fff0), false, "segment 0 is 4294967280 bytes, limit"),
        ("truncated", hello(40), true, "inside a frame"),
        ("silent", vec![], false, "the handshake was not over in time"),
    ];
    for (name, bytes, closes, expected) in cases {
        let mut stranger = TcpStream::connect(addr.sock.unwrap()).unwrap();
        let local = stranger.local_addr().unwrap().to_string();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        stranger.write_all(&bytes).unwrap();
        if closes {
            stranger.shutdown(std::net::Shutdown::Write).unwrap();
        }
        // The end comes after what the server says of itself, or as a reset.
        let _ = stranger.read_to_end(&mut Vec::new());
        let log = || String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let about =
            |log: &str| log.lines().filter(|l| l.contains(&local)).map(String::from).collect::<Vec<_>>();
        let found = about(&log());
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert!(found[0].contains(expected), "{name}: {found:?}");
        send(&client, 9, command("still there?", "yes"));
        assert_eq!(
            hears.recv_timeout(PATIENCE).unwrap(),
            Heard::Message(9, command("still there?", "yes").into())
        );
    }
}
