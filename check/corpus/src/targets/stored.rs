//! What daemons read from their disks when they start, and what monitors replicate.

use super::codecs::{answer, log_entry, seal_incremental, seal_map, stable};
use crate::samples;
use bytes::Bytes;
use nacre_auth::cephx::SERVICE_OSD;
use nacre_auth::{Entity, Entropy, KeyType, Secret};
use nacre_base::{Epoch, Name, OsdId, PgId, PoolId, ShardId, SnapId, SpgId, Utime, Version};
use nacre_machine::{NoStore, ReadError, Statfs, StoreStat, StoreView};
use nacre_mon::{
    AuthDelta, Batch, CollectedHost, CollectedOsd, CollectedPg, Collection, ConfigEntity, Genesis,
    OsdMapDelta, Recovery, State,
};
use nacre_osd::stored::{CloneInfo, Maps, ObjectInfo, Record, SnapSet, Watcher, scrub_state, walk_findings};
use nacre_proto::maps::{Incremental, MonMap, OsdMap};
use nacre_proto::messages::answer::{Answer, Answers};
use nacre_proto::messages::part::Stale;
use nacre_proto::messages::peer::PgInfo;
use nacre_proto::messages::scrub::{BadObject, Finding, ScrubState};
use nacre_proto::messages::{PgRecord, PoolSpace};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{AuthName, EntityAddr, EntityType, ObjectId};
use nacre_wire::{Encode, Reader, from_slice, to_vec};
use std::collections::BTreeMap;
use std::sync::OnceLock;

const PG: PgId = PgId { pool: PoolId(2), seed: 5 };

/// A store in which every object has the same omap.
struct Omap(BTreeMap<Name, Bytes>);

impl Omap {
    /// Length-prefixed keys and values.
    fn read(input: &[u8]) -> Omap {
        let r = &mut Reader::new(input);
        let mut pairs = BTreeMap::new();
        while let (Ok(key), Ok(value)) = (r.bytes(), r.bytes()) {
            pairs.insert(Name::copy_from(key), Bytes::copy_from_slice(value));
        }
        Omap(pairs)
    }
    fn written(txn: &Transaction) -> Omap {
        let sets = txn.changes.iter().filter_map(|(_, change)| match change {
            Change::OmapSet(pairs) => Some(pairs.clone()),
            _ => None,
        });
        Omap(sets.flatten().collect())
    }
}

impl StoreView for Omap {
    fn stat(&self, id: &StoredId) -> Result<Option<StoreStat>, ReadError> {
        NoStore.stat(id)
    }
    fn attr(&self, id: &StoredId, name: &[u8]) -> Result<Option<Bytes>, ReadError> {
        NoStore.attr(id, name)
    }
    fn attrs(&self, id: &StoredId) -> Result<BTreeMap<Name, Bytes>, ReadError> {
        NoStore.attrs(id)
    }
    fn omap_header(&self, id: &StoredId) -> Result<Bytes, ReadError> {
        NoStore.omap_header(id)
    }
    fn omap_get(&self, _: &StoredId, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.0.get(key).cloned())
    }
    fn omap_walk(
        &self,
        _: &StoredId,
        from: &[u8],
        each: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), ReadError> {
        let mut pairs = self.0.range(Name::copy_from(from)..);
        while pairs.next().is_some_and(|(key, value)| each(key, value)) {}
        Ok(())
    }
    fn object_walk(
        &self,
        from: (ShardId, &ObjectId),
        each: &mut dyn FnMut(ShardId, &ObjectId) -> bool,
    ) -> Result<(), ReadError> {
        NoStore.object_walk(from, each)
    }
    fn extents(&self, id: &StoredId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        NoStore.extents(id, offset, len)
    }
    fn statfs(&self) -> Statfs {
        NoStore.statfs()
    }
    fn pools(&self) -> Vec<(PoolId, PoolSpace)> {
        NoStore.pools()
    }
}

