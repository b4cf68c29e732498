//! Checkpoints and compactions from the store's side: when they begin, what their end means, and which
//! sorted runs are compacted.

use crate::BLOCK;
use crate::checkpoint::{Checkpoint, GatheredAll, blocks_for, blocks_for_changes};
use crate::format::{self, RUNS_MAX, Superblock};
use crate::runs::SortedRun;
use crate::runs::compaction::{Compaction, Newest};
use crate::runs::writer::Chunks;
use crate::space::Extent;
use crate::store::{HURRY, SLICE_MAX, Store};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// This many sorted runs of similar size become one.
const ALIKE: usize = 4;

/// The compaction that is under way, if one is.
#[derive(Debug, Default)]
pub(crate) struct CompactionState {
    current: Option<Current>,
    /// Layers that cannot be read, by serial: they stay as they are.
    bad: BTreeSet<u64>,
    /// There was not enough space when this many blocks were free.
    refused: Option<u32>,
    next_serial: u64,
}

#[derive(Debug)]
struct Current {
    /// Which of the sorted runs.
    range: Range<usize>,
    /// Blocks that it takes at most, that it has taken, and that will be free when it is named.
    estimate: u64,
    taken: Vec<Extent>,
    frees: u64,
    /// What a checkpoint gathered is in it.
    with_checkpoint: bool,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Waiting(Box<Compaction>),
    /// Another thread has it.
    UnderWay,
    /// It waits for a superblock. None: nothing is left.
    Written(Option<Box<SortedRun>>),
}

fn len(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.len)).sum()
}

impl CompactionState {
    /// Whether a sorted run could not be read, since the store was opened.
    pub fn met_corruption(&self) -> bool {
        !self.bad.is_empty()
    }
    /// Blocks that it will still need.
    pub fn rest(&self) -> u64 {
        let rest = |current: &Current| match current.step {
            Step::Written(_) => 0,
            _ => current.estimate.saturating_sub(len(&current.taken)),
        };
        self.current.as_ref().map_or(0, rest)
    }
    /// Blocks that become free at its end.
    pub fn frees(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.frees)
    }
    /// Blocks that it has.
    pub fn blocks(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| len(&current.taken))
    }
    pub fn all_extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.current.iter().flat_map(|current| current.taken.iter().copied())
    }
    pub fn is_under_way(&self) -> bool {
        matches!(&self.current, Some(Current { step: Step::UnderWay, .. }))
    }
    pub fn is_written(&self) -> bool {
        matches!(&self.current, Some(Current { step: Step::Written(_), .. }))
    }
    fn is_written_with_checkpoint(&self) -> bool {
        self.is_written() && self.current.as_ref().is_some_and(|current| current.with_checkpoint)
    }
    pub fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }
}

impl Store {
    /// If one was asked for, or the log needs it.
    pub(crate) fn begin_checkpoint(&mut self) {
        let room = self.log_space();
        // The next one may be larger than the whole log: then only a checkpoint can hold it.
        let is_short =
            room < self.log_blocks() / 3 || self.queue.front().is_some_and(|next| next.log_blocks() > room);
        if self.checkpoint.is_none() && self.runs.len() < RUNS_MAX && (self.checkpoint_wanted || is_short) {
            self.checkpoint_wanted = false;
            let mut checkpoint = self.new_checkpoint();
            // Otherwise it is known when the last of them is handed over.
            checkpoint.log_pos = self.queue.is_empty().then_some(self.log_tail);
            self.checkpoint = Some(checkpoint);
        }
    }

    /// Whether there is no space for a sorted run, and then for all in one; or no sorted run more in a
    /// superblock.
    fn needs_full_compaction(&self) -> bool {
        let is_bad = self.runs.iter().any(|run| self.compaction.bad.contains(&run.serial));
        let all = blocks_for(self.index.total.weight.encoded);
        let needed = blocks_for_changes(&self.index, &self.blocks) + self.compaction.rest() + 2 * all;
        let is_short = needed + self.slack() > self.space.free().into();
        !is_bad && !self.runs.is_empty() && (is_short || self.runs.len() > RUNS_MAX - 4)
    }

    pub(crate) fn new_checkpoint(&mut self) -> Checkpoint {
        let generation = self.generation + 1;
        let gathers = self.needs_full_compaction();
        Checkpoint::new(
            gathers,
            &self.geometry,
            generation,
            self.submitted,
            &mut self.index,
            &mut self.blocks,
        )
    }

