//! The config-key store: values that clients and modules keep under keys.

use crate::state::{Applying, Genesis, Rejected, Slice};
use bytes::Bytes;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct KeyValues {
    pub pairs: BTreeMap<String, Bytes>,
}

impl Slice for KeyValues {
    /// None removes.
    type Delta = Vec<(String, Option<Bytes>)>;

    fn begin(_: &Genesis) -> Result<KeyValues, Rejected> {
        Ok(KeyValues::default())
    }
    fn apply(&mut self, delta: &Self::Delta, _: &Applying) {
        for (key, value) in delta {
            match value {
                Some(value) => drop(self.pairs.insert(key.clone(), value.clone())),
                None => drop(self.pairs.remove(key)),
            }
        }
    }
    fn delta_bytes(delta: &Self::Delta) -> usize {
        delta.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Bytes::len)).sum()
    }
    fn client_bytes(&self) -> usize {
        self.pairs.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}
