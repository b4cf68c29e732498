//! What monitors tell each other. Ours alone: no Ceph client ever sees these.

use super::{DaemonMsg, RawMessage};
use crate::maps::Uuid;
use crate::types::{AddrVec, AuthName, Formats};
use bytes::Bytes;
use nacre_base::{OsdId, Utime};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned, versioned_fields};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum QuorumMsg {
    /// The first message of each side: its cluster. Other messages before it are ignored.
    Hello {
        fsid: Uuid,
        /// What it supports, of `features`. Monitors from before there were any support none.
        features: u64,
        /// The cluster formats that it can use, since version 4.
        formats: Formats,
        /// That of its cluster; 0 if it does not know.
        format: u32,
    },
    /// A message of the Raft library, opaque.
    Raft(Bytes),
    /// To the leader: a request of a daemon or client that is connected here.
    Forward {
        /// Comes back in the answer.
        key: u64,
        /// The asker: the number of its entity type, its own number, its addresses.
        kind: u8,
        num: i64,
        addrs: AddrVec,
        message: RawMessage,
        /// The entity that the asker is, since version 3.
        auth_name: Option<AuthName>,
    },
    /// The leader's answer to a `Forward`.
    Answer { key: u64, message: RawMessage },
    /// To the monitor that passed a request on: I do not lead (any more).
    NotLeader { key: u64 },
    /// To the leader: I need global ids for clients that connect to me.
    IdsWanted,
    /// The leader's answer: these, from the first up to but not including the second.
    Ids { start: u64, end: u64 },
    /// The leader's, to all: the monitor that has a session with that OSD is to tell it this.
    Order { osd: OsdId, message: Box<DaemonMsg> },
    /// To the leader: that OSD had a session here, which ended.
    Ended { osd: OsdId },
    /// Of a monitor that is none yet: it runs, with this number, and would be the one of that name.
    Join { member: u64, name: String, addrs: AddrVec },
    /// To a monitor that is none any more: these are the monitors, encoded.
    Removed { map: Bytes },
    /// The leader's: what time is it? Only to monitors that support `features::TIME_CHECKS`.
    TimeCheck { round: u64 },
    /// The answer to it.
    TimeCheckReply { round: u64, stamp: Utime },
    /// To the leader: what a monitor says of itself and its sessions. Only to one that supports
    /// `features::REPORTS`.
    Report(Box<MonReport>),
}

/// What monitors may support beside what all do.
pub mod features {
    /// They answer `QuorumMsg::TimeCheck`.
    pub const TIME_CHECKS: u64 = 1;
    /// They understand `QuorumMsg::Report`.
    pub const REPORTS: u64 = 2;
    /// All that this version supports.
    pub const ALL: u64 = TIME_CHECKS | REPORTS;
}

/// What a monitor says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonReport {
    /// What it runs on and what it is, by Ceph's names.
    pub metadata: BTreeMap<String, String>,
    /// How many sessions of a kind, by its number, have which features.
    pub sessions: BTreeMap<(u8, u64), u32>,
}

versioned_fields!(MonReport, "report of a monitor", metadata, sessions);

impl Encode for RawMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        self.kind.encode(out);
        self.version.encode(out);
        self.compat.encode(out);
        self.tid.encode(out);
        self.priority.encode(out);
        self.front.encode(out);
        self.middle.encode(out);
        self.data.encode(out);
    }
}
impl Decode for RawMessage {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(RawMessage {
            kind: Decode::decode(r)?,
            version: Decode::decode(r)?,
            compat: Decode::decode(r)?,
            tid: Decode::decode(r)?,
            priority: Decode::decode(r)?,
            front: Decode::decode(r)?,
            middle: Decode::decode(r)?,
            data: Decode::decode(r)?,
        })
    }
}

