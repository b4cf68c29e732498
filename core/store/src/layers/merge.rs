//! Making one layer of several neighbours, in slices, beside everything else.
//!
//! What is merged does not change, so a merge knows nothing of the store but where it may write. Its result
//! takes the place of the others when a superblock names it.

use super::directory::Owners;
use super::page::Kind;
use super::writer::LayerWriter;
use super::{Cursor, Layer, PageError, open};
use crate::BLOCK;
use crate::checkpoint::{Gathered, GatheredAll};
use crate::disk::{Disk, DiskError};
use crate::format::Geometry;
use crate::index::Totals;
use crate::space::Run;
use nacre_proto::transaction::StoredId;
use std::sync::Arc;

/// What a slice writes, roughly.
pub(crate) const SLICE: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Merge {
    geometry: Geometry,
    /// The oldest first.
    pub inputs: Vec<Arc<Layer>>,
    /// Nothing is below them: what was removed need not be noted.
    is_lowest: bool,
    cursors: Vec<Cursor>,
    /// Over all of them: what a checkpoint gathered, the last one first.
    newest: Option<Newest>,
    pub writer: LayerWriter,
    /// Where it may write.
    pub room: Vec<Run>,
    is_over: bool,
    /// One of the layers cannot be read: its serial. Then all of this was for nothing.
    pub bad: Option<u64>,
}

/// What a checkpoint gathered, with what all things are then.
#[derive(Debug)]
pub(crate) struct Newest {
    pub entries: Vec<Gathered>,
    pub totals: Totals,
    pub owners: Owners,
    /// Entries that were merged.
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

impl Merge {
    /// The layers `inputs`, the oldest first, and perhaps something over them.
    pub fn new(
        geometry: Geometry,
        generation: u64,
        inputs: Vec<Arc<Layer>>,
        is_lowest: bool,
        newest: Option<Newest>,
    ) -> Merge {
        let gathered = newest.as_ref().map_or(0, |newest| newest.entries.len() as u64);
        let entries = inputs.iter().map(|layer| layer.entries).sum::<u64>() + gathered;
        Merge {
            geometry,
            is_lowest,
            cursors: inputs.iter().map(|_| Cursor::new()).collect(),
            writer: LayerWriter::new(geometry.uuid, generation, entries),
            room: Vec::new(),
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
    /// Blocks that it needs to go on.
    pub fn wants(&self) -> u32 {
        let room: u64 = self.room.iter().map(|run| u64::from(run.len)).sum();
        let wanted = (self.writer.waiting().min(SLICE) + SLICE) / BLOCK + 8;
        (wanted as u64).saturating_sub(room) as u32
    }

    /// Goes on for a slice. What it wrote is not durable yet.
    pub fn run(&mut self, disk: &(impl Disk + ?Sized)) -> Result<(), DiskError> {
        if let Err((serial, _)) = self.advance(disk) {
            self.bad = Some(serial);
            return Ok(());
        }
        let room = &mut self.room;
        let take = |most: u32| {
            let run = room.pop()?;
            let len = run.len.min(most);
            if len < run.len {
                room.push(Run { start: run.start + len, len: run.len - len });
            }
            Some(Run { start: run.start, len })
        };
        let chunks = self.writer.cut(take);
        let writes = chunks.iter().map(|(run, bytes)| (u64::from(run.start) * BLOCK as u64, &bytes[..]));
        disk.write_many(&writes.collect::<Vec<_>>())
    }

    fn advance(&mut self, disk: &(impl Disk + ?Sized)) -> Result<(), (u64, PageError)> {
        while self.writer.waiting() < SLICE && !self.is_over {
            let mut least: Option<(StoredId, Vec<usize>)> = None;
            for (at, (cursor, layer)) in self.cursors.iter_mut().zip(&self.inputs).enumerate() {
                let bad = |error| (layer.serial, error);
                cursor.ready(layer, |page| layer.read_page(page, disk)).map_err(bad)?;
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
        for layer in &self.inputs {
            let opened = open(disk, &self.geometry, layer.named);
            let (_, newer) = opened.map_err(|_| (layer.serial, PageError::Order))?;
            owners = owners.overlaid(&newer);
        }
        let mut totals = self.inputs.last().map_or_else(Totals::none, |layer| layer.totals.clone());
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
