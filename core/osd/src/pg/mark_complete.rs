//! An operator declares that what is here of a placement group is all there is. Where the last member cannot
//! tell what it has (its record is corrupt, or its store lost acknowledged writes), the placement group waits
//! for other holders, and perhaps there are none. Ceph: `ceph-objectstore-tool --op mark-complete`. The OSD
//! does not run meanwhile.

use super::record::{Record, least_pg_num};
use super::{PgRange, pg_list};
use crate::maps::Maps;
use crate::object_info::ObjectInfo;
use crate::store_losses;
use nacre_base::{PgId, SnapId, SpgId, Version};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::messages::peer::PgInfo;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;

/// Names that are listed at a time.
const PART: usize = 1000;

/// What is in a placement group from here on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkedComplete {
    /// Heads and clones.
    pub objects: u64,
    /// Of those, what is known to be older here than it was, or not to be here.
    pub stale: u64,
    /// These cannot be read; reading them stays an error.
    pub unreadable: Vec<ObjectId>,
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum NotMarked {
    #[error("pg {0} is not in this store")]
    NotHere(PgId),
    #[error("pg {0} does not need this: its local copy already counts")]
    Counts(PgId),
    #[error(
        "start this OSD until `ceph pg ls` shows pg {0} as down, and stop it again: it has not detected the \
         loss yet"
    )]
    Unseen(PgId),
    #[error("pg {0} is of an erasure-coded pool: one shard of it is not enough")]
    Shard(PgId),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The placement groups of which nothing here counts.
pub fn incomplete_pgs(store: &dyn StoreView) -> Result<Vec<PgId>, ReadError> {
    let mut ids: Vec<PgId> = Vec::new();
    store.omap_walk(&pg_list(), b"", &mut |key, _| {
        ids.extend(key.to_text().parse::<PgId>());
        true
    })?;
    // A record that cannot be read is one of those.
    ids.retain(|id| {
        Record::load(store, *id).map_or(true, |record| record.is_some_and(|r| r.info.incomplete))
    });
    Ok(ids)
}

/// Makes a record by which what is here is the newest state of the placement group.
pub fn mark_complete(
    store: &dyn StoreView,
    pg: PgId,
    txn: &mut Transaction,
) -> Result<MarkedComplete, NotMarked> {
    let map = Maps::load(store).ok().and_then(|maps| maps.current);
    let map = map.filter(|_| !store_losses::is_news(store)).ok_or(NotMarked::Unseen(pg))?;
    if !map.pools.contains_key(&pg.pool) {
        return Err(NotMarked::NotHere(pg));
    }
    if map.pool(pg.pool).is_some_and(|pool| pool.is_erasure()) {
        return Err(NotMarked::Shard(pg));
    }
    let record = match Record::load(store, pg) {
        Ok(Some(record)) if !record.info.incomplete => return Err(NotMarked::Counts(pg)),
        Ok(Some(record)) => record,
        Ok(None) => return Err(NotMarked::NotHere(pg)),
        Err(_) => Record::of_remains(least_pg_num(&map, pg)),
    };
    let range = PgRange::new(pg, record.info.pg_num);
    let mut accepted = MarkedComplete { stale: record.missing.len() as u64, ..MarkedComplete::default() };
    // Nothing that is here may be newer than the placement group, and nothing that any OSD still has may
    // overlap with what comes.
    let mut last = record.info.last_update.max(Version::new(map.epoch, 0));
    let mut info = PgInfo { last_user_version: record.info.last_user_version, ..PgInfo::default() };
    let mut from = range.start();
    loop {
        let part = range.objects_from(store, &from, PART)?;
        for object in &part {
            let id = StoredId::Object(object.clone());
            let found = ObjectInfo::load(store, object).and_then(|known| Ok((known, store.stat(&id)?)));
            match found {
                Ok((Some(known), Some(stat))) => {
                    last = last.max(known.version);
                    info.last_user_version = info.last_user_version.max(known.user_version);
                    info.objects += 1;
                    info.clones += u64::from(object.snap != SnapId::HEAD);
                    info.bytes += stat.size;
                }
                _ => accepted.unreadable.push(object.clone()),
            }
        }
        match part.last() {
            Some(object) if part.len() == PART => from = object.following(),
            _ => break,
        }
    }
    accepted.objects = info.objects;
    // That its interval began with this map makes it win over all older ones. What was committed is not
    // known, so that other holders scan the inventory.
    let info = PgInfo {
        last_update: last,
        log_tail: last,
        dirty_from: last,
        interval_started: map.epoch,
        pg_num: record.info.pg_num,
        estimated: true,
        ..info
    };
    let Record { dups, missing, .. } = record;
    txn.push(StoredId::Pg(SpgId::replicated(pg)), Change::Remove);
    Record { dups, missing, ..Record::new(info) }.store(pg, txn);
    Ok(accepted)
}
