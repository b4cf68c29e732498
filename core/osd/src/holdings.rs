//! What a store says of the placement groups on it, for monitors that are recovered from OSDs.

use crate::pg::history::record::info_of;
use crate::pg::pg_list;
use crate::store_losses;
use nacre_base::{Epoch, SpgId};
use nacre_machine::{ReadError, StoreView};

/// A placement group on an OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    pub pg: SpgId,
    /// The last interval in which the OSD made its log the placement group's.
    pub interval: Epoch,
    /// Whether it can tell what it has.
    pub counts: bool,
    /// How many placement groups the pool had when this one was last split.
    pub pg_num: u32,
}

/// All placement groups on a store. One whose record cannot be read is there, and does not count; nor does
/// any on a store that lost what it had acknowledged, before its OSD has noticed.
pub fn holdings(store: &dyn StoreView) -> Result<Vec<Holding>, ReadError> {
    let mut pgs: Vec<SpgId> = Vec::new();
    store.omap_walk(&pg_list(), b"", &mut |key, _| {
        pgs.extend(key.to_text().parse::<SpgId>());
        true
    })?;
    let is_whole = !store_losses::is_news(store);
    let holding = |pg| match info_of(store, pg) {
        Ok(Some(info)) => Holding {
            pg: SpgId { shard: info.shard, ..pg },
            interval: info.interval_started,
            counts: is_whole && !info.incomplete,
            pg_num: info.pg_num,
        },
        _ => Holding { pg, interval: Epoch(0), counts: false, pg_num: 0 },
    };
    Ok(pgs.into_iter().map(holding).collect())
}
