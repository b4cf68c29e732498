//! The recordings, by type. Each sample is a label and bytes.

use bytes::Bytes;
use nacre_proto::messages::RawMessage;

/// Bytes that a real Ceph wrote, and their label in the recording.
pub type Sample<T = Vec<u8>> = (String, T);

fn from_hex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2) && hex.is_ascii());
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

/// The lines `label<TAB>hex` of a recording.
fn lines(text: &str) -> impl Iterator<Item = Sample> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (label, hex) = line.split_once('\t').expect("a tab between label and bytes");
        (label.to_string(), from_hex(hex))
    })
}

fn chain(kind: &'static str) -> impl Iterator<Item = Sample> {
    lines(include_str!("../data/osdmap-chain.txt")).filter(move |(label, _)| label.starts_with(kind))
}

pub fn osd_maps() -> Vec<Sample> {
    lines(include_str!("../data/osdmap_full.txt")).chain(chain("full")).collect()
}

/// Incremental OSD maps. Those of the first recording follow the first of `osd_maps`.
pub fn incrementals() -> Vec<Sample> {
    lines(include_str!("../data/osdmap_inc.txt")).chain(chain("inc")).collect()
}

fn published(kind: &str) -> Vec<Sample> {
    lines(include_str!("../data/monmap-mgrmap.txt")).filter(|(label, _)| label == kind).collect()
}
pub fn mon_maps() -> Vec<Sample> {
    published("monmap")
}
pub fn mgr_maps() -> Vec<Sample> {
    published("mgrmap")
}

/// File systems and their metadata servers.
pub fn fs_maps() -> Vec<Sample> {
    lines(include_str!("../data/fsmap.txt")).collect()
}

macro_rules! crush_files {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../data/crush/", $name, ".txt")))),*]
    };
}
const CRUSH: &[(&str, &str)] = crush_files!(
    "classes",
    "default-set",
    "list",
    "list-legacy",
    "mixed",
    "one",
    "racks",
    "straw",
    "straw-legacy",
    "straw2",
    "straw2-legacy",
    "thousand",
    "tree",
    "tree-legacy",
    "uneven",
    "uniform",
    "uniform-legacy",
    "unstable-0",
    "unstable-1"
);

pub fn crush_maps() -> Vec<Sample> {
    let made = CRUSH.iter().map(|(name, text)| {
        let first = text.lines().next().and_then(|line| line.strip_prefix("map "));
        (name.to_string(), from_hex(first.expect("a recording begins with its map")))
    });
    lines(include_str!("../data/crush.txt")).chain(made).collect()
}

/// Messages between clients and daemons, without CephFS's.
pub fn messages() -> Vec<Sample<RawMessage>> {
    let small = lines(include_str!("../data/small_messages.txt")).filter_map(|(label, bytes)| {
        let (name, rest) = label.split_once(' ').expect("name and version");
        let (version, lens) = rest.split_once(' ').expect("version and lengths");
        let version = version.trim_start_matches('v').parse().expect("a version");
        let lens = lens.rsplit_once('[').expect("lengths").1.trim_end_matches(']');
        let front_len = lens
            .split(", ")
            .next()
            .filter(|len| !len.is_empty())
            .map_or(0, |len| len.parse().expect("a length"));
        let bytes = Bytes::from(bytes);
        let (front, data) = (bytes.slice(..front_len), bytes.slice(front_len..));
        Some((label.clone(), message(kind_of(name)?, version, front, data)))
    });
    let all: Vec<Sample> = lines(include_str!("../data/osd_ops.txt")).collect();
    let ops = all.chunks(2).map(|pair| {
        let [(label, front), (_, data)] = pair else { panic!("a front without data") };
        let kind = if label.starts_with("REQ") { 42 } else { 43 };
        (label.clone(), message(kind, 8, front.clone().into(), data.clone().into()))
    });
    small.chain(ops).collect()
}

fn message(kind: u16, version: u16, front: Bytes, data: Bytes) -> RawMessage {
    RawMessage { kind, version, compat: 1, tid: 7, front, data, ..RawMessage::default() }
}

/// Ceph's message type for a name in the recording; None for CephFS's.
fn kind_of(name: &str) -> Option<u16> {
    Some(match name {
        "PING" => 2,
        "MON_MAP" => 4,
        "MON_GET_MAP" => 5,
        "STATFS" => 13,
        "STATFS_REPLY" => 14,
        "MON_SUBSCRIBE" => 15,
        "MON_GET_VERSION" => 19,
        "MON_GET_VERSION_REPLY" => 20,
        "MDS_MAP" => 21,
        "WATCH_NOTIFY" => 44,
        "POOLOP_REPLY" => 48,
        "POOLOP" => 49,
        "MON_COMMAND" => 50,
        "MON_COMMAND_ACK" => 51,
        "GETPOOLSTATS" => 58,
        "GETPOOLSTATSREPLY" => 59,
        "CONFIG" => 62,
        "COMMAND" => 97,
        "COMMAND_REPLY" => 98,
        "MGR_CONFIGURE" => 0x701,
        "MGR_REPORT" => 0x702,
        "MGR_CLOSE" => 0x708,
        "MGR_COMMAND" => 0x709,
        "MGR_COMMAND_REPLY" => 0x70a,
        "CLIENT_SESSION" | "CLIENT_REQUEST" | "CLIENT_REPLY" | "CLIENT_CAPS" => return None,
        other => panic!("a message of no known name: {other}"),
    })
}

/// The end of a connection that wrote a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    Client,
    Server,
}

/// Everything that one end of a connection to an OSD wrote.
pub fn osd_stream(sender: Sender) -> Vec<u8> {
    stream(include_str!("../data/msgr_authnone_osd.txt"), sender)
}
/// What one end of a connection to a monitor wrote, without large frames.
pub fn mon_stream(sender: Sender) -> Vec<u8> {
    stream(include_str!("../data/msgr_authnone_mon.txt"), sender)
}

/// What one end of each secure-mode connection wrote after AUTH_DONE, and the connection secret.
pub fn secure_streams(sender: Sender) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all: Vec<Sample> = lines(include_str!("../data/msgr_secure.txt")).collect();
    let of = |name: &str| {
        let (_, bytes) = all.iter().find(|(label, _)| label == name).expect("each connection has all labels");
        bytes.clone()
    };
    let names = all.iter().filter_map(|(label, _)| label.strip_suffix(" secret"));
    let mark = mark(sender);
    names.map(|name| (of(&format!("{name} {mark}secure")), of(&format!("{name} secret")))).collect()
}

fn mark(sender: Sender) -> &'static str {
    match sender {
        Sender::Client => "C ",
        Sender::Server => "S ",
    }
}

fn stream(text: &str, sender: Sender) -> Vec<u8> {
    let mark = mark(sender);
    lines(text).filter(|(label, _)| label.starts_with(mark)).flat_map(|(_, bytes)| bytes).collect()
}
