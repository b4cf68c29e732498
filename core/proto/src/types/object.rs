//! How an object is named, hashed and ordered.

use nacre_base::{Name, PoolId, ShardId, SnapId};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Where an object hashes to, before CRUSH. Ceph: `object_locator_t`, v6, readable since v3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectLocator {
    pub pool: PoolId,
    pub key: Name,
    pub namespace: Name,
    pub hash: Option<i64>,
}

impl ObjectLocator {
    pub fn new(pool: PoolId) -> ObjectLocator {
        ObjectLocator { pool, key: Name::default(), namespace: Name::default(), hash: None }
    }
}

impl Encode for ObjectLocator {
    fn encode(&self, out: &mut Vec<u8>) {
        // A reader that does not know the hash would look in another place.
        let compat = if self.hash.is_some() { 6 } else { 3 };
        versioned(out, 6, compat, |out| {
            self.pool.encode(out);
            (-1_i32).encode(out); // was "preferred osd"
            self.key.encode(out);
            self.namespace.encode(out);
            self.hash.unwrap_or(-1).encode(out);
        });
    }
}
impl Decode for ObjectLocator {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("object_locator_t", 6, |r, v| {
            let pool = PoolId::decode(r)?;
            let _preferred = i32::decode(r)?;
            Ok(Self {
                pool,
                key: Name::decode(r)?,
                namespace: if v >= 5 { Name::decode(r)? } else { Name::default() },
                hash: if v >= 6 { Some(i64::decode(r)?).filter(|&h| h != -1) } else { None },
            })
        })
    }
}

/// The full identity of a stored object. Ceph: `hobject_t` v4.
///
/// The order is Ceph's: pool, then the hash with its bits reversed, namespace, key, name, snapshot.
/// In that order a placement group is one contiguous range whatever `pg_num` is, so that splitting
/// one moves nothing.
#[derive(Clone, Debug)]
pub struct ObjectId {
    pub pool: PoolId,
    pub hash: u32,
    pub namespace: Name,
    /// The locator key: empty unless it was given and differs from the name.
    pub key: Name,
    pub name: Name,
    pub snap: SnapId,
    /// After everything else: the end of a listing.
    pub max: bool,
}

/// By what tells objects apart nearly always. Copies for undo of one object differ in their keys only.
impl Hash for ObjectId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64((self.pool.0 as u64).rotate_left(32) ^ u64::from(self.hash));
        state.write_u64(self.snap.0);
        state.write(self.name.as_bytes());
        if !self.key.is_empty() {
            state.write(self.key.as_bytes());
        }
    }
}

/// What tells objects apart nearly always is compared first.
impl PartialEq for ObjectId {
    fn eq(&self, other: &ObjectId) -> bool {
        (self.hash, self.snap, self.pool) == (other.hash, other.snap, other.pool)
            && self.name == other.name
            && self.namespace == other.namespace
            && self.key == other.key
            && self.max == other.max
    }
}
impl Eq for ObjectId {}

impl ObjectId {
    /// The head of the object that a client names; computes its hash.
    pub fn head(pool: PoolId, namespace: Name, key: Name, name: Name) -> ObjectId {
        let key = if key == name { Name::default() } else { key };
        let hash = object_hash(&namespace, if key.is_empty() { &name } else { &key });
        ObjectId { pool, hash, namespace, key, name, snap: SnapId::HEAD, max: false }
    }
    /// The object itself, of which this may be a clone.
    pub fn to_head(&self) -> ObjectId {
        ObjectId { snap: SnapId::HEAD, ..self.clone() }
    }
    /// The first that can come after it; not of one at the very end.
    pub fn following(&self) -> ObjectId {
        ObjectId { snap: SnapId(self.snap.0 + 1), ..self.clone() }
    }
    /// Whether both are clones of one object, or it.
    pub fn is_of_same_head(&self, other: &ObjectId) -> bool {
        let of = |object: &ObjectId| (object.pool, object.hash, object.max);
        of(self) == of(other)
            && self.name == other.name
            && self.namespace == other.namespace
            && self.key == other.key
    }
    /// How many bytes `encode` takes.
    pub fn encoded_len(&self) -> usize {
        // The envelope; lengths of three names; snapshot, hash, whether it is the end, pool.
        6 + 3 * 4 + self.key.len() + self.name.len() + self.namespace.len() + 8 + 4 + 1 + 8
    }
    /// Before every object. Ceph: `hobject_t()`.
    pub fn min() -> ObjectId {
        ObjectId {
            pool: PoolId(i64::MIN),
            hash: 0,
            namespace: Name::default(),
            key: Name::default(),
            name: Name::default(),
            snap: SnapId(0),
            max: false,
        }
    }
    /// After every object.
    pub fn max() -> ObjectId {
        ObjectId { max: true, ..ObjectId::min() }
    }
    /// The order of objects of which a store holds single shards: the shard comes behind the pool, so that
    /// what a placement group has of one shard is a range, too.
    pub fn cmp_with_shard(&self, shard: ShardId, other: &ObjectId, other_shard: ShardId) -> Ordering {
        if shard == other_shard || self.max || other.max || self.pool != other.pool {
            return self.cmp(other).then_with(|| shard.cmp(&other_shard));
        }
        shard.cmp(&other_shard)
    }
    /// What the object is placed and sorted by: its locator key if it has one, else its name.
    pub fn effective_key(&self) -> &Name {
        if self.key.is_empty() { &self.name } else { &self.key }
    }
}

