//! Weights of a pool's own, or of all pools that have none, beside the buckets': `choose_args`.

use crate::build::EditError;
use crate::map::{ChooseArg, ChooseArgs, CrushMap, slot};

impl CrushMap {
    /// Gives a pool (-1: all that have none of their own) its own weights, which are the buckets' at first;
    /// for each position in a result apart, if there is more than one.
    pub fn create_weight_set(&mut self, set: i64, positions: usize) -> Result<(), EditError> {
        self.edit(|map| {
            let mut args = ChooseArgs::new();
            for bucket in map.buckets.iter().flatten().filter(|bucket| !map.is_shadow(bucket.id)) {
                let weights: Vec<u32> = bucket.content().into_iter().map(|(_, weight)| weight).collect();
                let at = slot(bucket.id).expect("buckets have negative ids") as u32;
                args.insert(at, ChooseArg { weight_sets: vec![weights; positions], ids: Vec::new() });
            }
            map.choose_args.insert(set, args);
            Ok(())
        })
    }

    /// How many positions have weights apart; none if there is no such set.
    pub fn weight_set_positions(&self, set: i64) -> Option<usize> {
        let args = self.choose_args.get(&set)?;
        Some(args.values().map(|arg| arg.weight_sets.len()).max().unwrap_or(0))
    }

    /// Sets what an item weighs in a set at each position, and what the buckets above it do.
    pub fn reweight_in_set(&mut self, set: i64, item: &str, weights: &[u32]) -> Result<(), EditError> {
        let id = self.existing(item)?;
        self.edit(|map| {
            let mut left = vec![(id, weights.to_vec())];
            while let Some((item, weights)) = left.pop() {
                for parent in map.parents(item) {
                    // A shadow gets its own anew from what it is a shadow of.
                    if map.is_shadow(parent) {
                        continue;
                    }
                    let index =
                        map.bucket(parent).and_then(|b| b.items.iter().position(|&have| have == item));
                    let arg =
                        map.choose_args.get_mut(&set).and_then(|args| args.get_mut(&(slot(parent)? as u32)));
                    let (Some(index), Some(arg)) = (index, arg) else { continue };
                    for (have, weight) in arg.weight_sets.iter_mut().zip(&weights) {
                        have[index] = *weight;
                    }
                    let sum = |weights: &Vec<u32>| {
                        weights.iter().fold(0, |sum: u32, weight| sum.saturating_add(*weight))
                    };
                    left.push((parent, arg.weight_sets.iter().map(sum).collect()));
                }
            }
            Ok(())
        })
    }

    /// What an item weighs in a set at each position; nothing if it is in no bucket.
    pub fn weights_in_set(&self, set: i64, item: i32) -> Vec<u32> {
        let Some(args) = self.choose_args.get(&set) else { return Vec::new() };
        let holding = self.buckets.iter().flatten().find_map(|bucket| {
            Some((slot(bucket.id)? as u32, bucket.items.iter().position(|&have| have == item)?))
        });
        let Some((at, index)) = holding else { return Vec::new() };
        let sets = args.get(&at).into_iter().flat_map(|arg| &arg.weight_sets);
        sets.filter_map(|weights| weights.get(index).copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Location;

    #[test]
    fn choose_args_of_a_pool_affect_only_that_pool() {
        let mut map = CrushMap::fresh(0);
        for osd in 0..3 {
            let place = Location::from([("root".to_string(), "default".to_string())]);
            map.insert_item(osd, 1 << 16, &format!("osd.{osd}"), &place).unwrap();
            map.set_device_class(osd, "ssd").unwrap();
        }
        map.create_weight_set(7, 1).unwrap();
        map.reweight_in_set(7, "osd.0", &[0]).unwrap();
        assert_eq!(map.weight_set_positions(7), Some(1));
        assert_eq!((map.weights_in_set(7, 0), map.weights_in_set(7, 1)), (vec![0], vec![1 << 16]));
        map.validate().unwrap();
        let weights = [1 << 16; 3];
        let first = |pool: i64, x: u32| map.do_rule(0, x, 1, &weights, Some(pool))[0];
        assert!((0..100).all(|x| first(7, x) != 0));
        assert!((0..100).any(|x| first(8, x) == 0));
        // The shadow of a class follows.
        let shadow = map.item_by_name("default~ssd").unwrap();
        let arg = &map.choose_args[&7][&(slot(shadow).unwrap() as u32)];
        assert_eq!(arg.weight_sets, [vec![0, 1 << 16, 1 << 16]]);
    }
}
