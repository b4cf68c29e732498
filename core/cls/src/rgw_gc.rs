//! Objects that are to be removed later, in a queue. Ceph: `cls_rgw_gc`.
//!
//! A client may still read some of them, which defers them: their tags are kept with a later time in the
//! queue's head, and where that gets too big, in an attribute.

use crate::context::stored;
use crate::queue::{self, Head, Position};
use crate::record::record;
use crate::rgw::gc::{Garbage, LIST_DEFAULT, ListReply, ListRequest, SetRequest};
use crate::{Class, Context, Reply, Stop, fail, input, ok, output, r, rw};
use nacre_base::errno::{ENODATA, ENOENT, ENOSPC};
use nacre_base::{Name, Utime};
use nacre_wire::{Decode, to_vec};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const CLASS: Class = Class {
    name: "rgw_gc",
    methods: &[
        rw("rgw_gc_queue_init", init),
        rw("rgw_gc_queue_enqueue", enqueue),
        r("rgw_gc_queue_list_entries", list),
        rw("rgw_gc_queue_remove_entries", remove),
        rw("rgw_gc_queue_update_entry", defer),
    ],
};

/// Ceph's default of `rgw_gc_max_deferred_entries_size`, which only OSDs would read.
const DEFERRED_BYTES_MAX: u64 = 3072;
const DEFERRED_ATTR: &str = "cls_queue_urgent_data";

type Times = BTreeMap<Name, Utime>;

record!(#[derive(Default)] Deferred, "cls_rgw_gc_urgent_data", 1, {
    times: Times,
    max: u32,
    in_head: u32,
    in_attr: u32,
});
record!(InitRequest, "cls_rgw_gc_queue_init_op", 1, { size: u64, deferred_max: u64 });
record!(RemoveRequest, "cls_rgw_gc_queue_remove_entries_op", 1, { entries: u64 });

fn init(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, InitRequest::decode)?;
    let max = u32::try_from(request.deferred_max).unwrap_or(u32::MAX);
    let deferred = to_vec(&Deferred { max, ..Deferred::default() });
    queue::init(ctx, request.size, DEFERRED_BYTES_MAX, deferred.into())?;
    ok()
}

fn enqueue(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let SetRequest { seconds, mut garbage } = input(bytes, SetRequest::decode)?;
    garbage.time = ctx.now() + Duration::from_secs(seconds.into());
    let mut head = queue::read_head(ctx)?;
    queue::enqueue(ctx, &mut head, &to_vec(&garbage))?;
    queue::write_head(ctx, &head)?;
    ok()
}

fn deferred(head: &Head) -> Result<Deferred, Stop> {
    if head.urgent.is_empty() { Ok(Deferred::default()) } else { stored(&head.urgent) }
}

fn deferred_in_attr(ctx: &mut Context<'_>) -> Result<Times, Stop> {
    match ctx.attr(&Name::from(DEFERRED_ATTR)) {
        Ok(bytes) => stored(&bytes),
        Err(Stop::Failed(ENOENT | ENODATA)) => Ok(Times::new()),
        Err(stop) => Err(stop),
    }
}

/// A queue without the entries that were deferred.
struct Queue {
    head: Head,
    deferred: Deferred,
    in_attr: Times,
}

/// What a queue has from a position on.
struct Part {
    garbage: Vec<(Position, Garbage)>,
    /// Behind the last one.
    next: Position,
    truncated: bool,
}

impl Queue {
    fn read(ctx: &mut Context<'_>) -> Result<Queue, Stop> {
        let head = queue::read_head(ctx)?;
        let deferred = deferred(&head)?;
        let in_attr = if deferred.in_attr > 0 { deferred_in_attr(ctx)? } else { Times::new() };
        Ok(Queue { head, deferred, in_attr })
    }

    fn is_deferred(&self, garbage: &Garbage) -> bool {
        let times = &self.deferred.times;
        let until = times.get(&garbage.tag).or_else(|| self.in_attr.get(&garbage.tag));
        until.is_some_and(|until| *until > garbage.time)
    }

