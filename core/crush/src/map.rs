//! The map: buckets of items, rules, names, device classes.

use std::collections::BTreeMap;

/// Where an ordered result has no OSD. Ceph: `CRUSH_ITEM_NONE`.
pub const ITEM_NONE: i32 = 0x7fff_ffff;

/// A whole CRUSH map. Ceph: `CrushWrapper` around `crush_map`.
///
/// Items are numbers: `0..` are devices (OSDs), negative ones buckets. Weights are 16.16 fixed point.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CrushMap {
    /// Slot `i` holds the bucket with id `-1 - i`. The length, empty slots included, is encoded.
    pub buckets: Vec<Option<Bucket>>,
    pub rules: Vec<Option<Rule>>,
    /// Devices from here on are refused by the mapper.
    pub max_devices: i32,
    /// Names of the bucket types; 0 is the device's.
    pub types: BTreeMap<i32, String>,
    /// Names of devices and buckets.
    pub names: BTreeMap<i32, String>,
    pub rule_names: BTreeMap<i32, String>,
    pub tunables: Tunables,
    /// The device class of each device that has one, and of each shadow bucket.
    pub class_of: BTreeMap<i32, i32>,
    pub class_names: BTreeMap<i32, String>,
    /// For each bucket and class, the shadow bucket that holds only the devices of that class.
    pub shadows: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// By pool id, or -1 for all pools that have none of their own.
    pub choose_args: BTreeMap<i64, ChooseArgs>,
}

/// How `do_rule` searches. `default()` is what a fresh Pacific cluster has ("jewel" tunables).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunables {
    pub choose_local_tries: u32,
    pub choose_local_fallback_tries: u32,
    pub choose_total_tries: u32,
    pub chooseleaf_descend_once: u32,
    pub chooseleaf_vary_r: u8,
    pub straw_calc_version: u8,
    /// Bit `1 << alg` for each bucket algorithm that new buckets may use.
    pub allowed_bucket_algs: u32,
    pub chooseleaf_stable: u8,
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables {
            choose_local_tries: 0,
            choose_local_fallback_tries: 0,
            choose_total_tries: 50,
            chooseleaf_descend_once: 1,
            chooseleaf_vary_r: 1,
            straw_calc_version: 1,
            allowed_bucket_algs: 0x36, // uniform, list, straw, straw2
            chooseleaf_stable: 1,
        }
    }
}

impl Tunables {
    /// What a map means that was encoded before tunables existed. Ceph: `set_tunables_legacy`.
    pub fn legacy() -> Tunables {
        Tunables {
            choose_local_tries: 2,
            choose_local_fallback_tries: 5,
            choose_total_tries: 19,
            chooseleaf_descend_once: 0,
            chooseleaf_vary_r: 0,
            straw_calc_version: 0,
            allowed_bucket_algs: 0x16, // uniform, list, straw
            chooseleaf_stable: 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Negative.
    pub id: i32,
    /// A key of `CrushMap::types`, never 0.
    pub kind: u16,
    /// The sum of the items' weights.
    pub weight: u32,
    pub items: Vec<i32>,
    pub alg: Items,
}

/// A bucket's algorithm, with the weights in the form that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Items {
    /// All weigh the same; a permutation chooses.
    Uniform { item_weight: u32 },
    /// `sums[i]` is the weight of items `0..=i`.
    List { weights: Vec<u32>, sums: Vec<u32> },
    /// A binary tree in an array: item `i` is node `2i + 1`, the root is in the middle.
    Tree { nodes: Vec<u32> },
    /// The longest straw wins; its length factors are derived from all weights together.
    Straw { weights: Vec<u32>, straws: Vec<u32> },
    /// The longest straw wins, each depending on its own weight only.
    Straw2 { weights: Vec<u32> },
}

impl Items {
    /// Ceph's number of the algorithm.
    pub fn code(&self) -> u8 {
        match self {
            Items::Uniform { .. } => 1,
            Items::List { .. } => 2,
            Items::Tree { .. } => 3,
            Items::Straw { .. } => 4,
            Items::Straw2 { .. } => 5,
        }
    }
    pub fn name(&self) -> &'static str {
        match self {
            Items::Uniform { .. } => "uniform",
            Items::List { .. } => "list",
            Items::Tree { .. } => "tree",
            Items::Straw { .. } => "straw",
            Items::Straw2 { .. } => "straw2",
        }
    }
}

