//! The mapper: which items a rule gives for an input.
//!
//! Read `CrushMap::do_rule`, then `Mapper::choose_firstn` (replicas: a short result when it finds too
//! few) and `Mapper::choose_indep` (erasure shards: each position on its own, holes where it finds
//! none), then `Mapper::draw`. The order of every draw and retry is part of the protocol: clients
//! run the same search.

use crate::hash::{hash32_2, hash32_3, hash32_4};
use crate::ln::ln;
use crate::map::{Bucket, ChooseArg, ChooseArgs, CrushMap, ITEM_NONE, Items, Op, RuleStep, slot};
use std::collections::BTreeMap;

/// A position not decided yet; never in a result. Ceph: `CRUSH_ITEM_UNDEF`.
const ITEM_UNDEF: i32 = ITEM_NONE - 1;

/// Hashes per `do_rule`. Far above what a map in use needs (10,000 OSDs in one bucket, drawn 6000
/// times), and an end for a map whose tries are in the billions or whose types are never met.
const WORK_MAX: u64 = 1 << 26;

impl CrushMap {
    /// At most `result_max` items for input `x`, in order. `weights` has the 16.16 reweight of each
    /// OSD; an OSD beyond its end is out. `choose_args` names the set to use, usually the pool's id;
    /// without that set the default one (-1) applies, without that none.
    ///
    /// Indep rules leave `ITEM_NONE` where nothing was found. A rule that does not exist gives nothing.
    pub fn do_rule(
        &self,
        rule: u32,
        x: u32,
        result_max: usize,
        weights: &[u32],
        choose_args: Option<i64>,
    ) -> Vec<i32> {
        self.do_rule_within(WORK_MAX, rule, x, result_max, weights, choose_args)
    }

    fn can_take(&self, item: i32) -> bool {
        (0..self.max_devices).contains(&item) || self.bucket(item).is_some()
    }

    pub(crate) fn do_rule_within(
        &self,
        work: u64,
        rule: u32,
        x: u32,
        result_max: usize,
        weights: &[u32],
        choose_args: Option<i64>,
    ) -> Vec<i32> {
        let Some(rule) = self.rule(rule) else { return Vec::new() };
        let args = choose_args.and_then(|set| self.choose_args.get(&set).or(self.choose_args.get(&-1)));
        let tunables = &self.tunables;
        let mut mapper = Mapper {
            map: self,
            x,
            weights,
            args,
            // One more than configured: it once counted retries, and results must not change.
            tries: tunables.choose_total_tries.saturating_add(1),
            leaf_tries: 0,
            local_tries: tunables.choose_local_tries,
            local_fallback_tries: tunables.choose_local_fallback_tries,
            vary_r: u32::from(tunables.chooseleaf_vary_r),
            stable: tunables.chooseleaf_stable != 0,
            permutations: BTreeMap::new(),
            work,
        };
        let mut taken = Vec::new();
        let mut result = Vec::new();
        for step in &rule.steps {
            let positive = u32::try_from(step.arg1).ok();
            match (Op::from_code(step.op), positive) {
                (Some(Op::Take), _) if self.can_take(step.arg1) => taken = vec![step.arg1],
                (Some(Op::SetChooseTries), Some(n @ 1..)) => mapper.tries = n,
                (Some(Op::SetChooseLeafTries), Some(n @ 1..)) => mapper.leaf_tries = n,
                (Some(Op::SetChooseLocalTries), Some(n)) => mapper.local_tries = n,
                (Some(Op::SetChooseLocalFallbackTries), Some(n)) => mapper.local_fallback_tries = n,
                (Some(Op::SetChooseLeafVaryR), Some(n)) => mapper.vary_r = n,
                (Some(Op::SetChooseLeafStable), Some(n)) => mapper.stable = n != 0,
                (Some(Op::ChooseFirstN), _) => taken = mapper.choose(&taken, step, true, false, result_max),
                (Some(Op::ChooseLeafFirstN), _) => {
                    taken = mapper.choose(&taken, step, true, true, result_max)
                }
                (Some(Op::ChooseIndep), _) => taken = mapper.choose(&taken, step, false, false, result_max),
                (Some(Op::ChooseLeafIndep), _) => {
                    taken = mapper.choose(&taken, step, false, true, result_max)
                }
                (Some(Op::Emit), _) => {
                    let left = result_max - result.len();
                    result.extend(taken.drain(..).take(left));
                }
                _ => {}
            }
        }
        result
    }
}

