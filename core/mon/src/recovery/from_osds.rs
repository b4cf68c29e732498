//! The monitors' state from what OSDs and hosts have, when all monitors are lost and there is no backup
//! (`docs/decisions/0066-monitors-from-osds.md`).
//!
//! Each host writes a `Collection`: the OSD map that its OSDs have, what they have of placement groups, and
//! its keys. The newest map counts. An activation record is made for each placement group of the last
//! interval in which a collected OSD took part. Where OSDs that are not there may have later writes, the
//! record names these, so that the placement group waits for them.

use super::{Recovery, RecoveryError};
use crate::services::config::ConfigKey;
use crate::services::hosts::{Facts, Host, ROLES, agent};
use crate::state::{Genesis, State};
use bytes::Bytes;
use nacre_auth::{Entity, Secret};
use nacre_base::{Epoch, OsdId, PgId, SpgId, Utime};
use nacre_proto::maps::{MonMap, OsdMap, Uuid, ancestor, osd_state};
use nacre_proto::messages::PgRecord;
use nacre_proto::types::{AuthName, EntityAddr, EntityType};
use nacre_wire::{from_slice, to_vec, versioned_fields};
use std::collections::{BTreeMap, BTreeSet};

/// What `nacre mon collect` writes: all that one host has of its cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Collection {
    /// When it was made.
    pub made: Utime,
    /// By which version of Nacre.
    pub version: String,
    /// The cluster's id.
    pub fsid: Uuid,
    /// The newest format that the host's program can use.
    pub format: u32,
    /// The host itself.
    pub host: CollectedHost,
    /// The OSDs of the host.
    pub osds: Vec<CollectedOsd>,
    /// Users and daemons whose keys the host has.
    pub entities: BTreeMap<AuthName, Entity>,
    /// The key of the monitors, if the host has one.
    pub monitors_key: Option<Secret>,
}

/// A host, as it knows itself.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedHost {
    pub name: String,
    pub uuid: Uuid,
    /// Where its monitor listens, if it has one.
    pub addr: EntityAddr,
    /// Which boot of which kernel this is.
    pub machine: String,
    /// Where it looks for monitors.
    pub mons: Vec<EntityAddr>,
    /// The ids of monitors whose folders it has.
    pub monitors: BTreeSet<u64>,
    /// Options that hosts know: the networks of the cluster, by their names.
    pub networks: BTreeMap<String, String>,
}

/// What an OSD has.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedOsd {
    pub id: i32,
    pub uuid: Uuid,
    /// Its newest OSD map, encoded. Empty if it has none.
    pub map: Bytes,
    pub pgs: Vec<CollectedPg>,
}

/// What an OSD has of a placement group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectedPg {
    pub pg: SpgId,
    /// The last interval in which the OSD made its log the placement group's.
    pub interval: Epoch,
    /// Whether the OSD can tell what it has.
    pub counts: bool,
    /// How many placement groups the pool had when this one was last split.
    pub pg_num: u32,
}

versioned_fields!(
    Collection,
    "what a host has of its cluster",
    made,
    version,
    fsid,
    format,
    host,
    osds,
    entities,
    monitors_key
);
versioned_fields!(CollectedHost, "collected host", name, uuid, addr, machine, mons, monitors, networks);
versioned_fields!(CollectedOsd, "collected OSD", id, uuid, map, pgs);
versioned_fields!(CollectedPg, "collected placement group", pg, interval, counts, pg_num);

/// What the first bytes of a collection are.
const MAGIC: &[u8] = b"nacre-mon-collection\n";

/// How many monitors there may have been beyond those of which a host knows.
const UNSEEN_MONITORS: u64 = 100;

/// More placement groups than any cluster has.
const PGS_MAX: u64 = 4 << 20;

/// Epochs of the monitor map and the manager map that the lost monitors made at most.
const MAP_EPOCHS_LOST: u32 = 10_000;

impl Collection {
    /// As it is in a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        [MAGIC, &to_vec(self)].concat()
    }
    /// From a file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Collection, RecoveryError> {
        Ok(from_slice(bytes.strip_prefix(MAGIC).ok_or(RecoveryError::NoCollection)?)?)
    }
}

/// What is not known for certain of a cluster that is recovered from OSDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// OSDs of the map that were not collected.
    pub missing: BTreeSet<OsdId>,
    /// Placement groups of which other OSDs may have later writes than those that were collected: they wait
    /// for these.
    pub waiting: Vec<PgId>,
}