    /// The next chunks of the checkpoint, and the superblock if they are the last.
    pub(crate) fn advance_checkpoint(&mut self, last_seq: u64) -> (Chunks, Option<Superblock>) {
        let Some(checkpoint) = &mut self.checkpoint else {
            return (Vec::new(), None);
        };
        if checkpoint.log_pos.is_none() && last_seq == checkpoint.seq {
            checkpoint.log_pos = Some(self.log_tail);
        }
        // Before that, the checksums of blocks under way are not known; and what a checkpoint holds is
        // in its place, for the log before it is given up.
        if self.written < checkpoint.seq || self.deferred.oldest().is_some_and(|seq| seq <= checkpoint.seq) {
            return (Vec::new(), None);
        }
        // In proportion to the log, which has to last until the checkpoint ends.
        let slice = (u64::from(self.geometry.log_blocks) * BLOCK as u64 / 16).min(SLICE_MAX);
        let budget = if self.queue.is_empty() { slice } else { slice * HURRY } as usize;
        let is_compacted = checkpoint.gathered.is_some() && self.compaction.is_written_with_checkpoint();
        if checkpoint.gathered.is_some() && !is_compacted {
            return (Vec::new(), None);
        }
        let chunks = checkpoint.slice(&self.index, &self.blocks, &mut self.space, budget);
        chunks.iter().for_each(|(extent, _)| self.blocks.inner.set(*extent, Some(1)));
        if !checkpoint.is_written() && !is_compacted {
            return (chunks, None);
        }
        let (seq, log_pos) = (checkpoint.seq, checkpoint.log_pos.expect("all up to it is written"));
        let run = checkpoint.writer.named();
        let superblock = Some(self.superblock(seq, log_pos, run));
        (chunks, superblock)
    }

    /// The next one: what was compacted takes the place of what it was made of, and `newest` is added.
    fn superblock(&self, seq: u64, log_pos: u64, newest: Option<format::RunRef>) -> Superblock {
        let mut runs: Vec<format::RunRef> = self.runs.iter().map(|run| run.named).collect();
        if let Some(Current { range, step: Step::Written(run), .. }) = &self.compaction.current {
            runs.splice(range.clone(), run.as_ref().map(|run| run.named));
        }
        runs.extend(newest);
        let (geometry, losses) = (self.geometry, self.losses);
        Superblock {
            version: format::VERSION,
            geometry,
            generation: self.generation + 1,
            seq,
            log_pos,
            losses,
            runs,
        }
    }
    /// The superblock that makes a compaction count, if no checkpoint is going to.
    pub(crate) fn superblock_of_compaction(&self) -> Option<Superblock> {
        let is_due = self.compaction.is_written() && !self.compaction.is_written_with_checkpoint();
        is_due.then(|| self.superblock(self.checkpointed, self.log_head, None))
    }
    pub(crate) fn checkpoint_ended(&mut self) {
        let checkpoint = self.checkpoint.take().expect("the batch ended a checkpoint");
        self.durable = self.durable.max(checkpoint.seq);
        self.log_head = checkpoint.log_pos.expect("a finished checkpoint knows its place");
        self.is_unconfirmed &= self.log_head < self.log_tail;
        self.forget_notes_up_to(checkpoint.seq);
        self.checkpointed = checkpoint.seq;
        self.stored_mark = checkpoint.mark;
        self.leaving.extend(checkpoint.ids.into_iter().map(|id| (id, checkpoint.mark)));
        let old = std::mem::take(&mut self.old_chunks);
        self.free_extents(old);
        if let Some(run) = checkpoint.writer.into_run() {
            let serial = self.compaction.serial();
            self.runs.push(Arc::new(run.with_serial(serial)));
        }
    }

    /// Of a checkpoint.
    fn free_extents(&mut self, extents: impl IntoIterator<Item = Extent>) {
        for extent in extents {
            self.blocks.inner.set(extent, None);
            extent.blocks().for_each(|block| self.free_block(block));
        }
    }

    // ---- compaction ----

    /// Which neighbouring sorted runs should be one: those of similar size.
    fn runs_to_compact(&self) -> Option<(Range<usize>, u64)> {
        let count = self.runs.len();
        let bad = self.runs.iter().rposition(|run| self.compaction.bad.contains(&run.serial));
        let lowest = bad.map_or(0, |bad| bad + 1);
        if count - lowest < ALIKE || self.compaction.refused.is_some_and(|free| self.space.free() <= free) {
            return None;
        }
        let blocks = |range: Range<usize>| self.runs[range].iter().map(|run| run.blocks()).sum::<u64>();
        let mut first = count - 1;
        let are_many = count > RUNS_MAX / 2;
        while first > lowest && (are_many || blocks(first - 1..first) <= 2 * blocks(first..count)) {
            first -= 1;
        }
        let estimate = blocks(first..count) * 5 / 4 + 4;
        let all = blocks_for(self.index.total.weight.encoded);
        let needed = self.checkpoints_need() + self.slack() + 2 * all + estimate;
        (count - first >= ALIKE && needed <= self.space.free().into()).then_some((first..count, estimate))
    }

