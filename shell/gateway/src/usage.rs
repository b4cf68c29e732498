//! The usage log: what this gateway counts, written every some seconds, and what all gateways have written.
//!
//! The namespace `usage` of the index pool has objects of at most ten thousand records, each of one gateway
//! and one day. A gateway that is killed loses what it counted since its last write.

use crate::store::{Pools, Store, now};
use anyhow::Result;
use bytes::Bytes;
use nacre_base::{Name, errno};
use nacre_rados::Compare;
use nacre_s3::usage::{DAY, HOUR, Usage, UsageBook, UsageKey, UsageObject, UsageRecord, UsageWrite};
use nacre_wire::from_slice;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How often records are written.
const INTERVAL: Duration = Duration::from_secs(10);
/// With so many records they are written at once.
const FULL: usize = 10_000;
/// Records in one operation.
const BATCH: usize = 100;
const PAGE: u64 = 1000;

/// What this gateway counts.
pub struct UsageLog {
    store: Arc<Store>,
    book: Mutex<UsageBook>,
    is_full: Notify,
}

/// A request that has ended, as the log has it.
pub struct Counted<'a> {
    /// The user that it is charged to.
    pub user: &'a str,
    /// Empty if it was for none.
    pub bucket: &'a str,
    /// Of the bucket.
    pub owner: &'a str,
    /// The operation of S3.
    pub operation: &'a str,
    pub usage: Usage,
}

impl UsageLog {
    /// Of this incarnation of a gateway.
    pub fn new(store: Arc<Store>) -> UsageLog {
        UsageLog { book: Mutex::new(UsageBook::new(store.instance)), store, is_full: Notify::new() }
    }

    fn book(&self) -> MutexGuard<'_, UsageBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request.
    pub fn count(&self, request: &Counted<'_>) {
        let seconds = now() / 1000;
        let hour = seconds - seconds % HOUR;
        let key = UsageKey { hour, user: request.user.to_owned(), bucket: request.bucket.to_owned() };
        let mut book = self.book();
        if !book.add(key, request.owner, request.operation, request.usage) {
            tracing::warn!("the usage log is not written: a request of {} is not counted", request.user);
        }
        if book.len() >= FULL {
            self.is_full.notify_one();
        }
    }

    /// Writes records, again and again.
    pub async fn run(self: Arc<Self>) {
        loop {
            let _ = tokio::time::timeout(INTERVAL, self.is_full.notified()).await;
            if let Err(e) = self.flush().await {
                tracing::warn!("the usage log is written later: {e:#}");
                tokio::time::sleep(INTERVAL).await;
            }
        }
    }

    /// Writes all records that were changed.
    pub async fn flush(&self) -> Result<()> {
        let Some(pools) = self.store.find_pools().await? else { return Ok(()) };
        let changed = self.book().changed();
        for (object, writes) in changed {
            for batch in writes.chunks(BATCH) {
                self.write(pools, object, batch).await?;
            }
        }
        self.book().retire(now() / 1000);
        Ok(())
    }

    async fn write(&self, pools: &Pools, object: UsageObject, writes: &[UsageWrite]) -> Result<()> {
        let mut request = pools.usage.object(object.name()).create(false);
        for write in writes {
            request = request.omap_compare(write.name.clone(), Compare::Equal, write.before.clone());
        }
        let pairs: Vec<(Name, Bytes)> =
            writes.iter().map(|write| (write.name.clone(), write.value.clone())).collect();
        match pools.usage.run(request.omap_set(pairs)).await {
            Ok(_) => {
                self.book().written(writes);
                Ok(())
            }
            // Records were removed, or an operation was carried out whose result was lost.
            Err(failure) if failure.errno == errno::ECANCELED || failure.is_not_found() => {
                let names: BTreeSet<Name> = writes.iter().map(|write| write.name.clone()).collect();
                let found = pools.usage.object(object.name()).omap_get_keys(names);
                let found = match pools.usage.run(found).await {
                    Err(failure) if failure.is_not_found() => Default::default(),
                    reply => {
                        let reply = reply?;
                        let data = reply.ops.first().map(|op| op.data.clone()).unwrap_or_default();
                        let found: BTreeMap<Name, Bytes> = from_slice(&data)?;
                        found
                    }
                };
                let mut book = self.book();
                for write in writes {
                    book.found(write, &found.get(&write.name).cloned().unwrap_or_default());
                }
                Ok(())
            }
            Err(failure) => Err(failure.into()),
        }
    }
}

/// Hours, in seconds since 1970: from `start`, up to and without `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub start: u64,
    pub end: u64,
}

