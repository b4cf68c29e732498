//! How a page of a listing is put together: in the order of the keys' bytes, with common prefixes.

use crate::leaf::{BEHIND, age_of};
use bytes::Bytes;

/// What a listing shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listed {
    /// Current objects.
    #[default]
    Objects,
    /// All versions and delete markers. A line's key has a zero and the version's age behind it; the age of
    /// the current version is empty.
    Versions,
    /// Open uploads. A line's key has a zero and the upload's tag behind it.
    Uploads,
}

/// What a page is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRequest {
    pub prefix: Bytes,
    /// Empty for none.
    pub delimiter: Bytes,
    /// The page begins behind this key, or behind the keys of this common prefix.
    pub after: Bytes,
    pub max: usize,
    pub listed: Listed,
}

impl PageRequest {
    /// Open uploads, behind all those of a key or behind one of them. The key may be a common prefix, with
    /// which the last page ended.
    pub fn uploads_behind(self, key: &str, id: Option<&str>) -> PageRequest {
        let request = PageRequest { listed: Listed::Uploads, ..self };
        let after = match id {
            _ if key.is_empty() => Bytes::new(),
            Some(id) => format!("{key}\0{id}").into(),
            None if common_prefix(&request, key.as_bytes()) == Some(key.as_bytes()) => {
                Bytes::copy_from_slice(key.as_bytes())
            }
            None => format!("{key}\u{1}").into(),
        };
        PageRequest { after, ..request }
    }

    /// Versions, behind all those of a key or behind the one with this stamp. The key may be a common prefix,
    /// with which the last page ended.
    pub fn versions_behind(self, key: &str, stamp: Option<u64>) -> PageRequest {
        let request = PageRequest { listed: Listed::Versions, ..self };
        let name = |behind: &[u8]| Bytes::from([key.as_bytes(), &[0], behind].concat());
        let after = match stamp {
            _ if key.is_empty() => Bytes::new(),
            Some(stamp) => name(age_of(stamp).as_bytes()),
            None if common_prefix(&request, key.as_bytes()) == Some(key.as_bytes()) => {
                Bytes::copy_from_slice(key.as_bytes())
            }
            None => name(&[BEHIND]),
        };
        PageRequest { after, ..request }
    }
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A key and its encoded value.
    Key(Bytes, Bytes),
    /// What keys have in common up to the delimiter.
    Prefix(Bytes),
}

impl Item {
    /// What a next page begins behind.
    pub fn marker(&self) -> &Bytes {
        match self {
            Item::Key(key, _) => key,
            Item::Prefix(prefix) => prefix,
        }
    }
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub items: Vec<Item>,
    pub is_truncated: bool,
}

/// A page as it grows. Keys are added in order; those that it has already passed are skipped.
#[derive(Clone, Debug)]
pub struct PageBuilder {
    request: PageRequest,
    /// Everything up to here is in the page, or is not wanted.
    after: Bytes,
    items: Vec<Item>,
    is_truncated: bool,
}

impl PageBuilder {
    /// An empty page.
    pub fn new(request: PageRequest) -> PageBuilder {
        let after = match common_prefix(&request, &request.after) {
            // The last page ended with this common prefix.
            Some(prefix) if *prefix == *request.after => behind(&request.after),
            _ => request.after.clone(),
        };
        PageBuilder { request, after, items: Vec::new(), is_truncated: false }
    }

    /// Keys up to here need not be added.
    pub fn after(&self) -> &Bytes {
        &self.after
    }
    /// How many keys to read next: fewer where most may fall into one common prefix.
    pub fn batch(&self) -> u64 {
        let missing = (self.request.max - self.items.len().min(self.request.max)) as u64 + 1;
        let most = if self.request.delimiter.is_empty() { 1000 } else { 250 };
        missing.clamp(1, most)
    }
    /// Whether nothing more fits in.
    pub fn is_full(&self) -> bool {
        self.is_truncated
    }
    /// Whether keys from here on cannot have the prefix any more.
    pub fn is_past(&self, key: &[u8]) -> bool {
        !key.starts_with(&self.request.prefix) && *key > *self.request.prefix
    }

    /// Adds a key and its value, if the page wants it.
    pub fn add(&mut self, key: &Bytes, value: &Bytes) {
        if self.is_truncated || *key <= self.after || !key.starts_with(&self.request.prefix) {
            return;
        }
        if self.items.len() >= self.request.max {
            self.is_truncated = true;
            return;
        }
        match common_prefix(&self.request, key) {
            Some(prefix) => {
                self.after = behind(prefix);
                self.items.push(Item::Prefix(Bytes::copy_from_slice(prefix)));
            }
            None => {
                self.after = key.clone();
                self.items.push(Item::Key(key.clone(), value.clone()));
            }
        }
    }

    /// Nothing else is up to this key.
    pub fn skip_to(&mut self, key: &[u8]) {
        if !self.is_truncated && *key > *self.after {
            self.after = Bytes::copy_from_slice(key);
        }
    }

    /// The page as it is now.
    pub fn finish(self) -> Page {
        Page { items: self.items, is_truncated: self.is_truncated }
    }
}

/// The part of a key up to the first delimiter behind the prefix.
fn common_prefix<'a>(request: &PageRequest, key: &'a [u8]) -> Option<&'a [u8]> {
    if request.delimiter.is_empty() {
        return None;
    }
    let name = match request.listed {
        Listed::Objects => key,
        Listed::Versions | Listed::Uploads => key.split(|byte| *byte == 0).next()?,
    };
    let rest = name.strip_prefix(&*request.prefix)?;
    let at = rest.windows(request.delimiter.len()).position(|part| *part == *request.delimiter)?;
    Some(&key[..request.prefix.len() + at + request.delimiter.len()])
}

fn behind(prefix: &[u8]) -> Bytes {
    [prefix, &[BEHIND]].concat().into()
}
