//! How many losses of its store an OSD has noted: `times` in the omap of `meta losses`.

use nacre_machine::StoreView;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_wire::to_vec;

const TIMES: &[u8] = b"times";

fn id() -> StoredId {
    StoredId::meta("losses")
}

/// Whether the store lost what it had acknowledged since that was last noted. A note that cannot be read is
/// none.
pub fn is_news(store: &dyn StoreView) -> bool {
    let times = store.lost().times;
    let noted = store.omap_get(&id(), TIMES).unwrap_or_default();
    times > 0 && noted.is_none_or(|noted| noted[..] != to_vec(&times))
}

pub fn note(store: &dyn StoreView, txn: &mut Transaction) {
    txn.push(id(), Change::Remove);
    txn.push(id(), Change::OmapSet([(TIMES.into(), to_vec(&store.lost().times).into())].into()));
}
