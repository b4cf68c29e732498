//! Objects with versions. The head of such an object (Ceph: "olh", object logical head) leads to the version
//! that is current. The index decides which one that is, and keeps a log of what gateways have to do to heads
//! and versions accordingly: a gateway reads the log, does it, and trims the log.

use super::index::{Found, Index};
use super::keys;
use super::types::{
    Entry, HeadVersion, LOG_VERSIONED, LogEntry, Meta, ObjectKey, Olh, OlhLogEntry, Zones, flag, modify,
};
use crate::record::record;
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::errno::{ECANCELED, EINVAL, ENOENT};
use nacre_base::{Name, Utime};
use nacre_wire::Decode;
use std::collections::BTreeMap;

record!(LinkRequest, "rgw_cls_link_olh_op", 5, {
    key: ObjectKey,
    olh_tag: Name,
    delete_marker: bool,
    op_tag: Name,
    meta: Meta,
    /// Zero for the next one.
    epoch: u64,
    log: bool,
    flags: u16,
} since 2 {
    unmodified_since_seconds: u64,
} since 3 {
    /// Only if the object is older.
    unmodified_since: Utime,
} since 4 {
    high_precision: bool,
} since 5 {
    zones: Zones,
});
record!(UnlinkRequest, "rgw_cls_unlink_instance_op", 3, {
    key: ObjectKey, op_tag: Name, epoch: u64, log: bool, flags: u16,
} since 2 { olh_tag: Name } since 3 { zones: Zones });
record!(ReadLogRequest, "rgw_cls_read_olh_log_op", 1, { key: ObjectKey, after: u64, olh_tag: Name });
record!(ReadLogReply, "rgw_cls_read_olh_log_ret", 1, {
    log: BTreeMap<u64, Vec<OlhLogEntry>>, truncated: bool,
});
record!(TrimLogRequest, "rgw_cls_trim_olh_log_op", 1, { key: ObjectKey, upto: u64, olh_tag: Name });
record!(ClearRequest, "rgw_cls_bucket_clear_olh_op", 1, { key: ObjectKey, olh_tag: Name });

/// What a gateway has to do.
mod todo {
    pub(crate) const LINK: u8 = 1;
    pub(crate) const UNLINK: u8 = 2;
    pub(crate) const REMOVE_INSTANCE: u8 = 3;
}

/// Epochs of versions start here.
const FIRST_EPOCH: u64 = 2;
/// The epoch of what was there before the bucket got versions.
const CONVERTED_EPOCH: u64 = 1;
const LOG_ENTRIES_MAX: usize = 1000;

impl Olh {
    /// Moves on to the epoch, or the next one. False if the epoch has passed.
    fn advance(&mut self, epoch: u64) -> bool {
        if epoch == 0 {
            self.epoch = if self.epoch == 0 { FIRST_EPOCH } else { self.epoch.wrapping_add(1) };
        } else if epoch < self.epoch {
            return false;
        } else {
            self.epoch = epoch;
        }
        true
    }
    fn note(&mut self, op: u8, op_tag: &Name, key: &ObjectKey, delete_marker: bool, epoch: u64) {
        let entry = OlhLogEntry { epoch, op, op_tag: op_tag.clone(), key: key.clone(), delete_marker };
        self.log.entry(self.epoch).or_default().push(entry);
    }
}

/// Writes a version where it is found by its instance and where it is listed.
fn put_version(index: &mut Index<'_, '_>, entry: &Entry) {
    let null_marker = entry.has(flag::DELETE_MARKER) && entry.key.instance.is_empty();
    let at = if null_marker { keys::null_delete_marker(&entry.key.name) } else { keys::version(&entry.key) };
    index.set(at, entry);
    index.set(keys::listed(entry), entry);
}

/// Gives the version an epoch, and so another place in listings.
fn move_version(index: &mut Index<'_, '_>, entry: &mut Entry, epoch: u64, current: bool) {
    if entry.versioned_epoch > 0 {
        index.remove(keys::listed(entry));
    }
    entry.versioned_epoch = epoch;
    entry.flags |= flag::VERSION | if current { flag::CURRENT } else { 0 };
    put_version(index, entry);
}

/// An object that was there before the bucket got versions becomes one, without an instance. In its place
/// remains a stand-in.
fn convert(index: &mut Index<'_, '_>, name: &Name, demote: bool, listed: bool) -> Result<(), Stop> {
    let key = ObjectKey::of(name);
    if let (_, Some(mut entry)) = index.find(&key, false)? {
        entry.versioned_epoch = CONVERTED_EPOCH;
        entry.flags |= flag::VERSION;
        if demote {
            entry.flags &= !flag::CURRENT;
        }
        if listed {
            put_version(index, &entry);
        } else {
            index.set(keys::version(&key), &entry);
        }
    }
    let stand_in = Entry { key, flags: flag::VERSIONS_ELSEWHERE, ..Entry::default() };
    index.set(name.clone(), &stand_in);
    Ok(())
}

