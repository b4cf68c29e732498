//! Reads of data for requests, as many at a time as there is memory for what they bring.

use super::{ClientOps, Scope};
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
        let bytes = extents.iter().fold(0, |sum: u64, (_, len)| sum.saturating_add(*len));
        match ctx.budget.replies.take(pg.history.pg, running.op.conn, bytes, has_waited) {
            Ok(held) => {
                running.held = Some(held);
                match pg.backend.plan_read(extents) {
                    ReadPlan::Local(extents) => {
                        ctx.out.push(PgEffect::Read {
                            read,
                            object: Box::new(object),
                            extents,
                            device: false,
                        });
                    }
                    ReadPlan::Gather(extents) => {
                        let want = Want::Object(extents);
                        pg.pending.gathers.push(GatherRequest { read, object, want });
                    }
                }
            }
            Err(Wait::Memory) => return Some((reply_lane(bytes), object)),
            Err(Wait::Client) => self.waiting_reads.waiting_for_client.push((read, object)),
        }
        None
    }
}