fn pairs(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in pairs {
        key[..].encode(&mut out);
        value[..].encode(&mut out);
    }
    out
}

/// The record of a placement group: its info, its log, its missing set.
pub fn record_seeds() -> Vec<Vec<u8>> {
    let object = ObjectId::head(PG.pool, "".into(), "".into(), "object".into());
    let version = |n| Version::new(Epoch(7), n);
    let info = PgInfo { last_update: version(4), pg_num: 8, ..PgInfo::default() };
    let mut all = vec![(b"info".to_vec(), to_vec(&info))];
    for n in 2..5 {
        let key = [&b"l"[..], &u64::to_be_bytes(n), &u32::to_be_bytes(7)].concat();
        all.push((key, to_vec(&log_entry(version(n)))));
    }
    let answers = Answers(vec![answer(version(1)), Answer { result: -2, ..answer(version(1)) }]);
    all.push(([&b"r"[..], &u64::to_be_bytes(1)].concat(), to_vec(&answers)));
    all.push(([&b"m"[..], &to_vec(&object)].concat(), to_vec(&Stale::everything(version(3)))));
    let state = ScrubState { last: version(4), deep_errors: 1, ..ScrubState::default() };
    all.push((b"scrub".to_vec(), to_vec(&state)));
    let bad = Finding::Object(BadObject { errors: 16, ..BadObject::default() });
    all.insert(0, (b"f\0object\0".to_vec(), to_vec(&(object, bad))));
    (2..=all.len()).map(|n| pairs(&all[..n])).collect()
}

pub fn record(input: &[u8]) {
    let omap = Omap::read(input);
    if let Ok(Some(state)) = scrub_state(&omap, PG) {
        assert_eq!(from_slice::<ScrubState>(&to_vec(&state)), Ok(state));
    }
    walk_findings(&omap, PG, &mut |_, finding| {
        assert_eq!(from_slice::<Finding>(&to_vec(&finding)), Ok(finding));
        true
    })
    .expect("the store is in memory");
    let Ok(Some(record)) = Record::load(&omap, PG) else { return };
    let mut txn = Transaction::new();
    record.store(PG, &mut txn);
    let back = Record::load(&Omap::written(&txn), PG).expect("it was just written").expect("it was written");
    let mut again = Transaction::new();
    back.store(PG, &mut again);
    assert!(again == txn, "what was written reads as something else");
}

pub fn object_info_seeds() -> Vec<Vec<u8>> {
    let watcher = Watcher { addr: EntityAddr::msgr2(([127, 0, 0, 1], 6800).into(), 9), timeout_secs: 30 };
    let info = ObjectInfo { version: Version::new(Epoch(7), 4), user_version: 3, ..ObjectInfo::default() };
    let watched = ObjectInfo { watchers: BTreeMap::from([((4100, 1), watcher)]).into(), ..info.clone() };
    let kept = CloneInfo {
        snaps: vec![SnapId(5), SnapId(4)],
        overlap: [0..10, 20..30].into_iter().collect(),
        size: 30,
    };
    let snap_set = SnapSet { seq: SnapId(6), clones: BTreeMap::from([(SnapId(5), kept)]) };
    let whiteout = ObjectInfo { whiteout: true, snap_set, ..info.clone() };
    let clone = ObjectInfo { snaps: vec![SnapId(5), SnapId(4)], ..info.clone() };
    let clean = ObjectInfo { clean: true, ..info.clone() };
    // Version 3 had no clean ranges, version 2 no snapshots, version 1 no watchers either.
    let of_snaps = 2 + to_vec(&SnapSet::default()).len() + to_vec(&clone.snaps).len() - 2 * 8;
    let older = |version: u8, less: usize| {
        let mut bytes = to_vec(&info);
        bytes.truncate(bytes.len() - less);
        bytes[0] = version;
        bytes[2] -= less as u8;
        bytes
    };
    let older = [older(3, 1), older(2, of_snaps), older(1, of_snaps + 4)];
    [info, watched, whiteout, clone, clean].iter().map(to_vec).chain(older).collect()
}
pub fn object_info(input: &[u8]) {
    stable::<ObjectInfo>(input);
}