/// Whether the object changed at or after the time that a request gave.
fn is_newer(entry: &Entry, request: &LinkRequest) -> bool {
    let (mtime, since) = (entry.meta.mtime, request.unmodified_since);
    if since == Utime::ZERO {
        return false;
    }
    if request.high_precision { mtime >= since } else { mtime.sec >= since.sec }
}

/// A null version and a null delete marker take each other's place. Says whether there is an object that the
/// marker hides, and that the gateway has to remove.
fn replace_null(index: &mut Index<'_, '_>, request: &LinkRequest) -> Result<bool, Stop> {
    let Some(other) = index.find_there(&request.key, !request.delete_marker)? else { return Ok(false) };
    let is_marker = other.entry.has(flag::DELETE_MARKER);
    if is_marker != request.delete_marker {
        index.remove(keys::listed(&other.entry));
    }
    let hidden = !is_marker && request.delete_marker;
    if !hidden {
        index.remove(other.at);
    }
    Ok(hidden)
}

/// Makes a version, or a delete marker, the current version of its object.
pub(crate) fn link(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, LinkRequest::decode)?;
    let mut index = Index::new(ctx);
    let found = index.find_there(&request.key, request.delete_marker)?.map(|found| found.entry);
    let at = keys::olh(&request.key.name);
    let stored: Option<Olh> = index.get(&at)?;
    match &found {
        None if !request.delete_marker => return fail(ENOENT),
        // The object is deleted already.
        None if stored.as_ref().is_some_and(|olh| olh.delete_marker) => return fail(ENOENT),
        Some(entry) if is_newer(entry, &request) => return ok(),
        _ => {}
    }
    let hides = if request.key.instance.is_empty() {
        replace_null(&mut index, &request)?
    } else {
        let is_object = |entry: &Entry| !entry.has(flag::DELETE_MARKER);
        request.delete_marker && found.as_ref().is_some_and(is_object)
    };
    let mut entry = found.unwrap_or_default();
    if request.delete_marker {
        entry.key = request.key.clone();
        entry.exists = false;
        entry.flags = flag::DELETE_MARKER;
        entry.meta = request.meta.clone();
        entry.tag = Name::from("delete-marker");
    }
    let mut olh = stored.clone().unwrap_or_default();
    let before = olh.epoch;
    if !olh.advance(request.epoch) {
        move_version(&mut index, &mut entry, request.epoch, false);
        if hides {
            olh.note(todo::REMOVE_INSTANCE, &request.op_tag, &request.key, false, request.epoch);
            index.set(at, &olh);
        }
        return index.finish();
    }
    // Of two versions of one epoch, all zones take the same one.
    let promote = olh.epoch > before || olh.key.instance >= request.key.instance;
    if stored.is_some() {
        take_over(&mut index, &mut olh, &request, promote)?;
    } else {
        let listed = !(request.key.instance.is_empty() && request.delete_marker);
        convert(&mut index, &request.key.name, promote, listed)?;
        olh.tag = request.olh_tag.clone();
    }
    let epoch = olh.epoch;
    olh.note(todo::LINK, &request.op_tag, &request.key, request.delete_marker, epoch);
    if hides {
        olh.note(todo::REMOVE_INSTANCE, &request.op_tag, &request.key, false, epoch);
    }
    if promote {
        olh.key = request.key.clone();
        olh.delete_marker = request.delete_marker;
    }
    olh.exists = true;
    index.set(at, &olh);
    move_version(&mut index, &mut entry, epoch, promote);
    if request.log {
        log_link(&mut index, &request, &entry, epoch)?;
    }
    index.finish()
}

/// The version that was current steps back.
fn take_over(
    index: &mut Index<'_, '_>,
    olh: &mut Olh,
    request: &LinkRequest,
    promote: bool,
) -> Result<(), Stop> {
    if request.olh_tag != olh.tag {
        if !olh.pending_removal {
            return fail(ECANCELED);
        }
        olh.tag = request.olh_tag.clone();
    }
    if promote && olh.exists && olh.key != request.key {
        let Some(Found { mut entry, .. }) = index.find_there(&olh.key, true)? else { return fail(ENOENT) };
        entry.flags &= !flag::CURRENT;
        put_version(index, &entry);
    }
    olh.pending_removal = false;
    Ok(())
}

fn log_link(index: &mut Index<'_, '_>, request: &LinkRequest, entry: &Entry, epoch: u64) -> Result<(), Stop> {
    let marker = request.delete_marker;
    let owner = (entry.meta.owner.clone(), entry.meta.owner_display_name.clone());
    let log = LogEntry {
        key: request.key.clone(),
        time: entry.meta.mtime,
        version: HeadVersion { epoch, ..HeadVersion::default() },
        tag: request.op_tag.clone(),
        op: if marker { modify::LINK_OLH_DELETE_MARKER } else { modify::LINK_OLH },
        flags: request.flags | LOG_VERSIONED,
        owner: if marker { owner } else { Default::default() },
        zones: request.zones.clone(),
        ..LogEntry::default()
    };
    log_change(index, log)
}

