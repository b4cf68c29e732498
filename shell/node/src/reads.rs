//! Small reads that take the device, under way on the daemon's own thread through io_uring.
//!
//! For each read of a thread of its own, that thread is woken twice and the daemon's once more than here; for 4 KiB
//! that takes more than all the rest. Large reads are not for this: whoever sums them should be another thread.

use crate::parts::Parts;
use io_uring::{IoUring, opcode, types};
use nacre_machine::Token;
use nacre_store::ReadPlan;
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Requests under way at most, of which a read has one for each run of neighbouring blocks.
const DEPTH: usize = 128;

/// Reads that are under way. Whoever begins some calls `submit`, and `finished` whenever `ready` is readable.
pub(crate) struct Reads {
    ring: IoUring,
    /// Readable when there is something for `finished`.
    pub ready: Rc<AsyncFd<OwnedFd>>,
    file: Arc<File>,
    /// By the slot that the requests of a read carry; None is free.
    slots: Vec<Option<Reading>>,
    /// Requests that were begun and are not complete.
    requests: usize,
    /// Of them, those that the kernel was not told of.
    queued: usize,
}

struct Reading {
    token: Token,
    plan: ReadPlan,
    parts: Parts,
    /// Parts that are not complete.
    left: usize,
    is_whole: bool,
}

/// A read whose requests are complete.
pub(crate) struct Finished {
    pub token: Token,
    pub plan: ReadPlan,
    pub parts: Parts,
    /// False if a part of it failed or came short: then somebody else is to find out what is wrong, and where.
    pub is_whole: bool,
}

impl Reads {
    /// None where the kernel has no io_uring or does not let us. For the calling thread only, which runs a reactor.
    pub fn new(file: Arc<File>) -> Option<Reads> {
        // Completions then wait until this thread asks for them, instead of interrupting it. Kernels before 6.1 do
        // not know that.
        let mut lean = IoUring::builder();
        lean.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        let ring = lean.build(DEPTH as u32).or_else(|_| IoUring::new(DEPTH as u32)).ok()?;
        let ready = Rc::new(ready(&ring).ok()?);
        let slots = (0..DEPTH).map(|_| None).collect();
        Some(Reads { ring, ready, file, slots, requests: 0, queued: 0 })
    }

    /// Puts a read in line for `submit`. What there is no room for comes back.
    pub fn begin(&mut self, token: Token, plan: ReadPlan) -> Option<ReadPlan> {
        let mut parts = Parts::of(&plan);
        let count = parts.0.len();
        let free = self.slots.iter().position(Option::is_none);
        let Some(slot) = free.filter(|_| self.requests + count <= DEPTH) else { return Some(plan) };
        for (at, (offset, bytes)) in parts.0.iter_mut().enumerate() {
            let bytes = bytes.as_mut();
            let len = u32::try_from(bytes.len()).expect("a small read");
            let entry = opcode::Read::new(types::Fd(self.file.as_raw_fd()), bytes.as_mut_ptr(), len)
                .offset(*offset)
                .build()
                .user_data((slot * DEPTH + at) as u64);
            // SAFETY: the kernel writes to the bytes until this completes. They are on the heap and belong to the
            // slot, which nobody looks into before all of its requests are complete, and which is never freed
            // otherwise (`drop`).
            #[allow(unsafe_code)]
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("as much room as requests");
        }
        self.requests += count;
        self.queued += count;
        self.slots[slot] = Some(Reading { token, plan, parts, left: count, is_whole: true });
        None
    }

    /// Tells the kernel what was begun. What it does not take now, it is told the next time.
    pub fn submit(&mut self) {
        while self.queued > 0 {
            match self.ring.submit() {
                Ok(taken) => self.queued -= taken.min(self.queued),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    tracing::warn!("io_uring takes no reads: {e}");
                    return;
                }
            }
        }
    }

    /// The reads that are complete.
    pub fn finished(&mut self) -> Vec<Finished> {
        // The kernel completes nothing for a thread that does not ask.
        if let Err(e) = self.ring.submit() {
            tracing::debug!("io_uring: {e}");
        }
        let mut finished = Vec::new();
        for completion in self.ring.completion() {
            let (slot, at) =
                (completion.user_data() as usize / DEPTH, completion.user_data() as usize % DEPTH);
            let reading = self.slots[slot].as_mut().expect("it has a request under way");
            let len = reading.parts.0[at].1.as_ref().len();
            reading.is_whole &= usize::try_from(completion.result()) == Ok(len);
            reading.left -= 1;
            self.requests -= 1;
            if reading.left == 0 {
                let Reading { token, plan, parts, is_whole, .. } = self.slots[slot].take().expect("as above");
                finished.push(Finished { token, plan, parts, is_whole });
            }
        }
        finished
    }
}

