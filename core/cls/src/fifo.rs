//! A queue over many objects: one with what is known about it (meta), and parts with entries. Ceph:
//! `cls_fifo`;
//! the gateway logs changes of data like this.
//!
//! ```text
//! part:   0 `PartHeader`   512 entries, up to `next`
//! entry:  u64 magic, u64 length of this, u64 length of the header, u64 length of the data, u64 index, u32 0
//!         `EntryHeader`, data
//! ```

use crate::record::record;
use crate::{Class, Context, Reply, Stop, fail, input, ok, output, r, rw};
use bytes::Bytes;
use nacre_base::errno::{ECANCELED, EEXIST, EINVAL, EIO, ENODATA, ENOENT, ERANGE};
use nacre_base::{Name, Utime};
use nacre_wire::{Decode, DecodeError, Encode, Reader, to_vec};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const CLASS: Class = Class {
    name: "fifo",
    methods: &[
        rw("create_meta", create_meta),
        r("get_meta", get_meta),
        rw("update_meta", update_meta),
        rw("init_part", init_part),
        rw("push_part", push_part),
        rw("trim_part", trim_part),
        r("part_list", list_part),
        r("get_part_info", get_part_info),
    ],
};

const HEADER_MAX: u64 = 512;
/// Of an entry, before its own header.
const FRAME: u64 = 44;
/// What an entry takes besides its data.
const OVERHEAD: u64 = FRAME + 14;
const LIST_MAX: i32 = 512;
/// One listing gives back no more than this beyond its first entry.
const LISTED_BYTES_MAX: u64 = 4 << 20;
const READ_AHEAD: u64 = 128 << 10;

record!(#[derive(Default)] MetaVersion, "objv", 1, { instance: Name, number: u64 });
record!(#[derive(Default)] Params, "data_params", 1, {
    part_max: u64,
    entry_max: u64,
    /// A part that has more is full.
    full: u64,
});
record!(Step, "journal_entry", 1, {
    /// Create a part, make it the head, remove it.
    op: i32,
    part: i64,
    tag: Name,
});
record!(
    /// What is known about a queue. Its steps are what clients have yet to do.
    Meta, "info", 1, {
    id: Name,
    version: MetaVersion,
    prefix: Name,
    params: Params,
    tail_part: i64,
    head_part: i64,
    min_push_part: i64,
    max_push_part: i64,
    tags: BTreeMap<i64, Name>,
    head_tag: Name,
    steps: Vec<(i64, Step)>,
});
record!(UpdateRequest, "update_meta", 1, {
    version: MetaVersion,
    tail_part: Option<i64>,
    head_part: Option<i64>,
    min_push_part: Option<i64>,
    max_push_part: Option<i64>,
    added: Vec<Step>,
    removed: Vec<Step>,
});
record!(GetMetaRequest, "get_meta", 1, { version: Option<MetaVersion> });
record!(GetMetaReply, "get_meta_reply", 1, { meta: Meta, part_header_len: u32, entry_overhead: u32 });
record!(PartHeader, "part_header", 1, {
    tag: Name,
    params: Params,
    /// In every entry.
    magic: u64,
    min: u64,
    last: u64,
    next: u64,
    min_index: u64,
    max_index: u64,
    time: Utime,
});
record!(EntryHeader, "entry_header", 1, { time: Utime });
record!(InitPartRequest, "init_part", 1, { tag: Name, params: Params });
record!(PushRequest, "push_part", 1, { tag: Name, data: Vec<Bytes>, total_len: u64 });
record!(TrimRequest, "trim_part", 1, {
    tag: Option<Name>,
    offset: u64,
    /// The entry at the offset stays.
    exclusive: bool,
});
record!(ListRequest, "list_part", 1, { tag: Option<Name>, after: u64, max: i32 });
record!(Listed, "part_list_entry", 1, { data: Bytes, offset: u64, time: Utime });
record!(ListReply, "list_part_reply", 1, { tag: Name, entries: Vec<Listed>, more: bool, full: bool });
record!(PartInfoReply, "get_part_info_reply", 1, { header: PartHeader });

