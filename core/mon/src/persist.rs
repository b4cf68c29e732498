//! Where the Raft log lives: one omap of the monitor's own.
//!
//! Keys: `hard`, `checkpoint`, and `entry/` with sixteen hex digits for each entry.

use bytes::Bytes;
use nacre_base::Name;
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_raft::{Persist, Saved};
use std::collections::BTreeMap;

const HARD: &str = "hard";
const CHECKPOINT: &str = "checkpoint";
const ENTRY: &str = "entry/";
/// After every entry's key.
const ENTRY_END: &str = "entry0";

fn place() -> StoredId {
    StoredId::meta("raft")
}

fn entry_key(index: u64) -> Name {
    format!("{ENTRY}{index:016x}").into()
}

pub fn load(store: &dyn StoreView) -> Result<Saved, ReadError> {
    let mut saved = Saved::default();
    store.omap_walk(&place(), b"", &mut |key, value| {
        let value = value.to_vec();
        match &*key.to_text() {
            HARD => saved.hard_state = Some(value),
            CHECKPOINT => saved.checkpoint = Some(value),
            key => {
                let index = key.strip_prefix(ENTRY).and_then(|hex| u64::from_str_radix(hex, 16).ok());
                saved.entries.extend(index.map(|index| (index, value)));
            }
        }
        true
    })?;
    Ok(saved)
}

/// What makes the monitor with this number, whose store it is, decide alone: no other is there any more.
/// None if it never was one of them, or its log is damaged.
pub fn alone(id: u64, store: &dyn StoreView) -> Result<Option<Transaction>, ReadError> {
    Ok(nacre_raft::alone(id, &load(store)?).as_ref().map(transaction))
}

pub fn transaction(persist: &Persist) -> Transaction {
    let mut txn = Transaction::new();
    let mut remove = |begin: Name, end: Name| txn.push(place(), Change::OmapRemoveRange { begin, end });
    if let Some(from) = persist.truncate_from {
        remove(entry_key(from), ENTRY_END.into());
    }
    if let Some(before) = persist.drop_before {
        remove(ENTRY.into(), entry_key(before));
    }
    let mut pairs: BTreeMap<Name, Bytes> = BTreeMap::new();
    pairs.extend(persist.hard_state.clone().map(|bytes| (HARD.into(), bytes.into())));
    pairs.extend(persist.checkpoint.clone().map(|bytes| (CHECKPOINT.into(), bytes.into())));
    pairs.extend(persist.entries.iter().map(|(index, bytes)| (entry_key(*index), bytes.clone().into())));
    if !pairs.is_empty() {
        txn.push(place(), Change::OmapSet(pairs));
    }
    txn
}
