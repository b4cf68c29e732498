//! What the monitors agree on: the sum of all committed batches.
//!
//! Every member applies the same batches in the same order, so nothing here may depend on anything
//! else: no clock, no configuration file, no session. `Batch` is one entry of the Raft log; `State`
//! is what they add up to, and what a checkpoint holds.

use crate::membership::MonChange;
use crate::memory::Memory;
use bytes::Bytes;
use nacre_auth::cephx::Service;
use nacre_auth::{Entity, Keys, Secret};
use nacre_base::{Epoch, IntervalSet, OsdId, PgId, PoolId, SnapId, Utime};
use nacre_proto::maps::{Incremental, MgrMap, MonMap, OsdMap, Uuid, ancestor, split_children};
use nacre_proto::messages::{LogEntry, PgRecord};
use nacre_proto::types::AuthName;
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice, to_vec, versioned, versioned_fields};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How many epochs back a map can be had, unless `mon_min_osdmap_epochs` says otherwise; whoever is
/// further behind gets a whole one.
const INCREMENTALS: u32 = 500;
/// The base map moves on by this part of them at a time, since moving it costs an encoding.
const TRIM_PART: u32 = 5;
/// Lines of the cluster log that are kept.
const LOG_LINES: usize = 1000;
const CONFIG_CHANGES: usize = 100;
/// The first global id that is given to a client, as in Ceph.
const FIRST_GLOBAL_ID: u64 = 4100;

#[derive(Clone, Debug)]
pub struct State {
    pub fsid: Uuid,
    pub monmap: MonMap,
    /// The monitors that decide: their names by their numbers in Raft, which those of the beginning have
    /// from their ranks.
    pub members: BTreeMap<u64, String>,
    /// The numbers of those that were removed.
    pub removed: BTreeSet<u64>,
    pub mgrmap: MgrMap,
    pub osdmap: Arc<OsdMap>,
    /// `osdmap`, encoded: what subscribers get.
    pub full: Bytes,
    /// The map before the first of `incrementals`, encoded.
    base: (Epoch, Bytes),
    pub incrementals: BTreeMap<Epoch, Bytes>,
    /// How far each placement group had come when it last served.
    pub records: BTreeMap<PgId, PgRecord>,
    pub config: BTreeMap<ConfigKey, String>,
    pub config_log: VecDeque<ConfigChange>,
    pub kv: BTreeMap<String, Bytes>,
    pub log: VecDeque<LogEntry>,
    /// Lines ever written.
    pub log_seq: u64,
    /// What each OSD says of itself.
    pub metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    pub mutes: BTreeMap<String, Mute>,
    /// No client was given this global id or a higher one yet.
    pub next_global_id: u64,
    /// Snapshots of pools that were removed, and of which nothing is left.
    pub purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// What the last leader would tell the next one.
    pub memory: Memory,
    /// Who is known, by which key, and what it may do; and with which keys tickets are sealed.
    pub keys: Arc<Keys>,
}

/// One option for some entities: `section` is `global`, a kind, or an entity; `mask` narrows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigKey {
    pub section: String,
    /// `class:ssd`, `host:a`, or empty.
    pub mask: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    pub stamp: Utime,
    pub version: u64,
    /// `osd/class:hdd/osd_max_backfills`
    pub what: String,
    pub old: Option<String>,
    pub new: Option<String>,
}

/// A health warning that an operator does not want to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mute {
    /// Zero: for ever.
    pub until: Utime,
    /// Stays when the warning clears, and when it grows.
    pub sticky: bool,
    pub summary: String,
    /// The size of the warning when it was muted; a bigger one is heard again.
    pub count: i64,
}

