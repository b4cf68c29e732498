//! Faults: processes that end, stand still or lose power, links that break and heal.

use super::World;
use crate::network::{NodeId, SessionId};
use crate::schedule::Scheduled;
use nacre_machine::{Closed, Event};
use nacre_proto::types::Network as Net;
use std::time::Duration;

/// How long a session survives a partition.
const HELD_MAX: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15));

impl World {
    /// Ends a process at once. What it handed to the disk stays there; with `power`, what was not
    /// flushed may be lost, also in part, and peers are sent nothing.
    pub fn kill(&mut self, id: NodeId, power: bool) {
        if !self.node(id).is_running() {
            return;
        }
        self.note(id, if power { "loses power" } else { "is killed" }, 0);
        let cut_at = self.rng.below(8);
        let in_part = self.rng.chance(500);
        let node = self.node_mut(id);
        if let Some(disk) = node.disk.as_ref().filter(|_| power) {
            disk.lose_power_after(cut_at);
        }
        if let Some(disk) = node.disk.as_ref().filter(|_| power || in_part) {
            // Batches that were not done when the power went are lost.
            let placed = node.placing.take().map(|placing| placing.run(disk).is_ok());
            let committed = node.committing.take().map(|batch| batch.commit(disk).is_ok());
            assert!(power || ![placed, committed].contains(&Some(false)), "a disk with power works");
        }
        if let Some(disk) = node.disk.as_ref().filter(|_| power) {
            disk.crash();
        }
        let deferred = std::mem::take(&mut node.deferred);
        node.forget();
        node.powered_off = power;
        // Nodes that dialled it while it was paused are refused now.
        deferred.into_iter().for_each(|what| self.undeliverable(id, what));
        for session in self.network.of_node(id) {
            self.lose(session, id, power);
        }
    }

    /// The node's side of a session ends with it.
    fn lose(&mut self, session: SessionId, gone: NodeId, silently: bool) {
        let Some(found) = self.network.sessions.get_mut(&session) else { return };
        let mut others = Vec::new();
        for (side, end) in found.ends.iter_mut().enumerate() {
            if end.node == gone {
                end.open = false;
            } else if end.open {
                others.push((side, *end));
            }
        }
        found.flying = Default::default();
        for (side, end) in others {
            // A host without power sends no reset: the peer's probes find out.
            let delay =
                if silently { self.rng.duration(HELD_MAX.0, HELD_MAX.1) } else { self.network.latency() };
            let when = self.now + delay;
            self.at_incarnation(
                when,
                end.node,
                end.incarnation,
                Scheduled::Closed(session, side, Closed::Reset),
            );
        }
        self.network.forget_closed(session);
    }

    /// Ends the accepting side of the sessions that `a` dialled without telling `a`, as when a firewall
    /// between them forgets its state.
    pub fn half_open(&mut self, a: NodeId, b: NodeId) {
        for session in self.network.of_node(a) {
            let found = self.network.sessions.get_mut(&session).expect("it is one of them");
            let known = found.is_known(1);
            let ends = &mut found.ends;
            let is_it = ends[0].node == a && ends[1].node == b;
            if is_it && std::mem::replace(&mut ends[1].open, false) && known {
                let conn = ends[1].conn;
                self.at(self.now, b, Scheduled::Event(Event::Closed { conn, why: Closed::Reset }));
            }
        }
    }

    /// Asks a daemon to stop cleanly.
    pub fn stop(&mut self, id: NodeId) {
        if self.node(id).is_running() {
            self.at(self.now, id, Scheduled::Event(Event::Stop));
        }
    }

    pub fn pause(&mut self, id: NodeId) {
        self.note(id, "is paused", 0);
        self.node_mut(id).paused = true;
    }
    pub fn resume(&mut self, id: NodeId) {
        self.note(id, "goes on", 0);
        self.node_mut(id).paused = false;
        for what in std::mem::take(&mut self.node_mut(id).deferred) {
            self.at(self.now, id, what);
        }
    }

    pub fn partition(&mut self, a: NodeId, b: NodeId) {
        self.partition_one_way(a, b);
        self.partition_one_way(b, a);
    }
    /// What `a` sends to `b` is lost.
    pub fn partition_one_way(&mut self, a: NodeId, b: NodeId) {
        self.partition_on(a, b, Net::Public);
        self.partition_on(a, b, Net::Cluster);
    }
    /// Everything between `a` and the others is lost on one network.
    pub fn isolate(&mut self, a: NodeId, others: &[NodeId], on: Net) {
        for &b in others.iter().filter(|b| **b != a) {
            self.partition_on(a, b, on);
            self.partition_on(b, a, on);
        }
    }
    fn partition_on(&mut self, a: NodeId, b: NodeId, on: Net) {
        self.note(a, &format!("is not heard any more on the {on} by"), b.0 as u64);
        for session in self.network.partition(a, b, on) {
            let ends = self.network.sessions[&session].ends;
            for (side, end) in ends.into_iter().enumerate() {
                let when = self.now + self.rng.duration(HELD_MAX.0, HELD_MAX.1);
                // Ignored if the partition is over by then (`on_closed`).
                let what = Scheduled::Closed(session, side, Closed::TimedOut);
                self.at_incarnation(when, end.node, end.incarnation, what);
            }
        }
    }
    /// Something between the two, such as a firewall, resets their sessions and refuses new ones.
    pub fn reject(&mut self, a: NodeId, b: NodeId) {
        self.note(a, "is refused in the name of", b.0 as u64);
        for session in self.network.reject(a, b) {
            let ends = self.network.sessions[&session].ends;
            for (side, end) in ends.into_iter().enumerate() {
                let when = self.now + self.network.latency();
                self.at_incarnation(
                    when,
                    end.node,
                    end.incarnation,
                    Scheduled::Closed(session, side, Closed::Reset),
                );
            }
        }
    }
    pub fn heal_all(&mut self) {
        self.network.reject_nothing();
        for (a, b, on) in self.network.partitions() {
            self.heal_one_way(a, b, on);
        }
    }
    pub fn heal(&mut self, a: NodeId, b: NodeId) {
        for on in [Net::Public, Net::Cluster] {
            self.heal_one_way(a, b, on);
            self.heal_one_way(b, a, on);
        }
    }
    fn heal_one_way(&mut self, a: NodeId, b: NodeId, on: Net) {
        self.note(a, &format!("is heard again on the {on} by"), b.0 as u64);
        for session in self.network.heal(a, b, on) {
            let ends = self.network.sessions[&session].ends;
            for (side, end) in ends.into_iter().enumerate().filter(|(_, end)| end.open) {
                if !ends[1 - side].open {
                    // The next probe finds that the other side has ended the session.
                    let when = self.now + self.rng.duration(HELD_MAX.0, HELD_MAX.1);
                    self.at_incarnation(
                        when,
                        end.node,
                        end.incarnation,
                        Scheduled::Closed(session, side, Closed::Reset),
                    );
                }
            }
            for side in 0..2 {
                let found = self.network.sessions.get_mut(&session).expect("it is one of them");
                let held = std::mem::take(&mut found.held[side]);
                let to = found.ends[1 - side];
                for _ in 0..held {
                    let when = self.network.arrival(session, side, self.now);
                    self.at_incarnation(when, to.node, to.incarnation, Scheduled::Arrive(session, side));
                }
            }
        }
    }
}
