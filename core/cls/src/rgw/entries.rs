//! Objects come and go in an index in two steps: `prepare` before the object itself changes,
//! `complete` after.
//! A change that was prepared and not completed is found by listings, which then look at the object
//! and suggest
//! what the index should say.

use super::index::Index;
use super::types::{Entry, HeadVersion, LogEntry, Meta, ObjectKey, Pending, Zones, flag, modify};
use super::{Header, keys};
use crate::record::record;
use crate::{Context, Reply, Stop, fail, input, ok};
use nacre_base::Name;
use nacre_base::errno::EINVAL;
use nacre_wire::{Decode, DecodeError, Reader};
use std::time::Duration;

const TAG_TIMEOUT: u64 = 120;

record!(PrepareRequest, "rgw_cls_obj_prepare_op", 7 compat 5, {
    op: u8, tag: Name, locator: Name, log: bool, key: ObjectKey,
} since 6 { flags: u16 } since 7 { zones: Zones });

record!(CompleteRequest, "rgw_cls_obj_complete_op", 9 compat 7, {
    op: u8,
    epoch: u64,
    meta: Meta,
    /// Of the preparation; empty if there was none.
    tag: Name,
    locator: Name,
    /// Entries that go too: the parts of an upload that became an object.
    removed: Vec<ObjectKey>,
    version: HeadVersion,
    log: bool,
    key: ObjectKey,
} since 8 { flags: u16 } since 9 { zones: Zones });

pub(crate) fn prepare(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, PrepareRequest::decode)?;
    if request.tag.is_empty() {
        return fail(EINVAL);
    }
    let time = ctx.now();
    let mut index = Index::new(ctx);
    let (at, entry) = index.find(&request.key, false)?;
    let mut entry = entry.unwrap_or_else(|| Entry {
        key: request.key.clone(),
        locator: request.locator.clone(),
        ..Entry::default()
    });
    let place = entry.pending.partition_point(|(tag, _)| *tag <= request.tag);
    entry.pending.insert(place, (request.tag, Pending { state: 0, time, op: request.op }));
    index.set(at, &entry);
    index.finish()
}

pub(crate) fn complete(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, CompleteRequest::decode)?;
    let mut index = Index::new(ctx);
    let mut header = index.header()?;
    let logs = request.log && !header.sync_stopped;
    if let Some(mut entry) = completed(&mut index, &mut header, &request)?.filter(|_| logs) {
        entry.zones.clone_from(&request.zones);
        index.log(&mut header, entry);
    }
    for key in &request.removed {
        remove(&mut index, &mut header, key, logs)?;
    }
    index.set_header(header);
    index.finish()
}

/// Changes the entry, and returns what is to be logged about it.
fn completed(
    index: &mut Index<'_, '_>,
    header: &mut Header,
    request: &CompleteRequest,
) -> Result<Option<LogEntry>, Stop> {
    let (at, found) = index.find(&request.key, false)?;
    let stored = found.is_some();
    let mut entry = found.unwrap_or_else(|| Entry {
        key: request.key.clone(),
        version: request.version.clone(),
        meta: request.meta.clone(),
        locator: request.locator.clone(),
        ..Entry::default()
    });
    entry.index_version = header.version;
    // It may have been a delete marker.
    entry.flags &= flag::VERSION;
    let tagged = !request.tag.is_empty();
    if tagged {
        let Some(place) = entry.pending.iter().position(|(tag, _)| *tag == request.tag) else {
            return fail(EINVAL);
        };
        entry.pending.remove(place);
    }
    let (new, old) = (&request.version, &entry.version);
    let overtaken = new.pool == old.pool && new.epoch != 0 && new.epoch <= old.epoch;
    entry.version = request.version.clone();
    match request.op {
        _ if overtaken || request.op == modify::CANCEL => {
            match tagged {
                true if !entry.exists && entry.pending.is_empty() => index.remove(at),
                true => index.set(at, &entry),
                false => {}
            }
            return Ok(None);
        }
        modify::DELETE => {
            header.discount(&entry);
            entry.meta = request.meta.clone();
            if !stored {
                return Ok(None);
            }
            if entry.pending.is_empty() {
                index.remove(at);
            } else {
                entry.exists = false;
                index.set(at, &entry);
            }
        }
        modify::ADD => {
            header.discount(&entry);
            entry.meta = request.meta.clone();
            entry.key = request.key.clone();
            entry.exists = true;
            entry.tag = request.tag.clone();
            header.count(&entry.meta);
            index.set(at, &entry);
        }
        _ => {}
    }
    Ok(Some(LogEntry {
        key: request.key.clone(),
        time: entry.meta.mtime,
        version: entry.version,
        tag: request.tag.clone(),
        op: request.op,
        flags: request.flags,
        ..LogEntry::default()
    }))
}

