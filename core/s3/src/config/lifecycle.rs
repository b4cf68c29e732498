//! Lifecycle rules: which versions are to be removed, and when.

use crate::record::Entry;
use nacre_wire::versioned_fields;
use std::collections::BTreeMap;

/// Milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1000;
/// The most rules of a bucket.
const RULES_MAX: usize = 1000;
/// The most transitions of a rule.
const TRANSITIONS_MAX: usize = 100;

/// One rule of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifecycleRule {
    pub id: String,
    pub is_enabled: bool,
    pub prefix: String,
    /// All of them.
    pub tags: BTreeMap<String, String>,
    /// Objects of more bytes.
    pub size_over: Option<u64>,
    /// Objects of fewer bytes.
    pub size_under: Option<u64>,
    /// Days after which the current version is deleted.
    pub days: Option<u32>,
    /// When all current versions are deleted: milliseconds since 1970.
    pub date: Option<u64>,
    /// Delete markers that have no other versions are removed.
    pub expired_markers: bool,
    /// Days after which a version is removed that is not current any more.
    pub noncurrent_days: Option<u32>,
    /// So many of those stay.
    pub newer_noncurrent: Option<u32>,
    /// Days after which an upload is aborted.
    pub abort_days: Option<u32>,
    /// The prefix was given in the form that comes without a filter.
    pub has_old_form: bool,
    /// When current versions get another storage class.
    pub transitions: Vec<Transition>,
    /// The same for versions that are not current any more.
    pub noncurrent_transitions: Vec<NoncurrentTransition>,
}
versioned_fields!(
    LifecycleRule,
    "s3 lifecycle rule",
    id,
    is_enabled,
    prefix,
    tags,
    size_over,
    size_under,
    days,
    date,
    expired_markers,
    noncurrent_days,
    newer_noncurrent,
    abort_days,
    has_old_form; later transitions, noncurrent_transitions
);

/// When current versions get another storage class: after days, or at a date.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transition {
    pub days: Option<u32>,
    /// Milliseconds since 1970.
    pub date: Option<u64>,
    pub class: String,
}
versioned_fields!(Transition, "s3 transition", days, date, class);

/// When versions that are not current any more get another storage class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoncurrentTransition {
    pub days: u32,
    /// So many of them stay as they are.
    pub newer: Option<u32>,
    pub class: String,
}
versioned_fields!(NoncurrentTransition, "s3 noncurrent transition", days, newer, class);

/// What the time is, and how long a day.
#[derive(Clone, Copy, Debug)]
pub struct Calendar {
    /// Milliseconds since 1970.
    pub now: u64,
    /// A day in milliseconds, if it is not one: for tests of rules. Ceph: `rgw_lc_debug_interval`.
    pub short_day: Option<u64>,
}

impl Calendar {
    /// Whether so many days are over since a time. They end at midnight, UTC.
    fn is_over(&self, since: u64, days: u32) -> bool {
        let end = match self.short_day {
            Some(day) => since.saturating_add(day.saturating_mul(days.into())),
            None => since.saturating_add(DAY.saturating_mul(days.into())).div_ceil(DAY).saturating_mul(DAY),
        };
        end <= self.now
    }
}

/// A version, as a rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Aged<'a> {
    pub key: &'a str,
    pub entry: &'a Entry,
    /// None: it is the current one. Otherwise when the next newer version was written, and how many versions
    /// are between it and the current one.
    pub noncurrent: Option<(u64, u32)>,
    /// There is no older version of the key.
    pub is_last: bool,
}

/// What becomes of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The object is deleted, as its bucket's versioning has it.
    Delete,
    /// The version is removed.
    Remove,
    /// The delete marker is removed, if it is still alone.
    RemoveMarker,
}

impl LifecycleRule {
    /// What is wrong with the rules; none if they can be used.
    pub fn fault(rules: &[LifecycleRule]) -> Option<String> {
        if rules.is_empty() || rules.len() > RULES_MAX {
            return Some(format!("a bucket has from 1 to {RULES_MAX} lifecycle rules"));
        }
        for (at, rule) in rules.iter().enumerate() {
            if rule.id.len() > 255 {
                return Some("ID length should not exceed allowed limit of 255".into());
            }
            if rules[..at].iter().any(|other| other.id == rule.id) {
                return Some(format!(
                    "Rule ID must be unique. Found same ID for more than one rule: {}",
                    rule.id
                ));
            }
            if let Some(fault) = rule.own_fault() {
                return Some(fault.into());
            }
        }
        None
    }

