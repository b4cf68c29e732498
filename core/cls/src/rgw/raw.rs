//! An index's entries as they are stored, for moving them to other shards and for `radosgw-admin bi`.

use super::keys;
use super::list::plain_page;
use super::types::{Entry, ObjectKey, Olh, RawEntry};
use crate::context::{Page, stored};
use crate::record::record;
use crate::{Context, Reply, Stop, fail, input, ok, output};
use nacre_base::Name;
use nacre_base::errno::{EINVAL, ENOENT};
use nacre_wire::Decode;

record!(GetRequest, "rgw_cls_bi_get_op", 1, { key: ObjectKey, kind: u8 });
record!(EntryMessage, "rgw_cls_bi_put_op", 1, { entry: RawEntry });
record!(ListRequest, "rgw_cls_bi_list_op", 1, {
    max: u32,
    /// Only the object of this name, if it is not empty.
    name: Name,
    after: Name,
});
record!(ListReply, "rgw_cls_bi_list_ret", 1, { entries: Vec<RawEntry>, truncated: bool });

mod kind {
    pub(crate) const PLAIN: u8 = 1;
    pub(crate) const INSTANCE: u8 = 2;
    pub(crate) const OLH: u8 = 3;
}

const ENTRIES_MAX: u32 = 1000;

pub(crate) fn get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, GetRequest::decode)?;
    let key = match request.kind {
        kind::PLAIN => request.key.name,
        kind::INSTANCE => keys::object(&request.key),
        kind::OLH => keys::olh(&request.key.name),
        _ => return fail(EINVAL),
    };
    let Some(data) = ctx.omap_get(&key)? else { return fail(ENOENT) };
    output(&EntryMessage { entry: RawEntry { kind: request.kind, key, data } })
}

pub(crate) fn put(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let RawEntry { key, data, .. } = input(bytes, EntryMessage::decode)?.entry;
    if key.is_empty() {
        return fail(EINVAL);
    }
    ctx.omap_set(&key, data)?;
    ok()
}

/// The parts of an index in the order in which a listing goes through them.
#[derive(Clone, Copy)]
enum Part {
    BeforeSpecial,
    Instances,
    Olhs,
    AfterSpecial,
}

impl Part {
    const ALL: [Part; 4] = [Part::BeforeSpecial, Part::Instances, Part::Olhs, Part::AfterSpecial];

    fn kind(self) -> u8 {
        match self {
            Part::BeforeSpecial | Part::AfterSpecial => kind::PLAIN,
            Part::Instances => kind::INSTANCE,
            Part::Olhs => kind::OLH,
        }
    }

    /// Pairs of the part beyond `after`, whose key starts like those of the object do.
    fn page(self, ctx: &mut Context<'_>, request: &ListRequest, max: u64) -> Result<Page, Stop> {
        let (after, name) = (request.after.as_bytes(), request.name.as_bytes());
        match self {
            Part::BeforeSpecial | Part::AfterSpecial => {
                let high = matches!(self, Part::AfterSpecial);
                let from = if high { after.max(keys::SPECIAL_END) } else { after };
                if !high && from >= &[keys::SPECIAL][..] {
                    return Ok(Page::default());
                }
                let mut page = plain_page(ctx, from, name, max)?;
                if let Some(end) =
                    page.pairs.iter().position(|(key, _)| key.as_bytes() > &[keys::SPECIAL][..])
                    && !high
                {
                    page.pairs.truncate(end);
                    page.more = false;
                }
                Ok(page)
            }
            Part::Instances => ctx.page(after, &[keys::INSTANCES, name].concat(), max),
            Part::Olhs => ctx.page(after, &[keys::OLHS, name].concat(), max),
        }
    }

    /// Of which object an entry is.
    fn name(self, value: &[u8]) -> Result<Name, Stop> {
        Ok(match self {
            Part::Olhs => stored::<Olh>(value)?.key.name,
            _ => stored::<Entry>(value)?.key.name,
        })
    }
}

pub(crate) fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ListRequest::decode)?;
    let max = request.max.min(ENTRIES_MAX) as usize;
    let mut reply = ListReply { entries: Vec::new(), truncated: false };
    for part in Part::ALL {
        let left = max - reply.entries.len();
        let page = part.page(ctx, &request, left as u64)?;
        let mut more = page.more;
        for (key, data) in page.pairs {
            // Names that only start like the one asked for come after it.
            if !request.name.is_empty() && part.name(&data)? != request.name {
                more = false;
                break;
            }
            reply.entries.push(RawEntry { kind: part.kind(), key, data });
        }
        if more {
            reply.truncated = true;
            break;
        }
    }
    output(&reply)
}
