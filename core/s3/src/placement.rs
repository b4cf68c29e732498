//! Storage classes: which pool stands for a name.
//!
//! A class has a number, which is never given to another class. The tag of a write has the number of the
//! class whose pool has the data, so that whatever has a tag knows where its data is.

use crate::tag::Tag;
use nacre_wire::versioned_fields;

/// The class that every object has for which no other is asked.
pub const STANDARD: &str = "STANDARD";
/// The most classes beside that one.
pub const CLASSES_MAX: usize = 1000;
/// The bits of a tag's sequence that are not the number of a class: a gateway that makes a million tags in a
/// second needs them for eight years.
const SEQUENCE_BITS: u32 = 48;

/// A class, as it is stored under its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageClass {
    pub name: String,
    /// The name of the pool with the data.
    pub pool: String,
    /// No new object gets the class.
    pub is_retired: bool,
}
versioned_fields!(StorageClass, "s3 storage class", name, pool, is_retired);

/// Whether a text can be the name of a class.
pub fn is_class_name(name: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    name != STANDARD && (1..=64).contains(&name.len()) && name.chars().all(is_good)
}

impl Tag {
    /// The number of the class whose pool has the data; zero for STANDARD.
    pub fn class(self) -> u16 {
        u16::try_from(self.sequence >> SEQUENCE_BITS).unwrap_or_default()
    }

    /// The tag of a write to the pool of another class.
    pub fn in_class(self, class: u16) -> Tag {
        let sequence = self.sequence & ((1 << SEQUENCE_BITS) - 1) | u64::from(class) << SEQUENCE_BITS;
        Tag { sequence, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_know_the_class_of_their_data() {
        let tag = Tag { instance: u64::MAX, sequence: 7 };
        assert_eq!((tag.class(), tag.in_class(0)), (0, tag));
        for class in [1, 0x1234, u16::MAX] {
            let other = tag.in_class(class);
            assert_eq!((other.class(), other.in_class(0)), (class, tag));
            assert_eq!(other.to_string().parse(), Ok(other));
        }
    }

    #[test]
    fn names_of_classes_are_those_of_clients() {
        assert!(is_class_name("COLD") && is_class_name("STANDARD_IA") && is_class_name("x-1"));
        for bad in ["", STANDARD, "A B", "ä", &"A".repeat(65)] {
            assert!(!is_class_name(bad), "{bad}");
        }
    }
}
