//! A log in an omap. Ceph: `cls_log`; the gateway logs changes of metadata like this.

use crate::context::{Page, stored};
use crate::record::record;
use crate::timeindex::{of_time, page_of_times};
use crate::{Class, Context, Reply, fail, input, ok, output, r, rw};
use bytes::Bytes;
use nacre_base::errno::ENODATA;
use nacre_base::{Name, Utime};
use nacre_wire::{Decode, DecodeError, Reader, to_vec};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const CLASS: Class =
    Class { name: "log", methods: &[rw("add", add), r("list", list), rw("trim", trim), r("info", info)] };

record!(Entry, "cls_log_entry", 2, {
    section: Name,
    name: Name,
    time: Utime,
    data: Bytes,
} since 2 {
    /// Its key; empty for a new one.
    id: Name,
});
record!(#[derive(Default)] Header, "cls_log_header", 1, { max_marker: Name, max_time: Utime });
record!(ListRequest, "cls_log_list_op", 1, { from: Utime, marker: Name, to: Utime, max: i32 });
record!(ListReply, "cls_log_list_ret", 1, { entries: Vec<Entry>, marker: Name, truncated: bool });
record!(TrimRequest, "cls_log_trim_op", 2, {
    from: Utime,
    to: Utime,
} since 2 {
    from_marker: Name,
    to_marker: Name,
});
record!(InfoReply, "cls_log_info_ret", 1, { header: Header });

const PAGE: u64 = 1000;

/// Entries, and whether none may come before one that is there.
fn add_request(r: &mut Reader<'_>) -> Result<(Vec<Entry>, bool), DecodeError> {
    r.versioned("cls_log_add_op", 2, |r, v| Ok((Vec::decode(r)?, v < 2 || bool::decode(r)?)))
}

fn add(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let (entries, monotonic) = input(bytes, add_request)?;
    let mut header: Header = ctx.header()?.unwrap_or_default();
    let (version, call) = ctx.version();
    let mut pairs = BTreeMap::new();
    for mut entry in entries {
        let time = if monotonic { entry.time.max(header.max_time) } else { entry.time };
        header.max_time = header.max_time.max(time);
        if entry.id.is_empty() {
            let unique = format!("{version}.{call}");
            entry.id = Name::new([of_time(time).as_bytes(), unique.as_bytes()].concat());
        }
        header.max_marker = header.max_marker.max(entry.id.clone());
        pairs.insert(entry.id.clone(), to_vec(&entry).into());
    }
    if !pairs.is_empty() {
        ctx.omap_set_all(&pairs)?;
    }
    ctx.set_header(&header)?;
    ok()
}

fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ListRequest::decode)?;
    let after = if request.marker.is_empty() { of_time(request.from) } else { request.marker };
    let bounded = request.from != Utime::ZERO && request.to >= request.from;
    let end = bounded.then(|| of_time(request.to));
    let max = u64::try_from(request.max).ok().filter(|&max| max > 0).map_or(PAGE, |max| max.min(PAGE));
    let Page { pairs, more } = page_of_times(ctx, &after, end.as_ref(), max)?;
    let marker = pairs.last().map(|(key, _)| key.clone()).unwrap_or_default();
    let entries = pairs.iter().map(|(_, value)| stored(value)).collect::<Result<_, _>>()?;
    output(&ListReply { entries, marker, truncated: more })
}

/// ENODATA when there is nothing to trim.
fn trim(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, TrimRequest::decode)?;
    let after = if request.from_marker.is_empty() { of_time(request.from) } else { request.from_marker };
    let end = match request.to_marker.is_empty() {
        true => of_time(request.to + Duration::from_micros(1)),
        false => Name::new([request.to_marker.as_bytes(), b"\0"].concat()),
    };
    match ctx.page(after.as_bytes(), b"", 1)?.pairs.first() {
        Some((first, _)) if *first < end => {
            ctx.omap_remove_range(first, &end)?;
            ok()
        }
        _ => fail(ENODATA),
    }
}

fn info(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let header = ctx.header()?.unwrap_or_default();
    output(&InfoReply { header })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Memory, NOW, decoded, done, enveloped, error};
    use nacre_wire::Encode;

    #[test]
    fn a_log_is_listed_in_order_and_trimmed() {
        let mut object = Memory::default();
        let entry = |sec: u32| {
            let (section, name, id) = (Name::from("s"), Name::from("n"), Name::default());
            Entry { section, name, time: Utime { sec, ..NOW }, data: Bytes::new(), id }
        };
        let add = |sec: u32| enveloped(|out| vec![entry(sec)].encode(out));
        done(&mut object, "log.add", &add(20));
        // Not before one that is there: in its place, as the call is the same here.
        done(&mut object, "log.add", &add(10));
        assert_eq!(object.omap.len(), 1);
        done(&mut object, "log.add", &add(30));
        let info: InfoReply = decoded(&done(&mut object, "log.info", b""));
        assert_eq!(info.header.max_marker, Name::from("1_0000000030.000000_70.1"));
        let none = Name::default;
        let list = ListRequest { from: Utime::ZERO, marker: none(), to: Utime::ZERO, max: 0 };
        let reply: ListReply = decoded(&done(&mut object, "log.list", &to_vec(&list)));
        let times: Vec<u32> = reply.entries.iter().map(|entry| entry.time.sec).collect();
        assert_eq!((times, reply.truncated), (vec![10, 30], false));
        let to_marker = info.header.max_marker;
        let (from, to) = (Utime::ZERO, Utime::ZERO);
        let trim = to_vec(&TrimRequest { from, to, from_marker: none(), to_marker });
        done(&mut object, "log.trim", &trim);
        assert_eq!(error(&mut object, "log.trim", &trim), ENODATA);
    }
}
