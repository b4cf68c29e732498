//! A linear erasure code: each shard is a sum of products of the data shards.

use crate::kernel::Kernel;
use crate::matrix::{Span, add_scaled, cauchy};

/// A code, and which shard is what. Shards are numbered by their place in the placement group's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The shard that holds each part of the data, in the order of the data.
    data: Vec<usize>,
    /// For each shard its factors of the parts of the data.
    rows: Vec<Vec<u8>>,
    /// Groups of shards in which each can be computed from the others, small ones first. Empty for codes
    /// where any k shards are as good as any others.
    groups: Vec<Vec<usize>>,
}

/// How shards that are missing are computed from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodePlan {
    /// The shards to read.
    pub sources: Vec<usize>,
    /// For each wanted shard the factors of the sources.
    pub factors: Vec<Vec<u8>>,
}

impl Code {
    /// `k` data shards and then `m` parity shards: any `k` give all others.
    pub fn reed_solomon(k: usize, m: usize) -> Code {
        let rows = (0..k).map(|j| data_row(k, j)).chain(cauchy(k, m)).collect();
        Code { data: (0..k).collect(), rows, groups: Vec::new() }
    }

    /// Locally repairable: `layers` name for each layer the shards that it reads and those that it computes.
    /// A layer may read what an earlier one computed. `data` are the shards that hold data, of `n`.
    ///
    /// None if a shard is neither data nor computed, or is computed twice.
    pub fn layered(n: usize, data: Vec<usize>, layers: &[(Vec<usize>, Vec<usize>)]) -> Option<Code> {
        let k = data.len();
        let mut rows: Vec<Option<Vec<u8>>> = vec![None; n];
        for (j, shard) in data.iter().enumerate() {
            *rows.get_mut(*shard)? = Some(data_row(k, j));
        }
        let mut groups = Vec::new();
        for (reads, computes) in layers {
            let matrix = cauchy(reads.len(), computes.len());
            for (factors, shard) in matrix.iter().zip(computes) {
                let mut row = vec![0; k];
                for (factor, from) in factors.iter().zip(reads) {
                    add_scaled(&mut row, *factor, rows.get(*from)?.as_ref()?);
                }
                let slot = rows.get_mut(*shard)?;
                if slot.replace(row).is_some() {
                    return None;
                }
            }
            let mut group: Vec<usize> = reads.iter().chain(computes).copied().collect();
            group.sort_unstable();
            groups.push(group);
        }
        groups.sort_by_key(Vec::len);
        Some(Code { data, rows: rows.into_iter().collect::<Option<_>>()?, groups })
    }

    /// The same code with its shards at other places: the first one at `places[0]`.
    pub fn placed(&self, places: &[usize]) -> Code {
        let mut rows = vec![Vec::new(); self.rows.len()];
        for (row, place) in self.rows.iter().zip(places) {
            rows[*place] = row.clone();
        }
        let moved = |shards: &Vec<usize>| shards.iter().map(|shard| places[*shard]).collect();
        Code { data: moved(&self.data), rows, groups: self.groups.iter().map(moved).collect() }
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.rows.len()
    }
    /// How many of them hold data.
    pub fn data_shards(&self) -> usize {
        self.data.len()
    }
    /// The shard with the `j`th part of the data.
    pub fn data_shard(&self, j: usize) -> usize {
        self.data[j]
    }
    /// Which part of the data a shard holds. None: it holds parity.
    pub fn part_of(&self, shard: usize) -> Option<usize> {
        self.data.iter().position(|data| *data == shard)
    }
    /// The parity shards.
    pub fn parities(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.shards()).filter(|shard| self.part_of(*shard).is_none())
    }
    /// By what a shard multiplies the `j`th part of the data.
    pub fn factor(&self, shard: usize, j: usize) -> u8 {
        self.rows[shard][j]
    }

    /// Computes a shard from all parts of the data. Each is as long as the shard.
    pub fn encode(&self, data: &[&[u8]], shard: usize, to: &mut [u8]) {
        sum_products(&self.rows[shard], data, to);
    }

    /// Changes a parity shard as the `j`th part of the data changed: `delta` is its old content XOR its new
    /// one.
    pub fn apply_delta(&self, shard: usize, j: usize, delta: &[u8], parity: &mut [u8]) {
        Kernel::best().add_products(&[(self.factor(shard, j), delta)], parity);
    }

    /// How to compute the wanted shards from available ones. Those that come first are preferred, and few are
    /// taken where a group of a locally repairable code has them. None if they do not suffice.
    pub fn plan(&self, wanted: &[usize], available: &[usize]) -> Option<DecodePlan> {
        let mut sources: Vec<usize> = Vec::new();
        // What a group repairs by itself needs no more shards than the group has.
        for shard in wanted {
            let local = self.groups.iter().filter(|group| group.contains(shard)).find_map(|group| {
                let members: Vec<usize> =
                    available.iter().copied().filter(|one| group.contains(one)).collect();
                self.express(&[*shard], &members)
            });
            for source in local.into_iter().flat_map(|plan| plan.sources) {
                if !sources.contains(&source) {
                    sources.push(source);
                }
            }
        }
        let rest: Vec<usize> = available.iter().copied().filter(|shard| !sources.contains(shard)).collect();
        sources.extend(rest);
        self.express(wanted, &sources)
    }

    /// The wanted shards by the first available ones that suffice.
    fn express(&self, wanted: &[usize], available: &[usize]) -> Option<DecodePlan> {
        let mut span = Span::new(available.len());
        let mut factors: Option<Vec<Vec<u8>>> = None;
        for shard in available {
            if span.give(&self.rows[*shard]) {
                factors = wanted.iter().map(|shard| span.express(&self.rows[*shard])).collect();
            }
            if factors.is_some() {
                break;
            }
        }
        let factors = factors?;
        let is_used = |at: &usize| factors.iter().any(|factors| factors[*at] != 0);
        let used: Vec<usize> = (0..available.len()).filter(is_used).collect();
        Some(DecodePlan {
            sources: used.iter().map(|at| available[*at]).collect(),
            factors: factors.iter().map(|of| used.iter().map(|at| of[*at]).collect()).collect(),
        })
    }
}

