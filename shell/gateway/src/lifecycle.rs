//! Carries out lifecycle rules, in the background.
//!
//! One gateway at a time does: the one with the lease, which the object `lifecycle` of the meta namespace
//! has. The omap of that object has the progress in each bucket, so that another gateway can go on. Nothing
//! is wrong if two do: each removal holds only if its version is still as it was seen.

use crate::buckets::{OpenBucket, upload_of};
use crate::checksums::{Algorithm, Expected};
use crate::expiry::Ended;
use crate::lease;
use crate::objects::owner;
use crate::orphans::{self, WINDOW};
use crate::receive::{Incoming, receive};
use crate::send::send;
use crate::service::Core;
use crate::store::{Pools, now};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hyper::header::HeaderMap;
use hyper::http::Extensions;
use nacre_base::Name;
use nacre_rados::Failure;
use nacre_s3::{
    Aged, Answer, Ask, Body, Calendar, Change, Condition, Deletion, Entry, Expiry, Item, KeySource,
    LifecycleRule, Listed, LockView, Object, PageRequest, Refusal, Revision, Upload,
};
use nacre_wire::{from_slice, to_vec};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const LEASE: &str = "lifecycle";
/// What stands for the search of left data among the progress of buckets.
const SWEEP: &str = "sweep";
/// How often a gateway looks whether there is something to do.
const INTERVAL: Duration = Duration::from_secs(30);
const PAGE: usize = 1000;
/// After so many pages of one bucket the next bucket has its turn.
const PAGES_MAX: usize = 10;
/// Removals at the same time.
const REMOVALS_MAX: usize = 32;
/// Moves to other storage classes at the same time.
const MOVES_MAX: usize = 2;
/// Milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1000;

/// How far a bucket is: when its last pass was finished, and the key behind which the present one goes on.
type Progress = (u64, String);

/// What the lifecycle of a gateway needs.
pub struct Lifecycle {
    core: Arc<Core>,
    /// The length of a day, if it is not one.
    short_day: Option<Duration>,
    /// Room for moves to other storage classes.
    moving: Semaphore,
}

impl Lifecycle {
    /// `short_day` is the length of a day, if it is not one.
    pub fn new(core: Arc<Core>, short_day: Option<Duration>) -> Lifecycle {
        Lifecycle { core, short_day, moving: Semaphore::new(MOVES_MAX) }
    }

    /// Goes through all buckets with rules, once a day.
    pub async fn run(self) {
        let interval =
            self.short_day.map_or(INTERVAL, |day| (day / 2).min(INTERVAL)).max(Duration::from_millis(500));
        loop {
            tokio::time::sleep(interval).await;
            if let Err(e) = self.round().await {
                tracing::warn!("lifecycle rules are left for later: {e:#}");
            }
        }
    }

    fn calendar(&self) -> Calendar {
        let short_day = self.short_day.map(|day| u64::try_from(day.as_millis()).unwrap_or(u64::MAX).max(1));
        Calendar { now: now(), short_day }
    }

    /// Whether a bucket whose last pass was finished at this time is due.
    fn is_due(&self, finished: u64) -> bool {
        let calendar = self.calendar();
        let day = calendar.short_day.unwrap_or(DAY);
        finished / day < calendar.now / day
    }

    async fn round(&self) -> Result<()> {
        let Some(pools) = self.core.store.find_pools().await? else { return Ok(()) };
        loop {
            if !self.hold_lease(pools).await? {
                return Ok(());
            }
            // What has ended does not wait for all buckets.
            let Core { store, buckets, grace, .. } = &*self.core;
            let ended = Ended { store, buckets, grace: *grace };
            if let Err(e) = ended.round(pools).await {
                tracing::warn!("objects that have ended are left for later: {e:#}");
            }
            let mut has_more = false;
            let mut names = pools.meta.objects();
            while let Some(entry) = names.next().await? {
                let name = entry.name.to_string();
                let Some(name) = name.strip_prefix("bucket.") else { continue };
                // One bucket that cannot be read does not keep others from their turn.
                match self.turn(pools, name).await.with_context(|| format!("bucket {name}")) {
                    Ok(more) => has_more |= more,
                    Err(e) => tracing::warn!("lifecycle rules are left for later: {e:#}"),
                }
                if !self.hold_lease(pools).await? {
                    return Ok(());
                }
            }
            if !has_more {
                break;
            }
        }
        self.sweep(pools).await.context("data of gateways that have ended")
    }

    /// After this time without a sign a gateway has ended.
    pub fn window(&self) -> Duration {
        self.short_day.map_or(WINDOW, |day| day * 20)
    }

