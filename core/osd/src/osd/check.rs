//! What must hold between two events. `Pg::check` and `Mon::check` are the same for their machines.

use super::{Osd, SHARDS, WAITING_MAX, WAITING_OPS_MAX};

impl Osd {
    /// Asserted after every event. In release builds it costs the same however many sessions and placement
    /// groups there are.
    pub(super) fn check(&self) {
        assert!(self.effects.is_empty(), "a shard's effects are all carried out");
        assert!(!self.presence.serving || self.maps.current.is_some(), "an OSD serves by a map");
        assert!(self.waiting_for_map.ops.len() <= WAITING_OPS_MAX);
        assert!(self.waiting_for_map.messages.len() <= WAITING_MAX);
        let newest = self.io.stores.last().map_or(0, |token| token / (SHARDS + 1));
        assert!(newest <= self.numbers.token, "a transaction waits that was never stored");
        debug_assert!(
            self.links.inbound.values().all(|conn| self.links.sessions.contains_key(conn)),
            "the session by which an OSD asks is open"
        );
        debug_assert!(
            (0..self.shards.len()).all(|at| self.shards[at].pgs.keys().all(|pg| self.shard_of(*pg) == at)),
            "a placement group is in its shard"
        );
    }
}
