//! `nacre store export` and `import`.

use super::{HALF_IMPORTED, Progress, Where, settle, without_id};
use anyhow::{Context, Result, bail, ensure};
use nacre_machine::StoreView;
use nacre_proto::transaction::StoredId;
use nacre_store::{EXPORT_HEADER, RECORD_HEADER, Store};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Export {
    #[command(flatten)]
    store: Where,
    /// File to create, or - for standard output
    file: PathBuf,
    /// Only objects of the pool with this id
    #[arg(long, value_name = "ID")]
    pool: Option<i64>,
}

#[derive(clap::Args)]
pub struct Import {
    #[command(flatten)]
    store: Where,
    /// File with an export, or - for standard input
    file: PathBuf,
    /// Import into a store with data; records in both are replaced
    #[arg(long)]
    force: bool,
}

/// Submitted at a time, before it goes to the device.
const BACKLOG_MAX: usize = 16 << 20;

pub fn export(options: &Export) -> Result<()> {
    let (store, disk, _) = options.store.open()?;
    ensure!(!store.is_half_imported().unwrap_or_default(), "{}", HALF_IMPORTED);
    let wanted = |id: &StoredId| match (options.pool, id.as_object()) {
        (None, _) => true,
        (Some(pool), Some((_, object))) => object.pool.0 == pool,
        (Some(_), None) => false,
    };
    let to_stdout = options.file == Path::new("-");
    let new = options.file.with_extension("part");
    let mut out: Box<dyn Write> = match to_stdout {
        true => Box::new(io::stdout().lock()),
        false => {
            ensure!(!options.file.exists(), "{} exists", options.file.display());
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
            Box::new(file.with_context(|| format!("cannot make {}", new.display()))?)
        }
    };
    let mut progress = Progress::new("exporting", store.statfs().stored);
    let mut written = 0;
    let result = nacre_store::export(&store, &*disk, wanted, |bytes| {
        written += bytes.len() as u64;
        progress.at(written);
        out.write_all(bytes)
    });
    let (records, damage) = result.context("cannot write the export")?;
    out.flush().context("cannot write the export")?;
    drop((out, progress));
    if !to_stdout {
        // The file has its name only when it is whole.
        File::open(&new)?.sync_all()?;
        fs::rename(&new, &options.file).with_context(|| format!("cannot make {}", options.file.display()))?;
    }
    eprintln!("exported {records} records, {written} bytes");
    for (id, error) in &damage {
        eprintln!("damaged, and marked as such in the export: {id}: {}", without_id(id, error));
    }
    ensure!(damage.is_empty(), "{} records are damaged; everything else is in the export", damage.len());
    Ok(())
}

pub fn import(options: &Import) -> Result<()> {
    let disk = options.store.open_disk()?;
    let path = options.store.path();
    let (mut store, _) = Store::open(&disk).with_context(|| options.store.unusable())?;
    if !options.force && store.ids().next().is_some() {
        bail!("{} already contains data: use --force to add to it", path.display());
    }
    let mut input: Box<dyn Read> = match options.file == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => {
            let file = File::open(&options.file);
            Box::new(file.with_context(|| format!("cannot open {}", options.file.display()))?)
        }
    };
    let records = read_in(&mut store, &disk, &path, &mut BufReader::with_capacity(1 << 20, &mut input))?;
    eprintln!("imported {records} records");
    Ok(())
}

fn read_in(
    store: &mut Store,
    disk: &nacre_node::FileDisk,
    path: &Path,
    input: &mut impl Read,
) -> Result<u64> {
    let mut header = [0; EXPORT_HEADER];
    input.read_exact(&mut header).context("this is not an export of a store")?;
    let mut import = nacre_store::Import::begin(&header)?;
    let mut progress = Progress::new("importing", 0);
    let (mut payload, mut done) = (Vec::new(), 0);
    while !import.is_finished() {
        let mut header = [0; RECORD_HEADER];
        if input.read_exact(&mut header).is_err() {
            break; // `finish` says what that means
        }
        let len = import.record_len(&header)?;
        payload.clear();
        // Grows as the bytes come, whatever the header says.
        input.take(len.into()).read_to_end(&mut payload).context("cannot read the export")?;
        import.record(&header, &payload, store, disk)?;
        done += payload.len() as u64;
        progress.at(done);
        if store.backlog() > BACKLOG_MAX {
            settle(store, disk, path)?;
        }
    }
    import.finish(store, disk).with_context(|| format!("the import into {} did not complete", path.display()))
}
