//! The monitor map, and which monitors decide.
//!
//! The monitor map says which monitors are expected and where; `Membership::members` which of them decide, by
//! ids that are never used again. `ceph mon add` changes the map alone, so the cluster does not wait for a
//! monitor that never came. A monitor counts from when it runs and asks to join (`MonChange::Join`), which
//! changes Raft's group.

use crate::services::Context;
use crate::services::health::{Checks, warn};
use crate::sessions::Session;
use crate::state::{Applying, Genesis, Published, Rejected, Slice, State};
use nacre_proto::maps::{AuthCiphers, MonMap};
use nacre_proto::messages::MonMapMsg;
use nacre_proto::types::AddrVec;
use nacre_raft::Change;
use nacre_wire::{Decode, DecodeError, Encode, Reader, to_vec, versioned};
use std::collections::{BTreeMap, BTreeSet};

/// One change of the monitors: an entry of the Raft log.
#[derive(Clone, Debug, PartialEq)]
pub enum MonChange {
    /// A monitor of that name is expected there.
    Expect { name: String, addrs: AddrVec },
    /// It runs, and decides from here on.
    Join { member: u64, name: String },
    /// It is expected no more; with its id, if it had joined.
    Remove { name: String, member: Option<u64> },
    /// Keys may be of other kinds.
    Ciphers(AuthCiphers),
}

impl MonChange {
    /// The change of Raft's group, if there is one.
    pub fn of_group(&self) -> Option<Change> {
        match self {
            MonChange::Expect { .. } | MonChange::Ciphers(_) => None,
            MonChange::Join { member, .. } => Some(Change::Add(*member)),
            MonChange::Remove { member, .. } => member.map(Change::Remove),
        }
    }
}

/// The monitors, and which of them decide.
#[derive(Clone, Debug)]
pub struct Membership {
    pub map: MonMap,
    /// The monitors that decide: their names by their ids in Raft. The initial members' ids are their ranks
    /// plus one.
    pub members: BTreeMap<u64, String>,
    /// The ids of those that were removed.
    pub removed: BTreeSet<u64>,
}

impl Membership {
    /// Of a new cluster: every monitor of the map decides.
    pub fn initial(map: MonMap) -> Membership {
        Membership { members: (1..).zip(map.ranks.iter().cloned()).collect(), removed: BTreeSet::new(), map }
    }
    /// The id of the monitor with that name, if it has joined.
    pub fn member(&self, name: &str) -> Option<u64> {
        self.members.iter().find(|(_, other)| *other == name).map(|(member, _)| *member)
    }
    /// The rank of a member.
    pub fn rank_of(&self, member: u64) -> Option<u64> {
        let name = self.members.get(&member)?;
        self.map.ranks.iter().position(|other| other == name).map(|rank| rank as u64)
    }
    /// Whether there was a member with this id, which was removed. Members join in any order.
    pub fn was_removed(&self, member: u64) -> bool {
        self.removed.contains(&member)
    }
}

impl Slice for Membership {
    type Delta = Option<MonChange>;

    fn begin(genesis: &Genesis) -> Result<Membership, Rejected> {
        Ok(Membership::initial(genesis.monmap.clone()))
    }

    fn apply(&mut self, delta: &Self::Delta, at: &Applying) {
        match delta {
            Some(MonChange::Expect { name, addrs }) if !self.map.mons.contains_key(name) => {
                self.map.add(name.clone(), addrs.clone());
            }
            Some(MonChange::Expect { .. }) | None => return,
            Some(MonChange::Join { member, name }) => {
                self.members.insert(*member, name.clone());
                return;
            }
            Some(MonChange::Ciphers(ciphers)) => self.map.ciphers = ciphers.clone(),
            Some(MonChange::Remove { name, member }) => {
                self.map.remove(name);
                if let Some(member) = member {
                    self.members.remove(member);
                    self.removed.insert(*member);
                }
            }
        }
        self.map.epoch = self.map.epoch.next();
        self.map.last_changed = at.stamp;
    }

    fn version(&self, what: &str) -> Option<(u64, u64)> {
        (what == "monmap").then(|| (self.map.epoch.0.into(), 1))
    }

    fn publish(state: &State, what: &str, _: &mut Session, start: u64) -> Option<Published> {
        let map = &state.monmap.map;
        let epoch = u64::from(map.epoch.0);
        (what == "monmap" && start <= epoch).then(|| Published {
            messages: vec![MonMapMsg { map: to_vec(map).into() }.into()],
            next: epoch + 1,
        })
    }
}

/// The first part of what `ceph mon stat` shows.
pub fn map_text(map: &MonMap) -> String {
    let mons: Vec<String> = map.by_rank().map(|mon| format!("{}={}", mon.name, mon.public_addrs)).collect();
    let (epoch, count) = (map.epoch, map.ranks.len());
    format!("monmap e{epoch}: {count} mons at {{{}}} removed_ranks: {{}}", mons.join(","))
}

/// Monitors that are not reachable.
pub fn health(cx: &Context<'_>, checks: &mut Checks) {
    let state = cx.state;
    let here = &cx.quorum;
    let ranks = state.monmap.map.ranks.iter().enumerate();
    let missing: Vec<&String> =
        ranks.filter(|(rank, _)| !here.contains(&(*rank as u64))).map(|(_, n)| n).collect();
    if !missing.is_empty() {
        let names: Vec<&str> =
            here.iter().filter_map(|&r| state.monmap.map.ranks.get(r as usize).map(|n| &**n)).collect();
        let summary = format!(
            "{}/{} mons down, quorum {}",
            missing.len(),
            state.monmap.map.ranks.len(),
            names.join(",")
        );
        let detail = missing.iter().map(|name| format!("mon.{name} is out of quorum")).collect();
        warn(checks, "MON_DOWN", missing.len(), summary, detail);
    }
}

impl Encode for MonChange {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| match self {
            MonChange::Expect { name, addrs } => {
                out.push(0);
                name.encode(out);
                addrs.encode(out);
            }
            MonChange::Join { member, name } => {
                out.push(1);
                member.encode(out);
                name.encode(out);
            }
            MonChange::Remove { name, member } => {
                out.push(2);
                name.encode(out);
                member.encode(out);
            }
            MonChange::Ciphers(ciphers) => {
                out.push(3);
                ciphers.encode(out);
            }
        });
    }
}
impl Decode for MonChange {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("change of monitors", 1, |r, _| {
            Ok(match u8::decode(r)? {
                0 => MonChange::Expect { name: Decode::decode(r)?, addrs: Decode::decode(r)? },
                1 => MonChange::Join { member: Decode::decode(r)?, name: Decode::decode(r)? },
                2 => MonChange::Remove { name: Decode::decode(r)?, member: Decode::decode(r)? },
                3 => MonChange::Ciphers(Decode::decode(r)?),
                value => {
                    return Err(DecodeError::BadValue { what: "change of monitors", value: value.into() });
                }
            })
        })
    }
}