/// What is committed at once: one entry of the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The member that proposed this and its number there, so that it knows its own again.
    pub origin: (u64, u64),
    pub stamp: Utime,
    /// The beginning of a cluster: only in the first batch.
    pub genesis: Option<Genesis>,
    /// If Raft's group changes with it, this is the entry that does that.
    pub monitors: Option<MonChange>,
    pub mgrmap: Option<MgrMap>,
    /// An encoded incremental with its checksums.
    pub osdmap: Option<Bytes>,
    pub records: Vec<(PgId, PgRecord)>,
    /// None removes.
    pub config: Vec<(ConfigKey, Option<String>)>,
    pub kv: Vec<(String, Option<Bytes>)>,
    pub log: Vec<LogEntry>,
    pub metadata: Vec<(OsdId, BTreeMap<String, String>)>,
    pub mutes: Vec<(String, Option<Mute>)>,
    /// This many global ids are given away.
    pub global_ids: u64,
    pub memory: Option<Memory>,
    /// Numbers of snapshots that removals took for themselves. The map does not tell them from those of snapshots that were
    /// made in the same epoch.
    pub removal_numbers: Vec<(PoolId, SnapId)>,
    /// None removes.
    pub entities: Vec<(AuthName, Option<Entity>)>,
    /// The next keys of services.
    pub rotated: Vec<(Service, Secret)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Genesis {
    pub monmap: MonMap,
    /// The first OSD map, encoded.
    pub osdmap: Bytes,
    /// Whom the cluster knows from the beginning.
    pub entities: BTreeMap<AuthName, Entity>,
}

/// Why a batch changes nothing: it was made for another state than the one it met.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("the cluster exists already")]
    Exists,
    #[error("no cluster yet")]
    NoCluster,
    #[error("osdmap: {0}")]
    OsdMap(#[from] nacre_proto::maps::ApplyError),
    #[error("osdmap: {0}")]
    Undecodable(#[from] DecodeError),
}

impl Batch {
    /// Whether this would change nothing.
    pub fn is_empty(&self) -> bool {
        let nothing = Batch { origin: self.origin, stamp: self.stamp, ..Batch::default() };
        *self == nothing
    }
    /// Bytes of texts and values in it: what grows with what clients send.
    pub fn weight(&self) -> usize {
        let kv = self.kv.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Bytes::len));
        let config = self.config.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, String::len));
        let log = self.log.iter().map(|line| line.text.len());
        let entities =
            self.entities.iter().flat_map(|(name, entity)| Some(weight_of(name, entity.as_ref()?)));
        kv.chain(config).chain(log).chain(entities).sum()
    }
}

impl ConfigKey {
    fn len(&self) -> usize {
        self.section.len() + self.mask.len() + self.name.len()
    }
}

impl State {
    /// Bytes that clients have it keep: as options, under keys, and of who may do what.
    pub fn kept(&self) -> usize {
        let kv = self.kv.iter().map(|(key, value)| key.len() + value.len());
        let config = self.config.iter().map(|(key, value)| key.len() + value.len());
        let entities = self.keys.entities.iter().map(|(name, entity)| weight_of(name, entity));
        kv.chain(config).chain(entities).sum()
    }

    pub fn begin(genesis: &Genesis) -> Result<State, Rejected> {
        let osdmap: OsdMap = from_slice(&genesis.osdmap)?;
        Ok(State {
            fsid: genesis.monmap.fsid,
            members: founders(&genesis.monmap),
            removed: BTreeSet::new(),
            monmap: genesis.monmap.clone(),
            mgrmap: MgrMap::default(),
            base: (osdmap.epoch, genesis.osdmap.clone()),
            full: genesis.osdmap.clone(),
            osdmap: Arc::new(osdmap),
            incrementals: BTreeMap::new(),
            records: BTreeMap::new(),
            config: BTreeMap::new(),
            config_log: VecDeque::new(),
            kv: BTreeMap::new(),
            log: VecDeque::new(),
            log_seq: 0,
            metadata: BTreeMap::new(),
            mutes: BTreeMap::new(),
            next_global_id: FIRST_GLOBAL_ID,
            purged_snaps: BTreeMap::new(),
            memory: Memory::default(),
            keys: Arc::new(Keys { entities: genesis.entities.clone(), ..Keys::default() }),
        })
    }