fn remove(index: &mut Index<'_, '_>, header: &mut Header, key: &ObjectKey, logs: bool) -> Result<(), Stop> {
    // What is not there needs no removal.
    let Some(found) = index.find_there(key, false)? else { return Ok(()) };
    header.discount(&found.entry);
    if logs {
        header.version = header.version.wrapping_add(1);
        let (time, version) = (found.entry.meta.mtime, found.entry.version);
        let log = LogEntry { key: key.clone(), time, version, op: modify::DELETE, ..LogEntry::default() };
        index.log(header, log);
    }
    index.remove(found.at);
    Ok(())
}

/// In the operation of a suggestion: it is to be logged.
const SUGGESTION_LOGGED: u8 = 0x80;

fn suggestions(r: &mut Reader<'_>) -> Result<Vec<(u8, Entry)>, DecodeError> {
    let mut suggestions = Vec::new();
    while !r.is_empty() {
        suggestions.push(Decode::decode(r)?);
    }
    Ok(suggestions)
}

/// A listing met entries with changes under way, looked at the objects, and tells what it saw.
pub(crate) fn suggest(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let suggestions = input(bytes, suggestions)?;
    let now = ctx.now();
    let mut index = Index::new(ctx);
    let mut header = index.header()?;
    let timeout = if header.tag_timeout == 0 { TAG_TIMEOUT } else { header.tag_timeout };
    let timeout = Duration::from_secs(timeout);
    let mut changed = false;
    for (op, mut seen) in suggestions {
        let at = keys::object(&seen.key);
        let Some(mut entry) = index.get::<Entry>(&at)? else { continue };
        entry.pending.retain(|(_, pending)| now <= pending.time + timeout);
        // Completed since it was listed, or still under way: the next listing knows more.
        if seen.index_version < entry.index_version || !entry.pending.is_empty() {
            continue;
        }
        let mut log = None;
        match op & !SUGGESTION_LOGGED {
            b'r' => {
                header.discount(&entry);
                changed |= entry.exists;
                index.remove(at);
                log = entry.exists.then_some((modify::DELETE, &entry));
            }
            b'u' => {
                header.discount(&entry);
                header.count(&seen.meta);
                changed = true;
                seen.index_version = header.version;
                index.set(at, &seen);
                log = Some((modify::ADD, &seen));
            }
            _ => {}
        }
        if let Some((logged, about)) = log.filter(|_| op & SUGGESTION_LOGGED != 0 && !header.sync_stopped) {
            let log = LogEntry {
                key: about.key.clone(),
                time: about.meta.mtime,
                version: about.version.clone(),
                tag: about.tag.clone(),
                op: logged,
                ..LogEntry::default()
            };
            header.version = header.version.wrapping_add(1);
            index.log(&mut header, log);
            changed = true;
        }
    }
    if changed {
        index.set_header(header);
    }
    index.finish()
}

record!(TimeoutRequest, "rgw_cls_tag_timeout_op", 1, { seconds: u64 });

pub(crate) fn set_tag_timeout(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, TimeoutRequest::decode)?;
    let mut index = Index::new(ctx);
    let mut header = index.header()?;
    header.tag_timeout = request.seconds;
    index.set_header(header);
    index.finish()
}

pub(crate) fn init(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    if ctx.header::<Header>()?.is_some() {
        return fail(EINVAL);
    }
    let mut index = Index::new(ctx);
    index.set_header(Header::default());
    index.finish()?;
    ok()
}
