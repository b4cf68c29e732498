//! Reads of data for requests, as many at a time as there is memory for what they bring.

use super::{ClientOps, Running, Scope};
use crate::pg::backend::ReadPlan;
use crate::pg::backend::erasure::job::{GatherRequest, Want};
use crate::pg::{Ctx, PgEffect};
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

impl ClientOps {
    /// Begins to fetch what a running request asked for of an object, or one of its clones, unless that has
    /// to wait.
    pub(super) fn begin_read(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, read: u64, object: ObjectId) {
        if let Some((kind, object)) = self.try_read(pg, ctx, read, object, false) {
            self.waiting_reads.lines[kind].push_back((read, object));
        }
    }

    /// There may be memory now.
    pub(super) fn retry_reads(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        for kind in 0..REPLY_LANES {
            while let Some((read, object)) = self.waiting_reads.lines[kind].pop_front() {
                if let Some((_, object)) = self.try_read(pg, ctx, read, object, true) {
                    self.waiting_reads.lines[kind].push_front((read, object));
                    break;
                }
            }
        }
    }

    /// Clients may have received replies.
    pub(super) fn retry_client_reads(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        for (read, object) in std::mem::take(&mut self.waiting_reads.waiting_for_client) {
            self.begin_read(pg, ctx, read, object);
        }
    }

    /// Gives it back if there is no memory. A block may have turned out to be bad while it waited, and is
    /// missing now: then the request begins anew, and waits for that.
    fn try_read(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        read: u64,
        object: ObjectId,
        has_waited: bool,
    ) -> Option<(usize, ObjectId)> {
        let extents = self.running.get(&read)?.asked.1.clone();
        let data = || extents.iter().map(|(offset, len)| *offset..offset.saturating_add(*len)).collect();
        if !pg.backend.is_erasure()
            && pg.history.missing.get(&object).is_some()
            && pg.history.missing.lacks(&object, &Part { data: data(), ..Part::default() })
        {
            let running = self.take_running(read)?;
            let head = object.to_head();
            self.put_first(&head, [running.op].into());
            self.note_runnable(&head);
            ctx.out.push(PgEffect::Loop);
            return None;
        }
        let running = self.running.get_mut(&read)?;
        let bytes = running.count();
        if running.held.as_ref().is_none_or(|held| held.bytes() < bytes) {
            // What waits for memory holds none, or requests would wait for each other, and one for itself.
            running.held = None;
            match ctx.budget.replies.take(pg.history.pg, running.op.conn, bytes, has_waited) {
                Ok(held) => running.held = Some(held),
                Err(wait) => {
                    running.drop_fetched();
                    if wait == Wait::Memory {
                        return Some((reply_lane(bytes), object));
                    }
                    self.waiting_reads.waiting_for_client.push((read, object));
                    return None;
                }
            }
        }
        match pg.backend.plan_read(running.asked.1.clone()) {
            ReadPlan::Local(extents) => {
                ctx.out.push(PgEffect::Read { read, object: Box::new(object), extents, device: false });
            }
            ReadPlan::Gather(extents) => {
                let want = Want::Object(extents);
                pg.pending.gathers.push(GatherRequest { read, object, want });
            }
        }
        None
    }
}

impl Running {
    /// Bytes of all that was fetched and is to be fetched.
    fn count(&mut self) -> u64 {
        let fetched = self.fetched.extents.iter().map(|(_, _, len, _)| *len);
        let asked = self.asked.1.iter().map(|(_, len)| *len);
        self.needed = self.needed.max(fetched.chain(asked).fold(0, u64::saturating_add));
        self.needed
    }
    /// It is fetched again, with what is asked for now: at once what is of the same object.
    fn drop_fetched(&mut self) {
        let (of, asked) = &mut self.asked;
        let fetched = std::mem::take(&mut self.fetched.extents).into_iter();
        asked.extend(fetched.filter(|(snap, ..)| snap == of).map(|(_, offset, len, _)| (offset, len)));
    }
}
