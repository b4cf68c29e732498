//! Quotas: whether a write may add to a bucket, and to what its owner has.
//!
//! The totals in the index are exact, and cost a read of all leaves. Between two reads a gateway counts its
//! own writes (`nacre_s3::Ledger`). A write is refused only after the totals were read anew. What other
//! gateways write is seen with the next read, at most `FRESH` later.

use crate::access::settings;
use crate::accounts::Accounts;
use crate::buckets::{Buckets, OpenBucket};
use crate::errors;
use crate::store::now;
use bytes::Bytes;
use nacre_s3::{Answer, Ask, Counters, Ledger, Quota, Refusal, User};
use s3s::S3Result;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long totals are used without reading them again.
const FRESH: Duration = Duration::from_secs(5);
/// The same of the limits.
const LIMITS_FRESH: Duration = Duration::from_secs(2);
/// Ledgers and users that are remembered.
const KNOWN_MAX: usize = 10_000;
/// How often totals are read before a write is refused: a write that ends during the read is counted twice.
const READS_MAX: usize = 3;

/// What the totals of one bucket or one user are thought to be.
#[derive(Default)]
struct Account {
    ledger: Mutex<Ledger>,
    /// Held by the one that reads.
    reading: tokio::sync::Mutex<()>,
}

impl Account {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no code panics with it")
    }
}

/// What a write may add. It is given back when this is dropped, unless the write was carried out.
#[derive(Default)]
pub struct Admitted {
    accounts: Vec<Arc<Account>>,
    added: Counters,
}