    /// Once a day, looks for data that gateways have left.
    async fn sweep(&self, pools: &Pools) -> Result<()> {
        let (finished, _) = progress(pools, SWEEP).await?;
        if !self.is_due(finished) {
            return Ok(());
        }
        let begun = now();
        orphans::sweep(&self.core.store, pools, self.window()).await?;
        set_progress(pools, SWEEP, (begun, String::new())).await
    }

    /// Takes the lease, or keeps it. No: another gateway has it.
    async fn hold_lease(&self, pools: &Pools) -> Result<bool> {
        lease::hold(&self.core.store, pools, LEASE).await
    }

    /// Some pages of a bucket. Whether there are more.
    async fn turn(&self, pools: &Pools, name: &str) -> Result<bool> {
        let Some(bucket) = self.core.buckets.of_any_user(name).await? else { return Ok(false) };
        if !bucket.config.lifecycle.iter().any(|rule| rule.is_enabled) {
            return Ok(false);
        }
        let id = bucket.record.id.as_str();
        let (finished, after) = progress(pools, id).await?;
        if after.is_empty() && !self.is_due(finished) {
            return Ok(false);
        }
        let begun = now();
        if after.is_empty() {
            self.abort_uploads(&bucket).await?;
        }
        let done: Progress = match self.expire(&bucket, after).await? {
            Some(after) => (finished, after),
            None => (begun, String::new()),
        };
        let has_more = !done.1.is_empty();
        set_progress(pools, id, done).await?;
        Ok(has_more)
    }

    /// Aborts uploads that are too old.
    async fn abort_uploads(&self, bucket: &OpenBucket) -> Result<()> {
        if !bucket.config.lifecycle.iter().any(|rule| rule.is_enabled && rule.abort_days.is_some()) {
            return Ok(());
        }
        let request = PageRequest { max: PAGE, ..PageRequest::default() };
        let mut request = request.uploads_behind("", None);
        loop {
            let page = self.page(bucket, request.clone()).await?;
            for item in &page.items {
                let Item::Key(name, value) = item else { continue };
                let Some((key, id)) = upload_of(name) else { bail!("an upload without an id") };
                let upload: Upload = from_slice(value)?;
                let calendar = self.calendar();
                let aborts = |rule: &LifecycleRule| rule.aborts(&upload.key, upload.initiated, calendar);
                if bucket.config.lifecycle.iter().any(aborts) {
                    done(bucket.index.ask(Ask::Change(Change::AbortUpload { key, id })).await)?;
                }
            }
            match page.items.last() {
                Some(last) if page.is_truncated => request.after = last.marker().clone(),
                _ => return Ok(()),
            }
        }
    }

    async fn page(&self, bucket: &OpenBucket, request: PageRequest) -> Result<nacre_s3::Page> {
        match bucket.index.ask(Ask::Page(request)).await? {
            Answer::Page(page) => Ok(page),
            _ => bail!("a page was not answered with a page"),
        }
    }

    /// Goes on behind a key. Returns the last key whose versions were all looked at, if there are more keys.
    async fn expire(&self, bucket: &OpenBucket, after: String) -> Result<Option<String>> {
        let request = PageRequest { max: PAGE, listed: Listed::Versions, ..PageRequest::default() };
        let mut request = request.versions_behind(&after, None);
        let mut keys = Keys::default();
        let mut pages = 0;
        loop {
            let page = self.page(bucket, request.clone()).await?;
            pages += 1;
            let mut expired = Vec::new();
            for item in &page.items {
                let Item::Key(line, value) = item else { continue };
                if let Some(line) = keys.next(line, from_slice(value)?)? {
                    expired.extend(self.judge(bucket, line));
                }
            }
            if !page.is_truncated
                && let Some(line) = keys.finish()
            {
                expired.extend(self.judge(bucket, line));
            }
            // Moves need memory, of which clients need most.
            let (moves, removals): (Vec<_>, Vec<_>) = expired.into_iter().partition(|it| it.rules.is_empty());
            for (those, at_once) in [(removals, REMOVALS_MAX), (moves, MOVES_MAX)] {
                let work = stream::iter(those).map(|one| self.carry_out(bucket, one));
                let results: Vec<Result<()>> = work.buffer_unordered(at_once).collect().await;
                results.into_iter().collect::<Result<Vec<()>>>()?;
            }
            let Some(last) = page.items.last().filter(|_| page.is_truncated) else { return Ok(None) };
            if pages >= PAGES_MAX && !keys.complete.is_empty() {
                return Ok(Some(keys.complete));
            }
            request.after = last.marker().clone();
        }
    }

