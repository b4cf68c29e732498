//! How placement groups divide and unite when `pg_num` changes.
//!
//! An object belongs to the group `stable_mod(hash, pg_num)`. That function is such that growing
//! `pg_num` only ever moves objects from one group to new ones, its children.

use nacre_base::PgId;

/// The smallest all-ones mask that covers `0..pg_num`.
pub fn pg_mask(pg_num: u32) -> u32 {
    match pg_num.saturating_sub(1).leading_zeros() {
        32 => 0,
        zeros => u32::MAX >> zeros,
    }
}

/// `x` modulo `n`, where few `x` move when `n` grows. Ceph: `ceph_stable_mod`.
pub fn stable_mod(x: u32, n: u32) -> u32 {
    let mask = pg_mask(n);
    if x & mask < n { x & mask } else { x & (mask >> 1) }
}

/// The group that `pg` is a part of when there are `pg_num`. Ceph: `pg_t::get_ancestor`.
pub fn ancestor(pg: PgId, pg_num: u32) -> PgId {
    PgId { seed: stable_mod(pg.seed, pg_num), ..pg }
}

/// The new groups that objects of `pg` move to when `old` groups become `new`; empty unless they
/// become more. Ceph: `pg_t::is_split`.
pub fn split_children(pg: PgId, old: u32, new: u32) -> impl Iterator<Item = PgId> {
    // A child's seed agrees with its parent's below the highest bit that `old` groups tell apart.
    let step = 1_u64 << (31 - old.max(1).leading_zeros());
    let low = u64::from(pg.seed) & (step - 1);
    let end = if pg.seed < old { u64::from(new) } else { 0 };
    (low..end)
        .step_by(step as usize)
        .map(|seed| seed as u32)
        .filter(move |&seed| seed >= old && stable_mod(seed, old) == pg.seed)
        .map(move |seed| PgId { seed, ..pg })
}

/// Whether `pg` gives objects away when `old` groups become `new`.
pub fn is_split(pg: PgId, old: u32, new: u32) -> bool {
    split_children(pg, old, new).next().is_some()
}

/// Whether `pg` ceases to be when `old` groups become `new`.
pub fn is_merge_source(pg: PgId, old: u32, new: u32) -> bool {
    (new..old).contains(&pg.seed)
}

/// Whether `pg` takes other groups in when `old` groups become `new`.
pub fn is_merge_target(pg: PgId, old: u32, new: u32) -> bool {
    pg.seed < new && is_split(pg, new, old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::PoolId;

    #[test]
    fn children_are_exactly_the_new_groups_whose_objects_were_here() {
        for old in 1..70 {
            for new in [old, old + 1, old + 5, 2 * old, 2 * old + 3, 131, 512] {
                for seed in 0..old + 2 {
                    let pg = PgId { pool: PoolId(1), seed };
                    let children: Vec<u32> = split_children(pg, old, new).map(|c| c.seed).collect();
                    let expected: Vec<u32> =
                        (old..new).filter(|&s| seed < old && stable_mod(s, old) == seed).collect();
                    assert_eq!(children, expected, "{seed} of {old} -> {new}");
                    assert_eq!(is_merge_target(pg, new, old), !expected.is_empty());
                    assert!(expected.iter().all(|&s| ancestor(PgId { seed: s, ..pg }, old) == pg));
                }
            }
        }
    }

    #[test]
    fn a_split_moves_objects_only_to_children() {
        for hash in (0..5000_u32).map(|i| i.wrapping_mul(0x9e37_79b9)) {
            for (old, new) in [(1, 7), (8, 12), (12, 16), (100, 300)] {
                let (before, after) = (stable_mod(hash, old), stable_mod(hash, new));
                let pg = PgId { pool: PoolId(1), seed: before };
                assert!(before == after || split_children(pg, old, new).any(|c| c.seed == after));
            }
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        assert_eq!(pg_mask(u32::MAX), u32::MAX);
        assert_eq!((pg_mask(0), pg_mask(1), pg_mask(2), pg_mask(5)), (0, 0, 1, 7));
        assert_eq!(stable_mod(7, 0), 0);
        let pg = PgId { pool: PoolId(1), seed: 0 };
        assert_eq!(split_children(pg, u32::MAX - 1, u32::MAX).count(), 0);
        assert_eq!(split_children(PgId { seed: 0x7fff_fffe, ..pg }, u32::MAX - 1, u32::MAX).count(), 1);
    }
}
