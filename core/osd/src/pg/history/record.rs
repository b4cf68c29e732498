//! What a placement group keeps on its OSD's disk beside its objects, as keys in the omap of
//! `StoredId::Pg`:
//!
//!   `info`                            `PgInfo`
//!   `l` counter:u64 epoch:u32         `LogEntry`, numbers big-endian so that keys sort by counter
//!   `r` number:u64                    a page of dup entries (`Answers`) of requests that the log has no more
//!   `m` object id                     what of that object is missing here (`Stale`)
//!   `scrub`                           `ScrubState`
//!   `f` about:u8 name 0 object id     object id, `Finding`: of its copies (0), of its clones (1)
//!   `d` object id                     what entries that the log has no more did to it (`Dirty`)
//!   `untrusted`                       what is here of objects proves nothing, whatever version it names: what was
//!                                     missing of them is not known any more

use super::dups::{DupLog, Page};
use super::log::Log;
use super::missing::Missing;
use bytes::Bytes;
use nacre_base::{Name, PgId, SpgId, Version};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::answer::Answers;
use nacre_proto::messages::part::{Dirty, Stale};
use nacre_proto::messages::peer::{LogEntry, PgInfo};
use nacre_proto::messages::scrub::{Finding, ScrubState};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_wire::{Decode, DecodeError, Encode, from_slice, to_vec};
use std::collections::{BTreeMap, BTreeSet};

const INFO: &[u8] = b"info";
pub const SCRUB_STATE: &[u8] = b"scrub";
const UNTRUSTED: &[u8] = b"untrusted";

fn log_key(version: Version) -> Name {
    let mut key = [b'l'; 13];
    key[1..9].copy_from_slice(&version.version.to_be_bytes());
    key[9..].copy_from_slice(&version.epoch.0.to_be_bytes());
    Name::copy_from(&key)
}

fn dup_page_key(number: u64) -> Name {
    let mut key = vec![b'r'];
    key.extend(number.to_be_bytes());
    Name::new(key)
}

fn missing_key(object: &ObjectId) -> Name {
    let mut key = vec![b'm'];
    key.extend(to_vec(object));
    Name::new(key)
}

fn finding_key(object: &ObjectId, about_clones: bool) -> Name {
    // In the order of names, as Ceph lists them.
    let mut key = vec![b'f', about_clones.into()];
    key.extend(object.name.as_bytes());
    key.push(0);
    key.extend(to_vec(object));
    Name::new(key)
}
/// Where findings start, and what their keys start with.
pub const FINDINGS: &[u8] = b"f";

/// Where a walk over all that is dirty starts, and what is after it.
pub const DIRTY: (&[u8], &[u8]) = (b"d", b"e");

pub fn dirty_key(object: &ObjectId) -> Name {
    let mut key = DIRTY.0.to_vec();
    key.extend(to_vec(object));
    Name::new(key)
}

/// Changes to the record of one placement group, collected for one transaction.
#[derive(Debug)]
pub struct RecordChanges {
    pg: PgId,
    set: BTreeMap<Name, Bytes>,
    remove: BTreeSet<Name>,
    /// All that is dirty goes, before anything is set.
    no_dirty: bool,
}