impl Encode for QuorumMsg {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 4, 1, |out| match self {
            QuorumMsg::Hello { fsid, features, formats, format } => {
                out.push(10);
                fsid.encode(out);
                features.encode(out);
                formats.encode(out);
                format.encode(out);
            }
            QuorumMsg::Raft(bytes) => {
                out.push(0);
                bytes.encode(out);
            }
            QuorumMsg::Forward { key, kind, num, addrs, message, auth_name } => {
                out.push(1);
                key.encode(out);
                kind.encode(out);
                num.encode(out);
                addrs.encode(out);
                message.encode(out);
                auth_name.encode(out);
            }
            QuorumMsg::Answer { key, message } => {
                out.push(2);
                key.encode(out);
                message.encode(out);
            }
            QuorumMsg::NotLeader { key } => {
                out.push(5);
                key.encode(out);
            }
            QuorumMsg::Order { osd, message } => {
                out.push(6);
                osd.encode(out);
                message.encode(out);
            }
            QuorumMsg::Ended { osd } => {
                out.push(7);
                osd.encode(out);
            }
            QuorumMsg::Join { member, name, addrs } => {
                out.push(8);
                member.encode(out);
                name.encode(out);
                addrs.encode(out);
            }
            QuorumMsg::Removed { map } => {
                out.push(9);
                map.encode(out);
            }
            QuorumMsg::TimeCheck { round } => {
                out.push(11);
                round.encode(out);
            }
            QuorumMsg::TimeCheckReply { round, stamp } => {
                out.push(12);
                round.encode(out);
                stamp.encode(out);
            }
            QuorumMsg::Report(report) => {
                out.push(13);
                report.encode(out);
            }
            QuorumMsg::IdsWanted => out.push(3),
            QuorumMsg::Ids { start, end } => {
                out.push(4);
                start.encode(out);
                end.encode(out);
            }
        });
    }
}
impl Decode for QuorumMsg {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("monitor message", 4, |r, version| {
            Ok(match u8::decode(r)? {
                0 => QuorumMsg::Raft(Decode::decode(r)?),
                1 => QuorumMsg::Forward {
                    key: Decode::decode(r)?,
                    kind: Decode::decode(r)?,
                    num: Decode::decode(r)?,
                    addrs: Decode::decode(r)?,
                    message: Decode::decode(r)?,
                    auth_name: if version >= 3 { Decode::decode(r)? } else { None },
                },
                2 => QuorumMsg::Answer { key: Decode::decode(r)?, message: Decode::decode(r)? },
                3 => QuorumMsg::IdsWanted,
                5 => QuorumMsg::NotLeader { key: Decode::decode(r)? },
                4 => QuorumMsg::Ids { start: Decode::decode(r)?, end: Decode::decode(r)? },
                6 => QuorumMsg::Order { osd: Decode::decode(r)?, message: Box::new(Decode::decode(r)?) },
                7 => QuorumMsg::Ended { osd: Decode::decode(r)? },
                8 => QuorumMsg::Join {
                    member: Decode::decode(r)?,
                    name: Decode::decode(r)?,
                    addrs: Decode::decode(r)?,
                },
                9 => QuorumMsg::Removed { map: Decode::decode(r)? },
                10 => QuorumMsg::Hello {
                    fsid: Decode::decode(r)?,
                    features: if version >= 2 { Decode::decode(r)? } else { 0 },
                    formats: if version >= 4 { Decode::decode(r)? } else { Formats::default() },
                    format: if version >= 4 { Decode::decode(r)? } else { 0 },
                },
                11 => QuorumMsg::TimeCheck { round: Decode::decode(r)? },
                12 => QuorumMsg::TimeCheckReply { round: Decode::decode(r)?, stamp: Decode::decode(r)? },
                13 => QuorumMsg::Report(Box::new(Decode::decode(r)?)),
                value => return Err(DecodeError::BadValue { what: "monitor message", value: value.into() }),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::{from_slice, to_vec};

    #[test]
    fn every_message_reads_back() {
        let raw = RawMessage {
            kind: 50,
            version: 1,
            compat: 1,
            tid: 9,
            front: "abc".into(),
            ..RawMessage::default()
        };
        let messages = [
            QuorumMsg::Hello { fsid: [7; 16], features: features::ALL, formats: Formats::ALL, format: 2 },
            QuorumMsg::Raft("x".into()),
            QuorumMsg::Forward {
                key: 7,
                kind: 8,
                num: 4100,
                addrs: AddrVec::default(),
                message: raw.clone(),
                auth_name: Some(AuthName { kind: 8, id: "admin".to_string() }),
            },
            QuorumMsg::Answer { key: 7, message: raw },
            QuorumMsg::IdsWanted,
            QuorumMsg::NotLeader { key: 7 },
            QuorumMsg::Ids { start: 1, end: 9 },
            QuorumMsg::Join { member: 4, name: "d".into(), addrs: AddrVec::default() },
            QuorumMsg::Removed { map: "x".into() },
            QuorumMsg::TimeCheck { round: 3 },
            QuorumMsg::TimeCheckReply { round: 3, stamp: Utime { sec: 7, nsec: 9 } },
            QuorumMsg::Report(Box::new(MonReport {
                metadata: [("arch".to_string(), "x86_64".to_string())].into(),
                sessions: [((8, 1 << 60), 2)].into(),
            })),
        ];
        for message in messages {
            assert_eq!(from_slice::<QuorumMsg>(&to_vec(&message)), Ok(message));
        }
    }

    #[test]
    fn monitor_without_features_is_understood() {
        let mut old = Vec::new();
        versioned(&mut old, 1, 1, |out| {
            out.push(10);
            [7u8; 16].encode(out);
        });
        let formats = Formats::default();
        let expected = QuorumMsg::Hello { fsid: [7; 16], features: 0, formats, format: 0 };
        assert_eq!(from_slice::<QuorumMsg>(&old), Ok(expected));
    }
}
