//! Compaction: several neighbouring sorted runs become one, in slices, in the background.
//!
//! Its inputs do not change, so a compaction needs nothing from the store but space to write to. Its output
//! replaces the inputs when a superblock names it.

use super::directory::Owners;
use super::page::Kind;
use super::writer::RunWriter;
use super::{Cursor, PageError, SortedRun, open};
use crate::BLOCK;
use crate::checkpoint::{Gathered, GatheredAll};
use crate::disk::{Disk, DiskError};
use crate::format::Geometry;
use crate::index::Totals;
use crate::space::Extent;
use nacre_proto::transaction::StoredId;
use std::sync::Arc;

/// What a slice writes, roughly.
pub(crate) const SLICE: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Compaction {
    geometry: Geometry,
    /// The oldest first.
    pub inputs: Vec<Arc<SortedRun>>,
    /// Nothing is below them: what was removed need not be noted.
    is_lowest: bool,
    cursors: Vec<Cursor>,
    /// Over all of them: what a checkpoint gathered, the last one first.
    newest: Option<Newest>,
    pub writer: RunWriter,
    /// Where it may write.
    pub space: Vec<Extent>,
    is_over: bool,
    /// One of the sorted runs cannot be read: its serial. Then all of this was for nothing.
    pub bad: Option<u64>,
}

/// What a checkpoint gathered, with what all objects are then.
#[derive(Debug)]
pub(crate) struct Newest {
    pub entries: Vec<Gathered>,
    pub totals: Totals,
    pub owners: Owners,
    /// Entries that were compacted.
    done: Vec<Gathered>,
}

impl Newest {
    pub fn new((mut entries, totals, owners): GatheredAll) -> Newest {
        entries.reverse();
        Newest { entries, totals, owners, done: Vec::new() }
    }
    /// As it was.
    pub fn into_parts(mut self) -> GatheredAll {
        self.entries.reverse();
        self.done.append(&mut self.entries);
        (self.done, self.totals, self.owners)
    }
}

impl Compaction {
    /// The sorted runs `inputs`, the oldest first, and perhaps something over them.
    pub fn new(
        geometry: Geometry,
        generation: u64,
        inputs: Vec<Arc<SortedRun>>,
        is_lowest: bool,
        newest: Option<Newest>,
    ) -> Compaction {
        let gathered = newest.as_ref().map_or(0, |newest| newest.entries.len() as u64);
        let entries = inputs.iter().map(|run| run.entries).sum::<u64>() + gathered;
        Compaction {
            geometry,
            is_lowest,
            cursors: inputs.iter().map(|_| Cursor::new()).collect(),
            writer: RunWriter::new(geometry.uuid, generation, entries),
            space: Vec::new(),
            is_over: false,
            bad: None,
            newest,
            inputs,
        }
    }
    pub fn is_done(&self) -> bool {
        self.bad.is_some() || self.writer.is_written()
    }
    pub fn take_newest(&mut self) -> Option<Newest> {
        self.newest.take()
    }
    /// Blocks that it needs to continue.
    pub fn wants(&self) -> u32 {
        let space: u64 = self.space.iter().map(|extent| u64::from(extent.len)).sum();
        let wanted = (self.writer.waiting().min(SLICE) + SLICE) / BLOCK + 8;
        (wanted as u64).saturating_sub(space) as u32
    }

    /// Goes on for a slice. What it wrote is not durable yet.
    pub fn run(&mut self, disk: &(impl Disk + ?Sized)) -> Result<(), DiskError> {
        if let Err((serial, _)) = self.advance(disk) {
            self.bad = Some(serial);
            return Ok(());
        }
        let space = &mut self.space;
        let take = |most: u32| {
            let extent = space.pop()?;
            let len = extent.len.min(most);
            if len < extent.len {
                space.push(Extent { start: extent.start + len, len: extent.len - len });
            }
            Some(Extent { start: extent.start, len })
        };
        let chunks = self.writer.cut(take);
        let writes =
            chunks.iter().map(|(extent, bytes)| (u64::from(extent.start) * BLOCK as u64, &bytes[..]));
        disk.write_many(&writes.collect::<Vec<_>>())
    }

    fn advance(&mut self, disk: &(impl Disk + ?Sized)) -> Result<(), (u64, PageError)> {
        while self.writer.waiting() < SLICE && !self.is_over {
            let mut least: Option<(StoredId, Vec<usize>)> = None;
            for (at, (cursor, run)) in self.cursors.iter_mut().zip(&self.inputs).enumerate() {
                let bad = |error| (run.serial, error);
                cursor.ready(run, |page| run.read_page(page, disk)).map_err(bad)?;
                match (cursor.peek(), &mut least) {
                    (None, _) => {}
                    (Some(id), Some((least, who))) if id == least => who.push(at),
                    (Some(id), Some((least, _))) if id > least => {}
                    (Some(id), _) => least = Some((id.clone(), vec![at])),
                }
            }
            let over = self.newest.as_mut().and_then(|newest| {
                let is_next = |(id, ..): &mut Gathered| least.as_ref().is_none_or(|(least, _)| *id <= *least);
                let entry = newest.entries.pop_if(is_next)?;
                newest.done.push(entry.clone());
                Some(entry)
            });
            let is_over =
                over.as_ref().is_some_and(|(id, ..)| least.as_ref().is_none_or(|(least, _)| id < least));
            let who = least.filter(|_| !is_over).map_or_else(Vec::new, |(_, who)| who);
            let stored = who.iter().map(|at| self.cursors[*at].next()).last().flatten();
            let Some((id, kind, body)) = over.or(stored) else {
                self.finish(disk)?;
                break;
            };
            if kind != Kind::Removed || !self.is_lowest {
                self.writer.push(kind, &super::page::id_bytes(&id), &body);
            }
        }
        Ok(())
    }

    fn finish(&mut self, disk: &(impl Disk + ?Sized)) -> Result<(), (u64, PageError)> {
        let mut owners = Owners::default();
        for run in &self.inputs {
            let opened = open(disk, &self.geometry, run.named);
            let (_, newer) = opened.map_err(|_| (run.serial, PageError::Order))?;
            owners = owners.overlaid(&newer);
        }
        let mut totals = self.inputs.last().map_or_else(Totals::none, |run| run.totals.clone());
        if let Some(newest) = &self.newest {
            owners = owners.overlaid(&newest.owners);
            totals = newest.totals.clone();
        }
        if self.is_lowest {
            owners.shrink();
        }
        self.writer.finish(totals, owners);
        self.is_over = true;
        Ok(())
    }
}
