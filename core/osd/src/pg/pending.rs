//! What the placement group handed to its store and the store has not finished: transactions, which are
//! numbered from one, reads, and objects whose change the store's view does not show yet.

use super::PgEffect;
use super::backend::erasure::job::GatherRequest;
use super::unapplied::Unapplied;
use crate::throttle::WorkSlot;
use nacre_base::{OsdId, Version};
use nacre_proto::messages::peer::{PgMsg, RepOp};
use nacre_proto::transaction::Transaction;
use nacre_proto::types::ObjectId;
use std::collections::{BTreeSet, VecDeque};

/// What to do once a transaction is durable.
pub enum WhenStored {
    /// Count the primary's own part of a write.
    Write(Version),
    /// The primary's own log is the authoritative one.
    OwnLogDurable,
    Answer(OsdId, Box<PgMsg>),
    /// The authoritative log is here: tell the primary what is missing.
    SendMissing,
    /// Return the reservation of an object that was pulled.
    Pulled(WorkSlot),
}

#[derive(Default)]
pub struct Pending {
    issued: u64,
    durable: u64,
    /// The last transaction that the view shows.
    viewed: u64,
    last_read: u64,
    /// In order, each with the transaction that it waits for.
    when_stored: VecDeque<(u64, WhenStored)>,
    pub unapplied: Unapplied,
    /// Bytes that are to be gathered from members of an erasure-coded pool, at the end of the event.
    pub gathers: Vec<GatherRequest>,
}

impl Pending {
    /// True if this turn has just begun: then the view shows everything that was issued before.
    pub fn begin_turn(&mut self, turn: u64) -> bool {
        let begins = self.unapplied.begin(turn);
        if begins {
            self.viewed = self.issued;
        }
        begins
    }
    /// Whether the view shows everything that was issued.
    pub fn view_is_current(&self) -> bool {
        self.viewed == self.issued
    }
    pub fn issue(&mut self, txn: Transaction, out: &mut Vec<PgEffect>) {
        self.issued += 1;
        out.push(PgEffect::Store(txn));
    }
    /// A write changes these objects in this turn, and those whose missing parts changed.
    pub fn note_written(&mut self, write: &RepOp, noted: BTreeSet<ObjectId>) {
        self.unapplied.extend(write.entry.touched().map(|(object, ..)| object.clone()));
        self.unapplied.extend(noted);
    }
    pub fn next_read(&mut self) -> u64 {
        self.last_read += 1;
        self.last_read
    }

    /// Remembers what to do once everything that was issued so far is durable. True if it is already.
    pub fn defer(&mut self, what: WhenStored) -> bool {
        self.when_stored.push_back((self.issued, what));
        self.issued == self.durable
    }
    /// Keeps a reservation until everything that was issued so far is durable.
    pub fn hold_until_durable(&mut self, slot: WorkSlot) {
        if self.issued > self.durable {
            self.when_stored.push_back((self.issued, WhenStored::Pulled(slot)));
        }
    }
    /// The transaction with this number, and all before it, are durable.
    pub fn on_stored(&mut self, number: u64) {
        self.durable = number;
    }
    pub fn pop_stored(&mut self) -> Option<WhenStored> {
        self.when_stored.pop_front_if(|(number, _)| *number <= self.durable).map(|(_, what)| what)
    }
    /// What waited for transactions is void.
    pub fn forget_deferred(&mut self) {
        self.when_stored.clear();
    }

    pub fn check(&self) {
        assert!(self.durable <= self.issued && self.viewed <= self.issued);
        debug_assert!(self.when_stored.iter().map(|(number, _)| *number).is_sorted());
    }
}
