//! Reads of data for requests, as many at a time as there is memory for what they bring.

use crate::pg::{Ctx, Pg, PgEffect};
use crate::throttle::{REPLY_LANES, Wait, reply_lane};
use nacre_proto::messages::part::Part;
use nacre_proto::types::ObjectId;
use std::collections::VecDeque;

/// Reads of running requests that wait, in order.
#[derive(Default)]
pub(super) struct WaitingReads {
    /// For memory: small ones, and large ones.
    lines: [VecDeque<(u64, ObjectId)>; REPLY_LANES],
    /// For their clients to take what they asked for before.
    waiting_for_client: Vec<(u64, ObjectId)>,
}

impl Pg {
    /// Begins to fetch what a running request asked for of an object, or one of its clones, unless that has to wait.
    pub(super) fn begin_read(&mut self, ctx: &mut Ctx<'_>, read: u64, object: ObjectId) {
        if let Some((kind, object)) = self.try_read(ctx, read, object, false)
            && let Some(active) = self.active()
        {
            active.waiting_reads.lines[kind].push_back((read, object));
        }
    }

    /// There may be memory now.
    pub(super) fn retry_reads(&mut self, ctx: &mut Ctx<'_>) {
        for kind in 0..REPLY_LANES {
            while let Some(active) = self.active()
                && let Some((read, object)) = active.waiting_reads.lines[kind].pop_front()
            {
                if let Some((_, object)) = self.try_read(ctx, read, object, true)
                    && let Some(active) = self.active()
                {
                    active.waiting_reads.lines[kind].push_front((read, object));
                    break;
                }
            }
        }
    }

    /// Clients may have taken something.
    pub(super) fn retry_client_reads(&mut self, ctx: &mut Ctx<'_>) {
        let Some(active) = self.active() else { return };
        for (read, object) in std::mem::take(&mut active.waiting_reads.waiting_for_client) {
            self.begin_read(ctx, read, object);
        }
    }

    /// Gives it back if there is no memory. A block may have turned out to be bad while it waited, and is missing now: then the
    /// request begins anew, and waits for that.
    fn try_read(
        &mut self,
        ctx: &mut Ctx<'_>,
        read: u64,
        object: ObjectId,
        has_waited: bool,
    ) -> Option<(usize, ObjectId)> {
        let pg = self.id;
        let extents = self.active()?.running.get(&read)?.asked.1.clone();
        let data = || extents.iter().map(|(offset, len)| *offset..offset.saturating_add(*len)).collect();
        if self.missing.get(&object).is_some()
            && self.missing.lacks(&object, &Part { data: data(), ..Part::default() })
        {
            let running = self.take_running(read)?;
            let head = object.to_head();
            let active = self.active()?;
            active.put_first(&head, [running.op].into());
            active.note_runnable(&head);
            ctx.out.push(PgEffect::Loop);
            return None;
        }
        let active = self.active()?;
        let running = active.running.get_mut(&read)?;
        let bytes = extents.iter().fold(0, |sum: u64, (_, len)| sum.saturating_add(*len));
        match ctx.budget.replies.take(pg, running.op.conn, bytes, has_waited) {
            Ok(held) => {
                running.held = Some(held);
                ctx.out.push(PgEffect::Read { read, object: Box::new(object), extents, device: false });
            }
            Err(Wait::Memory) => return Some((reply_lane(bytes), object)),
            Err(Wait::Client) => active.waiting_reads.waiting_for_client.push((read, object)),
        }
        None
    }
}