fn log_change(index: &mut Index<'_, '_>, log: LogEntry) -> Result<(), Stop> {
    let mut header = index.header()?;
    if !header.sync_stopped {
        index.log(&mut header, log);
        index.set_header(header);
    }
    Ok(())
}

/// Takes a version away. If it was the current one, the next newest becomes that.
pub(crate) fn unlink(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, UnlinkRequest::decode)?;
    let mut key = request.key.clone();
    if key.instance.as_bytes() == b"null" {
        key.instance = Name::default();
    }
    let mut index = Index::new(ctx);
    let Some(Found { at: version_at, mut entry }) = index.find_there(&key, true)? else { return ok() };
    let at = keys::olh(&key.name);
    let mut olh = match index.get::<Olh>(&at)? {
        Some(olh) => olh,
        None => {
            convert(&mut index, &key.name, true, true)?;
            entry.versioned_epoch = CONVERTED_EPOCH;
            Olh { key: key.clone(), tag: request.olh_tag.clone(), ..Olh::default() }
        }
    };
    let is_marker = entry.has(flag::DELETE_MARKER);
    if !olh.advance(request.epoch) {
        index.remove(keys::listed(&entry));
        if !is_marker {
            olh.note(todo::REMOVE_INSTANCE, &request.op_tag, &request.key, false, request.epoch);
            index.set(at, &olh);
        }
        return index.finish();
    }
    let epoch = olh.epoch;
    if olh.key == key {
        promote_next(&mut index, &mut olh, &entry, &request.op_tag)?;
    }
    if is_marker {
        index.remove(version_at);
    } else {
        // The gateway removes it, and then its entry.
        olh.note(todo::REMOVE_INSTANCE, &request.op_tag, &request.key, false, epoch);
    }
    index.remove(keys::listed(&entry));
    index.set(at, &olh);
    if request.log {
        let log = LogEntry {
            key: request.key.clone(),
            time: entry.meta.mtime,
            version: HeadVersion { epoch, ..HeadVersion::default() },
            tag: request.op_tag.clone(),
            op: modify::UNLINK_INSTANCE,
            flags: request.flags | LOG_VERSIONED,
            zones: request.zones.clone(),
            ..LogEntry::default()
        };
        log_change(&mut index, log)?;
    }
    index.finish()
}

fn promote_next(index: &mut Index<'_, '_>, olh: &mut Olh, gone: &Entry, op_tag: &Name) -> Result<(), Stop> {
    let name = &gone.key.name;
    let next = index.first_after(&keys::listed(gone), name.as_bytes())?;
    let next = next.map(|value| crate::context::stored::<Entry>(&value)).transpose()?;
    let epoch = olh.epoch;
    match next.filter(|next| next.key.name == *name && next.has(flag::VERSION)) {
        Some(mut next) => {
            let marker = next.has(flag::DELETE_MARKER);
            next.flags |= flag::CURRENT;
            put_version(index, &next);
            olh.note(todo::LINK, op_tag, &next.key, marker, epoch);
            olh.key = next.key;
            olh.delete_marker = marker;
        }
        None => {
            // The name stays, as it decides in which shard this is.
            let none = ObjectKey::of(name);
            olh.note(todo::UNLINK, op_tag, &none, false, epoch);
            olh.key = none;
            olh.delete_marker = false;
            olh.exists = false;
            olh.pending_removal = true;
        }
    }
    Ok(())
}

/// The head of the object that a request means; ECANCELED if it is another one by now.
fn tagged(index: &mut Index<'_, '_>, key: &ObjectKey, tag: &Name) -> Result<(Name, Olh), Stop> {
    if !key.instance.is_empty() {
        return fail(EINVAL);
    }
    let at = keys::olh(&key.name);
    let olh: Olh = index.get(&at)?.unwrap_or_default();
    if olh.tag == *tag { Ok((at, olh)) } else { fail(ECANCELED) }
}

pub(crate) fn read_log(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ReadLogRequest::decode)?;
    let (_, olh) = tagged(&mut Index::new(ctx), &request.key, &request.olh_tag)?;
    let mut left = olh.log.into_iter().filter(|(epoch, _)| *epoch > request.after);
    let log = left.by_ref().take(LOG_ENTRIES_MAX).collect();
    output(&ReadLogReply { log, truncated: left.next().is_some() })
}

pub(crate) fn trim_log(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, TrimLogRequest::decode)?;
    let mut index = Index::new(ctx);
    let (at, mut olh) = tagged(&mut index, &request.key, &request.olh_tag)?;
    olh.log.retain(|epoch, _| *epoch > request.upto);
    index.set(at, &olh);
    index.finish()
}

/// Forgets the head of an object that has no versions left.
pub(crate) fn clear(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ClearRequest::decode)?;
    let mut index = Index::new(ctx);
    let (at, _) = tagged(&mut index, &request.key, &request.olh_tag)?;
    index.remove(at);
    let name = request.key.name;
    if index.get::<Entry>(&name)?.is_some_and(|entry| entry.has(flag::VERSIONS_ELSEWHERE)) {
        index.remove(name);
    }
    index.finish()
}
