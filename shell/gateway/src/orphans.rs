//! Removes data that a gateway had written when it ended, and that nothing refers to.
//!
//! Every gateway notes in the object `gateways` of the meta namespace that it is there. Data of a gateway
//! that was not there for a day is looked at once: its first stripes say which object or upload it was for,
//! and all versions of that key say whether they have it. What cannot be read keeps its data.

use crate::driver::Index;
use crate::store::{Pools, Store, now};
use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use nacre_base::{Name, errno};
use nacre_rados::Failure;
use nacre_s3::{
    Answer, Ask, Entry, Item, Listed, PageRequest, Refusal, Tag, UploadReader, UploadState, object_name,
};
use nacre_wire::{from_slice, to_vec};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

const GATEWAYS: &str = "gateways";
/// The attribute of the first stripes that says whose data it is.
pub const OWNER: &str = "owner";
/// So many first stripes have it. They are written at the same time, so any of them can be missing.
pub const OWNED: u64 = 2;
/// A gateway that was not there for this long has ended.
pub const WINDOW: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a gateway notes that it is there.
const HEARTBEAT: Duration = Duration::from_secs(60);
const PAGE: u64 = 1000;
/// Stripes are written some at a time: behind so many that are missing there are no more.
const MISSING_MAX: u32 = 4;

/// When a gateway was there last, in milliseconds since 1970, and whether its data was looked at since.
pub type Seen = (u64, bool);

/// Notes again and again that this gateway is there.
pub async fn be_seen(store: Arc<Store>, window: Duration) {
    loop {
        if let Err(failure) = note(&store).await {
            tracing::warn!("cannot note that this gateway is running: {failure}");
        }
        tokio::time::sleep(HEARTBEAT.min(window / 8)).await;
    }
}

async fn note(store: &Store) -> Result<(), Failure> {
    match store.find_pools().await? {
        Some(pools) => set(pools, [(store.instance, (now(), false))]).await,
        None => Ok(()),
    }
}

async fn set(pools: &Pools, seen: impl IntoIterator<Item = (u64, Seen)>) -> Result<(), Failure> {
    let pair =
        |(instance, seen): (u64, Seen)| (Name::from(format!("{instance:016x}")), Bytes::from(to_vec(&seen)));
    let set = pools.meta.object(GATEWAYS).create(false).omap_set(seen.into_iter().map(pair));
    pools.meta.run(set).await.map(drop)
}

/// Whose data it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    Object {
        bucket: String,
        key: String,
    },
    /// A part. Older gateways did not note the key.
    Upload {
        id: Tag,
        object: Option<(String, String)>,
    },
}

impl Owner {
    fn parse(text: &str) -> Option<Owner> {
        let object = |text: &str| {
            let (bucket, key) = text.split_once('/')?;
            Some((bucket.to_owned(), key.to_owned()))
        };
        let Some(upload) = text.strip_prefix("upload.") else {
            let (bucket, key) = object(text)?;
            return Some(Owner::Object { bucket, key });
        };
        let (id, rest) = upload.split_once('/').unwrap_or((upload, ""));
        Some(Owner::Upload { id: id.parse().ok()?, object: object(rest) })
    }
}

/// The write that a RADOS object of the data pool belongs to, and the number of its stripe.
pub fn stripe_of(name: &str) -> Option<(Tag, u64)> {
    let (tag, stripe) = name.rsplit_once('.')?;
    Some((tag.parse().ok()?, u64::from_str_radix(stripe, 16).ok()?))
}

/// One search through the data pool.
pub struct Sweep<'a> {
    store: &'a Store,
    pools: &'a Pools,
    /// Data that is younger than this is left alone: milliseconds since 1970.
    old: u64,
    /// Indexes of buckets that were needed, by their ids.
    indexes: HashMap<String, Arc<Index>>,
    removed: u64,
}

