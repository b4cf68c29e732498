//! Several reads or writes of one thread under way at a time, through io_uring where the kernel has it and
//! lets us.

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Of them under way at most. A device gains little from more.
const DEPTH: usize = 32;
/// What one request asks for at most; the rest is done like the rest of anything that came short.
const LEN_MAX: usize = 1 << 30;

thread_local! {
    /// Each thread has its own; None where the kernel has none.
    static RING: RefCell<Option<Ring>> = RefCell::new(Ring::new().ok());
}

/// The calling thread's ring.
pub(crate) fn with_ring<T>(with: impl FnOnce(Option<&mut Ring>) -> T) -> T {
    RING.with_borrow_mut(|ring| with(ring.as_mut()))
}

pub(crate) struct Ring(IoUring);

/// Which of them it was, how much of it was done, and what went wrong, if something did: else the rest is
/// still to be done.
pub(crate) type Unfinished = (usize, usize, Option<io::Error>);

impl Ring {
    fn new() -> io::Result<Ring> {
        // Completions are of interest to this thread only, and only when it waits for them: so no thread is
        // interrupted. Kernels before 6.1 do not know that.
        let mut lean = IoUring::builder();
        lean.setup_single_issuer().setup_defer_taskrun();
        lean.build(DEPTH as u32).or_else(|_| IoUring::new(DEPTH as u32)).map(Ring)
    }

    /// Comes back when none is under way any more. After a failure no others are begun.
    pub fn write(&mut self, file: &File, writes: &[(u64, &[u8])]) -> Vec<Unfinished> {
        self.run(file, Asked::Write(writes))
    }
    /// The same.
    pub fn read(&mut self, file: &File, reads: &mut [(u64, &mut [u8])]) -> Vec<Unfinished> {
        self.run(file, Asked::Read(reads))
    }

    fn run(&mut self, file: &File, mut asked: Asked<'_, '_>) -> Vec<Unfinished> {
        let fd = types::Fd(file.as_raw_fd());
        let (mut begun, mut under_way, mut is_failed) = (0, 0, false);
        let mut unfinished = Vec::new();
        loop {
            while begun < asked.count() && under_way < DEPTH && !is_failed {
                let entry = asked.entry(begun, fd).user_data(begun as u64);
                // SAFETY: the kernel reads or writes the bytes until this completes. `asked` borrows them,
                // for itself alone if they are written, and this function neither returns nor unwinds before
                // all that it began are complete.
                #[allow(unsafe_code)]
                let pushed = unsafe { self.0.submission().push(&entry) };
                if pushed.is_err() {
                    break; // Full of what is still to be submitted, below.
                }
                begun += 1;
                under_way += 1;
            }
            if under_way == 0 {
                return unfinished;
            }
            if let Err(e) = self.0.submit_and_wait(1)
                && !is_passing(&e)
            {
                // What the kernel still uses must not be freed, and nothing would tell when it is done.
                tracing::error!("io_uring: {e}; requests in flight cannot be completed");
                std::process::abort();
            }
            for completion in self.0.completion() {
                under_way -= 1;
                let at = completion.user_data() as usize;
                match usize::try_from(completion.result()) {
                    Ok(done) if done == asked.len(at) => {}
                    Ok(done) => unfinished.push((at, done, None)),
                    Err(_) => {
                        let e = io::Error::from_raw_os_error(-completion.result());
                        let e = (!is_passing(&e)).then_some(e);
                        is_failed |= e.is_some();
                        unfinished.push((at, 0, e));
                    }
                }
            }
        }
    }
}

/// Places, and the bytes that belong there.
enum Asked<'a, 'b> {
    Write(&'a [(u64, &'b [u8])]),
    Read(&'a mut [(u64, &'b mut [u8])]),
}

impl Asked<'_, '_> {
    fn count(&self) -> usize {
        match self {
            Asked::Write(writes) => writes.len(),
            Asked::Read(reads) => reads.len(),
        }
    }
    fn len(&self, at: usize) -> usize {
        match self {
            Asked::Write(writes) => writes[at].1.len(),
            Asked::Read(reads) => reads[at].1.len(),
        }
    }
    fn entry(&mut self, at: usize, fd: types::Fd) -> squeue::Entry {
        let len = self.len(at).min(LEN_MAX) as u32;
        match self {
            Asked::Write(writes) => {
                let (offset, bytes) = writes[at];
                opcode::Write::new(fd, bytes.as_ptr(), len).offset(offset).build()
            }
            Asked::Read(reads) => {
                let (offset, into) = &mut reads[at];
                opcode::Read::new(fd, into.as_mut_ptr(), len).offset(*offset).build()
            }
        }
    }
}

fn is_passing(e: &io::Error) -> bool {
    [Errno::INTR, Errno::AGAIN, Errno::BUSY]
        .iter()
        .any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}