    /// What the checkpoint wants to be compacted, if everything that it holds is in its place.
    fn gather(&mut self) -> Option<GatheredAll> {
        let checkpoint = self.checkpoint.as_mut().filter(|checkpoint| checkpoint.gathered.is_some())?;
        let is_placed = self.deferred.oldest().is_none_or(|seq| seq > checkpoint.seq);
        if self.written < checkpoint.seq || !is_placed {
            return None;
        }
        // At once: a batch that only walks would be none.
        checkpoint.slice(&self.index, &self.blocks, &mut self.space, usize::MAX);
        checkpoint.take_gathered()
    }

    /// The compaction that should begin, if one should.
    fn begin_compaction(&mut self) -> Option<Current> {
        let gathered = self.gather();
        let with_checkpoint = gathered.is_some();
        let (range, estimate) = match &self.checkpoint {
            Some(checkpoint) if with_checkpoint => (0..self.runs.len(), checkpoint.estimate),
            // It will want all sorted runs soon.
            Some(checkpoint) if checkpoint.gathered.is_some() => return None,
            _ => self.runs_to_compact()?,
        };
        let inputs: Vec<Arc<SortedRun>> = self.runs[range.clone()].to_vec();
        let frees = inputs.iter().map(|run| run.blocks()).sum();
        let newest = gathered.map(Newest::new);
        let compaction =
            Box::new(Compaction::new(self.geometry, self.generation, inputs, range.start == 0, newest));
        let step = Step::Waiting(compaction);
        Some(Current { range, estimate, taken: Vec::new(), frees, with_checkpoint, step })
    }

    /// A slice of compaction for another thread; None while one is under way, or if there is nothing to
    /// merge.
    pub(crate) fn take_compaction(&mut self) -> Option<Box<Compaction>> {
        if self.compaction.current.is_none() {
            self.compaction.current = self.begin_compaction();
        }
        // A checkpoint that waits for this needs nothing besides.
        let others = self.checkpoints_need();
        let current = self.compaction.current.as_mut().filter(|c| matches!(c.step, Step::Waiting(_)))?;
        let Step::Waiting(mut compaction) = std::mem::replace(&mut current.step, Step::UnderWay) else {
            unreachable!("it is waiting");
        };
        let left = current.estimate.saturating_sub(len(&current.taken));
        let mut wanted = compaction.wants().min(u32::try_from(left).unwrap_or(u32::MAX));
        while wanted > 0
            && u64::from(self.space.free())
                >= u64::from(wanted) + if current.with_checkpoint { 0 } else { others }
            && let Some(extent) = self.space.take_extent(wanted)
        {
            compaction.space.push(extent);
            current.taken.push(extent);
            self.blocks.inner.set(extent, Some(1));
            wanted -= extent.len;
        }
        if compaction.space.is_empty() {
            let free = self.space.free();
            self.abandon_compaction(*compaction);
            self.compaction.refused = Some(free);
            return None;
        }
        Some(compaction)
    }

    /// Takes note of a slice.
    pub(crate) fn compaction_advanced(&mut self, compaction: Box<Compaction>) {
        if let Some(bad) = compaction.bad {
            self.compaction.bad.insert(bad);
            return self.abandon_compaction(*compaction);
        }
        let is_done = compaction.is_done();
        let current = self.compaction.current.as_mut().expect("one is under way");
        if !is_done {
            current.step = Step::Waiting(compaction);
            return;
        }
        let Compaction { writer, space, .. } = *compaction;
        current.taken = writer.all_extents().collect();
        current.step = Step::Written(writer.into_run().map(Box::new));
        self.free_extents(space);
    }
    /// Nothing came of it.
    fn abandon_compaction(&mut self, mut compaction: Compaction) {
        if let (Some(newest), Some(checkpoint)) = (compaction.take_newest(), &mut self.checkpoint) {
            checkpoint.write_gathered(newest.into_parts());
        }
        let current = self.compaction.current.take().expect("one is under way");
        self.free_extents(current.taken);
    }

    /// A superblock that names what was compacted is durable.
    pub(crate) fn compaction_committed(&mut self) {
        let current = self.compaction.current.take().expect("it was written");
        let Step::Written(run) = current.step else { unreachable!("it was written") };
        let serial = self.compaction.serial();
        self.compaction.refused = None;
        let run = run.map(|run| Arc::new(run.with_serial(serial)));
        let old: Vec<Arc<SortedRun>> = self.runs.splice(current.range, run).collect();
        self.free_extents(old.iter().flat_map(|run| run.all_extents()));
    }
}