impl RecordChanges {
    pub fn new(pg: PgId) -> RecordChanges {
        RecordChanges { pg, set: BTreeMap::new(), remove: BTreeSet::new(), no_dirty: false }
    }
    fn put(&mut self, key: Name, value: impl Into<Bytes>) {
        self.remove.remove(&key);
        self.set.insert(key, value.into());
    }
    fn take(&mut self, key: Name) {
        self.set.remove(&key);
        self.remove.insert(key);
    }
    pub fn info(&mut self, info: &PgInfo) {
        let mut encoded = Vec::with_capacity(PgInfo::ENCODED_LEN);
        info.encode(&mut encoded);
        self.put(Name::copy_from(INFO), encoded);
    }
    pub fn entry(&mut self, entry: &LogEntry) {
        self.put(log_key(entry.version), to_vec(entry));
    }
    /// If the encoding is there already.
    pub fn encoded_entry(&mut self, version: Version, encoded: Bytes) {
        self.put(log_key(version), encoded);
    }
    pub fn no_entry(&mut self, version: Version) {
        self.take(log_key(version));
    }
    pub fn dup_page(&mut self, page: &Page) {
        self.put(dup_page_key(page.number), page.encoded.clone());
    }
    pub fn no_dup_page(&mut self, page: u64) {
        self.take(dup_page_key(page));
    }
    pub fn missing(&mut self, object: &ObjectId, stale: Option<&Stale>) {
        match stale {
            Some(stale) => self.put(missing_key(object), to_vec(stale)),
            None => self.take(missing_key(object)),
        }
    }
    pub fn scrub_state(&mut self, state: &ScrubState) {
        self.put(Name::new(SCRUB_STATE), to_vec(state));
    }
    pub fn finding(&mut self, object: &ObjectId, about_clones: bool, finding: Option<&Finding>) {
        match finding {
            Some(finding) => self.put(finding_key(object, about_clones), to_vec(&(object, finding))),
            None => self.take(finding_key(object, about_clones)),
        }
    }
    pub fn dirty(&mut self, object: &ObjectId, dirty: &Dirty) {
        self.put(dirty_key(object), to_vec(dirty));
    }
    pub fn untrusted(&mut self) {
        self.put(Name::new(UNTRUSTED), Bytes::new());
    }
    pub fn trusted(&mut self) {
        self.take(Name::new(UNTRUSTED));
    }
    pub fn no_dirty(&mut self) {
        self.set.retain(|key, _| !key.as_bytes().starts_with(DIRTY.0));
        self.no_dirty = true;
    }
    pub fn into_txn(self, txn: &mut Transaction) {
        let id = || StoredId::Pg(SpgId::replicated(self.pg));
        if self.no_dirty {
            let (begin, end) = (Name::new(DIRTY.0), Name::new(DIRTY.1));
            txn.push(id(), Change::OmapRemoveRange { begin, end });
        }
        if !self.remove.is_empty() {
            txn.push(id(), Change::OmapRemove(self.remove));
        }
        if !self.set.is_empty() {
            txn.push(id(), Change::OmapSet(self.set));
        }
    }
}

/// The `pg_num` of a pool; if it shrank meanwhile, or is gone, as many as it must have had for this placement
/// group to exist.
pub fn least_pg_num(map: &OsdMap, pg: PgId) -> u32 {
    map.pools.get(&pg.pool).map_or(0, |pool| pool.pg_num).max(pg.seed + 1)
}

/// The summary in a record alone. None if there is no such placement group here.
pub fn info_of(store: &dyn StoreView, pg: SpgId) -> Result<Option<PgInfo>, ReadError> {
    let damaged = |error: DecodeError| ReadError::Device(format!("the record of pg {pg}: {error}"));
    let info = store.omap_get(&StoredId::Pg(pg), INFO)?;
    info.map(|bytes| from_slice(&bytes).map_err(damaged)).transpose()
}

/// All of a record.
pub struct Record {
    pub info: PgInfo,
    pub log: Log,
    pub dups: DupLog,
    pub missing: Missing,
    pub is_untrusted: bool,
}

impl Record {
    pub fn new(info: PgInfo) -> Record {
        Record {
            info,
            log: Log::default(),
            dups: DupLog::default(),
            missing: Missing::default(),
            is_untrusted: false,
        }
    }
    /// Of a placement group of which only objects are here, or some of them: nothing counts before it was
    /// compared with another holder's.
    pub fn of_remains(pg_num: u32) -> Record {
        let info = PgInfo { incomplete: true, pg_num, ..PgInfo::default() };
        Record { is_untrusted: true, ..Record::new(info) }
    }