struct CreateRequest {
    id: Name,
    version: Option<MetaVersion>,
    prefix: Option<Name>,
    part_max: u64,
    entry_max: u64,
    exclusive: bool,
}

fn create_request(r: &mut Reader<'_>) -> Result<CreateRequest, DecodeError> {
    r.versioned("create_meta", 1, |r, _| {
        let (id, version) = Decode::decode(r)?;
        let _pool = <(Name, Name)>::decode(r)?;
        let prefix = Decode::decode(r)?;
        let (part_max, entry_max) = Decode::decode(r)?;
        Ok(CreateRequest { id, version, prefix, part_max, entry_max, exclusive: bool::decode(r)? })
    })
}

// ---- the object about the queue ----

/// ENODATA if the object is empty.
fn read_meta(ctx: &mut Context<'_>) -> Result<Meta, Stop> {
    let size = ctx.stat()?;
    if size == 0 {
        return fail(ENODATA);
    }
    let bytes = ctx.read(0, size)?;
    crate::context::stored(&bytes)
}

fn write_meta(ctx: &mut Context<'_>, meta: &Meta) -> Reply {
    ctx.write_full(to_vec(meta))?;
    ok()
}

fn create_meta(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, create_request)?;
    let Some(full) = request.part_max.checked_sub(request.entry_max) else { return fail(EINVAL) };
    if request.id.is_empty() || request.part_max == 0 || request.entry_max == 0 {
        return fail(EINVAL);
    }
    if ctx.exists() {
        if request.exclusive {
            return fail(EEXIST);
        }
        let have = match read_meta(ctx) {
            Err(Stop::Failed(ENODATA)) => return fail(EIO),
            have => have?,
        };
        let same = have.id == request.id
            && request.prefix.is_none_or(|prefix| prefix == have.prefix)
            && request.version.is_none_or(|version| version == have.version);
        return if same { ok() } else { fail(EEXIST) };
    }
    let version = match request.version {
        Some(version) => version,
        None => MetaVersion { instance: ctx.random_text(16), number: 1 },
    };
    let prefix = match request.prefix {
        Some(prefix) => prefix,
        None => {
            let random = ctx.random_text(12);
            Name::new([request.id.as_bytes(), b".", random.as_bytes()].concat())
        }
    };
    let params = Params {
        part_max: request.part_max,
        entry_max: request.entry_max,
        full: full.saturating_sub(OVERHEAD),
    };
    let meta = Meta {
        id: request.id,
        version,
        prefix,
        params,
        tail_part: 0,
        head_part: -1,
        min_push_part: 0,
        max_push_part: -1,
        tags: BTreeMap::new(),
        head_tag: Name::default(),
        steps: Vec::new(),
    };
    write_meta(ctx, &meta)
}

fn get_meta(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, GetMetaRequest::decode)?;
    let meta = read_meta(ctx)?;
    if request.version.is_some_and(|version| version != meta.version) {
        return fail(ECANCELED);
    }
    output(&GetMetaReply { meta, part_header_len: HEADER_MAX as u32, entry_overhead: OVERHEAD as u32 })
}

fn update_meta(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, UpdateRequest::decode)?;
    if request.version.instance.is_empty() {
        return fail(EINVAL);
    }
    let before = read_meta(ctx)?;
    if request.version != before.version {
        return fail(ECANCELED);
    }
    let mut meta = before.clone();
    meta.tail_part = request.tail_part.unwrap_or(meta.tail_part);
    meta.head_part = request.head_part.unwrap_or(meta.head_part);
    meta.min_push_part = request.min_push_part.unwrap_or(meta.min_push_part);
    meta.max_push_part = request.max_push_part.unwrap_or(meta.max_push_part);
    let mut steps: BTreeSet<Step> = meta.steps.into_iter().map(|(_, step)| step).collect();
    steps.extend(request.added);
    steps.retain(|step| !request.removed.contains(step));
    if steps.iter().any(|step| !(1..=3).contains(&step.op) || step.part < 0) {
        return fail(EINVAL);
    }
    meta.steps = steps.into_iter().map(|step| (step.part, step)).collect();
    if meta == before {
        return ok();
    }
    meta.version.number = meta.version.number.wrapping_add(1);
    write_meta(ctx, &meta)
}

