//! What a store should be, as plain maps, and random transactions for both.

use crate::BLOCK;
use crate::index::pool_of;
use crate::testing::SimDisk;
use crate::{Disk, Fetched, ReadPlan, Store};
use bytes::Bytes;
use nacre_base::{Name, PgId, PoolId, Rng, ShardId, SpgId};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Object {
    data: Vec<u8>,
    attrs: BTreeMap<Name, Bytes>,
    header: Bytes,
    omap: BTreeMap<Name, Bytes>,
}

/// Cheap to copy, so that a test can keep one for every transaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    objects: BTreeMap<StoredId, Arc<Object>>,
}

impl Model {
    pub fn apply(&mut self, txn: &Transaction) {
        for (id, change) in &txn.changes {
            self.change(id, change);
        }
    }
    fn change(&mut self, id: &StoredId, change: &Change) {
        if *change == Change::Remove {
            self.objects.remove(id);
            return;
        }
        let from = change.source().and_then(|from| self.objects.get(from)).cloned().unwrap_or_default();
        let object = Arc::make_mut(self.objects.entry(id.clone()).or_default());
        match change {
            Change::Touch => {}
            Change::Write { offset, data } => write(&mut object.data, *offset, data),
            Change::Xor { offset, data } => {
                let (start, end) = (*offset as usize, *offset as usize + data.len());
                let size = object.data.len().max(if data.is_empty() { 0 } else { end });
                object.data.resize(size, 0);
                object.data[start.min(size)..end.min(size)].iter_mut().zip(data).for_each(|(to, b)| *to ^= b);
            }
            Change::Zero { offset, len } => write(&mut object.data, *offset, &vec![0; *len as usize]),
            Change::Truncate { size } => object.data.resize(*size as usize, 0),
            Change::Remove => unreachable!("it was dealt with above"),
            Change::SetAttrs(attrs) => object.attrs.extend(attrs.clone()),
            Change::RemoveAttr(name) => drop(object.attrs.remove(name)),
            Change::OmapSet(pairs) => object.omap.extend(pairs.clone()),
            Change::OmapRemove(keys) => object.omap.retain(|key, _| !keys.contains(key)),
            Change::OmapRemoveRange { begin, end } => object.omap.retain(|key, _| key < begin || key >= end),
            Change::OmapClear => {
                object.omap.clear();
                object.header.clear();
            }
            Change::OmapSetHeader(header) => object.header = header.clone(),
            Change::CloneFrom(_) => *object = (*from).clone(),
            Change::CloneBlocks { blocks, .. } => {
                let (start, end) = (blocks.start as usize * BLOCK, blocks.end as usize * BLOCK);
                let mut data = from.data.clone();
                data.resize(data.len().max(end), 0);
                write(&mut object.data, start as u64, &data[start..end]);
            }
        }
    }
    pub fn ids(&self) -> Vec<StoredId> {
        self.objects.keys().cloned().collect()
    }
    fn size(&self, id: &StoredId) -> u64 {
        self.objects.get(id).map_or(0, |object| object.data.len() as u64)
    }
    pub fn data(&self, id: &StoredId) -> Option<&[u8]> {
        self.objects.get(id).map(|object| &object.data[..])
    }

    /// Everything that the store shows is what this says, or an error for a block. Gives these blocks.
    pub fn assert_shown_but_for_errors(
        &self,
        store: &Store,
        disk: &SimDisk,
        what: &str,
    ) -> BTreeSet<(StoredId, u64)> {
        let mut damaged = BTreeSet::new();
        assert!(store.ids().map(Result::unwrap).eq(self.objects.keys().cloned()), "objects, {what}");
        for (id, object) in &self.objects {
            assert_eq!(store.stat(id).unwrap().map(|stat| stat.size), Some(self.size(id)), "{id}, {what}");
            assert_eq!(store.attrs(id).unwrap(), object.attrs, "attrs of {id}, {what}");
            for (at, block) in (0..).zip(object.data.chunks(4096)) {
                match store.plan_read(id, &[(at * 4096, 4096)]).unwrap().run(disk) {
                    Ok(read) => assert!(read == [block], "block {at} of {id}, {what}"),
                    Err(ReadError::Checksum { .. }) => drop(damaged.insert((id.clone(), at))),
                    Err(error) => panic!("{error}, {what}"),
                }
            }
        }
        damaged
    }