    /// None if there is no such placement group here.
    pub fn load(store: &dyn StoreView, pg: PgId) -> Result<Option<Record>, ReadError> {
        let id = StoredId::Pg(SpgId::replicated(pg));
        let Some(info) = store.omap_get(&id, INFO)? else { return Ok(None) };
        let mut entries = Vec::new();
        let mut pages = Vec::new();
        let mut missing = Vec::new();
        let mut bad = None;
        store.omap_walk(&id, b"l", &mut |key, value| {
            let read = match key.as_bytes() {
                [b'l', ..] => from_slice::<LogEntry>(value).and_then(|entry| {
                    // Else two entries could have one version.
                    if log_key(entry.version) != *key {
                        let value = entry.version.version;
                        return Err(DecodeError::BadValue { what: "version under another's key", value });
                    }
                    entries.push(entry);
                    Ok(())
                }),
                [b'r', number @ ..] => from_slice::<Answers>(value).and_then(|answers| {
                    let number: [u8; 8] =
                        number.try_into().map_err(|_| DecodeError::Leftover { left: number.len() })?;
                    pages.push((u64::from_be_bytes(number), answers));
                    Ok(())
                }),
                [b'm', object @ ..] => from_slice::<ObjectId>(object).and_then(|object| {
                    missing.push((object, from_slice::<Stale>(value)?));
                    Ok(())
                }),
                _ => Ok(()),
            };
            bad = read.err();
            bad.is_none()
        })?;
        let broken = |e: DecodeError| ReadError::Device(format!("{pg}: its record does not decode: {e}"));
        if let Some(error) = bad {
            return Err(broken(error));
        }
        entries.sort_by_key(|entry: &LogEntry| entry.version);
        Ok(Some(Record {
            info: PgInfo::decode(&mut nacre_wire::Reader::new(&info)).map_err(broken)?,
            log: Log::from_entries(&entries),
            dups: DupLog::from_pages(pages),
            missing: missing.into_iter().collect(),
            is_untrusted: store.omap_get(&id, UNTRUSTED)?.is_some(),
        }))
    }

    /// Writes all of the history of a placement group that is new here.
    pub fn store(&self, pg: PgId, txn: &mut Transaction) {
        let mut changes = RecordChanges::new(pg);
        changes.info(&self.info);
        self.log.iter().for_each(|entry| changes.entry(&entry));
        self.dups.pages().for_each(|page| changes.dup_page(page));
        self.missing.iter().for_each(|(object, stale)| changes.missing(object, Some(stale)));
        if self.is_untrusted {
            changes.untrusted();
        }
        changes.into_txn(txn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::MemStore;
    use nacre_base::{Epoch, PoolId, Utime};
    use nacre_proto::messages::peer::EntryKind;
    use nacre_proto::types::ReqId;

    /// Found by fuzzing: two entries with one version ended the process without a word.
    #[test]
    fn a_log_entry_under_anothers_key_is_refused() {
        let pg = PgId { pool: PoolId(1), seed: 0 };
        let entry = LogEntry {
            version: Version::new(Epoch(2), 3),
            prior: Version::ZERO,
            kind: EntryKind::Modify,
            object: ObjectId::min(),
            others: Vec::new(),
            reqid: ReqId::default(),
            user_version: 1,
            mtime: Utime::ZERO,
            acts: Vec::new(),
            result: 0,
            outputs: Vec::new(),
        };
        let mut changes = RecordChanges::new(pg);
        changes.info(&PgInfo::default());
        changes.entry(&entry);
        let mut store = MemStore::default();
        let mut put = |changes: RecordChanges| {
            let mut txn = Transaction::new();
            changes.into_txn(&mut txn);
            store.apply(&txn);
            Record::load(&store, pg)
        };
        assert!(put(changes).is_ok());
        let mut changes = RecordChanges::new(pg);
        changes.put(log_key(Version::new(Epoch(2), 4)), to_vec(&entry));
        let why = put(changes).err().map(|why| why.to_string());
        assert!(why.is_some_and(|why| why.contains("another's key")));
    }
}
