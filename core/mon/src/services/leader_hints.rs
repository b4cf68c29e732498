//! What a leader knows of the past and the next one needs, kept with the maps.
//!
//! Times are ages, in seconds before the hints were written, so monitors' clocks need not agree. They are
//! written when something is added or dropped, and every half minute while there is anything. The next leader
//! takes ages for a little shorter than they are.

use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::services::osdmap::OsdMonitor;
use crate::services::pg::stats::PgStats;
use crate::state::{Applying, Genesis, Rejected, Slice};
use nacre_base::{OsdId, Time, Utime};
use nacre_proto::types::Network;
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned_fields};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the ages in the hints are brought up to date.
const SAVE_EVERY: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderHints {
    /// Since when OSDs are down that are not out yet.
    pub down: BTreeMap<OsdId, u32>,
    /// When OSDs returned that had been wrongly marked down.
    pub returned: BTreeMap<OsdId, Vec<u32>>,
    /// When OSDs crashed that had started shortly before.
    pub died: BTreeMap<OsdId, Vec<u32>>,
    /// When links worked again.
    pub restored_links: BTreeMap<(OsdId, OsdId), Vec<u32>>,
    /// OSDs that were marked down for failure reports.
    pub marked_down: BTreeMap<OsdId, PastMarkDown>,
    pub recovery: Option<PastRecovery>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastMarkDown {
    pub age: u32,
    pub reporters: Vec<OsdId>,
    /// Its port refused connections; else it was silent.
    pub refused: bool,
    pub network: Option<Network>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastRecovery {
    pub age: u32,
    pub started_at: Utime,
    /// Copies of objects that were to be made or moved, when that was most.
    pub most: u64,
}

/// Writes the hints, on the leader.
#[derive(Default)]
pub struct HintsWriter {
    saved: Time,
}

impl HintsWriter {
    pub fn new(now: Time) -> HintsWriter {
        HintsWriter { saved: now }
    }

    pub fn periodic(
        &mut self,
        cx: &Context<'_>,
        osd: &mut OsdMonitor,
        pgs: &PgStats,
        pending: &mut PendingTxn,
    ) {
        let now = cx.now.mono;
        osd.forget(now, &cx.state.osdmap.map);
        let mut hints = osd.save(now);
        hints.recovery = pgs.progress.save(now);
        let due = now.since(self.saved) >= SAVE_EVERY && !hints.is_empty();
        if due || hints.differs(&cx.state.leader_hints) {
            self.saved = now;
            pending.batch.leader_hints = Some(hints);
        }
    }
}

impl Slice for LeaderHints {
    type Delta = Option<LeaderHints>;

    fn begin(_: &Genesis) -> Result<LeaderHints, Rejected> {
        Ok(LeaderHints::default())
    }
    fn apply(&mut self, delta: &Self::Delta, _: &Applying) {
        if let Some(hints) = delta {
            *self = hints.clone();
        }
    }
}

impl LeaderHints {
    pub fn is_empty(&self) -> bool {
        *self == LeaderHints::default()
    }
    /// Whether the two differ in content, and not only in ages.
    pub fn differs(&self, other: &LeaderHints) -> bool {
        self.ageless() != other.ageless()
    }
    fn ageless(&self) -> LeaderHints {
        let mut hints = self.clone();
        hints.down.values_mut().for_each(|age| *age = 0);
        let lists = hints.returned.values_mut().chain(hints.died.values_mut());
        lists.chain(hints.restored_links.values_mut()).for_each(|ages| ages.fill(0));
        hints.marked_down.values_mut().for_each(|decision| decision.age = 0);
        if let Some(recovery) = &mut hints.recovery {
            (recovery.age, recovery.most) = (0, 0);
        }
        hints
    }
}

versioned_fields!(
    LeaderHints,
    "monitors' hints",
    down,
    returned,
    died,
    restored_links,
    marked_down,
    recovery
);
versioned_fields!(PastRecovery, "past recovery", age, started_at, most);

impl Encode for PastMarkDown {
    fn encode(&self, out: &mut Vec<u8>) {
        self.age.encode(out);
        self.reporters.encode(out);
        self.refused.encode(out);
        let network: u8 = match self.network {
            None => 0,
            Some(Network::Public) => 1,
            Some(Network::Cluster) => 2,
        };
        network.encode(out);
    }
}
impl Decode for PastMarkDown {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(PastMarkDown {
            age: Decode::decode(r)?,
            reporters: Decode::decode(r)?,
            refused: Decode::decode(r)?,
            network: match u8::decode(r)? {
                0 => None,
                1 => Some(Network::Public),
                2 => Some(Network::Cluster),
                value => return Err(DecodeError::BadValue { what: "network", value: value.into() }),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::{from_slice, to_vec};

    #[test]
    fn a_memory_reads_back_and_knows_news_from_age() {
        let decision =
            PastMarkDown { age: 3, reporters: vec![OsdId(1)], refused: true, network: Some(Network::Public) };
        let hints = LeaderHints {
            down: [(OsdId(1), 40)].into(),
            returned: [(OsdId(2), vec![5, 1])].into(),
            died: [(OsdId(2), vec![9])].into(),
            restored_links: [((OsdId(0), OsdId(1)), vec![7])].into(),
            marked_down: [(OsdId(1), decision)].into(),
            recovery: Some(PastRecovery { age: 8, started_at: Utime::ZERO, most: 100 }),
        };
        assert_eq!(from_slice::<LeaderHints>(&to_vec(&hints)), Ok(hints.clone()));
        let mut older = hints.clone();
        older.down.insert(OsdId(1), 50);
        assert!(!older.differs(&hints));
        older.returned.get_mut(&OsdId(2)).unwrap().push(0);
        assert!(older.differs(&hints));
    }
}
