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

/// A panic ends the process, and with it every daemon in it, after it was logged: a daemon that
/// stopped is recovered from, one that goes on with a broken invariant is not.
pub fn abort_on_panic() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        tracing::error!("panic, the process ends: {info}");
        default(info);
        std::process::abort();
    }));
}
