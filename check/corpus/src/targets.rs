//! Fuzz targets: every decoder of foreign bytes as a function of bytes. A target panics if it finds a bug;
//! rejecting the bytes is never one.
//!
//! Where a format has checksums, the target corrects them first, since no mutation would get past them
//! otherwise.

mod caps;
mod cephx;
mod codecs;
mod disk;
mod export;
mod monitor;
mod osd;
mod quorum;
mod s3;
mod s3_access;
mod secure;
mod stored;
mod stream;

use bytes::Bytes;
use nacre_proto::messages::RawMessage;
use nacre_wire::{Decode, DecodeError, Encode, Reader, to_vec};

pub struct Target {
    pub name: &'static str,
    /// Initial inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    pub run: fn(&[u8]),
    /// A run may use this much memory ...
    pub fixed: usize,
    /// ... plus this many times the length of its input. Decoded values are larger than encoded ones.
    pub per_byte: usize,
}

impl Target {
    pub fn memory_max(&self, input: &[u8]) -> usize {
        self.fixed + self.per_byte * input.len()
    }
    pub fn named(name: &str) -> Option<&'static Target> {
        ALL.iter().find(|target| target.name == name)
    }
}

const fn target(name: &'static str, seeds: fn() -> Vec<Vec<u8>>, run: fn(&[u8])) -> Target {
    Target { name, seeds, run, fixed: 64 << 10, per_byte: 256 }
}

pub const ALL: &[Target] = &[
    Target { fixed: 2 << 20, ..target("msgr-server", stream::server_seeds, stream::server) },
    Target { fixed: 2 << 20, ..target("msgr-client", stream::client_seeds, stream::client) },
    Target { fixed: 2 << 20, ..target("msgr-secure", secure::seeds, secure::run) },
    target("message", codecs::message_seeds, codecs::message),
    target("op", codecs::op_seeds, codecs::op),
    target("heartbeat", codecs::beat_seeds, codecs::beat),
    target("transaction", codecs::transaction_seeds, codecs::transaction),
    Target { fixed: 4 << 20, ..target("osdmap", codecs::osd_map_seeds, codecs::osd_map) },
    Target { fixed: 8 << 20, ..target("incremental", codecs::incremental_seeds, codecs::incremental) },
    target("monmap", codecs::mon_map_seeds, codecs::mon_map),
    target("mgrmap", codecs::mgr_map_seeds, codecs::mgr_map),
    Target { fixed: 2 << 20, ..target("fsmap", codecs::fs_map_seeds, codecs::fs_map) },
    Target { fixed: 4 << 20, ..target("crushmap", codecs::crush_map_seeds, codecs::crush_map) },
    Target { fixed: 16 << 20, ..target("store", disk::seeds, disk::run) },
    Target { fixed: 16 << 20, ..target("store-export", export::seeds, export::run) },
    target("cephx", cephx::seeds, cephx::run),
    target("caps-osd", caps::osd_seeds, caps::osd),
    // A regular expression that constrains an argument is compiled when it is evaluated.
    Target { fixed: 4 << 20, ..target("caps-mon", caps::mon_seeds, caps::mon) },
    Target { fixed: 4 << 20, ..target("caps-mgr", caps::mgr_seeds, caps::mgr) },
    target("osd-record", stored::record_seeds, stored::record),
    target("object-info", stored::object_info_seeds, stored::object_info),
    Target { fixed: 16 << 20, ..target("osd-maps", stored::maps_seeds, stored::maps) },
    Target { fixed: 16 << 20, ..target("checkpoint", stored::state_seeds, stored::checkpoint) },
    Target { fixed: 16 << 20, ..target("batch", stored::batch_seeds, stored::batch) },
    Target { fixed: 4 << 20, ..target("collection", stored::collection_seeds, stored::collection) },
    Target { fixed: 1 << 20, ..target("raft-log", quorum::log_seeds, quorum::log) },
    Target { fixed: 4 << 20, ..target("raft", quorum::seeds, quorum::run) },
    target("s3-value", s3::value_seeds, s3::value),
    target("s3-settings", s3::settings_seeds, s3::settings),
    Target { fixed: 1 << 20, ..target("s3-policy", s3_access::policy_seeds, s3_access::policy) },
    Target { fixed: 1 << 20, ..target("s3-form", s3_access::form_seeds, s3_access::form) },
    Target { fixed: 1 << 20, ..target("s3-keystone", s3_access::keystone_seeds, s3_access::keystone) },
    target("s3-access", s3_access::record_seeds, s3_access::record),
    Target { fixed: 64 << 20, ..target("osd", osd::seeds, osd::run) },
    Target { fixed: 64 << 20, ..target("monitor", monitor::seeds, monitor::run) },
];

/// A message as input: type, version, compat version, length of the front, front, data.
fn message_input(raw: &RawMessage) -> Vec<u8> {
    let mut out = to_vec(&(raw.kind, (raw.version, raw.compat)));
    raw.front[..].encode(&mut out);
    out.extend_from_slice(&raw.data);
    out
}

fn read_message(r: &mut Reader<'_>) -> Result<RawMessage, DecodeError> {
    Ok(RawMessage {
        kind: Decode::decode(r)?,
        version: Decode::decode(r)?,
        compat: Decode::decode(r)?,
        front: Decode::decode(r)?,
        data: Bytes::copy_from_slice(r.rest()),
        ..RawMessage::default()
    })
}