impl Span {
    /// Whether an hour is in it.
    pub fn has(self, hour: u64) -> bool {
        (self.start..self.end).contains(&hour)
    }
    fn has_some_of(self, day: u64) -> bool {
        day.saturating_mul(DAY) < self.end && day.saturating_add(1).saturating_mul(DAY) > self.start
    }
    fn has_all_of(self, day: u64) -> bool {
        self.start <= day.saturating_mul(DAY) && day.saturating_add(1).saturating_mul(DAY) <= self.end
    }
}

/// The objects with records of these hours.
async fn objects(pools: &Pools, span: Span) -> Result<Vec<UsageObject>> {
    let (mut found, mut names) = (Vec::new(), pools.usage.objects());
    while let Some(entry) = names.next().await? {
        found.extend(
            UsageObject::parse(&entry.name.to_string()).filter(|object| span.has_some_of(object.day)),
        );
    }
    found.sort_unstable();
    Ok(found)
}

/// Hands over all records of these hours.
pub async fn read(pools: &Pools, span: Span, mut each: impl FnMut(UsageRecord)) -> Result<()> {
    for object in objects(pools, span).await? {
        each_record(pools, object, |_, _, record| {
            if span.has(record.hour) {
                each(record);
            }
        })
        .await?;
    }
    Ok(())
}

async fn each_record(
    pools: &Pools,
    object: UsageObject,
    mut each: impl FnMut(Name, Bytes, UsageRecord),
) -> Result<()> {
    let mut after = Name::default();
    loop {
        let (page, has_more) = match pools.usage.omap(object.name(), after.clone(), PAGE).await {
            Err(failure) if failure.is_not_found() => return Ok(()),
            page => page?,
        };
        let Some(last) = page.keys().next_back().cloned() else { return Ok(()) };
        for (name, value) in page {
            let record = from_slice(&value)?;
            each(name, value, record);
        }
        if !has_more {
            return Ok(());
        }
        after = last;
    }
}

/// Removes the records of these hours that `is_meant` chooses; with none, all of them.
pub async fn trim(
    pools: &Pools,
    span: Span,
    is_meant: Option<&(dyn Fn(&UsageRecord) -> bool + Send + Sync)>,
) -> Result<()> {
    // Gateways may still write records of the day, and of the day before.
    let is_over = |day: u64| (day + 2) * DAY <= now() / 1000;
    for object in objects(pools, span).await? {
        if is_meant.is_none() && span.has_all_of(object.day) && is_over(object.day) {
            match pools.usage.remove(object.name()).await {
                Err(failure) if !failure.is_not_found() => return Err(failure.into()),
                _ => continue,
            }
        }
        let mut found: Vec<(Name, Bytes)> = Vec::new();
        each_record(pools, object, |name, value, record| {
            if span.has(record.hour) && is_meant.is_none_or(|is_meant| is_meant(&record)) {
                found.push((name, value));
            }
        })
        .await?;
        for (name, value) in found {
            remove(pools, object, name, value).await?;
        }
    }
    Ok(())
}

/// Removes a record as it was read. One that was changed meanwhile is read again.
async fn remove(pools: &Pools, object: UsageObject, name: Name, mut value: Bytes) -> Result<()> {
    loop {
        let same = pools.usage.object(object.name()).omap_compare(name.clone(), Compare::Equal, value);
        match pools.usage.run(same.omap_remove([name.clone()])).await {
            Err(failure) if failure.is_not_found() => return Ok(()),
            Err(failure) if failure.errno == errno::ECANCELED => {
                let one = pools.usage.object(object.name()).omap_get_keys(BTreeSet::from([name.clone()]));
                let reply = pools.usage.run(one).await?;
                let data = reply.ops.first().map(|op| op.data.clone()).unwrap_or_default();
                let found: BTreeMap<Name, Bytes> = from_slice(&data)?;
                match found.into_values().next() {
                    Some(found) => value = found,
                    None => return Ok(()),
                }
            }
            result => return Ok(result.map(drop)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_days_and_hours() {
        let span = Span { start: DAY + HOUR, end: 3 * DAY };
        assert!(!span.has(DAY) && span.has(DAY + HOUR) && !span.has(3 * DAY));
        assert!(!span.has_some_of(0) && span.has_some_of(1) && span.has_some_of(2) && !span.has_some_of(3));
        assert!(!span.has_all_of(1) && span.has_all_of(2));
        assert!(Span { start: 0, end: u64::MAX }.has_all_of(20_000));
    }
}