struct Mapper<'a> {
    map: &'a CrushMap,
    x: u32,
    weights: &'a [u32],
    args: Option<&'a ChooseArgs>,
    tries: u32,
    /// Zero: not set by the rule.
    leaf_tries: u32,
    local_tries: u32,
    local_fallback_tries: u32,
    vary_r: u32,
    stable: bool,
    /// By bucket id; each is computed as far as it was needed.
    permutations: BTreeMap<i32, Permutation>,
    /// Hashes left.
    work: u64,
}

/// What `choose_firstn` looks for, and for how long.
#[derive(Clone, Copy)]
struct FirstN {
    numrep: i32,
    kind: i32,
    /// How many may be found, whatever `numrep` says.
    count: usize,
    tries: u32,
    leaf_tries: u32,
    parent_r: u32,
}

/// What `choose_indep` looks for, and for how long.
#[derive(Clone, Copy)]
struct Indep {
    /// Positions to fill.
    count: usize,
    numrep: u32,
    kind: i32,
    tries: u32,
    leaf_tries: u32,
    parent_r: u32,
}

/// Where a draw led.
enum Found<'a> {
    /// A child that is not of the wanted type yet.
    Deeper(&'a Bucket),
    /// An item of the wanted type; a bucket, or none for a device.
    Item(i32, Option<&'a Bucket>),
    /// A device that cannot be, or one where a bucket was wanted.
    Dead,
}

impl<'a> Mapper<'a> {
    fn choose(
        &mut self,
        from: &[i32],
        step: &RuleStep,
        firstn: bool,
        to_leaf: bool,
        result_max: usize,
    ) -> Vec<i32> {
        let mut out = vec![ITEM_NONE; result_max];
        let mut leaves = vec![ITEM_NONE; result_max];
        let mut len = 0;
        let mut numrep = i64::from(step.arg1);
        if numrep <= 0 {
            numrep = numrep.saturating_add(i64::try_from(result_max).unwrap_or(i64::MAX));
        }
        let numrep = i32::try_from(numrep).unwrap_or(i32::MAX);
        for &item in from {
            // An item may be a device, or NONE from an earlier indep step: nothing is below those.
            let Some(bucket) = self.map.bucket(item).filter(|_| numrep > 0) else { continue };
            let (out, leaves) = (&mut out[len..], &mut leaves[len..]);
            let leaves = to_leaf.then_some(leaves);
            if firstn {
                let leaf_tries = match self.leaf_tries {
                    0 if self.map.tunables.chooseleaf_descend_once != 0 => 1,
                    0 => self.tries,
                    n => n,
                };
                let count = out.len();
                let want =
                    FirstN { numrep, kind: step.arg2, count, tries: self.tries, leaf_tries, parent_r: 0 };
                len += self.choose_firstn(bucket, want, out, 0, leaves);
            } else {
                let count = out.len().min(numrep as usize);
                let want = Indep {
                    count,
                    numrep: numrep as u32,
                    kind: step.arg2,
                    tries: self.tries,
                    leaf_tries: self.leaf_tries.max(1),
                    parent_r: 0,
                };
                self.choose_indep(bucket, want, out, 0, leaves);
                len += count;
            }
        }
        let mut chosen = if to_leaf { leaves } else { out };
        chosen.truncate(len);
        chosen
    }

    /// Fills `out[pos..]` with distinct items and says where it stopped.
    fn choose_firstn(
        &mut self,
        top: &'a Bucket,
        want: FirstN,
        out: &mut [i32],
        mut pos: usize,
        mut leaves: Option<&mut [i32]>,
    ) -> usize {
        let mut count = want.count;
        // Stable: a leaf search starts from 0 at every position, so that one that moves to another
        // position keeps its leaf.
        let mut rep = if self.stable { 0 } else { pos as u32 };
        while (rep as i32) < want.numrep && count > 0 && self.work > 0 {
            if let Some(item) = self.one_of_firstn(top, want, rep, count, out, pos, leaves.as_deref_mut()) {
                out[pos] = item;
                pos += 1;
                count -= 1;
            }
            rep += 1;
        }
        pos
    }

    /// One replica: descends until an item is neither taken nor out, or the tries are used up.
    fn one_of_firstn(
        &mut self,
        top: &'a Bucket,
        want: FirstN,
        rep: u32,
        count: usize,
        out: &[i32],
        pos: usize,
        mut leaves: Option<&mut [i32]>,
    ) -> Option<i32> {
        let mut failed = 0_u32; // since the first descent
        let mut bucket = top;
        let mut failed_here = 0_u32; // since the last descent from the top
        while self.spend(1) {
            let r = rep.wrapping_add(want.parent_r).wrapping_add(failed);
            let size = bucket.items.len() as u32;
            let mut collides = false;
            if size > 0 {
                let fallback = self.local_fallback_tries;
                let search_all = fallback > 0 && failed_here >= size >> 1 && failed_here > fallback;
                let drawn = if search_all { self.permute(bucket, r) } else { self.draw(bucket, r, pos) };
                match self.look(drawn, want.kind) {
                    Found::Dead => return None,
                    Found::Deeper(child) => {
                        bucket = child;
                        continue;
                    }
                    Found::Item(item, below) => {
                        collides = out[..pos].contains(&item);
                        if !collides
                            && self.leaf_of_firstn(item, below, want, r, count, pos, leaves.as_deref_mut())
                            && !(want.kind == 0 && self.is_out(item))
                        {
                            return Some(item);
                        }
                    }
                }
            }
            failed = failed.saturating_add(1);
            failed_here = failed_here.saturating_add(1);
            let again_here = (collides && failed_here <= self.local_tries)
                || (self.local_fallback_tries > 0
                    && failed_here <= size.saturating_add(self.local_fallback_tries));
            if !again_here {
                if failed >= want.tries {
                    return None;
                }
                bucket = top;
                failed_here = 0;
            }
        }
        None
    }

    /// Finds the device below a chosen item, where the rule wants one. False: there is none.
    fn leaf_of_firstn(
        &mut self,
        item: i32,
        below: Option<&'a Bucket>,
        want: FirstN,
        r: u32,
        count: usize,
        pos: usize,
        leaves: Option<&mut [i32]>,
    ) -> bool {
        let Some(leaves) = leaves else { return true };
        let Some(bucket) = below else {
            leaves[pos] = item;
            return true;
        };
        let leaf = FirstN {
            numrep: if self.stable { 1 } else { pos as i32 + 1 },
            kind: 0,
            count,
            tries: want.leaf_tries,
            leaf_tries: 0,
            parent_r: if self.vary_r > 0 { r.wrapping_shr(self.vary_r - 1) } else { 0 },
        };
        self.choose_firstn(bucket, leaf, leaves, pos, None) > pos
    }

    /// Fills `out[pos..pos + count]`, with NONE where nothing was found.
    fn choose_indep(
        &mut self,
        top: &'a Bucket,
        want: Indep,
        out: &mut [i32],
        pos: usize,
        mut leaves: Option<&mut [i32]>,
    ) {
        let all = pos..pos + want.count;
        out[all.clone()].fill(ITEM_UNDEF);
        if let Some(leaves) = &mut leaves {
            leaves[all.clone()].fill(ITEM_UNDEF);
        }
        let mut failed = 0;
        // All positions get their first try before any gets its second: breadth first.
        while failed < want.tries && self.spend(1) && out[all.clone()].contains(&ITEM_UNDEF) {
            for rep in all.clone() {
                if out[rep] == ITEM_UNDEF {
                    self.one_of_indep(top, want, failed, rep, out, pos, leaves.as_deref_mut());
                }
            }
            failed += 1;
        }
        for rep in all {
            if out[rep] == ITEM_UNDEF {
                out[rep] = ITEM_NONE;
            }
            // A device that was out stays here when its position found no other, as in Ceph.
            if let Some(leaf) = leaves.as_deref_mut().map(|leaves| &mut leaves[rep])
                && *leaf == ITEM_UNDEF
            {
                *leaf = ITEM_NONE;
            }
        }
    }

    /// One descent for one position; leaves it UNDEF when another try may help.
    fn one_of_indep(
        &mut self,
        top: &'a Bucket,
        want: Indep,
        failed: u32,
        rep: usize,
        out: &mut [i32],
        pos: usize,
        mut leaves: Option<&mut [i32]>,
    ) {
        let mut bucket = top;
        while self.spend(1) && !bucket.items.is_empty() {
            // A uniform bucket repeats after its size: skew the step when they would align.
            let aligned = matches!(bucket.alg, Items::Uniform { .. })
                && (bucket.items.len() as u32).is_multiple_of(want.numrep);
            let stride = if aligned { want.numrep.wrapping_add(1) } else { want.numrep };
            let r = (rep as u32).wrapping_add(want.parent_r).wrapping_add(stride.wrapping_mul(failed));
            let drawn = self.draw(bucket, r, pos);
            let (item, below) = match self.look(drawn, want.kind) {
                Found::Deeper(child) => {
                    bucket = child;
                    continue;
                }
                Found::Dead => {
                    out[rep] = ITEM_NONE;
                    if let Some(leaves) = leaves {
                        leaves[rep] = ITEM_NONE;
                    }
                    return;
                }
                Found::Item(item, below) => (item, below),
            };
            if out[pos..pos + want.count].contains(&item) {
                return;
            }
            if let Some(leaves) = leaves.as_deref_mut() {
                let Some(bucket) = below else {
                    leaves[rep] = item;
                    if !(want.kind == 0 && self.is_out(item)) {
                        out[rep] = item;
                    }
                    return;
                };
                let leaf =
                    Indep { count: 1, kind: 0, tries: want.leaf_tries, leaf_tries: 0, parent_r: r, ..want };
                self.choose_indep(bucket, leaf, leaves, rep, None);
                if leaves[rep] == ITEM_NONE {
                    return;
                }
            }
            if !(want.kind == 0 && self.is_out(item)) {
                out[rep] = item;
            }
            return;
        }
    }

    fn look(&self, drawn: Option<i32>, kind: i32) -> Found<'a> {
        let Some(item) = drawn.filter(|&item| item < self.map.max_devices) else { return Found::Dead };
        if item >= 0 {
            return if kind == 0 { Found::Item(item, None) } else { Found::Dead };
        }
        match self.map.bucket(item) {
            Some(bucket) if i32::from(bucket.kind) == kind => Found::Item(item, Some(bucket)),
            Some(bucket) => Found::Deeper(bucket),
            None => Found::Dead,
        }
    }

    /// True if the device's reweight says that this input goes elsewhere.
    fn is_out(&self, item: i32) -> bool {
        match usize::try_from(item).ok().and_then(|item| self.weights.get(item)) {
            None | Some(0) => true,
            Some(0x1_0000..) => false,
            Some(&weight) => hash32_2(self.x, item as u32) & 0xffff >= weight,
        }
    }

    /// Uses up work; false when it is all gone.
    fn spend(&mut self, work: u64) -> bool {
        self.work = self.work.saturating_sub(work);
        self.work > 0
    }

    /// Draws an item of a bucket that has some. None: the bucket's numbers lead nowhere.
    fn draw(&mut self, bucket: &Bucket, r: u32, pos: usize) -> Option<i32> {
        self.spend(bucket.items.len() as u64);
        let id = bucket.id as u32;
        match &bucket.alg {
            Items::Uniform { .. } => self.permute(bucket, r),
            Items::List { weights, sums } => {
                let newest_first = bucket.items.iter().zip(weights).zip(sums).rev();
                let hit = newest_first.map(|((item, weight), sum)| (*item, *weight, *sum)).find(
                    |&(item, weight, sum)| {
                        let draw = u64::from(hash32_4(self.x, item as u32, r, id) & 0xffff);
                        (draw * u64::from(sum)) >> 16 < u64::from(weight)
                    },
                );
                Some(hit.map_or(bucket.items[0], |(item, ..)| item))
            }
            Items::Tree { nodes } => {
                let mut n = nodes.len() >> 1;
                while n != 0 && n & 1 == 0 {
                    let half = 1 << (n.trailing_zeros() - 1);
                    let point = u64::from(hash32_4(self.x, n as u32, r, id)) * u64::from(*nodes.get(n)?);
                    let left = n - half;
                    n = if point >> 32 < u64::from(*nodes.get(left)?) { left } else { n + half };
                }
                bucket.items.get(n >> 1).copied()
            }
            Items::Straw { straws, .. } => {
                let draws = bucket.items.iter().zip(straws).map(|(&item, &straw)| {
                    (item, u64::from(hash32_3(self.x, item as u32, r) & 0xffff) * u64::from(straw))
                });
                first_highest(draws)
            }
            Items::Straw2 { weights } => {
                let arg = self.args.and_then(|args| args.get(&(slot(bucket.id)? as u32)));
                let weights = arg.and_then(|arg| arg.weights_at(pos)).unwrap_or(weights);
                let ids = arg.map(|arg| &arg.ids).filter(|ids| !ids.is_empty()).unwrap_or(&bucket.items);
                let draws = bucket.items.iter().zip(weights).zip(ids).map(|((&item, &weight), &id)| {
                    let hash = hash32_3(self.x, id as u32, r) as u16;
                    (item, straw2(hash, weight))
                });
                first_highest(draws)
            }
        }
    }

    /// The item at `r` of a random order of the bucket's items.
    fn permute(&mut self, bucket: &Bucket, r: u32) -> Option<i32> {
        let size = bucket.items.len() as u32;
        let at = r % size;
        let permutation = self
            .permutations
            .entry(bucket.id)
            .or_insert_with(|| Permutation { order: (0..size).collect(), known: 0 });
        let new = (at + 1).saturating_sub(permutation.known);
        permutation.extend(self.x, bucket.id, at);
        let index = permutation.order[at as usize];
        self.spend(u64::from(new));
        bucket.items.get(index as usize).copied()
    }
}

/// A shuffle of a bucket's indices, of which the first `known` are final.
struct Permutation {
    order: Vec<u32>,
    known: u32,
}

impl Permutation {
    fn extend(&mut self, x: u32, bucket: i32, to: u32) {
        let size = self.order.len() as u32;
        while self.known <= to {
            let at = self.known;
            if at + 1 < size {
                let other = at + hash32_3(x, bucket as u32, at) % (size - at);
                self.order.swap(at as usize, other as usize);
            }
            self.known += 1;
        }
    }
}

impl ChooseArg {
    fn weights_at(&self, pos: usize) -> Option<&Vec<u32>> {
        self.weight_sets.get(pos).or(self.weight_sets.last())
    }
}

/// How long a straw is: an exponentially distributed number, so that the longest belongs to an item
/// as often as its weight says.
fn straw2(hash: u16, weight: u32) -> i64 {
    if weight == 0 {
        return i64::MIN;
    }
    (ln(hash) as i64 - (1 << 48)) / i64::from(weight)
}

fn first_highest<T: PartialOrd>(draws: impl Iterator<Item = (i32, T)>) -> Option<i32> {
    draws.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(item, _)| item)
}
