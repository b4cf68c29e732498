//! Encodings of plain values and of the ids in `base`.

use crate::{Decode, DecodeError, Encode, Reader, encode_list, encode_map, versioned};
use bytes::Bytes;
use nacre_base::{
    Epoch, IntervalSet, KeyRanges, Name, OsdId, PgId, PoolId, ShardId, SnapId, SpgId, Utime, Version,
};
use std::collections::{BTreeMap, BTreeSet};

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Encode for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
        impl Decode for $t {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(<$t>::from_le_bytes(r.array()?))
            }
        }
    )*};
}
number!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

macro_rules! newtype {
    ($($t:ident),*) => {$(
        impl Encode for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }
        }
        impl Decode for $t {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok($t(Decode::decode(r)?))
            }
        }
    )*};
}
newtype!(Epoch, OsdId, PoolId, ShardId, SnapId);

impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}
/// Ceph takes any non-zero byte for true.
impl Decode for bool {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(u8::decode(r)? != 0)
    }
}

impl Encode for [u8; 16] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}
impl Decode for [u8; 16] {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.array()
    }
}

impl Encode for [u8] {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        out.extend_from_slice(self);
    }
}
impl Encode for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        self[..].encode(out);
    }
}
/// A copy, which does not hold on to the message that it was in.
impl Decode for Bytes {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Bytes::copy_from_slice(r.bytes()?))
    }
}
impl Encode for Name {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode(out);
    }
}
impl Decode for Name {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Name::copy_from(r.bytes()?))
    }
}
impl Encode for str {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode(out);
    }
}
impl Encode for String {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode(out);
    }
}
/// Text for people (pool names, commands): bytes that are not UTF-8 become replacement characters.
/// What must come back byte for byte is a `Name`.
impl Decode for String {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(String::from_utf8_lossy(r.bytes()?).into_owned())
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_list(out, self);
    }
}
impl<T: Decode> Decode for Vec<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.list(T::decode)
    }
}
impl<T: Encode> Encode for BTreeSet<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_list(out, self);
    }
}
impl<T: Decode + Ord> Decode for BTreeSet<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = r.count(1)?;
        (0..count).map(|_| T::decode(r)).collect()
    }
}
impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_map(out, self.iter());
    }
}
/// To sort this many pairs before they become a map costs more than to put them there one by one.
const FEW: usize = 4;

impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = r.count(1)?;
        if count > FEW {
            return (0..count).map(|_| Ok((K::decode(r)?, V::decode(r)?))).collect();
        }
        let mut map = BTreeMap::new();
        for _ in 0..count {
            let key = K::decode(r)?;
            map.insert(key, V::decode(r)?);
        }
        Ok(map)
    }
}
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        self.iter().for_each(|value| value.encode(out));
    }
}
impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        bool::decode(r)?.then(|| T::decode(r)).transpose()
    }
}
impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
}
impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}

/// Ceph: `eversion_t`; the counter comes first although the epoch weighs more.
impl Encode for Version {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        self.epoch.encode(out);
    }
}
impl Decode for Version {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = u64::decode(r)?;
        Ok(Version { version, epoch: Epoch::decode(r)? })
    }
}
impl Encode for Utime {
    fn encode(&self, out: &mut Vec<u8>) {
        self.sec.encode(out);
        self.nsec.encode(out);
    }
}
impl Decode for Utime {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Utime { sec: u32::decode(r)?, nsec: u32::decode(r)? })
    }
}
/// Ceph: `pg_t`, whose last field was a "preferred" OSD and is -1 since long ago.
impl Encode for PgId {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1);
        self.pool.encode(out);
        self.seed.encode(out);
        (-1_i32).encode(out);
    }
}
impl Decode for PgId {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = u8::decode(r)?;
        let pg = PgId { pool: PoolId::decode(r)?, seed: u32::decode(r)? };
        let _preferred = i32::decode(r)?;
        Ok(pg)
    }
}
/// Ceph: `spg_t` v1.
impl Encode for SpgId {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            self.pg.encode(out);
            self.shard.encode(out);
        });
    }
}
impl Decode for SpgId {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("spg_t", 1, |r, _| Ok(SpgId { pg: Decode::decode(r)?, shard: Decode::decode(r)? }))
    }
}
/// Ceph: `interval_set<u64>`, as (start, length) pairs.
impl Encode for IntervalSet {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.num_ranges() as u32).encode(out);
        for range in self.iter() {
            range.start.encode(out);
            (range.end - range.start).encode(out);
        }
    }
}
impl Decode for IntervalSet {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ranges = (0..r.count(16)?).map(|_| {
            let (start, len) = (u64::decode(r)?, u64::decode(r)?);
            let end = start.checked_add(len);
            Ok(start..end.ok_or(DecodeError::BadValue { what: "interval_set length", value: len })?)
        });
        ranges.collect()
    }
}
/// Ours: (start, end) pairs.
impl Encode for KeyRanges {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        for (start, end) in self.iter() {
            start.encode(out);
            end.cloned().encode(out);
        }
    }
}
impl Decode for KeyRanges {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        (0..r.count(5)?).map(|_| Ok((Decode::decode(r)?, Decode::decode(r)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{from_slice, to_vec};

    fn round_trips<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: T, len: usize) {
        let bytes = to_vec(&value);
        assert_eq!(bytes.len(), len);
        assert_eq!(from_slice::<T>(&bytes).unwrap(), value);
        for cut in 0..bytes.len() {
            assert!(from_slice::<T>(&bytes[..cut]).is_err(), "a prefix of {cut} bytes was accepted");
        }
    }

    #[test]
    fn plain_values_read_back() {
        round_trips(0x0102_0304_u32, 4);
        round_trips(Name::from("ab"), 6);
        let pg = PgId { pool: PoolId(3), seed: 9 };
        round_trips(pg, 17);
        round_trips(SpgId { pg, shard: ShardId(4) }, 6 + 17 + 1);
        round_trips(Version::new(Epoch(4), 7), 12);
        round_trips(BTreeMap::from([(1_u8, String::from("x"))]), 10);
        round_trips(Some(5_u16), 3);
        round_trips([1..4_u64, 8..9].into_iter().collect::<IntervalSet>(), 36);
        let keys = [("a".into(), Some("b".into())), ("c".into(), None)];
        round_trips(keys.into_iter().collect::<KeyRanges>(), 4 + 5 + 6 + 5 + 1);
    }

    #[test]
    fn a_lying_count_costs_nothing() {
        let huge = to_vec(&u32::MAX);
        assert_eq!(
            from_slice::<Vec<u64>>(&huge),
            Err(DecodeError::Short { needed: u32::MAX as usize, left: 0 })
        );
    }

    #[test]
    fn an_envelope_skips_what_a_newer_sender_added_and_refuses_what_it_cannot_read() {
        let mut out = Vec::new();
        versioned(&mut out, 3, 1, |out| {
            7_u32.encode(out);
            99_u64.encode(out);
        });
        let mut r = Reader::new(&out);
        assert_eq!(r.versioned("t", 2, |r, _| u32::decode(r)), Ok(7));
        assert!(r.is_empty());

        out[1] = 3;
        let refused = Reader::new(&out).versioned("t", 2, |r, _| u32::decode(r));
        assert_eq!(refused, Err(DecodeError::TooNew { what: "t", compat: 3, known: 2 }));
    }
}
