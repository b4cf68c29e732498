//! What the data in the data pool belongs to: `nacre s3 check`.
//!
//! The index is read first: every version of every bucket, open uploads, and garbage. Then the names in the
//! data pools are compared with it. Data that nothing in the index has may have been written meanwhile, or be
//! on its way: it is looked at once more, and is an orphan only after a time in which every write ends.

use super::{Admin, Result};
use crate::buckets::upload_of;
use crate::driver::Index;
use crate::errors;
use crate::orphans::{Sweep, WINDOW, all_seen, read_upload, stripe_of};
use crate::store::{Pools, now};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use nacre_s3::{
    Answer, Ask, Body, Entry, Extent, Garbage, GarbageItem, Item, Listed, Object, PageRequest, Part, Refusal,
    Tag, object_name, stripes,
};
use nacre_wire::from_slice;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 1000;
/// Reads at the same time.
const READS_MAX: usize = 32;
/// Pieces of garbage of one bucket that are counted.
const GARBAGE_MAX: usize = 1 << 20;
/// The longest that a write of a running gateway may take. Behind it, what nothing has is an orphan.
const WRITE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Names that are shown of a kind.
const SHOWN_MAX: usize = 1000;

/// What a piece of data is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Objects,
    Uploads,
    Garbage,
}

/// A number of pieces, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
    fn shown(self) -> Value {
        json!({ "count": self.count, "bytes": self.bytes })
    }
}

/// What one bucket has.
#[derive(Clone, Debug, Default)]
struct OfBucket {
    name: String,
    /// Versions with a body, in the data pool or in the index.
    versions: Sum,
    in_index: Sum,
    in_data: Sum,
    uploads: Sum,
    garbage: Sum,
}

impl OfBucket {
    fn shown(&self) -> Value {
        json!({
            "bucket": self.name,
            "versions": self.versions.shown(),
            "in_index": self.in_index.shown(),
            "in_data_pool": self.in_data.shown(),
            "uploads": self.uploads.shown(),
            "garbage": self.garbage.shown(),
        })
    }
}

/// What the index says of a piece of data.
#[derive(Clone, Copy, Debug)]
struct Known {
    of: Of,
    /// Stripes that were not found yet.
    left: u64,
}

/// The pieces of data that the index has.
#[derive(Default)]
struct Owned(HashMap<Tag, Known>);

impl Owned {
    /// Notes a piece; false if something else had it before. A part of a complete upload is the object's.
    fn add(&mut self, extent: &Extent, of: Of) -> bool {
        let mut is_new = false;
        self.0.entry(extent.tag).or_insert_with(|| {
            is_new = true;
            Known { of, left: stripes(extent) }
        });
        is_new
    }

    /// Notes that a stripe is there; false if nothing has it.
    fn found(&mut self, tag: Tag) -> bool {
        match self.0.get_mut(&tag) {
            Some(known) => {
                known.left = known.left.saturating_sub(1);
                true
            }
            None => false,
        }
    }

    /// Pieces of objects of which stripes were not found.
    fn missing(&self) -> BTreeSet<Tag> {
        let is_missing = |known: &Known| known.of == Of::Objects && known.left > 0;
        self.0.iter().filter(|(_, known)| is_missing(known)).map(|(tag, _)| *tag).collect()
    }
}

/// A check, while it runs.
struct Check<'a> {
    admin: &'a Admin,
    pools: &'a Pools,
    progress: &'a (dyn Fn(String) + Sync),
    owned: Owned,
    buckets: Vec<OfBucket>,
}

fn refused(refusal: Refusal) -> super::AdminError {
    errors::of_refusal(&refusal).into()
}

fn unreadable(e: anyhow::Error) -> super::AdminError {
    errors::corrupt(format!("{e:#}")).into()
}

