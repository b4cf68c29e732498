//! What a cluster must not take more of, however long it runs and whatever happens to it.

use crate::cluster::Cluster;
use crate::network::NodeId;
use crate::node::{Node, Role};
use crate::script::{Fault, Shape, Who};
use nacre_machine::StoreView;
use nacre_proto::transaction::StoredId;

/// How many older maps monitors and OSDs keep unless the shape says otherwise.
const MAPS: u64 = 500;
/// A whole map is stored for every so many, and what came before it goes then.
const FULL_EVERY: u64 = 50;
/// Entries of the monitors' log: so many ask for a checkpoint, after which these are left.
const ENTRIES: u64 = 500 + 128;
/// Votes may split, and a link that is cut is also one that comes back.
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

/// No daemon keeps more maps, nor a monitor more of its log, than it should.
pub fn check_maps(c: &Cluster, shape: &Shape) -> Result<(), String> {
    let kept = if shape.maps > 0 { shape.maps } else { MAPS };
    let running = |ids: &[NodeId]| ids.iter().map(|id| c.world.node(*id)).collect::<Vec<_>>();
    for osd in running(&c.osds) {
        let (maps, most) = (count(osd, "osdmap", b"i"), kept + kept.min(FULL_EVERY) + 1);
        if maps > most {
            return Err(format!("{} keeps {maps} maps, of {most}", osd.name));
        }
    }
    for mon in running(&c.mons) {
        let entries = count(mon, "raft", b"entry/");
        if entries > ENTRIES {
            return Err(format!("{} keeps {entries} entries of its log, of {ENTRIES}", mon.name));
        }
        let Some(Role::Mon(machine)) = &mon.role else { continue };
        let (maps, most) = (machine.maps_kept(), kept + (kept / 5).max(1));
        if maps > most {
            return Err(format!("{} knows {maps} changes of the map, of {most}", mon.name));
        }
    }
    Ok(())
}

/// How often monitors were given reason to elect a leader.
#[derive(Default)]
pub struct Elections {
    /// The term when the work began.
    since: u64,
    reasons: u64,
    /// A link of theirs is broken.
    cut: bool,
}

impl Elections {
    pub fn begin(c: &Cluster) -> Elections {
        Elections { since: term(c), ..Elections::default() }
    }

    pub fn note(&mut self, fault: &Fault) {
        let is_mon = |who: &Who| matches!(who, Who::Mon(_));
        let touched = match fault {
            Fault::Kill(who) | Fault::Power(who) => who.iter().any(is_mon),
            Fault::Stop(who) | Fault::Pause(who) | Fault::Mend(who) => is_mon(who),
            Fault::Cut(a, b) | Fault::HalfCut(a, b) | Fault::Reject(a, b) => {
                let both = is_mon(a) && is_mon(b);
                self.cut |= both;
                both
            }
            // Who leads lets another one lead before it goes.
            Fault::AddMon | Fault::RemoveMon(_) => true,
            Fault::Heal | Fault::End => std::mem::take(&mut self.cut) || *fault == Fault::End,
            _ => false,
        };
        self.reasons += u64::from(touched);
    }

    /// A link that comes and goes, or is slow, is no reason as long as others reach the leader.
    pub fn check(&self, c: &Cluster) -> Result<(), String> {
        let (held, most) = (term(c).saturating_sub(self.since), self.reasons * ELECTIONS_EACH);
        if held > most {
            return Err(format!("monitors held {held} elections, with {} reasons for one", self.reasons));
        }
        Ok(())
    }
}

/// Every election has a term of its own.
fn term(c: &Cluster) -> u64 {
    c.mons.iter().filter_map(|id| c.term(*id)).max().unwrap_or(0)
}