impl Ord for ObjectId {
    fn cmp(&self, other: &ObjectId) -> Ordering {
        // Every look-up of an object comes here a dozen times: what decides mostly is compared first, and
        // nothing twice.
        if self.max || other.max {
            return self.max.cmp(&other.max);
        }
        let keys = || match self.key.is_empty() && other.key.is_empty() {
            true => Ordering::Equal, // the names are the keys
            false => self.effective_key().cmp(other.effective_key()),
        };
        self.pool
            .cmp(&other.pool)
            .then_with(|| cmp_reversed(self.hash, other.hash))
            .then_with(|| self.namespace.cmp(&other.namespace))
            .then_with(keys)
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.snap.cmp(&other.snap))
    }
}
/// The order of two numbers with their bits reversed: the lowest bit that differs decides.
fn cmp_reversed(a: u32, b: u32) -> Ordering {
    let differs = a ^ b;
    match a & (differs & differs.wrapping_neg()) {
        _ if differs == 0 => Ordering::Equal,
        0 => Ordering::Less,
        _ => Ordering::Greater,
    }
}
impl PartialOrd for ObjectId {
    fn partial_cmp(&self, other: &ObjectId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As Ceph's logs print it: `pool:reversed hash:namespace:key:name:snap`.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max {
            return f.write_str("MAX");
        }
        let hash = self.hash.reverse_bits();
        write!(f, "{}:{hash:08x}:{}:{}:{}:{}", self.pool, self.namespace, self.key, self.name, self.snap)
    }
}

impl Encode for ObjectId {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 4, 3, |out| {
            self.key.encode(out);
            self.name.encode(out);
            self.snap.encode(out);
            self.hash.encode(out);
            self.max.encode(out);
            self.namespace.encode(out);
            self.pool.encode(out);
        });
    }
}
impl Decode for ObjectId {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("hobject_t", 4, |r, _| {
            let key = Name::decode(r)?;
            let name = Name::decode(r)?;
            let snap = SnapId::decode(r)?;
            let hash = u32::decode(r)?;
            let max = bool::decode(r)?;
            let namespace = Name::decode(r)?;
            let pool = PoolId::decode(r)?;
            Ok(ObjectId { pool, hash, namespace, key, name, snap, max })
        })
    }
}

/// The hash that places an object. Ceph: `ceph_str_hash_rjenkins` over the key or name, with the
/// namespace and a unit separator in front where there is one.
pub fn object_hash(namespace: &Name, key: &Name) -> u32 {
    if namespace.is_empty() {
        return rjenkins(key.as_bytes());
    }
    let mut text = Vec::with_capacity(namespace.len() + 1 + key.len());
    text.extend_from_slice(namespace.as_bytes());
    text.push(0x1f);
    text.extend_from_slice(key.as_bytes());
    rjenkins(&text)
}

