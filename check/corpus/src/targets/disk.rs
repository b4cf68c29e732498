//! A device with something like a store on it: opening it fails cleanly, or the opened store works.
//!
//! An input is a list of pieces: block number (u16), length (u16), and that many bytes for the start of the
//! block.

use bytes::Bytes;
use nacre_base::ShardId;
use nacre_machine::StoreView;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_store::testing::seal_pages;
use nacre_store::{BLOCK, Disk, DiskError, Options, Store};
use nacre_wire::{Decode, DecodeError, Encode, Reader, crc32c};
use std::sync::{Arc, Mutex, MutexGuard};

const BLOCKS: usize = 160;
const SUPERBLOCK: &[u8] = b"NacreSto";
const RECORD: &[u8] = b"NacreLog";
const CHUNK: &[u8] = b"NacreCkp";

pub(super) struct Image(Mutex<Vec<u8>>);

impl Image {
    /// `len` is in bytes, a multiple of the block size.
    pub(super) fn blank(len: usize) -> Image {
        Image(Mutex::new(vec![0; len]))
    }
    /// Replaces each occurrence of these bytes.
    pub(super) fn spoil(&self, bytes: &[u8]) {
        let mut all = self.bytes();
        for at in 0..all.len() - bytes.len() {
            if all[at..].starts_with(bytes) {
                all[at] ^= 2;
            }
        }
    }
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("nobody panics with it")
    }
    fn range(&self, op: &'static str, offset: u64, len: usize) -> Result<std::ops::Range<usize>, DiskError> {
        let end = offset.checked_add(len as u64).filter(|&end| end <= self.len());
        let why = || DiskError { op, offset, len: len as u64, why: "past the end".into() };
        end.map(|end| offset as usize..end as usize).ok_or_else(why)
    }
}

impl Disk for Image {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let range = self.range("read", offset, into.len())?;
        into.copy_from_slice(&self.bytes()[range]);
        Ok(())
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let range = self.range("write", offset, bytes.len())?;
        self.bytes()[range].copy_from_slice(bytes);
        Ok(())
    }
    fn flush(&self) -> Result<(), DiskError> {
        Ok(())
    }
    fn len(&self) -> u64 {
        self.bytes().len() as u64
    }
}

pub(super) fn settle(store: &mut Store, disk: &Image) {
    // Reads and writes never fail: `Image` is as long as it says.
    store.settle(disk).expect("it is within the device");
}

pub fn seeds() -> Vec<Vec<u8>> {
    let disk = Image::blank(BLOCKS * BLOCK);
    Store::format(&disk, Options { uuid: [7; 16], log_len: Some(16 * BLOCK as u64), ..Options::default() })
        .expect("the device is large enough");
    let mut seeds = vec![pieces(&disk)];
    let (mut store, _) = Store::open(&disk).expect("it was just formatted");
    for i in 0..6_u8 {
        let id = StoredId::meta(["a", "b", "c"][usize::from(i) % 3]);
        let pairs = || [("key".into(), Bytes::from(vec![5; 40]))].into();
        let mut txn = Transaction::new();
        let data = Bytes::from(vec![i + 1; 300]);
        txn.push(id.clone(), Change::Write { offset: u64::from(i) * 3000, data });
        txn.push(id.clone(), Change::OmapSet(pairs()));
        txn.push(id.clone(), Change::SetAttrs(pairs()));
        txn.push(StoredId::meta("d"), Change::CloneFrom(id.clone()));
        txn.push(id.clone(), Change::Zero { offset: 10, len: 5000 });
        txn.push(id, Change::Xor { offset: u64::from(i) * 2000, data: Bytes::from(vec![i + 1; 100]) });
        store.submit(txn).expect("it is small");
        if i == 2 || i == 5 {
            store.request_checkpoint();
        }
        settle(&mut store, &disk);
        seeds.push(pieces(&disk));
    }
    // An omap with several parts, and a clone that shares all but one of them.
    let pairs = (0..66).map(|n| (format!("{n:03}").into(), Bytes::from(vec![n; 1000])));
    let (long, copy) = (StoredId::meta("long"), StoredId::meta("copy"));
    for changes in [
        vec![(long.clone(), Change::OmapSet(pairs.collect()))],
        vec![(copy.clone(), Change::CloneFrom(long)), (copy, Change::OmapRemove(["050".into()].into()))],
    ] {
        store.submit(Transaction { changes, is_read_here: false }).expect("there is space");
        store.request_checkpoint();
        settle(&mut store, &disk);
    }
    seeds.push(pieces(&disk));
    seeds
}

fn pieces(disk: &Image) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, block) in disk.bytes().chunks(BLOCK).enumerate() {
        let used = block.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        // The second superblock is derived from the first, and checksums are corrected anyway.
        let used = if block.starts_with(SUPERBLOCK) { used.min(128) } else { used };
        if used > 0 && at != 16 {
            (at as u16, used as u16).encode(&mut out);
            out.extend_from_slice(&block[..used]);
        }
    }
    out
}

