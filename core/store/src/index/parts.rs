//! Changing omaps that have parts. Those that an operation changes are in memory then (`Index::touched`).

use super::omap::{FIRST_MAX, PART_AIM, PART_MAX, PART_MIN, Part, Parts, part_id, whole_max};
use super::{Index, Moves, Op, Slot};
use bytes::Bytes;
use nacre_base::Name;
use nacre_proto::transaction::StoredId;
use std::collections::{BTreeMap, BTreeSet};

/// What the owners of a part take in a checkpoint.
pub(crate) const SHARE_COST: u64 = 12;

/// Which parts objects share.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// How many objects have a part, where it is more than one.
    shared: BTreeMap<u64, u32>,
    /// How many have each part of which that changed since the last checkpoint was begun.
    changed: BTreeMap<u64, u32>,
}

impl Shares {
    pub fn new(shared: BTreeMap<u64, u32>) -> Shares {
        Shares { shared, changed: BTreeMap::new() }
    }
    /// Of a part that somebody has.
    pub fn owners(&self, number: u64) -> u32 {
        self.shared.get(&number).copied().unwrap_or(1)
    }
    pub fn shared(&self) -> &BTreeMap<u64, u32> {
        &self.shared
    }
    /// What a checkpoint that begins now has to say.
    pub fn take_changed(&mut self) -> Vec<(u64, u32)> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }
    pub fn changed(&self) -> usize {
        self.changed.len()
    }
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        (self.shared.len() + self.changed.len()) * 24
    }
    fn set(&mut self, number: u64, owners: u32) {
        match owners {
            0 | 1 => drop(self.shared.remove(&number)),
            _ => drop(self.shared.insert(number, owners)),
        }
        self.changed.insert(number, owners);
    }
}

/// What an operation does to parts.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// They have to be in memory, and are not.
    pub absent: Vec<Part>,
    /// They may change, become others, or end. Only if that is asked for.
    pub all: Vec<u64>,
}

impl Index {
    fn parts(&self, id: &StoredId) -> Option<&Parts> {
        self.get(id).map(|object| &object.omap().parts).filter(|parts| !parts.is_empty())
    }

    /// What `op` will do to parts of this object's omap.
    pub fn touched(&self, id: &StoredId, op: &Op, wants_all: bool) -> Touched {
        let mut touched = Touched::default();
        // Most operations are none of these, and need no look-up.
        let may_touch = matches!(
            op,
            Op::OmapSet(_)
                | Op::OmapRemove(_)
                | Op::OmapRemoveRange { .. }
                | Op::OmapClear
                | Op::Remove
                | Op::CloneFrom(_)
                | Op::Lose
        );
        let Some(parts) = (if may_touch { self.parts(id) } else { None }) else { return touched };
        let list = parts.list();
        // Keys are in order, so that those of one part follow each other.
        let mut last = None;
        let mut change = |key: &Name, touched: &mut Touched| {
            let at = parts.at(key.as_bytes());
            if last.replace(at) == Some(at) {
                return;
            }
            if self.slot(&part_id(list[at].number)).is_none() {
                touched.absent.push(list[at].clone());
            }
            if wants_all {
                // What is left of it may be joined with a neighbour.
                let neighbours = at.saturating_sub(1)..(at + 2).min(list.len());
                touched.all.extend(list[neighbours].iter().map(|part| part.number));
            }
        };
        match op {
            Op::OmapSet(pairs) => pairs.keys().for_each(|key| change(key, &mut touched)),
            Op::OmapRemove(keys) => keys.iter().for_each(|key| change(key, &mut touched)),
            Op::OmapRemoveRange { begin, end } if begin < end => {
                change(begin, &mut touched);
                change(end, &mut touched);
                let between = parts.at(begin.as_bytes())..=parts.at(end.as_bytes());
                touched.all.extend(list[between].iter().filter(|_| wants_all).map(|part| part.number));
            }
            Op::OmapClear | Op::Remove | Op::CloneFrom(_) | Op::Lose => {
                touched.all.extend(list.iter().filter(|_| wants_all).map(|part| part.number));
            }
            _ => {}
        }
        touched
    }

    pub(super) fn omap_set(&mut self, id: &StoredId, pairs: BTreeMap<Name, Bytes>) {
        if self.parts(id).is_none() {
            self.edit(id, |object| {
                pairs.into_iter().for_each(|(key, value)| object.omap_mut().set(key, value));
            });
            return self.take_apart(id);
        }
        let mut parts = self.take_parts(id);
        // From behind, so that a part that becomes several moves none that comes next.
        let mut pairs = pairs.into_iter().rev().peekable();
        while let Some((last, _)) = pairs.peek() {
            let at = parts.at(last.as_bytes());
            let first = parts.list()[at].first.clone();
            self.edit_part(&mut parts, at, |omap| {
                while let Some((key, value)) = pairs.next_if(|(key, _)| *key >= first) {
                    omap.set(key, value);
                }
            });
            // One that cannot be read has not taken them.
            while pairs.next_if(|(key, _)| *key >= first).is_some() {}
            self.split(&mut parts, at);
        }
        self.put_parts(id, parts);
    }

