//! Messages and transactions of many PGs in one turn, batched: when a map changes all of an OSD's PGs at
//! once, each other OSD gets a message and not a thousand, and the disk one transaction.

use nacre_base::Epoch;
use nacre_machine::{ConnId, Effect, Token};
use nacre_proto::messages::PeerMsg;
use nacre_proto::messages::peer::{PgMsg, PgRoute};
use nacre_proto::transaction::Transaction;
use std::collections::BTreeMap;

/// A message or a transaction that holds this many bytes takes no more.
const BYTES_MAX: usize = 256 << 10;
/// Nor with this many PGs, or changes, inside.
const PARTS_MAX: usize = 1024;

/// The sending and the receiving instance of a PG, the interval of the sender, and the message.
pub type PgMessage = (PgRoute, Epoch, Box<PgMsg>);

/// Messages about PGs that were not sent yet, by session.
#[derive(Default)]
pub struct Outbox {
    /// In their order. There are few.
    waiting: Vec<(ConnId, Batch)>,
}

#[derive(Default)]
struct Batch {
    msgs: Vec<PgMessage>,
    bytes: usize,
}

impl Outbox {
    /// Messages keep their order within a session.
    pub fn push(&mut self, conn: ConnId, msg: PeerMsg, out: &mut Vec<Effect>) {
        match msg {
            PeerMsg::Pg { route, interval, msg } if is_batched(&msg) => {
                let at = self.place(conn).unwrap_or_else(|at| {
                    self.waiting.insert(at, (conn, Batch::default()));
                    at
                });
                let (_, batch) = &mut self.waiting[at];
                batch.bytes += len(&msg);
                batch.msgs.push((route, interval, msg));
                if batch.bytes >= BYTES_MAX || batch.msgs.len() >= PARTS_MAX {
                    out.push(self.waiting.remove(at).1.into_effect(conn));
                }
            }
            msg => {
                if let Ok(at) = self.place(conn) {
                    out.push(self.waiting.remove(at).1.into_effect(conn));
                }
                out.push(Effect::Send { conn, tid: 0, message: msg.into() });
            }
        }
    }
    fn place(&self, conn: ConnId) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&conn, |(conn, _)| *conn)
    }
    /// At the end of a turn nothing waits.
    pub fn flush(&mut self, out: &mut Vec<Effect>) {
        out.extend(self.waiting.drain(..).map(|(conn, batch)| batch.into_effect(conn)));
    }
}

impl Batch {
    fn into_effect(mut self, conn: ConnId) -> Effect {
        let only = if self.msgs.len() == 1 { self.msgs.pop() } else { None };
        let message = match only {
            Some((route, interval, msg)) => PeerMsg::Pg { route, interval, msg },
            None => PeerMsg::Pgs(self.msgs),
        };
        Effect::Send { conn, tid: 0, message: message.into() }
    }
}

/// What peering says. Writes and content go by themselves: their bytes travel beside the message.
fn is_batched(msg: &PgMsg) -> bool {
    !matches!(msg, PgMsg::RepOp(_) | PgMsg::Push(_) | PgMsg::SubReadDone { .. })
}

/// Roughly.
fn len(msg: &PgMsg) -> usize {
    64 + match msg {
        PgMsg::Log(log) | PgMsg::AdoptLog(log) => {
            let entries: usize = log.entries.iter().map(|entry| entry.cost()).sum();
            entries + 16 * log.answers.0.len()
        }
        PgMsg::LogAdopted { missing, .. } => {
            missing.iter().map(|(_, stale)| 128 + 16 * stale.part.data.num_ranges()).sum()
        }
        PgMsg::Inventory { objects, .. } => 128 * objects.len(),
        _ => 0,
    }
}

/// Transactions that became one, which are all durable when its last one is.
#[derive(Default)]
pub struct TxnBatcher {
    by_last: BTreeMap<Token, Vec<Token>>,
}

