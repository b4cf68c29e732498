//! What the agent of a host said last, kept with what was parsed of it.

use nacre_wire::{Decode, DecodeError, Encode, Reader};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// Texts by name. The fact `devices` is parsed when it is first asked for, and again after a change: health
/// is evaluated every second, and on request, and a host may have a hundred disks.
#[derive(Clone, Default)]
pub struct Facts {
    texts: BTreeMap<String, String>,
    /// Of `texts` as they are. Copies share it.
    devices: Arc<OnceLock<Vec<Value>>>,
}

impl Facts {
    /// The devices of the host: JSON objects. None if what the agent said is no list of such.
    pub fn devices(&self) -> &[Value] {
        let parse = || {
            let text = self.texts.get("devices").map(String::as_str).unwrap_or_default();
            serde_json::from_str(text).unwrap_or_default()
        };
        self.devices.get_or_init(parse)
    }
}

impl Deref for Facts {
    type Target = BTreeMap<String, String>;
    fn deref(&self) -> &Self::Target {
        &self.texts
    }
}
impl DerefMut for Facts {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.devices = Arc::default();
        &mut self.texts
    }
}
impl PartialEq for Facts {
    fn eq(&self, other: &Facts) -> bool {
        self.texts == other.texts
    }
}
impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.texts.fmt(f)
    }
}
impl From<BTreeMap<String, String>> for Facts {
    fn from(texts: BTreeMap<String, String>) -> Facts {
        Facts { texts, devices: Arc::default() }
    }
}
impl Encode for Facts {
    fn encode(&self, out: &mut Vec<u8>) {
        self.texts.encode(out);
    }
}
impl Decode for Facts {
    fn decode(r: &mut Reader<'_>) -> Result<Facts, DecodeError> {
        Ok(BTreeMap::decode(r)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_parsed_once_until_the_facts_change() {
        let mut facts = Facts::default();
        facts.insert("devices".to_string(), r#"[{ "path": "/dev/vdb" }]"#.to_string());
        let first = facts.devices();
        assert_eq!(first[0]["path"], "/dev/vdb");
        assert!(std::ptr::eq(first, facts.devices()));
        let mut copy = facts.clone();
        assert!(std::ptr::eq(facts.devices(), copy.devices()), "the next state has what this one parsed");
        copy.remove("devices");
        assert_eq!((copy.devices().len(), facts.devices().len()), (0, 1));
    }
}
