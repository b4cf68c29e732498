//! Names that clients give: any bytes, mostly text, shared and never copied.

use bytes::Bytes;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;

/// An object name, namespace, locator key, attribute name or omap key. Ceph allows every byte in
/// them, so this is not a `String`. Cloning is a reference count; order is by bytes, as Ceph's.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Name(Bytes);

impl Name {
    pub fn new(bytes: impl Into<Bytes>) -> Name {
        Name(bytes.into())
    }
    /// A copy that holds on to nothing but itself (a slice of a big frame would keep the frame).
    pub fn copy_from(bytes: &[u8]) -> Name {
        Name(Bytes::copy_from_slice(bytes))
    }
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// As text, where it is text.
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

/// Most names that are compared are empty, as namespaces are, or the very same bytes, as those of an object
/// that was looked up before: neither needs to be read.
impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        let same = self.0.as_ptr() == other.0.as_ptr() && self.len() == other.len();
        match same || self.is_empty() || other.is_empty() {
            true => self.len().cmp(&other.len()),
            false => self.as_bytes().cmp(other.as_bytes()),
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
        Name(s.into_bytes().into())
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
        &self.0
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
        let shared = Bytes::from_static(b"abc");
        let names = ["", "a", "ab", "abc", "abd", "b"].map(Name::from);
        for (at, one) in names.iter().enumerate() {
            for (other_at, other) in names.iter().enumerate() {
                assert_eq!(one.cmp(other), at.cmp(&other_at), "{one} and {other}");
            }
        }
        let (whole, part) = (Name::new(shared.clone()), Name::new(shared.slice(..2)));
        assert_eq!((whole.cmp(&whole.clone()), whole.cmp(&part)), (Ordering::Equal, Ordering::Greater));
    }
}
