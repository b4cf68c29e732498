//! A store that is nearly full, and stays so while what is in it changes: whether it gets slower.

use super::disks::{Counted, Counts};
use super::{BLOCK, FILE_LEN, Folder, OBJECT_LEN, Until, data, fresh, median, object, overwrite, submit};
use anyhow::{Result, ensure};
use nacre_base::Rng;
use nacre_machine::StoreView;
use nacre_node::FileDisk;
use nacre_proto::transaction::Change;
use nacre_store::{Disk, Store};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What changes is a quarter of the store's size at a time.
const PART: u64 = FILE_LEN / 4;
/// How many 4 KiB writes are under way at a time.
const DEPTH: usize = 32;

#[derive(Clone, Copy)]
enum Kind {
    ComeAndGo,
    Overwrites,
}

/// What was done with a part.
struct Done {
    /// In 1e6 bytes a second.
    rate: f64,
    /// Writes of the device for each MiB, and bytes for each byte.
    writes: f64,
    bytes: f64,
}

pub(super) fn measure(folder: &Folder, churns: u64, rounds: usize) -> Result<()> {
    for kind in [Kind::ComeAndGo, Kind::Overwrites] {
        println!(
            "\na store filled to 95 %, {}:",
            match kind {
                Kind::ComeAndGo => "objects of 4 KiB to 4 MiB come and go",
                Kind::Overwrites => "4 KiB overwrites at random places of objects of 4 MiB, depth 32",
            }
        );
        let path = |name: &str| folder.0.join(name);
        let mut old = Full::filled(kind, FileDisk::create(&path("old"), FILE_LEN)?)?;
        let read_at_first = old.read_all(&path("old"))?;
        let parts: Vec<Done> = (0..churns * 4).map(|_| old.part()).collect::<Result<_>>()?;
        say("MB/s for each quarter of its size", &parts, 0, |done| done.rate);
        say("writes of the device for each MiB", &parts, 1, |done| done.writes);
        say("bytes written for each byte", &parts, 2, |done| done.bytes);
        println!(
            "all objects read, not from memory: {read_at_first:.0} MB/s when it was just filled, {:.0} at last",
            old.read_all(&path("old"))?
        );
        // What else the machine does changes over such a time.
        let (mut at_first, mut at_last) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let mut new = Full::filled(kind, FileDisk::create(&path("new"), FILE_LEN)?)?;
            at_first.push(new.part()?.rate);
            at_last.push(old.part()?.rate);
            std::fs::remove_file(path("new"))?;
        }
        let (at_first, at_last) = (median(at_first), median(at_last));
        println!(
            "in turn with one that was just filled, medians of {rounds}: {at_first:.0} and {at_last:.0} MB/s, ratio {:.2}",
            at_last / at_first
        );
        if matches!(kind, Kind::Overwrites) {
            old.kind = Kind::ComeAndGo;
            let parts: Vec<Done> = (0..4).map(|_| old.part()).collect::<Result<_>>()?;
            say("then other objects come and go, MB/s", &parts, 0, |done| done.rate);
        }
        let wrong = old.store.check();
        ensure!(wrong.is_empty(), "the store is not sound: {wrong:?}");
        std::fs::remove_file(path("old"))?;
    }
    Ok(())
}

fn say(what: &str, parts: &[Done], digits: usize, number: impl Fn(&Done) -> f64) {
    print!("{what:<38}");
    parts.iter().for_each(|done| print!("{:>7.digits$}", number(done)));
    println!();
}

struct Full {
    kind: Kind,
    disk: FileDisk,
    counts: Counts,
    store: Store,
    rng: Rng,
    /// Number and length of each object.
    here: Vec<(u64, u64)>,
    next: u64,
    /// What is to stay available.
    goal: u64,
}

impl Full {
    fn filled(kind: Kind, disk: FileDisk) -> Result<Full> {
        let store = fresh(&disk)?;
        let goal = store.statfs().available / 20;
        let (counts, rng) = (Counts::default(), Rng::new(1));
        let mut full = Full { kind, disk, counts, store, rng, here: Vec::new(), next: 0, goal };
        loop {
            let len = full.some_len();
            if !full.has_room(len) {
                full.store.request_checkpoint();
                full.store.settle(&full.disk)?;
                return Ok(full);
            }
            full.add(len)?;
        }
    }

    fn some_len(&mut self) -> u64 {
        match self.kind {
            Kind::ComeAndGo => {
                let len = (BLOCK as u64) << self.rng.below(11);
                len - self.rng.below(len / 2)
            }
            Kind::Overwrites => OBJECT_LEN,
        }
    }
    fn has_room(&self, len: u64) -> bool {
        self.store.statfs().available >= self.goal + len
    }
    fn add(&mut self, len: u64) -> Result<()> {
        let disk = Counted { disk: &self.disk, counts: &self.counts };
        submit(&mut self.store, &disk, self.next, Change::Write { offset: 0, data: data(len as usize) })?;
        self.here.push((self.next, len));
        self.next += 1;
        Ok(())
    }

    fn part(&mut self) -> Result<Done> {
        self.counts.take();
        let began = Instant::now();
        let written = match self.kind {
            Kind::ComeAndGo => self.come_and_go()?,
            Kind::Overwrites => self.overwrite()?,
        };
        let took = began.elapsed();
        let [durable, writes, _, bytes] = self.counts.take();
        Ok(Done {
            rate: written as f64 / took.as_secs_f64() / 1e6,
            writes: (durable + writes) as f64 / written as f64 * f64::from(1 << 20),
            bytes: bytes as f64 / written as f64,
        })
    }

    /// Whole objects, one after the other; bytes a second, in millions.
    fn read_all(&self, path: &Path) -> Result<f64> {
        self.disk.flush()?;
        let forgets = Command::new("dd")
            .arg(format!("if={}", path.display()))
            .args(["iflag=nocache", "count=0"])
            .output()?;
        ensure!(forgets.status.success(), "dd: {}", String::from_utf8_lossy(&forgets.stderr));
        let (began, mut read) = (Instant::now(), 0);
        for (n, len) in &self.here {
            let bytes = self.store.plan_read(&object(*n), &[(0, *len)])?.run(&self.disk)?;
            read += bytes.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        }
        Ok(read as f64 / began.elapsed().as_secs_f64() / 1e6)
    }

    fn come_and_go(&mut self) -> Result<u64> {
        let mut written = 0;
        while written < PART {
            let len = self.some_len();
            // For an object of that length, however many have to go: of those that happen to fit, most are
            // small, and after a while all that are here.
            while !self.has_room(len) {
                let gone = self.here.swap_remove(self.rng.below(self.here.len() as u64) as usize);
                let disk = Counted { disk: &self.disk, counts: &self.counts };
                submit(&mut self.store, &disk, gone.0, Change::Remove)?;
                // It is free when that is durable.
                self.store.settle(&disk)?;
            }
            self.add(len)?;
            written += len;
        }
        self.store.settle(&Counted { disk: &self.disk, counts: &self.counts })?;
        Ok(written)
    }

    fn overwrite(&mut self) -> Result<u64> {
        let disk = Counted { disk: &self.disk, counts: &self.counts };
        let seed = self.rng.below(u64::MAX);
        let writes = PART / BLOCK as u64;
        overwrite(&mut self.store, &disk, self.next, DEPTH, Until::Writes(writes), seed)?;
        Ok(PART)
    }
}
