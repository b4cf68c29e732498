//! The statistics in an index's header: counted anew, or set.

use super::index::Index;
use super::list::plain_page;
use super::types::{Entry, Header, Stats};
use crate::context::stored;
use crate::record::record;
use crate::{Context, Reply, Stop, input, output};
use nacre_base::Name;
use nacre_wire::Decode;
use std::collections::BTreeMap;

record!(CheckReply, "rgw_cls_check_index_ret", 1, { existing: Header, calculated: Header });
record!(UpdateRequest, "rgw_cls_bucket_update_stats_op", 1, {
    /// In place of the statistics that are there, not on top of them.
    absolute: bool,
    stats: BTreeMap<u8, Stats>,
});

const PAGE: u64 = 1000;

/// The header as it is and as it should be.
fn counted(ctx: &mut Context<'_>) -> Result<CheckReply, Stop> {
    let existing: Header = ctx.header()?.unwrap_or_default();
    let mut calculated = Header { stats: BTreeMap::new(), ..existing.clone() };
    let mut after = Name::default();
    loop {
        let page = plain_page(ctx, after.as_bytes(), b"", PAGE)?;
        for (_, value) in &page.pairs {
            let entry: Entry = stored(value)?;
            if entry.exists {
                calculated.count(&entry.meta);
            }
        }
        match page.pairs.into_iter().next_back() {
            Some((last, _)) if page.more => after = last,
            _ => return Ok(CheckReply { existing, calculated }),
        }
    }
}

pub(crate) fn check(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let reply = counted(ctx)?;
    output(&reply)
}

pub(crate) fn rebuild(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let header = counted(ctx)?.calculated;
    let mut index = Index::new(ctx);
    index.set_header(header);
    index.finish()
}

pub(crate) fn update(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, UpdateRequest::decode)?;
    let mut index = Index::new(ctx);
    let mut header = index.header()?;
    for (category, by) in request.stats {
        let stats = header.stats.entry(category).or_default();
        if request.absolute {
            *stats = by;
            continue;
        }
        stats.total_size = stats.total_size.wrapping_add(by.total_size);
        stats.total_size_rounded = stats.total_size_rounded.wrapping_add(by.total_size_rounded);
        stats.num_entries = stats.num_entries.wrapping_add(by.num_entries);
        stats.actual_size = stats.actual_size.wrapping_add(by.actual_size);
    }
    index.set_header(header);
    index.finish()
}
