//! What a daemon's own thread asks of the disk, through io_uring: small reads, and the log's small writes.
//!
//! For each of these that another thread does, that thread is woken twice and the daemon's once more than
//! here; for 4 KiB that takes more than all the rest. Large ones are not for this: their checksums are for
//! another thread.

use crate::parts::Parts;
use io_uring::{IoUring, opcode, squeue, types};
use nacre_base::Buffer;
use nacre_machine::Token;
use nacre_store::{Append, ReadPlan};
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Requests under way at most. A read has one for each run of neighbouring blocks.
const DEPTH: usize = 128;
/// Of them for reads; the log has the rest.
const READS_MAX: usize = DEPTH - 1;

/// Requests that are under way. The caller that begins some calls `submit`, and `finished` whenever `ready`
/// is readable.
pub(crate) struct Requests {
    ring: IoUring,
    /// Readable when there is something for `finished`.
    pub ready: Rc<AsyncFd<OwnedFd>>,
    file: Arc<File>,
    /// By what the requests carry; None is free.
    slots: Vec<Option<Slot>>,
    /// Requests that were begun and are not complete.
    requests: usize,
}

/// What was asked for, in one request or several.
struct Slot {
    asked: Asked,
    /// Requests that are not complete.
    left: usize,
    is_whole: bool,
}

pub(crate) enum Asked {
    Read { token: Token, plan: ReadPlan, parts: Parts },
    Append(Append),
}

impl Asked {
    fn len_of(&self, request: usize) -> usize {
        match self {
            Asked::Read { parts, .. } => parts.0[request].1.as_ref().len(),
            Asked::Append(append) => append.bytes().len(),
        }
    }
}

/// Requests that are complete.
pub(crate) struct Finished {
    pub asked: Asked,
    /// False if a part of it failed or came short: then another thread does it again, and finds out what is
    /// wrong.
    pub is_whole: bool,
}

impl Requests {
    /// An error where the kernel has no io_uring or does not let us. For the calling thread only, which runs
    /// a reactor. `file` is what is read.
    pub fn new(file: Arc<File>) -> io::Result<Requests> {
        // Completions then wait until this thread asks for them, instead of interrupting it. Kernels before
        // 6.1 do not know that.
        let mut lean = IoUring::builder();
        lean.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        let ring = lean.build(DEPTH as u32).or_else(|_| IoUring::new(DEPTH as u32))?;
        let ready = Rc::new(ready(&ring)?);
        let slots = (0..DEPTH).map(|_| None).collect();
        Ok(Requests { ring, ready, file, slots, requests: 0 })
    }

    /// Queues a read for `submit`. Returns it if the queue is full.
    pub fn read(&mut self, token: Token, plan: ReadPlan) -> Option<ReadPlan> {
        let spans = plan.spans();
        if self.requests + spans.len() > READS_MAX {
            return Some(plan);
        }
        let mut parts = Parts::new(spans);
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = |(offset, bytes): &mut (u64, Buffer)| {
            let bytes = bytes.as_mut();
            opcode::Read::new(fd, bytes.as_mut_ptr(), len_of(bytes)).offset(*offset).build()
        };
        let entries = parts.0.iter_mut().map(entry).collect();
        self.begin(entries, Asked::Read { token, plan, parts });
        None
    }

    /// Begins a durable write of the log; one at a time.
    pub fn append(&mut self, append: Append, file: &File) {
        let (fd, bytes) = (types::Fd(file.as_raw_fd()), append.bytes());
        let entry = opcode::Write::new(fd, bytes.as_ptr(), len_of(bytes)).offset(append.offset());
        let entry = entry.rw_flags(rustix::io::ReadWriteFlags::DSYNC.bits() as i32).build();
        self.begin(vec![entry], Asked::Append(append));
        self.submit();
    }

    fn begin(&mut self, entries: Vec<squeue::Entry>, asked: Asked) {
        let slot = self.slots.iter().position(Option::is_none).expect("no more than requests");
        self.requests += entries.len();
        self.slots[slot] = Some(Slot { asked, left: entries.len(), is_whole: true });
        for (at, entry) in entries.into_iter().enumerate() {
            let entry = entry.user_data((slot * DEPTH + at) as u64);
            // SAFETY: the kernel reads or writes bytes of `asked` until this completes. They are on the heap
            // and belong to the slot, which is not looked into before all of its requests are complete, and
            // which is never freed otherwise (`drop`).
            #[allow(unsafe_code)]
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("as much room as requests");
        }
    }

