//! Values under times. Ceph: `cls_timeindex`; the gateway keeps hints about expiring objects like this.

use crate::context::Page;
use crate::record::record;
use crate::{Class, Context, Reply, Stop, fail, input, ok, output, r, rw};
use bytes::Bytes;
use nacre_base::errno::ENODATA;
use nacre_base::{Name, Utime};
use nacre_wire::Decode;
use std::collections::BTreeSet;

pub(crate) const CLASS: Class =
    Class { name: "timeindex", methods: &[rw("add", add), r("list", list), rw("trim", trim)] };

record!(Entry, "cls_timeindex_entry", 1, {
    time: Utime,
    /// Tells apart what has the same time.
    name: Name,
    value: Bytes,
});
record!(AddRequest, "cls_timeindex_add_op", 1, { entries: Vec<Entry> });
record!(ListRequest, "cls_timeindex_list_op", 1, {
    from: Utime,
    /// Overrides the time, if it is not empty.
    marker: Name,
    /// Not included; no bound if it is before the start.
    to: Utime,
    max: i32,
});
record!(ListReply, "cls_timeindex_list_ret", 1, { entries: Vec<Entry>, marker: Name, truncated: bool });
record!(TrimRequest, "cls_timeindex_trim_op", 1, {
    from: Utime, to: Utime, from_marker: Name, to_marker: Name,
});

pub(crate) const PREFIX: &[u8] = b"1_";
const PAGE: u64 = 1000;

/// How keys of a time start.
pub(crate) fn of_time(time: Utime) -> Name {
    Name::from(format!("1_{:010}.{:06}_", time.sec, time.nsec / 1000))
}

/// The time and the name that a key consists of.
fn parsed(key: &Name) -> Option<(Utime, Name)> {
    let text = key.as_bytes().strip_prefix(PREFIX)?;
    let end = text.iter().position(|&byte| byte == b'_')?;
    let (seconds, micros) = std::str::from_utf8(&text[..end]).ok()?.split_once('.')?;
    let (sec, micros): (u32, u32) = (seconds.parse().ok()?, micros.parse().ok()?);
    Some((Utime { sec, nsec: micros.checked_mul(1000)? }, Name::copy_from(&text[end + 1..])))
}

/// What is behind `after`, and in front of `end`. There is no more when the end is reached.
pub(crate) fn page_of_times(
    ctx: &mut Context<'_>,
    after: &Name,
    end: Option<&Name>,
    max: u64,
) -> Result<Page, Stop> {
    let mut page = ctx.page(after.as_bytes(), PREFIX, max)?;
    let behind = |(key, _): &(Name, Bytes)| end.is_some_and(|end| key >= end);
    if let Some(at) = page.pairs.iter().position(behind) {
        page.pairs.truncate(at);
        page.more = false;
    }
    Ok(page)
}

fn add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, AddRequest::decode)?;
    let at = |entry: &Entry| Name::new([of_time(entry.time).as_bytes(), entry.name.as_bytes()].concat());
    let pairs = request.entries.into_iter().map(|entry| (at(&entry), entry.value)).collect();
    ctx.omap_set_all(&pairs)?;
    ok()
}

fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ListRequest::decode)?;
    let after = if request.marker.is_empty() { of_time(request.from) } else { request.marker };
    let end = (request.to >= request.from).then(|| of_time(request.to));
    let max = u64::try_from(request.max).unwrap_or(PAGE).min(PAGE);
    let Page { pairs, more } = page_of_times(ctx, &after, end.as_ref(), max)?;
    let marker = pairs.last().map(|(key, _)| key.clone()).unwrap_or_default();
    let entry = |(key, value): (Name, Bytes)| parsed(&key).map(|(time, name)| Entry { time, name, value });
    output(&ListReply { entries: pairs.into_iter().filter_map(entry).collect(), marker, truncated: more })
}

/// A page of what is to go, up to the end and all that starts like it. ENODATA when that is nothing.
fn trim(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, TrimRequest::decode)?;
    let or_time = |marker: Name, time| if marker.is_empty() { of_time(time) } else { marker };
    let after = or_time(request.from_marker, request.from);
    let end = or_time(request.to_marker, request.to);
    let page = ctx.page(after.as_bytes(), PREFIX, PAGE)?;
    let goes = |key: &Name| key.as_bytes() <= end.as_bytes() || key.as_bytes().starts_with(end.as_bytes());
    let keys: BTreeSet<Name> = page.pairs.into_iter().map(|(key, _)| key).take_while(goes).collect();
    if keys.is_empty() {
        return fail(ENODATA);
    }
    ctx.omap_remove_all(&keys)?;
    ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Memory, decoded, done, error};
    use nacre_wire::to_vec;

    #[test]
    fn values_are_listed_and_trimmed_by_time() {
        let mut object = Memory::default();
        let at = |sec: u32| Utime { sec, nsec: 7000 };
        let entry = |sec: u32| Entry { time: at(sec), name: Name::from("a_b"), value: "x".into() };
        let entries = vec![entry(9), entry(10), entry(2_000_000_000)];
        done(&mut object, "timeindex.add", &to_vec(&AddRequest { entries: entries.clone() }));
        let list =
            |from, to, max| to_vec(&ListRequest { from: at(from), marker: Name::default(), to: at(to), max });
        let reply: ListReply = decoded(&done(&mut object, "timeindex.list", &list(1, 11, 1)));
        assert_eq!((reply.entries, reply.truncated), (entries[..1].to_vec(), true));
        let reply: ListReply = decoded(&done(&mut object, "timeindex.list", &list(10, 11, 9)));
        assert_eq!((reply.entries, reply.truncated), (entries[1..2].to_vec(), false));
        let none = Name::default;
        let trim = TrimRequest { from: at(0), to: at(10), from_marker: none(), to_marker: none() };
        done(&mut object, "timeindex.trim", &to_vec(&trim));
        assert_eq!(error(&mut object, "timeindex.trim", &to_vec(&trim)), ENODATA);
        assert_eq!(object.omap.len(), 1);
    }
}