    pub fn apply(&mut self, batch: &Batch) -> Result<(), Rejected> {
        if batch.genesis.is_some() {
            return Err(Rejected::Exists);
        }
        if let Some(change) = &batch.monitors {
            self.change_monitors(change, batch.stamp);
        }
        // First what can fail. A group that begins to serve in the epoch before it is split, or goes, has served when that
        // happens: what becomes of it starts from there.
        let change = |bytes: &Bytes| -> Result<_, Rejected> {
            let inc: Incremental = from_slice(bytes)?;
            Ok((self.osdmap.apply(&inc)?, inc, bytes.clone()))
        };
        let change = batch.osdmap.as_ref().map(change).transpose()?;
        self.records.extend(batch.records.iter().cloned());
        if let Some((next, inc, bytes)) = change {
            self.take_osdmap(next, inc, bytes);
        }
        if let Some(mgrmap) = &batch.mgrmap {
            self.mgrmap = mgrmap.clone();
        }
        for (key, value) in &batch.config {
            self.set_config(batch.stamp, key, value.clone());
        }
        for (key, value) in &batch.kv {
            match value {
                Some(value) => drop(self.kv.insert(key.clone(), value.clone())),
                None => drop(self.kv.remove(key)),
            }
        }
        for line in &batch.log {
            self.log_seq += 1;
            self.log.push_back(line.clone());
        }
        while self.log.len() > LOG_LINES {
            self.log.pop_front();
        }
        self.metadata.extend(batch.metadata.iter().cloned());
        for (code, mute) in &batch.mutes {
            match mute {
                Some(mute) => drop(self.mutes.insert(code.clone(), mute.clone())),
                None => drop(self.mutes.remove(code)),
            }
        }
        self.next_global_id += batch.global_ids;
        for (pool, number) in &batch.removal_numbers {
            // It was never a snapshot's, and leaves no gap among those that are gone.
            if self.osdmap.pool(*pool).is_some() {
                self.purged_snaps.entry(*pool).or_default().insert(number.0..number.0.saturating_add(1));
            }
        }
        if let Some(memory) = &batch.memory {
            self.memory = memory.clone();
        }
        if !(batch.entities.is_empty() && batch.rotated.is_empty()) {
            self.take_keys(batch);
        }
        Ok(())
    }

    fn take_keys(&mut self, batch: &Batch) {
        let keys = Arc::make_mut(&mut self.keys);
        for (name, entity) in &batch.entities {
            match entity {
                Some(entity) => drop(keys.entities.insert(name.clone(), entity.clone())),
                None => drop(keys.entities.remove(name)),
            }
        }
        for (service, key) in &batch.rotated {
            keys.rotating.entry(*service).or_default().add(key.clone());
        }
    }

    fn take_osdmap(&mut self, next: OsdMap, inc: Incremental, bytes: Bytes) {
        let old = std::mem::replace(&mut self.osdmap, Arc::new(next));
        let map = &self.osdmap;
        self.full = to_vec(map.as_ref()).into();
        self.incrementals.insert(inc.epoch, bytes);
        for (pool, snaps) in &inc.new_purged_snaps {
            self.purged_snaps.entry(*pool).or_default().add(snaps);
        }
        for pool in &inc.old_pools {
            self.records.retain(|pg, _| pg.pool != *pool);
            self.purged_snaps.remove(pool);
        }
        // A new group starts where the one that it was split from stands.
        for (&id, pool) in &inc.new_pools {
            let Some(before) = old.pool(id).filter(|before| before.pg_num < pool.pg_num) else { continue };
            for pg in old.pgs(id) {
                let Some(record) = self.records.get(&pg).cloned() else { continue };
                for child in split_children(pg, before.pg_num, pool.pg_num) {
                    self.records.insert(child, record.clone());
                }
            }
        }
        // One that took another in begins there, with those who had both.
        for (&id, pool) in &inc.new_pools {
            let Some(before) = old.pool(id).filter(|before| before.pg_num > pool.pg_num) else { continue };
            for seed in pool.pg_num..before.pg_num {
                let source = PgId { pool: id, seed };
                let record = self.records.remove(&source);
                let target = self.records.get_mut(&ancestor(source, pool.pg_num));
                if let (Some(_), Some(target)) = (record, target) {
                    target.interval = inc.epoch;
                }
            }
        }
        self.metadata.retain(|osd, _| map.exists(*osd));
        let kept = self.maps_wanted();
        if self.incrementals.len() >= (kept + (kept / TRIM_PART).max(1)) as usize {
            self.trim(kept);
        }
    }