impl TxnBatcher {
    /// Makes one transaction of those of PGs that follow upon each other. They become visible at
    /// the end of the turn in any case; only reads in between must find what they found.
    pub fn join(&mut self, of_group: impl Fn(Token) -> bool, out: &mut Vec<Effect>) {
        if out.iter().filter(|effect| matches!(effect, Effect::Store { .. })).count() < 2 {
            return;
        }
        let mut open: Vec<(Token, Transaction)> = Vec::new();
        let mut bytes = 0;
        for effect in std::mem::take(out) {
            match effect {
                Effect::Store { token, txn } if of_group(token) => {
                    bytes += txn.payload_len();
                    open.push((token, txn));
                    let changes: usize = open.iter().map(|(_, txn)| txn.changes.len()).sum();
                    if bytes >= BYTES_MAX || changes >= PARTS_MAX {
                        bytes = 0;
                        self.close(&mut open, out);
                    }
                }
                // What is said in between does not depend on the disk: that waits for `Stored`.
                Effect::Send { .. } | Effect::Log { .. } | Effect::Dial { .. } => out.push(effect),
                effect => {
                    bytes = 0;
                    self.close(&mut open, out);
                    out.push(effect);
                }
            }
        }
        self.close(&mut open, out);
    }
    fn close(&mut self, open: &mut Vec<(Token, Transaction)>, out: &mut Vec<Effect>) {
        let Some(&(last, _)) = open.last() else { return };
        if open.len() > 1 {
            self.by_last.insert(last, open.iter().map(|(token, _)| *token).collect());
        }
        let mut all = Transaction::new();
        open.drain(..).for_each(|(_, txn)| all.append(txn));
        out.push(Effect::Store { token: last, txn: all });
    }
    /// Adds the transactions that are durable now that this one is.
    pub fn stored(&mut self, token: Token, durable: &mut Vec<Token>) {
        match self.by_last.remove(&token) {
            Some(joined) => durable.extend(joined),
            None => durable.push(token),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{PgId, PoolId, SpgId};
    use nacre_proto::messages::Message;
    use nacre_proto::transaction::{Change, StoredId};

    fn store(token: Token) -> Effect {
        let mut txn = Transaction::new();
        txn.push(
            StoredId::Pg(SpgId::replicated(PgId { pool: PoolId(1), seed: token as u32 })),
            Change::Touch,
        );
        Effect::Store { token, txn }
    }
    fn read(token: Token) -> Effect {
        Effect::Read { token, id: StoredId::meta("x"), extents: Vec::new(), device: false }
    }

    #[test]
    fn transactions_of_one_turn_are_one_unless_something_is_read_in_between() {
        let mut out = vec![store(1), store(2), read(3), store(4), store(5), store(6), store(7), store(8)];
        let mut joined = TxnBatcher::default();
        joined.join(|token| token != 7, &mut out);
        let shown: Vec<(Token, usize)> = out
            .iter()
            .map(|effect| match effect {
                Effect::Store { token, txn } => (*token, txn.changes.len()),
                Effect::Read { token, .. } => (*token, 0),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(shown, [(2, 2), (3, 0), (6, 3), (7, 1), (8, 1)]);
        let mut durable = Vec::new();
        [2, 6, 7].into_iter().for_each(|token| joined.stored(token, &mut durable));
        assert_eq!(durable, [1, 2, 4, 5, 6, 7]);
    }

    #[test]
    fn messages_keep_their_order_within_a_session() {
        let (conn, other) = (ConnId::Dialled(1), ConnId::Dialled(2));
        let about = |seed, msg| PeerMsg::Pg {
            route: PgRoute::replicated(PgId { pool: PoolId(1), seed }),
            interval: Epoch(1),
            msg: Box::new(msg),
        };
        let (mut outbox, mut out) = (Outbox::default(), Vec::new());
        outbox.push(conn, about(1, PgMsg::InfoQuery), &mut out);
        outbox.push(other, about(1, PgMsg::InfoQuery), &mut out);
        outbox.push(conn, about(2, PgMsg::LogQuery), &mut out);
        outbox.push(conn, PeerMsg::Ping { stamp: 1 }, &mut out);
        outbox.push(conn, about(3, PgMsg::InfoQuery), &mut out);
        outbox.flush(&mut out);
        let shown: Vec<(ConnId, usize)> = out
            .iter()
            .map(|effect| match effect {
                Effect::Send { conn, message: Message::Peer(PeerMsg::Pgs(msgs)), .. } => (*conn, msgs.len()),
                Effect::Send { conn, message: Message::Peer(PeerMsg::Pg { .. }), .. } => (*conn, 1),
                Effect::Send { conn, .. } => (*conn, 0),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(shown, [(conn, 2), (conn, 0), (conn, 1), (other, 1)]);
    }
}