impl Admitted {
    /// The write was carried out.
    pub fn keep(mut self) {
        for account in std::mem::take(&mut self.accounts) {
            account.ledger().keep(self.added);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        for account in &self.accounts {
            account.ledger().cancel(self.added);
        }
    }
}

/// An owner as read at that time; none if there is no such user.
type KnownOwner = (Option<Arc<User>>, Instant);

/// Checks quotas.
pub struct Quotas {
    accounts: Arc<Accounts>,
    buckets: Arc<Buckets>,
    known: Mutex<HashMap<String, Arc<Account>>>,
    owners: Mutex<HashMap<String, KnownOwner>>,
}

/// Whose totals.
#[derive(Clone, Copy)]
enum Of<'a> {
    Bucket(&'a OpenBucket),
    User(&'a str),
}

impl Quotas {
    /// Has read no totals yet.
    pub fn new(accounts: Arc<Accounts>, buckets: Arc<Buckets>) -> Quotas {
        Quotas { accounts, buckets, known: Mutex::default(), owners: Mutex::default() }
    }

    /// Whether so many bytes may be written: as an object, or as a part of one without a key.
    pub async fn admit(&self, bucket: &OpenBucket, key: Option<&Bytes>, bytes: u64) -> S3Result<Admitted> {
        let owner = self.owner(&bucket.record.owner).await?;
        let of_user = owner.as_ref().map(|owner| owner.user_quota).unwrap_or_default();
        let of_buckets = owner.as_ref().map(|owner| owner.bucket_quota).unwrap_or_default();
        let of_bucket = settings(bucket)?.quota.filter(|quota| quota.is_enabled).unwrap_or(of_buckets);
        let added = Counters { objects: 1, bytes: i64::try_from(bytes).unwrap_or(i64::MAX) };
        let mut admitted = Admitted { accounts: Vec::new(), added };
        let limits =
            [(of_bucket, Of::Bucket(bucket), "bucket"), (of_user, Of::User(&bucket.record.owner), "user")];
        for (quota, of, name) in limits.into_iter().filter(|(quota, ..)| quota.limits()) {
            let account = self.account(of);
            // It counts from here on: of two writes at the same time, each sees the other.
            account.ledger().reserve(added);
            admitted.accounts.push(account.clone());
            self.check(&account, of, &quota, bucket, key, name).await?;
        }
        Ok(admitted)
    }

    /// The same for an object whose size was not known before.
    pub async fn grow(
        &self,
        admitted: Admitted,
        bucket: &OpenBucket,
        key: &Bytes,
        bytes: u64,
    ) -> S3Result<Admitted> {
        let is_enough = u64::try_from(admitted.added.bytes).is_ok_and(|known| bytes <= known);
        if admitted.accounts.is_empty() || is_enough {
            return Ok(admitted);
        }
        drop(admitted);
        self.admit(bucket, Some(key), bytes).await
    }

    async fn check(
        &self,
        account: &Account,
        of: Of<'_>,
        quota: &Quota,
        bucket: &OpenBucket,
        key: Option<&Bytes>,
        name: &str,
    ) -> S3Result<()> {
        let exceeds = |replaced: Counters| {
            let estimate = account.ledger().estimate().unwrap_or_default();
            quota.is_exceeded(estimate.objects - replaced.objects, estimate.bytes - replaced.bytes)
        };
        self.read(account, of, false).await?;
        if !exceeds(Counters::default()) {
            return Ok(());
        }
        // What it replaces goes away.
        let replaced = match key {
            Some(key) => match bucket.index.ask(Ask::Get { key: key.clone() }).await {
                Ok(Answer::Object(object)) => Counters::of_change(None, Some(&object.entry)),
                _ => Counters::default(),
            },
            None => Counters::default(),
        };
        for _ in 0..READS_MAX {
            self.read(account, of, true).await?;
            if !exceeds(replaced) {
                return Ok(());
            }
        }
        Err(errors::quota_exceeded(name))
    }

    async fn read(&self, account: &Account, of: Of<'_>, anew: bool) -> S3Result<()> {
        let asked = now();
        let max_age = u64::try_from(FRESH.as_millis()).unwrap_or(u64::MAX);
        let is_read = |since: u64| account.ledger().read_at().is_some_and(|at| at >= since);
        let since = if anew { asked } else { asked.saturating_sub(max_age) };
        if !anew && is_read(since) {
            return Ok(());
        }
        let _reading = account.reading.lock().await;
        // Another request may have read them meanwhile.
        if is_read(since.saturating_add(u64::from(anew))) {
            return Ok(());
        }
        let began = now();
        account.ledger().begin_read();
        let totals = match of {
            Of::Bucket(bucket) => totals_of(bucket).await?,
            Of::User(user) => {
                let mut totals = Counters::default();
                for record in self.buckets.list(user).await? {
                    if let Some(bucket) = self.buckets.of_any_user(&record.name).await? {
                        totals.add(totals_of(&bucket).await?);
                    }
                }
                totals
            }
        };
        account.ledger().end_read(totals, began);
        Ok(())
    }

    fn account(&self, of: Of<'_>) -> Arc<Account> {
        let name = match of {
            Of::Bucket(bucket) => format!("bucket {}", bucket.record.id),
            Of::User(user) => format!("user {user}"),
        };
        let mut known = self.known.lock().expect("no code panics with it");
        if known.len() >= KNOWN_MAX {
            // Those in use have a further holder.
            known.retain(|_, account| Arc::strong_count(account) > 1);
        }
        known.entry(name).or_default().clone()
    }

    async fn owner(&self, id: &str) -> S3Result<Option<Arc<User>>> {
        let known = self.owners.lock().expect("no code panics with it").get(id).cloned();
        if let Some((owner, since)) = known
            && since.elapsed() < LIMITS_FRESH
        {
            return Ok(owner);
        }
        let since = Instant::now();
        let owner = self.accounts.owner(id).await.map_err(|failure| errors::of_failure(&failure))?;
        let owner = owner.map(Arc::new);
        let mut owners = self.owners.lock().expect("no code panics with it");
        if owners.len() >= KNOWN_MAX {
            owners.clear();
        }
        owners.insert(id.to_owned(), (owner.clone(), since));
        Ok(owner)
    }
}

async fn totals_of(bucket: &OpenBucket) -> S3Result<Counters> {
    match bucket.index.ask(Ask::Totals).await {
        Ok(Answer::Totals(totals)) => Ok(totals),
        Ok(_) => Err(errors::internal("totals were not answered with totals")),
        // It was deleted meanwhile.
        Err(Refusal::NoSuchBucket) => Ok(Counters::default()),
        Err(refusal) => Err(errors::of_refusal(&refusal)),
    }
}
