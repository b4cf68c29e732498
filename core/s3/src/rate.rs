//! Limits of how much a user, or all requests for a bucket, may ask for in a minute.
//!
//! As with radosgw, each gateway counts for itself, a user or bucket can have at most what a minute gives at
//! once, and bytes are counted when they have been transferred, so that a large transfer delays those after
//! it.

use nacre_wire::versioned_fields;

/// In a minute; 0: any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    pub is_enabled: bool,
    pub read_ops: u64,
    pub write_ops: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
}
versioned_fields!(RateLimit, "s3 rate limit", is_enabled, read_ops, write_ops, read_bytes, write_bytes);

impl RateLimit {
    /// Whether it limits anything.
    pub fn limits(&self) -> bool {
        let most = [self.read_ops, self.write_ops, self.read_bytes, self.write_bytes];
        self.is_enabled && most.iter().any(|most| *most > 0)
    }
}

/// The limits of users and buckets that have none of their own, and of anonymous requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalRates {
    pub user: RateLimit,
    pub bucket: RateLimit,
    /// Of all anonymous requests together.
    pub anonymous: RateLimit,
}
versioned_fields!(GlobalRates, "s3 global rate limits", user, bucket, anonymous);

/// What one request or byte is, so that a limit gives as much in a millisecond as it has in a minute.
const ONE: i64 = 60_000;

/// What may still be had, in parts of `ONE`; negative after a large transfer.
#[derive(Clone, Copy, Debug)]
struct Left(i64);

impl Left {
    fn full(most: u64) -> Left {
        Left(parts(most))
    }
    fn refill(&mut self, most: u64, millis: u64) {
        let more = i64::try_from(most.saturating_mul(millis)).unwrap_or(i64::MAX);
        self.0 = self.0.saturating_add(more).min(parts(most));
    }
}

fn parts(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(ONE)
}

/// What one user, or one bucket, may still have.
#[derive(Clone, Debug)]
pub struct Tokens {
    limit: RateLimit,
    read_ops: Left,
    write_ops: Left,
    read_bytes: Left,
    write_bytes: Left,
    /// When it was filled last, in milliseconds.
    at: u64,
}

impl Tokens {
    /// All that the limit gives in a minute.
    pub fn new(limit: RateLimit, now: u64) -> Tokens {
        Tokens {
            limit,
            read_ops: Left::full(limit.read_ops),
            write_ops: Left::full(limit.write_ops),
            read_bytes: Left::full(limit.read_bytes),
            write_bytes: Left::full(limit.write_bytes),
            at: now,
        }
    }

    /// Whether a request may be carried out now, under this limit. It does not count yet.
    pub fn allows(&mut self, limit: RateLimit, is_write: bool, now: u64) -> bool {
        if limit != self.limit {
            *self = Tokens::new(limit, now);
        }
        let millis = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.read_ops.refill(limit.read_ops, millis);
        self.write_ops.refill(limit.write_ops, millis);
        self.read_bytes.refill(limit.read_bytes, millis);
        self.write_bytes.refill(limit.write_bytes, millis);
        let (ops, most_ops, bytes, most_bytes) = match is_write {
            true => (self.write_ops, limit.write_ops, self.write_bytes, limit.write_bytes),
            false => (self.read_ops, limit.read_ops, self.read_bytes, limit.read_bytes),
        };
        (most_ops == 0 || ops.0 >= ONE) && (most_bytes == 0 || bytes.0 > 0)
    }

    /// A request is carried out.
    pub fn take(&mut self, is_write: bool) {
        let left = if is_write { &mut self.write_ops } else { &mut self.read_ops };
        left.0 = left.0.saturating_sub(ONE);
    }

    /// Bytes were transferred.
    pub fn spend(&mut self, is_write: bool, bytes: u64) {
        let left = if is_write { &mut self.write_bytes } else { &mut self.read_bytes };
        left.0 = left.0.saturating_sub(parts(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(tokens: &mut Tokens, limit: RateLimit, is_write: bool, now: u64) -> bool {
        let is_allowed = tokens.allows(limit, is_write, now);
        if is_allowed {
            tokens.take(is_write);
        }
        is_allowed
    }

    #[test]
    fn requests_beyond_the_limit_wait_until_there_are_tokens_again() {
        let limit = RateLimit { is_enabled: true, write_ops: 2, ..RateLimit::default() };
        let mut tokens = Tokens::new(limit, 0);
        let mut write = |limit, now| admit(&mut tokens, limit, true, now);
        assert!(write(limit, 0) && write(limit, 0));
        assert!(!write(limit, 0));
        assert!(!write(limit, 29_000));
        assert!(write(limit, 30_000));
        assert!(!write(limit, 30_001));
        // A longer pause gives no more than a minute.
        let after = 10 * 60_000;
        assert!(write(limit, after) && write(limit, after));
        assert!(!write(limit, after));
        // Another limit begins anew.
        let more = RateLimit { write_ops: 3, ..limit };
        assert!(write(more, after));
        // A clock that goes back gives nothing.
        assert!(write(more, 0) && write(more, 0) && !write(more, 0));
        assert!(admit(&mut tokens, more, false, 0), "reads are not limited");
        // Attempts that come often do not keep tokens from coming back.
        let slow = RateLimit { write_ops: 1, ..limit };
        let mut tokens = Tokens::new(slow, 0);
        let admitted = (0..=120_000).filter(|now| admit(&mut tokens, slow, true, *now)).count();
        assert_eq!(admitted, 3);
    }

    #[test]
    fn large_transfer_delays_those_after_it() {
        let limit = RateLimit { is_enabled: true, read_bytes: 100, ..RateLimit::default() };
        let mut tokens = Tokens::new(limit, 0);
        assert!(admit(&mut tokens, limit, false, 0));
        tokens.spend(false, 200);
        assert!(!tokens.allows(limit, false, 0) && !tokens.allows(limit, false, 60_000));
        assert!(tokens.allows(limit, false, 61_000));
        tokens.spend(false, u64::MAX);
        assert!(!tokens.allows(limit, false, 120_000));
    }

    #[test]
    fn limit_that_is_disabled_or_empty_limits_nothing() {
        let limit = RateLimit { is_enabled: true, read_bytes: 100, ..RateLimit::default() };
        assert!(limit.limits());
        assert!(!RateLimit { is_enabled: false, ..limit }.limits());
        assert!(!RateLimit { is_enabled: true, ..RateLimit::default() }.limits());
    }
}
