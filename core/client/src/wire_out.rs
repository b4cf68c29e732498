//! What the parts of a client push effects through.

use nacre_machine::{ConnId, Effect, Level, TimerId};
use nacre_proto::messages::Message;
use nacre_proto::types::{EntityAddr, EntityType};
use std::time::Duration;

/// Numbers that are never given twice: of sessions, and of messages that expect an answer.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    conn: u64,
    tid: u64,
}

impl Numbers {
    pub(crate) fn next_tid(&mut self) -> u64 {
        self.tid += 1;
        self.tid
    }
}

/// The effects of one event, with short words for those that a client has.
pub(crate) struct Out<'a> {
    pub(crate) effects: &'a mut Vec<Effect>,
    pub(crate) numbers: &'a mut Numbers,
}

impl Out<'_> {
    pub(crate) fn dial(&mut self, to: EntityAddr, kind: EntityType) -> ConnId {
        self.numbers.conn += 1;
        let conn = ConnId::Dialled(self.numbers.conn);
        self.effects.push(Effect::Dial { conn, to, kind });
        conn
    }
    pub(crate) fn send(&mut self, conn: ConnId, tid: u64, message: impl Into<Message>) {
        self.effects.push(Effect::Send { conn, tid, message: message.into() });
    }
    pub(crate) fn hang_up(&mut self, conn: ConnId) {
        self.effects.push(Effect::Hangup { conn });
    }
    pub(crate) fn arm(&mut self, timer: TimerId, after: Duration) {
        self.effects.push(Effect::Arm { timer, after });
    }
    pub(crate) fn disarm(&mut self, timer: TimerId) {
        self.effects.push(Effect::Disarm { timer });
    }
    pub(crate) fn log(&mut self, level: Level, text: impl Into<String>) {
        self.effects.push(Effect::Log { level, text: text.into() });
    }
}
