//! The map as bytes: Ceph's `CrushWrapper::encode`, with everything a Luminous or later peer reads.
//!
//! There is no envelope. Parts were appended over the years, so a map may end early: after the rule
//! names, and after each group of tunables, classes and choose_args.

use crate::map::{Bucket, ChooseArg, ChooseArgs, CrushMap, Items, Rule, RuleStep, Tunables};
use nacre_wire::{Decode, DecodeError, Encode, Reader, encode_map};
use std::collections::BTreeMap;

const MAGIC: u32 = 0x0001_0000;

impl Encode for CrushMap {
    fn encode(&self, out: &mut Vec<u8>) {
        MAGIC.encode(out);
        (self.buckets.len() as i32).encode(out);
        (self.rules.len() as u32).encode(out);
        self.max_devices.encode(out);
        for bucket in &self.buckets {
            match bucket {
                Some(bucket) => bucket.encode(out),
                None => 0_u32.encode(out),
            }
        }
        for rule in &self.rules {
            match rule {
                Some(rule) => rule.encode(out),
                None => 0_u32.encode(out),
            }
        }
        self.types.encode(out);
        self.names.encode(out);
        self.rule_names.encode(out);
        self.tunables.encode(out);
        self.class_of.encode(out);
        self.class_names.encode(out);
        self.shadows.encode(out);
        encode_map(out, self.choose_args.iter());
    }
}

impl Decode for CrushMap {
    /// Refuses what `validate` refuses, so that a decoded map can be mapped and walked.
    fn decode(r: &mut Reader<'_>) -> Result<CrushMap, DecodeError> {
        let magic = u32::decode(r)?;
        if magic != MAGIC {
            return Err(bad("crush magic", magic));
        }
        let (max_buckets, max_rules) = (u32::decode(r)? as usize, u32::decode(r)? as usize);
        let mut map = CrushMap { max_devices: i32::decode(r)?, ..CrushMap::default() };
        map.buckets = slots(r, max_buckets, decode_bucket)?;
        map.rules = slots(r, max_rules, decode_rule)?;
        map.types = names(r, "crush type name")?;
        map.names = names(r, "crush item name")?;
        map.rule_names = names(r, "crush rule name")?;
        map.tunables = decode_tunables(r)?;
        if !r.is_empty() {
            map.class_of = BTreeMap::decode(r)?;
            map.class_names = names(r, "crush class name")?;
            map.shadows = BTreeMap::decode(r)?;
        }
        if !r.is_empty() {
            let count = r.count(12)?;
            for _ in 0..count {
                map.choose_args.insert(i64::decode(r)?, ChooseArgs::decode(r)?);
            }
        }
        // The error type carries one number; the text that an administrator needs comes from
        // `validate`, which is called apart for a map that comes from an administrator.
        map.validate().map_err(|_| bad("crush map", max_buckets as u32))?;
        Ok(map)
    }
}

fn bad(what: &'static str, value: u32) -> DecodeError {
    DecodeError::BadValue { what, value: u64::from(value) }
}

