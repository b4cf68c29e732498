//! What a method sees of the world: its object and its caller.

use crate::{Stop, fail};
use bytes::Bytes;
use nacre_base::errno::{E2BIG, EEXIST, EIO, ENODATA, ENOENT};
use nacre_base::{Name, Utime};
use nacre_proto::types::{EntityAddr, EntityName};
use nacre_wire::{Decode, Encode, Reader, to_vec};
use std::collections::{BTreeMap, BTreeSet};

/// The most memory for one listing; a longer one is refused, as the reply could not say where it was cut.
const LISTING_BYTES_MAX: usize = 32 << 20;

/// As much memory for one page of a listing that says where it was cut.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// A part of an omap.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub pairs: Vec<(Name, Bytes)>,
    pub more: bool,
}

/// The object of a call. Its size is as the operations before it in the same request left it, and this one so
/// far; its bytes, attributes and omap are as they were stored before that request. So a method does not see
/// what it wrote.
///
/// Attributes are named as clients name them. A change makes the object exist.
pub trait Object {
    /// In bytes; None if it does not exist.
    fn size(&self) -> Option<u64>;
    /// Bytes of a range as far as the object reaches; ENOENT, as for attributes, if there are some and none
    /// are stored.
    fn read(&mut self, offset: u64, len: u64) -> Result<Bytes, Stop>;
    fn attr(&mut self, name: &Name) -> Result<Option<Bytes>, Stop>;
    fn attrs(&mut self) -> Result<BTreeMap<Name, Bytes>, Stop>;
    fn omap_get(&mut self, key: &Name) -> Result<Option<Bytes>, Stop>;
    /// Pairs from the first key `>= from` on, in order, until `each` says false.
    fn omap_walk(&mut self, from: &[u8], each: &mut dyn FnMut(&Name, &Bytes) -> bool) -> Result<(), Stop>;
    /// Empty if there is none.
    fn omap_header(&mut self) -> Result<Bytes, Stop>;
    /// When a client last changed it; None if it does not exist.
    fn mtime(&self) -> Option<Utime>;
    /// The newest snapshot in the object's snap set; None if the object does not exist.
    fn snap_seq(&self) -> Option<u64>;
    fn watchers(&self) -> Vec<(EntityName, EntityAddr)>;

    fn create(&mut self);
    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Stop>;
    /// Nothing happens to an object that does not exist.
    fn truncate(&mut self, size: u64) -> Result<(), Stop>;
    /// As far as the object reaches.
    fn zero(&mut self, offset: u64, len: u64) -> Result<(), Stop>;
    fn remove(&mut self);
    fn set_attr(&mut self, name: &Name, value: Bytes) -> Result<(), Stop>;
    fn omap_set(&mut self, pairs: &BTreeMap<Name, Bytes>) -> Result<(), Stop>;
    fn omap_remove(&mut self, keys: &BTreeSet<Name>) -> Result<(), Stop>;
    /// From the first key to before the second, whether or not there are any.
    fn omap_remove_range(&mut self, begin: &Name, end: &Name) -> Result<(), Stop>;
    fn omap_clear(&mut self) -> Result<(), Stop>;
    fn set_omap_header(&mut self, header: Bytes) -> Result<(), Stop>;

    /// The version that the request gives the object, and a number that tells the calls of the request apart.
    /// Both grow.
    fn version(&self) -> (u64, u32);
    /// Another number each time, and the same ones when the method is run again.
    fn random(&mut self) -> u64;
}

/// The client that calls, and when.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub name: EntityName,
    pub addr: EntityAddr,
    pub now: Utime,
}

/// A call under way: the object, with what most methods need around it.
pub struct Context<'a> {
    object: &'a mut dyn Object,
    pub caller: &'a Caller,
    has_read: bool,
    has_written: bool,
}

