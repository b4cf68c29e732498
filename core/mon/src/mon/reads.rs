//! Reads that must see everything committed before they were asked.

use super::Mon;
use super::requests::Origin;
use nacre_base::{Epoch, PgId};
use nacre_machine::Effect;
use nacre_proto::messages::{DaemonMsg, MonGetVersionReply};
use std::collections::BTreeMap;

/// What is asked.
pub(super) enum Read {
    Version { handle: u64, what: String },
    Records { epoch: Epoch, pgs: Vec<PgId> },
}

/// Reads that wait.
#[derive(Default)]
pub(super) struct Reads {
    last: u64,
    /// For Raft to say how far to apply, and then for that.
    unconfirmed: BTreeMap<u64, (Option<u64>, Origin, Read)>,
    /// Record queries that wait for a newer map.
    early: Vec<(Origin, Epoch, Vec<PgId>)>,
}

impl Reads {
    fn add(&mut self, origin: Origin, read: Read) -> u64 {
        self.last += 1;
        self.unconfirmed.insert(self.last, (None, origin, read));
        self.last
    }
    /// Raft says that the read sees everything once that entry is applied.
    pub fn confirmed(&mut self, read: u64, index: u64) {
        if let Some((at, ..)) = self.unconfirmed.get_mut(&read) {
            *at = Some(index);
        }
    }
    fn take_ready(&mut self, applied: u64) -> Vec<(Origin, Read)> {
        let is_ready =
            |_: &u64, (at, ..): &mut (Option<u64>, Origin, Read)| at.is_some_and(|at| at <= applied);
        self.unconfirmed.extract_if(.., is_ready).map(|(_, (_, origin, read))| (origin, read)).collect()
    }
}

impl Mon {
    pub(super) fn linearize(&mut self, origin: Origin, read: Read) {
        let id = self.reads.add(origin, read);
        self.consensus.raft().read(id);
    }

    pub(super) fn answer_reads(&mut self, out: &mut Vec<Effect>) {
        for (origin, read) in self.reads.take_ready(self.consensus.applied) {
            match read {
                Read::Version { handle, what } => {
                    let (version, oldest) = self.version_of(&what);
                    self.answer(origin, MonGetVersionReply { handle, version, oldest }.into(), out);
                }
                Read::Records { epoch, pgs } => self.reads.early.push((origin, epoch, pgs)),
            }
        }
        let Some(state) = &self.state else { return };
        let epoch = state.osdmap.map.epoch;
        let due: Vec<_> = self.reads.early.extract_if(.., |(_, wanted, _)| *wanted <= epoch).collect();
        let answers: Vec<_> = due
            .into_iter()
            .map(|(origin, _, pgs)| {
                let records = pgs.into_iter().map(|pg| (pg, state.pgs.records.get(&pg).cloned()));
                (origin, DaemonMsg::Records { epoch, records: records.collect() })
            })
            .collect();
        answers.into_iter().for_each(|(origin, answer)| self.answer(origin, answer.into(), out));
    }
}
