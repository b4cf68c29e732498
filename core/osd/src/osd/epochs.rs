//! Each new map: which PGs peer anew, split or leave, and which sessions are sent the map.

use super::batching::PgMessage;
use super::daemon_commands::MapWaiter;
use super::{GOODBYE, Life, Osd};
use crate::heartbeat::Place;
use crate::pg::{Interval, Pg, PgEvent};
use nacre_base::{Epoch, Now, OsdId, PgId};
use nacre_machine::{ConnId, Effect, Level, StoreView};
use nacre_proto::maps::{OsdMap, UpActing, is_merge_source, is_merge_target, is_split, osd_state};
use nacre_proto::messages::{OsdMapMsg, OsdOp};
use nacre_proto::transaction::Transaction;
use nacre_proto::types::EntityType;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Requests and messages that name a map which is not here yet.
#[derive(Default)]
pub(super) struct WaitingForMap {
    pub ops: VecDeque<(ConnId, u64, Box<OsdOp>)>,
    pub messages: VecDeque<(OsdId, PgMessage)>,
    pub commands: Vec<MapWaiter>,
    /// Of the last question to the monitors for the newest epoch.
    pub last_handle: u64,
}

impl Osd {
    pub(super) fn on_maps(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        msg: &OsdMapMsg,
        out: &mut Vec<Effect>,
    ) {
        let mut txn = Transaction::new();
        let before = self.maps.current.clone();
        self.maps.kept = self.options.maps_kept();
        let taken = match self.maps.take(msg, &mut txn) {
            Ok(taken) => taken,
            Err(error) => {
                out.push(Effect::Log { level: Level::Error, text: format!("a map of the monitor: {error}") });
                self.ask_for_maps(now, out);
                return;
            }
        };
        if !txn.is_empty() {
            self.store(txn, out);
        }
        let newest = self.maps.current.clone();
        let any = !taken.is_empty();
        // The first map of a new OSD, or of one whose maps could not be read.
        if let (None, Some((map, _))) = (&before, taken.first()) {
            self.load_groups(now, store, map, out);
        }
        let mut old = before;
        for (map, follows) in taken {
            self.maps.current = Some(map.clone());
            self.on_map(now, store, old.as_deref(), &map, follows, out);
            old = Some(map);
        }
        self.maps.current = newest;
        if any {
            self.forget_copies();
            self.after_maps(now, store, out);
        }
        self.boot_if_needed(now, store, out);
    }

    /// One epoch. `follows`: nothing between it and the one before was skipped.
    fn on_map(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        old: Option<&OsdMap>,
        map: &Arc<OsdMap>,
        follows: bool,
        out: &mut Vec<Effect>,
    ) {
        self.copier.on_map(map, follows);
        let was_serving = self.presence.serving;
        let us = map.osd(self.me());
        self.presence.serving =
            map.is_up(self.me()) && us.is_some_and(|osd| osd.public_addrs == self.config.public);
        if was_serving != self.presence.serving {
            let text =
                format!("osd.{} is {} in map {}", self.me(), up_or_down(self.presence.serving), map.epoch);
            out.push(Effect::Log { level: Level::Info, text });
            self.reporting.next = now.mono;
            // `ceph osd stop`: it is to end, not only to be down.
            if was_serving && us.is_some_and(|osd| osd.has(osd_state::STOP)) {
                self.life = Life::Stopping(now.mono + GOODBYE);
            }
            self.note_fall(now, was_serving);
        }
        self.merge_groups(now, store, map, out);
        self.split_groups(now, store, map, out);
        let serving = self.presence.serving;
        let held: BTreeSet<PgId> = self.pgs().map(|pg| pg.id).collect();
        let mut placed = self.maps.own.update(self.config.id, map, &held);
        if !serving {
            placed.retain(|pg, _| held.contains(pg));
        }
        let gone: Vec<PgId> = held.into_iter().filter(|pg| !placed.contains_key(pg)).collect();
        placed.extend(gone.into_iter().map(|pg| (pg, UpActing::default())));
        for (id, placement) in placed {
            // With no map between the two unseen, that is this one.
            let earliest = old.map_or(Epoch(0), |old| old.epoch.next());
            let next = Interval::new(earliest, placement, map, id);
            match self.pg(id).map(Pg::interval) {
                None => {
                    let pg_num = map.pool(id.pool).map_or(0, |pool| pool.pg_num);
                    let at = self.shard_of(id);
                    let interval = next.clone();
                    self.in_shard(now, store, at, out, |s, scene| s.create(scene, id, interval, pg_num));
                    self.tell_pg(now, store, id, PgEvent::Map { interval: Some(next), serving }, out);
                }
                Some(current) => {
                    let (up, up_primary) = (next.up.clone(), next.up_primary);
                    let changed = up != current.up || up_primary != current.up_primary;
                    let interval = if is_new(old, map, current, &next, id) {
                        Some(next)
                    } else if !follows && serving && next.primary == Some(self.me()) {
                        // Others may have served it meanwhile, and wait for us to begin anew.
                        Some(Interval { earliest: current.earliest, ..next })
                    } else if was_serving != serving {
                        // Our own part in it begins or ends; the interval itself does not.
                        Some(Interval { start: current.start, earliest: current.earliest, ..next })
                    } else {
                        None
                    };
                    if changed {
                        self.tell_pg(now, store, id, PgEvent::Up { up, up_primary }, out);
                    }
                    self.tell_pg(now, store, id, PgEvent::Map { interval, serving }, out);
                }
            }
        }
    }