/// The ring's own descriptor does not do: kernels do not say there that a completion waits to be asked for.
fn ready(ring: &IoUring) -> io::Result<AsyncFd<OwnedFd>> {
    let fd = eventfd(0, EventfdFlags::CLOEXEC)?;
    ring.submitter().register_eventfd(fd.as_raw_fd())?;
    // SAFETY: it owns the descriptor, and gives always the same.
    #[allow(unsafe_code)]
    let ready = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(ready?)
}

impl Drop for Reads {
    fn drop(&mut self) {
        // The kernel may still write to what is under way, and a device may hang: so nobody waits for it, and that
        // memory is never used for anything else.
        self.slots.drain(..).for_each(std::mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::FileDisk;
    use nacre_proto::transaction::{Change, StoredId, Transaction};
    use nacre_store::{BLOCK, Options, Store};
    use std::path::Path;

    /// A store with forty objects of which no two blocks are alike.
    fn filled(path: &Path) -> (Store, FileDisk) {
        let disk = FileDisk::create(path, 256 << 20).unwrap();
        Store::format(&disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
        let (mut store, _) = Store::open(&disk).unwrap();
        for n in 0..40 {
            let data: Vec<u8> =
                (0..128 << 10).map(|at| (n * 32 + at / BLOCK as u64 + at % 7) as u8).collect();
            let mut txn = Transaction::new();
            txn.push(id(n), Change::Write { offset: 0, data: data.into() });
            store.submit(txn).unwrap();
        }
        store.settle(&disk).unwrap();
        (store, disk)
    }

    fn id(n: u64) -> StoredId {
        StoredId::Meta(n.to_string().into())
    }

    fn plan(store: &Store, n: u64) -> ReadPlan {
        let extents = [(n % 4 * 1000, 3 * BLOCK as u64), (90_000, 10)];
        let plan = store.plan_read(&id(n), &extents).unwrap();
        assert_eq!(plan.runs().len(), 2);
        plan
    }

    /// As a daemon does it.
    async fn all(reads: &mut Reads, count: usize) -> Vec<Finished> {
        let (ready, mut all) = (reads.ready.clone(), Vec::new());
        while all.len() < count {
            let mut readable = ready.readable().await.unwrap();
            readable.clear_ready();
            all.extend(reads.finished());
        }
        all
    }

    #[tokio::test]
    async fn reads_under_way_together_give_what_each_gives_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (store, disk) = filled(&dir.path().join("disk"));
        let Some(mut reads) = disk.reads() else { return }; // no io_uring here
        for _ in 0..3 {
            let begun =
                (0..40).map(|n| reads.begin(n, plan(&store, n)).is_none()).filter(|begun| *begun).count();
            assert!((DEPTH / 8..=40).contains(&begun), "{begun}");
            reads.submit();
            let all = tokio::time::timeout(std::time::Duration::from_secs(60), all(&mut reads, begun)).await;
            for read in all.expect("the kernel tells of all of them") {
                assert!(read.is_whole);
                let (bytes, _) = read.plan.run_fetching(|wanted| read.parts.read(wanted)).unwrap();
                assert_eq!(bytes, plan(&store, read.token).run(&disk).unwrap());
            }
            assert_eq!((reads.requests, reads.queued), (0, 0));
        }
    }

    #[tokio::test]
    async fn a_read_that_comes_short_is_told_and_the_others_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let (store, disk) = filled(&path);
        let Some(mut reads) = disk.reads() else { return };
        let end = |n: u64| plan(&store, n).runs().iter().map(|(at, len)| at + *len as u64).max().unwrap();
        let last = (0..40).max_by_key(|n| end(*n)).unwrap();
        // It became shorter behind our back.
        File::options().write(true).open(&path).unwrap().set_len(end(last) - 100).unwrap();
        for n in [last, 1, 2] {
            assert!(reads.begin(n, plan(&store, n)).is_none());
        }
        reads.submit();
        assert!(all(&mut reads, 3).await.iter().all(|read| read.is_whole == (read.token != last)));
    }

    #[tokio::test]
    async fn memory_of_reads_that_nobody_waits_for_is_not_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let (store, disk) = filled(&dir.path().join("disk"));
        let Some(mut reads) = disk.reads() else { return };
        assert!(reads.begin(1, plan(&store, 1)).is_none());
        reads.submit();
        let kept = nacre_base::buffer::kept();
        drop(reads);
        assert_eq!(nacre_base::buffer::kept(), kept);
    }
}
