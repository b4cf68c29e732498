//! One throttle for all work of an OSD that shares a resource, in classes.
//!
//! `Throttle` keeps the PGs that wait, whatever they wait for; a `Limit` says how much of one class may be
//! under way. The classes are the fields of `Budget`: recovery, trimming, remapping, peering, replies to
//! clients and writes. A PG asks with `request`. Without a grant it is on the list, and `Budget` wakes it
//! when its need fits. Scrubs are scheduled by time as well, and have a scheduler of their own
//! (`scrub_scheduler`).

mod background;
mod budget;
pub mod memory;
mod peering;
mod replies;
mod waiting;
pub mod write_credit;

pub use background::{PaceConfig, WorkRequest, WorkSlot};
pub use budget::Budget;
pub use peering::{PeeringGrant, PeeringNeed};
pub use replies::{LANES as REPLY_LANES, Wait, data_of, lane as reply_lane};

use nacre_base::{PgId, Time};
use std::cell::{Cell, RefCell};
use waiting::{Order, WaitList};

/// How much of one class of work may be under way, and which waiting PG is next.
pub trait Limit {
    /// What a PG needs for the work that it wants to start.
    type Need: Copy;
    /// Ends when it is dropped.
    type Grant;
    /// PGs wait in this many lists; one list never waits for another.
    const LANES: usize = 1;
    const ORDER: Order = Order::ByPg;
    /// Whether a new request may overtake PGs that wait.
    const OVERTAKES: bool = true;

    fn lane(_need: &Self::Need) -> usize {
        0
    }
    /// An operator wants the PG to be served before others.
    fn is_urgent(_need: &Self::Need) -> bool {
        false
    }
    /// The need is served even before urgent ones.
    fn is_exempt(_need: &Self::Need) -> bool {
        false
    }
    /// The need of a PG that waits already and asks again.
    fn renew(_before: Self::Need, now: Self::Need) -> Self::Need {
        now
    }
    /// Whether a new request fits.
    fn fits(&self, now: Time, need: &Self::Need) -> bool;
    /// Whether a waiting one does.
    fn wakes(&self, now: Time, need: &Self::Need) -> bool {
        self.fits(now, need)
    }
    fn grant(&self, now: Time, need: Self::Need) -> Self::Grant;
}

/// A limit with the PGs that wait for it.
pub struct Throttle<L: Limit> {
    limit: L,
    waiting: RefCell<WaitList<L::Need>>,
    /// The PG that was woken last, with its lane: it may start although others wait.
    woken: Cell<Option<(usize, PgId)>>,
}

impl<L: Limit> Throttle<L> {
    pub fn new(limit: L) -> Throttle<L> {
        Throttle { limit, waiting: RefCell::new(WaitList::new(L::ORDER)), woken: Cell::new(None) }
    }
    pub fn limit(&self) -> &L {
        &self.limit
    }
    pub fn limit_mut(&mut self) -> &mut L {
        &mut self.limit
    }

    /// A PG wants to start work. Without a grant it waits and is woken. `has_waited`: the work waited before.
    pub fn request(&self, now: Time, pg: PgId, need: L::Need, has_waited: bool) -> Option<L::Grant> {
        let lane = L::lane(&need);
        let mut waiting = self.waiting.borrow_mut();
        let is_next = if L::OVERTAKES {
            L::is_urgent(&need) || L::is_exempt(&need) || !waiting.has_urgent(lane)
        } else {
            waiting.is_empty(lane) || has_waited && self.woken.get() == Some((lane, pg))
        };
        if !is_next || !self.limit.fits(now, &need) {
            let need = waiting.get(lane, pg).map_or(need, |before| L::renew(*before, need));
            waiting.join(lane, pg, need, L::is_urgent(&need));
            return None;
        }
        waiting.leave(lane, pg);
        Some(self.limit.grant(now, need))
    }

    /// A waiting PG whose need fits now. None overtakes the first of its lane, or a large need might wait
    /// forever.
    pub fn next_waiting(&self, now: Time) -> Option<PgId> {
        let mut waiting = self.waiting.borrow_mut();
        let fits = |lane: &usize| waiting.first(*lane).is_some_and(|need| self.limit.wakes(now, need));
        let woken = (0..L::LANES).find(fits).and_then(|lane| Some((lane, waiting.pop(lane)?)));
        self.woken.set(woken);
        woken.map(|(_, pg)| pg)
    }
    pub fn has_waiting(&self) -> bool {
        (0..L::LANES).any(|lane| !self.waiting.borrow().is_empty(lane))
    }
    /// Whether a request on this lane would wait behind others.
    fn is_queued(&self, lane: usize) -> bool {
        !self.waiting.borrow().is_empty(lane)
    }
    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.waiting.borrow().len()
    }
}
