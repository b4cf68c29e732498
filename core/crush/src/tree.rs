//! Walks over a map, for `ceph osd tree` and its like.

use crate::map::{CrushMap, slot};

/// One line of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub id: i32,
    /// The bucket whose item this is; none for a root.
    pub parent: Option<i32>,
    /// Zero for a root.
    pub depth: usize,
    /// As its parent has it, 16.16.
    pub weight: u32,
}

impl CrushMap {
    /// The buckets that are in no other, in the order of their ids; shadow trees only if asked for.
    pub fn roots(&self, shadows: bool) -> Vec<i32> {
        let mut held = vec![false; self.buckets.len()];
        for &item in self.buckets.iter().flatten().flat_map(|bucket| &bucket.items) {
            if let Some(held) = slot(item).and_then(|at| held.get_mut(at)) {
                *held = true;
            }
        }
        let roots = self.buckets.iter().zip(held).rev().filter(|(_, held)| !held);
        let roots = roots.filter_map(|(bucket, _)| Some(bucket.as_ref()?.id));
        roots.filter(|&id| shadows || !self.is_shadow(id)).collect()
    }

    /// `top` and all below it, each followed by what is below it, in the buckets' own order. Needs a
    /// valid map (see `validate`): a cycle would be walked forever.
    pub fn walk(&self, top: i32) -> impl Iterator<Item = Node> {
        let weight = self.bucket(top).map_or(0, |bucket| bucket.weight);
        let mut left = vec![Node { id: top, parent: None, depth: 0, weight }];
        std::iter::from_fn(move || {
            let node = left.pop()?;
            if let Some(bucket) = self.bucket(node.id) {
                let below = bucket.content().into_iter().rev();
                let parent = Some(node.id);
                left.extend(below.map(|(id, weight)| Node { id, parent, depth: node.depth + 1, weight }));
            }
            Some(node)
        })
    }

    /// The devices at and below `top`.
    pub fn devices_below(&self, top: i32) -> impl Iterator<Item = i32> {
        self.walk(top).map(|node| node.id).filter(|&id| id >= 0)
    }

    /// Where an item is, from its own bucket up: (type name, bucket name). Shadow trees do not count.
    pub fn location(&self, item: i32) -> Vec<(String, String)> {
        let mut path = Vec::new();
        let mut at = item;
        let parent_of = |id| self.parents(id).into_iter().find(|&parent| !self.is_shadow(parent));
        while let Some(bucket) = parent_of(at).and_then(|id| self.bucket(id)) {
            at = bucket.id;
            path.push((self.type_name(bucket.kind.into()), self.names.get(&at).cloned().unwrap_or_default()));
            if path.len() > self.buckets.len() {
                break; // a cycle, which `validate` refuses
            }
        }
        path
    }

    fn type_name(&self, kind: i32) -> String {
        self.types.get(&kind).cloned().unwrap_or_else(|| format!("type{kind}"))
    }
}
