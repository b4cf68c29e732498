//! What PGs want to copy of objects elsewhere (`copy_from`), asked for as a client would, of ourselves too.

use super::{OURSELVES, Osd};
use crate::copier::{Asker, Finished};
use crate::pg::PgEvent;
use nacre_base::Now;
use nacre_base::errno::ENOENT;
use nacre_machine::{Effect, StoreView};
use nacre_proto::messages::{Message, OsdOpReply};

impl Osd {
    /// Asks for what PGs of ours want to copy. What we ask ourselves happens here and now.
    pub(super) fn copy(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        loop {
            let mut idle = true;
            for id in self.copier.due(now.mono) {
                idle &= !self.fetch_part(now, store, id, out);
            }
            let ours = |effect: &Effect| matches!(effect, Effect::Send { conn, .. } if *conn == OURSELVES);
            let Some(at) = out.iter().position(ours) else {
                if idle {
                    return;
                }
                continue;
            };
            match out.remove(at) {
                Effect::Send { tid, message: Message::OsdOp(op), .. } => {
                    self.on_op(now, store, OURSELVES, tid, op, out);
                }
                Effect::Send { tid, message: Message::OsdOpReply(reply), .. } => {
                    self.on_copy_reply(now, store, tid, &reply, out);
                }
                _ => {} // a map, which we have
            }
        }
    }

    /// Whether it could be asked for, or is known not to be there.
    fn fetch_part(&mut self, now: Now, store: &dyn StoreView, id: u64, out: &mut Vec<Effect>) -> bool {
        let Some(map) = self.maps.current.clone() else { return false };
        let target = match self.copier.target(id, &map) {
            Ok(Some(target)) => target,
            Ok(None) => return false,
            Err(()) => {
                let ended = self.copier.end(id, -ENOENT);
                self.copy_ended(now, store, ended, out);
                return true;
            }
        };
        let me = self.me();
        let conn = if target.osd == me {
            Some(OURSELVES)
        } else {
            self.links.peers.open(target.osd).map(|(conn, _)| conn)
        };
        let Some(conn) = conn else {
            self.dial(now, target.osd, out);
            return false;
        };
        let Some((tid, op)) = self.copier.next_part(id, target, now.mono, me, &map) else { return false };
        out.push(Effect::Send { conn, tid, message: Box::new(op).into() });
        true
    }

    pub(super) fn on_copy_reply(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        tid: u64,
        reply: &OsdOpReply,
        out: &mut Vec<Effect>,
    ) {
        let ended = self.copier.on_reply(now.mono, tid, reply);
        self.copy_ended(now, store, ended, out);
    }
    fn copy_ended(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        ended: Option<Finished>,
        out: &mut Vec<Effect>,
    ) {
        if let Some((Asker { pg, read, .. }, result)) = ended {
            let event = PgEvent::Copied { read, result };
            self.tell_pg(now, store, pg, event, out);
        }
    }
    pub(super) fn forget_copies(&mut self) {
        let mut copier = std::mem::take(&mut self.copier);
        copier.retain(|asker| self.pg(asker.pg).is_some_and(|pg| pg.interval().start == asker.interval));
        self.copier = copier;
    }
}
