//! The Bloom filter of a sorted run: most look-ups are for objects that are not in most runs, and new
//! objects are in none.

/// Bits for each object, and how many of them are examined: one in a hundred is taken for one that may be
/// there.
const BITS: u64 = 10;
const PROBES: u64 = 7;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BloomFilter(pub Vec<u8>);

/// Of an id as it is encoded. On the device, so it never changes.
pub(crate) fn hash(id: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = K ^ id.len() as u64;
    for part in id.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(K);
        hash ^= hash >> 29;
    }
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^ (hash >> 32)
}

impl BloomFilter {
    pub fn for_entries(entries: u64) -> BloomFilter {
        BloomFilter(vec![0; (entries * BITS).div_ceil(8).max(8) as usize])
    }
    pub fn add(&mut self, hash: u64) {
        for bit in self.bits(hash) {
            self.0[bit / 8] |= 1 << (bit % 8);
        }
    }
    pub fn may_have(&self, hash: u64) -> bool {
        self.bits(hash).all(|bit| self.0[bit / 8] & (1 << (bit % 8)) != 0)
    }
    fn bits(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let bits = self.0.len() as u64 * 8;
        let step = (hash >> 32) | 1;
        (0..PROBES).map(move |probe| (hash.wrapping_add(probe.wrapping_mul(step)) % bits) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_may_be_there_and_little_else() {
        let mut filter = BloomFilter::for_entries(10_000);
        let id = |n: u32| format!("object{n}").into_bytes();
        (0..10_000).for_each(|n| filter.add(hash(&id(n))));
        assert!((0..10_000).all(|n| filter.may_have(hash(&id(n)))));
        let wrong = (10_000..110_000).filter(|n| filter.may_have(hash(&id(*n)))).count();
        assert!(wrong < 2000, "{wrong} of 100000");
    }
}
