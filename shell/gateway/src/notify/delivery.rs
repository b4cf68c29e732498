//! Sends notices that wait in the index.
//!
//! The gateway that carried out a change sends its notices at once. What it could not send, or did not live
//! to send, one gateway at a time looks for in all buckets with rules, twice a minute. A notice is removed
//! when the endpoint has taken it, so that it is sent at least once.

use super::topics;
use super::webhook::{Endpoint, Webhook, Webhooks};
use crate::buckets::{Buckets, OpenBucket};
use crate::lease;
use crate::store::{Pools, Store, now};
use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use nacre_base::Name;
use nacre_s3::{Answer, Ask, LeafName, NoticeItem, NoticesOf, Paused, Topic, setting};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// The object with the lease.
const LEASE: &str = "notifications";
/// How often waiting notices are looked for.
const INTERVAL: Duration = Duration::from_secs(30);
/// After a failure nothing is sent to a topic for so many milliseconds.
const PAUSE: u64 = 10_000;
/// A notice that could not be sent for so many milliseconds is given up: a day.
const GIVEN_UP: u64 = 24 * 60 * 60 * 1000;
/// Notices that are read at once.
const BATCH: usize = 200;
/// Changes that are remembered to be sent. What is beyond that is found later.
const NUDGES_MAX: usize = 10_000;
/// Topics that are sent to at the same time.
const TOPICS_MAX: usize = 16;
/// Failed topics that are remembered.
const PAUSED_MAX: usize = 10_000;

/// A change that was noted: its bucket and its key.
type Nudge = (OpenBucket, Bytes);

/// What came of one search.
#[derive(Default)]
struct Sent {
    /// Of objects whose notices do not wait any more.
    keys: Vec<Bytes>,
    /// There may be more notices.
    is_full: bool,
}

/// Sends notices.
pub struct Notifier {
    store: Arc<Store>,
    buckets: Arc<Buckets>,
    pub region: String,
    nudges: mpsc::Sender<Nudge>,
    nudged: tokio::sync::Mutex<mpsc::Receiver<Nudge>>,
    /// Topics that failed, and until when nothing is sent to them.
    paused: Mutex<BTreeMap<String, u64>>,
    webhooks: Webhooks,
}

impl Notifier {
    /// Has nothing to send yet.
    pub fn new(store: Arc<Store>, buckets: Arc<Buckets>, region: &str) -> Result<Notifier> {
        let (nudges, nudged) = mpsc::channel(NUDGES_MAX);
        let nudged = tokio::sync::Mutex::new(nudged);
        let (region, paused) = (region.to_owned(), Mutex::default());
        Ok(Notifier { store, buckets, region, nudges, nudged, paused, webhooks: Webhooks::new()? })
    }

    /// A change of a key was noted.
    pub fn nudge(&self, bucket: &OpenBucket, key: Bytes) {
        // What does not fit is found in the index.
        let _ = self.nudges.try_send((bucket.clone(), key));
    }