impl Recovery {
    /// From what hosts have. Says what is missing.
    pub fn of_osds(all: &[Collection], now: Utime) -> Result<(Recovery, Gaps), RecoveryError> {
        let refused = |text: String| Err(RecoveryError::Damaged(text));
        let Some(first) = all.first() else { return refused("no host was collected".to_string()) };
        if let Some(other) = all.iter().find(|other| other.fsid != first.fsid) {
            let names = [&first.host.name, &other.host.name];
            return refused(format!("{} and {} are of different clusters", names[0], names[1]));
        }
        let osds = || all.iter().flat_map(|collection| &collection.osds);
        let mut newest: Option<OsdMap> = None;
        for osd in osds().filter(|osd| !osd.map.is_empty()) {
            let map: OsdMap = from_slice(&osd.map)?;
            if map.fsid == first.fsid && newest.as_ref().is_none_or(|newest| newest.epoch < map.epoch) {
                newest = Some(map);
            }
        }
        let Some(map) = newest else { return refused("no OSD has an OSD map".to_string()) };
        let pgs: u64 = map.pools.values().map(|pool| u64::from(pool.pg_num)).sum();
        if pgs > PGS_MAX {
            return refused(format!("the OSD map has {pgs} placement groups"));
        }
        // Another store under the number of an OSD is none of the cluster's.
        let known: BTreeMap<OsdId, &CollectedOsd> = osds()
            .map(|osd| (OsdId(osd.id), osd))
            .filter(|(id, osd)| map.osd(*id).is_some_and(|known| known.uuid == osd.uuid))
            .collect();
        let is_gone = |osd: OsdId| {
            map.osd(osd).is_none_or(|known| {
                let lost = known.info.lost_at;
                known.has(osd_state::DESTROYED) || lost.0 > 0 && lost >= known.info.up_from
            })
        };
        let missing: BTreeSet<OsdId> =
            map.osd_ids().filter(|osd| !known.contains_key(osd) && !is_gone(*osd)).collect();
        let mut gaps = Gaps { missing, waiting: Vec::new() };
        let records = records(&map, &known, &mut gaps);

        let genesis = Genesis {
            monmap: MonMap::new(first.fsid, now, []),
            osdmap: to_vec(&map).into(),
            entities: entities(all),
            format: all.iter().map(|collection| collection.format).min().unwrap_or_default(),
        };
        let begun = State::begin(&genesis);
        let mut state = begun.map_err(|rejected| RecoveryError::Damaged(rejected.to_string()))?;
        state.pgs.records = records;
        state.monmap.map.epoch = Epoch(MAP_EPOCHS_LOST);
        state.mgrmap.map.epoch = Epoch(MAP_EPOCHS_LOST);
        let monitors = all.iter().flat_map(|collection| &collection.host.monitors);
        state.hosts.last_monitor = monitors.copied().max().unwrap_or_default();
        // Data is where it is: no rule is changed by itself.
        state.hosts.domain_grown = true;
        for Collection { host, made, .. } in all {
            let known = Host {
                uuid: host.uuid,
                addr: host.addr,
                machine: host.machine.clone(),
                roles: ROLES.map(String::from).into(),
                labels: BTreeSet::new(),
                registered: *made,
                monitor: None,
                facts: Facts::default(),
                seen: now,
                maintenance: None,
                orders: Vec::new(),
                last_order: 0,
                noout_before: BTreeSet::new(),
            };
            state.hosts.hosts.insert(host.name.clone(), known);
            for (name, value) in &host.networks {
                let (section, mask) = ("global".to_string(), String::new());
                state.config.options.insert(ConfigKey { section, mask, name: name.clone() }, value.clone());
            }
        }
        let mut recovery = Recovery { state, reach: (0, 0) };
        // None of the monitors there were decides again, wherever it is.
        recovery.state.monmap.removed = (1..=recovery.state.hosts.last_monitor + UNSEEN_MONITORS).collect();
        Ok((recovery, gaps))
    }

    /// Makes an administrator known, with a key of its own.
    pub fn set_admin(&mut self, entity: Entity) {
        let keys = std::sync::Arc::make_mut(&mut self.state.auth.keys);
        keys.entities.insert(AuthName::new(EntityType::Client, "admin"), entity);
    }
}