impl Admin {
    /// Compares the data pool with the index. `progress` gets a line now and then.
    pub async fn check(&self, deletes_orphans: bool, progress: &(dyn Fn(String) + Sync)) -> Result<Value> {
        let Some(pools) = self.store.find_pools().await? else { return Ok(json!({ "buckets": [] })) };
        let (owned, buckets) = (Owned::default(), Vec::new());
        let mut check = Check { admin: self, pools, progress, owned, buckets };
        let begun = now();
        let names = crate::records::names(pools, "").await?;
        for name in &names {
            if let Some(bucket) = name.strip_prefix("bucket.") {
                if let Some(index) = self.buckets.of_any_user(bucket).await?.map(|bucket| bucket.index) {
                    check.bucket(bucket, &index).await?;
                }
            } else if let Some(id) = name.strip_prefix("trash.") {
                let index = Index::new(pools.index.clone(), id, self.store.instance);
                check.bucket(&format!("{id} (deleted)"), &index).await?;
            }
        }
        let (strange, foreign) = check.data().await?;
        let unknown = check.unknown(strange, begun, deletes_orphans).await?;
        let missing = check.missing(&names).await?;
        let mut totals = OfBucket::default();
        for bucket in &check.buckets {
            for (total, sum) in [
                (&mut totals.versions, bucket.versions),
                (&mut totals.in_index, bucket.in_index),
                (&mut totals.in_data, bucket.in_data),
                (&mut totals.uploads, bucket.uploads),
                (&mut totals.garbage, bucket.garbage),
            ] {
                total.count += sum.count;
                total.bytes += sum.bytes;
            }
        }
        let mut shown = totals.shown();
        shown["bucket"] = Value::Null;
        Ok(json!({
            "buckets": check.buckets.iter().map(OfBucket::shown).collect::<Vec<_>>(),
            "total": shown,
            "in_flight": unknown.in_flight.shown(),
            "orphans": unknown.orphans.shown(),
            "orphan_names": unknown.names,
            "deleted_orphans": unknown.deleted,
            "foreign_objects": foreign,
            "missing": missing,
        }))
    }
}

/// What became of data that the index did not have.
#[derive(Default)]
struct Unknown {
    in_flight: Sum,
    orphans: Sum,
    names: Vec<String>,
    deleted: u64,
}

