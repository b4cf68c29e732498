//! Names that clients give: any bytes, mostly text; long ones are shared by their clones.

use bytes::Bytes;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An object name, namespace, locator key, attribute name or omap key. Ceph allows every byte in
/// them, so this is not a `String`. Order is by bytes, as Ceph's.
#[derive(Clone)]
pub struct Name(Kept);

/// As many as fit into the memory that a name takes in any case.
const SHORT_MAX: usize = 30;
const _: () = assert!(size_of::<Name>() == SHORT_MAX + 2);

/// Most names are short: the empty namespace, an attribute's, the key of a log's entry. Right here they need
/// no memory of their own, and comparing them does not reach for it.
#[derive(Clone)]
enum Kept {
    Short(Short),
    Long(Arc<[u8]>),
}

/// Zeros behind the bytes, and then how many these are: in that order a name is smaller than those that it
/// begins.
#[derive(Clone, Copy)]
struct Short([u8; SHORT_MAX + 1]);

impl Short {
    fn new(from: &[u8]) -> Short {
        let mut kept = [0; SHORT_MAX + 1];
        kept[..from.len()].copy_from_slice(from);
        kept[SHORT_MAX] = from.len() as u8;
        Short(kept)
    }
    fn len(&self) -> usize {
        self.0[SHORT_MAX].into()
    }
    /// Eight bytes as a number that has their order.
    fn word(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }
    fn cmp(&self, other: &Short) -> Ordering {
        // The last two overlap, which changes nothing.
        for at in [0, 8, 16, SHORT_MAX + 1 - 8] {
            let (a, b) = (self.word(at), other.word(at));
            if a != b {
                return a.cmp(&b);
            }
        }
        Ordering::Equal
    }
}

impl Name {
    pub fn new(bytes: impl Into<Bytes>) -> Name {
        Name::copy_from(&bytes.into())
    }
    /// A copy that holds on to nothing but itself (a slice of a big frame would keep the frame).
    pub fn copy_from(from: &[u8]) -> Name {
        Name(if from.len() <= SHORT_MAX { Kept::Short(Short::new(from)) } else { Kept::Long(from.into()) })
    }
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Kept::Short(short) => &short.0[..short.len()],
            Kept::Long(bytes) => bytes,
        }
    }
    pub fn len(&self) -> usize {
        match &self.0 {
            Kept::Short(short) => short.len(),
            Kept::Long(bytes) => bytes.len(),
        }
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// As text, where it is text.
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.as_bytes())
    }
}

impl Default for Name {
    fn default() -> Name {
        Name(Kept::Short(Short([0; SHORT_MAX + 1])))
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        match (&self.0, &other.0) {
            (Kept::Short(a), Kept::Short(b)) => a.0 == b.0,
            (Kept::Long(a), Kept::Long(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}
impl Eq for Name {}

/// As a slice, which it may be looked up by.
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Most names that are compared are short ones, or the very same bytes, as those of an object that was looked
/// up before: neither needs to be read byte by byte.
impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        match (&self.0, &other.0) {
            (Kept::Short(a), Kept::Short(b)) => a.cmp(b),
            (Kept::Long(a), Kept::Long(b)) if Arc::ptr_eq(a, b) => Ordering::Equal,
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}
impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<&str> for Name {
    fn from(s: &str) -> Name {
        Name::copy_from(s.as_bytes())
    }
}
impl From<String> for Name {
    fn from(s: String) -> Name {
        Name::new(s.into_bytes())
    }
}
impl From<&[u8]> for Name {
    fn from(s: &[u8]) -> Name {
        Name::copy_from(s)
    }
}
/// Lets a map keyed by `Name` be searched by a plain slice.
impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}
impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_text().fmt(f)
    }
}
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_bytes() {
        let texts = [
            "",
            "\0",
            "\0\0",
            "\0a",
            "a",
            "a\0",
            "ab",
            "abc",
            "abc, and as long as it can be",
            "abc, and as long as it can be\0",
            "abc, and as long as it can be\0\0",
            "abc, and as long as it can be!",
            "abc, and longer than what is kept in place",
            "abc, and longer than what is kept in place, by far",
            "abc, and more",
            "abd",
            "b",
        ];
        let names = texts.map(Name::from);
        assert!(names.iter().zip(texts).all(|(name, text)| *name == text && name.len() == text.len()));
        for (at, one) in names.iter().enumerate() {
            for (other_at, other) in names.iter().enumerate() {
                assert_eq!(one.cmp(other), at.cmp(&other_at), "{one} and {other}");
                assert_eq!(*one == *other, at == other_at, "{one} and {other}");
            }
        }
    }
}
