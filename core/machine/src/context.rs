//! What a machine that is part of a larger one needs for one event.

use crate::{ConnId, Effect, Level};
use nacre_base::Now;
use nacre_proto::messages::Message;
use nacre_proto::types::{EntityAddr, EntityType};

/// The source of ids for sessions that are dialled. The outermost machine has one and lends it to the
/// machines inside it, so that no two of them use the same id.
#[derive(Debug, Default)]
pub struct ConnIds(u64);

impl ConnIds {
    pub fn next_id(&mut self) -> ConnId {
        self.0 += 1;
        ConnId::Dialled(self.0)
    }
}

/// The time, the ids and the list of effects of the outermost machine, lent to a machine inside it.
pub struct Context<'a> {
    pub now: Now,
    pub conns: &'a mut ConnIds,
    pub out: &'a mut Vec<Effect>,
}

impl Context<'_> {
    pub fn dial(&mut self, to: EntityAddr, kind: EntityType) -> ConnId {
        let conn = self.conns.next_id();
        self.out.push(Effect::Dial { conn, to, kind });
        conn
    }
    pub fn send(&mut self, conn: ConnId, tid: u64, message: impl Into<Message>) {
        self.out.push(Effect::Send { conn, tid, message: message.into() });
    }
    pub fn hang_up(&mut self, conn: ConnId) {
        self.out.push(Effect::Hangup { conn });
    }
    pub fn log(&mut self, level: Level, text: impl Into<String>) {
        self.out.push(Effect::Log { level, text: text.into() });
    }
}
