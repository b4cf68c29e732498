//! Which monitors there are, and how that changes.
//!
//! The monitor map says who is expected where; `State::members` which of them decide, by numbers of their
//! own that nobody gets twice. `ceph mon add` changes the map alone: nobody waits for a monitor that
//! never came. It counts from when it runs and says so (`MonChange::Join`), by a change of Raft's group.

use crate::state::State;
use nacre_base::Utime;
use nacre_proto::types::AddrVec;
use nacre_raft::Change;
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};

/// One change, which stands in the log.
#[derive(Clone, Debug, PartialEq)]
pub enum MonChange {
    /// A monitor of that name is expected there.
    Expect { name: String, addrs: AddrVec },
    /// It is there, and decides from here on.
    Join { member: u64, name: String },
    /// It is expected no more; with its number, if it had joined.
    Remove { name: String, member: Option<u64> },
}

impl MonChange {
    /// What it is to Raft, if the group changes.
    pub fn of_group(&self) -> Option<Change> {
        match self {
            MonChange::Expect { .. } => None,
            MonChange::Join { member, .. } => Some(Change::Add(*member)),
            MonChange::Remove { member, .. } => member.map(Change::Remove),
        }
    }
}

impl State {
    /// Never fails: what changes Raft's group changes this as well.
    pub(crate) fn change_monitors(&mut self, change: &MonChange, stamp: Utime) {
        match change {
            MonChange::Expect { name, addrs } if !self.monmap.mons.contains_key(name) => {
                self.monmap.add(name.clone(), addrs.clone());
            }
            MonChange::Expect { .. } => return,
            MonChange::Join { member, name } => {
                self.members.insert(*member, name.clone());
                return;
            }
            MonChange::Remove { name, member } => {
                self.monmap.remove(name);
                if let Some(member) = member {
                    self.members.remove(member);
                    self.removed.insert(*member);
                }
            }
        }
        self.monmap.epoch = self.monmap.epoch.next();
        self.monmap.last_changed = stamp;
    }

    /// The number of the monitor with that name, if it has joined.
    pub fn member(&self, name: &str) -> Option<u64> {
        self.members.iter().find(|(_, other)| *other == name).map(|(member, _)| *member)
    }
    /// The rank of a member.
    pub fn rank_of(&self, member: u64) -> Option<u64> {
        let name = self.members.get(&member)?;
        self.monmap.ranks.iter().position(|other| other == name).map(|rank| rank as u64)
    }
    /// Whether there was a member with this number, which was removed. They join in any order.
    pub fn was_removed(&self, member: u64) -> bool {
        self.removed.contains(&member)
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
                value => {
                    return Err(DecodeError::BadValue { what: "change of monitors", value: value.into() });
                }
            })
        })
    }
}
