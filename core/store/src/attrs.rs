//! An object's attributes, packed into one allocation.
//!
//! Most objects have two or three attributes, and there are as many of these maps as objects: a map or a
//! list with an allocation for each name and value would be the larger part of the index.

use bytes::Bytes;
use nacre_base::Name;
use nacre_wire::Encode;
use std::collections::BTreeMap;

/// A map in one piece: for each attribute, in order, the length of its name, the name, the length of its
/// value, the value. That is also how it is encoded, after the number of attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attrs(Box<[u8]>);

/// Of a name or of a value.
const LEN: usize = 4;

struct Entry<'a> {
    /// Where it begins and ends in the whole.
    start: usize,
    end: usize,
    name: &'a [u8],
    value: &'a [u8],
}

impl Attrs {
    pub fn of(map: &BTreeMap<Name, Bytes>) -> Attrs {
        let mut whole = Vec::with_capacity(map.iter().map(|(k, v)| 2 * LEN + k.len() + v.len()).sum());
        for part in map.iter().flat_map(|(name, value)| [name.as_bytes(), &value[..]]) {
            u32::try_from(part.len()).expect("attributes are short").encode(&mut whole);
            whole.extend_from_slice(part);
        }
        Attrs(whole.into_boxed_slice())
    }
    pub fn get(&self, name: &[u8]) -> Option<Bytes> {
        self.find(name).map(|entry| Bytes::copy_from_slice(entry.value))
    }
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        let (start, end) = match self.find(name) {
            Some(entry) => (entry.start, entry.end),
            None => {
                let next = self.entries().find(|entry| entry.name > name);
                let at = next.map_or(self.0.len(), |entry| entry.start);
                (at, at)
            }
        };
        let len = self.0.len() - (end - start) + 2 * LEN + name.len() + value.len();
        let mut whole = Vec::with_capacity(len);
        whole.extend_from_slice(&self.0[..start]);
        for part in [name, value] {
            u32::try_from(part.len()).expect("attributes are short").encode(&mut whole);
            whole.extend_from_slice(part);
        }
        whole.extend_from_slice(&self.0[end..]);
        self.0 = whole.into_boxed_slice();
    }
    pub fn remove(&mut self, name: &[u8]) {
        let Some(Entry { start, end, .. }) = self.find(name) else { return };
        self.0 = [&self.0[..start], &self.0[end..]].concat().into_boxed_slice();
    }
    pub fn to_map(&self) -> BTreeMap<Name, Bytes> {
        let pair = |entry: Entry| (Name::copy_from(entry.name), Bytes::copy_from_slice(entry.value));
        self.entries().map(pair).collect()
    }
    /// Bytes of names, values and their lengths.
    pub fn cost(&self) -> u64 {
        self.0.len() as u64
    }

    fn find(&self, name: &[u8]) -> Option<Entry<'_>> {
        self.entries().find(|entry| entry.name == name)
    }
    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at;
            let mut part = || {
                let (len, rest) = self.0[at..].split_first_chunk::<LEN>()?;
                let len = u32::from_le_bytes(*len) as usize;
                at += LEN + len;
                Some(&rest[..len])
            };
            let (name, value) = (part()?, part()?);
            Some(Entry { start, end: at, name, value })
        })
    }
}

/// As a map.
impl Encode for Attrs {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.entries().count() as u32).encode(out);
        out.extend_from_slice(&self.0);
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
            let name = Name::from(format!("{}", rng.below(12)));
            if rng.chance(600) {
                let value = Bytes::from(vec![rng.below(256) as u8; rng.below(5) as usize]);
                attrs.set(name.as_bytes(), &value);
                map.insert(name, value);
            } else {
                attrs.remove(name.as_bytes());
                map.remove(&name);
            }
            assert_eq!(attrs.to_map(), map);
            assert_eq!(Attrs::of(&map), attrs);
            assert_eq!(to_vec(&attrs), to_vec(&map));
            assert_eq!(attrs.cost() + 4, to_vec(&map).len() as u64);
            assert!(map.iter().all(|(name, value)| attrs.get(name.as_bytes()).as_ref() == Some(value)));
        }
    }
}