impl Bucket {
    /// The weight of the item at `index`; zero where there is none.
    pub fn item_weight(&self, index: usize) -> u32 {
        match &self.alg {
            _ if index >= self.items.len() => 0,
            Items::Uniform { item_weight } => *item_weight,
            Items::Tree { nodes } => nodes.get(2 * index + 1).copied().unwrap_or(0),
            Items::List { weights, .. } | Items::Straw { weights, .. } | Items::Straw2 { weights } => {
                weights.get(index).copied().unwrap_or(0)
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Since Luminous equal to the rule's id.
    pub ruleset: u8,
    /// 1 replicated, 3 erasure: Ceph's pool types.
    pub kind: u8,
    pub min_size: u8,
    pub max_size: u8,
    pub steps: Vec<RuleStep>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleStep {
    /// One of `Op`'s; the mapper skips what it does not know.
    pub op: u32,
    pub arg1: i32,
    pub arg2: i32,
}

/// What a step does. Ceph: `crush_opcodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    Noop = 0,
    /// Start from bucket or device `arg1`.
    Take = 1,
    /// Choose `arg1` items of type `arg2`; zero or less counts from the result's size.
    ChooseFirstN = 2,
    ChooseIndep = 3,
    Emit = 4,
    /// The same, and then one device below each.
    ChooseLeafFirstN = 6,
    ChooseLeafIndep = 7,
    SetChooseTries = 8,
    SetChooseLeafTries = 9,
    SetChooseLocalTries = 10,
    SetChooseLocalFallbackTries = 11,
    SetChooseLeafVaryR = 12,
    SetChooseLeafStable = 13,
}

impl Op {
    /// As `ceph osd crush rule dump` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Op::Noop => "noop",
            Op::Take => "take",
            Op::ChooseFirstN => "choose_firstn",
            Op::ChooseIndep => "choose_indep",
            Op::Emit => "emit",
            Op::ChooseLeafFirstN => "chooseleaf_firstn",
            Op::ChooseLeafIndep => "chooseleaf_indep",
            Op::SetChooseTries => "set_choose_tries",
            Op::SetChooseLeafTries => "set_chooseleaf_tries",
            Op::SetChooseLocalTries => "set_choose_local_tries",
            Op::SetChooseLocalFallbackTries => "set_choose_local_fallback_tries",
            Op::SetChooseLeafVaryR => "set_chooseleaf_vary_r",
            Op::SetChooseLeafStable => "set_chooseleaf_stable",
        }
    }
    pub fn from_code(code: u32) -> Option<Op> {
        use Op::*;
        [
            Noop,
            Take,
            ChooseFirstN,
            ChooseIndep,
            Emit,
            ChooseLeafFirstN,
            ChooseLeafIndep,
            SetChooseTries,
            SetChooseLeafTries,
            SetChooseLocalTries,
            SetChooseLocalFallbackTries,
            SetChooseLeafVaryR,
            SetChooseLeafStable,
        ]
        .into_iter()
        .find(|op| *op as u32 == code)
    }
    pub fn step(self, arg1: i32, arg2: i32) -> RuleStep {
        RuleStep { op: self as u32, arg1, arg2 }
    }
}

/// Other weights and ids than the buckets' own, by bucket slot, for straw2 only.
pub type ChooseArgs = BTreeMap<u32, ChooseArg>;

/// Ceph: `crush_choose_arg`. Empty means: as in the bucket.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ChooseArg {
    /// Weights of all items per position in the result; the last stands for all further positions.
    pub weight_sets: Vec<Vec<u32>>,
    pub ids: Vec<i32>,
}

impl CrushMap {
    /// The bucket with this (negative) id.
    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        self.buckets.get(slot(id)?)?.as_ref()
    }
    pub fn bucket_mut(&mut self, id: i32) -> Option<&mut Bucket> {
        self.buckets.get_mut(slot(id)?)?.as_mut()
    }
    pub fn rule(&self, id: u32) -> Option<&Rule> {
        self.rules.get(id as usize)?.as_ref()
    }
    pub fn item_by_name(&self, name: &str) -> Option<i32> {
        key_of(&self.names, name)
    }
    pub fn type_by_name(&self, name: &str) -> Option<i32> {
        key_of(&self.types, name)
    }
    pub fn class_by_name(&self, name: &str) -> Option<i32> {
        key_of(&self.class_names, name)
    }
    pub fn rule_by_name(&self, name: &str) -> Option<u32> {
        key_of(&self.rule_names, name).and_then(|id| u32::try_from(id).ok())
    }
}

/// Where the bucket with this id is in `CrushMap::buckets`; none for devices.
pub(crate) fn slot(id: i32) -> Option<usize> {
    usize::try_from(-1 - i64::from(id)).ok()
}

pub(crate) fn key_of(names: &BTreeMap<i32, String>, name: &str) -> Option<i32> {
    names.iter().find(|(_, have)| *have == name).map(|(&key, _)| key)
}