    fn own_fault(&self) -> Option<&'static str> {
        let days = [self.days, self.noncurrent_days, self.abort_days];
        let moves = !self.transitions.is_empty() || !self.noncurrent_transitions.is_empty();
        let acts = moves || self.date.is_some() || self.expired_markers || days.iter().any(Option::is_some);
        let has_filter = !self.tags.is_empty() || self.size_over.is_some() || self.size_under.is_some();
        if !acts {
            return Some("At least one action needs to be specified in a rule");
        }
        if days.contains(&Some(0)) {
            return Some("'Days' for Expiration action must be a positive integer");
        }
        if self.date.is_some_and(|date| !date.is_multiple_of(DAY)) {
            return Some("'Date' must be at midnight GMT");
        }
        if self.transitions.len() > TRANSITIONS_MAX || self.noncurrent_transitions.len() > TRANSITIONS_MAX {
            return Some("a rule has too many transitions");
        }
        if self.transitions.iter().any(|it| it.days.is_some() == it.date.is_some()) {
            return Some("a Transition action has one of Days and Date");
        }
        if self.transitions.iter().any(|it| it.date.is_some_and(|date| !date.is_multiple_of(DAY))) {
            return Some("'Date' must be at midnight GMT");
        }
        let latest = self.transitions.iter().filter_map(|it| it.days).max();
        if let (Some(latest), Some(days)) = (latest, self.days)
            && latest >= days
        {
            return Some("'Days' in the Expiration action must be greater than in the Transition action");
        }
        let of_current = [self.days.is_some(), self.date.is_some(), self.expired_markers];
        if of_current.into_iter().filter(|is| *is).count() > 1 {
            return Some("an Expiration action has one of Days, Date and ExpiredObjectDeleteMarker");
        }
        if self.newer_noncurrent.is_some() && self.noncurrent_days.is_none() {
            return Some("NewerNoncurrentVersions needs NoncurrentDays");
        }
        if !self.tags.is_empty() && (self.abort_days.is_some() || self.expired_markers) {
            return Some("a rule with tags can neither abort uploads nor remove expired delete markers");
        }
        if has_filter && self.abort_days.is_some() {
            return Some("AbortIncompleteMultipartUpload cannot be specified with a size");
        }
        if let (Some(over), Some(under)) = (self.size_over, self.size_under)
            && over >= under
        {
            return Some("'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'");
        }
        None
    }

    /// Whether an upload of this key is to be aborted.
    pub fn aborts(&self, key: &str, initiated: u64, calendar: Calendar) -> bool {
        let is_over = self.abort_days.is_some_and(|days| calendar.is_over(initiated, days));
        self.is_enabled && key.starts_with(&self.prefix) && is_over
    }

    /// What the rule does to a version, if the version has the tags that it names.
    pub fn expiry(&self, version: Aged<'_>, calendar: Calendar) -> Option<Expiry> {
        let Aged { key, entry, noncurrent, is_last } = version;
        if !self.is_enabled || !key.starts_with(&self.prefix) || !self.fits_size(entry) {
            return None;
        }
        if let Some((since, newer)) = noncurrent {
            let is_over = self.noncurrent_days.is_some_and(|days| calendar.is_over(since, days));
            let stays = self.newer_noncurrent.is_some_and(|kept| newer < kept);
            return (is_over && !stays).then_some(Expiry::Remove);
        }
        let days_are_over = self.days.is_some_and(|days| calendar.is_over(entry.mtime, days));
        if entry.is_marker {
            // Rules by days remove them as well, at their age.
            let expires = (self.expired_markers || days_are_over) && is_last && self.tags.is_empty();
            return expires.then_some(Expiry::RemoveMarker);
        }
        let date_is_past = self.date.is_some_and(|date| date <= calendar.now);
        (days_are_over || date_is_past).then_some(Expiry::Delete)
    }

    /// The storage class that the rule gives a version, if the version has the tags that it names; none if it
    /// has that class already.
    pub fn transition(&self, version: Aged<'_>, calendar: Calendar) -> Option<&str> {
        let Aged { key, entry, noncurrent, .. } = version;
        if !self.is_enabled || entry.is_marker || !key.starts_with(&self.prefix) || !self.fits_size(entry) {
            return None;
        }
        // Of several, the one that comes last.
        let class = match noncurrent {
            None => {
                let is_due = |it: &&Transition| {
                    it.days.is_some_and(|days| calendar.is_over(entry.mtime, days))
                        || it.date.is_some_and(|date| date <= calendar.now)
                };
                let last = self.transitions.iter().filter(is_due).max_by_key(|it| (it.days, it.date));
                &last?.class
            }
            Some((since, newer)) => {
                let is_due = |it: &&NoncurrentTransition| {
                    calendar.is_over(since, it.days) && it.newer.is_none_or(|kept| newer >= kept)
                };
                &self.noncurrent_transitions.iter().filter(is_due).max_by_key(|it| it.days)?.class
            }
        };
        (*class != entry.storage_class).then_some(class)
    }

    fn fits_size(&self, entry: &Entry) -> bool {
        let has_size = self.size_over.is_some() || self.size_under.is_some();
        if entry.is_marker {
            return !has_size;
        }
        self.size_over.is_none_or(|size| entry.size > size)
            && self.size_under.is_none_or(|size| entry.size < size)
    }

    /// Whether an object has the tags that the rule names.
    pub fn fits_tags(&self, tags: &BTreeMap<String, String>) -> bool {
        self.tags.iter().all(|(name, value)| tags.get(name) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> LifecycleRule {
        LifecycleRule { id: "r".into(), is_enabled: true, ..LifecycleRule::default() }
    }
    fn entry(mtime: u64, size: u64) -> Entry {
        Entry { mtime, size, ..Entry::default() }
    }
    fn current(entry: &Entry) -> Aged<'_> {
        Aged { key: "logs/a", entry, noncurrent: None, is_last: true }
    }
    fn at(now: u64) -> Calendar {
        Calendar { now, short_day: None }
    }

    #[test]
    fn days_end_at_midnight() {
        let rule = LifecycleRule { days: Some(1), prefix: "logs/".into(), ..rule() };
        let entry = entry(DAY + 1, 5);
        assert_eq!(rule.expiry(current(&entry), at(3 * DAY - 1)), None);
        assert_eq!(rule.expiry(current(&entry), at(3 * DAY)), Some(Expiry::Delete));
        let other = Aged { key: "other", ..current(&entry) };
        assert_eq!(rule.expiry(other, at(9 * DAY)), None);
        let disabled = LifecycleRule { is_enabled: false, ..rule.clone() };
        assert_eq!(disabled.expiry(current(&entry), at(9 * DAY)), None);
        let short = Calendar { now: DAY + 11, short_day: Some(10) };
        assert_eq!(rule.expiry(current(&entry), short), Some(Expiry::Delete));
    }

    #[test]
    fn sizes_and_dates_select_objects() {
        let rule = LifecycleRule { date: Some(2 * DAY), size_over: Some(4), size_under: Some(6), ..rule() };
        assert_eq!(LifecycleRule::fault(std::slice::from_ref(&rule)), None);
        for (size, expected) in [(4, None), (5, Some(Expiry::Delete)), (6, None)] {
            assert_eq!(rule.expiry(current(&entry(0, size)), at(2 * DAY)), expected, "{size}");
        }
        assert_eq!(rule.expiry(current(&entry(0, 5)), at(2 * DAY - 1)), None);
        let tags = |value: &str| BTreeMap::from([("t".to_owned(), value.to_owned())]);
        let tagged = LifecycleRule { tags: tags("x"), ..rule };
        assert!(tagged.fits_tags(&tags("x")) && !tagged.fits_tags(&tags("y")));
        assert!(!tagged.fits_tags(&BTreeMap::new()));
    }

    #[test]
    fn newest_noncurrent_versions_stay() {
        let rule = LifecycleRule { noncurrent_days: Some(1), newer_noncurrent: Some(2), ..rule() };
        let entry = entry(0, 5);
        let old = |since, newer| Aged { noncurrent: Some((since, newer)), ..current(&entry) };
        assert_eq!(rule.expiry(old(0, 1), at(9 * DAY)), None);
        assert_eq!(rule.expiry(old(0, 2), at(9 * DAY)), Some(Expiry::Remove));
        assert_eq!(rule.expiry(old(9 * DAY, 2), at(9 * DAY)), None);
        assert_eq!(rule.expiry(current(&entry), at(9 * DAY)), None);
    }

    #[test]
    fn delete_marker_expires_when_nothing_is_behind_it() {
        let marker = Entry { is_marker: true, ..entry(0, 0) };
        let markers = LifecycleRule { expired_markers: true, ..rule() };
        let days = LifecycleRule { days: Some(2), ..rule() };
        assert_eq!(markers.expiry(current(&marker), at(1)), Some(Expiry::RemoveMarker));
        assert_eq!(days.expiry(current(&marker), at(1)), None);
        assert_eq!(days.expiry(current(&marker), at(3 * DAY)), Some(Expiry::RemoveMarker));
        let with_others = Aged { is_last: false, ..current(&marker) };
        assert_eq!(markers.expiry(with_others, at(1)), None);
        let sized = LifecycleRule { size_under: Some(9), ..days };
        assert_eq!(sized.expiry(current(&marker), at(3 * DAY)), None);
    }

    #[test]
    fn storage_class_is_that_of_the_last_transition_that_is_due() {
        let transition = |days, class: &str| Transition { days: Some(days), class: class.into(), date: None };
        let transitions = vec![transition(3, "COLD"), transition(1, "COOL")];
        let noncurrent = NoncurrentTransition { days: 2, newer: Some(1), class: "COLD".into() };
        let rule = LifecycleRule { transitions, noncurrent_transitions: vec![noncurrent], ..rule() };
        assert_eq!(LifecycleRule::fault(std::slice::from_ref(&rule)), None);
        let entry = entry(0, 5);
        assert_eq!(rule.transition(current(&entry), at(DAY - 1)), None);
        assert_eq!(rule.transition(current(&entry), at(DAY)), Some("COOL"));
        assert_eq!(rule.transition(current(&entry), at(3 * DAY)), Some("COLD"));
        let cold = Entry { storage_class: "COLD".into(), ..entry.clone() };
        assert_eq!(rule.transition(current(&cold), at(3 * DAY)), None);
        let old = |newer| Aged { noncurrent: Some((0, newer)), ..current(&entry) };
        assert_eq!(rule.transition(old(1), at(2 * DAY)), Some("COLD"));
        assert_eq!((rule.transition(old(0), at(2 * DAY)), rule.transition(old(1), at(DAY))), (None, None));
        let marker = Entry { is_marker: true, ..entry.clone() };
        assert_eq!(rule.transition(current(&marker), at(9 * DAY)), None);
        let both = Transition { date: Some(DAY), ..transition(1, "COLD") };
        for bad in [
            LifecycleRule { transitions: vec![both], ..rule.clone() },
            LifecycleRule { transitions: vec![Transition::default()], ..rule.clone() },
            LifecycleRule { days: Some(3), ..rule },
        ] {
            assert!(LifecycleRule::fault(std::slice::from_ref(&bad)).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn rules_that_cannot_be_used_are_refused() {
        let good = LifecycleRule { days: Some(1), ..rule() };
        let other = LifecycleRule { id: "other".into(), ..good.clone() };
        assert_eq!(LifecycleRule::fault(&[good.clone(), other]), None);
        let tags = BTreeMap::from([("t".to_owned(), "x".to_owned())]);
        for bad in [
            rule(),
            LifecycleRule { days: Some(0), ..rule() },
            LifecycleRule { date: Some(DAY + 1), ..rule() },
            LifecycleRule { date: Some(DAY), ..good.clone() },
            LifecycleRule { newer_noncurrent: Some(2), ..good.clone() },
            LifecycleRule { abort_days: Some(2), tags, ..good.clone() },
            LifecycleRule { abort_days: Some(2), size_over: Some(1), ..good.clone() },
            LifecycleRule { size_over: Some(5), size_under: Some(5), ..good.clone() },
            LifecycleRule { id: "x".repeat(256), ..good.clone() },
        ] {
            assert!(LifecycleRule::fault(std::slice::from_ref(&bad)).is_some(), "{bad:?}");
        }
        assert!(LifecycleRule::fault(&[good.clone(), good]).is_some());
        assert!(LifecycleRule::fault(&[]).is_some());
    }

    #[test]
    fn uploads_are_aborted_by_their_age() {
        let rule = LifecycleRule { abort_days: Some(1), prefix: "a".into(), ..rule() };
        assert!(rule.aborts("ab", 0, at(DAY)) && !rule.aborts("ab", 1, at(DAY)));
        assert!(!rule.aborts("b", 0, at(9 * DAY)));
    }
}
