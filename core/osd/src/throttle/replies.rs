//! The throttle of replies with data: data is read when there is memory for it, and counts until its last
//! reference is dropped, after the client's socket has taken it.
//!
//! A slow client, or a lease that a hung member does not renew, keeps replies in memory. With many clients,
//! or with many large reads of each, their size would be unlimited.
//!
//! The shell disconnects clients that receive nothing for some time. Until then their replies must not block
//! others: there is extra memory for them, and unless memory is plentiful, new reads of such a client wait.

use super::memory::{Held, Memory, fits};
use super::waiting::Order;
use super::{Limit, Throttle};
use bytes::Bytes;
use nacre_base::{PgId, Time};
use nacre_machine::ConnId;
use nacre_proto::messages::OsdOpResult;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Reads up to this size may exceed the limit by a factor of two, so that small reads do not wait for a
/// backup.
const SMALL: u64 = 64 << 10;
/// Replies with no more data than this do not count: their headers take as much.
const TINY: u64 = 512;
/// A client is slow if it has not received a reply after this time.
const SLOW: Duration = Duration::from_millis(500);
/// Replies to slow clients may take this many times the limit in addition.
const SLOW_TIMES: u64 = 2;

/// Small and large reads wait in separate lanes.
pub const LANES: usize = 2;

pub fn lane(bytes: u64) -> usize {
    usize::from(bytes > SMALL)
}

pub struct ReplyThrottle {
    throttle: Throttle<ReplyMemory>,
    /// Replies that were sent, as far as they may still be there, in that order.
    sent: RefCell<VecDeque<Sent>>,
}

/// Memory for the data of replies. The need is that of a PG's first waiting read, in bytes.
struct ReplyMemory {
    memory: Memory,
    slow: RefCell<Slow>,
}

impl Limit for ReplyMemory {
    type Need = u64;
    type Grant = Held;
    const LANES: usize = LANES;
    const ORDER: Order = Order::Arrival;
    const OVERTAKES: bool = false;

    fn lane(bytes: &u64) -> usize {
        lane(*bytes)
    }
    fn renew(before: u64, _: u64) -> u64 {
        before
    }
    fn fits(&self, _: Time, bytes: &u64) -> bool {
        let most = self.memory.most();
        let beside = self.slow.borrow().bytes.min(SLOW_TIMES * most);
        let most = if *bytes <= SMALL { 2 * most } else { most };
        fits(*bytes, self.memory.held().saturating_sub(beside), most)
    }
    fn grant(&self, _: Time, bytes: u64) -> Held {
        self.memory.hold(bytes)
    }
}

struct Sent {
    at: Time,
    to: ConnId,
    held: Weak<Held>,
}

/// Replies that clients had not received at the last check.
#[derive(Default)]
struct Slow {
    bytes: u64,
    clients: BTreeSet<ConnId>,
}

/// Data of a reply that counts.
struct Counted {
    data: Bytes,
    _held: Arc<Held>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// Why a read has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The PG gets an event when memory may be available.
    Memory,
    /// Its client is slow to receive earlier replies.
    Client,
}

impl ReplyThrottle {
    /// `most`: bytes.
    pub fn new(most: usize) -> ReplyThrottle {
        let memory = ReplyMemory { memory: Memory::new(most as u64), slow: RefCell::default() };
        ReplyThrottle { throttle: Throttle::new(memory), sent: RefCell::default() }
    }
    fn memory(&self) -> &Memory {
        &self.throttle.limit().memory
    }
    pub fn held(&self) -> u64 {
        self.memory().held()
    }
    pub fn has_waiting(&self) -> bool {
        self.throttle.has_waiting()
    }
    pub fn hold(&self, bytes: u64) -> Held {
        self.memory().hold(bytes)
    }
    /// Whether data that are in memory anyway may be copied for a reply at once.
    pub fn is_open(&self) -> bool {
        self.throttle.limit().fits(Time::ZERO, &SMALL) && !self.throttle.is_queued(lane(SMALL))
    }

    /// Whether a read of this many bytes for a client may begin. Without memory its PG is woken when there
    /// may be some; then it may begin reads that have waited. New reads do not overtake waiting ones.
    pub fn take(&self, pg: PgId, client: ConnId, bytes: u64, has_waited: bool) -> Result<Held, Wait> {
        let is_plenty = self.held().saturating_add(bytes) <= self.memory().most() / 2;
        if !is_plenty && self.throttle.limit().slow.borrow().clients.contains(&client) {
            return Err(Wait::Client);
        }
        self.throttle.request(Time::ZERO, pg, bytes, has_waited).ok_or(Wait::Memory)
    }
    /// A PG for whose first read there is memory now.
    pub fn next_waiting(&self) -> Option<PgId> {
        self.throttle.next_waiting(Time::ZERO)
    }