/// Looks at the data of gateways that have ended since the last time.
pub async fn sweep(store: &Store, pools: &Pools, window: Duration) -> Result<()> {
    let begun = now();
    let seen = all_seen(pools).await?;
    let window = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
    let has_ended =
        |instance: u64, last: u64| instance != store.instance && last.saturating_add(window) < begun;
    let mut sweep = Sweep { old: begun.saturating_sub(window), ..Sweep::new(store, pools) };
    // Gateways whose data was looked at without a failure.
    let ended = seen.iter().filter(|(instance, (last, is_done))| !is_done && has_ended(**instance, *last));
    let mut looked_at: BTreeMap<u64, bool> = ended.map(|(instance, _)| (*instance, true)).collect();
    let mut unknown = BTreeMap::new();
    for pool in store.data_pools(pools).await? {
        let mut names = pool.objects();
        while let Some(entry) = names.next().await? {
            let Some((tag, stripe)) = stripe_of(&entry.name.to_string()) else { continue };
            if !seen.contains_key(&tag.instance) {
                // It may have been started a moment ago.
                unknown.insert(tag.instance, (begun, false));
            }
            let looked = looked_at.get_mut(&tag.instance).filter(|_| stripe < OWNED);
            let Some(is_good) = looked else { continue };
            match sweep.look_at(tag, stripe).await {
                Ok(is_done) => *is_good &= is_done,
                Err(e) => {
                    tracing::warn!("cannot say whether {} is in use: {e:#}", object_name(tag, stripe));
                    *is_good = false;
                }
            }
        }
    }
    if sweep.removed > 0 {
        tracing::info!("removed the data of {} writes that were not finished", sweep.removed);
    }
    let done = looked_at.into_iter().filter(|(_, is_good)| *is_good);
    let done = done.filter_map(|(instance, _)| Some((instance, (seen.get(&instance)?.0, true))));
    set(pools, done.chain(unknown)).await?;
    Ok(())
}

/// When each gateway was there last.
pub async fn all_seen(pools: &Pools) -> Result<BTreeMap<u64, Seen>> {
    let (mut seen, mut after) = (BTreeMap::new(), Name::default());
    loop {
        let (page, more) = match pools.meta.omap(GATEWAYS, after.clone(), PAGE).await {
            Err(failure) if failure.is_not_found() => return Ok(seen),
            page => page?,
        };
        if let Some(last) = page.keys().next_back() {
            after = last.clone();
        }
        for (name, value) in page {
            seen.insert(u64::from_str_radix(&name.to_string(), 16)?, from_slice(&value)?);
        }
        if !more {
            return Ok(seen);
        }
    }
}

/// The state of an upload, if it has one.
pub async fn read_upload(pools: &Pools, id: Tag) -> Result<Option<UploadState>> {
    let index = &pools.index;
    let mut reader = UploadReader::default();
    loop {
        match index.run(reader.request(index.id(), id)).await {
            Err(failure) if failure.is_not_found() => return Ok(None),
            reply => {
                if !reader.take(&reply?)? {
                    let state = reader.finish();
                    return state.map(Some).ok_or_else(|| anyhow!("an upload without a beginning"));
                }
            }
        }
    }
}

impl<'a> Sweep<'a> {
    /// One that judges data of any age.
    pub fn new(store: &'a Store, pools: &'a Pools) -> Sweep<'a> {
        Sweep { store, pools, old: u64::MAX, indexes: HashMap::new(), removed: 0 }
    }

    /// Whether nothing refers to the data of a write, of which this is the first stripe. One that does not
    /// say whose data it is, is the rest of a removal.
    pub async fn is_orphan(&mut self, tag: Tag, stripe: u64) -> Result<bool> {
        if stripe >= OWNED {
            return Ok(true);
        }
        let data = self.store.data_pool(tag).await?;
        let attributes = match data.xattrs(object_name(tag, stripe)).await {
            Err(failure) if failure.is_not_found() => return Ok(false),
            attributes => attributes?,
        };
        let owner = attributes.get(&Name::from(OWNER)).and_then(|owner| std::str::from_utf8(owner).ok());
        match owner.and_then(Owner::parse) {
            Some(owner) => Ok(!self.is_used(tag, &owner).await?),
            None => Ok(false),
        }
    }
}