    pub(super) fn omap_remove(&mut self, id: &StoredId, mut keys: BTreeSet<Name>) {
        if self.parts(id).is_none() {
            return self.edit(id, |object| {
                if object.omap.is_some() {
                    keys.iter().for_each(|key| object.omap_mut().remove(key));
                }
            });
        }
        let mut parts = self.take_parts(id);
        while let Some(last) = keys.last()
            && !parts.is_empty()
        {
            let at = parts.at(last.as_bytes());
            let these = keys.split_off(&parts.list()[at].first);
            self.edit_part(&mut parts, at, |omap| these.iter().for_each(|key| omap.remove(key)));
            self.tidy(&mut parts, at);
        }
        self.put_parts(id, parts);
    }

    /// Parts that are in the range as a whole end without being looked at.
    pub(super) fn omap_remove_range(&mut self, id: &StoredId, begin: &Name, end: &Name) {
        if begin >= end || self.parts(id).is_none() {
            return self.edit(id, |object| {
                if object.omap.is_some() {
                    object.omap_mut().remove_range(begin, end);
                }
            });
        }
        let mut parts = self.take_parts(id);
        let (first, last) = (parts.at(begin.as_bytes()), parts.at(end.as_bytes()));
        for at in [last, first].into_iter().take(if first == last { 1 } else { 2 }) {
            if *begin <= parts.list()[at].first && at < last {
                continue;
            }
            self.edit_part(&mut parts, at, |omap| omap.remove_range(begin, end));
        }
        let from = if *begin <= parts.list()[first].first { first } else { first + 1 };
        if from < last {
            for part in parts.remove(from..last) {
                self.release(&part);
            }
        }
        // What is left of the two is side by side now. Others are not looked at: their neighbours may be in a checkpoint
        // that nobody told.
        let is_left = first < last && first < from;
        for at in [first + 1, first].into_iter().skip(usize::from(!is_left)) {
            self.tidy(&mut parts, at);
        }
        self.put_parts(id, parts);
    }

    pub(super) fn omap_clear(&mut self, id: &StoredId) {
        let mut parts = Parts::default();
        self.edit(id, |object| {
            if let Some(omap) = object.omap.take() {
                parts = omap.parts.clone();
            }
        });
        parts.list().iter().for_each(|part| self.release(part));
    }

    /// Another object has these parts, too.
    pub(super) fn share(&mut self, parts: &Parts) {
        for part in parts.list() {
            let owners = self.shares.owners(part.number).saturating_add(1);
            self.shares.set(part.number, owners);
        }
    }
    /// An object has it no longer.
    pub(super) fn release(&mut self, part: &Part) {
        match self.shares.owners(part.number) {
            0 | 1 => self.end_part(part),
            owners => self.shares.set(part.number, owners - 1),
        }
    }
    fn end_part(&mut self, part: &Part) {
        let id = part_id(part.number);
        if self.slot(&id).is_some() {
            return self.remove(&id, &mut Moves::default());
        }
        // All that has to be known of it is that it is gone.
        self.total.weight.sub_of_said(part.weight());
        let (kept, _) = self.things.insert(&id, Slot::Gone(self.changed.mark));
        self.changed.encoded += super::bare_cost(&id);
        self.changed.ids.insert(kept);
    }

    /// Begins to edit an object, until `put_parts`. While they are out of it, `edit` may change its parts.
    fn take_parts(&mut self, id: &StoredId) -> Parts {
        let (object, _) = self.begin_edit(id).expect("what has parts can be read");
        std::mem::take(&mut object.omap_mut().parts)
    }
    fn put_parts(&mut self, id: &StoredId, mut parts: Parts) {
        let mut pairs = BTreeMap::new();
        if let [part] = parts.list()
            && part.cost <= PART_MAX / 2
            && self.is_alone(part)
        {
            let part = part_id(part.number);
            self.edit(&part, |object| pairs = object.omap_mut().take_pairs());
            self.remove(&part, &mut Moves::default());
            parts = Parts::default();
        }
        self.end_edit(id, |object| {
            let omap = object.omap_mut();
            omap.parts = parts;
            if !pairs.is_empty() {
                omap.replace_pairs(pairs);
            }
        });
    }
    /// Of an omap that became long.
    fn take_apart(&mut self, id: &StoredId) {
        if self.get(id).is_none_or(|object| object.omap().cost() <= whole_max(id)) {
            return;
        }
        let (object, _) = self.begin_edit(id).expect("it was looked at");
        let pairs = object.omap_mut().take_pairs();
        let mut parts = Parts::default();
        let part = self.new_part(Name::default(), pairs);
        parts.insert(0, part);
        self.split(&mut parts, 0);
        self.put_parts(id, parts);
    }

