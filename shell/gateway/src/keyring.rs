//! The keys that objects' own keys are encrypted with.
//!
//! The omap of the object `ring` in the meta namespace has them, each encrypted with the gateways' key
//! (`secrets`), which is in the monitors' store: `sse-s3` for all that asks for no other, made when it is
//! first needed, and `kms/NAME` for each named key. A name is taken by a compare-and-set, so that of two
//! gateways that make a key at the same time one does, and no key is lost that something was encrypted with.

use crate::cipher::KEY_LEN;
use crate::secrets::{Secrets, fill, unreadable};
use crate::store::{Pools, Store};
use bytes::Bytes;
use nacre_base::{Name, errno};
use nacre_rados::{Compare, Failure, ObjectReply};
use nacre_s3::omap_page;
use nacre_wire::from_slice;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const RING: &str = "ring";
const OF_GATEWAYS: &str = "sse-s3";
const NAMED: &str = "kms/";
/// How long a key is used without looking whether it is still there.
const FRESH: Duration = Duration::from_secs(60);
/// The most named keys.
const KEYS_MAX: u64 = 1000;

/// A key of the cluster.
pub type RingKey = [u8; KEY_LEN];

/// Whether a text can be the name of a key.
pub fn is_key_name(name: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=128).contains(&name.len()) && name.chars().all(is_good)
}

/// Reads and makes keys.
pub struct KeyRing {
    store: Arc<Store>,
    known: Mutex<HashMap<String, (RingKey, Instant)>>,
}

impl KeyRing {
    /// Knows no key yet.
    pub fn new(store: Arc<Store>) -> KeyRing {
        KeyRing { store, known: Mutex::default() }
    }

    /// The key of all gateways, made if it is missing.
    pub async fn of_gateways(&self, secrets: &Secrets) -> Result<RingKey, Failure> {
        if let Some(key) = self.find(secrets, OF_GATEWAYS).await? {
            return Ok(key);
        }
        self.make(secrets, OF_GATEWAYS).await?;
        // Or another gateway did.
        self.find(secrets, OF_GATEWAYS).await?.ok_or_else(|| unreadable("it is gone again"))
    }

    /// A named key; none if there is no such key.
    pub async fn named(&self, secrets: &Secrets, name: &str) -> Result<Option<RingKey>, Failure> {
        match is_key_name(name) {
            true => self.find(secrets, &format!("{NAMED}{name}")).await,
            false => Ok(None),
        }
    }

    /// Makes a named key; false if there is one with this name.
    pub async fn create(&self, secrets: &Secrets, name: &str) -> Result<bool, Failure> {
        if self.names().await?.len() as u64 >= KEYS_MAX {
            return Err(Failure::new(errno::EDQUOT, format!("there are {KEYS_MAX} keys already")));
        }
        self.make(secrets, &format!("{NAMED}{name}")).await
    }

    /// Removes a named key; false if there is none with this name.
    pub async fn remove(&self, name: &str) -> Result<bool, Failure> {
        let place = format!("{NAMED}{name}");
        self.known.lock().expect("no code panics with it").remove(&place);
        let Some(pools) = self.store.find_pools().await? else { return Ok(false) };
        if self.read(pools, &place).await?.is_none() {
            return Ok(false);
        }
        pools.meta.run(pools.meta.object(RING).omap_remove([Name::from(place)])).await.map(|_| true)
    }

    /// The names of all named keys, in order.
    pub async fn names(&self) -> Result<Vec<String>, Failure> {
        let Some(pools) = self.store.find_pools().await? else { return Ok(Vec::new()) };
        let request = pools.meta.object(RING).omap_get(Name::from(NAMED), KEYS_MAX);
        let pairs = match pools.meta.run(request).await {
            Err(failure) if failure.is_not_found() => return Ok(Vec::new()),
            reply => omap_page(output(&reply?)?).map_err(unreadable)?.0,
        };
        let names = pairs.into_keys().map(|name| name.to_string());
        let names = names.filter_map(|name| Some(name.strip_prefix(NAMED)?.to_owned()));
        Ok(names.collect())
    }

    async fn read(&self, pools: &Pools, place: &str) -> Result<Option<Bytes>, Failure> {
        let request = pools.meta.object(RING).omap_get_keys([Name::from(place)].into());
        match pools.meta.run(request).await {
            Err(failure) if failure.is_not_found() => Ok(None),
            reply => {
                let found: BTreeMap<Name, Bytes> = from_slice(output(&reply?)?).map_err(unreadable)?;
                Ok(found.into_values().next())
            }
        }
    }

    async fn find(&self, secrets: &Secrets, place: &str) -> Result<Option<RingKey>, Failure> {
        let known = self.known.lock().expect("no code panics with it").get(place).copied();
        if let Some((key, _)) = known.filter(|(_, since)| since.elapsed() < FRESH) {
            return Ok(Some(key));
        }
        let since = Instant::now();
        let Some(pools) = self.store.find_pools().await? else { return Ok(None) };
        let Some(sealed) = self.read(pools, place).await? else {
            self.known.lock().expect("no code panics with it").remove(place);
            return Ok(None);
        };
        let key = secrets.open(place, &sealed).await?;
        let key: RingKey = key.try_into().map_err(|_| unreadable("it has another length"))?;
        self.known.lock().expect("no code panics with it").insert(place.to_owned(), (key, since));
        Ok(Some(key))
    }

    /// Makes a key; false if there is one at this place.
    async fn make(&self, secrets: &Secrets, place: &str) -> Result<bool, Failure> {
        let mut key = [0; KEY_LEN];
        fill(&mut key)?;
        let sealed = secrets.seal(place, &key).await?;
        let pools = self.store.pools().await?;
        // A comparison needs an object.
        pools.meta.run(pools.meta.object(RING).create(false)).await?;
        // What is not there is compared as if it were empty.
        let absent = pools.meta.object(RING).omap_compare(Name::from(place), Compare::Equal, Bytes::new());
        match pools.meta.run(absent.omap_set([(Name::from(place), sealed)])).await {
            Err(failure) if failure.errno == errno::ECANCELED => Ok(false),
            result => result.map(|_| true),
        }
    }
}

fn output(reply: &ObjectReply) -> Result<&[u8], Failure> {
    let op = reply.ops.first().ok_or_else(|| unreadable("a reply without its output"))?;
    Ok(&op.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_keys_are_words() {
        for good in ["a", "Key-1_x.y"] {
            assert!(is_key_name(good), "{good}");
        }
        for bad in ["", "a/b", "a b", "ä", &"x".repeat(129)] {
            assert!(!is_key_name(bad), "{bad}");
        }
    }
}
