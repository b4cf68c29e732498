//! Reads of data for requests, as many at a time as there is memory for what they bring.

use crate::pg::{Ctx, Pg, PgEffect};
use nacre_proto::types::ObjectId;

impl Pg {
    /// Begins to fetch what a running request asked for of an object, or one of its clones, unless that has to wait.
    pub(super) fn begin_read(
        &mut self,
        ctx: &mut Ctx<'_>,
        read: u64,
        object: ObjectId,
        has_waited: bool,
    ) -> bool {
        let pg = self.id;
        let Some(active) = self.active() else { return false };
        let Some(running) = active.running.get_mut(&read) else { return true };
        let extents = running.asked.1.clone();
        let bytes = extents.iter().fold(0, |sum: u64, (_, len)| sum.saturating_add(*len));
        running.held = ctx.budget.answers.take(pg, bytes, has_waited);
        let begins = running.held.is_some();
        if begins {
            ctx.out.push(PgEffect::Read { read, object, extents, device: false });
        } else if has_waited {
            active.unread.push_front((read, object));
        } else {
            active.unread.push_back((read, object));
        }
        begins
    }

    /// There may be memory now.
    pub(super) fn begin_unread(&mut self, ctx: &mut Ctx<'_>) {
        loop {
            let Some(active) = self.active() else { return };
            let Some((read, object)) = active.unread.pop_front() else { return };
            if !self.begin_read(ctx, read, object, true) {
                return;
            }
        }
    }
}