    fn new_part(&mut self, first: Name, pairs: BTreeMap<Name, Bytes>) -> Part {
        let number = self.next_part();
        let mut cost = 0;
        self.edit(&part_id(number), |object| {
            object.omap_mut().replace_pairs(pairs);
            cost = object.omap().cost();
        });
        Part { first, number, cost }
    }
    fn next_part(&mut self) -> u64 {
        self.total.parts += 1;
        self.total.parts
    }

    /// One that cannot be read stays so.
    fn edit_part(&mut self, parts: &mut Parts, at: usize, change: impl FnOnce(&mut super::omap::Omap)) {
        let part = parts.part_mut(at);
        let owners = self.shares.owners(part.number);
        if owners > 1 {
            let number = self.next_part();
            self.copy(&part_id(part.number), &part_id(number), &mut Moves::default());
            self.shares.set(part.number, owners - 1);
            part.number = number;
        }
        let id = part_id(part.number);
        let (_, slot) = self.things.get_or_make(&id, || Slot::Damaged(0));
        if !slot.exists() {
            // It was another's as well, which no store says of a part that is not shared.
            *slot = Slot::Damaged(0);
        }
        self.edit(&id, |object| {
            change(object.omap_mut());
            part.cost = object.omap().cost();
        });
    }
    /// Whether it is in memory, and nobody else's.
    fn is_alone(&self, part: &Part) -> bool {
        self.shares.owners(part.number) == 1 && self.get(&part_id(part.number)).is_some()
    }

    /// Makes several parts of one that became long.
    fn split(&mut self, parts: &mut Parts, at: usize) {
        let &Part { number, cost, .. } = &parts.list()[at];
        if cost <= PART_MAX {
            return; // as nearly always
        }
        let id = part_id(number);
        if self.get(&id).is_none() {
            return;
        }
        let aim = cost.div_ceil(cost.div_ceil(PART_AIM));
        let mut rest = BTreeMap::new();
        self.edit(&id, |object| rest = object.omap_mut().take_pairs());
        let mut firsts = Vec::new();
        let (mut len, mut before): (u64, Option<&Name>) = (0, None);
        for (key, value) in &rest {
            if len >= aim
                && let Some(before) = before
                && let Some(first) = between(before, key)
            {
                firsts.push(first);
                len = 0;
            }
            len += super::omap::pair_cost(key, value);
            before = Some(key);
        }
        let mut pieces = Vec::with_capacity(firsts.len());
        for first in firsts.into_iter().rev() {
            let pairs = rest.split_off(&first);
            pieces.push((first, pairs));
        }
        self.edit(&id, |object| object.omap_mut().replace_pairs(rest));
        parts.part_mut(at).cost = self.get(&id).map_or(0, |object| object.omap().cost());
        for (at, (first, pairs)) in (at + 1..).zip(pieces.into_iter().rev()) {
            let part = self.new_part(first, pairs);
            parts.insert(at, part);
        }
    }

    /// Ends a part that has nothing any more, and joins what became short with what is beside it.
    fn tidy(&mut self, parts: &mut Parts, at: usize) {
        let Some(part) = parts.list().get(at) else { return };
        if part.cost == 0 {
            for part in parts.remove(at..at + 1) {
                self.release(&part);
            }
            return;
        }
        if part.cost >= PART_MIN {
            return;
        }
        for left in [Some(at), at.checked_sub(1)].into_iter().flatten() {
            if let Some([one, two]) = parts.list().get(left..left + 2)
                && one.cost + two.cost <= PART_AIM
                && self.is_alone(one)
                && self.is_alone(two)
            {
                let (one, two) = (part_id(one.number), part_id(two.number));
                let mut pairs = BTreeMap::new();
                self.edit(&two, |object| pairs = object.omap_mut().take_pairs());
                self.remove(&two, &mut Moves::default());
                self.edit(&one, |object| {
                    pairs.into_iter().for_each(|(key, value)| object.omap_mut().set(key, value));
                });
                parts.remove(left + 1..left + 2);
                parts.part_mut(left).cost = self.get(&one).map_or(0, |object| object.omap().cost());
                return;
            }
        }
    }
}

/// The shortest key that is behind `before` and not behind `key`, if it is short enough for a part to begin with.
fn between(before: &Name, key: &Name) -> Option<Name> {
    let (before, key) = (before.as_bytes(), key.as_bytes());
    let same = before.iter().zip(key).take_while(|(a, b)| a == b).count();
    (same < FIRST_MAX).then(|| Name::copy_from(&key[..(same + 1).min(key.len())]))
}