    /// Everything that the store shows is what this says.
    pub fn assert_shown_by(&self, store: &Store, disk: &SimDisk, what: &str) {
        let mut objects = Vec::new();
        store
            .object_walk((ShardId::NONE, &ObjectId::min()), &mut |shard, id| {
                objects.push(StoredId::object(shard, id.clone()));
                true
            })
            .unwrap();
        let expected: Vec<StoredId> =
            self.objects.keys().filter(|id| id.as_object().is_some()).cloned().collect();
        assert_eq!(objects, expected, "objects, {what}");
        let mut stored = 0;
        for id in ids() {
            let Some(object) = self.objects.get(&id) else {
                assert_eq!(store.stat(&id), Ok(None), "{id}, {what}");
                assert_eq!(
                    store.plan_read(&id, &[(0, 1)]).map(drop),
                    Err(ReadError::NotFound(id.clone())),
                    "{what}"
                );
                continue;
            };
            assert_eq!(store.stat(&id).unwrap().map(|stat| stat.size), Some(self.size(&id)), "{id}, {what}");
            let data = store.plan_read(&id, &[(0, u64::MAX)]).unwrap().run(disk).unwrap();
            assert!(data == [&object.data[..]], "data of {id}, {what}");
            let (mut pos, mut in_extents) = (0, 0);
            for (offset, len) in store.extents(&id, 0, u64::MAX).unwrap() {
                assert!(object.data[pos..offset as usize].iter().all(|b| *b == 0), "hole in {id}, {what}");
                pos = (offset + len) as usize;
                in_extents += len;
            }
            assert!(object.data[pos..].iter().all(|b| *b == 0), "last hole in {id}, {what}");
            stored += in_extents;
            assert_eq!(store.attrs(&id).unwrap(), object.attrs, "attrs of {id}, {what}");
            assert_eq!(store.omap_header(&id).unwrap(), object.header, "header of {id}, {what}");
            let mut omap = Vec::new();
            store
                .omap_walk(&id, b"", &mut |key, value| {
                    omap.push((key.clone(), value.clone()));
                    true
                })
                .unwrap();
            assert!(omap.iter().map(|(k, v)| (k, v)).eq(&object.omap), "omap of {id}, {what}");
        }
        assert_eq!(store.statfs().stored, stored, "bytes stored, {what}");
    }
}

fn write(data: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = offset as usize + bytes.len();
    data.resize(data.len().max(end), 0);
    data[offset as usize..end].copy_from_slice(bytes);
}

pub(super) fn ids() -> Vec<StoredId> {
    let object = |pool, name: &str| {
        StoredId::Object(ObjectId::head(PoolId(pool), Name::default(), Name::default(), name.into()))
    };
    let mut ids =
        vec![StoredId::meta("super"), StoredId::Pg(SpgId::replicated(PgId { pool: PoolId(1), seed: 2 }))];
    ids.extend(["a", "b", "c", "d", "e"].map(|name| object(1, name)));
    ids.push(object(2, "a"));
    let shard = |shard| {
        let name = ObjectId::head(PoolId(3), Name::default(), Name::default(), "a".into());
        StoredId::object(ShardId(shard), name)
    };
    ids.extend([0, 3].map(shard));
    ids.sort();
    ids
}

/// A read that was planned earlier, and what it has to give whenever it is run.
pub(super) struct HeldRead {
    plan: ReadPlan,
    expected: Vec<u8>,
}

