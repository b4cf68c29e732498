//! What was found, kept on the disks of all members, so that it outlives primaries. Only the number of
//! wrong copies is in memory.

use super::super::record::{FINDINGS, RecordChanges, SCRUB_STATE};
use super::super::{Ctx, Pg, PgEffect, Phase};
use super::FINDINGS_MAX;
use nacre_base::{OsdId, PgId, SpgId, Utime};
use nacre_machine::{Level, ReadError, StoreView};
use nacre_proto::messages::peer::PgMsg;
use nacre_proto::messages::scrub::{Finding, ScrubMsg, ScrubNote, ScrubState, scrub_error as is};
use nacre_proto::transaction::{StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_wire::from_slice;

/// Findings in one message, at most.
const NOTED_MAX: usize = 64;

/// None if the group was never looked through, or is older than such looks.
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

/// Whether reading content was needed to find it.
fn is_deep(finding: &Finding) -> bool {
    match finding {
        Finding::Object(bad) => {
            bad.errors & (is::object::DATA_DIGEST | is::object::OMAP_DIGEST) != 0
                || bad.shards.values().any(|shard| shard.errors & is::shard::READ != 0)
        }
        Finding::Snaps(_) => false,
    }
}

impl Pg {
    /// A group that is new counts as looked through when it was made, or first seen by who knows of such
    /// looks.
    pub fn begin_scrub_state(&mut self, wall: Utime) {
        let stamps = ScrubState { last_stamp: wall, last_deep_stamp: wall, ..ScrubState::default() };
        self.scrub_state = ScrubState { last_clean_stamp: wall, ..stamps };
        self.scrub_unsaved = true;
    }
    /// Not while many groups are made at once.
    pub(super) fn save_scrub_state(&mut self, ctx: &mut Ctx<'_>) {
        if std::mem::take(&mut self.scrub_unsaved) {
            self.store_note(ctx, &ScrubNote { state: self.scrub_state, ..ScrubNote::default() });
        }
    }
    /// The child of a split. What was found stays with its parent until the next look at both, which
    /// comes at once if something was.
    pub fn inherit_scrub_state(&mut self, parent: &ScrubState, txn: &mut Transaction) {
        if parent.errors() == 0 {
            self.scrub_state = ScrubState { omap_keys: 0, omap_bytes: 0, repaired: 0, ..*parent };
        }
        // In the transaction of the split.
        let mut changes = RecordChanges::new(self.id);
        changes.scrub_state(&self.scrub_state);
        changes.into_txn(txn);
    }

    pub(super) fn keep_finding(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId, finding: Finding) {
        let Some(scrub) = self.scrub() else { return };
        scrub.kept += 1;
        if scrub.kept <= FINDINGS_MAX {
            let about_clones = matches!(finding, Finding::Snaps(_));
            let findings = vec![(object.clone(), about_clones, Some(finding))];
            self.share_note(ctx, ScrubNote { findings, ..ScrubNote::default() });
        }
    }
    pub(super) fn drop_finding(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId) {
        let findings = vec![(object.clone(), false, None)];
        self.share_note(ctx, ScrubNote { findings, ..ScrubNote::default() });
    }

    /// Keeps it, here and at all other members.
    pub(super) fn share_note(&mut self, ctx: &mut Ctx<'_>, note: ScrubNote) {
        let note = ScrubNote { state: self.scrub_state, ..note };
        self.store_note(ctx, &note);
        let Phase::Active(active) = &mut self.phase else { return };
        if note.forget {
            active.scrub.kept = 0;
        }
        for osd in active.members.keys() {
            let msg = Box::new(ScrubMsg::Note(note.clone()));
            ctx.out.push(PgEffect::ask(*osd, PgMsg::Scrub(msg)));
        }
    }

    pub(super) fn on_scrub_note(&mut self, ctx: &mut Ctx<'_>, from: OsdId, note: &ScrubNote) {
        let sound = note.findings.len() <= NOTED_MAX
            && note.findings.iter().all(|(object, ..)| self.range.contains(object));
        if self.interval.primary == Some(from) && self.is_merged_replica() && sound {
            self.scrub_state = note.state;
            self.store_note(ctx, note);
        }
    }

    fn store_note(&mut self, ctx: &mut Ctx<'_>, note: &ScrubNote) {
        let mut changes = RecordChanges::new(self.id);
        if note.forget {
            let walked = walk_findings(ctx.store, self.id, &mut |object, finding| {
                if note.forget_deep || !is_deep(&finding) {
                    changes.finding(&object, matches!(finding, Finding::Snaps(_)), None);
                }
                true
            });
            if let Err(error) = walked {
                ctx.log(Level::Error, format!("pg {}: {error}", self.id));
            }
        }
        for (object, about_clones, finding) in &note.findings {
            changes.finding(object, *about_clones, finding.as_ref());
        }
        changes.scrub_state(&note.state);
        let mut txn = Transaction::new();
        changes.into_txn(&mut txn);
        self.store(ctx, txn);
    }
}
