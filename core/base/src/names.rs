//! Names that clients give: any bytes, mostly text; long ones are shared and never copied.

use bytes::Bytes;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// An object name, namespace, locator key, attribute name or omap key. Ceph allows every byte in
/// them, so this is not a `String`. Order is by bytes, as Ceph's.
#[derive(Clone)]
pub struct Name(Kept);

/// As many as fit into the memory that `Bytes` themselves take.
const SHORT_MAX: usize = 23;
const _: () = assert!(size_of::<Name>() == size_of::<Bytes>());

/// Most names are short: the empty namespace, an attribute's, the key of a log's entry. Right here they need no memory of
/// their own, and comparing them does not reach for it.
#[derive(Clone)]
enum Kept {
    Short { len: u8, bytes: [u8; SHORT_MAX] },
    Long(Bytes),
}

impl Name {
    pub fn new(bytes: impl Into<Bytes>) -> Name {
        let bytes = bytes.into();
        if bytes.len() <= SHORT_MAX { Name::copy_from(&bytes) } else { Name(Kept::Long(bytes)) }
    }
    /// A copy that holds on to nothing but itself (a slice of a big frame would keep the frame).
    pub fn copy_from(from: &[u8]) -> Name {
        if from.len() > SHORT_MAX {
            return Name(Kept::Long(Bytes::copy_from_slice(from)));
        }
        let mut bytes = [0; SHORT_MAX];
        bytes[..from.len()].copy_from_slice(from);
        Name(Kept::Short { len: from.len() as u8, bytes })
    }
    /// The same, holding on to nothing but itself.
    pub fn into_own(self) -> Name {
        match &self.0 {
            Kept::Short { .. } => self,
            Kept::Long(bytes) => Name::copy_from(bytes),
        }
    }
    /// Whether it may be a slice of something bigger.
    pub fn is_shared(&self) -> bool {
        matches!(self.0, Kept::Long(_))
    }
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Kept::Short { len, bytes } => &bytes[..usize::from(*len)],
            Kept::Long(bytes) => bytes,
        }
    }
    pub fn len(&self) -> usize {
        match &self.0 {
            Kept::Short { len, .. } => usize::from(*len),
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
        Name(Kept::Short { len: 0, bytes: [0; SHORT_MAX] })
    }
}

/// What is kept in place is compared in place, all of it at once: behind a short name are zeros.
impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        match (&self.0, &other.0) {
            (Kept::Short { len, bytes }, Kept::Short { len: other_len, bytes: other }) => {
                len == other_len && bytes == other
            }
            _ => {
                let (a, b) = (self.as_bytes(), other.as_bytes());
                a.len() == b.len() && (a.as_ptr() == b.as_ptr() || a == b)
            }
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

/// Most names that are compared are empty, as namespaces are, or the very same bytes, as those of an object
/// that was looked up before: neither needs to be read.
impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        if let (Kept::Short { len, bytes }, Kept::Short { len: other_len, bytes: other }) =
            (&self.0, &other.0)
        {
            // The zeros behind a name come before whatever a longer one has there; where that is zeros, too, the length tells.
            return words(bytes).cmp(&words(other)).then(len.cmp(other_len));
        }
        let (a, b) = (self.as_bytes(), other.as_bytes());
        match (a.as_ptr() == b.as_ptr() && a.len() == b.len()) || a.is_empty() || b.is_empty() {
            true => a.len().cmp(&b.len()),
            false => a.cmp(b),
        }
    }
}
/// Numbers that are in the order of the bytes.
fn words(bytes: &[u8; SHORT_MAX]) -> (u64, u64, u64) {
    let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    // The last one begins within the one before: only where that is the same does it count.
    (word(0), word(8), word(SHORT_MAX - 8))
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
        let shared = Bytes::from_static(b"abc, and more than is kept in place");
        let texts = ["", "a", "ab", "abc", "abc, and longer than that", "abc, and more", "abd", "b"];
        let names = texts.map(Name::from);
        assert!(names.iter().zip(texts).all(|(name, text)| *name == text && name.len() == text.len()));
        for (at, one) in names.iter().enumerate() {
            for (other_at, other) in names.iter().enumerate() {
                assert_eq!(one.cmp(other), at.cmp(&other_at), "{one} and {other}");
            }
        }
        // Also where bytes are zeros, as behind a short name.
        let zeros = (0..40).map(|len| Name::new(vec![0; len]));
        assert!(zeros.clone().is_sorted() && zeros.clone().zip(zeros.skip(1)).all(|(a, b)| a != b));
        let (whole, part) = (Name::new(shared.clone()), Name::new(shared.slice(..30)));
        assert_eq!((whole.cmp(&whole.clone()), whole.cmp(&part)), (Ordering::Equal, Ordering::Greater));
    }
}
