//! Rate limits: how much a user, and how much all requests for a bucket, may ask for in a minute.
//!
//! Each gateway counts for itself, as radosgw's do. Records of users and settings of buckets have the limits;
//! the object `ratelimit` of the meta namespace has those of all others. It is read again every two seconds.

use crate::access::Opened;
use crate::errors;
use crate::records;
use crate::store::{Pools, Store, now};
use crate::users::Identity;
use hyper::StatusCode;
use nacre_rados::Failure;
use nacre_s3::{GlobalRates, RateLimit, Tokens};
use s3s::{S3Error, S3Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The object with the limits of those that have none of their own.
pub const GLOBAL: &str = "ratelimit";
/// Users and buckets that are remembered.
const KNOWN_MAX: usize = 10_000;
/// How often the object is read.
const INTERVAL: Duration = Duration::from_secs(2);
/// What anonymous requests are remembered by. No key of a user or bucket is without a space.
const ANONYMOUS: &str = "anonymous";

/// What users and buckets may still have in this minute.
#[derive(Default)]
pub struct Rates {
    known: Mutex<HashMap<String, Tokens>>,
    global: Mutex<GlobalRates>,
}

/// A limit, and what is remembered about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Limited {
    name: String,
    limit: RateLimit,
}

/// What the bytes of an admitted request count for.
#[derive(Clone, Debug, Default)]
pub struct Charged {
    is_write: bool,
    names: Vec<String>,
}

fn slow_down() -> S3Error {
    errors::with_code("SlowDown", StatusCode::SERVICE_UNAVAILABLE, "Please reduce your request rate.")
}

/// The limits of those that have none of their own.
pub async fn read_global(pools: &Pools) -> Result<GlobalRates, Failure> {
    let found = records::read(pools, GLOBAL).await?;
    Ok(found.map(|found| found.record).unwrap_or_default())
}

impl Rates {
    /// Reads the limits of those that have none of their own, again and again.
    pub async fn watch(self: Arc<Self>, store: Arc<Store>) {
        loop {
            match self.read(&store).await {
                Ok(()) => {}
                Err(e) => tracing::warn!("the global rate limits cannot be read, those before hold: {e}"),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn read(&self, store: &Store) -> Result<(), Failure> {
        let Some(pools) = store.find_pools().await? else { return Ok(()) };
        let global = read_global(pools).await?;
        *self.global.lock().unwrap_or_else(PoisonError::into_inner) = global;
        Ok(())
    }

    /// The limits of a request.
    pub fn of(&self, identity: &Identity, opened: Option<&Opened>) -> Vec<Limited> {
        let global = *self.global.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = identity.user.as_ref().or(identity.owner.as_ref());
        let of_sender = match sender {
            Some(user) => user.rate_limit.unwrap_or(global.user),
            None => global.anonymous,
        };
        // Most have none: a name is made for the others only.
        let mut limited = Vec::new();
        if of_sender.limits() {
            let name = sender.map_or(ANONYMOUS.to_owned(), |user| format!("user {}", user.id));
            limited.push(Limited { name, limit: of_sender });
        }
        if let Some(opened) = opened {
            let limit = opened.rights.access.rate_limit.unwrap_or(global.bucket);
            if limit.limits() {
                limited.push(Limited { name: format!("bucket {}", opened.bucket.record.id), limit });
            }
        }
        limited
    }

    /// Whether a request may be carried out under all of its limits. It counts then.
    pub fn admit(&self, limits: Vec<Limited>, is_write: bool) -> S3Result<Charged> {
        if limits.is_empty() {
            return Ok(Charged::default());
        }
        let now = now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() + limits.len() > KNOWN_MAX {
            known.clear();
        }
        for Limited { name, limit } in &limits {
            let tokens = known.entry(name.clone()).or_insert_with(|| Tokens::new(*limit, now));
            if !tokens.allows(*limit, is_write, now) {
                return Err(slow_down());
            }
        }
        for Limited { name, .. } in &limits {
            if let Some(tokens) = known.get_mut(name) {
                tokens.take(is_write);
            }
        }
        Ok(Charged { is_write, names: limits.into_iter().map(|limited| limited.name).collect() })
    }

    /// An admitted request has ended, which transferred this many bytes.
    pub fn spend(&self, charged: &Charged, received: u64, sent: u64) {
        if charged.names.is_empty() {
            return;
        }
        let bytes = if charged.is_write { received } else { sent };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for name in &charged.names {
            if let Some(tokens) = known.get_mut(name) {
                tokens.spend(charged.is_write, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_s3::User;

    fn limited(name: &str, limit: RateLimit) -> Limited {
        Limited { name: name.to_owned(), limit }
    }

    #[test]
    fn users_and_buckets_are_limited_apart_from_each_other() {
        let rates = Rates::default();
        let limit = RateLimit { is_enabled: true, read_ops: 1, write_bytes: 10, ..RateLimit::default() };
        assert!(rates.admit(vec![limited("user a", limit)], false).is_ok());
        let refused = rates.admit(vec![limited("user a", limit)], false).unwrap_err();
        assert_eq!(refused.code().as_str(), "SlowDown");
        // What one limit refuses does not count for another.
        assert!(rates.admit(vec![limited("user b", limit), limited("user a", limit)], false).is_err());
        assert!(rates.admit(vec![limited("user b", limit)], false).is_ok());
        let charged = rates.admit(vec![limited("user a", limit)], true).unwrap();
        rates.spend(&charged, 1000, 0);
        assert!(rates.admit(vec![limited("user a", limit)], true).is_err());
        rates.spend(&Charged::default(), 1000, 1000);
    }

    #[test]
    fn own_limit_takes_the_place_of_the_global_one() {
        let rates = Rates::default();
        let limit = |read_ops| RateLimit { is_enabled: true, read_ops, ..RateLimit::default() };
        let user = |rate_limit| {
            let user = User { id: "a".into(), rate_limit, ..User::default() };
            Identity { owner: Some(Arc::new(user)), ..Identity::anonymous() }
        };
        assert!(rates.of(&user(None), None).is_empty());
        *rates.global.lock().unwrap() =
            GlobalRates { user: limit(5), anonymous: limit(7), ..GlobalRates::default() };
        assert_eq!(rates.of(&user(None), None), [limited("user a", limit(5))]);
        assert_eq!(rates.of(&user(Some(limit(9))), None), [limited("user a", limit(9))]);
        assert!(rates.of(&user(Some(RateLimit::default())), None).is_empty());
        assert_eq!(rates.of(&Identity::anonymous(), None), [limited(ANONYMOUS, limit(7))]);
    }
}
