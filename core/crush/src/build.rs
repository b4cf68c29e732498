//! Editing a map as a monitor does on `ceph osd crush ...`.
//!
//! Every edit either succeeds whole, with the weights of all ancestors and the shadow trees brought
//! up to date (see `classes`), or leaves the map as it was.

use crate::map::{Bucket, CrushMap, Op, Rule, key_of, slot};
use std::collections::{BTreeMap, BTreeSet};

/// Where an item is: names of buckets by the names of their types, as in `host=a root=default`.
pub type Location = BTreeMap<String, String>;

/// Why an edit was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("'{0}' is not a valid crush name: only letters, digits, '-', '_' and '.'")]
    BadName(String),
    #[error("'{0}' does not exist")]
    NoItem(String),
    #[error("'{0}' is not a bucket type")]
    NoType(String),
    #[error("'{0}' exists already")]
    Exists(String),
    #[error("'{name}' is not a {wanted}")]
    WrongType { name: String, wanted: String },
    #[error("no place to put '{0}' in that location")]
    NoPlace(String),
    #[error("'{0}' would contain itself")]
    Loop(String),
    #[error("bucket '{0}' is not empty")]
    NotEmpty(String),
    #[error("bucket '{name}' is used by rule '{rule}'")]
    InUse { name: String, rule: String },
    #[error("root '{root}' has no devices of class '{class}'")]
    NoClass { root: String, class: String },
    #[error("no rule id is free")]
    NoRuleId,
    #[error("the weights in bucket {bucket} are too much together")]
    TooHeavy { bucket: i32 },
    #[error("tree bucket {bucket} is full")]
    TreeFull { bucket: i32 },
}

impl EditError {
    /// What Ceph's commands return for it, as a positive number.
    pub fn errno(&self) -> i32 {
        use nacre_base::errno;
        match self {
            EditError::NoItem(_) => errno::ENOENT,
            EditError::Exists(_) => errno::EEXIST,
            EditError::NotEmpty(_) => errno::ENOTEMPTY,
            EditError::InUse { .. } => errno::EBUSY,
            EditError::NoRuleId => errno::ENOSPC,
            EditError::TooHeavy { .. } => errno::ERANGE,
            _ => errno::EINVAL,
        }
    }
}

const TYPES: [&str; 12] =
    ["osd", "host", "chassis", "rack", "row", "pdu", "pod", "room", "datacenter", "zone", "region", "root"];

/// Ceph: `TYPE_REPLICATED` and `TYPE_ERASURE` of `pg_pool_t`.
const REPLICATED: u8 = 1;
const ERASURE: u8 = 3;

/// A step of a rule for an erasure-coded pool.
#[derive(Clone, Copy, Debug)]
pub struct ErasureStep<'a> {
    /// Whether it chooses an OSD within each bucket.
    pub leaf: bool,
    /// The type of bucket
    pub kind: &'a str,
    /// How many. 0: as many as the pool has shards.
    pub count: i32,
}

/// One OSD in each of as many buckets of a type as the pool has copies.
fn replicated_rule(from: i32, kind: i32) -> Rule {
    let op = if kind == 0 { Op::ChooseFirstN } else { Op::ChooseLeafFirstN };
    let steps = vec![Op::Take.step(from, 0), op.step(0, kind), Op::Emit.step(0, 0)];
    Rule { ruleset: 0, kind: REPLICATED, min_size: 1, max_size: 10, steps }
}

impl CrushMap {
    /// What a new cluster has: the types, an empty root "default", and "replicated_rule", which puts
    /// replicas on different items of type `failure_domain` (0: OSDs, 1: hosts).
    pub fn fresh(failure_domain: i32) -> CrushMap {
        let mut map = CrushMap::default();
        map.types = (0..).zip(TYPES).map(|(id, name)| (id, String::from(name))).collect();
        let root = map.add_bucket("default", "root").expect("an empty map has room");
        map.add_rule("replicated_rule", replicated_rule(root, failure_domain))
            .expect("an empty map has room");
        map
    }

    /// Adds an empty bucket that is in no other.
    pub fn add_bucket(&mut self, name: &str, kind: &str) -> Result<i32, EditError> {
        check_name(name)?;
        if self.item_by_name(name).is_some() {
            return Err(EditError::Exists(name.into()));
        }
        let kind =
            self.type_by_name(kind).and_then(|kind| u16::try_from(kind).ok()).filter(|&kind| kind != 0);
        let kind = kind.ok_or_else(|| EditError::NoType(name.into()))?;
        self.edit(|map| map.new_bucket(name, kind, &[]))
    }

