//! The map of a bucket's leaves, as far as this gateway knows it.

use super::{OpResult, Place, Refusal, output};
use crate::leaf::{LeafName, LeafRange, pairs};
use bytes::Bytes;
use nacre_base::Name;
use nacre_client::ObjectRequest;
use nacre_wire::from_slice;
use std::collections::BTreeMap;
use std::ops::Bound;

/// How many leaves are read at once.
const PAGE: u64 = 1000;

/// Leaves by their lowest key. It may be older than the leaves: those say where their keys are now.
#[derive(Debug, Default)]
pub struct Root {
    leaves: BTreeMap<Bytes, LeafName>,
    state: State,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unknown,
    /// What is read is behind this key.
    Loading(Name),
    Known,
}

impl Root {
    /// Whether all leaves were read.
    pub fn is_known(&self) -> bool {
        self.state == State::Known
    }

    /// Whether the caller is to send the first request.
    pub fn begin_loading(&mut self) -> bool {
        let begins = self.state == State::Unknown;
        if begins {
            self.leaves.clear();
            self.state = State::Loading(Name::default());
        }
        begins
    }

    /// The map is to be read again.
    pub fn forget(&mut self) {
        if self.state == State::Known {
            self.state = State::Unknown;
        }
    }

    /// Reads the next page of the map.
    pub fn request(&self, place: &Place) -> ObjectRequest {
        let after = match &self.state {
            State::Loading(after) => after.clone(),
            _ => Name::default(),
        };
        ObjectRequest::new(place.pool, LeafName::root(&place.bucket)).omap_get(after, PAGE)
    }

    /// Takes a page; whether it was the last. After a failure the map is unknown.
    pub fn loaded(&mut self, result: OpResult) -> Result<bool, Refusal> {
        self.state = State::Unknown;
        let reply = result.map_err(|failure| match failure.is_not_found() {
            true => Refusal::NoSuchBucket,
            false => failure.into(),
        })?;
        let (pairs, more) = pairs(output(&reply, 0)?)?;
        for (key, value) in &pairs {
            if let Some(low) = key.as_bytes().strip_prefix(b"l") {
                self.leaves.insert(Bytes::copy_from_slice(low), from_slice(value)?);
            }
        }
        if let (true, Some(last)) = (more, pairs.into_keys().next_back()) {
            self.state = State::Loading(last);
            return Ok(false);
        }
        if !self.leaves.contains_key(&b""[..]) {
            return Err(Refusal::Corrupt("the map of leaves does not have the first".into()));
        }
        self.state = State::Known;
        Ok(true)
    }

    /// The leaf that should have a key.
    pub fn leaf_of(&self, key: &[u8]) -> LeafName {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let found = self.leaves.range::<[u8], _>(upto).next_back();
        found.expect("a known map has the first leaf").1.clone()
    }

    /// Notes what a leaf says that does not have a key which this map says it has. Fails if the map still
    /// names that leaf: a request would read it for ever.
    pub fn follow(&mut self, leaf: &LeafName, range: &LeafRange, key: &[u8]) -> Result<(), Refusal> {
        self.learn(leaf, range);
        if self.is_known() && self.leaf_of(key) == *leaf {
            let why = format!("{leaf:?} does not have a key that the map says it has");
            return Err(Refusal::Corrupt(why));
        }
        Ok(())
    }

    /// Notes what a leaf says about itself and its neighbour.
    pub fn learn(&mut self, leaf: &LeafName, range: &LeafRange) {
        if self.state != State::Known {
            return;
        }
        self.leaves.insert(range.low.clone(), leaf.clone());
        if let (Some(high), Some(right)) = (&range.high, &range.right) {
            self.leaves.entry(high.clone()).or_insert_with(|| right.clone());
        }
    }
}