    /// Up to `max` entries; at least one, unless there are only deferred ones.
    fn part(&self, ctx: &mut Context<'_>, from: Option<Position>, max: u64) -> Result<Part, Stop> {
        let mut part = Part { garbage: Vec::new(), next: from.unwrap_or(self.head.front), truncated: true };
        while part.truncated && part.garbage.is_empty() {
            let listing = queue::list(ctx, &self.head, Some(part.next), max)?;
            for entry in &listing.entries {
                let garbage = stored::<Garbage>(&entry.data)?;
                if !self.is_deferred(&garbage) {
                    part.garbage.push((entry.at, garbage));
                }
            }
            part.next = listing.next;
            part.truncated = listing.truncated;
        }
        Ok(part)
    }
}

fn list(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ListRequest::decode)?;
    let now = ctx.now();
    let queue = Queue::read(ctx)?;
    let max = if request.max == 0 { LIST_DEFAULT } else { request.max };
    // Ceph starts at the front for a marker that it does not understand.
    let from = Position::parsed(&request.marker).filter(|from| from.offset != 0);
    let part = queue.part(ctx, from, max.into())?;
    let expired = |garbage: &Garbage| !request.expired_only || garbage.time <= now;
    let garbage = part.garbage.into_iter().map(|(_, garbage)| garbage).filter(expired).collect();
    let next = if part.truncated { part.next.text() } else { Name::default() };
    output(&ListReply { garbage, next, truncated: part.truncated })
}

/// Forgets entries, which are removed by now, and the deferred ones between them.
fn remove(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, RemoveRequest::decode)?;
    let entries = if request.entries == 0 { LIST_DEFAULT.into() } else { request.entries };
    let mut queue = Queue::read(ctx)?;
    let (mut end, mut left) = (queue.head.front, entries);
    while left > 0 {
        let part = queue.part(ctx, Some(end), left)?;
        left -= part.garbage.len() as u64;
        end = part.next;
        for (_, garbage) in &part.garbage {
            if queue.deferred.times.get(&garbage.tag) == Some(&garbage.time) {
                queue.deferred.times.remove(&garbage.tag);
                queue.deferred.in_head = queue.deferred.in_head.saturating_sub(1);
            }
        }
        if !part.truncated {
            break;
        }
    }
    queue::remove(ctx, &mut queue.head, end)?;
    queue.head.urgent = to_vec(&queue.deferred).into();
    queue::write_head(ctx, &queue.head)?;
    ok()
}

