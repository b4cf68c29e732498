//! What every map must satisfy, from wherever it came.

use crate::map::{Bucket, CrushMap, Items, slot};

/// Why a map is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("slot {slot} holds a bucket with id {id}")]
    WrongSlot { slot: usize, id: i32 },
    #[error("bucket {bucket} has type 0, which is the devices'")]
    DeviceType { bucket: i32 },
    #[error("bucket {bucket} holds {item}, which does not exist")]
    Dangling { bucket: i32, item: i32 },
    #[error("bucket {bucket} contains itself")]
    Cycle { bucket: i32 },
    #[error("bucket {bucket} has {len} weights for {items} items")]
    Weights { bucket: i32, len: usize, items: usize },
    #[error("max_devices is {0}")]
    MaxDevices(i32),
    #[error("choose_args {set} has {len} values for the {items} items of bucket {bucket}")]
    ChooseArgs { set: i64, bucket: i32, len: usize, items: usize },
}

impl CrushMap {
    /// Checks what the mapper and the walks rely on: ids, references, lengths, and that no bucket
    /// contains itself. Linear in the map's size.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.max_devices < 0 {
            return Err(Invalid::MaxDevices(self.max_devices));
        }
        for (slot, bucket) in self.buckets.iter().enumerate() {
            if let Some(bucket) = bucket {
                self.validate_bucket(slot, bucket)?;
            }
        }
        self.validate_no_cycle()?;
        for (&set, args) in &self.choose_args {
            for (&at, arg) in args {
                // Ceph leaves the arguments of a removed bucket in place; nothing reads them.
                let Some(Some(bucket)) = self.buckets.get(at as usize) else { continue };
                let items = bucket.items.len();
                let ids = Some(arg.ids.len()).filter(|&len| len != 0);
                for len in arg.weight_sets.iter().map(Vec::len).chain(ids) {
                    if len != items {
                        return Err(Invalid::ChooseArgs { set, bucket: bucket.id, len, items });
                    }
                }
            }
        }
        Ok(())
    }

    fn validate_bucket(&self, at: usize, bucket: &Bucket) -> Result<(), Invalid> {
        if slot(bucket.id) != Some(at) {
            return Err(Invalid::WrongSlot { slot: at, id: bucket.id });
        }
        if bucket.kind == 0 {
            return Err(Invalid::DeviceType { bucket: bucket.id });
        }
        if let Some(&item) = bucket.items.iter().find(|&&item| item < 0 && self.bucket(item).is_none()) {
            return Err(Invalid::Dangling { bucket: bucket.id, item });
        }
        let items = bucket.items.len();
        let len = match &bucket.alg {
            Items::Uniform { .. } => items,
            Items::List { weights, sums: both } | Items::Straw { weights, straws: both } => {
                if weights.len() == items { both.len() } else { weights.len() }
            }
            Items::Straw2 { weights } => weights.len(),
            // Every item has a node, and a root in the middle needs a power of two.
            Items::Tree { nodes }
                if items == 0 || (nodes.len().is_power_of_two() && nodes.len() >= 2 * items) =>
            {
                items
            }
            Items::Tree { nodes } => nodes.len(),
        };
        if len != items {
            return Err(Invalid::Weights { bucket: bucket.id, len, items });
        }
        Ok(())
    }

    /// Takes away buckets that no remaining bucket holds, until none is left; what stays is a cycle.
    fn validate_no_cycle(&self) -> Result<(), Invalid> {
        let children = |bucket: &'_ Bucket| -> Vec<usize> {
            bucket.items.iter().filter_map(|&item| slot(item)).collect()
        };
        let mut parents = vec![0_usize; self.buckets.len()];
        for bucket in self.buckets.iter().flatten() {
            children(bucket).into_iter().for_each(|child| parents[child] += 1);
        }
        let mut free: Vec<usize> = (0..parents.len()).filter(|&at| parents[at] == 0).collect();
        while let Some(at) = free.pop() {
            for child in self.buckets[at].iter().flat_map(children) {
                parents[child] -= 1;
                if parents[child] == 0 {
                    free.push(child);
                }
            }
        }
        match parents.iter().position(|&n| n > 0) {
            Some(at) => Err(Invalid::Cycle { bucket: -1 - at as i32 }),
            None => Ok(()),
        }
    }
}
