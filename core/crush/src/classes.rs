//! Device classes: for each class a shadow of every tree, with only the devices of that class.
//!
//! Rules take the shadow's root. The shadow's ids go into the hash of every placement, so a rebuild
//! gives each shadow the id that it had.

use crate::build::EditError;
use crate::map::{Bucket, ChooseArg, CrushMap, Op, slot};
use std::collections::{BTreeMap, BTreeSet};

type Shadows = BTreeMap<i32, BTreeMap<i32, i32>>;

/// What may be in the name of a class, which is part of its shadows' names.
fn class_name(name: &str) -> Result<String, EditError> {
    let is_good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if is_good { Ok(name.into()) } else { Err(EditError::BadName(name.into())) }
}

impl CrushMap {
    /// Puts a device into a class, which is created if it is new. True if that changed something.
    pub fn set_device_class(&mut self, device: i32, class: &str) -> Result<bool, EditError> {
        if device < 0 {
            return Err(EditError::NoItem(device.to_string()));
        }
        if self
            .class_of
            .get(&device)
            .is_some_and(|id| self.class_names.get(id).is_some_and(|name| name == class))
        {
            return Ok(false);
        }
        self.edit(|map| {
            let id = map.create_class(class)?;
            map.class_of.insert(device, id);
            Ok(true)
        })
    }

    /// Takes a device out of its class. True if it had one.
    pub fn remove_device_class(&mut self, device: i32) -> Result<bool, EditError> {
        if device < 0 || !self.class_of.contains_key(&device) {
            return Ok(false);
        }
        self.edit(|map| Ok(map.class_of.remove(&device).is_some()))
    }

    /// A class without devices. It stays until the map's shadows are made anew, unless a device is put into
    /// it.
    pub fn create_class(&mut self, class: &str) -> Result<i32, EditError> {
        let name = class_name(class)?;
        let next = self.class_names.keys().next_back().map_or(0, |last| last.saturating_add(1));
        let id = self.class_by_name(class).unwrap_or(next);
        self.class_names.insert(id, name);
        Ok(id)
    }

    /// The end of a class: no device is in it any more.
    pub fn remove_class(&mut self, id: i32) -> Result<(), EditError> {
        self.edit(|map| {
            map.class_of.retain(|item, class| *item < 0 || *class != id);
            Ok(())
        })?;
        // One that had no devices is still there.
        self.class_names.remove(&id);
        Ok(())
    }

    /// Gives a class, and with it its shadows, another name.
    pub fn rename_class(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        let id = self.class_by_name(from).ok_or_else(|| EditError::NoItem(from.into()))?;
        if self.class_by_name(to).is_some() {
            return Err(EditError::Exists(to.into()));
        }
        self.class_names.insert(id, class_name(to)?);
        let shadows = self.shadows.iter().filter_map(|(original, shadows)| {
            let shadow = *shadows.get(&id)?;
            Some((shadow, format!("{}~{to}", self.names.get(original)?)))
        });
        let renamed: Vec<(i32, String)> = shadows.collect();
        self.names.extend(renamed);
        Ok(())
    }

    /// The name of the class of a device or shadow bucket.
    pub fn class_name_of(&self, item: i32) -> Option<&str> {
        Some(self.class_names.get(self.class_of.get(&item)?)?.as_str())
    }

    /// True for a bucket that exists only for a class.
    pub fn is_shadow(&self, item: i32) -> bool {
        item < 0 && self.names.get(&item).is_some_and(|name| name.contains('~'))
    }

    /// Makes all shadow trees anew from the real ones. Ceph: `rebuild_roots_with_classes`.
    pub(crate) fn rebuild_shadows(&mut self) -> Result<(), EditError> {
        let old = std::mem::take(&mut self.shadows);
        self.forget_unused_classes(&old);
        let ids = self.buckets.iter().flatten().map(|bucket| bucket.id);
        let ids: Vec<i32> = ids.filter(|&id| self.is_shadow(id)).collect();
        // The weights that a shadow adds up from its originals must not see the old shadows.
        for id in ids {
            self.drop_bucket(id);
            self.names.remove(&id);
            self.class_of.remove(&id);
        }
        let reserved: BTreeSet<i32> = old.values().flat_map(BTreeMap::values).copied().collect();
        let classes: Vec<(i32, String)> =
            self.class_names.iter().map(|(id, name)| (*id, name.clone())).collect();
        for root in self.roots(false) {
            for (class, name) in &classes {
                // Children before parents, in the order of a walk: new ids are given in that order.
                for original in self.below_first(root) {
                    self.shadow(original, *class, name, &old, &reserved)?;
                }
            }
        }
        Ok(())
    }

    /// A class stays while a device is in it or a rule takes one of its shadows.
    fn forget_unused_classes(&mut self, old: &Shadows) {
        let takes = self.rules.iter().flatten().flat_map(|rule| &rule.steps);
        let taken: BTreeSet<i32> = takes.filter(|s| s.op == Op::Take as u32).map(|s| s.arg1).collect();
        let class_of = &self.class_of;
        self.class_names.retain(|class, _| {
            class_of.iter().any(|(&item, have)| item >= 0 && have == class)
                || old.values().any(|shadows| shadows.get(class).is_some_and(|id| taken.contains(id)))
        });
        let names = &self.class_names;
        self.class_of.retain(|_, class| names.contains_key(class));
    }