    /// Placement groups whose pool has more PGs than when they were last looked at.
    pub(super) fn split_groups(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        map: &Arc<OsdMap>,
        out: &mut Vec<Effect>,
    ) {
        let growing: Vec<(PgId, u32)> = self
            .pgs()
            .filter_map(|pg| Some((pg.id, map.pool(pg.id.pool)?.pg_num)).filter(|(_, n)| *n > pg.pg_num()))
            .collect();
        for (id, pg_num) in growing {
            let mut children = Vec::new();
            let at = self.shard_of(id);
            self.in_shard(now, store, at, out, |shard, scene| children = shard.split(scene, id, pg_num));
            for child in children {
                let at = self.shard_of(child.id);
                self.in_shard(now, store, at, out, |shard, scene| shard.adopt(scene, child));
            }
        }
    }

    /// What waited for a map may go on, and others may need it.
    fn after_maps(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let Some(map) = self.maps.current.clone() else { return };
        let place = |osd| self.place_of(&map, osd);
        let places: BTreeMap<OsdId, Place> = self
            .links
            .peers
            .osds()
            .chain(self.links.peers.wanted())
            .filter_map(|osd| Some((osd, place(osd)?)))
            .collect();
        for conn in self.links.peers.outdated(|osd, network| places.get(&osd)?.on(network)) {
            out.push(Effect::Hangup { conn });
        }
        self.links
            .peers
            .want_only(|osd, life| places.get(&osd).is_some_and(|place| place.public.nonce == life));
        self.choose_watched(now, &map);
        for (from, msg) in std::mem::take(&mut self.waiting_for_map.messages) {
            self.on_peer_msg(now, store, from, msg, out);
        }
        // A client that waits for an answer from an OSD that is gone learns of it here first.
        let clients: Vec<ConnId> = self
            .links
            .sessions
            .iter()
            .filter(|(_, s)| s.peer.kind == EntityType::Client && s.epoch > Epoch(0) && s.epoch < map.epoch)
            .map(|(conn, _)| *conn)
            .collect();
        clients.into_iter().for_each(|conn| self.share_map(conn, None, out));
        // A client that has the map sends nothing here that is for others. New backoffs may begin after
        // that.
        self.end_backoffs(out);
        for (conn, tid, op) in std::mem::take(&mut self.waiting_for_map.ops) {
            self.on_op(now, store, conn, tid, op, out);
        }
        self.stop_if_done(now, out);
    }

    /// Brings a client's map up to ours; `has` is what it said it has.
    pub(super) fn share_map(&mut self, conn: ConnId, has: Option<Epoch>, out: &mut Vec<Effect>) {
        let Some(session) = self.links.sessions.get_mut(&conn) else { return };
        session.epoch = session.epoch.max(has.unwrap_or_default());
        for message in self.maps.since(session.epoch) {
            out.push(Effect::Send { conn, tid: 0, message: message.into() });
        }
        session.epoch = session.epoch.max(self.maps.epoch());
    }
}

fn up_or_down(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

/// Whether the PG must peer anew. Every OSD gets the same answer from the same maps.
fn is_new(old: Option<&OsdMap>, map: &OsdMap, now: &Interval, next: &Interval, pg: PgId) -> bool {
    let Some(old) = old else { return true };
    let same_place = now.acting == next.acting
        && now.primary == next.primary
        && (now.size, now.min_size) == (next.size, next.min_size);
    let groups = |map: &OsdMap| map.pool(pg.pool).map_or(0, |pool| pool.pg_num);
    let was_born = |osd: &&OsdId| osd.is_some();
    // A member that was down in between, or has a new incarnation, starts with nothing in its memory.
    let up_from = |map: &OsdMap, osd: OsdId| map.osd(osd).map(|o| o.info.up_from);
    let same_lives = next.acting.iter().filter(was_born).all(|o| up_from(old, *o) == up_from(map, *o));
    !same_place
        || !same_lives
        || is_split(pg, groups(old), groups(map))
        || is_merge_source(pg, groups(old), groups(map))
        || is_merge_target(pg, groups(old), groups(map))
        || pg.seed >= groups(old) && pg.seed < groups(map)
}