impl HeldRead {
    pub fn run(&self, disk: &SimDisk) -> Fetched {
        let (read, fetched) = self.plan.run_fetching(|reads| disk.read_many(reads)).unwrap();
        assert!(read == [&self.expected[..]], "a read that waited gave wrong bytes");
        fetched
    }
}

/// Where random transactions come from. Sizes are of the order of a few blocks.
pub(super) struct Source {
    pub rng: Rng,
    pub size_max: u64,
}

impl Source {
    pub fn transaction(&mut self, model: &Model) -> Transaction {
        let mut txn = Transaction::new();
        for _ in 0..=self.rng.below(4) {
            let id = self.id();
            let change = self.change(model, &id);
            txn.push(id, change);
        }
        txn
    }
    pub fn held_read(&mut self, store: &Store, model: &Model) -> Option<HeldRead> {
        let id = self.id();
        let data = model.data(&id)?;
        let (offset, len) = (self.place(), self.place());
        let end = data.len().min((offset + len) as usize);
        let expected = data[end.min(offset as usize)..end].to_vec();
        Some(HeldRead { plan: store.plan_read(&id, &[(offset, len)]).unwrap(), expected })
    }

    fn id(&mut self) -> StoredId {
        self.rng.pick(&ids()).expect("there are some").clone()
    }
    /// What may share blocks with it, which pools never do.
    fn relative(&mut self, id: &StoredId) -> StoredId {
        let mut ids = ids();
        ids.retain(|other| pool_of(other) == pool_of(id));
        self.rng.pick(&ids).expect("itself").clone()
    }
    /// On a block boundary half of the time.
    fn place(&mut self) -> u64 {
        let at = self.rng.below(self.size_max);
        if self.rng.chance(500) { at / 4096 * 4096 } else { at }
    }
    fn bytes(&mut self, len: u64) -> Bytes {
        let first = self.rng.next_u64() | 1;
        (0..len).map(|i| (first.wrapping_mul(i + 1) >> 29) as u8).collect()
    }
    fn key(&mut self) -> Name {
        Name::from(format!("key{}", self.rng.below(12)))
    }
    fn pairs(&mut self, value_len_max: u64) -> BTreeMap<Name, Bytes> {
        (0..1 + self.rng.below(3))
            .map(|_| {
                let len = self.rng.below(value_len_max);
                (self.key(), self.bytes(len))
            })
            .collect()
    }
    fn change(&mut self, model: &Model, id: &StoredId) -> Change {
        match self.rng.below(24) {
            0 => Change::Touch,
            1..=6 => {
                let offset = self.place();
                let len = if self.rng.chance(500) { self.rng.below(300) } else { self.place() };
                let data = self.bytes(len);
                if self.rng.chance(300) {
                    Change::Xor { offset, data }
                } else {
                    Change::Write { offset, data }
                }
            }
            // Appends, as logs do.
            7 | 8 => {
                let len = self.rng.below(5000);
                let offset = model.size(id).min(self.size_max);
                Change::Write { offset, data: self.bytes(len) }
            }
            9 => Change::Zero { offset: self.place(), len: self.place() },
            10 | 11 => Change::Truncate { size: self.place() },
            12 | 13 => Change::Remove,
            14 => Change::SetAttrs(self.pairs(200)),
            15 => Change::RemoveAttr(self.key()),
            16 => Change::OmapSet(self.pairs(1500)),
            17 => Change::OmapRemove(BTreeSet::from([self.key(), self.key()])),
            18 => Change::OmapRemoveRange { begin: self.key(), end: self.key() },
            19 if self.rng.chance(300) => Change::OmapClear,
            19 => Change::OmapSetHeader(self.bytes(20)),
            20 | 21 => Change::CloneFrom(self.relative(id)),
            _ => {
                let (one, other) = (self.place() as usize / BLOCK, self.place() as usize / BLOCK);
                Change::CloneBlocks {
                    from: self.relative(id),
                    blocks: one.min(other) as u32..one.max(other) as u32,
                }
            }
        }
    }
}
