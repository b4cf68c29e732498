//! Object lock: what keeps a version from being removed.

use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned_fields};

/// How firm a retention is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// Users with a permission of their own may go past it.
    Governance,
    /// Nothing removes the version before its time.
    Compliance,
}
impl Encode for LockMode {
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u8).encode(out);
    }
}
impl Decode for LockMode {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            0 => Ok(LockMode::Governance),
            1 => Ok(LockMode::Compliance),
            value => Err(DecodeError::BadValue { what: "s3 lock mode", value: value.into() }),
        }
    }
}

/// A version is kept until a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    pub mode: LockMode,
    /// Milliseconds since 1970.
    pub until: u64,
}
versioned_fields!(Retention, "s3 retention", mode, until);

/// What keeps a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    pub retention: Option<Retention>,
    /// Until it is taken back, whatever the retention.
    pub legal_hold: Option<bool>,
}
versioned_fields!(Lock, "s3 lock", retention, legal_hold);

/// What matters of a request for locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockView {
    /// Milliseconds since 1970.
    pub now: u64,
    /// The request goes past the retention of governance mode, and may.
    pub bypass: bool,
}

impl Lock {
    /// Whether the version must stay.
    pub fn forbids_removal(&self, view: LockView) -> bool {
        self.legal_hold == Some(true) || self.retention.as_ref().is_some_and(|held| held.holds(view))
    }

    /// Whether the retention may be replaced by another one, or removed.
    pub fn allows_retention(&self, new: Option<&Retention>, view: LockView) -> bool {
        let Some(held) = &self.retention else { return true };
        // A longer retention that is as firm takes nothing away.
        let extends = new.is_some_and(|new| new.mode >= held.mode && new.until >= held.until);
        extends || !held.holds(view)
    }
}

impl Retention {
    fn holds(&self, view: LockView) -> bool {
        let is_bypassed = self.mode == LockMode::Governance && view.bypass;
        view.now < self.until && !is_bypassed
    }
}

/// What a bucket with object lock gives a new version that brings no retention of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockRule {
    /// None: nothing.
    pub default: Option<(LockMode, Period)>,
}

/// A length of time that is counted in days or years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    Days(u32),
    Years(u32),
}

impl Period {
    /// The end of the period that begins at this time; both in milliseconds since 1970.
    pub fn after(self, now: u64) -> u64 {
        let days = match self {
            Period::Days(days) => u64::from(days),
            Period::Years(years) => u64::from(years) * 365,
        };
        now.saturating_add(days.saturating_mul(24 * 60 * 60 * 1000))
    }
}
impl Encode for Period {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Period::Days(days) => (0_u8, *days).encode(out),
            Period::Years(years) => (1_u8, *years).encode(out),
        }
    }
}
impl Decode for Period {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match <(u8, u32)>::decode(r)? {
            (0, days) => Ok(Period::Days(days)),
            (1, years) => Ok(Period::Years(years)),
            (kind, _) => Err(DecodeError::BadValue { what: "s3 period", value: kind.into() }),
        }
    }
}
versioned_fields!(LockRule, "s3 lock rule", default);

impl LockRule {
    /// The retention of a version that is written now.
    pub fn retention(&self, now: u64) -> Option<Retention> {
        self.default.map(|(mode, period)| Retention { mode, until: period.after(now) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(mode: LockMode, until: u64) -> Lock {
        Lock { retention: Some(Retention { mode, until }), legal_hold: None }
    }

    #[test]
    fn only_governance_can_be_bypassed_and_only_until_its_time() {
        let view = |now, bypass| LockView { now, bypass };
        let governance = lock(LockMode::Governance, 10);
        assert!(governance.forbids_removal(view(9, false)) && !governance.forbids_removal(view(9, true)));
        assert!(!governance.forbids_removal(view(10, false)));
        let compliance = lock(LockMode::Compliance, 10);
        assert!(compliance.forbids_removal(view(9, true)) && !compliance.forbids_removal(view(10, false)));
        let held = Lock { retention: None, legal_hold: Some(true) };
        assert!(held.forbids_removal(view(99, true)));
        assert!(!Lock::default().forbids_removal(view(0, false)));
    }

    #[test]
    fn retention_can_be_extended_and_not_weakened() {
        let view = LockView { now: 5, bypass: true };
        let new = |mode, until| Some(Retention { mode, until });
        let compliance = lock(LockMode::Compliance, 10);
        assert!(compliance.allows_retention(new(LockMode::Compliance, 11).as_ref(), view));
        assert!(!compliance.allows_retention(new(LockMode::Compliance, 9).as_ref(), view));
        assert!(!compliance.allows_retention(new(LockMode::Governance, 11).as_ref(), view));
        assert!(!compliance.allows_retention(None, view));
        let governance = lock(LockMode::Governance, 10);
        assert!(governance.allows_retention(new(LockMode::Compliance, 10).as_ref(), LockView::default()));
        assert!(!governance.allows_retention(None, LockView { now: 5, bypass: false }));
        assert!(governance.allows_retention(None, view));
    }

    #[test]
    fn default_retention_counts_from_the_write() {
        let rule = LockRule { default: Some((LockMode::Governance, Period::Days(2))) };
        let until = rule.retention(7).map(|retention| retention.until);
        assert_eq!(until, Some(7 + 2 * 86_400_000));
        assert_eq!(Period::Years(u32::MAX).after(u64::MAX), u64::MAX);
        assert_eq!(LockRule::default().retention(7), None);
    }
}
