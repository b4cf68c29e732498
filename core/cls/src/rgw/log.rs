//! The log of an index, from which other zones learn what changed.

use super::index::Index;
use super::keys;
use super::types::{LogEntry, modify};
use crate::context::stored;
use crate::record::record;
use crate::{Context, Reply, fail, input, ok, output};
use nacre_base::Name;
use nacre_base::errno::ENODATA;
use nacre_wire::Decode;

record!(ListRequest, "cls_rgw_bi_log_list_op", 1, { after: Name, max: u32 });
record!(ListReply, "cls_rgw_bi_log_list_ret", 1, { entries: Vec<LogEntry>, truncated: bool });
record!(TrimRequest, "cls_rgw_bi_log_trim_op", 1, {
    after: Name,
    /// The last one; empty for all.
    upto: Name,
});

pub(crate) fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ListRequest::decode)?;
    let after = keys::log(request.after.as_bytes());
    let page = ctx.page(after.as_bytes(), keys::LOG, request.max.into())?;
    let entries = page.pairs.iter().map(|(_, value)| stored(value)).collect::<Result<_, _>>()?;
    output(&ListReply { entries, truncated: page.more })
}

/// ENODATA when there is nothing to trim.
pub(crate) fn trim(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, TrimRequest::decode)?;
    let after = keys::log(request.after.as_bytes());
    let end = match request.upto.is_empty() {
        true => Name::copy_from(keys::LOG_END),
        false => keys::log(&[request.upto.as_bytes(), b"\0"].concat()),
    };
    match ctx.page(after.as_bytes(), keys::LOG, 1)?.pairs.first() {
        Some((first, _)) if *first < end => {
            ctx.omap_remove_range(first, &end)?;
            ok()
        }
        _ => fail(ENODATA),
    }
}

pub(crate) fn stop(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    set_stopped(ctx, true)
}

pub(crate) fn resync(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    set_stopped(ctx, false)
}

fn set_stopped(ctx: &mut Context<'_>, stopped: bool) -> Reply {
    let time = ctx.now();
    let mut index = Index::new(ctx);
    let mut header = index.header()?;
    let op = if stopped { modify::SYNC_STOP } else { modify::RESYNC };
    index.log(&mut header, LogEntry { time, op, ..LogEntry::default() });
    header.sync_stopped = stopped;
    index.set_header(header);
    index.finish()
}
