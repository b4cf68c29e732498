//! `nacre store fsck`.

use super::{HALF_IMPORTED, Progress, Where, settle, without_id};
use crate::Format;
use anyhow::{Context, Result, bail};
use nacre_machine::StoreView;
use nacre_store::{Readable, Report, Store};
use serde_json::{Value, json};

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    store: Where,
    /// Read all data and verify all checksums
    #[arg(long)]
    deep: bool,
    /// Rewrite a damaged superblock, free blocks without an owner, and write a new checkpoint
    #[arg(long)]
    repair: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Findings.
struct Found {
    report: Report,
    repaired: bool,
    wrong: Vec<String>,
    readable: Option<Readable>,
    allocated: u64,
}

pub fn fsck(options: &Options) -> Result<()> {
    let found = if options.repair { repair(options)? } else { look(options)? };
    match options.format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&found.json())?),
        Format::Table => print!("{}", found.text()),
    }
    if !found.is_sound() {
        bail!("{} is not sound", options.store.path().display());
    }
    Ok(())
}

fn look(options: &Options) -> Result<Found> {
    let (store, disk, report) = options.store.open()?;
    let readable = options.deep.then(|| read_all(&store, &*disk));
    Ok(Found::new(&store, report, false, readable))
}

fn repair(options: &Options) -> Result<Found> {
    let disk = options.store.open_disk()?;
    let unusable = || options.store.unusable();
    // Opening renews superblocks.
    let (mut store, report) = Store::open_repaired(&disk).with_context(unusable)?;
    store.request_checkpoint();
    settle(&mut store, &disk, &options.store.path())?;
    drop(store);
    let (store, _) = Store::open(&disk).with_context(unusable)?;
    let readable = options.deep.then(|| read_all(&store, &disk));
    Ok(Found::new(&store, report, true, readable))
}

fn read_all(store: &Store, disk: &impl nacre_store::Disk) -> Readable {
    let mut progress = Progress::new("reading", store.statfs().stored);
    store.read_all(disk, |done| progress.at(done))
}

impl Found {
    fn new(store: &Store, report: Report, repaired: bool, readable: Option<Readable>) -> Found {
        let allocated = store.statfs().allocated;
        let mut wrong = store.check();
        // One that cannot be read is reported by itself.
        if store.is_half_imported().unwrap_or(false) {
            wrong.push(HALF_IMPORTED.to_string());
        }
        Found { report, repaired, wrong, readable, allocated }
    }

    fn is_sound(&self) -> bool {
        let readable = self.readable.as_ref().is_none_or(|readable| readable.errors.is_empty());
        let superblocks = self.repaired || !self.report.superblock_damaged;
        let log = self.report.lost.is_none() && self.report.lost_blocks.is_empty();
        self.wrong.is_empty() && readable && superblocks && log
    }

    fn json(&self) -> Value {
        let readable = self.readable.as_ref().map(|readable| {
            let damaged: Vec<Value> = readable
                .errors
                .iter()
                .map(|(id, error)| json!({ "id": id.to_string(), "error": error.to_string() }))
                .collect();
            json!({ "bytes_read": readable.bytes, "bytes_lost": readable.lost, "damaged": damaged })
        });
        json!({
            "sound": self.is_sound(),
            "repaired": self.repaired,
            "objects": self.report.objects,
            "allocated_bytes": self.allocated,
            "last_transaction": self.report.last.0,
            "checkpoint_transaction": self.report.checkpoint.0,
            "torn_tail": self.report.torn_tail,
            "superblock_damaged": self.report.superblock_damaged,
            "freed_bytes": self.report.freed * nacre_store::BLOCK as u64,
            "log_records_damaged": self.report.repaired,
            "log_blocks_lost": self.report.lost_blocks.iter().map(|(id, block)| json!({ "id": id.to_string(), "block": block })).collect::<Vec<_>>(),
            "transactions_lost": self.report.lost.map(|(first, last)| [first.0, last.0]),
            "losses": self.report.losses,
            "wrong": self.wrong,
            "data": readable,
        })
    }

    fn text(&self) -> String {
        let Report { objects, last, checkpoint, torn_tail, superblock_damaged, repaired, freed, .. } =
            self.report;
        let mut out = format!(
            "{objects} records in {} blocks; {} transactions, {} of them in the log\n",
            super::blocks(self.allocated),
            last.0,
            last.0 - checkpoint.0
        );
        if torn_tail {
            out += "the last batch was incomplete when the store was last used; it was never acknowledged\n";
        }
        if superblock_damaged {
            let now = if self.repaired {
                "was damaged and has been rewritten"
            } else {
                "is damaged: --repair rewrites it"
            };
            out += &format!("one copy of the superblock {now}\n");
        }
        if freed > 0 {
            out += &format!("{freed} blocks without an owner were freed\n");
        }
        if repaired > 0 {
            out += &format!("{repaired} damaged records in the log\n");
        }
        for (id, block) in &self.report.lost_blocks {
            out += &format!("lost with the log: {id}: block {block}\n");
        }
        if let Some((first, last)) = self.report.lost {
            out += &format!(
                "lost with the log: transactions {} to {}; the store is in the state before them\n",
                first.0, last.0
            );
        }
        self.wrong.iter().for_each(|line| out += &format!("wrong: {line}\n"));
        if let Some(readable) = &self.readable {
            for (id, error) in &readable.errors {
                out += &format!("damaged: {id}: {}\n", without_id(id, error));
            }
            out += &format!("{} bytes of data read, {} damaged\n", readable.bytes, readable.lost);
        }
        out += if self.is_sound() { "sound\n" } else { "not sound\n" };
        out
    }
}
