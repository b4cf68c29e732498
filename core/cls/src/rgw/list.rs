//! Listings of a bucket, in the order of names. Versions of an object come newest first.

use super::keys;
use super::types::{Entry, Header, ObjectKey, flag};
use crate::context::{Page, stored};
use crate::record::record;
use crate::{Context, Reply, Stop, input};
use nacre_base::Name;
use nacre_base::errno::EFBIG;
use nacre_wire::{Decode, to_vec};
use std::collections::BTreeMap;

record!(ListRequest, "rgw_cls_list_op", 6 compat 4, {
    max: u32,
    prefix: Name,
    after: ObjectKey,
} since 5 {
    versions: bool,
} since 6 {
    delimiter: Name,
});
record!(Listed, "rgw_bucket_dir", 2 compat 2, { header: Header, entries: Entries });
record!(ListReply, "rgw_cls_list_ret", 4 compat 2, {
    listed: Listed,
    truncated: bool,
    /// Where to go on.
    marker: ObjectKey,
});
type Entries = BTreeMap<Name, Entry>;

/// So often the index is read for one listing, which may find only what clients do not see.
const READS_MAX: u32 = 8;

/// A page of what is in the index under the names of objects, without the special keys in between.
pub(crate) fn plain_page(ctx: &mut Context<'_>, after: &[u8], prefix: &[u8], max: u64) -> Result<Page, Stop> {
    let mut page = ctx.page(after, prefix, max)?;
    let Some(first) = page.pairs.iter().position(|(key, _)| keys::is_special(key.as_bytes())) else {
        return Ok(page);
    };
    page.pairs.truncate(first);
    let behind = ctx.page(&[keys::SPECIAL + 1], prefix, max - first as u64)?;
    page.pairs.extend(behind.pairs);
    page.more = behind.more;
    Ok(page)
}

/// The key behind which a listing that ended at `key` goes on.
fn start(ctx: &mut Context<'_>, key: &ObjectKey) -> Result<Name, Stop> {
    if key.instance.is_empty() {
        return Ok(key.name.clone());
    }
    let mut version = key.clone();
    if version.instance.as_bytes() == b"null" {
        version.instance = Name::default();
    }
    Ok(match ctx.get::<Entry>(&keys::version(&version))? {
        Some(entry) => keys::listed(&entry),
        // Behind the object itself, before its versions or after all of them.
        None => Name::new([key.name.as_bytes(), b"\x01"].concat()),
    })
}

/// Behind everything that starts with the prefix: no name has this byte.
fn behind(prefix: &[u8]) -> Name {
    Name::new([prefix, b"\xff"].concat())
}

/// Up to the end of the delimiter, if the name has it behind the prefix.
fn common_prefix<'n>(name: &'n [u8], request: &ListRequest) -> Option<&'n [u8]> {
    let (delimiter, from) = (request.delimiter.as_bytes(), request.prefix.len());
    if delimiter.is_empty() {
        return None;
    }
    let at = name.get(from..)?.windows(delimiter.len()).position(|part| part == delimiter)?;
    Some(&name[..from + at + delimiter.len()])
}

struct Listing<'r> {
    request: &'r ListRequest,
    entries: Entries,
    /// The last key that was looked at, and what it was about.
    after: Name,
    marker: ObjectKey,
    last_prefix: Option<Name>,
}

impl Listing<'_> {
    fn is_full(&self) -> bool {
        self.entries.len() >= self.request.max as usize
    }

    fn add(&mut self, at: &Name, entry: Entry) {
        if *at <= self.after {
            return; // behind a prefix that is listed
        }
        self.after = at.clone();
        self.marker = entry.key.clone();
        let Some(name) = keys::listed_name(at.as_bytes()) else { return };
        let seen =
            self.request.versions || (entry.is_visible() && name != self.request.after.name.as_bytes());
        if entry.has(flag::VERSIONS_ELSEWHERE) || !seen {
            return;
        }
        let Some(prefix) = common_prefix(name, self.request).map(Name::copy_from) else {
            if !self.is_full() {
                self.entries.insert(at.clone(), entry);
            }
            return;
        };
        if self.last_prefix.as_ref() == Some(&prefix) {
            return;
        }
        if !self.is_full() {
            let key = ObjectKey::of(&prefix);
            let common = Entry { key, flags: flag::COMMON_PREFIX, ..Entry::default() };
            self.entries.insert(prefix.clone(), common);
        }
        self.after = behind(prefix.as_bytes());
        self.marker = ObjectKey::of(&self.after);
        self.last_prefix = Some(prefix);
    }
}

pub(crate) fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ListRequest::decode)?;
    let header = ctx.header()?.unwrap_or_default();
    let mut after = if request.max == 0 { Name::default() } else { start(ctx, &request.after)? };
    let delimiter = request.delimiter.as_bytes();
    if !delimiter.is_empty() && after > request.prefix && after.as_bytes().ends_with(delimiter) {
        after = behind(after.as_bytes());
    }
    let (marker, entries) = (ObjectKey::default(), Entries::new());
    let mut listing = Listing { request: &request, entries, after, marker, last_prefix: None };
    let mut more = request.max > 0;
    for _ in 0..READS_MAX {
        if !more || listing.is_full() {
            break;
        }
        let left = u64::from(request.max) - listing.entries.len() as u64;
        let page = plain_page(ctx, listing.after.as_bytes(), request.prefix.as_bytes(), left)?;
        more = page.more;
        for (at, value) in page.pairs {
            listing.add(&at, stored(&value)?);
        }
    }
    let Listing { entries, marker, .. } = listing;
    // A client that got nothing would think that it is at the end; this tells it to go on from the marker.
    let code = if more && entries.is_empty() { -EFBIG } else { 0 };
    let marker = if more { marker } else { ObjectKey::default() };
    let reply = ListReply { listed: Listed { header, entries }, truncated: more, marker };
    Ok((code, to_vec(&reply).into()))
}
