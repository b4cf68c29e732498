//! Several writes of one thread under way at a time, through io_uring where the kernel has it and lets us.

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Writes under way at most. A device gains little from more.
const DEPTH: usize = 32;
/// What one request asks for at most; the rest is written like the rest of any short write.
const LEN_MAX: usize = 1 << 30;

thread_local! {
    /// Each thread that writes has its own; None if there is no such thing here.
    static RING: RefCell<Option<Ring>> = RefCell::new(Ring::new().ok());
}

/// The calling thread's ring.
pub(crate) fn with_ring<T>(with: impl FnOnce(Option<&mut Ring>) -> T) -> T {
    RING.with_borrow_mut(|ring| with(ring.as_mut()))
}

pub(crate) struct Ring(IoUring);

/// Which of the writes it was, how much of it was written, and what went wrong, if something did: else the rest is
/// still to be written.
pub(crate) type Unfinished = (usize, usize, Option<io::Error>);

impl Ring {
    fn new() -> io::Result<Ring> {
        // Completions are of interest to this thread only, and only when it waits for them: so nobody is interrupted.
        // Kernels before 6.1 do not know that.
        let mut lean = IoUring::builder();
        lean.setup_single_issuer().setup_defer_taskrun();
        lean.build(DEPTH as u32).or_else(|_| IoUring::new(DEPTH as u32)).map(Ring)
    }

    /// Comes back when none is under way any more. After a failure no others are begun.
    pub fn write(&mut self, file: &File, writes: &[(u64, &[u8])]) -> Vec<Unfinished> {
        let fd = types::Fd(file.as_raw_fd());
        let (mut begun, mut under_way, mut is_failed) = (0, 0, false);
        let mut unfinished = Vec::new();
        loop {
            while begun < writes.len() && under_way < DEPTH && !is_failed {
                let (offset, bytes) = writes[begun];
                let len = bytes.len().min(LEN_MAX) as u32;
                let write = opcode::Write::new(fd, bytes.as_ptr(), len).offset(offset);
                let write = write.build().user_data(begun as u64);
                // SAFETY: the kernel reads `bytes` until the write completes, and this function neither returns
                // nor unwinds before all that it began are complete.
                #[allow(unsafe_code)]
                let pushed = unsafe { self.0.submission().push(&write) };
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
                // What the kernel still reads must not be freed, and nobody would tell when it is done.
                tracing::error!("io_uring: {e}; what is being written cannot be waited for");
                std::process::abort();
            }
            for completion in self.0.completion() {
                under_way -= 1;
                let at = completion.user_data() as usize;
                match usize::try_from(completion.result()) {
                    Ok(written) if written == writes[at].1.len() => {}
                    Ok(written) => unfinished.push((at, written, None)),
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

fn is_passing(e: &io::Error) -> bool {
    [Errno::INTR, Errno::AGAIN, Errno::BUSY]
        .iter()
        .any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}