impl Check<'_> {
    /// Reads the index of one bucket.
    async fn bucket(&mut self, name: &str, index: &Arc<Index>) -> Result<()> {
        let mut found = OfBucket { name: name.to_owned(), ..OfBucket::default() };
        let mut request = PageRequest { max: PAGE, listed: Listed::Versions, ..PageRequest::default() };
        loop {
            let Some(page) = page(index, &request).await? else { return Ok(()) };
            for (_, entry, body) in bodies(index, &page.items).await? {
                found.versions.add(entry.size);
                match body {
                    Body::Inline(bytes) => found.in_index.add(bytes.len() as u64),
                    Body::Data(extents) => {
                        for extent in extents.iter().filter(|it| self.owned.add(it, Of::Objects)) {
                            found.in_data.add(extent.len);
                        }
                    }
                }
            }
            (self.progress)(format!("{name}: {} versions", found.versions.count));
            match page.items.last() {
                Some(last) if page.is_truncated => request.after = last.marker().clone(),
                _ => break,
            }
        }
        self.uploads(index, &mut found).await?;
        self.garbage(index, &mut found).await?;
        self.buckets.push(found);
        Ok(())
    }

    async fn uploads(&mut self, index: &Arc<Index>, found: &mut OfBucket) -> Result<()> {
        let mut request = PageRequest { max: PAGE, listed: Listed::Uploads, ..PageRequest::default() };
        loop {
            let Some(page) = page(index, &request).await? else { return Ok(()) };
            for item in &page.items {
                let Item::Key(name, _) = item else { continue };
                let Some((_, id)) = upload_of(name) else { continue };
                for extent in self.parts(id, &[]).await? {
                    if self.owned.add(&extent, Of::Uploads) {
                        found.uploads.add(extent.len);
                    }
                }
            }
            match page.items.last() {
                Some(last) if page.is_truncated => request.after = last.marker().clone(),
                _ => return Ok(()),
            }
        }
    }

    /// The data of an upload, without the parts that the object has.
    async fn parts(&self, id: Tag, kept: &[Tag]) -> Result<Vec<Extent>> {
        let state = read_upload(self.pools, id).await.map_err(unreadable)?;
        let Some(state) = state else { return Ok(Vec::new()) };
        let parts = state.parts.values().map(Part::extent).chain(state.replaced);
        Ok(parts.filter(|extent| !kept.contains(&extent.tag)).collect())
    }

    async fn garbage(&mut self, index: &Arc<Index>, found: &mut OfBucket) -> Result<()> {
        let items = match index.ask(Ask::Garbage { now: u64::MAX, max: GARBAGE_MAX }).await {
            Ok(Answer::Garbage(items)) => items,
            Ok(_) => return Err(errors::internal("garbage was not answered with garbage").into()),
            Err(Refusal::NoSuchBucket) => return Ok(()),
            Err(refusal) => return Err(refused(refusal)),
        };
        for GarbageItem { garbage, .. } in items {
            let extents = match garbage {
                Garbage::Data(extents) => extents,
                Garbage::Upload { id, kept } => self.parts(id, &kept).await?,
            };
            for extent in extents.iter().filter(|it| self.owned.add(it, Of::Garbage)) {
                found.garbage.add(extent.len);
            }
        }
        Ok(())
    }

    /// Compares the names in the data pool: writes that nothing has, with their stripes, and how many names
    /// are not those of gateways.
    async fn data(&mut self) -> Result<(BTreeMap<Tag, Vec<u64>>, u64)> {
        let (mut strange, mut foreign, mut count) = (BTreeMap::<Tag, Vec<u64>>::new(), 0, 0_u64);
        for pool in self.admin.store.data_pools(self.pools).await? {
            let mut names = pool.objects();
            while let Some(entry) = names.next().await? {
                count += 1;
                if count.is_multiple_of(10_000) {
                    (self.progress)(format!("{count} objects with data"));
                }
                match stripe_of(&entry.name.to_string()) {
                    None => foreign += 1,
                    Some((tag, _)) if self.owned.found(tag) => {}
                    Some((tag, stripe)) => strange.entry(tag).or_default().push(stripe),
                }
            }
        }
        Ok((strange, foreign))
    }

    /// Looks once more at data that nothing had.
    async fn unknown(&self, strange: BTreeMap<Tag, Vec<u64>>, begun: u64, deletes: bool) -> Result<Unknown> {
        let mut unknown = Unknown::default();
        let seen = all_seen(self.pools).await.map_err(unreadable)?;
        let mut sweep = Sweep::new(&self.admin.store, self.pools);
        for (tag, stripes) in strange {
            let (mut bytes, mut newest) = (0, 0);
            let data = self.admin.store.data_pool(tag).await?;
            for stripe in &stripes {
                // One may be removed meanwhile.
                if let Ok(stat) = data.stat(object_name(tag, *stripe)).await {
                    bytes += stat.size;
                    newest = newest.max(u64::from(stat.mtime.sec) * 1000);
                }
            }
            let last = seen.get(&tag.instance).map_or(0, |(last, _)| *last);
            let limit = if is_older(last, WINDOW, begun) { WINDOW } else { WRITE_MAX };
            let first = stripes.iter().min().copied().unwrap_or_default();
            let is_orphan =
                is_older(newest, limit, begun) && sweep.is_orphan(tag, first).await.map_err(unreadable)?;
            if !is_orphan {
                unknown.in_flight.add(bytes);
                continue;
            }
            unknown.orphans.add(bytes);
            if unknown.names.len() < SHOWN_MAX {
                unknown.names.push(tag.to_string());
            }
            if deletes {
                for stripe in stripes.iter().rev() {
                    let removed = data.remove(object_name(tag, *stripe)).await;
                    crate::accounts::ignore_missing(removed)?;
                }
                unknown.deleted += 1;
            }
        }
        Ok(unknown)
    }

    /// Versions whose data is not all there. What was deleted since the index was read is none of them.
    async fn missing(&self, names: &[String]) -> Result<Vec<Value>> {
        let (missing, mut shown) = (self.owned.missing(), Vec::new());
        if missing.is_empty() {
            return Ok(shown);
        }
        for bucket in names.iter().filter_map(|name| name.strip_prefix("bucket.")) {
            let Some(index) = self.admin.buckets.of_any_user(bucket).await?.map(|bucket| bucket.index) else {
                continue;
            };
            let mut request = PageRequest { max: PAGE, listed: Listed::Versions, ..PageRequest::default() };
            while let Some(page) = page(&index, &request).await? {
                for (key, entry, body) in bodies(&index, &page.items).await? {
                    let lost = body.extents().iter().find(|extent| missing.contains(&extent.tag));
                    if let Some(extent) = lost.filter(|_| shown.len() < SHOWN_MAX) {
                        shown.push(json!({
                            "bucket": bucket,
                            "key": String::from_utf8_lossy(&key),
                            "version": entry.version().to_string(),
                            "data": extent.tag.to_string(),
                        }));
                    }
                }
                match page.items.last() {
                    Some(last) if page.is_truncated => request.after = last.marker().clone(),
                    _ => break,
                }
            }
        }
        Ok(shown)
    }
}