fn defer(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let SetRequest { seconds, garbage } = input(bytes, SetRequest::decode)?;
    let time = ctx.now() + Duration::from_secs(seconds.into());
    let mut head = queue::read_head(ctx)?;
    let mut deferred = input(&head.urgent, Deferred::decode)?;
    let mut in_attr = deferred_in_attr(ctx)?;
    let mut attr_changed = false;
    if let Some(until) = deferred.times.get_mut(&garbage.tag) {
        *until = time;
    } else if let Some(until) = in_attr.get_mut(&garbage.tag) {
        *until = time;
        attr_changed = true;
    } else {
        deferred.times.insert(garbage.tag.clone(), time);
        deferred.in_head = deferred.in_head.saturating_add(1);
        if to_vec(&deferred).len() as u64 > head.max_urgent {
            deferred.times.remove(&garbage.tag);
            deferred.in_head -= 1;
            in_attr.insert(garbage.tag, time);
            deferred.in_attr = deferred.in_attr.saturating_add(1);
            attr_changed = true;
        }
    }
    if deferred.in_head.saturating_add(deferred.in_attr) > deferred.max {
        return fail(ENOSPC);
    }
    if attr_changed {
        ctx.set_attr(&Name::from(DEFERRED_ATTR), to_vec(&in_attr))?;
    }
    head.urgent = to_vec(&deferred).into();
    queue::write_head(ctx, &head)?;
    ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rgw::gc::Chain;
    use crate::tests::{Memory, decoded, done, enveloped, error, hex, run};
    use nacre_base::errno::{EEXIST, ENOSPC};
    use nacre_wire::Encode;

    fn set(tag: &str, seconds: u32) -> Vec<u8> {
        let garbage = Garbage { tag: Name::from(tag), chain: Chain::default(), time: Utime::ZERO };
        to_vec(&SetRequest { seconds, garbage })
    }

    fn tags(object: &mut Memory, expired_only: bool) -> Vec<String> {
        let request = to_vec(&ListRequest { marker: Name::default(), max: 0, expired_only });
        let reply: ListReply = decoded(&done(object, "rgw_gc.rgw_gc_queue_list_entries", &request));
        reply.garbage.iter().map(|garbage| garbage.tag.to_text().into_owned()).collect()
    }

    fn remove(object: &mut Memory, entries: u64) {
        let request = to_vec(&RemoveRequest { entries });
        done(object, "rgw_gc.rgw_gc_queue_remove_entries", &request);
    }

    fn queue(size: u64) -> Memory {
        let mut object = Memory::default();
        let init = to_vec(&InitRequest { size, deferred_max: 1 });
        done(&mut object, "rgw_gc.rgw_gc_queue_init", &init);
        assert_eq!(error(&mut object, "rgw_gc.rgw_gc_queue_init", &init), EEXIST);
        object
    }

    /// The start of a queue that a real one made.
    #[test]
    fn a_new_queue_looks_as_ceph_makes_it() {
        let mut object = Memory::default();
        let init = to_vec(&InitRequest { size: 134_213_632, deferred_max: 50 });
        done(&mut object, "rgw_gc.rgw_gc_queue_init", &init);
        let head = concat!(
            "adde640000000000000001015e000000001000000000000001011000000000000000000000000010000000000000",
            "01011000000000000000000000000010000000000000",
        );
        assert_eq!(object.data.unwrap()[..68], hex(head)[..68]);
    }

    #[test]
    fn garbage_leaves_the_queue_in_order_and_the_ring_goes_round() {
        let mut object = queue(200);
        for round in 0..9 {
            let (a, b) = (format!("a{round}"), format!("b{round}"));
            done(&mut object, "rgw_gc.rgw_gc_queue_enqueue", &set(&a, 0));
            done(&mut object, "rgw_gc.rgw_gc_queue_enqueue", &set(&b, 9));
            assert_eq!(tags(&mut object, false), [a.clone(), b.clone()]);
            assert_eq!(tags(&mut object, true), [a]);
            remove(&mut object, 1);
            assert_eq!(tags(&mut object, false), [b]);
            remove(&mut object, 1);
        }
        let mut count = 0;
        while run(&mut object, &crate::tests::client(1), "rgw_gc.rgw_gc_queue_enqueue", &set("x", 0)).is_ok()
        {
            count += 1;
        }
        assert_eq!(count, 5);
        assert_eq!(error(&mut object, "rgw_gc.rgw_gc_queue_enqueue", &set("x", 0)), ENOSPC);
        assert_eq!(tags(&mut object, false).len(), 5);
    }

    #[test]
    fn deferred_garbage_is_not_listed() {
        let mut object = queue(4096);
        done(&mut object, "rgw_gc.rgw_gc_queue_enqueue", &set("a", 0));
        done(&mut object, "rgw_gc.rgw_gc_queue_enqueue", &set("b", 0));
        done(&mut object, "rgw_gc.rgw_gc_queue_update_entry", &set("a", 60));
        assert_eq!(tags(&mut object, false), ["b"]);
        assert_eq!(error(&mut object, "rgw_gc.rgw_gc_queue_update_entry", &set("b", 60)), ENOSPC);
        remove(&mut object, 5);
        assert_eq!(tags(&mut object, false), [""; 0]);
    }

    #[test]
    fn a_marker_that_is_outside_of_the_queue_is_refused() {
        let mut object = queue(4096);
        done(&mut object, "rgw_gc.rgw_gc_queue_enqueue", &set("a", 0));
        let list = |marker: &str| enveloped(|out| (Name::from(marker), 9_u32).encode(out));
        for marker in ["0/999999", "7/4096", "18446744073709551615/18446744073709551615", "0/4097"] {
            let errno = error(&mut object, "rgw_gc.rgw_gc_queue_list_entries", &list(marker));
            assert_eq!(errno, nacre_base::errno::EINVAL, "{marker}");
        }
    }
}
