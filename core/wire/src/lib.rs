//! The codec: how Ceph puts values into bytes.
//!
//! Everything is little-endian; strings, lists and maps carry a `u32` count; structs that may grow
//! carry an envelope `{u8 version, u8 compat, u32 length}` (`versioned`). Encoding cannot fail.
//! Decoding checks every byte once and never allocates more than the input could fill.

mod crc;
mod decode;
mod encode;
mod encoded;
mod impls;

pub use crc::{CRC_BLOCK, crc32c, crc32c_of_blocks, crc32c_zeros};
pub use decode::{Decode, DecodeError, Reader};
pub use encode::{Encode, encode_list, encode_map, versioned};
pub use encoded::Encoded;

/// Decodes a whole buffer and refuses leftovers: for values that own their buffer.
pub fn from_slice<T: Decode>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut r = Reader::new(bytes);
    let value = T::decode(&mut r)?;
    r.finish()?;
    Ok(value)
}

pub fn to_vec<T: Encode + ?Sized>(value: &T) -> Vec<u8> {
    // Most values are short: growing from nothing would cost more than encoding them.
    let mut out = Vec::with_capacity(256);
    value.encode(&mut out);
    out
}