impl<'a> Context<'a> {
    pub(crate) fn new(object: &'a mut dyn Object, caller: &'a Caller) -> Context<'a> {
        Context { object, caller, has_read: false, has_written: false }
    }
    pub(crate) fn has_read(&self) -> bool {
        self.has_read
    }
    pub(crate) fn has_written(&self) -> bool {
        self.has_written
    }
    pub fn now(&self) -> Utime {
        self.caller.now
    }
    pub fn random(&mut self) -> u64 {
        self.object.random()
    }
    /// Letters of an alphabet of 64.
    pub(crate) fn random_text(&mut self, len: usize) -> Name {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let text: Vec<u8> = (0..len).map(|_| LETTERS[(self.random() % 64) as usize]).collect();
        Name::new(text)
    }

    // ---- the object, as Ceph answers about it ----

    pub fn exists(&self) -> bool {
        self.object.size().is_some()
    }
    /// Its size; ENOENT if it does not exist. Needs no right to read.
    pub fn stat(&self) -> Result<u64, Stop> {
        self.object.size().ok_or(Stop::Failed(ENOENT))
    }
    pub fn read(&mut self, offset: u64, len: u64) -> Result<Bytes, Stop> {
        self.has_read = true;
        self.object.read(offset, len)
    }
    /// ENOENT if the object and ENODATA if the attribute does not exist.
    pub fn attr(&mut self, name: &Name) -> Result<Bytes, Stop> {
        self.has_read = true;
        self.object.attr(name)?.ok_or(Stop::Failed(ENODATA))
    }
    pub fn attrs(&mut self) -> Result<BTreeMap<Name, Bytes>, Stop> {
        self.has_read = true;
        self.object.attrs()
    }
    pub fn omap_get(&mut self, key: &Name) -> Result<Option<Bytes>, Stop> {
        self.has_read = true;
        self.object.omap_get(key)
    }
    pub(crate) fn mtime(&mut self) -> Option<Utime> {
        self.has_read = true;
        self.object.mtime()
    }
    /// See `Object::version`.
    pub(crate) fn version(&self) -> (u64, u32) {
        self.object.version()
    }
    pub fn snap_seq(&mut self) -> Option<u64> {
        self.has_read = true;
        self.object.snap_seq()
    }
    pub fn watchers(&mut self) -> Vec<(EntityName, EntityAddr)> {
        self.has_read = true;
        self.object.watchers()
    }

    pub fn create(&mut self, exclusive: bool) -> Result<(), Stop> {
        self.has_written = true;
        if exclusive && self.exists() {
            return fail(EEXIST);
        }
        self.object.create();
        Ok(())
    }
    pub fn write(&mut self, offset: u64, data: impl Into<Bytes>) -> Result<(), Stop> {
        self.has_written = true;
        self.object.write(offset, data.into())
    }
    pub fn write_full(&mut self, data: impl Into<Bytes>) -> Result<(), Stop> {
        let data = data.into();
        self.has_written = true;
        if self.object.size().is_some_and(|size| size > data.len() as u64) {
            self.object.truncate(data.len() as u64)?;
        }
        self.object.write(0, data)
    }
    pub fn truncate(&mut self, size: u64) -> Result<(), Stop> {
        self.has_written = true;
        self.object.truncate(size)
    }
    pub(crate) fn zero(&mut self, offset: u64, len: u64) -> Result<(), Stop> {
        self.has_written = true;
        self.object.zero(offset, len)
    }
    pub fn remove(&mut self) -> Result<(), Stop> {
        self.has_written = true;
        self.stat()?;
        self.object.remove();
        Ok(())
    }
    pub fn set_attr(&mut self, name: &Name, value: impl Into<Bytes>) -> Result<(), Stop> {
        self.has_written = true;
        self.object.set_attr(name, value.into())
    }
    pub fn omap_set(&mut self, key: &Name, value: impl Into<Bytes>) -> Result<(), Stop> {
        self.omap_set_all(&[(key.clone(), value.into())].into())
    }
    pub fn omap_set_all(&mut self, pairs: &BTreeMap<Name, Bytes>) -> Result<(), Stop> {
        self.has_written = true;
        self.object.omap_set(pairs)
    }
    /// ENOENT if the object does not exist; a key that does not is no error.
    pub fn omap_remove(&mut self, key: &Name) -> Result<(), Stop> {
        self.has_written = true;
        self.stat()?;
        self.object.omap_remove(&[key.clone()].into())
    }

    /// Whether or not the keys or even the object are there.
    pub(crate) fn omap_remove_all(&mut self, keys: &BTreeSet<Name>) -> Result<(), Stop> {
        self.has_written = true;
        if self.exists() { self.object.omap_remove(keys) } else { Ok(()) }
    }
    pub(crate) fn omap_remove_range(&mut self, begin: &Name, end: &Name) -> Result<(), Stop> {
        self.has_written = true;
        self.object.omap_remove_range(begin, end)
    }
    pub(crate) fn omap_clear(&mut self) -> Result<(), Stop> {
        self.has_written = true;
        self.object.omap_clear()
    }

    // ---- the omap's header ----

    /// What the class keeps in the header; None if that is empty. EIO if it is something else.
    pub(crate) fn header<T: Decode>(&mut self) -> Result<Option<T>, Stop> {
        self.has_read = true;
        let header = self.object.omap_header()?;
        if header.is_empty() { Ok(None) } else { stored(&header).map(Some) }
    }
    pub(crate) fn set_header<T: Encode + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        self.has_written = true;
        self.object.set_omap_header(to_vec(value).into())
    }

    // ---- values under keys ----

    /// The value under a key; EIO if it is none.
    pub fn get<T: Decode>(&mut self, key: &Name) -> Result<Option<T>, Stop> {
        self.omap_get(key)?.map(|value| stored(&value)).transpose()
    }
    /// The value under a key that must be there; ENOENT if it is not.
    pub fn need<T: Decode>(&mut self, key: &Name) -> Result<T, Stop> {
        self.get(key)?.ok_or(Stop::Failed(ENOENT))
    }
    pub fn set<T: Encode + ?Sized>(&mut self, key: &Name, value: &T) -> Result<(), Stop> {
        self.omap_set(key, to_vec(value))
    }
    /// Removes a key, whether or not it or even the object is there.
    pub fn unset(&mut self, key: &Name) -> Result<(), Stop> {
        if self.exists() { self.omap_remove(key) } else { Ok(()) }
    }

    /// Up to `max` pairs whose key starts with `prefix`, in order and with that cut off; beyond
    /// `after`, unless that is empty (an image's own journal client has an empty name).
    pub fn list(&mut self, prefix: &str, after: &[u8], max: u64) -> Result<Vec<(Name, Bytes)>, Stop> {
        self.has_read = true;
        let prefix = prefix.as_bytes();
        let last = [prefix, after].concat();
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        self.object.omap_walk(&last, &mut |key, value| {
            let Some(rest) = key.as_bytes().strip_prefix(prefix) else { return false };
            if !after.is_empty() && key.as_bytes() == last {
                return true;
            }
            if pairs.len() as u64 >= max || bytes > LISTING_BYTES_MAX {
                return false;
            }
            bytes += key.len() + value.len();
            pairs.push((Name::copy_from(rest), value.clone()));
            true
        })?;
        if bytes > LISTING_BYTES_MAX { fail(E2BIG) } else { Ok(pairs) }
    }
    /// Up to `max` pairs beyond `after` whose key starts with `prefix`, in order, and whether there are
    /// more of them. A page also ends where it has as many bytes as a listing may have.
    pub(crate) fn page(&mut self, after: &[u8], prefix: &[u8], max: u64) -> Result<Page, Stop> {
        self.has_read = true;
        let mut page = Page::default();
        let mut bytes = 0;
        self.object.omap_walk(after.max(prefix), &mut |key, value| {
            if key.as_bytes() <= after && !after.is_empty() {
                return true;
            }
            if !key.as_bytes().starts_with(prefix) {
                return false;
            }
            if page.pairs.len() as u64 >= max || bytes > PAGE_BYTES_MAX {
                page.more = true;
                return false;
            }
            bytes += key.len() + value.len();
            page.pairs.push((key.clone(), value.clone()));
            true
        })?;
        Ok(page)
    }
    /// All of a listing, decoded.
    pub fn list_all<T: Decode>(&mut self, prefix: &str) -> Result<Vec<(Name, T)>, Stop> {
        let pairs = self.list(prefix, b"", u64::MAX)?;
        pairs.into_iter().map(|(key, value)| Ok((key, stored(&value)?))).collect()
    }
}

/// A value that a class stored itself.
pub fn stored<T: Decode>(bytes: &[u8]) -> Result<T, Stop> {
    T::decode(&mut Reader::new(bytes)).map_err(|_| Stop::Failed(EIO))
}

/// A key made of a prefix and a name.
pub fn key(prefix: &str, name: &Name) -> Name {
    Name::new([prefix.as_bytes(), name.as_bytes()].concat())
}
