//! An export of a store, as given to `nacre store import`.

use super::disk::{Image, settle};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_store::{BLOCK, EXPORT_HEADER, Import, Options, RECORD_HEADER, Store, export};
use nacre_wire::crc32c;

const BLOCKS: usize = 160;

pub fn seeds() -> Vec<Vec<u8>> {
    let (mut store, disk) = blank();
    let mut txn = Transaction::new();
    let pairs = || [("key".into(), vec![5; 40].into())].into();
    txn.push(StoredId::meta("a"), Change::Write { offset: 3000, data: vec![1; 3000].into() });
    txn.push(StoredId::meta("a"), Change::SetAttrs(pairs()));
    txn.push(StoredId::meta("b"), Change::OmapSet(pairs()));
    txn.push(StoredId::meta("b"), Change::OmapSetHeader("header".into()));
    store.submit(txn).expect("it is small");
    settle(&mut store, &disk);
    disk.spoil(&[1; BLOCK / 4]);
    let mut stream = Vec::new();
    let sink = |bytes: &[u8]| {
        stream.extend_from_slice(bytes);
        Ok::<_, std::convert::Infallible>(())
    };
    let Ok((_, damage)) = export(&store, &disk, |_| true, sink);
    assert_eq!(damage.len(), 1, "a sample has bad blocks");
    vec![stream]
}

/// Every complete record is accepted whatever its checksum.
pub fn run(input: &[u8]) {
    let Some((header, mut rest)) = input.split_first_chunk::<EXPORT_HEADER>() else { return };
    let Ok(mut import) = Import::begin(header) else { return };
    let (mut store, disk) = blank();
    while let Some((header, after)) = rest.split_first_chunk::<RECORD_HEADER>() {
        let Ok(len) = import.record_len(header) else { return };
        let Some(payload) = after.get(..len as usize) else { break };
        let mut header = *header;
        header[4..].copy_from_slice(&crc32c(u32::MAX, payload).to_le_bytes());
        if import.record(&header, payload, &mut store, &disk).is_err() {
            return;
        }
        rest = &after[len as usize..];
    }
    let _ = import.finish(&mut store, &disk);
    assert_eq!(store.check(), [""; 0]);
}

fn blank() -> (Store, Image) {
    let disk = Image::blank(BLOCKS * BLOCK);
    Store::format(&disk, Options { uuid: [7; 16], log_len: Some(16 * BLOCK as u64), ..Options::default() })
        .expect("the device is large enough");
    let (store, _) = Store::open(&disk).expect("it was just formatted");
    (store, disk)
}