// ---- a part ----

impl PartHeader {
    fn is_full(&self) -> bool {
        self.next > self.params.full
    }
}

fn read_part(ctx: &mut Context<'_>) -> Result<PartHeader, Stop> {
    let bytes = ctx.read(0, HEADER_MAX)?;
    let header: PartHeader = crate::context::stored(&bytes)?;
    if header.min < HEADER_MAX || header.min > header.next { fail(EIO) } else { Ok(header) }
}

fn write_part(ctx: &mut Context<'_>, header: &PartHeader) -> Result<(), Stop> {
    let bytes = to_vec(header);
    if bytes.len() as u64 > HEADER_MAX {
        return fail(EIO);
    }
    ctx.write(0, bytes)
}

fn init_part(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, InitPartRequest::decode)?;
    if ctx.stat().is_ok_and(|size| size > 0) {
        let same = read_part(ctx)?.params == request.params;
        return if same { ok() } else { fail(EEXIST) };
    }
    let header = PartHeader {
        tag: request.tag,
        params: request.params,
        magic: ctx.random(),
        min: HEADER_MAX,
        last: 0,
        next: HEADER_MAX,
        min_index: 0,
        max_index: 0,
        time: ctx.now(),
    };
    write_part(ctx, &header)?;
    ok()
}

/// As many entries as there is room for, but at least one. Returns how many.
fn push_part(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, PushRequest::decode)?;
    let mut header = read_part(ctx)?;
    let total: u64 = request.data.iter().map(|data| data.len() as u64).sum();
    let stored = total + request.data.len() as u64 * OVERHEAD;
    if stored > header.params.part_max || total != request.total_len || request.data.is_empty() {
        return fail(EINVAL);
    }
    if header.is_full() {
        return fail(ERANGE);
    }
    let (start, time) = (header.next, ctx.now());
    let entry_header = to_vec(&EntryHeader { time });
    let (mut written, mut pushed) = (Vec::new(), 0);
    for data in &request.data {
        if header.is_full() {
            break;
        }
        let lengths = [FRAME, entry_header.len() as u64, data.len() as u64];
        header.magic.encode(&mut written);
        lengths.iter().for_each(|len| len.encode(&mut written));
        (header.max_index, 0_u32).encode(&mut written);
        written.extend_from_slice(&entry_header);
        written.extend_from_slice(data);
        header.last = header.next;
        header.next = start + written.len() as u64;
        header.max_index += 1;
        pushed += 1;
    }
    header.time = time;
    ctx.write(start, written)?;
    write_part(ctx, &header)?;
    Ok((pushed, Bytes::new()))
}

/// Reads a part's entries from an offset on.
struct Entries<'h> {
    header: &'h PartHeader,
    offset: u64,
    ahead: Vec<u8>,
}

struct Entry {
    offset: u64,
    index: u64,
    time: Utime,
    data: Vec<u8>,
}