    /// A reply is sent. Its data counts until its last reference is dropped.
    pub fn send(&self, now: Time, to: ConnId, answer: &mut [OsdOpResult]) {
        let bytes = data_of(answer);
        if bytes <= TINY {
            return;
        }
        let held = Arc::new(self.hold(bytes));
        for result in answer.iter_mut().filter(|result| !result.data.is_empty()) {
            let data = std::mem::take(&mut result.data);
            result.data = Bytes::from_owner(Counted { data, _held: held.clone() });
        }
        let mut sent = self.sent.borrow_mut();
        while sent.front().is_some_and(|first| first.held.strong_count() == 0) {
            sent.pop_front();
        }
        sent.push_back(Sent { at: now, to, held: Arc::downgrade(&held) });
    }
    /// Finds the clients that have not taken replies sent a while ago.
    pub fn look(&self, now: Time) {
        let mut slow = Slow::default();
        let mut sent = self.sent.borrow_mut();
        sent.retain(|sent| sent.held.strong_count() > 0);
        for Sent { to, held, .. } in sent.iter().take_while(|sent| now.since(sent.at) > SLOW) {
            slow.bytes += held.upgrade().map_or(0, |held| held.bytes());
            slow.clients.insert(*to);
        }
        *self.throttle.limit().slow.borrow_mut() = slow;
    }
}

/// Bytes of data in a reply.
pub fn data_of(answer: &[OsdOpResult]) -> u64 {
    answer.iter().map(|result| result.data.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::PoolId;
    use nacre_proto::types::{OpCode, RawOp};

    const MIB: u64 = 1 << 20;

    fn of_mib(most: usize) -> ReplyThrottle {
        ReplyThrottle::new(most << 20)
    }

    fn take(answers: &ReplyThrottle, pg: PgId, bytes: u64, has_waited: bool) -> Result<Held, Wait> {
        answers.take(pg, ConnId::Accepted(1), bytes, has_waited)
    }
    fn pg(seed: u32) -> PgId {
        PgId { pool: PoolId(1), seed }
    }

    #[test]
    fn reads_wait_in_turn_for_memory_and_one_always_goes() {
        let answers = of_mib(8);
        let alone = take(&answers, pg(0), 100 * MIB, false).unwrap();
        assert!(take(&answers, pg(1), 6 * MIB, false).is_err());
        assert!(take(&answers, pg(2), MIB, false).is_err());
        assert!(take(&answers, pg(2), MIB, false).is_err(), "it waits already");
        assert_eq!(answers.next_waiting(), None);
        drop(alone);
        assert!(take(&answers, pg(4), MIB, false).is_err(), "others wait");
        assert_eq!(answers.next_waiting(), Some(pg(1)));
        let first = take(&answers, pg(1), 6 * MIB, true).unwrap();
        assert!(take(&answers, pg(1), 6 * MIB, true).is_err(), "its next one is behind the others");
        assert_eq!(answers.next_waiting(), Some(pg(2)));
        let second = take(&answers, pg(2), MIB, true).unwrap();
        assert_eq!(answers.next_waiting(), Some(pg(4)));
        assert_eq!(answers.next_waiting(), None);
        drop((first, second));
        assert_eq!((answers.next_waiting(), answers.has_waiting()), (Some(pg(1)), false));
        assert_eq!(answers.held(), 0);
    }

    #[test]
    fn small_reads_wait_behind_twice_as_much_and_for_no_large_one() {
        let answers = of_mib(1);
        let large = take(&answers, pg(0), MIB, false).unwrap();
        assert!(take(&answers, pg(1), MIB, false).is_err());
        let mut small = Vec::new();
        while let Ok(held) = take(&answers, pg(2), SMALL, false) {
            assert_eq!(answers.is_open(), answers.held() < 2 * MIB - SMALL + 1);
            small.push(held);
        }
        assert_eq!((small.len() as u64, answers.is_open()), (MIB / SMALL, false));
        small.pop();
        assert_eq!(answers.next_waiting(), Some(pg(2)));
        drop(large);
        assert_eq!(answers.next_waiting(), None, "nearly all of a large one's memory is with small ones");
        small.clear();
        assert_eq!((answers.next_waiting(), answers.is_open()), (Some(pg(1)), true));
    }

    #[test]
    fn slow_reader_is_throttled_and_others_are_not() {
        let answers = of_mib(1);
        let at = |ms: u64| Time { nanos: ms * 1_000_000 };
        let op = RawOp { code: OpCode::READ, flags: 0, args: [0; 28] };
        let result = || OsdOpResult { op, rval: 0, data: vec![7; 300 << 10].into() };
        let mut replies: Vec<OsdOpResult> = (0..4).map(|_| result()).collect();
        replies
            .iter_mut()
            .for_each(|one| answers.send(at(0), ConnId::Accepted(9), std::slice::from_mut(one)));
        assert_eq!(answers.held(), 4 * (300 << 10));
        answers.look(at(400));
        assert_eq!(take(&answers, pg(1), MIB / 2, false).unwrap_err(), Wait::Memory);
        answers.look(at(600));
        assert_eq!(answers.next_waiting(), Some(pg(1)));
        let other = take(&answers, pg(1), MIB / 2, true).unwrap();
        assert_eq!(answers.take(pg(1), ConnId::Accepted(9), 1, false).unwrap_err(), Wait::Client);
        drop(other);
        replies.truncate(1);
        assert!(answers.take(pg(1), ConnId::Accepted(9), 1, false).is_ok(), "there is plenty");
        let other = answers.take(pg(1), ConnId::Accepted(8), MIB / 2, false).unwrap();
        assert_eq!(answers.take(pg(1), ConnId::Accepted(9), 1, false).unwrap_err(), Wait::Client);
        replies.clear();
        answers.look(at(601));
        let again = answers.take(pg(1), ConnId::Accepted(9), MIB / 2, false).unwrap();
        assert_eq!(answers.held(), MIB);
        drop((other, again));
        assert_eq!(answers.held(), 0);
    }
}
