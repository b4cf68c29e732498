//! Unique names of writes.

use nacre_wire::{Decode, DecodeError, Encode, Reader};
use std::fmt;
use std::str::FromStr;

/// Names one write of one incarnation of a gateway, and the data that it brings. Never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// The incarnation of the gateway, drawn at random when it starts.
    pub instance: u64,
    /// Counts up within the incarnation.
    pub sequence: u64,
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{:x}", self.instance, self.sequence)
    }
}

impl FromStr for Tag {
    type Err = ();
    fn from_str(text: &str) -> Result<Tag, ()> {
        let (instance, sequence) = text.split_once('.').ok_or(())?;
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(drop);
        let tag = Tag { instance: number(instance)?, sequence: number(sequence)? };
        // One text for each tag: signs, capitals and further zeros name nothing.
        if tag.to_string() == text { Ok(tag) } else { Err(()) }
    }
}

impl Encode for Tag {
    fn encode(&self, out: &mut Vec<u8>) {
        self.instance.encode(out);
        self.sequence.encode(out);
    }
}
impl Decode for Tag {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Tag { instance: u64::decode(r)?, sequence: u64::decode(r)? })
    }
}
