//! Bounds on what daemons keep and on elections, however long a cluster runs and whatever happens to it.

use crate::cluster::Cluster;
use crate::network::NodeId;
use crate::node::{Node, Role};
use crate::script::{Fault, Shape, Target};
use nacre_machine::StoreView;
use nacre_proto::transaction::StoredId;

/// `mon_min_osdmap_epochs` unless the shape sets it.
const MAPS: u64 = 500;
/// A full map is stored every this many epochs, and older ones are trimmed then.
const FULL_EVERY: u64 = 50;
/// Entries of the monitors' Raft log: the checkpoint threshold, plus what is left after one.
const ENTRIES: u64 = 500 + 128;
/// Votes may split, and each partition also ends.
const ELECTIONS_EACH: u64 = 3;

fn count(node: &Node, id: &'static str, prefix: &[u8]) -> u64 {
    let mut found = 0;
    let Some(store) = &node.store else { return 0 };
    let walk = store.omap_walk(&StoredId::meta(id), prefix, &mut |key, _| {
        let ours = key.as_bytes().starts_with(prefix);
        found += u64::from(ours);
        ours
    });
    walk.expect("a simulated store can be read");
    found
}

/// No daemon keeps more osdmaps, and no monitor a longer Raft log, than it should.
pub fn check_maps(c: &Cluster, shape: &Shape) -> Result<(), String> {
    let kept = if shape.osdmaps > 0 { shape.osdmaps } else { MAPS };
    let running = |ids: &[NodeId]| ids.iter().map(|id| c.world.node(*id)).collect::<Vec<_>>();
    for osd in running(&c.osds) {
        let (maps, most) = (count(osd, "osdmap", b"i"), kept + kept.min(FULL_EVERY) + 1);
        if maps > most {
            return Err(format!("{} keeps {maps} osdmaps, limit {most}", osd.name));
        }
    }
    for mon in running(&c.mons) {
        let entries = count(mon, "raft", b"entry/");
        if entries > ENTRIES {
            return Err(format!("{} keeps {entries} entries of its Raft log, limit {ENTRIES}", mon.name));
        }
        let Some(Role::Mon(machine)) = &mon.role else { continue };
        let (maps, most) = (machine.maps_kept(), kept + (kept / 5).max(1));
        if maps > most {
            return Err(format!("{} keeps {maps} incremental osdmaps, limit {most}", mon.name));
        }
    }
    Ok(())
}

/// Counts the faults that justify an election.
#[derive(Default)]
pub struct Elections {
    /// The term when the workload began.
    since: u64,
    reasons: u64,
    /// A link between monitors is partitioned.
    partitioned: bool,
}

impl Elections {
    pub fn begin(c: &Cluster) -> Elections {
        Elections { since: term(c), ..Elections::default() }
    }

    pub fn note(&mut self, fault: &Fault) {
        let is_mon = |target: &Target| matches!(target, Target::Mon(_) | Target::Host(_) | Target::Rack(_));
        let touched = match fault {
            Fault::Kill(target) | Fault::PowerOff(target) => target.iter().any(is_mon),
            Fault::Stop(target) | Fault::Pause(target) | Fault::Resume(target) | Fault::Upgrade(target) => {
                is_mon(target)
            }
            Fault::Partition(a, b) | Fault::PartitionOneWay(a, b) | Fault::Reject(a, b) => {
                let both = is_mon(a) && is_mon(b);
                self.partitioned |= both;
                both
            }
            Fault::Isolate(_) => {
                self.partitioned = true;
                true
            }
            // A leader hands leadership over before it leaves.
            Fault::AddMon | Fault::RemoveMon(_) => true,
            Fault::Heal | Fault::End => std::mem::take(&mut self.partitioned) || *fault == Fault::End,
            _ => false,
        };
        self.reasons += u64::from(touched);
    }

    /// A flapping or slow link justifies no election as long as other monitors reach the leader.
    pub fn check(&self, c: &Cluster) -> Result<(), String> {
        let reasons = self.reasons + c.world.network.resets_of_mons;
        let (held, most) = (term(c).saturating_sub(self.since), reasons * ELECTIONS_EACH);
        if held > most {
            return Err(format!("monitors held {held} elections, with {reasons} faults that justify one"));
        }
        Ok(())
    }
}

/// Every election begins another term.
fn term(c: &Cluster) -> u64 {
    c.mons.iter().filter_map(|id| c.term(*id)).max().unwrap_or(0)
}
