//! What a process that runs daemons sets up for itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::panic;

/// Every session and every store is a file: takes as many as the system lets us have.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(e) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!("cannot raise the limit of open files from {:?}: {e}", limit.current);
    }
}

/// Threads share a few heaps instead of having one each: what one frees, another can use. A process with one
/// daemon has one heap, which grows and shrinks in larger steps than all others do.
pub fn tune_allocator(daemons: usize) {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)] // a call into the C library that touches no memory of ours
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, daemons.clamp(1, 4) as i32);
    }
}

/// Gives memory that was freed back to the system. On a thread of its own, since that takes a tenth of a
/// second for each gigabyte; one that the system does not give is no loss.
pub(crate) fn give_back_memory() {
    let trim = || {
        nacre_base::buffer::give_back();
        #[cfg(target_env = "gnu")]
        #[allow(unsafe_code)] // a call into the C library that touches no memory in use
        unsafe {
            libc::malloc_trim(0);
        }
    };
    let _ = std::thread::Builder::new().name("trim".into()).spawn(trim);
}

/// A panic ends the process, and with it every daemon in it, after it was logged: a daemon that
/// stopped is recovered from, one that continues with a broken invariant is not.
pub fn abort_on_panic() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        tracing::error!("panic, the process is terminated: {info}");
        default(info);
        std::process::abort();
    }));
}
