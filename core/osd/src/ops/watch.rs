//! The watches of an object: kept in its info, so that a watch outlives connections and primaries.
//! Notifying watchers and expiring them: `pg::watches`.

use super::draft::Draft;
use super::{Env, OpResult, fail, ok, output};
use crate::object_info::Watcher;
use nacre_base::errno::{E2BIG, EINVAL, ENOENT, ENOTCONN};
use nacre_proto::types::{EntityName, WatchAction};
use nacre_wire::{Encode, versioned};
use std::sync::Arc;

/// Ceph: `osd_client_watch_timeout`, for clients that leave it open.
const TIMEOUT_DEFAULT: u32 = 30;
/// Of one object. Every change of an object writes its list of watchers.
const WATCHERS_MAX: usize = 10_000;

/// What a client that asked for `asked` seconds gets.
pub fn timeout_of(asked: u32) -> u32 {
    if asked == 0 { TIMEOUT_DEFAULT } else { asked }
}

pub fn watch(draft: &mut Draft<'_>, env: &Env, cookie: u64, action: WatchAction, timeout: u32) -> OpResult {
    if !draft.exists {
        return fail(ENOENT);
    }
    let id = (env.caller.name.num as u64, cookie);
    let watching = draft.info.watchers.contains_key(&id);
    match action {
        WatchAction::Ping if watching => {}
        WatchAction::Ping => return fail(ENOTCONN),
        WatchAction::Unwatch => {
            if watching {
                Arc::make_mut(&mut draft.info.watchers).remove(&id);
                draft.modified = true;
            }
        }
        WatchAction::Reconnect if !watching => return fail(ENOTCONN),
        WatchAction::Watch | WatchAction::LegacyWatch | WatchAction::Reconnect => {
            if !watching && draft.info.watchers.len() >= WATCHERS_MAX {
                return fail(E2BIG);
            }
            let watcher = Watcher { addr: env.caller.addr, timeout_secs: timeout_of(timeout) };
            if draft.info.watchers.get(&id) != Some(&watcher) {
                Arc::make_mut(&mut draft.info.watchers).insert(id, watcher);
                draft.modified = true;
            }
        }
        WatchAction::Other(_) => return fail(EINVAL),
    }
    ok()
}

pub fn list(draft: &Draft<'_>) -> OpResult {
    if !draft.exists {
        return fail(ENOENT);
    }
    let mut out = Vec::new();
    versioned(&mut out, 1, 1, |out| {
        (draft.info.watchers.len() as u32).encode(out);
        for (&(client, cookie), watcher) in draft.info.watchers.iter() {
            versioned(out, 2, 1, |out| {
                EntityName::client(client).encode(out);
                cookie.encode(out);
                watcher.timeout_secs.encode(out);
                watcher.addr.encode(out);
            });
        }
    });
    output(out)
}

/// The notify's number, by which watchers answer it.
pub fn notify(env: &Env) -> OpResult {
    output(env.notify_id.to_le_bytes().to_vec())
}
