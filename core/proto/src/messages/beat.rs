//! A heartbeat between two OSDs: one datagram. Ours alone: no Ceph client ever sees these.

use nacre_base::OsdId;
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice, versioned_fields};

/// Tells our datagrams from whatever else comes to the port.
const MAGIC: u32 = u32::from_le_bytes(*b"beat");
/// None of ours is longer.
const LEN_MAX: usize = 128;

/// "I live" from one life of an OSD to one life of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    pub fsid: [u8; 16],
    pub from: OsdId,
    /// The nonce of the sender's address tells its lives apart.
    pub from_life: u32,
    pub to: OsdId,
    pub to_life: u32,
    /// Answers one that had the same stamp; if not, it is to be answered.
    pub is_answer: bool,
    /// On the clock of the first sender, in nanoseconds.
    pub stamp: u64,
}

versioned_fields!(Beat, "heartbeat", fsid, from, from_life, to, to_life, is_answer, stamp);

impl Beat {
    pub fn to_datagram(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEN_MAX);
        MAGIC.encode(&mut out);
        self.encode(&mut out);
        out
    }

    pub fn from_datagram(bytes: &[u8]) -> Result<Beat, DecodeError> {
        let what = "heartbeat datagram";
        if bytes.len() > LEN_MAX {
            return Err(DecodeError::BadValue { what, value: bytes.len() as u64 });
        }
        let magic = u32::decode(&mut Reader::new(bytes))?;
        if magic != MAGIC {
            return Err(DecodeError::BadValue { what, value: magic.into() });
        }
        from_slice(&bytes[4..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_reads_back_and_other_datagrams_do_not() {
        let beat = Beat {
            fsid: [7; 16],
            from: OsdId(1),
            from_life: 11,
            to: OsdId(2),
            to_life: 22,
            is_answer: true,
            stamp: 5,
        };
        let bytes = beat.to_datagram();
        assert_eq!(Beat::from_datagram(&bytes), Ok(beat));
        for other in [&b""[..], b"bea", b"hello, is this the time service?", &bytes[..20], &[0; 500]] {
            assert!(Beat::from_datagram(other).is_err());
        }
    }
}