    /// Submits the queued requests to the kernel. Requests that it does not take are submitted the next time.
    pub fn submit(&mut self) {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return tracing::warn!("io_uring takes no requests: {e}"),
            }
        }
    }

    /// What is complete.
    pub fn finished(&mut self) -> Vec<Finished> {
        let mut finished = Vec::new();
        // The kernel would tell again of each completion when it is asked for it, which wakes this thread for
        // nothing.
        self.ring.completion().disable_eventfd();
        self.take_finished(&mut finished);
        self.ring.completion().enable_eventfd();
        // Completions before that were not signalled. Either we see one now, or the kernel signals it.
        fence(Ordering::SeqCst);
        // Once more, and no more than once: what comes from now on is told. The flag alone says little, as
        // the kernel may set it for work that was done meanwhile, and then it stays until there is other
        // work.
        if self.ring.submission().taskrun() || !self.ring.completion().is_empty() {
            self.take_finished(&mut finished);
        }
        finished
    }

    fn take_finished(&mut self, finished: &mut Vec<Finished>) {
        // The kernel completes nothing for a thread that does not ask.
        if let Err(e) = self.ring.submit() {
            tracing::debug!("io_uring: {e}");
        }
        for completion in self.ring.completion() {
            let carried = completion.user_data() as usize;
            let slot = &mut self.slots[carried / DEPTH];
            let asked = slot.as_mut().expect("it has a request under way");
            let len = asked.asked.len_of(carried % DEPTH);
            asked.is_whole &= usize::try_from(completion.result()) == Ok(len);
            asked.left -= 1;
            self.requests -= 1;
            if let Some(Slot { asked, is_whole, .. }) = slot.take_if(|slot| slot.left == 0) {
                finished.push(Finished { asked, is_whole });
            }
        }
    }
}

fn len_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("only small ones are asked for here")
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

impl Drop for Requests {
    fn drop(&mut self) {
        // The kernel may still use what is under way, and a device may hang: so this does not wait, and that
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
        assert_eq!(plan.spans().len(), 2);
        plan
    }

    /// As a daemon does it.
    async fn all(reads: &mut Requests, count: usize) -> Vec<Finished> {
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
        let Some(mut reads) = disk.requests() else { return }; // no io_uring here
        for _ in 0..3 {
            let begun =
                (0..40).map(|n| reads.read(n, plan(&store, n)).is_none()).filter(|begun| *begun).count();
            assert!((DEPTH / 8..=40).contains(&begun), "{begun}");
            reads.submit();
            let all = tokio::time::timeout(std::time::Duration::from_secs(60), all(&mut reads, begun)).await;
            for Finished { asked, is_whole } in all.expect("the kernel tells of all of them") {
                let Asked::Read { token, plan: planned, parts } = asked else {
                    panic!("nothing was written")
                };
                assert!(is_whole);
                let (bytes, _) = planned.run_fetching(|wanted| parts.read(wanted)).unwrap();
                assert_eq!(bytes, plan(&store, token).run(&disk).unwrap());
            }
            assert_eq!(reads.requests, 0);
        }
    }