    /// The same for every member: from what was committed alone.
    fn maps_wanted(&self) -> u32 {
        let who = ConfigWho { kind: "mon".into(), ..ConfigWho::default() };
        let set = self.config_for(&who).remove("mon_min_osdmap_epochs");
        set.and_then(|(value, _)| value.parse().ok()).unwrap_or(INCREMENTALS).max(1)
    }

    fn trim(&mut self, kept: u32) {
        let keep_from = Epoch(self.osdmap.epoch.0.saturating_sub(kept));
        match self.replay(keep_from) {
            Ok(map) => {
                self.base = (map.epoch, to_vec(&map).into());
                self.incrementals = self.incrementals.split_off(&keep_from.next());
            }
            // A checkpoint that was damaged when it came: who is behind gets the whole map.
            Err(_) => {
                self.base = (self.osdmap.epoch, self.full.clone());
                self.incrementals.clear();
            }
        }
    }

    /// The map of `epoch`, made from the base.
    fn replay(&self, epoch: Epoch) -> Result<OsdMap, Rejected> {
        let mut map: OsdMap = from_slice(&self.base.1)?;
        for bytes in self.incrementals.range(..=epoch).map(|(_, bytes)| bytes) {
            map = map.apply(&from_slice(bytes)?)?;
        }
        Ok(map)
    }

    fn set_config(&mut self, stamp: Utime, key: &ConfigKey, value: Option<String>) {
        let old = self.config.get(key).cloned();
        if old == value {
            return;
        }
        match &value {
            Some(value) => drop(self.config.insert(key.clone(), value.clone())),
            None => drop(self.config.remove(key)),
        }
        let mask = if key.mask.is_empty() { String::new() } else { format!("/{}", key.mask) };
        let what = format!("{}{mask}/{}", key.section, key.name);
        let version = self.config_log.back().map_or(1, |last| last.version) + 1;
        self.config_log.push_back(ConfigChange { stamp, version, what, old, new: value });
        while self.config_log.len() > CONFIG_CHANGES {
            self.config_log.pop_front();
        }
    }

    /// The oldest epoch whose map can be had.
    pub fn oldest_osdmap(&self) -> Epoch {
        self.base.0
    }
    /// The map of `epoch`, encoded, if it is kept.
    pub fn osdmap_at(&self, epoch: Epoch) -> Option<Bytes> {
        if epoch == self.osdmap.epoch {
            return Some(self.full.clone());
        }
        if epoch < self.base.0 || epoch > self.osdmap.epoch {
            return None;
        }
        Some(to_vec(&self.replay(epoch).ok()?).into())
    }
    /// Whether every placement group of the pool has served once.
    pub fn pool_is_created(&self, pool: PoolId) -> bool {
        self.osdmap.pgs(pool).all(|pg| self.records.contains_key(&pg))
    }
    /// The options for an entity: of its kind (`osd`), its name (`osd.3`), its host and class.
    pub fn config_for(&self, who: &ConfigWho) -> BTreeMap<String, (String, ConfigKey)> {
        // From the widest section to the narrowest, and without a mask before with one.
        let mut rules: Vec<(u8, bool, &ConfigKey, &String)> = self
            .config
            .iter()
            .filter_map(|(key, value)| Some((who.rank(key)?, !key.mask.is_empty(), key, value)))
            .collect();
        rules.sort_by_key(|(rank, masked, ..)| (*masked, *rank));
        rules.into_iter().map(|(_, _, key, value)| (key.name.clone(), (value.clone(), key.clone()))).collect()
    }
}

/// Whose options are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigWho {
    pub kind: String,
    /// Without the kind; may be empty.
    pub id: String,
    pub host: String,
    pub class: String,
}

