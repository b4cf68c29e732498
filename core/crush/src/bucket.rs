//! Buckets from items and weights: what each algorithm keeps besides the weights.

use crate::build::EditError;
use crate::map::{Bucket, Items};

/// Ceph keeps the number of a tree's nodes in one byte.
const TREE_ITEMS_MAX: usize = 64;

impl Bucket {
    /// A bucket of algorithm `alg` (Ceph's number). A uniform one takes the first item's weight for all.
    pub(crate) fn make(
        id: i32,
        kind: u16,
        alg: u8,
        content: &[(i32, u32)],
        straw_version: u8,
    ) -> Result<Bucket, EditError> {
        let (items, weights): (Vec<i32>, Vec<u32>) = content.iter().copied().unzip();
        let overflow = EditError::TooHeavy { bucket: id };
        let weight = weights.iter().try_fold(0_u32, |sum, &weight| sum.checked_add(weight));
        let mut weight = weight.ok_or(overflow.clone())?;
        let alg = match alg {
            1 => {
                let item_weight = weights.first().copied().unwrap_or(0);
                weight = u32::try_from(items.len())
                    .ok()
                    .and_then(|n| n.checked_mul(item_weight))
                    .ok_or(overflow)?;
                Items::Uniform { item_weight }
            }
            2 => {
                let sums = weights.iter().scan(0, |sum, weight| {
                    *sum += weight;
                    Some(*sum)
                });
                Items::List { sums: sums.collect(), weights }
            }
            3 if items.len() > TREE_ITEMS_MAX => return Err(EditError::TreeFull { bucket: id }),
            3 => Items::Tree { nodes: tree(&weights) },
            4 => Items::Straw { straws: straws(&weights, straw_version), weights },
            _ => Items::Straw2 { weights },
        };
        Ok(Bucket { id, kind, weight, items, alg })
    }

    /// The items with their weights.
    pub fn content(&self) -> Vec<(i32, u32)> {
        self.items.iter().enumerate().map(|(index, &item)| (item, self.item_weight(index))).collect()
    }
}

fn tree(weights: &[u32]) -> Vec<u32> {
    let mut nodes = vec![0; 2 * weights.len().next_power_of_two()];
    for (index, weight) in weights.iter().enumerate() {
        let mut node = 2 * index + 1;
        nodes[node] = *weight;
        while node != nodes.len() / 2 {
            let half = 1 << node.trailing_zeros();
            node = if node & (half << 1) != 0 { node - half } else { node + half };
            nodes[node] += weight;
        }
    }
    nodes
}

/// The first straw algorithm's lengths: each next heavier item gets a longer straw, by the probability
/// that the lighter ones lose to it. Version 0 miscounts zero and equal weights; old maps depend on it.
fn straws(weights: &[u32], version: u8) -> Vec<u32> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&index| weights[index]); // stable
    let mut straws = vec![0; weights.len()];
    let (mut straw, mut below, mut last) = (1.0_f64, 0.0_f64, 0.0_f64);
    let mut left = weights.len() as i64;
    for (at, &index) in order.iter().enumerate() {
        let weight = weights[index];
        if weight == 0 {
            left -= i64::from(version > 0);
            continue;
        }
        straws[index] = (straw * 65536.0) as u32;
        let Some(&next) = order.get(at + 1) else { break };
        let next = weights[next];
        if version == 0 && next == weight {
            continue;
        }
        below += (f64::from(weight) - last) * left as f64;
        left -= if version == 0 {
            order[at + 1..].iter().filter(|&&other| weights[other] == next).count() as i64
        } else {
            1
        };
        let step = left as f64 * f64::from(next - weight);
        straw *= ((below + step) / below).powf(1.0 / left as f64);
        last = f64::from(weight);
    }
    straws
}