/// Whether a time, in milliseconds since 1970, is further back than this.
fn is_older(time: u64, than: Duration, now: u64) -> bool {
    time.saturating_add(u64::try_from(than.as_millis()).unwrap_or(u64::MAX)) < now
}

/// A page; none if the bucket is gone.
async fn page(index: &Arc<Index>, request: &PageRequest) -> Result<Option<nacre_s3::Page>> {
    match index.ask(Ask::Page(request.clone())).await {
        Ok(Answer::Page(page)) => Ok(Some(page)),
        Ok(_) => Err(errors::internal("a page was not answered with a page").into()),
        Err(Refusal::NoSuchBucket) => Ok(None),
        Err(refusal) => Err(refused(refusal)),
    }
}

/// Keys, entries and bodies of the versions in a page.
async fn bodies(index: &Arc<Index>, items: &[Item]) -> Result<Vec<(Bytes, Entry, Body)>> {
    let reads = items.iter().map(|item| body(index.clone(), item.clone()));
    let read: Vec<_> = stream::iter(reads).buffered(READS_MAX).try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}

/// None of what is a delete marker, or gone.
async fn body(index: Arc<Index>, item: Item) -> Result<Option<(Bytes, Entry, Body)>> {
    let Item::Key(line, value) = item else { return Ok(None) };
    let end = line.iter().position(|byte| *byte == 0).unwrap_or(line.len());
    let entry: Entry = from_slice(&value).map_err(errors::corrupt)?;
    let (key, version) = (line.slice(..end), entry.version());
    match index.ask(Ask::GetVersion { key: key.clone(), version }).await {
        Ok(Answer::Object(object)) => {
            let Object { entry, head } = *object;
            Ok(Some((key, entry, head.body)))
        }
        Ok(_) => Err(errors::internal("a version was not answered with an object").into()),
        Err(Refusal::NoSuchKey | Refusal::NoSuchVersion | Refusal::DeleteMarker { .. }) => Ok(None),
        Err(refusal) => Err(refused(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_belongs_to_what_had_it_first_and_lacks_what_was_not_found() {
        let tag = |sequence| Tag { instance: 1, sequence };
        let extent = |sequence, len| Extent { tag: tag(sequence), len };
        let mut owned = Owned::default();
        assert!(owned.add(&extent(1, nacre_s3::STRIPE + 1), Of::Objects));
        assert!(!owned.add(&extent(1, nacre_s3::STRIPE + 1), Of::Garbage));
        assert!(owned.add(&extent(2, 5), Of::Garbage) && owned.add(&extent(3, 5), Of::Objects));
        assert!(owned.found(tag(1)) && owned.found(tag(3)) && !owned.found(tag(4)));
        assert_eq!(owned.missing(), BTreeSet::from([tag(1)]));
        assert!(owned.found(tag(1)) && owned.missing().is_empty());
        assert!(is_older(0, WINDOW, now()) && !is_older(now(), WINDOW, now()));
    }
}