impl ConfigWho {
    /// How close a section is to this entity; none if it is about others.
    fn rank(&self, key: &ConfigKey) -> Option<u8> {
        let masked = match key.mask.split_once(':') {
            None => true,
            Some(("class", class)) => class == self.class,
            Some(("host", host)) => host == self.host,
            Some(_) => false,
        };
        let rank = match key.section.split_once('.') {
            None if key.section == "global" => 0,
            None if key.section == self.kind => 1,
            Some((kind, id)) if kind == self.kind && id == self.id => 2,
            _ => return None,
        };
        masked.then_some(rank)
    }
}

versioned_fields!(ConfigKey, "config key", section, mask, name);
versioned_fields!(ConfigChange, "config change", stamp, version, what, old, new);
versioned_fields!(Mute, "mute", until, sticky, summary, count);
versioned_fields!(Genesis, "genesis", monmap, osdmap; later entities);

impl Encode for Batch {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 5, 1, |out| {
            self.origin.encode(out);
            self.stamp.encode(out);
            self.genesis.encode(out);
            // Once a monitor map.
            None::<MonMap>.encode(out);
            self.mgrmap.encode(out);
            self.osdmap.encode(out);
            self.records.encode(out);
            self.config.encode(out);
            self.kv.encode(out);
            self.log.encode(out);
            self.metadata.encode(out);
            self.mutes.encode(out);
            self.global_ids.encode(out);
            self.memory.encode(out);
            self.monitors.encode(out);
            self.removal_numbers.encode(out);
            self.entities.encode(out);
            self.rotated.encode(out);
        });
    }
}
impl Decode for Batch {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("batch", 5, |r, v| {
            Ok(Batch {
                origin: Decode::decode(r)?,
                stamp: Decode::decode(r)?,
                genesis: Decode::decode(r)?,
                mgrmap: {
                    Option::<MonMap>::decode(r)?;
                    Decode::decode(r)?
                },
                osdmap: Decode::decode(r)?,
                records: Decode::decode(r)?,
                config: Decode::decode(r)?,
                kv: Decode::decode(r)?,
                log: Decode::decode(r)?,
                metadata: Decode::decode(r)?,
                mutes: Decode::decode(r)?,
                global_ids: Decode::decode(r)?,
                memory: if v >= 2 { Decode::decode(r)? } else { None },
                monitors: if v >= 3 { Decode::decode(r)? } else { None },
                removal_numbers: if v >= 4 { Decode::decode(r)? } else { Vec::new() },
                entities: if v >= 5 { Decode::decode(r)? } else { Vec::new() },
                rotated: if v >= 5 { Decode::decode(r)? } else { Vec::new() },
            })
        })
    }
}

/// A checkpoint.
impl Encode for State {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 6, 1, |out| {
            self.monmap.encode(out);
            self.mgrmap.encode(out);
            self.full.encode(out);
            self.base.encode(out);
            self.incrementals.encode(out);
            self.records.encode(out);
            self.config.encode(out);
            self.config_log.iter().cloned().collect::<Vec<_>>().encode(out);
            self.kv.encode(out);
            self.log.iter().cloned().collect::<Vec<_>>().encode(out);
            self.log_seq.encode(out);
            self.metadata.encode(out);
            self.mutes.encode(out);
            self.next_global_id.encode(out);
            self.purged_snaps.encode(out);
            self.memory.encode(out);
            self.members.encode(out);
            self.removed.encode(out);
            self.keys.as_ref().encode(out);
        });
    }
}
impl Decode for State {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("monitor state", 6, |r, v| {
            let monmap = MonMap::decode(r)?;
            let mgrmap = MgrMap::decode(r)?;
            let full = Bytes::decode(r)?;
            let mut state = State {
                fsid: monmap.fsid,
                members: founders(&monmap),
                removed: BTreeSet::new(),
                monmap,
                mgrmap,
                osdmap: Arc::new(from_slice(&full)?),
                full,
                base: Decode::decode(r)?,
                incrementals: Decode::decode(r)?,
                records: Decode::decode(r)?,
                config: Decode::decode(r)?,
                config_log: Vec::decode(r)?.into(),
                kv: Decode::decode(r)?,
                log: Vec::decode(r)?.into(),
                log_seq: Decode::decode(r)?,
                metadata: Decode::decode(r)?,
                mutes: Decode::decode(r)?,
                next_global_id: Decode::decode(r)?,
                purged_snaps: if v >= 2 { Decode::decode(r)? } else { BTreeMap::new() },
                memory: if v >= 3 { Decode::decode(r)? } else { Memory::default() },
                keys: Arc::default(),
            };
            if v >= 4 {
                (state.members, state.removed) = (Decode::decode(r)?, Decode::decode(r)?);
            }
            if v < 5 {
                // There may be some among them that were never removed. Others are removed again if anybody asks for it.
                state.purged_snaps.clear();
            }
            if v >= 6 {
                state.keys = Arc::new(Keys::decode(r)?);
            }
            Ok(state)
        })
    }
}