impl Entries<'_> {
    fn from(header: &PartHeader, offset: u64) -> Entries<'_> {
        Entries { header, offset: offset.max(header.min), ahead: Vec::new() }
    }
    fn at_end(&self) -> bool {
        self.offset >= self.header.next
    }

    /// ERANGE if there is not that much.
    fn take(&mut self, ctx: &mut Context<'_>, len: u64) -> Result<Vec<u8>, Stop> {
        if len > self.header.next.saturating_sub(self.offset) {
            return fail(ERANGE);
        }
        let have = self.ahead.len() as u64;
        if len > have {
            let from = self.offset + have;
            let want = (len - have).max(READ_AHEAD).min(self.header.next - from);
            self.ahead.extend_from_slice(&ctx.read(from, want)?);
        }
        if len > self.ahead.len() as u64 {
            return fail(ERANGE);
        }
        self.offset += len;
        let rest = self.ahead.split_off(len as usize);
        Ok(std::mem::replace(&mut self.ahead, rest))
    }

    fn next(&mut self, ctx: &mut Context<'_>) -> Result<Entry, Stop> {
        if self.at_end() {
            return fail(ENOENT);
        }
        let offset = self.offset;
        let frame = self.take(ctx, FRAME)?;
        let invalid = |_| Stop::Failed(EIO);
        let mut r = Reader::new(&frame);
        let [magic, frame_len, header_len, data_len, index] =
            std::array::from_fn(|_| u64::decode(&mut r).unwrap_or_default());
        if magic != self.header.magic {
            return fail(ERANGE);
        }
        // A newer frame is longer.
        self.take(ctx, frame_len.saturating_sub(FRAME))?;
        let header = self.take(ctx, header_len)?;
        let EntryHeader { time } = EntryHeader::decode(&mut Reader::new(&header)).map_err(invalid)?;
        Ok(Entry { offset, index, time, data: self.take(ctx, data_len)? })
    }
}

fn trim_part(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, TrimRequest::decode)?;
    let mut header = read_part(ctx)?;
    if request.offset < header.min || (request.exclusive && request.offset == header.min) {
        return ok();
    }
    if request.offset >= header.next {
        if header.is_full() {
            ctx.remove()?;
            return ok();
        }
        header.min = header.next;
        header.min_index = header.max_index;
    } else {
        let mut entries = Entries::from(&header, request.offset);
        let entry = entries.next(ctx)?;
        let (min, min_index) = match request.exclusive {
            true => (entry.offset, entry.index),
            false => (entries.offset, entry.index.wrapping_add(1)),
        };
        (header.min, header.min_index) = (min, min_index);
    }
    write_part(ctx, &header)?;
    ok()
}

fn list_part(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ListRequest::decode)?;
    let header = read_part(ctx)?;
    let mut entries = Entries::from(&header, request.after);
    if request.after >= header.min && !entries.at_end() {
        entries.next(ctx)?; // the last one that the caller has
    }
    let max = request.max.clamp(0, LIST_MAX) as usize;
    let (mut listed, start) = (Vec::new(), entries.offset);
    while listed.len() < max && !entries.at_end() && entries.offset - start <= LISTED_BYTES_MAX {
        let Entry { offset, time, data, .. } = entries.next(ctx)?;
        listed.push(Listed { data: data.into(), offset, time });
    }
    let more = !entries.at_end();
    output(&ListReply { tag: Name::default(), entries: listed, more, full: header.is_full() })
}