/// Bob Jenkins' hash of 1996 ("lookup2").
fn rjenkins(bytes: &[u8]) -> u32 {
    let word = |b: &[u8]| b.iter().rev().fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
    let (mut a, mut b, mut c) = (0x9e37_79b9_u32, 0x9e37_79b9_u32, 0_u32);
    let mut chunks = bytes.chunks_exact(12);
    for chunk in &mut chunks {
        a = a.wrapping_add(word(&chunk[..4]));
        b = b.wrapping_add(word(&chunk[4..8]));
        c = c.wrapping_add(word(&chunk[8..]));
        (a, b, c) = jenkins_mix(a, b, c);
    }
    let tail = chunks.remainder();
    let part = |from: usize, to: usize| word(&tail[from.min(tail.len())..to.min(tail.len())]);
    a = a.wrapping_add(part(0, 4));
    b = b.wrapping_add(part(4, 8));
    // The lowest byte of c is for the length.
    c = c.wrapping_add(part(8, 12) << 8).wrapping_add(bytes.len() as u32);
    jenkins_mix(a, b, c).2
}

fn jenkins_mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    let step = |x: u32, y: u32, z: u32| x.wrapping_sub(y).wrapping_sub(z);
    a = step(a, b, c) ^ (c >> 13);
    b = step(b, c, a) ^ (a << 8);
    c = step(c, a, b) ^ (b >> 13);
    a = step(a, b, c) ^ (c >> 12);
    b = step(b, c, a) ^ (a << 16);
    c = step(c, a, b) ^ (b >> 5);
    a = step(a, b, c) ^ (c >> 3);
    b = step(b, c, a) ^ (a << 10);
    c = step(c, a, b) ^ (b >> 15);
    (a, b, c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::{from_slice, to_vec};
    use std::collections::BTreeSet;
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    #[test]
    fn ids_that_differ_in_their_keys_only_have_different_hashes_in_tables() {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let object = ObjectId::head(PoolId(1), "".into(), "".into(), "one".into());
        let keyed = |n: u32| ObjectId { key: Name::new(n.to_be_bytes().to_vec()), ..object.clone() };
        let hashes: BTreeSet<u64> = (0..1000).map(|n| hasher.hash_one(keyed(n))).collect();
        assert_eq!(hashes.len(), 1000);
    }

    #[test]
    fn names_hash_as_real_clients_hash_them() {
        let hash = |namespace: &str, key: &str| object_hash(&namespace.into(), &key.into());
        assert_eq!(hash("", "obj1"), 0x6cf8_deff);
        assert_eq!(hash("ns1", "b"), 0xc693_b45f);
        assert_eq!(hash("", "loc"), 0xcc9e_4307);
        assert_eq!(hash("", "rbd_header.106c49d41b78"), 0x9eeb_9e68);
    }

    #[test]
    fn an_object_id_reads_back() {
        let id = ObjectId::head(PoolId(3), "ns".into(), "k".into(), "name".into());
        assert_eq!(from_slice::<ObjectId>(&to_vec(&id)), Ok(id));
        assert!(ObjectId::min() < ObjectId::max());
    }

    #[test]
    fn objects_lie_in_the_order_of_pool_reversed_hash_namespace_key_and_name() {
        let id = |pool, hash, namespace: &str, key: &str, name: &str| ObjectId {
            hash,
            ..ObjectId::head(PoolId(pool), namespace.into(), key.into(), name.into())
        };
        let ordered = [
            ObjectId::min(),
            id(1, 9, "", "", "z"),
            id(2, 2, "", "", "z"), // reversed, 2 is less than 1
            id(2, 1, "", "", "b"),
            id(2, 1, "", "k", "a"), // its key is what counts
            id(2, 1, "", "k", "b"),
            id(2, 1, "", "", "l"),
            id(2, 1, "n", "", "a"),
            ObjectId::max(),
        ];
        for (at, one) in ordered.iter().enumerate() {
            for (other_at, other) in ordered.iter().enumerate() {
                assert_eq!(one.cmp(other), at.cmp(&other_at), "{one} and {other}");
            }
        }
    }

    #[test]
    fn hashes_are_compared_as_if_their_bits_were_reversed() {
        let numbers = [0, 1, 2, 3, 0x8000_0000, 0x8000_0001, 0x4000_0000, 0x6cf8_deff, 0x6cf8_defe, u32::MAX];
        for (a, b) in numbers.into_iter().flat_map(|a| numbers.map(|b| (a, b))) {
            assert_eq!(cmp_reversed(a, b), a.reverse_bits().cmp(&b.reverse_bits()), "{a:#x} and {b:#x}");
        }
    }

    #[test]
    fn a_key_equal_to_the_name_is_no_key() {
        let plain = ObjectId::head(PoolId(3), Name::default(), Name::default(), "a".into());
        assert_eq!(ObjectId::head(PoolId(3), Name::default(), "a".into(), "a".into()), plain);
    }
}
