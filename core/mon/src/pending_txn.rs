//! The pending transaction: the next batch while it is being made, from what several requests want.
//!
//! Requests of one turn see each other's changes to the OSD map and to keys, since they are committed
//! together.

use crate::state::{Batch, State};
use nacre_auth::{Entity, Entropy};
use nacre_base::{OsdId, PoolId, Utime};
use nacre_crush::CrushMap;
use nacre_proto::maps::{FsMap, Incremental, Osd, OsdMap, OsdXinfo, Pool, osd_state};
use nacre_proto::messages::DaemonMsg;
use nacre_proto::types::{AuthName, EntityAddr};
use nacre_wire::to_vec;
use std::sync::Arc;

pub struct PendingTxn {
    base: Arc<OsdMap>,
    /// `base` with `inc`.
    map: Arc<OsdMap>,
    inc: Incremental,
    /// Whether `inc` says anything.
    edited: bool,
    pub batch: Batch,
    /// Messages for OSDs, each sent once by the monitor that has a session with the OSD.
    pub osd_messages: Vec<(OsdId, DaemonMsg)>,
    /// The leader is to forget what it knows of recoveries, past ones too.
    pub clear_progress: bool,
    /// The member that is to lead from here on: what was asked is asked of it again.
    pub hand_over: Option<u64>,
    /// One change of the map cannot say what the current request wants beside what others want: it is for the
    /// next one.
    pub defer: bool,
    /// For keys that are made. None where nothing may change.
    pub entropy: Option<Entropy>,
}

impl PendingTxn {
    pub fn new(state: &State, now: Utime) -> PendingTxn {
        PendingTxn {
            base: state.osdmap.map.clone(),
            map: state.osdmap.map.clone(),
            inc: Incremental::after(&state.osdmap.map, now),
            edited: false,
            batch: Batch { stamp: now, ..Batch::default() },
            osd_messages: Vec::new(),
            clear_progress: false,
            hand_over: None,
            defer: false,
            entropy: None,
        }
    }

    /// Leaves the current request for the next batch, if that holds.
    ///
    /// Never inlined: rustc 1.95 at opt-level 2 without overflow checks (the profile `release`) compiled
    /// `defer |= condition` in `nacre upgrade finish` to `defer = true`, so that the command was put off with
    /// each batch and never answered.
    #[inline(never)]
    pub fn defer_if(&mut self, condition: bool) {
        self.defer |= condition;
    }

    /// The OSD map with all changes so far; its epoch is the next one if there are any.
    pub fn map(&self) -> &Arc<OsdMap> {
        &self.map
    }
    /// The map that clients have.
    pub fn committed_map(&self) -> &Arc<OsdMap> {
        &self.base
    }
    pub fn is_empty(&self) -> bool {
        !self.edited && self.batch.is_empty()
    }
    /// Whether another pool has that name until this batch is committed. Clients take names away last.
    pub fn gives_up_name(&self, name: &str) -> bool {
        self.base.pool_by_name(name).is_some() && self.map.pool_by_name(name).is_none()
    }
    /// Whether there is such an OSD until then. Clients take both changes together for none.
    pub fn removes_osd(&self, osd: OsdId) -> bool {
        self.base.exists(osd) && !self.map.exists(osd)
    }
    /// Whether the blocklist entry ends with this batch. Clients remove entries after they have added others.
    pub fn ends_blocklisting(&self, addr: &EntityAddr) -> bool {
        self.inc.old_blocklist.contains(addr) || self.inc.old_range_blocklist.contains(addr)
    }
    /// Whether a change to this OSD's being up is already in this batch.
    pub fn flips_up(&self, osd: OsdId) -> bool {
        self.inc.new_up_client.contains_key(&osd)
            || self.inc.new_state.get(&osd).is_some_and(|bits| bits & osd_state::UP != 0)
    }
    /// Whether OSDs come up with this batch.
    pub fn has_boots(&self) -> bool {
        !self.inc.new_up_client.is_empty()
    }

    /// A user, as earlier requests of this batch leave it.
    pub fn entity<'a>(&'a self, state: &'a State, name: &AuthName) -> Option<&'a Entity> {
        let changed = self.batch.auth.entities.iter().rev().find(|(changed, _)| changed == name);
        changed.map_or_else(|| state.auth.keys.entities.get(name), |(_, entity)| entity.as_ref())
    }

    /// The map of file systems with all changes so far.
    pub fn fsmap<'a>(&'a self, state: &'a State) -> &'a FsMap {
        self.batch.fsmap.map.as_ref().unwrap_or(&state.fsmap.map)
    }
    /// Changes it. Its epoch is the next one, which `change` notes in what it changes.
    pub fn edit_fsmap<T>(&mut self, state: &State, change: impl FnOnce(&mut FsMap) -> T) -> T {
        let map = self.batch.fsmap.map.get_or_insert_with(|| {
            let committed = state.fsmap.map.as_ref().clone();
            FsMap { epoch: committed.epoch.next(), ..committed }
        });
        let result = change(map);
        for fs in map.filesystems.values_mut().filter(|fs| fs.map.epoch == map.epoch) {
            fs.map.modified = self.batch.stamp;
        }
        result
    }