/// The row of a shard that holds the `j`th of `k` parts of the data.
fn data_row(k: usize, j: usize) -> Vec<u8> {
    (0..k).map(|at| u8::from(at == j)).collect()
}

/// The sum of the sources, each times its factor.
fn sum_products(factors: &[u8], sources: &[&[u8]], to: &mut [u8]) {
    to.fill(0);
    let terms: Vec<(u8, &[u8])> = factors.iter().copied().zip(sources.iter().copied()).collect();
    Kernel::best().add_products(&terms, to);
}

impl DecodePlan {
    /// Computes the `n`th wanted shard from the sources, each as long as the shard.
    pub fn decode(&self, n: usize, sources: &[&[u8]], to: &mut [u8]) {
        sum_products(&self.factors[n], sources, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use proptest::prelude::*;

    /// All subsets of 0..n with a size in that range.
    fn subsets(n: usize, sizes: std::ops::Range<usize>) -> impl Iterator<Item = Vec<usize>> {
        let of = move |bits: u32| (0..n).filter(|at| bits & (1 << at) != 0).collect::<Vec<_>>();
        (0..1u32 << n).map(of).filter(move |set| sizes.contains(&set.len()))
    }

    fn content(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    fn encoded(code: &Code, len: usize) -> Vec<Vec<u8>> {
        let data: Vec<Vec<u8>> = (0..code.data_shards()).map(|j| content(j as u64 + 7, len)).collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let shard = |shard| {
            let mut to = vec![0xee; len];
            code.encode(&data, shard, &mut to);
            to
        };
        (0..code.shards()).map(shard).collect()
    }

    /// Whether those shards can be lost, and if so, whether they are computed right.
    fn survives(code: &Code, shards: &[Vec<u8>], lost: &[usize]) -> bool {
        let left: Vec<usize> = (0..code.shards()).filter(|shard| !lost.contains(shard)).collect();
        let Some(plan) = code.plan(lost, &left) else { return false };
        let sources: Vec<&[u8]> = plan.sources.iter().map(|shard| shards[*shard].as_slice()).collect();
        assert!(sources.len() <= code.data_shards());
        for (n, shard) in lost.iter().enumerate() {
            let mut to = vec![0xee; shards[*shard].len()];
            plan.decode(n, &sources, &mut to);
            assert!(to == shards[*shard], "{lost:?}: shard {shard}");
        }
        true
    }

    #[test]
    fn any_m_shards_may_be_lost_and_no_more() {
        for (k, m) in [(2, 1), (2, 2), (4, 2), (3, 3), (5, 4), (8, 3)] {
            let code = Code::reed_solomon(k, m);
            let shards = encoded(&code, 100);
            for lost in subsets(k + m, 1..m + 2) {
                assert_eq!(survives(&code, &shards, &lost), lost.len() <= m, "{k}+{m} without {lost:?}");
            }
        }
    }

    /// k=4 m=2 l=3 of the plugin lrc.
    fn local() -> Code {
        let layers = [(vec![0, 1, 4, 5], vec![2, 6]), (vec![0, 1, 2], vec![3]), (vec![4, 5, 6], vec![7])];
        Code::layered(8, vec![0, 1, 4, 5], &layers).unwrap()
    }

    #[test]
    fn one_lost_shard_is_repaired_within_its_group() {
        let code = local();
        let shards = encoded(&code, 64);
        for lost in 0..8 {
            let left: Vec<usize> = (0..8).rev().filter(|shard| *shard != lost).collect();
            let mut sources = code.plan(&[lost], &left).unwrap().sources;
            sources.sort_unstable();
            let group: Vec<usize> = (lost / 4 * 4..lost / 4 * 4 + 4).filter(|shard| *shard != lost).collect();
            assert_eq!(sources, group);
        }
        // Any two, one of them in each group or both in one.
        for lost in subsets(8, 1..3) {
            assert!(survives(&code, &shards, &lost), "{lost:?}");
        }
        assert!(survives(&code, &shards, &[0, 3, 7]) && !survives(&code, &shards, &[0, 1, 2, 4, 5]));
    }

    #[test]
    fn code_with_a_shard_that_nothing_computes_or_two_layers_do_is_refused() {
        assert_eq!(Code::layered(4, vec![0, 1], &[(vec![0, 1], vec![2])]), None);
        assert_eq!(Code::layered(3, vec![0, 1], &[(vec![0, 1], vec![2]), (vec![0], vec![2])]), None);
        assert_eq!(Code::layered(3, vec![0, 1], &[(vec![0, 1], vec![5])]), None);
        assert_eq!(Code::layered(3, vec![0, 1], &[(vec![0, 9], vec![2])]), None);
    }

    #[test]
    fn preferred_shards_are_read() {
        let code = Code::reed_solomon(4, 2);
        assert_eq!(code.plan(&[0], &[5, 4, 3, 2, 1]).unwrap().sources, [5, 4, 3, 2]);
        assert_eq!(code.plan(&[0, 3], &[5, 0, 4, 2, 1]).unwrap().sources, [5, 0, 4, 2]);
    }

    proptest! {
        /// All kernels that this processor can run give the bytes of the scalar one.
        #[test]
        fn kernels_agree(
            len in 0usize..10_000,
            factors in prop::collection::vec(any::<u8>(), 1..20),
            seed in any::<u64>(),
        ) {
            let sources: Vec<Vec<u8>> =
                (0..factors.len()).map(|n| content(seed.wrapping_add(n as u64), len + n)).collect();
            let terms: Vec<(u8, &[u8])> =
                factors.iter().copied().zip(sources.iter().map(Vec::as_slice)).collect();
            let kernels = Kernel::available();
            let run = |kernel: &Kernel| {
                let mut target = content(seed ^ 99, len);
                kernel.add_products(&terms, &mut target);
                target
            };
            let right = run(kernels.last().unwrap());
            for kernel in &kernels {
                prop_assert!(run(kernel) == right, "{}", kernel.name());
            }
        }

        /// Changing one part of the data and its parities is the same as encoding again.
        #[test]
        fn delta_changes_parity_as_encoding_again_does(
            k in 1usize..9, m in 1usize..5, j in 0usize..9, len in 1usize..200, seed in any::<u64>(),
        ) {
            let (code, j) = (Code::reed_solomon(k, m), j % k);
            let mut data: Vec<Vec<u8>> = (0..k).map(|n| content(seed ^ n as u64, len)).collect();
            let encode = |data: &[Vec<u8>], shard| {
                let mut to = vec![0; len];
                code.encode(&data.iter().map(Vec::as_slice).collect::<Vec<_>>(), shard, &mut to);
                to
            };
            let mut parities: Vec<Vec<u8>> = (k..k + m).map(|shard| encode(&data, shard)).collect();
            let new = content(seed ^ 77, len);
            let delta: Vec<u8> = data[j].iter().zip(&new).map(|(old, new)| old ^ new).collect();
            data[j] = new;
            for (n, parity) in parities.iter_mut().enumerate() {
                code.apply_delta(k + n, j, &delta, parity);
                prop_assert_eq!(&*parity, &encode(&data, k + n));
            }
        }
    }
}