    /// What rules want of a version.
    fn judge(&self, bucket: &OpenBucket, line: Line) -> Option<Expired> {
        let aged =
            Aged { key: &line.key, entry: &line.entry, noncurrent: line.noncurrent, is_last: line.is_last };
        let calendar = self.calendar();
        let wants = |rule: &LifecycleRule| Some((rule.expiry(aged, calendar)?, rule.clone()));
        let moves = |rule: &LifecycleRule| Some((rule.transition(aged, calendar)?.to_owned(), rule.clone()));
        let all = &bucket.config.lifecycle;
        let rules: Vec<_> = all.iter().filter_map(wants).collect();
        let moves: Vec<_> = all.iter().filter_map(moves).collect();
        (!rules.is_empty() || !moves.is_empty()).then_some(Expired { line, rules, moves })
    }

    async fn carry_out(&self, bucket: &OpenBucket, expired: Expired) -> Result<()> {
        let Expired { line: Line { key, entry, .. }, rules, moves } = expired;
        let version = entry.version();
        let expiry = match rules.iter().find(|(_, rule)| rule.tags.is_empty()) {
            Some((expiry, _)) => *expiry,
            None => {
                let ask = Ask::GetVersion { key: key.clone().into(), version };
                let object = match bucket.index.ask(ask).await {
                    Ok(Answer::Object(object)) => object,
                    other => return done(other),
                };
                let fits = |rule: &LifecycleRule| rule.fits_tags(&object.head.tags);
                match rules.iter().find(|(_, rule)| fits(rule)) {
                    Some((expiry, _)) => *expiry,
                    None => {
                        let Some((class, _)) = moves.iter().find(|(_, rule)| fits(rule)) else {
                            return Ok(());
                        };
                        // One that cannot be read must not keep others from their turn.
                        if let Err(e) = self.move_to(bucket, key, *object, class).await {
                            tracing::warn!("an object of {} is not moved: {e:#}", bucket.record.name);
                        }
                        return Ok(());
                    }
                }
            }
        };
        let deletion = Deletion {
            key: key.into(),
            version: (expiry != Expiry::Delete).then_some(version),
            versioning: bucket.config.versioning,
            condition: Condition { tag: Some(entry.tag), ..Condition::default() },
            only_if_alone: expiry == Expiry::RemoveMarker,
            owner: bucket.record.owner.clone(),
            view: LockView { now: now(), bypass: false },
            due: now() + self.core.grace_millis(),
            tag: self.core.store.new_tag(),
        };
        done(bucket.index.ask(Ask::Change(Change::Delete(Box::new(deletion)))).await)
    }

    /// Moves a version to another storage class, if it is still the same then.
    async fn move_to(&self, bucket: &OpenBucket, key: String, object: Object, class: &str) -> Result<()> {
        // Also what was a removal until the object's tags were read.
        let _permit = self.moving.acquire().await?;
        let (core, store) = (&self.core, &self.core.store);
        let Some(number) = store.class_number(class, false).await? else {
            bail!("there is no storage class {class} any more");
        };
        let Object { entry, head } = object;
        let (key, tag) = (Bytes::from(key), store.new_tag().in_class(number));
        let (to, data) = match &head.body {
            // The index has it, whatever the class.
            Body::Inline(_) => (head.body.clone(), None),
            // A client's key is kept nowhere: what is encrypted with one stays where it is.
            Body::Data(_) if head.encryption.as_ref().is_some_and(|it| it.source == KeySource::Client) => {
                return Ok(());
            }
            Body::Data(_) => {
                let none = (HeaderMap::new(), Extensions::new());
                let cipher = core.cipher(&head.encryption, &none.0, &none.1).await?;
                let incoming = Incoming {
                    stream: Some(send(store, &head.body, cipher.clone(), 0..entry.size)?),
                    expected: Expected::none(Algorithm::Crc64Nvme),
                    trailers: None,
                    len: Some(entry.size),
                    owner: owner(bucket, &key),
                    may_inline: false,
                    len_max: u64::MAX,
                    cipher,
                };
                let received = receive(store, tag, incoming).await?;
                (received.body, Some(received.data.hand_over()))
            }
        };
        let due = now() + core.grace_millis();
        let revision = Revision::Move { from: head.body, to, storage_class: class.to_owned(), due };
        let version = Some(entry.version());
        let revise = Change::Revise { key, version, made_by: Some(entry.tag), revision, tag };
        let moved = bucket.index.ask(Ask::Change(revise)).await;
        // A write that failed may have been carried out all the same.
        if let (Err(refusal), Some(data)) = (&moved, data)
            && !matches!(refusal, Refusal::Failed(_))
        {
            data.refused();
        }
        done(moved)
    }
}

