//! An export of a store, as somebody may hand it to `nacre store import`.

use super::disk::{Image, settle};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_store::{BLOCK, EXPORT_HEADER, Import, Options, RECORD_HEADER, Store, export};
use nacre_wire::crc32c;

const BLOCKS: usize = 160;

pub fn seeds() -> Vec<Vec<u8>> {
    let disk = Image::blank(BLOCKS * BLOCK);
    Store::format(&disk, Options { uuid: [7; 16], log_len: Some(16 * BLOCK as u64), ..Options::default() })
        .expect("the device is large enough");
    let (mut store, _) = Store::open(&disk).expect("it was just formatted");
    let mut txn = Transaction::new();
    let pairs = || [("key".into(), vec![5; 40].into())].into();
    txn.push(StoredId::meta("a"), Change::Write { offset: 3000, data: vec![1; 3000].into() });
    txn.push(StoredId::meta("a"), Change::SetAttrs(pairs()));
    txn.push(StoredId::meta("b"), Change::OmapSet(pairs()));
    txn.push(StoredId::meta("b"), Change::OmapSetHeader("header".into()));
    store.submit(txn).expect("it is small");
    settle(&mut store, &disk);
    let mut stream = Vec::new();
    let sink = |bytes: &[u8]| {
        stream.extend_from_slice(bytes);
        Ok::<_, std::convert::Infallible>(())
    };
    let Ok(_) = export(&store, &disk, |_| true, sink);
    vec![stream]
}

/// Every record that is all there is taken, whatever its checksum says.
pub fn run(input: &[u8]) {
    let Some((header, mut rest)) = input.split_first_chunk::<EXPORT_HEADER>() else { return };
    if Import::check_header(header).is_err() {
        return;
    }
    let mut import = Import::default();
    while let Some((header, after)) = rest.split_first_chunk::<RECORD_HEADER>() {
        let Ok(len) = import.record_len(header) else { return };
        let Some(payload) = after.get(..len as usize) else { break };
        let mut header = *header;
        header[4..].copy_from_slice(&crc32c(u32::MAX, payload).to_le_bytes());
        if import.record(&header, payload).is_err() {
            return;
        }
        rest = &after[len as usize..];
    }
    let _ = import.finish();
}
