//! What a message puts into the segments of a frame.

use super::RawMessage;
use bytes::Bytes;
use nacre_wire::DecodeError;

/// The content of one kind of message.
pub(super) trait Body: Sized {
    /// Appends the front segment, and gives the data segment. The middle one is used by CephFS alone.
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes;
    /// Bytes behind what is known are skipped: newer senders append, and the kernel's client sends
    /// fixed structs with fields that it leaves unused.
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError>;
}

impl<T: Body> Body for Box<T> {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        (**self).to_segments(front)
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        T::from_segments(raw).map(Box::new)
    }
}

/// For types that have an encoding of their own and need nothing but the front.
macro_rules! front_only {
    ($($t:ty),* $(,)?) => {$(
        impl $crate::messages::body::Body for $t {
            fn to_segments(&self, front: &mut Vec<u8>) -> bytes::Bytes {
                nacre_wire::Encode::encode(self, front);
                bytes::Bytes::new()
            }
            fn from_segments(raw: &$crate::messages::RawMessage) -> Result<Self, nacre_wire::DecodeError> {
                nacre_wire::Decode::decode(&mut nacre_wire::Reader::new(&raw.front))
            }
        }
    )*};
}

/// For structs whose front is their fields in this order, in every version that is read, and
/// whose data segment (if they have one) is the field after `data`.
macro_rules! fields {
    ($($t:ident { $($field:ident),* } $(data $data:ident)?;)*) => {$(
        impl $crate::messages::body::Body for $t {
            fn to_segments(&self, front: &mut Vec<u8>) -> bytes::Bytes {
                $(nacre_wire::Encode::encode(&self.$field, front);)*
                $crate::messages::body::data_segment!(self $($data)?)
            }
            fn from_segments(raw: &$crate::messages::RawMessage) -> Result<Self, nacre_wire::DecodeError> {
                let r = &mut nacre_wire::Reader::new(&raw.front);
                Ok($t {
                    $($field: nacre_wire::Decode::decode(r)?,)*
                    $($data: raw.data.clone(),)?
                })
            }
        }
    )*};
}

macro_rules! data_segment {
    ($self:ident) => {
        bytes::Bytes::new()
    };
    ($self:ident $data:ident) => {
        $self.$data.clone()
    };
}

pub(super) use {data_segment, fields, front_only};
