//! The checkpoint from the store's side: when one begins and what its end means, which layers become one.

use crate::BLOCK;
use crate::checkpoint::{Checkpoint, GatheredAll, blocks_for, blocks_for_changes};
use crate::format::{self, LAYERS_MAX, Superblock};
use crate::layers::Layer;
use crate::layers::merge::{Merge, Newest};
use crate::layers::writer::Chunks;
use crate::space::Run;
use crate::store::{HURRY, SLICE_MAX, Store};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// So many layers of similar size become one.
const ALIKE: usize = 4;

/// The merge that is under way, if one is.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    current: Option<Current>,
    /// Layers that cannot be read, by serial: they stay as they are.
    bad: BTreeSet<u64>,
    /// There was not enough space when so many blocks were free.
    refused: Option<u32>,
    next_serial: u64,
}

#[derive(Debug)]
struct Current {
    /// Which of the layers.
    range: Range<usize>,
    /// Blocks that it takes at most, that it has taken, and that will be free when it is named.
    estimate: u64,
    taken: Vec<Run>,
    frees: u64,
    /// What a checkpoint gathered is in it.
    with_checkpoint: bool,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Waiting(Box<Merge>),
    /// Another thread has it.
    UnderWay,
    /// It waits for a superblock. None: nothing is left.
    Written(Option<Box<Layer>>),
}

fn len(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.len)).sum()
}

impl Merging {
    /// Whether a layer could not be read, since the store was opened.
    pub fn met_rot(&self) -> bool {
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
    pub fn all_runs(&self) -> impl Iterator<Item = Run> + '_ {
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
        let room = self.log_room();
        // The next one may be larger than the whole log: then only a checkpoint can hold it.
        let is_short =
            room < self.log_blocks() / 3 || self.queue.front().is_some_and(|next| next.log_blocks() > room);
        if self.checkpoint.is_none() && self.layers.len() < LAYERS_MAX && (self.checkpoint_wanted || is_short)
        {
            self.checkpoint_wanted = false;
            let mut checkpoint = self.new_checkpoint();
            // Otherwise it is known when the last of them is handed over.
            checkpoint.log_pos = self.queue.is_empty().then_some(self.log_tail);
            self.checkpoint = Some(checkpoint);
        }
    }

    /// Whether there is no space for a layer, and then for all in one; or no layer more in a superblock.
    fn has_to_merge_all(&self) -> bool {
        let is_bad = self.layers.iter().any(|layer| self.merging.bad.contains(&layer.serial));
        let all = blocks_for(self.index.total.weight.encoded);
        let needed = blocks_for_changes(&self.index, &self.blocks) + self.merging.rest() + 2 * all;
        let is_short = needed + self.slack() > self.space.free().into();
        !is_bad && !self.layers.is_empty() && (is_short || self.layers.len() > LAYERS_MAX - 4)
    }

    pub(crate) fn new_checkpoint(&mut self) -> Checkpoint {
        let generation = self.generation + 1;
        let gathers = self.has_to_merge_all();
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
        let is_merged = checkpoint.gathered.is_some() && self.merging.is_written_with_checkpoint();
        if checkpoint.gathered.is_some() && !is_merged {
            return (Vec::new(), None);
        }
        let chunks = checkpoint.slice(&self.index, &self.blocks, &mut self.space, budget);
        chunks.iter().for_each(|(run, _)| self.blocks.inner.set(*run, Some(1)));
        if !checkpoint.is_written() && !is_merged {
            return (chunks, None);
        }
        let (seq, log_pos) = (checkpoint.seq, checkpoint.log_pos.expect("all up to it is written"));
        let layer = checkpoint.writer.named();
        let superblock = Some(self.superblock(seq, log_pos, layer));
        (chunks, superblock)
    }

    /// The next one: what was merged takes the place of what it was made of, and `newest` is added.
    fn superblock(&self, seq: u64, log_pos: u64, newest: Option<format::Layer>) -> Superblock {
        let mut layers: Vec<format::Layer> = self.layers.iter().map(|layer| layer.named).collect();
        if let Some(Current { range, step: Step::Written(layer), .. }) = &self.merging.current {
            layers.splice(range.clone(), layer.as_ref().map(|layer| layer.named));
        }
        layers.extend(newest);
        let (geometry, losses) = (self.geometry, self.losses);
        Superblock {
            version: format::VERSION,
            geometry,
            generation: self.generation + 1,
            seq,
            log_pos,
            losses,
            layers,
        }
    }
    /// The superblock that makes a merge count, if no checkpoint is going to.
    pub(crate) fn superblock_of_merge(&self) -> Option<Superblock> {
        let is_due = self.merging.is_written() && !self.merging.is_written_with_checkpoint();
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
        self.free_runs(old);
        if let Some(layer) = checkpoint.writer.into_layer() {
            let serial = self.merging.serial();
            self.layers.push(Arc::new(layer.with_serial(serial)));
        }
    }

    /// Of a checkpoint.
    fn free_runs(&mut self, runs: impl IntoIterator<Item = Run>) {
        for run in runs {
            self.blocks.inner.set(run, None);
            run.blocks().for_each(|block| self.free_block(block));
        }
    }