    #[tokio::test]
    async fn short_read_is_reported_and_others_are_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let (store, disk) = filled(&path);
        let Some(mut reads) = disk.requests() else { return };
        let end = |n: u64| plan(&store, n).spans().iter().map(|(at, len)| at + *len as u64).max().unwrap();
        let last = (0..40).max_by_key(|n| end(*n)).unwrap();
        // It became shorter behind our back.
        File::options().write(true).open(&path).unwrap().set_len(end(last) - 100).unwrap();
        for n in [last, 1, 2] {
            assert!(reads.read(n, plan(&store, n)).is_none());
        }
        reads.submit();
        for Finished { asked, is_whole } in all(&mut reads, 3).await {
            let Asked::Read { token, .. } = asked else { panic!("nothing was written") };
            assert_eq!(is_whole, token != last);
        }
    }

    /// What one object says now, in a batch that is not durable yet.
    fn change(store: &mut Store, byte: u8) -> Append {
        let mut txn = Transaction::new();
        txn.push(id(1), Change::Write { offset: 7, data: vec![byte; 100].into() });
        store.submit(txn).unwrap();
        let batch = store.take_batch().unwrap();
        assert!(batch.is_append());
        batch.into_append()
    }

    /// Such a change, through to its end.
    async fn commit(store: &mut Store, disk: &FileDisk, requests: &mut Requests, byte: u8) {
        let append = change(store, byte);
        let file = disk.for_append(append.offset(), append.bytes().len());
        requests.append(append, &file.expect("the log's beginning was written to"));
        let Ok([Finished { asked: Asked::Append(append), is_whole: true }]) =
            <[Finished; 1]>::try_from(all(requests, 1).await)
        else {
            panic!("one append that is whole")
        };
        store.finished(append.done());
    }

    fn read_again(disk: FileDisk) -> u8 {
        let (store, _) = Store::open(&disk).unwrap();
        store.plan_read(&id(1), &[(50, 1)]).unwrap().run(&disk).unwrap()[0][0]
    }

    #[tokio::test]
    async fn completion_is_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, disk) = filled(&dir.path().join("disk"));
        let Some(mut requests) = disk.requests() else { return };
        for byte in 200..210 {
            commit(&mut store, &disk, &mut requests, byte).await;
            // Only this reads how often it was signalled.
            let mut told = [0; 8];
            rustix::io::read(requests.ready.get_ref(), &mut told).unwrap();
            assert_eq!(u64::from_ne_bytes(told), 1);
        }
    }

    /// Sets what the kernel sets when there is work, where there is none: IORING_SQ_TASKRUN in
    /// `io_rings.sq_flags`.
    #[allow(unsafe_code)]
    fn pretend_there_is_work(ring: &IoUring) {
        use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
        let all = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping of the ring's shared page, of which one aligned word is changed as the
        // kernel does it.
        unsafe {
            let fd = std::os::fd::BorrowedFd::borrow_raw(ring.as_raw_fd());
            let page = mmap(std::ptr::null_mut(), 4096, all, MapFlags::SHARED, fd, 0).unwrap();
            let word = |at: usize| &*page.cast::<std::sync::atomic::AtomicU32>().add(at);
            // Behind how many entries both queues have, and how many were dropped.
            let is = |at: usize, n: usize| word(at).load(Ordering::SeqCst) == n as u32;
            let entries = (0..1020).find(|at| is(*at, DEPTH) && is(at + 1, 2 * DEPTH));
            word(entries.expect("the ring says how large it is") + 3).fetch_or(4, Ordering::SeqCst);
            munmap(page, 4096).unwrap();
        }
    }

    /// The kernel queues work and then says so: when it says so, this thread may have done it.
    #[test]
    fn finished_work_is_not_asked_for_forever() {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let dir = tempfile::tempdir().unwrap();
                let disk = FileDisk::create(&dir.path().join("disk"), 1 << 20).unwrap();
                let Some(mut requests) = disk.requests() else { return tell.send(0).unwrap() };
                pretend_there_is_work(&requests.ring);
                assert!(requests.ring.submission().taskrun());
                tell.send(requests.finished().len()).unwrap();
            });
        });
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(30)), Ok(0));
    }

    #[tokio::test]
    async fn what_was_appended_is_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, disk) = filled(&dir.path().join("disk"));
        let Some(mut requests) = disk.requests() else { return };
        for byte in 200..220 {
            commit(&mut store, &disk, &mut requests, byte).await;
        }
        drop(store);
        assert_eq!(read_again(disk), 219);
    }

    #[tokio::test]
    async fn an_append_that_fails_can_be_done_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let (mut store, disk) = filled(&path);
        let Some(mut requests) = disk.requests() else { return };
        // Opened for reading only, so that writing fails.
        requests.append(change(&mut store, 200), &File::open(&path).unwrap());
        let Ok([Finished { asked: Asked::Append(append), is_whole: false }]) =
            <[Finished; 1]>::try_from(all(&mut requests, 1).await)
        else {
            panic!("one append that failed")
        };
        store.finished(append.commit(&disk).unwrap());
        assert_eq!(read_again(disk), 200);
    }

    #[tokio::test]
    async fn memory_of_abandoned_reads_is_not_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let (store, disk) = filled(&dir.path().join("disk"));
        let Some(mut reads) = disk.requests() else { return };
        assert!(reads.read(1, plan(&store, 1)).is_none());
        reads.submit();
        let kept = nacre_base::buffer::kept();
        drop(reads);
        assert_eq!(nacre_base::buffer::kept(), kept);
    }
}