/// `count` slots, each starting with a `u32` that is zero when it is empty.
fn slots<T>(
    r: &mut Reader<'_>,
    count: usize,
    item: impl Fn(&mut Reader<'_>, u32) -> Result<T, DecodeError>,
) -> Result<Vec<Option<T>>, DecodeError> {
    let needed = count.saturating_mul(4);
    if needed > r.remaining() {
        return Err(DecodeError::Short { needed, left: r.remaining() });
    }
    let mut all = Vec::new();
    for _ in 0..count {
        let head = u32::decode(r)?;
        all.push(if head == 0 { None } else { Some(item(r, head)?) });
    }
    Ok(all)
}

/// Names must be text, and not empty: Ceph reads an empty one as part of an older encoding.
fn names(r: &mut Reader<'_>, what: &'static str) -> Result<BTreeMap<i32, String>, DecodeError> {
    let count = r.count(8)?;
    (0..count)
        .map(|_| {
            let key = i32::decode(r)?;
            let name = std::str::from_utf8(r.bytes()?).ok().filter(|name| !name.is_empty());
            Ok((key, String::from(name.ok_or(bad(what, key as u32))?)))
        })
        .collect()
}

impl Encode for Bucket {
    fn encode(&self, out: &mut Vec<u8>) {
        u32::from(self.alg.code()).encode(out);
        self.id.encode(out);
        self.kind.encode(out);
        self.alg.code().encode(out);
        0_u8.encode(out); // the hash: rjenkins1, the only one there is
        self.weight.encode(out);
        self.items.encode(out);
        match &self.alg {
            Items::Uniform { item_weight } => item_weight.encode(out),
            Items::List { weights: a, sums: b } | Items::Straw { weights: a, straws: b } => {
                a.iter().zip(b).for_each(|(a, b)| {
                    a.encode(out);
                    b.encode(out);
                });
            }
            Items::Tree { nodes } => {
                (nodes.len() as u8).encode(out);
                nodes.iter().for_each(|node| node.encode(out));
            }
            Items::Straw2 { weights } => weights.iter().for_each(|weight| weight.encode(out)),
        }
    }
}

fn decode_bucket(r: &mut Reader<'_>, alg: u32) -> Result<Bucket, DecodeError> {
    let (id, kind) = (i32::decode(r)?, u16::decode(r)?);
    let [again, hash] = r.array()?;
    if u32::from(again) != alg {
        return Err(bad("crush bucket algorithm", alg));
    }
    if hash != 0 {
        return Err(bad("crush bucket hash", u32::from(hash)));
    }
    let weight = u32::decode(r)?;
    let size = r.count(4)?;
    let items = (0..size).map(|_| i32::decode(r)).collect::<Result<_, _>>()?;
    let alg = match alg {
        1 => Items::Uniform { item_weight: u32::decode(r)? },
        2 => {
            let (weights, sums) = pairs(r, size)?;
            Items::List { weights, sums }
        }
        3 => {
            let nodes = usize::from(u8::decode(r)?);
            Items::Tree { nodes: numbers(r, nodes)? }
        }
        4 => {
            let (weights, straws) = pairs(r, size)?;
            Items::Straw { weights, straws }
        }
        5 => Items::Straw2 { weights: numbers(r, size)? },
        _ => return Err(bad("crush bucket algorithm", alg)),
    };
    Ok(Bucket { id, kind, weight, items, alg })
}

fn numbers(r: &mut Reader<'_>, count: usize) -> Result<Vec<u32>, DecodeError> {
    let bytes = r.take(count.saturating_mul(4))?;
    Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn pairs(r: &mut Reader<'_>, count: usize) -> Result<(Vec<u32>, Vec<u32>), DecodeError> {
    Ok(numbers(r, count.saturating_mul(2))?.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip())
}

impl Encode for Rule {
    fn encode(&self, out: &mut Vec<u8>) {
        1_u32.encode(out); // present
        (self.steps.len() as u32).encode(out);
        out.extend([self.ruleset, self.kind, self.min_size, self.max_size]);
        for step in &self.steps {
            step.op.encode(out);
            step.arg1.encode(out);
            step.arg2.encode(out);
        }
    }
}

fn decode_rule(r: &mut Reader<'_>, _present: u32) -> Result<Rule, DecodeError> {
    let len = r.count(12)?;
    let [ruleset, kind, min_size, max_size] = r.array()?;
    let step = |r: &mut Reader<'_>| {
        Ok(RuleStep { op: u32::decode(r)?, arg1: i32::decode(r)?, arg2: i32::decode(r)? })
    };
    let steps = (0..len).map(|_| step(r)).collect::<Result<_, DecodeError>>()?;
    Ok(Rule { ruleset, kind, min_size, max_size, steps })
}

impl Encode for Tunables {
    fn encode(&self, out: &mut Vec<u8>) {
        self.choose_local_tries.encode(out);
        self.choose_local_fallback_tries.encode(out);
        self.choose_total_tries.encode(out);
        self.chooseleaf_descend_once.encode(out);
        self.chooseleaf_vary_r.encode(out);
        self.straw_calc_version.encode(out);
        self.allowed_bucket_algs.encode(out);
        self.chooseleaf_stable.encode(out);
    }
}

fn decode_tunables(r: &mut Reader<'_>) -> Result<Tunables, DecodeError> {
    let mut tunables = Tunables::legacy();
    if !r.is_empty() {
        tunables.choose_local_tries = u32::decode(r)?;
        tunables.choose_local_fallback_tries = u32::decode(r)?;
        tunables.choose_total_tries = u32::decode(r)?;
    }
    if !r.is_empty() {
        tunables.chooseleaf_descend_once = u32::decode(r)?;
    }
    if !r.is_empty() {
        tunables.chooseleaf_vary_r = u8::decode(r)?;
    }
    if !r.is_empty() {
        tunables.straw_calc_version = u8::decode(r)?;
    }
    if !r.is_empty() {
        tunables.allowed_bucket_algs = u32::decode(r)?;
    }
    if !r.is_empty() {
        tunables.chooseleaf_stable = u8::decode(r)?;
    }
    Ok(tunables)
}

impl Encode for ChooseArg {
    fn encode(&self, out: &mut Vec<u8>) {
        self.weight_sets.encode(out);
        self.ids.encode(out);
    }
}

impl Decode for ChooseArg {
    fn decode(r: &mut Reader<'_>) -> Result<ChooseArg, DecodeError> {
        Ok(ChooseArg { weight_sets: Vec::decode(r)?, ids: Vec::decode(r)? })
    }
}