impl Sweep<'_> {
    /// Removes the data of a write if nothing refers to it. No: it is too young to be judged.
    async fn look_at(&mut self, tag: Tag, stripe: u64) -> Result<bool> {
        let name = object_name(tag, stripe);
        // The listing has the first as well.
        if stripe > 0 && self.is_there(tag, 0).await? {
            return Ok(true);
        }
        let data = self.store.data_pool(tag).await?;
        let (attributes, stat) = match (data.xattrs(&*name).await, data.stat(&*name).await) {
            (Err(failure), _) | (_, Err(failure)) if failure.is_not_found() => return Ok(true),
            (attributes, stat) => (attributes?, stat?),
        };
        if u64::from(stat.mtime.sec) * 1000 > self.old {
            return Ok(false);
        }
        let owner = attributes.get(&Name::from(OWNER)).ok_or_else(|| anyhow!("it has no owner"))?;
        let owner =
            Owner::parse(std::str::from_utf8(owner)?).ok_or_else(|| anyhow!("no such owner: {owner:?}"))?;
        if !self.is_used(tag, &owner).await? {
            self.remove(tag).await?;
            self.removed += 1;
        }
        Ok(true)
    }

    async fn is_there(&self, tag: Tag, stripe: u64) -> Result<bool> {
        match self.store.data_pool(tag).await?.stat(object_name(tag, stripe)).await {
            Err(failure) if failure.is_not_found() => Ok(false),
            stat => Ok(stat.map(|_| true)?),
        }
    }

    async fn is_used(&mut self, tag: Tag, owner: &Owner) -> Result<bool> {
        match owner {
            Owner::Object { bucket, key } => self.is_in_object(tag, bucket, key).await,
            Owner::Upload { id, object } => {
                if let Some(state) = read_upload(self.pools, *id).await? {
                    let mut parts = state.parts.values().map(|part| part.tag);
                    return Ok(parts.any(|part| part == tag) || state.replaced.iter().any(|it| it.tag == tag));
                }
                match object {
                    Some((bucket, key)) => self.is_in_object(tag, bucket, key).await,
                    None => Ok(true),
                }
            }
        }
    }

    /// Whether a version of this key has the data.
    async fn is_in_object(&mut self, tag: Tag, bucket: &str, key: &str) -> Result<bool> {
        let new = || Index::new(self.pools.index.clone(), bucket, self.store.instance);
        let index = self.indexes.entry(bucket.to_owned()).or_insert_with(new).clone();
        let mut request = PageRequest {
            prefix: Bytes::copy_from_slice(key.as_bytes()),
            max: PAGE as usize,
            listed: Listed::Versions,
            ..PageRequest::default()
        };
        loop {
            let page = match index.ask(Ask::Page(request.clone())).await {
                Ok(Answer::Page(page)) => page,
                // It is deleted, and was empty then.
                Err(Refusal::NoSuchBucket) => return Ok(false),
                Err(refusal) => return Err(refusal.into()),
                Ok(_) => bail!("a page was not answered with a page"),
            };
            for item in &page.items {
                let Item::Key(line, value) = item else { continue };
                // The versions of the key come before all longer keys.
                if line.strip_prefix(key.as_bytes()).is_none_or(|rest| rest.first() != Some(&0)) {
                    return Ok(false);
                }
                let entry: Entry = from_slice(value)?;
                let (key, version) = (Bytes::copy_from_slice(key.as_bytes()), entry.version());
                match index.ask(Ask::GetVersion { key, version }).await {
                    Ok(Answer::Object(object)) => {
                        if object.head.body.extents().iter().any(|extent| extent.tag == tag) {
                            return Ok(true);
                        }
                    }
                    Ok(_) => bail!("a version was not answered with an object"),
                    Err(Refusal::NoSuchKey | Refusal::NoSuchVersion | Refusal::DeleteMarker { .. }) => {}
                    Err(refusal) => return Err(refusal.into()),
                }
            }
            match page.items.last() {
                Some(last) if page.is_truncated => request.after = last.marker().clone(),
                _ => return Ok(false),
            }
        }
    }

    /// Removes all stripes. The first goes last, since it says whose data it is.
    async fn remove(&self, tag: Tag) -> Result<()> {
        let data = self.store.data_pool(tag).await?;
        let (mut stripe, mut missing) = (1, 0);
        while missing < MISSING_MAX {
            match data.remove(object_name(tag, stripe)).await {
                Err(failure) if failure.is_not_found() => missing += 1,
                result => {
                    result?;
                    missing = 0;
                }
            }
            stripe += 1;
        }
        match data.remove(object_name(tag, 0)).await {
            Err(failure) if failure.errno != errno::ENOENT => Err(failure.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_of_data_is_an_object_or_an_upload() {
        let object = |bucket: &str, key: &str| (bucket.to_owned(), key.to_owned());
        let id = Tag { instance: 7, sequence: 9 };
        let of_object = |(bucket, key)| Some(Owner::Object { bucket, key });
        assert_eq!(Owner::parse("b/a/key"), of_object(object("b", "a/key")));
        assert_eq!(Owner::parse(&format!("upload.{id}")), Some(Owner::Upload { id, object: None }));
        let part = Owner::Upload { id, object: Some(object("b", "upload.k/1")) };
        assert_eq!(Owner::parse(&format!("upload.{id}/b/upload.k/1")), Some(part));
        assert_eq!(Owner::parse("upload.x"), None);
        assert_eq!(Owner::parse("no owner"), None);
    }

    #[test]
    fn names_in_the_data_pool_say_the_write() {
        let tag = Tag { instance: 0xab, sequence: 0x10 };
        assert_eq!(stripe_of(&object_name(tag, 31)), Some((tag, 31)));
        assert_eq!(stripe_of("something.else"), None);
        assert_eq!(stripe_of("plain"), None);
    }
}
