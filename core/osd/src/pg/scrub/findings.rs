//! What scrubs found. It is kept on the disks of all members, so that it outlives primaries; only the number
//! of wrong copies is in memory.

use super::{FINDINGS_MAX, Scope, Scrub, ScrubRecord};
use crate::pg::history::record::{FINDINGS, RecordChanges, SCRUB_STATE};
use crate::pg::{Ctx, PgEffect, PgRange};
use nacre_base::{PgId, SpgId, Utime};
use nacre_machine::{Level, ReadError, StoreView};
use nacre_proto::messages::peer::PgMsg;
use nacre_proto::messages::scrub::{Finding, ScrubMsg, ScrubNote, ScrubState, scrub_error as is};
use nacre_proto::transaction::{StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_wire::from_slice;

/// Findings in one message, at most.
const NOTED_MAX: usize = 64;

/// None if the placement group was never scrubbed, or is older than scrubs.
pub fn load_state(store: &dyn StoreView, pg: PgId) -> Result<Option<ScrubState>, ReadError> {
    let Some(bytes) = store.omap_get(&StoredId::Pg(SpgId::replicated(pg)), SCRUB_STATE)? else {
        return Ok(None);
    };
    let state = from_slice(&bytes)
        .map_err(|e| ReadError::Device(format!("{pg}: what scrubs found does not decode: {e}")))?;
    Ok(Some(state))
}

/// Every finding, until `each` says false. What does not decode is left out.
pub fn walk_findings(
    store: &dyn StoreView,
    pg: PgId,
    each: &mut dyn FnMut(ObjectId, Finding) -> bool,
) -> Result<(), ReadError> {
    store.omap_walk(&StoredId::Pg(SpgId::replicated(pg)), FINDINGS, &mut |key, value| {
        if !key.as_bytes().starts_with(FINDINGS) {
            return false;
        }
        match from_slice::<(ObjectId, Finding)>(value) {
            Ok((object, finding)) => each(object, finding),
            Err(_) => true,
        }
    })
}

/// Whether it took a deep scrub to find it.
fn is_deep(finding: &Finding) -> bool {
    match finding {
        Finding::Object(bad) => {
            bad.errors & (is::object::DATA_DIGEST | is::object::OMAP_DIGEST) != 0
                || bad.shards.values().any(|shard| shard.errors & is::shard::READ != 0)
        }
        Finding::Snaps(_) => false,
    }
}

impl ScrubRecord {
    /// A placement group that is new counts as scrubbed when it was made, or first seen by a release that
    /// scrubs.
    pub fn begin(&mut self, wall: Utime) {
        let stamps = ScrubState { last_stamp: wall, last_deep_stamp: wall, ..ScrubState::default() };
        self.state = ScrubState { last_clean_stamp: wall, ..stamps };
        self.unsaved = true;
    }
    pub fn load(&mut self, store: &dyn StoreView, wall: Utime) -> Result<(), ReadError> {
        match load_state(store, self.pg)? {
            Some(state) => self.state = state,
            None => self.begin(wall),
        }
        Ok(())
    }
    /// True once, if the state that `begin` made is not stored. Not while many placement groups are made at
    /// once.
    pub(super) fn take_unsaved(&mut self) -> bool {
        std::mem::take(&mut self.unsaved)
    }
    /// The child of a split. What was found stays with its parent until both are scrubbed, which happens at
    /// once if something was.
    pub fn inherit(&mut self, parent: &ScrubRecord, txn: &mut Transaction) {
        if parent.state.errors() == 0 {
            self.state = ScrubState { omap_keys: 0, omap_bytes: 0, repaired: 0, ..parent.state };
        }
        // In the transaction of the split.
        let mut changes = RecordChanges::new(self.pg);
        changes.scrub_state(&self.state);
        changes.into_txn(txn);
    }
    /// Takes over the findings of a placement group that merges into this one, and what holds for both.
    pub fn join(&mut self, ctx: &mut Ctx<'_>, source: &ScrubRecord, changes: &mut RecordChanges) {
        let walked = walk_findings(ctx.store, source.pg, &mut |object, finding| {
            changes.finding(&object, matches!(finding, Finding::Snaps(_)), Some(&finding));
            true
        });
        if let Err(error) = walked {
            ctx.log(Level::Error, format!("pg {}: {error}", self.pg));
        }
        let (ours, theirs) = (self.state, source.state);
        self.state = ScrubState {
            last: ours.last.min(theirs.last),
            last_stamp: ours.last_stamp.min(theirs.last_stamp),
            last_deep: ours.last_deep.min(theirs.last_deep),
            last_deep_stamp: ours.last_deep_stamp.min(theirs.last_deep_stamp),
            last_clean_stamp: ours.last_clean_stamp.min(theirs.last_clean_stamp),
            shallow_errors: ours.shallow_errors + theirs.shallow_errors,
            deep_errors: ours.deep_errors + theirs.deep_errors,
            omap_keys: ours.omap_keys + theirs.omap_keys,
            omap_bytes: ours.omap_bytes + theirs.omap_bytes,
            repaired: ours.repaired + theirs.repaired,
        };
        self.unsaved = false;
    }

    /// A note from the primary. Gives the transaction that keeps it.
    pub fn take_note(&mut self, ctx: &mut Ctx<'_>, range: &PgRange, note: &ScrubNote) -> Option<Transaction> {
        let sound = note.findings.len() <= NOTED_MAX
            && note.findings.iter().all(|(object, ..)| range.contains(object));
        sound.then(|| {
            self.state = note.state;
            self.note_txn(ctx, note)
        })
    }

    pub(super) fn note_txn(&self, ctx: &mut Ctx<'_>, note: &ScrubNote) -> Transaction {
        let mut changes = RecordChanges::new(self.pg);
        if note.forget {
            let walked = walk_findings(ctx.store, self.pg, &mut |object, finding| {
                if note.forget_deep || !is_deep(&finding) {
                    changes.finding(&object, matches!(finding, Finding::Snaps(_)), None);
                }
                true
            });
            if let Err(error) = walked {
                ctx.log(Level::Error, format!("pg {}: {error}", self.pg));
            }
        }
        for (object, about_clones, finding) in &note.findings {
            changes.finding(object, *about_clones, finding.as_ref());
        }
        changes.scrub_state(&note.state);
        let mut txn = Transaction::new();
        changes.into_txn(&mut txn);
        txn
    }
}

impl Scrub {
    pub(super) fn keep_finding(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        object: &ObjectId,
        finding: Finding,
    ) {
        self.kept += 1;
        if self.kept <= FINDINGS_MAX {
            let about_clones = matches!(finding, Finding::Snaps(_));
            let findings = vec![(object.clone(), about_clones, Some(finding))];
            self.share_note(pg, ctx, ScrubNote { findings, ..ScrubNote::default() });
        }
    }
    pub(super) fn drop_finding(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, object: &ObjectId) {
        let findings = vec![(object.clone(), false, None)];
        self.share_note(pg, ctx, ScrubNote { findings, ..ScrubNote::default() });
    }

    /// Keeps a note, here and at all other members.
    pub(super) fn share_note(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, note: ScrubNote) {
        let note = ScrubNote { state: pg.record.state, ..note };
        let txn = pg.record.note_txn(ctx, &note);
        pg.store(ctx, txn);
        if note.forget {
            self.kept = 0;
        }
        for osd in pg.members.keys() {
            let msg = Box::new(ScrubMsg::Note(note.clone()));
            ctx.out.push(PgEffect::ask(*osd, PgMsg::Scrub(msg)));
        }
    }
}
