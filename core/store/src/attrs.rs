//! An object's attributes. Most have two or three, and there are as many of these as objects: a map with
//! room for eleven in each would be the larger part of the index.

use bytes::Bytes;
use nacre_base::Name;
use nacre_wire::{Encode, encode_map};
use std::collections::BTreeMap;

/// A map as a sorted list without spare room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attrs(Box<[(Name, Bytes)]>);

impl Attrs {
    pub fn get(&self, name: &[u8]) -> Option<&Bytes> {
        self.place(name).ok().map(|at| &self.0[at].1)
    }
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, &Bytes)> {
        self.0.iter().map(|(name, value)| (name, value))
    }
    /// Gives what it replaces.
    pub fn insert(&mut self, name: Name, value: Bytes) -> Option<Bytes> {
        match self.place(name.as_bytes()) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.change(|list| list.insert(at, (name, value)));
                None
            }
        }
    }
    pub fn remove(&mut self, name: &[u8]) -> Option<Bytes> {
        let at = self.place(name).ok()?;
        let mut removed = None;
        self.change(|list| removed = Some(list.remove(at).1));
        removed
    }
    pub fn to_map(&self) -> BTreeMap<Name, Bytes> {
        self.0.iter().cloned().collect()
    }

    fn place(&self, name: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|(at, _)| at.as_bytes().cmp(name))
    }
    fn change(&mut self, change: impl FnOnce(&mut Vec<(Name, Bytes)>)) {
        let mut list = std::mem::take(&mut self.0).into_vec();
        list.reserve_exact(1);
        change(&mut list);
        self.0 = list.into_boxed_slice();
    }
}

/// As a map.
impl Encode for Attrs {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_map(out, self.iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Rng;
    use nacre_wire::to_vec;

    #[test]
    fn they_agree_with_a_map() {
        let (mut attrs, mut map) = (Attrs::default(), BTreeMap::new());
        let mut rng = Rng::new(1);
        for _ in 0..500 {
            let name = Name::from(format!("{}", rng.below(8)));
            if rng.chance(600) {
                let value = Bytes::from(vec![rng.below(256) as u8]);
                assert_eq!(attrs.insert(name.clone(), value.clone()), map.insert(name, value));
            } else {
                assert_eq!(attrs.remove(name.as_bytes()), map.remove(&name));
            }
            assert_eq!(attrs.to_map(), map);
            assert_eq!(to_vec(&attrs), to_vec(&map));
            assert!(map.iter().all(|(name, value)| attrs.get(name.as_bytes()) == Some(value)));
        }
    }
}
