//! A value with its encoding.

use crate::{Decode, DecodeError, Encode, Reader, to_vec};
use bytes::Bytes;
use std::ops::Deref;

/// A value together with its encoding, which is made once, or was received, and put wherever it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded<T> {
    value: T,
    bytes: Bytes,
}

impl<T: Encode> Encoded<T> {
    pub fn new(value: T) -> Encoded<T> {
        let bytes = Bytes::copy_from_slice(&to_vec(&value));
        Encoded { value, bytes }
    }
}

impl<T> Encoded<T> {
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl<T> Deref for Encoded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Encode for Encoded<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes);
    }
}
impl<T: Decode> Decode for Encoded<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let all = r.rest();
        let value = T::decode(r)?;
        // Its own: a slice would hold on to all that came with it.
        let bytes = Bytes::copy_from_slice(&all[..all.len() - r.remaining()]);
        Ok(Encoded { value, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_that_of_the_value_and_no_more() {
        let one = Encoded::new(vec![1_u32, 2]);
        let mut bytes = to_vec(&one);
        assert_eq!((bytes == to_vec(&vec![1_u32, 2]), one.len()), (true, 2));
        bytes.push(7);
        let mut r = Reader::new(&bytes);
        assert_eq!((Encoded::decode(&mut r), r.remaining()), (Ok(one), 1));
    }
}
