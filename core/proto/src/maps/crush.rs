//! Holds the CRUSH map's bytes until the crate that understands them is in.

use bytes::Bytes;
use nacre_wire::{Decode, DecodeError, Encode, Reader};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrushMap(Bytes);

impl CrushMap {
    pub(super) fn do_rule(&self, _: u32, _: u32, _: usize, _: &[u32], _: Option<i64>) -> Vec<i32> {
        Vec::new()
    }
}
impl Encode for CrushMap {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}
impl Decode for CrushMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(CrushMap(Bytes::copy_from_slice(r.take(r.remaining())?)))
    }
}

pub(super) fn hash32_2(a: u32, b: u32) -> u32 {
    a ^ b
}