/// What the cluster knows of users and daemons: their keys as hosts have them. Daemons have the capabilities
/// that they always have.
fn entities(all: &[Collection]) -> BTreeMap<AuthName, Entity> {
    let mut found = BTreeMap::new();
    let caps = |list: &[(&str, &str)]| -> BTreeMap<String, String> {
        list.iter().map(|(service, caps)| (service.to_string(), caps.to_string())).collect()
    };
    for Collection { entities, host, .. } in all {
        for (name, entity) in entities {
            let caps = if name.kind == EntityType::Osd as u32 {
                caps(&[("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")])
            } else if *name == agent(&host.name) {
                caps(&[("mon", "allow profile host, allow profile bootstrap-osd")])
            } else {
                entity.caps.clone()
            };
            found.insert(name.clone(), Entity { key: entity.key.clone(), caps });
        }
    }
    found
}

/// What OSDs have of the placement groups of one of them.
struct Index<'a> {
    osd: OsdId,
    of: BTreeMap<PgId, Vec<&'a CollectedPg>>,
    /// How many placement groups the pools had, as this OSD knows it.
    pg_nums: BTreeSet<(i64, u32)>,
}

impl<'a> Index<'a> {
    fn new(osd: OsdId, collected: &'a CollectedOsd) -> Index<'a> {
        let mut index = Index { osd, of: BTreeMap::new(), pg_nums: BTreeSet::new() };
        for held in &collected.pgs {
            index.of.entry(held.pg.pg).or_default().push(held);
            index.pg_nums.insert((held.pg.pg.pool.0, held.pg_num));
        }
        index
    }

    /// What the OSD has of a placement group, which it may not have split from another one yet.
    fn holdings(&self, pg: PgId) -> &[&'a CollectedPg] {
        if let Some(own) = self.of.get(&pg) {
            return own;
        }
        let pool = pg.pool.0;
        let pg_nums = self.pg_nums.range((pool, 1)..=(pool, u32::MAX)).map(|(_, pg_num)| *pg_num);
        let mut parents = pg_nums.filter_map(|pg_num| {
            let parent = self.of.get(&ancestor(pg, pg_num))?;
            parent.iter().all(|held| held.pg_num == pg_num).then_some(&parent[..])
        });
        parents.next_back().unwrap_or_default()
    }

    /// Whether it has a placement group that is merged into this one by now.
    fn has_unmerged(&self, pg: PgId, pg_num: u32) -> bool {
        let from = PgId { seed: pg_num, ..pg };
        let rest = self.of.range(from..).take_while(|(other, _)| other.pool == pg.pool);
        rest.into_iter().any(|(other, _)| ancestor(*other, pg_num) == pg)
    }
}

/// The activation records of all placement groups that ever served, as far as it is known.
///
/// An OSD that takes part in an interval makes that durable before the record of the interval is committed,
/// and has all acknowledged writes of the earlier ones then. So the OSDs that took part in the last interval
/// of all that any OSD took part in have all writes. The members of a record are at least `min_size`: if
/// fewer OSDs than that are unknown, one of them is known.
fn records(map: &OsdMap, osds: &BTreeMap<OsdId, &CollectedOsd>, gaps: &mut Gaps) -> BTreeMap<PgId, PgRecord> {
    let indexes: Vec<Index<'_>> = osds.iter().map(|(osd, collected)| Index::new(*osd, collected)).collect();
    let mut records = BTreeMap::new();
    for (id, pool) in &map.pools {
        for pg in map.pgs(*id) {
            let mut unknown = gaps.missing.clone();
            let mut holders: Vec<(OsdId, &CollectedPg)> = Vec::new();
            for index in &indexes {
                let is_half = index.has_unmerged(pg, pool.pg_num);
                for held in index.holdings(pg) {
                    match held.counts && !is_half {
                        true => holders.push((index.osd, *held)),
                        false => drop(unknown.insert(index.osd)),
                    }
                }
            }
            // An erasure-coded write is on enough OSDs only if all are known.
            let may_be_unknown = if pool.is_erasure() { 1 } else { pool.min_size.max(1) as usize };
            let interval = holders.iter().map(|(_, held)| held.interval).max().unwrap_or(Epoch(0));
            if unknown.len() >= may_be_unknown {
                gaps.waiting.push(pg);
                records.insert(pg, PgRecord { interval, acting: unknown.into_iter().collect() });
                continue;
            }
            // One that took part in no interval never served.
            if interval == Epoch(0) {
                continue;
            }
            let last = holders.iter().filter(|(_, held)| held.interval == interval);
            let acting = match pool.is_erasure() {
                false => last.map(|(osd, _)| *osd).collect(),
                true => by_shard(last, pool.size as usize),
            };
            records.insert(pg, PgRecord { interval, acting });
        }
    }
    records
}

/// The OSDs that have the shards, in their order.
fn by_shard<'a>(holders: impl Iterator<Item = &'a (OsdId, &'a CollectedPg)>, size: usize) -> Vec<OsdId> {
    let mut acting = vec![OsdId::NONE; size];
    for (osd, held) in holders {
        let at = usize::try_from(held.pg.shard.0).ok();
        if let Some(place) = at.and_then(|at| acting.get_mut(at)) {
            *place = *osd;
        }
    }
    acting
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::PoolId;
    use nacre_crush::CrushMap;
    use nacre_proto::maps::Pool;
    use std::sync::Arc;

    const FSID: Uuid = [9; 16];

    fn pg(seed: u32) -> PgId {
        PgId { pool: PoolId(1), seed }
    }
    fn held(seed: u32, interval: u32) -> CollectedPg {
        CollectedPg { pg: SpgId::replicated(pg(seed)), interval: Epoch(interval), counts: true, pg_num: 4 }
    }

    /// A map with OSDs and one pool of placement groups, of which two must be there.
    fn map(osds: i32, pg_num: u32) -> OsdMap {
        let mut map = OsdMap::new(FSID, Utime::ZERO, CrushMap::fresh(0));
        map.epoch = Epoch(50);
        map.set_max_osd(osds as u32);
        for osd in 0..osds {
            let known = map.osd_mut(OsdId(osd)).unwrap();
            (known.state, known.uuid) = (osd_state::EXISTS, [osd as u8; 16]);
        }
        let pool = Arc::new(Pool::replicated(3, 2, pg_num, 0, Utime::ZERO));
        map.pools.insert(PoolId(1), pool);
        map
    }

    fn collection(map: &OsdMap, osds: &[(i32, Vec<CollectedPg>)]) -> Collection {
        let osd = |(id, pgs): &(i32, Vec<CollectedPg>)| CollectedOsd {
            id: *id,
            uuid: [*id as u8; 16],
            map: to_vec(map).into(),
            pgs: pgs.clone(),
        };
        let host = CollectedHost {
            name: format!("h{}", osds[0].0),
            uuid: [osds[0].0 as u8; 16],
            addr: EntityAddr::msgr2("10.0.0.1:3300".parse().unwrap(), 0),
            machine: String::new(),
            mons: Vec::new(),
            monitors: [3].into(),
            networks: [("public_network".to_string(), "10.0.0.0/24".to_string())].into(),
        };
        Collection {
            made: Utime { sec: 5, nsec: 0 },
            version: "1".to_string(),
            fsid: FSID,
            format: 1,
            host,
            osds: osds.iter().map(osd).collect(),
            entities: BTreeMap::new(),
            monitors_key: None,
        }
    }

    fn recover(all: &[Collection]) -> (BTreeMap<PgId, PgRecord>, Gaps) {
        let (recovery, gaps) = Recovery::of_osds(all, Utime { sec: 1000, nsec: 0 }).unwrap();
        (recovery.state.pgs.records, gaps)
    }
    fn record(interval: u32, acting: &[i32]) -> PgRecord {
        PgRecord { interval: Epoch(interval), acting: acting.iter().copied().map(OsdId).collect() }
    }

    #[test]
    fn record_names_those_that_took_part_in_the_last_interval() {
        let map = map(3, 4);
        let all = [
            collection(&map, &[(0, vec![held(0, 10), held(1, 20), held(3, 0)])]),
            collection(&map, &[(1, vec![held(0, 30), held(1, 20)]), (2, vec![held(0, 30), held(1, 7)])]),
        ];
        let (records, gaps) = recover(&all);
        assert_eq!(gaps, Gaps::default());
        // 2 is on no OSD, and 3 never served.
        assert_eq!(records, [(pg(0), record(30, &[1, 2])), (pg(1), record(20, &[0, 1]))].into());
    }

    #[test]
    fn placement_group_waits_for_osds_that_may_have_later_writes() {
        let map = map(4, 2);
        // One OSD is missing, and at least two have each write.
        let three: Vec<_> = (0..3).map(|osd| (osd, vec![held(0, 10), held(1, 10)])).collect();
        let (records, gaps) = recover(&[collection(&map, &three)]);
        assert_eq!((gaps.missing, gaps.waiting), ([OsdId(3)].into(), vec![]));
        assert_eq!(records[&pg(0)], record(10, &[0, 1, 2]));
        // Two are missing, or one more cannot tell what it has.
        let (records, gaps) = recover(&[collection(&map, &three[..2])]);
        assert_eq!(gaps.waiting, [pg(0), pg(1)]);
        assert_eq!(records[&pg(0)], record(10, &[2, 3]));
        let mut torn = three.clone();
        torn[0].1[1].counts = false;
        let (records, gaps) = recover(&[collection(&map, &torn)]);
        assert_eq!((gaps.waiting, &records[&pg(1)]), (vec![pg(1)], &record(10, &[0, 3])));
        // Those that are given up, or were replaced, are not waited for.
        let mut given_up = map.clone();
        given_up.osd_mut(OsdId(2)).unwrap().state |= osd_state::DESTROYED;
        given_up.osd_mut(OsdId(3)).unwrap().info.lost_at = Epoch(40);
        let (records, gaps) = recover(&[collection(&given_up, &three[..2])]);
        assert_eq!((gaps, &records[&pg(0)]), (Gaps::default(), &record(10, &[0, 1])));
        let mut replaced = collection(&map, &three);
        replaced.osds[2].uuid = [77; 16];
        assert_eq!(recover(&[replaced]).1.missing, [OsdId(2), OsdId(3)].into());
    }

    #[test]
    fn osd_that_did_not_split_or_merge_yet_is_understood() {
        let four = map(3, 4);
        let parent = |interval| CollectedPg { pg_num: 2, ..held(1, interval) };
        // Of two, the second is the parent of the fourth.
        let all = [collection(
            &four,
            &[(0, vec![held(1, 20), held(3, 20)]), (1, vec![parent(20)]), (2, vec![parent(9)])],
        )];
        let (records, _) = recover(&all);
        assert_eq!([&records[&pg(1)], &records[&pg(3)]], [&record(20, &[0, 1]), &record(20, &[0, 1])]);
        let two = map(3, 2);
        let merged = CollectedPg { pg_num: 2, ..held(1, 30) };
        let all =
            [collection(&two, &[(0, vec![merged]), (1, vec![merged]), (2, vec![held(1, 20), held(3, 20)])])];
        assert_eq!(recover(&all).0, [(pg(1), record(30, &[0, 1]))].into());
    }

    #[test]
    fn newest_map_counts_and_hosts_and_keys_are_known_again() {
        let old = OsdMap { epoch: Epoch(49), ..map(1, 1) };
        let mut one = collection(&old, &[(0, vec![])]);
        let mut two = collection(&map(2, 4), &[(1, vec![])]);
        let entity = |text: &str| {
            let key = Secret::from_base64("AQCI7NljAAAAABAAkTqsHBLxcmMzHBGf0GA6fw==").unwrap();
            Entity { key, caps: [("mon".to_string(), text.to_string())].into() }
        };
        one.entities.insert(AuthName::new(EntityType::Osd, "0"), entity(""));
        one.entities.insert(AuthName::new(EntityType::Client, "host.h0"), entity(""));
        two.entities.insert(AuthName::new(EntityType::Client, "admin"), entity("allow *"));
        (one.format, two.format) = (2, 1);
        let bytes = one.to_bytes();
        assert_eq!(Collection::from_bytes(&bytes).unwrap(), one);
        assert!(matches!(Collection::from_bytes(&bytes[1..]), Err(RecoveryError::NoCollection)));
        assert!(Collection::from_bytes(&bytes[..bytes.len() - 1]).is_err());
        let (recovery, _) = Recovery::of_osds(&[one.clone(), two], Utime { sec: 1000, nsec: 0 }).unwrap();
        assert_eq!((recovery.counts(), recovery.next_id()), ((2, 1), 1104));
        assert!(recovery.state.monmap.was_removed(3) && recovery.state.monmap.was_removed(103));
        assert_eq!(recovery.state.hosts.hosts.keys().collect::<Vec<_>>(), ["h0", "h1"]);
        let caps = |kind, id: &str| recovery.entity(&AuthName::new(kind, id)).unwrap().caps["mon"].clone();
        assert_eq!(caps(EntityType::Osd, "0"), "allow profile osd");
        assert!(caps(EntityType::Client, "host.h0").contains("bootstrap-osd"));
        assert_eq!(
            (recovery.admin().unwrap().1.caps["mon"].as_str(), recovery.state.upgrades.format),
            ("allow *", 1)
        );
        let other = Collection { fsid: [1; 16], ..one };
        assert!(Recovery::of_osds(&[collection(&map(1, 1), &[(0, vec![])]), other], Utime::ZERO).is_err());
        assert!(Recovery::of_osds(&[], Utime::ZERO).is_err());
    }
}