    /// Puts an item that is nowhere into the lowest bucket of `location`, creating the buckets that
    /// do not exist. Weight in 16.16. Ceph: `insert_item`.
    pub fn insert_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        location: &Location,
    ) -> Result<(), EditError> {
        self.edit(|map| map.insert(item, weight, name, location))
    }

    /// What an OSD asks for when it boots: to be at `location`, with `weight` if it is new. True if
    /// that changed the map. Ceph: `create_or_move_item`.
    pub fn create_or_move_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        location: &Location,
    ) -> Result<bool, EditError> {
        let lowest = self.types.iter().filter(|(id, _)| **id != 0).find_map(|(_, kind)| location.get(kind));
        let parent = lowest.and_then(|name| self.item_by_name(name)).and_then(|id| self.bucket(id));
        if parent.is_some_and(|bucket| bucket.items.contains(&item)) {
            return Ok(false);
        }
        self.edit(|map| {
            let weight = map.item_weight(item).unwrap_or(weight);
            map.unlink(item)?;
            map.insert(item, weight, name, location)
        })?;
        Ok(true)
    }

    /// Moves a bucket or device with all below it.
    pub fn move_item(&mut self, name: &str, location: &Location) -> Result<(), EditError> {
        let item = self.existing(name)?;
        self.edit(|map| {
            let weight = map.item_weight(item).or(map.bucket(item).map(|bucket| bucket.weight)).unwrap_or(0);
            map.unlink(item)?;
            map.insert(item, weight, name, location)
        })
    }

    /// Puts an item that is somewhere already into one more place. Ceph: `link_bucket`.
    pub fn link_item(&mut self, name: &str, location: &Location) -> Result<(), EditError> {
        let item = self.existing(name)?;
        self.edit(|map| {
            let weight = map.item_weight(item).or(map.bucket(item).map(|bucket| bucket.weight)).unwrap_or(0);
            map.insert(item, weight, name, location)
        })
    }

    /// Takes an item out of all buckets below `ancestor`, or out of all; it stays what it is. False if it was
    /// in none. Ceph: `remove_item` with `unlink_only`.
    pub fn unlink_item(&mut self, name: &str, ancestor: Option<&str>) -> Result<bool, EditError> {
        let item = self.existing(name)?;
        let ancestor = ancestor.map(|name| self.existing(name)).transpose()?;
        let inside = |parent: &i32| ancestor.is_none_or(|top| top == *parent || self.contains(top, *parent));
        let parents: Vec<i32> = self.parents(item).into_iter().filter(inside).collect();
        self.edit(|map| parents.iter().try_for_each(|parent| map.unlink_from(item, *parent)))?;
        Ok(!parents.is_empty())
    }

    /// Exchanges what is in two buckets, neither of which is in the other. Ceph: `swap_bucket`.
    pub fn swap_buckets(&mut self, one: &str, other: &str) -> Result<(), EditError> {
        let (a, b) = (self.existing(one)?, self.existing(other)?);
        let content = |id: i32| self.bucket(id).map(Bucket::content);
        let (Some(of_a), Some(of_b)) = (content(a), content(b)) else {
            let device = if a >= 0 { one } else { other };
            return Err(EditError::NoItem(device.into()));
        };
        if a == b || self.contains(a, b) || self.contains(b, a) {
            return Err(EditError::Loop(one.into()));
        }
        self.edit(|map| {
            map.set_content(a, &of_b, None)?;
            map.set_content(b, &of_a, None)?;
            map.bubble_weight(a)?;
            map.bubble_weight(b)?;
            // A name goes with its content, as if the buckets had changed places.
            let names = (map.names.remove(&a), map.names.remove(&b));
            map.names.extend(names.1.map(|name| (a, name)));
            map.names.extend(names.0.map(|name| (b, name)));
            Ok(())
        })
    }

    /// Removes a device, or an empty bucket that no rule takes.
    pub fn remove_item(&mut self, name: &str) -> Result<(), EditError> {
        let item = self.existing(name)?;
        if self.bucket(item).is_some_and(|bucket| !bucket.items.is_empty()) {
            return Err(EditError::NotEmpty(name.into()));
        }
        let shadows = self.shadows.get(&item).into_iter().flat_map(BTreeMap::values);
        let taken: BTreeSet<i32> = shadows.copied().chain([item].into_iter().filter(|id| *id < 0)).collect();
        if let Some(rule) = self.rule_taking(&taken) {
            return Err(EditError::InUse { name: name.into(), rule });
        }
        self.edit(|map| {
            map.unlink(item)?;
            map.names.remove(&item);
            map.class_of.remove(&item);
            map.drop_bucket(item);
            Ok(())
        })
    }

    /// Sets the weight (16.16) of a device wherever it is.
    pub fn reweight_item(&mut self, name: &str, weight: u32) -> Result<(), EditError> {
        let item = self.existing(name)?;
        self.edit(|map| map.adjust_weight(item, weight))
    }

    pub fn rename_item(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        check_name(to)?;
        let item = self.existing(from)?;
        if self.item_by_name(to).is_some() {
            return Err(EditError::Exists(to.into()));
        }
        self.edit(|map| {
            map.names.insert(item, to.into());
            Ok(())
        })
    }

    /// Adds a rule for replicated pools: different items of type `failure_domain` below `root`, only
    /// devices of `class` if one is given. Says the rule's id.
    pub fn create_replicated_rule(
        &mut self,
        name: &str,
        root: &str,
        failure_domain: &str,
        class: Option<&str>,
    ) -> Result<u32, EditError> {
        let from = self.source_of_rule(name, root, class)?;
        let kind =
            self.type_by_name(failure_domain).ok_or_else(|| EditError::NoType(failure_domain.into()))?;
        self.add_rule(name, replicated_rule(from, kind))
    }

    /// The same for erasure-coded pools, whose positions must not move.
    pub fn create_erasure_rule(
        &mut self,
        name: &str,
        root: &str,
        failure_domain: &str,
        class: Option<&str>,
    ) -> Result<u32, EditError> {
        let leaf = ErasureStep { leaf: true, kind: failure_domain, count: 0 };
        self.create_erasure_rule_in_steps(name, root, class, &[leaf], 20)
    }

    /// The same in several steps, for at most so many shards: for example two racks, and four hosts in each.
    pub fn create_erasure_rule_in_steps(
        &mut self,
        name: &str,
        root: &str,
        class: Option<&str>,
        steps: &[ErasureStep<'_>],
        max_size: u8,
    ) -> Result<u32, EditError> {
        let from = self.source_of_rule(name, root, class)?;
        let mut choose = vec![Op::SetChooseLeafTries.step(5, 0), Op::SetChooseTries.step(100, 0)];
        choose.push(Op::Take.step(from, 0));
        for step in steps {
            let kind = self.type_by_name(step.kind).ok_or_else(|| EditError::NoType(step.kind.into()))?;
            let op = if step.leaf && kind != 0 { Op::ChooseLeafIndep } else { Op::ChooseIndep };
            choose.push(op.step(step.count, kind));
        }
        choose.push(Op::Emit.step(0, 0));
        self.add_rule(name, Rule { ruleset: 0, kind: ERASURE, min_size: 3, max_size, steps: choose })
    }

    /// The bucket that a new rule takes from: a root, or its shadow of a device class.
    fn source_of_rule(&self, name: &str, root: &str, class: Option<&str>) -> Result<i32, EditError> {
        check_name(name)?;
        if self.rule_by_name(name).is_some() {
            return Err(EditError::Exists(name.into()));
        }
        let mut from = self.existing(root)?;
        if let Some(class) = class {
            let shadow = self.class_by_name(class).and_then(|class| self.shadows.get(&from)?.get(&class));
            let none = || EditError::NoClass { root: root.into(), class: class.into() };
            from = *shadow.ok_or_else(none)?;
        }
        Ok(from)
    }

    /// Adds a rule with the first free id.
    fn add_rule(&mut self, name: &str, mut rule: Rule) -> Result<u32, EditError> {
        let used = |id: usize| {
            self.rules.get(id).is_some_and(Option::is_some)
                || self.rules.iter().flatten().any(|rule| usize::from(rule.ruleset) == id)
        };
        // The id is the mask's ruleset as well, which is a byte.
        let id = (0..=usize::from(u8::MAX)).find(|&id| !used(id)).ok_or(EditError::NoRuleId)?;
        rule.ruleset = id as u8;
        if self.rules.len() <= id {
            self.rules.resize(id + 1, None);
        }
        self.rules[id] = Some(rule);
        self.rule_names.insert(id as i32, name.into());
        Ok(id as u32)
    }

    /// Removes a rule. That no pool uses it is the caller's to know.
    pub fn remove_rule(&mut self, name: &str) -> Result<(), EditError> {
        let id = self.rule_by_name(name).ok_or_else(|| EditError::NoItem(name.into()))?;
        self.edit(|map| {
            map.rule_names.remove(&(id as i32));
            if let Some(rule) = map.rules.get_mut(id as usize) {
                *rule = None;
            }
            Ok(())
        })
    }

    /// Runs an edit on a copy, brings the shadow trees up to date, and keeps it only if all went well.
    pub(crate) fn edit<T>(
        &mut self,
        edit: impl FnOnce(&mut CrushMap) -> Result<T, EditError>,
    ) -> Result<T, EditError> {
        let mut map = self.clone();
        let done = edit(&mut map)?;
        map.rebuild_shadows()?;
        *self = map;
        Ok(done)
    }

    /// The id of an item by name; shadow buckets are not for users to edit.
    pub(crate) fn existing(&self, name: &str) -> Result<i32, EditError> {
        self.item_by_name(name).filter(|_| !name.contains('~')).ok_or_else(|| EditError::NoItem(name.into()))
    }

    fn rule_taking(&self, items: &BTreeSet<i32>) -> Option<String> {
        let takes =
            |rule: &Rule| rule.steps.iter().any(|s| s.op == Op::Take as u32 && items.contains(&s.arg1));
        let id = self.rules.iter().position(|rule| rule.as_ref().is_some_and(takes))?;
        Some(self.rule_names.get(&(id as i32)).cloned().unwrap_or_else(|| id.to_string()))
    }

    /// What the item weighs in the first bucket that holds it.
    pub fn item_weight(&self, item: i32) -> Option<u32> {
        self.buckets.iter().flatten().find_map(|bucket| {
            let index = bucket.items.iter().position(|&have| have == item)?;
            Some(bucket.item_weight(index))
        })
    }

    fn insert(&mut self, item: i32, weight: u32, name: &str, location: &Location) -> Result<(), EditError> {
        check_name(name)?;
        location.values().try_for_each(|name| check_name(name))?;
        match key_of(&self.names, name) {
            Some(have) if have != item => return Err(EditError::Exists(name.into())),
            _ => self.names.insert(item, name.into()),
        };
        let levels = self.types.iter().filter_map(|(&kind, name)| Some((u16::try_from(kind).ok()?, name)));
        let levels: Vec<_> =
            levels.filter(|(kind, _)| *kind != 0).map(|(kind, name)| (kind, name.clone())).collect();
        let mut child = item;
        let mut placed = false;
        for (kind, level) in levels {
            let Some(place) = location.get(&level) else { continue };
            placed = true;
            let Some(id) = self.item_by_name(place) else {
                child = self.new_bucket(place, kind, &[(child, 0)])?;
                continue;
            };
            let bucket = self.bucket(id).filter(|bucket| bucket.kind == kind);
            let wrong = || EditError::WrongType { name: place.clone(), wanted: level.clone() };
            let bucket = bucket.ok_or_else(wrong)?;
            if self.contains(child, id) {
                return Err(EditError::Loop(name.into()));
            }
            if self.contains(id, child) {
                return Err(EditError::Exists(name.into()));
            }
            let mut content = bucket.content();
            content.push((child, 0));
            self.set_content(id, &content, None)?;
            break;
        }
        if !placed {
            return Err(EditError::NoPlace(name.into()));
        }
        if item >= self.max_devices {
            self.max_devices = item.saturating_add(1);
        }
        self.adjust_weight(item, weight)
    }

    /// Takes an item out of all buckets, keeping what it is and what is below it.
    fn unlink(&mut self, item: i32) -> Result<(), EditError> {
        self.parents(item).into_iter().try_for_each(|parent| self.unlink_from(item, parent))
    }
    fn unlink_from(&mut self, item: i32, parent: i32) -> Result<(), EditError> {
        let Some(bucket) = self.bucket(parent) else { return Ok(()) };
        let mut content = bucket.content();
        let index = content.iter().position(|(have, _)| *have == item);
        index.map(|index| content.remove(index));
        self.set_content(parent, &content, index)?;
        self.bubble_weight(parent)
    }

    pub(crate) fn parents(&self, item: i32) -> Vec<i32> {
        let holding = self.buckets.iter().flatten().filter(|bucket| bucket.items.contains(&item));
        holding.map(|bucket| bucket.id).collect()
    }

    /// Sets an item's weight in every bucket that holds it, and those buckets' weights in theirs.
    fn adjust_weight(&mut self, item: i32, weight: u32) -> Result<(), EditError> {
        for parent in self.parents(item) {
            self.set_weight_in(parent, item, weight)?;
            self.bubble_weight(parent)?;
        }
        Ok(())
    }

    fn bubble_weight(&mut self, from: i32) -> Result<(), EditError> {
        let mut changed = vec![from]; // no recursion: how deep a map is, is up to its maker
        while let Some(id) = changed.pop() {
            let weight = self.bucket(id).map_or(0, |bucket| bucket.weight);
            for parent in self.parents(id) {
                self.set_weight_in(parent, id, weight)?;
                changed.push(parent);
            }
        }
        Ok(())
    }

    fn set_weight_in(&mut self, parent: i32, item: i32, weight: u32) -> Result<(), EditError> {
        let Some(bucket) = self.bucket(parent) else { return Ok(()) };
        // In a uniform bucket one weight is all weights.
        let uniform = bucket.alg.code() == 1;
        let mut content = bucket.content();
        for (index, pair) in content.iter_mut().enumerate().filter(|(_, pair)| uniform || pair.0 == item) {
            pair.1 = weight;
            let at = slot(parent).map(|at| at as u32);
            let args = self.choose_args.values_mut().filter_map(|args| args.get_mut(&at?));
            for weights in args.flat_map(|arg| &mut arg.weight_sets) {
                weights.get_mut(index).into_iter().for_each(|have| *have = weight);
            }
        }
        self.set_content(parent, &content, None)
    }

    /// Replaces a bucket's items; `choose_args` lose the item at `removed`, or gain what is new at
    /// the end.
    fn set_content(
        &mut self,
        id: i32,
        content: &[(i32, u32)],
        removed: Option<usize>,
    ) -> Result<(), EditError> {
        let Some(bucket) = self.bucket(id) else { return Ok(()) };
        let (kind, alg) = (bucket.kind, bucket.alg.code());
        let made = Bucket::make(id, kind, alg, content, self.tunables.straw_calc_version)?;
        *self.bucket_mut(id).expect("just seen") = made;
        let at = slot(id).map(|at| at as u32);
        for arg in self.choose_args.values_mut().filter_map(|args| args.get_mut(&at?)) {
            for weights in &mut arg.weight_sets {
                removed.filter(|&index| index < weights.len()).map(|index| weights.remove(index));
                weights.extend(content.iter().skip(weights.len()).map(|(_, weight)| weight));
            }
            if !arg.ids.is_empty() {
                removed.filter(|&index| index < arg.ids.len()).map(|index| arg.ids.remove(index));
                arg.ids.extend(content.iter().skip(arg.ids.len()).map(|(item, _)| item));
            }
        }
        Ok(())
    }

    fn new_bucket(&mut self, name: &str, kind: u16, content: &[(i32, u32)]) -> Result<i32, EditError> {
        let at = self.buckets.iter().position(Option::is_none).unwrap_or(self.buckets.len());
        let id = -1 - at as i32;
        // The best of those that every client of this cluster understands.
        let allowed =
            [5, 4, 3, 2, 1].into_iter().find(|alg| self.tunables.allowed_bucket_algs & (1 << alg) != 0);
        let version = self.tunables.straw_calc_version;
        let bucket = Bucket::make(id, kind, allowed.unwrap_or(5), content, version)?;
        self.put_bucket(bucket);
        self.names.insert(id, name.into());
        Ok(id)
    }

    /// Ceph grows the slots by doubling, and encodes the empty ones.
    pub(crate) fn put_bucket(&mut self, bucket: Bucket) {
        let at = slot(bucket.id).expect("buckets have negative ids");
        while self.buckets.len() <= at {
            self.buckets.resize((self.buckets.len() * 2).max(8), None);
        }
        self.buckets[at] = Some(bucket);
    }

    pub(crate) fn drop_bucket(&mut self, id: i32) {
        let Some(at) = slot(id) else { return };
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket = None;
        }
        self.choose_args.values_mut().for_each(|args| {
            args.remove(&(at as u32));
        });
    }

    /// True if `item` is `top` or somewhere below it.
    pub fn contains(&self, top: i32, item: i32) -> bool {
        let mut left = vec![top];
        let mut seen = BTreeSet::new();
        while let Some(id) = left.pop() {
            if id == item {
                return true;
            }
            if seen.insert(id) {
                left.extend(self.bucket(id).into_iter().flat_map(|bucket| &bucket.items));
            }
        }
        false
    }
}

fn check_name(name: &str) -> Result<(), EditError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(fine) {
        return Err(EditError::BadName(name.into()));
    }
    Ok(())
}