async fn progress(pools: &Pools, name: &str) -> Result<Progress> {
    let key = Name::from(name);
    let reply = pools.meta.run(pools.meta.object(LEASE).omap_get_keys([key.clone()].into())).await?;
    let output = reply.ops.first().map(|op| op.data.clone()).unwrap_or_default();
    let found: BTreeMap<Name, Bytes> = from_slice(&output)?;
    // What cannot be read is done again.
    Ok(found.get(&key).and_then(|value| from_slice(value).ok()).unwrap_or_default())
}

async fn set_progress(pools: &Pools, name: &str, progress: Progress) -> Result<()> {
    let pair = (Name::from(name), Bytes::from(to_vec(&progress)));
    let set = pools.meta.object(LEASE).assert_exists().omap_set([pair]);
    Ok(pools.meta.run(set).await.map(drop)?)
}

/// The progress in a bucket is forgotten: its rules have changed, or it is deleted.
pub async fn forget(pools: &Pools, bucket: &str) -> Result<(), Failure> {
    let forget = pools.meta.object(LEASE).assert_exists().omap_remove([Name::from(bucket)]);
    match pools.meta.run(forget).await {
        // No bucket has had rules yet.
        Err(failure) if failure.is_not_found() => Ok(()),
        result => result.map(drop),
    }
}

/// What is not there or not the same any more, and what is locked, stays as it is.
fn done(result: Result<Answer, Refusal>) -> Result<()> {
    match result {
        Ok(_)
        | Err(
            Refusal::NoSuchKey
            | Refusal::NoSuchVersion
            | Refusal::NoSuchUpload
            | Refusal::DeleteMarker { .. }
            | Refusal::PreconditionFailed
            | Refusal::Locked,
        ) => Ok(()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// A version that rules want something of.
struct Expired {
    line: Line,
    rules: Vec<(Expiry, LifecycleRule)>,
    /// Storage classes that it is to get.
    moves: Vec<(String, LifecycleRule)>,
}

/// A version among those of its key.
struct Line {
    key: String,
    entry: Entry,
    noncurrent: Option<(u64, u32)>,
    is_last: bool,
}

/// Versions in the order of a listing. Each is held back until it is known what follows.
#[derive(Default)]
struct Keys {
    held: Option<Line>,
    /// The last key of which everything was seen.
    complete: String,
}

impl Keys {
    /// Takes the next line, and gives out the one before.
    fn next(&mut self, line: &[u8], entry: Entry) -> Result<Option<Line>> {
        let at = line.iter().position(|byte| *byte == 0).context("a version without a key")?;
        let key = String::from_utf8(line[..at].to_vec())?;
        let is_current = at + 1 == line.len();
        let newer = self.held.as_ref().filter(|held| held.key == key);
        let noncurrent = newer.map(|newer| {
            let between = newer.noncurrent.map_or(0, |(_, between)| between.saturating_add(1));
            (newer.entry.mtime, between)
        });
        if !is_current && noncurrent.is_none() {
            bail!("a version of {key:?} comes before the current one");
        }
        let next = Line { key, entry, noncurrent, is_last: true };
        let before = self.held.replace(next);
        let same_key = self.held.as_ref().map(|held| held.key.clone());
        Ok(before.map(|before| {
            let is_last = Some(&before.key) != same_key.as_ref();
            if is_last {
                self.complete.clone_from(&before.key);
            }
            Line { is_last, ..before }
        }))
    }

    /// Nothing follows.
    fn finish(&mut self) -> Option<Line> {
        self.held.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_counted_from_the_current_one() {
        let mut keys = Keys::default();
        let entry = |mtime| Entry { mtime, ..Entry::default() };
        let mut lines = Vec::new();
        for (line, mtime) in [("a\0", 30), ("a\0f1", 20), ("a\0f2", 10), ("b\0", 5)] {
            lines.extend(keys.next(line.as_bytes(), entry(mtime)).unwrap());
        }
        assert_eq!(keys.complete, "a");
        lines.extend(keys.finish());
        let seen: Vec<_> = lines.iter().map(|line| (&*line.key, line.noncurrent, line.is_last)).collect();
        let expected =
            [("a", None, false), ("a", Some((30, 0)), false), ("a", Some((20, 1)), true), ("b", None, true)];
        assert_eq!(seen, expected);
        assert!(Keys::default().next(b"no zero", entry(1)).is_err());
    }
}
