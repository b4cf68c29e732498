//! Objects that end at a time of their own: Swift's `X-Delete-At`.
//!
//! The time is in the object's entry, so that it is not read or listed any more from then on. Before an
//! object with such a time is made, a note is added to one of some objects `expiry.N` of the meta namespace,
//! whose omap sorts notes by their times. What is due is deleted together with lifecycle rules. A note
//! without its object, or for another time than that of the object, means nothing.

use crate::buckets::{Buckets, OpenBucket};
use crate::errors;
use crate::service::Core;
use crate::store::{Pools, Store, now};
use anyhow::{Result, bail};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use nacre_base::Name;
use nacre_s3::{Answer, Ask, Change, Condition, Deletion, LockView, Refusal};
use nacre_wire::{from_slice, to_vec};
use s3s::S3Result;
use std::collections::BTreeMap;
use std::time::Duration;

/// Objects with notes.
const SHARDS: u8 = 16;
const PAGE: u64 = 1000;
/// Deletions at the same time.
const DELETIONS_MAX: usize = 32;
/// The header that an object keeps: seconds since 1970.
pub const HEADER: &str = "x-delete-at";

/// The object of a note: the name of its bucket, its key.
type Note = (String, Bytes);

/// When an object with these headers ends, in milliseconds since 1970; zero for never.
pub fn expires_of(headers: &BTreeMap<String, String>) -> u64 {
    let seconds = headers.get(HEADER).and_then(|text| text.parse::<u64>().ok());
    seconds.map_or(0, |seconds| seconds.saturating_mul(1000))
}

fn shard(key: &[u8]) -> u8 {
    key.iter().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte)) % SHARDS
}

fn object(shard: u8) -> String {
    format!("expiry.{shard}")
}

fn note_key(at: u64, bucket: &str, key: &[u8]) -> Name {
    Name::from(&*[format!("{at:016x}{bucket}\0").as_bytes(), key].concat())
}

/// The time of a note, and the id of its bucket.
fn parts_of(name: &Name) -> Option<(u64, String)> {
    let name = name.as_bytes();
    let at = u64::from_str_radix(std::str::from_utf8(name.get(..16)?).ok()?, 16).ok()?;
    let rest = &name[16..];
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some((at, String::from_utf8(rest[..end].to_vec()).ok()?))
}

impl Core {
    /// Notes when an object ends that is about to be made.
    pub async fn note_expiry(&self, bucket: &OpenBucket, key: &Bytes, at: u64) -> S3Result<()> {
        if at == 0 {
            return Ok(());
        }
        let meta = &self.store.existing().await?.meta;
        let note: Note = (bucket.record.name.clone(), key.clone());
        let pair = (note_key(at, &bucket.record.id, key), Bytes::from(to_vec(&note)));
        let set = meta.object(object(shard(key))).create(false).omap_set([pair]);
        meta.run(set).await.map(drop).map_err(|failure| errors::of_failure(&failure))
    }
}

/// Deletes what has ended.
pub struct Ended<'a> {
    pub store: &'a Store,
    pub buckets: &'a Buckets,
    /// How long the data of a deleted object is kept.
    pub grace: Duration,
}

impl Ended<'_> {
    /// Goes through all notes that are due.
    pub async fn round(&self, pools: &Pools) -> Result<()> {
        for shard in 0..SHARDS {
            self.of_shard(pools, &object(shard)).await?;
        }
        Ok(())
    }

    async fn of_shard(&self, pools: &Pools, name: &str) -> Result<()> {
        let mut after = Name::default();
        loop {
            let (page, more) = match pools.meta.omap(name, after.clone(), PAGE).await {
                Err(failure) if failure.is_not_found() => return Ok(()),
                page => page?,
            };
            let now = now();
            let is_due = |name: &Name| parts_of(name).is_none_or(|(at, _)| at <= now);
            let due: Vec<_> = page.into_iter().take_while(|(name, _)| is_due(name)).collect();
            let Some((last, _)) = due.last() else { return Ok(()) };
            after = last.clone();
            let is_all = !more || (due.len() as u64) < PAGE;
            let deletions = stream::iter(due).map(async |(name, note)| {
                match self.carry_out(&name, &note).await {
                    Ok(()) => Some(name),
                    // It stays, and the next round tries again.
                    Err(e) => {
                        tracing::warn!("an object that has ended is left for later: {e:#}");
                        None
                    }
                }
            });
            let done: Vec<_> = deletions.buffer_unordered(DELETIONS_MAX).collect().await;
            let done: Vec<Name> = done.into_iter().flatten().collect();
            if !done.is_empty() {
                pools.meta.run(pools.meta.object(name).omap_remove(done)).await?;
            }
            if is_all {
                return Ok(());
            }
        }
    }

    async fn carry_out(&self, name: &Name, note: &Bytes) -> Result<()> {
        // What cannot be read means nothing.
        let (Some((at, id)), Ok((bucket, key))) = (parts_of(name), from_slice::<Note>(note)) else {
            return Ok(());
        };
        let Some(bucket) = self.buckets.of_any_user(&bucket).await? else { return Ok(()) };
        if bucket.record.id != id {
            return Ok(());
        }
        let object = match bucket.index.ask(Ask::Get { key: key.clone() }).await {
            Ok(Answer::Object(object)) => object,
            Ok(_) => bail!("an object was not answered with an object"),
            Err(refusal) => return done(refusal),
        };
        if object.entry.expires != at {
            return Ok(());
        }
        let deletion = Deletion {
            key,
            version: None,
            versioning: bucket.config.versioning,
            condition: Condition { tag: Some(object.entry.tag), ..Condition::default() },
            only_if_alone: false,
            owner: bucket.record.owner.clone(),
            view: LockView { now: now(), bypass: false },
            due: now() + u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX),
            tag: self.store.new_tag(),
        };
        let deleted = bucket.index.ask(Ask::Change(Change::Delete(Box::new(deletion)))).await;
        deleted.map(drop).or_else(done)
    }
}

/// What is not there or not the same any more needs nothing.
fn done(refusal: Refusal) -> Result<()> {
    match refusal {
        Refusal::NoSuchKey
        | Refusal::NoSuchBucket
        | Refusal::DeleteMarker { .. }
        | Refusal::PreconditionFailed
        | Refusal::Locked => Ok(()),
        refusal => Err(refusal.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn notes_are_sorted_by_their_times() {
        let early = note_key(0xfff, "1.2", b"z");
        let late = note_key(0x1000, "1.1", b"a\0b");
        assert!(early < late);
        assert_eq!(parts_of(&late), Some((0x1000, "1.1".into())));
        for bad in ["", "0000000000000001", "000000000000000gx\0", "0000000000000001bucket"] {
            assert_eq!(parts_of(&Name::from(bad)), None, "{bad}");
        }
        let shards: BTreeSet<u8> = (0..200_u8).map(|byte| shard(&[byte, 7])).collect();
        assert!(shards.into_iter().eq(0..SHARDS), "notes are not spread");
    }

    #[test]
    fn time_of_an_object_is_in_its_headers() {
        let of = |text: &str| expires_of(&BTreeMap::from([(HEADER.to_owned(), text.to_owned())]));
        assert_eq!((of("12"), of("soon"), expires_of(&BTreeMap::new())), (12_000, 0, 0));
    }
}
