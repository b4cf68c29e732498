//! Bodies in the data pool: objects of one size, the stripes, named by the write that brought them.

use crate::record::Extent;
use crate::tag::Tag;
use std::ops::Range;

/// Bodies up to this size are in the index, beside their headers: a small PUT or GET is one operation.
pub const INLINE_MAX: usize = 4096;
/// How much of a body one RADOS object has.
pub const STRIPE: u64 = 4 << 20;

/// The name of one stripe of a body.
pub fn object_name(tag: Tag, stripe: u64) -> String {
    format!("{tag}.{stripe:x}")
}

/// A part of one stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub tag: Tag,
    pub stripe: u64,
    /// Where it begins in the stripe.
    pub offset: u64,
    pub len: u64,
}

/// Where the bytes of a range of a body are, in order.
pub fn spans(extents: &[Extent], range: Range<u64>) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut start = 0;
    for extent in extents {
        let end = start + extent.len;
        let mut at = range.start.max(start);
        while at < range.end.min(end) {
            let within = at - start;
            let (stripe, offset) = (within / STRIPE, within % STRIPE);
            let len = (STRIPE - offset).min(range.end.min(end) - at);
            spans.push(Span { tag: extent.tag, stripe, offset, len });
            at += len;
        }
        start = end;
    }
    spans
}

/// How many RADOS objects an extent has.
pub fn stripes(extent: &Extent) -> u64 {
    extent.len.div_ceil(STRIPE)
}
