//! Values to bytes.

/// A value with one encoding. Types whose encoding depends on the peer's features take those as
/// arguments of a method of their own instead.
pub trait Encode {
    fn encode(&self, out: &mut Vec<u8>);
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
}

/// Writes `body` in an envelope. Ceph: `ENCODE_START(version, compat)` ... `ENCODE_FINISH`.
pub fn versioned(out: &mut Vec<u8>, version: u8, compat: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[version, compat, 0, 0, 0, 0]);
    let start = out.len();
    body(out);
    let len = (out.len() - start) as u32;
    out[start - 4..start].copy_from_slice(&len.to_le_bytes());
}

/// A counted list from anything that can be walked twice.
pub fn encode_list<I>(out: &mut Vec<u8>, items: I)
where
    I: IntoIterator,
    I::Item: Encode,
    I::IntoIter: ExactSizeIterator,
{
    let items = items.into_iter();
    (items.len() as u32).encode(out);
    items.for_each(|item| item.encode(out));
}

/// A counted map whose keys come already in order.
pub fn encode_map<K: Encode, V: Encode>(out: &mut Vec<u8>, pairs: impl ExactSizeIterator<Item = (K, V)>) {
    (pairs.len() as u32).encode(out);
    pairs.for_each(|(k, v)| {
        k.encode(out);
        v.encode(out);
    });
}

/// Encodes and decodes a struct's fields in the order given, in an envelope of version 1. For what only Nacre
/// reads, so that one order serves both ways. Fields behind `later` were added since: they are their default
/// where the envelope ends before them.
#[macro_export]
macro_rules! versioned_fields {
    ($t:ident, $name:literal, $($field:ident),* $(,)? $(; later $($late:ident),*)?) => {
        impl $crate::Encode for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                $crate::versioned(out, 1, 1, |out| {
                    $($crate::Encode::encode(&self.$field, out);)*
                    $($($crate::Encode::encode(&self.$late, out);)*)?
                });
            }
        }
        impl $crate::Decode for $t {
            fn decode(r: &mut $crate::Reader<'_>) -> Result<Self, $crate::DecodeError> {
                r.versioned($name, 1, |r, _| Ok($t {
                    $($field: $crate::Decode::decode(r)?,)*
                    $($($late: if r.is_empty() { Default::default() } else { $crate::Decode::decode(r)? },)*)?
                }))
            }
        }
    };
}