pub fn run(input: &[u8]) {
    let disk = Image::blank(BLOCKS * BLOCK);
    let r = &mut Reader::new(input);
    while let Ok((at, bytes)) = piece(r) {
        let start = usize::from(at) % BLOCKS * BLOCK;
        let len = bytes.len().min(BLOCK);
        disk.bytes()[start..start + len].copy_from_slice(&bytes[..len]);
    }
    seal(&mut disk.bytes());
    // If this fails, opening the store reports why.
    let _ = seal_pages(&disk);
    use_paged(&disk);
    let Ok((mut store, _)) = Store::open(&disk) else { return };
    assert_eq!(store.check(), [""; 0], "after opening");
    look(&store, &disk);
    if change(&mut store, &disk) {
        assert_eq!(store.check(), [""; 0], "after writing");
        let (store, _) = Store::open(&disk).expect("what we wrote opens");
        assert_eq!(store.check(), [""; 0], "after opening again");
    }
}

/// Opens the store as a daemon does: damage of an object shows when the object is read.
fn use_paged(disk: &Image) {
    let copy = Arc::new(Image(Mutex::new(disk.bytes().clone())));
    let Ok((mut store, _)) = Store::open_paged(copy.clone()) else { return };
    look(&store, &copy);
    change(&mut store, &copy);
    look(&store, &copy);
}

fn look(store: &Store, disk: &Image) {
    let mut objects = Vec::new();
    let _ = store.object_walk((ShardId::NONE, &ObjectId::min()), &mut |shard, id| {
        objects.push(StoredId::object(shard, id.clone()));
        objects.len() < 8
    });
    objects.extend(["a", "b", "c", "d", "long", "copy"].map(StoredId::meta));
    for id in &objects {
        // Not all of it: an object may have any size, most of it holes.
        if let Ok(plan) = store.plan_read(id, &[(0, 20_000)]) {
            let _ = plan.run(disk);
        }
        let _ = store.omap_walk(id, b"", &mut |_, _| true);
        let _ = store.omap_get(id, b"050");
        let _ = store.attrs(id);
        let _ = store.extents(id, 0, u64::MAX);
        let _ = store.extents(id, 1 << 45, u64::MAX);
    }
    let _ = (store.statfs(), store.memory());
}

/// Whether there was space for it.
fn change(store: &mut Store, disk: &Image) -> bool {
    let mut txn = Transaction::new();
    txn.push(StoredId::meta("new"), Change::Write { offset: 77, data: Bytes::from(vec![1; 5000]) });
    txn.push(StoredId::meta("a"), Change::Write { offset: 100, data: Bytes::from_static(b"patch") });
    txn.push(StoredId::meta("b"), Change::CloneFrom(StoredId::meta("a")));
    txn.push(StoredId::meta("b"), Change::CloneBlocks { from: StoredId::meta("c"), blocks: 1..3 });
    let pairs = [("051".into(), Bytes::from_static(b"value")), ("2".into(), Bytes::from(vec![1; 900]))];
    txn.push(StoredId::meta("long"), Change::OmapSet(pairs.into()));
    let (begin, end) = ("004".into(), "060".into());
    txn.push(StoredId::meta("copy"), Change::OmapRemoveRange { begin, end });
    txn.push(StoredId::meta("long"), Change::OmapRemove(["049".into(), "000".into()].into()));
    let taken = store.submit(txn).is_ok();
    if taken {
        store.request_checkpoint();
        settle(store, disk);
    }
    taken
}

fn piece<'a>(r: &mut Reader<'a>) -> Result<(u16, &'a [u8]), DecodeError> {
    let at = u16::decode(r)?;
    let len = u16::decode(r)?;
    Ok((at, r.take(len.into())?))
}

/// Corrects all checksums, and makes both superblocks equal.
fn seal(image: &mut [u8]) {
    for start in (0..image.len()).step_by(BLOCK) {
        let bytes = &mut image[start..];
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes.starts_with(SUPERBLOCK) {
            // Generation, transaction and position only grow, and values above 2^63 are rejected. No store
            // gets there, but one that starts just below would write what it rejects.
            for high in [64, 72, 80, 88] {
                if bytes[high] < 0x80 {
                    bytes[high] &= 0x3f;
                }
            }
            let crc = crc32c(u32::MAX, &bytes[..BLOCK - 4]);
            bytes[BLOCK - 4..BLOCK].copy_from_slice(&crc.to_le_bytes());
        } else if bytes.starts_with(RECORD) {
            // The table of contents has their locations and checksums.
            let [body, placed, contents] = [48, 52, 56].map(|at| u32_at(at) as usize);
            let list = 72 + body + placed.saturating_mul(8);
            let head = list.saturating_add(contents.saturating_mul(10));
            if head > bytes.len() {
                continue;
            }
            let mut from = head;
            for entry in (list..head).step_by(10) {
                let to = from + usize::from(u16::from_le_bytes([bytes[entry + 4], bytes[entry + 5]]));
                let Some(content) = bytes.get(from..to) else { break };
                let crc = crc32c(u32::MAX, content).to_le_bytes();
                bytes[entry + 6..entry + 10].copy_from_slice(&crc);
                from = to;
            }
            seal_piece(bytes, 68, head);
        } else if bytes.starts_with(CHUNK) {
            let len = 64 + u32_at(44) as usize;
            if len <= bytes.len() {
                seal_piece(bytes, 60, len);
            }
        }
    }
    let (first, second) = image.split_at_mut(16 * BLOCK);
    second[..BLOCK].copy_from_slice(&first[..BLOCK]);
}

/// The checksum of a header or a chunk covers everything but itself.
fn seal_piece(bytes: &mut [u8], crc_at: usize, len: usize) {
    let crc = crc32c(crc32c(u32::MAX, &bytes[..crc_at]), &bytes[crc_at + 4..len]);
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
}