    // ---- merging ----

    /// Which neighbouring layers should be one: those of similar size.
    fn layers_to_merge(&self) -> Option<(Range<usize>, u64)> {
        let count = self.layers.len();
        let bad = self.layers.iter().rposition(|layer| self.merging.bad.contains(&layer.serial));
        let lowest = bad.map_or(0, |bad| bad + 1);
        if count - lowest < ALIKE || self.merging.refused.is_some_and(|free| self.space.free() <= free) {
            return None;
        }
        let blocks = |range: Range<usize>| self.layers[range].iter().map(|layer| layer.blocks()).sum::<u64>();
        let mut first = count - 1;
        let are_many = count > LAYERS_MAX / 2;
        while first > lowest && (are_many || blocks(first - 1..first) <= 2 * blocks(first..count)) {
            first -= 1;
        }
        let estimate = blocks(first..count) * 5 / 4 + 4;
        let all = blocks_for(self.index.total.weight.encoded);
        let needed = self.checkpoints_need() + self.slack() + 2 * all + estimate;
        (count - first >= ALIKE && needed <= self.space.free().into()).then_some((first..count, estimate))
    }

    /// What the checkpoint wants to be merged, if everything that it holds is in its place.
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

    /// The merge that should begin, if one should.
    fn begin_merge(&mut self) -> Option<Current> {
        let gathered = self.gather();
        let with_checkpoint = gathered.is_some();
        let (range, estimate) = match &self.checkpoint {
            Some(checkpoint) if with_checkpoint => (0..self.layers.len(), checkpoint.estimate),
            // It will want all layers soon.
            Some(checkpoint) if checkpoint.gathered.is_some() => return None,
            _ => self.layers_to_merge()?,
        };
        let inputs: Vec<Arc<Layer>> = self.layers[range.clone()].to_vec();
        let frees = inputs.iter().map(|layer| layer.blocks()).sum();
        let newest = gathered.map(Newest::new);
        let merge = Box::new(Merge::new(self.geometry, self.generation, inputs, range.start == 0, newest));
        let step = Step::Waiting(merge);
        Some(Current { range, estimate, taken: Vec::new(), frees, with_checkpoint, step })
    }

    /// A slice of merging for another thread; None while one is under way, or if there is nothing to merge.
    pub(crate) fn take_merge(&mut self) -> Option<Box<Merge>> {
        if self.merging.current.is_none() {
            self.merging.current = self.begin_merge();
        }
        // A checkpoint that waits for this needs nothing besides.
        let others = self.checkpoints_need();
        let current = self.merging.current.as_mut().filter(|c| matches!(c.step, Step::Waiting(_)))?;
        let Step::Waiting(mut merge) = std::mem::replace(&mut current.step, Step::UnderWay) else {
            unreachable!("it is waiting");
        };
        let left = current.estimate.saturating_sub(len(&current.taken));
        let mut wanted = merge.wants().min(u32::try_from(left).unwrap_or(u32::MAX));
        while wanted > 0
            && u64::from(self.space.free())
                >= u64::from(wanted) + if current.with_checkpoint { 0 } else { others }
            && let Some(run) = self.space.take_run(wanted)
        {
            merge.room.push(run);
            current.taken.push(run);
            self.blocks.inner.set(run, Some(1));
            wanted -= run.len;
        }
        if merge.room.is_empty() {
            let free = self.space.free();
            self.end_merge(*merge);
            self.merging.refused = Some(free);
            return None;
        }
        Some(merge)
    }

    /// Takes note of a slice.
    pub(crate) fn merged(&mut self, merge: Box<Merge>) {
        if let Some(bad) = merge.bad {
            self.merging.bad.insert(bad);
            return self.end_merge(*merge);
        }
        let is_done = merge.is_done();
        let current = self.merging.current.as_mut().expect("one is under way");
        if !is_done {
            current.step = Step::Waiting(merge);
            return;
        }
        let Merge { writer, room, .. } = *merge;
        current.taken = writer.all_runs().collect();
        current.step = Step::Written(writer.into_layer().map(Box::new));
        self.free_runs(room);
    }
    /// Nothing came of it.
    fn end_merge(&mut self, mut merge: Merge) {
        if let (Some(newest), Some(checkpoint)) = (merge.take_newest(), &mut self.checkpoint) {
            checkpoint.write_gathered(newest.into_parts());
        }
        let current = self.merging.current.take().expect("one is under way");
        self.free_runs(current.taken);
    }

    /// A superblock that names what was merged is durable.
    pub(crate) fn merge_named(&mut self) {
        let current = self.merging.current.take().expect("it was written");
        let Step::Written(layer) = current.step else { unreachable!("it was written") };
        let serial = self.merging.serial();
        self.merging.refused = None;
        let layer = layer.map(|layer| Arc::new(layer.with_serial(serial)));
        let old: Vec<Arc<Layer>> = self.layers.splice(current.range, layer).collect();
        self.free_runs(old.iter().flat_map(|layer| layer.all_runs()));
    }
}