fn get_part_info(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let header = read_part(ctx)?;
    output(&PartInfoReply { header })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Memory, client, decoded, done, enveloped, error, run};

    fn create(exclusive: bool) -> Vec<u8> {
        enveloped(|out| {
            (Name::from("id"), None::<MetaVersion>).encode(out);
            (Name::from("pool"), Name::default()).encode(out);
            (None::<Name>, (4096_u64, 1024_u64)).encode(out);
            exclusive.encode(out);
        })
    }

    fn meta(object: &mut Memory) -> Meta {
        let request = to_vec(&GetMetaRequest { version: None });
        decoded::<GetMetaReply>(&done(object, "fifo.get_meta", &request)).meta
    }

    #[test]
    fn what_is_known_about_a_queue_changes_under_its_version() {
        let mut object = Memory::default();
        done(&mut object, "fifo.create_meta", &create(true));
        assert_eq!(error(&mut object, "fifo.create_meta", &create(true)), EEXIST);
        done(&mut object, "fifo.create_meta", &create(false));
        let before = meta(&mut object);
        assert!(before.prefix.as_bytes().starts_with(b"id."));
        assert_eq!(before.params.full, 4096 - 1024 - OVERHEAD);
        let step = Step { op: 1, part: 0, tag: Name::default() };
        let update = to_vec(&UpdateRequest {
            version: before.version.clone(),
            tail_part: None,
            head_part: Some(0),
            min_push_part: None,
            max_push_part: None,
            added: vec![step.clone()],
            removed: Vec::new(),
        });
        done(&mut object, "fifo.update_meta", &update);
        let after = meta(&mut object);
        assert_eq!((after.head_part, after.steps), (0, vec![(0, step)]));
        assert_eq!(after.version.number, before.version.number + 1);
        assert_eq!(error(&mut object, "fifo.update_meta", &update), ECANCELED);
    }

    fn part() -> Memory {
        let mut object = Memory::default();
        let params = Params { part_max: 4096, entry_max: 1024, full: 1000 };
        let init = to_vec(&InitPartRequest { tag: Name::default(), params });
        done(&mut object, "fifo.init_part", &init);
        done(&mut object, "fifo.init_part", &init);
        object
    }

    fn push(data: &[&'static str]) -> Vec<u8> {
        let total_len = data.iter().map(|data| data.len() as u64).sum();
        let data = data.iter().map(|data| Bytes::from_static(data.as_bytes())).collect();
        to_vec(&PushRequest { tag: Name::default(), data, total_len })
    }

    fn list(object: &mut Memory, after: u64, max: i32) -> ListReply {
        decoded(&done(object, "fifo.part_list", &to_vec(&ListRequest { tag: None, after, max })))
    }

    #[test]
    fn entries_are_pushed_listed_and_trimmed() {
        let mut object = part();
        let (pushed, _) = run(&mut object, &client(1), "fifo.push_part", &push(&["a", "bb", "ccc"])).unwrap();
        assert_eq!(pushed, 3);
        let first = list(&mut object, 0, 2);
        assert_eq!((first.entries.len(), first.more, first.full), (2, true, false));
        assert_eq!(first.entries[1].data, "bb");
        assert_eq!(first.entries[1].offset, HEADER_MAX + OVERHEAD + 1);
        let rest = list(&mut object, first.entries[1].offset, 9);
        assert_eq!((rest.entries[0].data.as_ref(), rest.more), (&b"ccc"[..], false));
        let trim = |offset, exclusive| to_vec(&TrimRequest { tag: None, offset, exclusive });
        done(&mut object, "fifo.trim_part", &trim(first.entries[1].offset, true));
        assert_eq!(list(&mut object, 0, 9).entries.len(), 2);
        done(&mut object, "fifo.trim_part", &trim(first.entries[1].offset, false));
        assert_eq!(list(&mut object, 0, 9).entries, rest.entries);
        done(&mut object, "fifo.trim_part", &trim(99_999, false));
        assert_eq!(list(&mut object, 0, 9).entries, []);
    }

    #[test]
    fn a_full_part_takes_no_more_and_goes_when_it_is_trimmed() {
        let mut object = part();
        let long: &'static str = Box::leak("x".repeat(450).into_boxed_str());
        let (pushed, _) = run(&mut object, &client(1), "fifo.push_part", &push(&[long, long])).unwrap();
        assert_eq!(pushed, 1); // then it is full
        assert_eq!(error(&mut object, "fifo.push_part", &push(&["a"])), ERANGE);
        assert!(list(&mut object, 0, 9).full);
        done(
            &mut object,
            "fifo.trim_part",
            &to_vec(&TrimRequest { tag: None, offset: 99_999, exclusive: false }),
        );
        assert_eq!(object.data, None);
    }
}