/// The maps that an OSD keeps: a full one, and incrementals.
pub fn maps_seeds() -> Vec<Vec<u8>> {
    let fulls: Vec<(OsdMap, Vec<u8>)> =
        samples::osd_maps().into_iter().map(|(_, map)| (from_slice(&map).expect("a sample"), map)).collect();
    let changes: Vec<(Incremental, Vec<u8>)> = samples::incrementals()
        .into_iter()
        .map(|(_, inc)| (from_slice(&inc).expect("a sample"), inc))
        .collect();
    fulls
        .iter()
        .map(|(map, bytes)| {
            let mut value = to_vec(&map.epoch);
            value.extend(bytes);
            let mut all = vec![(b"full".to_vec(), value)];
            let theirs = changes.iter().filter(|(inc, _)| inc.fsid == map.fsid && inc.epoch > map.epoch);
            for (inc, bytes) in theirs {
                all.push(([&b"i"[..], &inc.epoch.0.to_be_bytes()].concat(), bytes.clone()));
            }
            pairs(&all)
        })
        .collect()
}

pub fn maps(input: &[u8]) {
    let mut view = Omap::read(input);
    for (key, value) in &mut view.0 {
        let mut bytes = value.to_vec();
        match key.as_bytes() {
            b"full" if bytes.len() > 4 => seal_map(&mut bytes[4..]),
            _ => seal_incremental(&mut bytes),
        }
        *value = bytes.into();
    }
    let Ok(maps) = Maps::load(&view) else { return };
    // An OSD without maps, and one that is a little behind.
    for from in [Epoch(0), maps.epoch().prev()] {
        let mut other = Maps::default();
        for message in maps.since(from) {
            let _ = other.take(&message, &mut Transaction::new());
        }
        assert!(other.epoch() == maps.epoch() || from != Epoch(0));
    }
}

/// The state of a new cluster.
fn state() -> &'static State {
    static STATE: OnceLock<State> = OnceLock::new();
    STATE.get_or_init(|| {
        let monmap: MonMap = from_slice(&samples::mon_maps()[0].1).expect("a sample");
        let mut state: Option<State> = None;
        for (_, bytes) in samples::osd_maps() {
            let genesis =
                Genesis { monmap: monmap.clone(), osdmap: bytes.into(), entities: entities(), format: 2 };
            let mut begun = State::begin(&genesis).expect("a sample");
            for batch in changes() {
                let _ = begun.apply(&batch);
            }
            // The map that most recorded incrementals apply to.
            if state
                .as_ref()
                .is_none_or(|best| best.osdmap.incrementals.len() < begun.osdmap.incrementals.len())
            {
                state = Some(begun);
            }
        }
        state.expect("there are recorded maps")
    })
}

fn key() -> Secret {
    Secret::generate(KeyType::Aes, Utime { sec: 3, nsec: 4 }, &mut Entropy::repeatable(5))
}
fn entities() -> BTreeMap<AuthName, Entity> {
    let caps = BTreeMap::from([("osd".to_string(), "allow *".to_string())]);
    BTreeMap::from([(AuthName::new(EntityType::Osd, "0"), Entity { key: key(), caps })])
}