/// Bytes of somebody with a key.
pub fn weight_of(name: &AuthName, entity: &Entity) -> usize {
    let caps = entity.caps.iter().map(|(service, caps)| service.len() + caps.len());
    name.id.len() + size_of::<Entity>() + caps.sum::<usize>()
}

/// The members of a cluster's beginning: their ranks and one.
fn founders(monmap: &MonMap) -> BTreeMap<u64, String> {
    (1..).zip(monmap.ranks.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::Draft;
    use nacre_base::OsdId;
    use nacre_crush::CrushMap;
    use nacre_proto::maps::Pool;

    fn begun(now: Utime) -> State {
        let first = OsdMap::new([1; 16], now, CrushMap::fresh(0));
        let monmap = MonMap::new([1; 16], now, Vec::new());
        State::begin(&Genesis { monmap, osdmap: to_vec(&first).into(), entities: BTreeMap::new() }).unwrap()
    }

    /// Else somebody who served the group before, and not in the interval that begins, would do for its child.
    #[test]
    fn a_child_starts_from_a_record_that_is_committed_with_the_split() {
        let (now, pool) = (Utime::ZERO, PoolId(1));
        let mut state = begun(now);
        let pg = |seed| PgId { pool, seed };
        let record = |interval, osd| PgRecord { interval: Epoch(interval), acting: vec![OsdId(osd)] };
        let mut draft = Draft::new(&state, now);
        draft.edit(|inc| inc.new_pools.insert(pool, Arc::new(Pool::replicated(1, 1, 1, 0, now))));
        draft.batch.records.push((pg(0), record(2, 5)));
        state.apply(&draft.finish()).unwrap();

        let mut draft = Draft::new(&state, now);
        draft.batch.records.push((pg(0), record(3, 7)));
        draft.edit_pool(pool, |pool| pool.pg_num = 2);
        state.apply(&draft.finish()).unwrap();
        assert_eq!((&state.records[&pg(0)], &state.records[&pg(1)]), (&record(3, 7), &record(3, 7)));

        let mut draft = Draft::new(&state, now);
        draft.batch.records.push((pg(1), record(4, 8)));
        draft.edit(|inc| inc.old_pools.insert(pool));
        state.apply(&draft.finish()).unwrap();
        assert!(state.records.is_empty(), "nothing stays of a pool that is gone");
    }

    /// Found by fuzzing checkpoints: it died when somebody asked for an older map.
    #[test]
    fn a_change_that_does_not_fit_costs_old_maps_and_no_more() {
        let now = Utime::ZERO;
        let mut state = begun(now);
        let step = |state: &mut State| {
            let mut inc = Incremental::after(&state.osdmap, now);
            inc.seal(&state.osdmap).unwrap();
            state.apply(&Batch { osdmap: Some(to_vec(&inc).into()), ..Batch::default() }).unwrap();
        };
        step(&mut state);
        step(&mut state);
        assert!(state.osdmap_at(Epoch(2)).is_some());
        state.incrementals.insert(Epoch(2), Bytes::from_static(b"damaged"));
        assert_eq!(state.osdmap_at(Epoch(2)), None);
        assert!(state.osdmap_at(Epoch(3)).is_some());
        (0..INCREMENTALS + INCREMENTALS / TRIM_PART).for_each(|_| step(&mut state));
        assert!(state.oldest_osdmap() > Epoch(3));
        assert!(state.osdmap_at(state.oldest_osdmap()).is_some());
    }
}