    /// Whether the change may place PGs anew.
    pub fn may_move_pgs(&self) -> bool {
        let Incremental { crush, new_weight, new_state, new_up_client, new_pools, .. } = &self.inc;
        let Incremental { new_primary_affinity, new_pg_upmap, old_pg_upmap, .. } = &self.inc;
        let Incremental { new_pg_upmap_items, old_pg_upmap_items, old_pools, .. } = &self.inc;
        let shape = |pool: &Pool| (pool.size, pool.pg_num, pool.pgp_num, pool.crush_rule, pool.flags);
        crush.is_some()
            || new_state.values().any(|bits| bits & (osd_state::UP | osd_state::EXISTS) != 0)
            || new_pools.iter().any(|(id, pool)| self.base.pool(*id).map(shape) != Some(shape(pool)))
            || !(new_weight.is_empty() && new_up_client.is_empty())
            || !(old_pools.is_empty() && new_primary_affinity.is_empty())
            || !(new_pg_upmap.is_empty() && old_pg_upmap.is_empty())
            || !(new_pg_upmap_items.is_empty() && old_pg_upmap_items.is_empty())
    }

    /// Changes the OSD map.
    pub fn edit<T>(&mut self, change: impl FnOnce(&mut Incremental) -> T) -> T {
        let result = change(&mut self.inc);
        self.map = Arc::new(self.base.apply(&self.inc).expect("requests are checked before they edit"));
        self.edited = true;
        result
    }
    pub fn edit_pool(&mut self, id: PoolId, change: impl FnOnce(&mut Pool)) {
        let mut pool = self.map.pools[&id].clone();
        change(Arc::make_mut(&mut pool));
        self.edit(|inc| inc.new_pools.insert(id, pool));
    }
    pub fn edit_crush(&mut self, crush: CrushMap) {
        self.edit(|inc| inc.crush = Some(Arc::new(crush)));
    }
    /// Flips bits of an OSD's state.
    pub fn flip(&mut self, osd: OsdId, bits: u32) {
        self.edit(|inc| {
            let have = inc.new_state.entry(osd).or_insert(0);
            *have ^= bits;
            if *have == 0 {
                inc.new_state.remove(&osd);
            }
        });
    }
    pub fn set_flag(&mut self, flag: u32, on: bool) {
        let flags = if on { self.map.flags | flag } else { self.map.flags & !flag };
        self.edit(|inc| inc.new_flags = Some(flags));
    }
    pub fn set_weight(&mut self, osd: OsdId, weight: u32) {
        let now = self.inc.modified;
        let was_in = self.map.is_in(osd);
        self.edit(|inc| {
            inc.new_weight.insert(osd, weight);
            if was_in != (weight != 0) {
                inc.new_last_in_change = now;
            }
        });
    }
    /// Marks an OSD out. Its reweight is kept for when it is in again.
    pub fn mark_out(&mut self, osd: OsdId) {
        let weight = self.map.weight(osd);
        self.set_weight(osd, 0);
        if let Some(known) = self.map.osd(osd).filter(|_| weight != 0) {
            let xinfo = OsdXinfo { old_weight: weight, ..known.xinfo };
            self.edit(|inc| inc.new_xinfo.insert(osd, xinfo));
        }
    }
    /// Marks an OSD in, with the reweight that it had before it was marked out.
    pub fn mark_in(&mut self, osd: OsdId) {
        let Some(known) = self.map.osd(osd) else { return };
        let weight = if known.xinfo.old_weight == 0 { Osd::IN } else { known.xinfo.old_weight };
        self.set_weight(osd, weight);
        self.edit(|inc| {
            // The map clears it for an OSD that is in, before it takes what the change says of the OSD.
            if let Some(xinfo) = inc.new_xinfo.get_mut(&osd) {
                xinfo.old_weight = 0;
            }
        });
    }
    pub fn mark_down(&mut self, osd: OsdId) {
        self.flip(osd, osd_state::UP);
        let now = self.inc.modified;
        self.edit(|inc| inc.new_last_up_change = now);
    }

    /// The process of an OSD has ended for certain. Leases that others granted it end.
    pub fn mark_dead(&mut self, osd: OsdId) {
        let Some(known) = self.map.osd(osd) else { return };
        let xinfo = OsdXinfo { dead_epoch: self.inc.epoch, ..known.xinfo };
        self.edit(|inc| inc.new_xinfo.insert(osd, xinfo));
    }

    /// The batch, complete with the sealed change of the map.
    pub fn finish(mut self) -> Batch {
        if self.edited {
            self.inc.seal(&self.base).expect("edit applied it before");
            self.batch.osdmap.incremental = Some(to_vec(&self.inc).into());
        }
        self.batch
    }
}
