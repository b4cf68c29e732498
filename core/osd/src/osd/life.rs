//! How an OSD starts, with what its store has kept and what it has lost, and how it stops.

use super::{BEAT, GOODBYE, Life, MonState, Osd, TICK, TICK_EVERY};
use crate::heartbeat::BEAT_EVERY;
use crate::maps::Maps;
use crate::pg::{Interval, Pg, PgEvent, groups};
use crate::shard::Shard;
use nacre_base::{Epoch, Now, PgId};
use nacre_machine::{Effect, Level, StoreView};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::DaemonMsg;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use std::sync::Arc;

impl Osd {
    pub(super) fn on_start(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        self.started = now.mono;
        self.last_tick = now.mono;
        self.last_beat = now.mono;
        self.maps = Maps::load(store).unwrap_or_else(|e| panic!("osd.{} cannot start: {e}", self.me()));
        if let Some(map) = self.maps.current.clone() {
            self.load_groups(now, store, &map, out);
        }
        self.next_mon = self.rng.below(self.mons.len() as u64) as usize;
        self.dial_mon(now, out);
        out.push(Effect::Arm { timer: TICK, after: TICK_EVERY });
        out.push(Effect::Arm { timer: BEAT, after: BEAT_EVERY });
    }

    fn load_groups(&mut self, now: Now, store: &dyn StoreView, map: &Arc<OsdMap>, out: &mut Vec<Effect>) {
        let mut ids: Vec<PgId> = Vec::new();
        let fail = |e| panic!("the store cannot tell which groups it has: {e}");
        store
            .omap_walk(&groups(), b"", &mut |key, _| {
                ids.extend(key.to_text().parse::<PgId>());
                true
            })
            .unwrap_or_else(fail);
        for id in ids {
            // It began whenever it did.
            let interval = Interval::new(Epoch(0), map.pg_to_up_acting(id), map, id);
            let at = self.shard_of(id);
            if let Some(pg) = Pg::load(id, self.config.id, interval, now, store)
                .unwrap_or_else(|e| panic!("pg {id} cannot be loaded: {e}"))
            {
                self.shards[at].pgs.insert(id, pg);
            }
        }
        self.face_losses(store, out);
        self.merge_groups(now, store, map, out);
        self.split_groups(now, store, map, out);
        let here: Vec<PgId> = self.pgs().map(|pg| pg.id).collect();
        for id in here {
            // Finds out whether its pool is still there.
            self.tell_pg(now, store, id, PgEvent::Map { interval: None, serving: false }, out);
        }
    }

    /// The store may have lost what it had acknowledged. Before anything else the groups note it.
    fn face_losses(&mut self, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let lost = store.lost();
        let mut txn = Transaction::new();
        let noted = store.omap_get(&losses(), b"times").unwrap_or_else(|e| panic!("osd.{}: {e}", self.me()));
        let times = nacre_wire::to_vec(&lost.times);
        if lost.times > 0 && noted.is_none_or(|noted| noted[..] != times) {
            let me = self.me();
            let text = format!(
                "osd.{me}: the store lost acknowledged writes: all groups are compared with other copies"
            );
            out.push(Effect::Log { level: Level::Error, text });
            self.shards.iter_mut().flat_map(|shard| shard.pgs.values_mut()).for_each(|pg| pg.doubt(&mut txn));
            txn.push(losses(), Change::OmapSet([("times".into(), times.into())].into()));
        }
        for (id, block) in &lost.blocks {
            let StoredId::Object(object) = id else { continue };
            let text = format!("osd.{}: {object}: block {block} was lost with the store's log", self.me());
            out.push(Effect::Log { level: Level::Error, text });
            let mut pgs = self.shards.iter_mut().flat_map(|shard| shard.pgs.values_mut());
            pgs.any(|pg| pg.note_lost(store, object, *block, &mut txn));
        }
        if !txn.is_empty() {
            self.store(txn, out);
        }
    }

    pub(super) fn on_stop(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.life = Life::Stopping(now.mono + GOODBYE);
        match (&self.mon, self.serving) {
            (MonState::Open(conn, _), true) => {
                // Or else whoever leads our groups next would wait until our leases end.
                self.shards.iter_mut().flat_map(|shard| shard.pgs.values_mut()).for_each(Pg::give_up_leases);
                let epoch = self.maps.epoch();
                let message = DaemonMsg::MarkMeDown { osd: self.me(), epoch, is_over: true }.into();
                out.push(Effect::Send { conn: *conn, tid: 0, message });
            }
            _ => self.life = Life::Stopping(now.mono),
        }
        self.stop_if_done(now, out);
    }
    /// The map says that we are down (or nobody says anything), and all is durable.
    pub(super) fn stop_if_done(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Life::Stopping(deadline) = self.life else { return };
        let quiet = self.stores.is_empty() && !self.shards.iter().any(Shard::is_storing);
        if (!self.serving && quiet) || now.mono >= deadline {
            self.life = Life::Stopped;
            out.push(Effect::Stopped);
        }
    }
}

/// How many losses of the store the groups know of: `times` in its omap.
fn losses() -> StoredId {
    StoredId::meta("losses")
}