fn changes() -> Vec<Batch> {
    let mut batches: Vec<Batch> = samples::incrementals()
        .into_iter()
        .map(|(_, bytes)| Batch {
            osdmap: OsdMapDelta { incremental: Some(bytes.into()), ..OsdMapDelta::default() },
            ..Batch::default()
        })
        .collect();
    batches.push(Batch {
        origin: (1, 2),
        stamp: Utime { sec: 3, nsec: 4 },
        pgs: vec![(PG, PgRecord { interval: Epoch(7), acting: vec![OsdId(1)] })],
        kv: vec![("key".into(), Some(Bytes::from_static(b"value"))), ("gone".into(), None)],
        osdmap: OsdMapDelta {
            incremental: None,
            metadata: vec![(OsdId(0), BTreeMap::from([("os".into(), "linux".into())]))],
            removal_numbers: vec![(PG.pool, SnapId(3)), (PG.pool, SnapId(u64::MAX))],
        },
        auth: AuthDelta {
            global_ids: 1000,
            entities: entities().into_iter().map(|(name, entity)| (name, Some(entity))).collect(),
            rotated: vec![(SERVICE_OSD, key())],
        },
        ..Batch::default()
    });
    batches
}

pub fn state_seeds() -> Vec<Vec<u8>> {
    vec![to_vec(state())]
}

pub fn checkpoint(input: &[u8]) {
    if let Some(mut state) = stable::<State>(input) {
        use_state(&mut state);
    }
}

fn use_state(state: &mut State) {
    for epoch in
        [state.osdmap.oldest(), state.osdmap.map.epoch.prev(), state.osdmap.map.epoch, Epoch(u32::MAX)]
    {
        state.osdmap.at(epoch);
    }
    state.config.effective(&ConfigEntity { kind: "osd".into(), id: "1".into(), ..ConfigEntity::default() });
    for batch in changes().into_iter().rev().take(2) {
        let _ = state.apply(&batch);
    }
}

pub fn collection_seeds() -> Vec<Vec<u8>> {
    let addr: EntityAddr = EntityAddr::msgr2(([10, 0, 0, 1], 3300).into(), 0);
    let held = CollectedPg { pg: SpgId::replicated(PG), interval: Epoch(7), counts: true, pg_num: 8 };
    let host = CollectedHost {
        name: "a".into(),
        uuid: [2; 16],
        addr,
        machine: "boot".into(),
        mons: vec![addr],
        monitors: [1, 4].into(),
        networks: [("public_network".to_string(), "10.0.0.0/24".to_string())].into(),
    };
    let osd = CollectedOsd { id: 0, uuid: [3; 16], map: Bytes::from_static(b"map"), pgs: vec![held, held] };
    let collection = Collection {
        made: Utime { sec: 1, nsec: 2 },
        version: "0.1.0".into(),
        fsid: [1; 16],
        format: 2,
        host,
        osds: vec![osd],
        entities: entities(),
        monitors_key: None,
    };
    vec![to_vec(&collection)]
}

pub fn collection(input: &[u8]) {
    if let Some(collection) = stable::<Collection>(input) {
        let _ = Recovery::of_osds(&[collection], Utime::ZERO);
    }
}

pub fn batch_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = changes().iter().map(to_vec).collect();
    let monmap: MonMap = from_slice(&samples::mon_maps()[0].1).expect("a sample");
    let osdmap = samples::osd_maps()[0].1.clone().into();
    let genesis = Genesis { monmap, osdmap, entities: entities(), format: 2 };
    seeds.push(to_vec(&Batch { genesis: Some(genesis), ..Batch::default() }));
    seeds
}

pub fn batch(input: &[u8]) {
    let Some(mut batch) = stable::<Batch>(input) else { return };
    if let Some(bytes) = &mut batch.osdmap.incremental {
        let mut sealed = bytes.to_vec();
        seal_incremental(&mut sealed);
        *bytes = sealed.into();
    }
    let mut state = match &batch.genesis {
        Some(genesis) => match State::begin(genesis) {
            Ok(state) => state,
            Err(_) => return,
        },
        None => state().clone(),
    };
    batch.genesis = None;
    if state.apply(&batch).is_ok() {
        use_state(&mut state);
        stable::<State>(&to_vec(&state)).expect("a checkpoint of ours is readable");
    }
}