    /// Sends what this gateway notes, and looks for what others have left.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(self.send_own(), self.send_due());
    }

    async fn send_own(&self) {
        let mut nudged = self.nudged.lock().await;
        let mut batch = Vec::new();
        while nudged.recv_many(&mut batch, BATCH).await > 0 {
            let mut seen: BTreeSet<(String, Bytes)> = BTreeSet::new();
            for (bucket, key) in batch.drain(..) {
                if seen.contains(&(bucket.record.id.clone(), key.clone())) {
                    continue;
                }
                match self.send_of(&bucket, NoticesOf::Own { key, now: now() }).await {
                    Ok(sent) => seen.extend(sent.keys.into_iter().map(|key| (bucket.record.id.clone(), key))),
                    Err(e) => tracing::warn!("notices of bucket {} wait: {e:#}", bucket.record.name),
                }
            }
        }
    }

    async fn send_due(&self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            if let Err(e) = self.round().await {
                tracing::warn!("notices wait: {e:#}");
            }
        }
    }

    async fn round(&self) -> Result<()> {
        let Some(pools) = self.store.find_pools().await? else { return Ok(()) };
        if !self.holds_lease(pools).await? {
            return Ok(());
        }
        let (mut has_topics, mut buckets, mut names) = (false, Vec::new(), pools.meta.objects());
        while let Some(entry) = names.next().await? {
            let name = entry.name.to_string();
            has_topics |= topics::is_topic(&name);
            buckets.extend(name.strip_prefix("bucket.").map(str::to_owned));
        }
        if !has_topics {
            return Ok(());
        }
        for name in buckets {
            let Some(bucket) = self.buckets.of_any_user(&name).await? else { continue };
            if !bucket.config.others.contains_key(setting::NOTICES) {
                continue;
            }
            loop {
                match self.send_of(&bucket, NoticesOf::Due { now: now() }).await {
                    Ok(sent) if !sent.is_full => break,
                    Ok(_) => {}
                    // One bucket that cannot be read does not keep those of others.
                    Err(e) => {
                        tracing::warn!("notices of bucket {name} wait: {e:#}");
                        break;
                    }
                }
                if !self.holds_lease(pools).await? {
                    return Ok(());
                }
            }
            if !self.holds_lease(pools).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn holds_lease(&self, pools: &Pools) -> Result<bool> {
        lease::hold(&self.store, pools, LEASE).await
    }

    /// Sends notices of a bucket, but for topics that are paused.
    async fn send_of(&self, bucket: &OpenBucket, of: NoticesOf) -> Result<Sent> {
        let ask = Ask::Notices { of, max: BATCH, without: self.paused() };
        let Answer::Notices(items) = bucket.index.ask(ask).await? else { return Ok(Sent::default()) };
        let is_full = items.len() >= BATCH;
        let mut by_topic: BTreeMap<String, Vec<NoticeItem>> = BTreeMap::new();
        for item in items {
            by_topic.entry(item.notice.topic.clone()).or_default().push(item);
        }
        let all = stream::iter(by_topic).map(|(topic, items)| self.send_to(topic, items));
        let results: Vec<Result<Vec<NoticeItem>>> = all.buffer_unordered(TOPICS_MAX).collect().await;
        let (mut keys, mut leaves) = (Vec::new(), BTreeMap::<LeafName, Vec<Name>>::new());
        let mut failed = None;
        for done in results {
            for NoticeItem { leaf, key, notice } in done.unwrap_or_else(|e| {
                failed = Some(e);
                Vec::new()
            }) {
                keys.push(Bytes::from(notice.object.key.into_bytes()));
                leaves.entry(leaf).or_default().push(key);
            }
        }
        for (leaf, keys) in leaves {
            bucket.index.ask(Ask::ForgetGarbage { leaf, keys }).await?;
        }
        failed.map_or(Ok(Sent { keys, is_full }), Err)
    }

    /// Sends notices to their topic, in order. Returns those that do not wait any more.
    async fn send_to(&self, id: String, items: Vec<NoticeItem>) -> Result<Vec<NoticeItem>> {
        let topic = topics::read(&self.store, &id).await?;
        let Some(topic) = topic.filter(|topic| !topic.endpoint.is_empty()) else {
            // There is nothing to send them to.
            return Ok(items);
        };
        let (mut done, mut waiting) = (Vec::new(), VecDeque::from(items));
        if !self.is_paused(&id)
            && let Err(e) = self.try_send_to(&topic, &mut waiting, &mut done).await
        {
            tracing::warn!("notices for topic {id} wait: {e:#}");
            self.pause(id.clone());
        }
        let oldest = now().saturating_sub(GIVEN_UP);
        let before = done.len();
        done.extend(waiting.into_iter().filter(|item| item.notice.time < oldest));
        let given_up = done.len() - before;
        if given_up > 0 {
            tracing::warn!("{given_up} notices for topic {id} are given up after a day");
        }
        Ok(done)
    }

    async fn try_send_to(
        &self,
        topic: &Topic,
        waiting: &mut VecDeque<NoticeItem>,
        done: &mut Vec<NoticeItem>,
    ) -> Result<()> {
        let mut connection = None;
        while let Some(item) = waiting.front() {
            self.send(topic, &mut connection, item).await?;
            done.extend(waiting.pop_front());
        }
        Ok(())
    }

    async fn send(&self, topic: &Topic, connection: &mut Option<Webhook>, item: &NoticeItem) -> Result<()> {
        let connected = match connection {
            Some(connection) => connection,
            None => {
                let endpoint = Endpoint::parse(&topic.endpoint)?;
                let new = self.webhooks.connect(&endpoint, topic.is_unverified).await;
                connection.insert(new.with_context(|| format!("cannot connect to {}", topic.endpoint))?)
            }
        };
        let records = json!({ "Records": [item.notice.record(&topic.opaque)] });
        connected.send(records.to_string()).await.with_context(|| format!("{} fails", topic.endpoint))
    }

    /// What searches leave out. Notices that waited for a day are found, to be given up.
    fn paused(&self) -> Paused {
        let now = now();
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        let topics = paused.iter().filter(|(_, until)| **until > now).map(|(id, _)| id.clone());
        Paused { topics: topics.collect(), since: now.saturating_sub(GIVEN_UP) }
    }

    fn is_paused(&self, id: &str) -> bool {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.get(id).is_some_and(|until| *until > now())
    }

    fn pause(&self, id: String) {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.retain(|_, until| *until > now());
        if paused.len() >= PAUSED_MAX {
            paused.pop_first();
        }
        paused.insert(id, now() + PAUSE);
    }
}