    fn shadow(
        &mut self,
        original: i32,
        class: i32,
        class_name: &str,
        old: &Shadows,
        reserved: &BTreeSet<i32>,
    ) -> Result<(), EditError> {
        let (Some(bucket), Some(name)) = (self.bucket(original), self.names.get(&original)) else {
            return Ok(());
        };
        if self.shadows.get(&original).is_some_and(|shadows| shadows.contains_key(&class)) {
            return Ok(()); // linked in two places
        }
        let name = format!("{name}~{class_name}");
        let mut content = Vec::new();
        let mut from = Vec::new(); // the index in the original of each item
        for (index, (item, weight)) in bucket.content().into_iter().enumerate() {
            if item >= 0 {
                if self.class_of.get(&item) == Some(&class) {
                    content.push((item, weight));
                    from.push(index);
                }
            } else if let Some(&child) = self.shadows.get(&item).and_then(|shadows| shadows.get(&class)) {
                content.push((child, self.bucket(child).map_or(0, |child| child.weight)));
                from.push(index);
            }
        }
        let id = match old.get(&original).and_then(|shadows| shadows.get(&class)) {
            Some(&id) if self.bucket(id).is_none() => id,
            _ => (1..)
                .map(|n| -n)
                .find(|id| self.bucket(*id).is_none() && !reserved.contains(id))
                .expect("endless"),
        };
        let made =
            Bucket::make(id, bucket.kind, bucket.alg.code(), &content, self.tunables.straw_calc_version)?;
        self.shadow_choose_args(original, id, &content, &from);
        self.put_bucket(made);
        self.names.insert(id, name);
        self.class_of.insert(id, class);
        self.shadows.entry(original).or_default().insert(class, id);
        Ok(())
    }

    /// A shadow weighs its items as the original does; a shadow below it by what is left in it.
    fn shadow_choose_args(&mut self, original: i32, shadow: i32, content: &[(i32, u32)], from: &[usize]) {
        let (Some(original), Some(shadow)) = (slot(original), slot(shadow)) else { return };
        for args in self.choose_args.values_mut() {
            let Some(sets) = args.get(&(original as u32)).map(|arg| &arg.weight_sets) else { continue };
            let of_child = |item: i32, pos: usize| -> Option<u32> {
                let sets = &args.get(&(slot(item)? as u32))?.weight_sets;
                let weights = sets.get(pos).or(sets.last())?;
                Some(weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight)))
            };
            let one = |(pos, weights): (usize, &Vec<u32>)| -> Vec<u32> {
                let items = content.iter().zip(from);
                items
                    .map(|(&(item, weight), &index)| match item {
                        0.. => weights.get(index).copied().unwrap_or(weight),
                        _ => of_child(item, pos).unwrap_or(weight),
                    })
                    .collect()
            };
            let weight_sets: Vec<Vec<u32>> = sets.iter().enumerate().map(one).collect();
            if !weight_sets.is_empty() {
                args.insert(shadow as u32, ChooseArg { weight_sets, ids: Vec::new() });
            }
        }
    }

    /// The buckets at and below `top`, each after all that are below it.
    fn below_first(&self, top: i32) -> Vec<i32> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        let mut stack = vec![(top, false)];
        while let Some((id, done)) = stack.pop() {
            if done {
                order.push(id);
            } else if let Some(bucket) = self.bucket(id).filter(|_| seen.insert(id)) {
                stack.push((id, true));
                stack.extend(bucket.items.iter().rev().filter(|item| **item < 0).map(|item| (*item, false)));
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Location;

    fn map() -> CrushMap {
        let mut map = CrushMap::fresh(0);
        let place = Location::from([("root".to_string(), "default".to_string())]);
        for osd in 0..3 {
            map.insert_item(osd, 1 << 16, &format!("osd.{osd}"), &place).unwrap();
            map.set_device_class(osd, "ssd").unwrap();
        }
        map
    }

    #[test]
    fn a_class_gets_no_name_that_its_shadows_could_not_have() {
        let mut map = map();
        let before = map.clone();
        for bad in ["", "a~b", "a b", "ü"] {
            let refused = EditError::BadName(bad.into());
            assert_eq!(map.create_class(bad), Err(refused.clone()), "{bad:?}");
            assert_eq!(map.rename_class("ssd", bad), Err(refused.clone()), "{bad:?}");
            assert_eq!(map.set_device_class(0, bad), Err(refused), "{bad:?}");
        }
        assert_eq!(map, before);
    }

    #[test]
    fn a_removed_class_leaves_no_device_and_no_shadow_behind() {
        let mut map = map();
        map.remove_class(map.class_by_name("ssd").unwrap()).unwrap();
        assert_eq!((map.class_by_name("ssd"), map.class_name_of(0)), (None, None));
        assert_eq!(map.item_by_name("default~ssd"), None);
        let empty = map.create_class("empty").unwrap();
        map.remove_class(empty).unwrap();
        assert_eq!(map.class_by_name("empty"), None);
    }
}
