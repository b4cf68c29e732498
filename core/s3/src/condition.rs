//! The preconditions of HTTP, on the object as it is.

use crate::record::Entry;
use crate::tag::Tag;

/// Entity tags in a header: `*`, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Etags {
    Any,
    These(Vec<String>),
}

impl Etags {
    fn matches(&self, entry: &Entry) -> bool {
        match self {
            Etags::Any => true,
            Etags::These(etags) => etags.contains(&entry.etag),
        }
    }
}

/// What must hold of the object that a write replaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub if_match: Option<Etags>,
    pub if_none_match: Option<Etags>,
    /// Seconds since 1970; the object's time must be the same.
    pub mtime: Option<u64>,
    pub size: Option<u64>,
    /// The write that made the object, for a change of what was read before.
    pub tag: Option<Tag>,
}

/// How a condition failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// There is no object, and there must be a certain one.
    Missing,
    Failed,
}

impl Condition {
    /// Whether it holds of everything.
    pub fn is_none(&self) -> bool {
        *self == Condition::default()
    }

    /// Whether only an object that does not exist yet can meet it.
    pub fn wants_absence(&self) -> bool {
        self.if_none_match == Some(Etags::Any)
    }

    /// Whether it holds of the present object.
    pub fn check(&self, current: Option<&Entry>) -> Result<(), Unmet> {
        let Some(entry) = current else {
            let must_exist =
                self.if_match.is_some() || self.mtime.is_some() || self.size.is_some() || self.tag.is_some();
            return if must_exist { Err(Unmet::Missing) } else { Ok(()) };
        };
        let fails = self.if_match.as_ref().is_some_and(|etags| !etags.matches(entry))
            || self.if_none_match.as_ref().is_some_and(|etags| etags.matches(entry))
            || self.mtime.is_some_and(|mtime| mtime != entry.mtime / 1000)
            || self.size.is_some_and(|size| size != entry.size)
            || self.tag.is_some_and(|tag| tag != entry.tag);
        if fails { Err(Unmet::Failed) } else { Ok(()) }
    }
}

/// What must hold of an object that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadCondition {
    pub if_match: Option<Etags>,
    pub if_none_match: Option<Etags>,
    /// Seconds since 1970, as the next.
    pub if_modified_since: Option<u64>,
    pub if_unmodified_since: Option<u64>,
}

/// Why an object is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRead {
    /// The client has it already.
    NotModified,
    PreconditionFailed,
}

impl ReadCondition {
    /// An entity tag decides alone where there is one: RFC 9110, section 13.2.2.
    pub fn check(&self, entry: &Entry) -> Result<(), NotRead> {
        let mtime = entry.mtime / 1000;
        let is_changed = match &self.if_match {
            Some(etags) => !etags.matches(entry),
            None => self.if_unmodified_since.is_some_and(|since| mtime > since),
        };
        if is_changed {
            return Err(NotRead::PreconditionFailed);
        }
        let is_known = match &self.if_none_match {
            Some(etags) => etags.matches(entry),
            None => self.if_modified_since.is_some_and(|since| mtime <= since),
        };
        if is_known { Err(NotRead::NotModified) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            tag: Tag { instance: 1, sequence: 1 },
            size: 3,
            mtime: 10_500,
            etag: "a".into(),
            owner: String::new(),
            storage_class: String::new(),
            checksum: String::new(),
            ..Entry::default()
        }
    }
    fn these(etags: &[&str]) -> Option<Etags> {
        Some(Etags::These(etags.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn writes_are_refused_unless_the_object_is_the_expected_one() {
        let check = |condition: Condition, current: Option<&Entry>| condition.check(current);
        let absent = Condition { if_none_match: Some(Etags::Any), ..Condition::default() };
        assert_eq!(check(absent.clone(), None), Ok(()));
        assert_eq!(check(absent, Some(&entry())), Err(Unmet::Failed));
        let same = Condition { if_match: these(&["b", "a"]), ..Condition::default() };
        assert_eq!(check(same.clone(), Some(&entry())), Ok(()));
        assert_eq!(check(same, None), Err(Unmet::Missing));
        let size = Condition { size: Some(4), ..Condition::default() };
        assert_eq!(check(size, Some(&entry())), Err(Unmet::Failed));
    }

    #[test]
    fn entity_tags_decide_before_times() {
        let check = |condition: ReadCondition| condition.check(&entry());
        let default = ReadCondition::default;
        assert_eq!(check(default()), Ok(()));
        let since = ReadCondition { if_modified_since: Some(10), ..default() };
        assert_eq!(check(since.clone()), Err(NotRead::NotModified));
        assert_eq!(check(ReadCondition { if_none_match: these(&["b"]), ..since }), Ok(()));
        let unmodified = ReadCondition { if_unmodified_since: Some(9), ..default() };
        assert_eq!(check(unmodified.clone()), Err(NotRead::PreconditionFailed));
        assert_eq!(check(ReadCondition { if_match: these(&["a"]), ..unmodified }), Ok(()));
        let other = ReadCondition { if_match: these(&["b"]), ..default() };
        assert_eq!(check(other), Err(NotRead::PreconditionFailed));
    }
}
