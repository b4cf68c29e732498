//! `nacre store mark-complete`.

use super::{Where, settle};
use anyhow::{Context, Result, bail, ensure};
use nacre_base::PgId;
use nacre_osd::stored;
use nacre_proto::transaction::Transaction;
use nacre_store::Store;

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    store: Where,
    /// Placement groups to declare complete; without, candidates are listed
    #[arg(value_name = "PGID", value_parser = pg)]
    pgs: Vec<PgId>,
    /// Confirm that clients get the local copy from now on, and that writes it lacks are lost
    #[arg(long, requires = "pgs")]
    yes_i_really_mean_it: bool,
}

fn pg(text: &str) -> Result<PgId, &'static str> {
    text.parse().map_err(|()| "a placement group id is like 2.1f")
}

pub fn mark_complete(options: &Options) -> Result<()> {
    if options.pgs.is_empty() {
        let (store, ..) = options.store.open()?;
        stored::incomplete_pgs(&store)?.iter().for_each(|pg| println!("{pg}"));
        return Ok(());
    }
    ensure!(
        options.yes_i_really_mean_it,
        "clients will be served the local copy, and writes that it lacks are lost even if another OSD \
         returns with them: if none will return, confirm with --yes-i-really-mean-it"
    );
    let disk = options.store.open_disk()?;
    let (mut store, _) = Store::open(&disk).with_context(|| options.store.unusable())?;
    let mut unreadable = 0;
    for &pg in &options.pgs {
        let mut txn = Transaction::new();
        let accepted = stored::mark_complete(&store, pg, &mut txn)?;
        store.submit(txn)?;
        settle(&mut store, &disk, &options.store.path())?;
        println!("pg {pg}: {} objects, {} of them stale", accepted.objects, accepted.stale);
        accepted.unreadable.iter().for_each(|object| eprintln!("damaged: {object}"));
        unreadable += accepted.unreadable.len();
    }
    if unreadable > 0 {
        bail!("{unreadable} objects are damaged and stay damaged; everything else was accepted");
    }
    Ok(())
}
