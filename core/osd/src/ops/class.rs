//! Methods of object classes, run on a draft.

use super::data::{self, check_range};
use super::draft::Draft;
use super::{ATTR_NAME_LEN_MAX, Env, Errno, OpResult, Stop, attrs};
use bytes::Bytes;
use nacre_base::errno::{EINVAL, ENAMETOOLONG};
use nacre_base::{Name, Rng, Utime};
use nacre_cls::{Method, Object};
use nacre_proto::types::{EntityAddr, EntityName};
use std::collections::{BTreeMap, BTreeSet};

/// A negative errno for a class or method that there is not.
pub fn find(class: &Name, method: &Name) -> Result<&'static Method, Errno> {
    nacre_cls::find(&class.to_text(), &method.to_text()).map_err(|errno| -errno)
}

pub fn call(draft: &mut Draft<'_>, env: &Env, class: &Name, method: &Name, input: &[u8]) -> OpResult {
    let method = find(class, method).map_err(Stop::Failed)?;
    // The same numbers whenever the operations are run again for want of data.
    let seed = u64::from(env.version.epoch.0) << 40 ^ env.version.version;
    let version = env.user_version;
    let mut object = DraftObject { draft, version, interrupted: None, rng: Rng::new(seed) };
    let reply = nacre_cls::call(method, &mut object, &env.caller, input);
    reply.map_err(|stop| match stop {
        nacre_cls::Stop::Failed(errno) => Stop::Failed(-errno),
        nacre_cls::Stop::Interrupted => object.interrupted.expect("whoever interrupts says why"),
    })
}

struct DraftObject<'d, 'a> {
    draft: &'d mut Draft<'a>,
    version: u64,
    interrupted: Option<Stop>,
    rng: Rng,
}

impl DraftObject<'_, '_> {
    fn pass<T>(&mut self, result: Result<T, Stop>) -> Result<T, nacre_cls::Stop> {
        result.map_err(|stop| match stop {
            Stop::Failed(errno) => nacre_cls::Stop::Failed(-errno),
            stop => {
                self.interrupted = Some(stop);
                nacre_cls::Stop::Interrupted
            }
        })
    }
}

impl Object for DraftObject<'_, '_> {
    fn size(&self) -> Option<u64> {
        self.draft.exists.then_some(self.draft.size)
    }
    fn read(&mut self, offset: u64, len: u64) -> Result<Bytes, nacre_cls::Stop> {
        let start = offset.min(self.draft.size);
        let result = self.draft.read(start, len.min(self.draft.size - start));
        self.pass(result)
    }
    fn attr(&mut self, name: &Name) -> Result<Option<Bytes>, nacre_cls::Stop> {
        let result = self.draft.attr(&attrs::stored(name));
        self.pass(result)
    }
    fn attrs(&mut self) -> Result<BTreeMap<Name, Bytes>, nacre_cls::Stop> {
        let result = self.draft.attrs();
        let users = |(name, value): (Name, Bytes)| {
            let name = name.as_bytes().strip_prefix(b"_").filter(|name| !name.is_empty())?;
            Some((Name::copy_from(name), value))
        };
        Ok(self.pass(result)?.into_iter().filter_map(users).collect())
    }
    fn omap_get(&mut self, key: &Name) -> Result<Option<Bytes>, nacre_cls::Stop> {
        let result = self.draft.omap_get(key);
        self.pass(result)
    }
    fn omap_walk(
        &mut self,
        from: &[u8],
        each: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), nacre_cls::Stop> {
        let result = self.draft.omap_walk(from, each);
        self.pass(result)
    }
    fn omap_header(&mut self) -> Result<Bytes, nacre_cls::Stop> {
        let result = self.draft.omap_header();
        self.pass(result)
    }
    fn mtime(&self) -> Option<Utime> {
        self.draft.exists.then_some(self.draft.info.mtime)
    }
    /// A call that writes adds changes, which so tell it from the others.
    fn version(&self) -> (u64, u32) {
        (self.version, self.draft.changes.len() as u32)
    }
    fn snap_seq(&self) -> Option<u64> {
        self.draft.exists.then_some(self.draft.snap_set.seq.0)
    }
    fn watchers(&self) -> Vec<(EntityName, EntityAddr)> {
        let watchers = self.draft.info.watchers.iter();
        watchers.map(|(&(client, _), watcher)| (EntityName::client(client), watcher.addr)).collect()
    }

    fn create(&mut self) {
        self.draft.touch();
    }
    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), nacre_cls::Stop> {
        let in_range = check_range(offset, data.len() as u64);
        self.pass(in_range)?;
        let may = self.draft.rules.check_write(self.draft, offset);
        self.pass(may)?;
        self.draft.write(offset, data);
        Ok(())
    }
    fn truncate(&mut self, size: u64) -> Result<(), nacre_cls::Stop> {
        if self.draft.exists {
            let in_range = check_range(size, 0);
            self.pass(in_range)?;
            let may = self.draft.rules.check_overwrite();
            self.pass(may)?;
            self.draft.truncate(size);
        }
        Ok(())
    }
    fn zero(&mut self, offset: u64, len: u64) -> Result<(), nacre_cls::Stop> {
        let done = data::zero(self.draft, offset, len).map(|_| ());
        self.pass(done)
    }
    fn remove(&mut self) {
        self.draft.remove();
    }
    fn set_attr(&mut self, name: &Name, value: Bytes) -> Result<(), nacre_cls::Stop> {
        if name.len() > ATTR_NAME_LEN_MAX {
            return Err(nacre_cls::Stop::Failed(ENAMETOOLONG));
        }
        if name.is_empty() {
            return Err(nacre_cls::Stop::Failed(EINVAL));
        }
        self.draft.set_attr(attrs::stored(name), value);
        Ok(())
    }
    fn omap_set(&mut self, pairs: &BTreeMap<Name, Bytes>) -> Result<(), nacre_cls::Stop> {
        let may = self.draft.rules.check_omap();
        self.pass(may)?;
        self.draft.omap_set(pairs);
        Ok(())
    }
    fn omap_remove(&mut self, keys: &BTreeSet<Name>) -> Result<(), nacre_cls::Stop> {
        let may = self.draft.rules.check_omap();
        self.pass(may)?;
        self.draft.omap_remove(keys);
        Ok(())
    }
    fn omap_remove_range(&mut self, begin: &Name, end: &Name) -> Result<(), nacre_cls::Stop> {
        let may = self.draft.rules.check_omap();
        self.pass(may)?;
        self.draft.omap_remove_range(begin, end);
        Ok(())
    }
    fn omap_clear(&mut self) -> Result<(), nacre_cls::Stop> {
        let may = self.draft.rules.check_omap();
        self.pass(may)?;
        self.draft.omap_clear();
        Ok(())
    }
    fn set_omap_header(&mut self, header: Bytes) -> Result<(), nacre_cls::Stop> {
        let may = self.draft.rules.check_omap();
        self.pass(may)?;
        self.draft.set_omap_header(header);
        Ok(())
    }
    fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }
}
