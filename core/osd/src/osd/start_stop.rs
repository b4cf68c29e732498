//! Start of an OSD from its store, including lost records, and its stop.

use super::{BEAT, GOODBYE, Life, Osd, TICK, TICK_EVERY};
use crate::heartbeat::BEAT_EVERY;
use crate::maps::{self, Maps};
use crate::pg::record::least_pg_num;
use crate::pg::scrub::ERROR;
use crate::pg::{Interval, Pg, PgEvent, pg_list, pg_list_key};
use crate::shard::Shard;
use crate::shard_view::{ShardView, of_shard};
use crate::store_losses;
use bytes::Bytes;
use nacre_base::{Epoch, Now, PgId, SpgId};
use nacre_machine::{Effect, Level, StoreView, given_up};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::DaemonMsg;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use std::sync::Arc;

impl Osd {
    pub(super) fn on_start(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        self.started = now.mono;
        self.last.tick = now.mono;
        self.last.beat = now.mono;
        match Maps::load(store) {
            Ok(maps) => self.maps = maps,
            // Placement groups are loaded when the first one is needed.
            Err(error) => {
                let text = format!("osd.{}: {error}: maps are fetched from the monitors", self.me());
                out.push(Effect::Log { level: Level::Error, text });
                let mut txn = Transaction::new();
                txn.push(maps::id(), Change::Remove);
                self.store(txn, out);
            }
        }
        if let Some(map) = self.maps.current.clone() {
            self.load_groups(now, store, &map, out);
        }
        self.with_mon(now, out, |mon, cx| mon.start(cx));
        out.push(Effect::Arm { timer: TICK, after: TICK_EVERY });
        out.push(Effect::Arm { timer: BEAT, after: BEAT_EVERY });
    }

    pub(super) fn load_groups(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        map: &Arc<OsdMap>,
        out: &mut Vec<Effect>,
    ) {
        let mut txn = Transaction::new();
        for id in self.groups_here(store, map, &mut txn, out) {
            // It began whenever it did.
            let interval = Interval::new(Epoch(0), map.pg_to_up_acting(id), map, id);
            let at = self.shard_of(id);
            let pg = match Pg::load(id, self.config.id, interval.clone(), now, store) {
                Ok(mut pg) => {
                    if let Some(pg) = &mut pg {
                        let (mut own, view) = (Transaction::new(), ShardView::new(store, pg.shard()));
                        pg.drop_unreadable(&view, &mut own);
                        txn.append(of_shard(pg.shard(), own));
                    }
                    pg
                }
                Err(error) => {
                    let text = format!("pg {id}: {error}: all its objects are compared with other copies");
                    out.push(Effect::Log { level: Level::Error, text });
                    let pg_num = least_pg_num(map, id);
                    Some(Pg::load_remains(id, self.config.id, interval, pg_num, now, &mut txn))
                }
            };
            self.shards[at].pgs.extend(pg.map(|pg| (id, pg)));
        }
        if !txn.is_empty() {
            self.store(txn, out);
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

    /// If the list is unreadable, the store is searched for every PG of the cluster.
    fn groups_here(
        &self,
        store: &dyn StoreView,
        map: &OsdMap,
        txn: &mut Transaction,
        out: &mut Vec<Effect>,
    ) -> Vec<PgId> {
        let mut ids: Vec<PgId> = Vec::new();
        let listed_here = store.omap_walk(&pg_list(), b"", &mut |key, _| {
            ids.extend(key.to_text().parse::<PgId>());
            true
        });
        if let Err(error) = listed_here {
            let text = format!("osd.{}: {error}: placement groups are searched one by one", self.me());
            out.push(Effect::Log { level: Level::Error, text });
            let all = map
                .pools
                .iter()
                .flat_map(|(&pool, info)| (0..info.pg_num).map(move |seed| PgId { pool, seed }));
            // One that cannot be read exists.
            ids = all
                .filter(|id| {
                    store.stat(&StoredId::Pg(SpgId::replicated(*id))).map_or(true, |stat| stat.is_some())
                })
                .collect();
            txn.push(pg_list(), Change::Remove);
            txn.push(
                pg_list(),
                Change::OmapSet(ids.iter().map(|id| (pg_list_key(*id), Bytes::new())).collect()),
            );
        }
        ids
    }

    /// The store may have lost acknowledged transactions. The PGs record this before anything else.
    fn face_losses(&mut self, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let mut txn = Transaction::new();
        if store_losses::is_news(store) {
            let me = self.me();
            let text = format!(
                "osd.{me}: the store lost acknowledged writes: all placement groups are compared with other \
                 copies"
            );
            out.push(Effect::Log { level: Level::Error, text });
            self.shards
                .iter_mut()
                .flat_map(|shard| shard.pgs.values_mut())
                .for_each(|pg| pg.mark_incomplete(&mut txn));
            store_losses::note(store, &mut txn);
        }
        for (id, block) in &store.lost().blocks {
            let Some((shard, object)) = id.as_object() else { continue };
            let text = format!("osd.{}: {object}: block {block} was lost with the store's log", self.me());
            out.push(Effect::Log { level: Level::Error, text });
            let mut pgs = self.shards.iter_mut().flat_map(|shard| shard.pgs.values_mut());
            pgs.any(|pg| {
                // The PG names objects, and in the store they are shards.
                let mut own = Transaction::new();
                let view = ShardView::new(store, shard);
                let found = pg.shard() == shard && pg.note_lost_block(&view, object, *block, &mut own);
                txn.append(of_shard(shard, own));
                found
            });
        }
        if !txn.is_empty() {
            self.store(txn, out);
        }
    }

    /// The store's index is corrupt: some records are unknown or unreadable. The OSD stops, unless a PG would
    /// have too few other copies.
    pub(super) fn leave_if_corrupt(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        if !store.has_corrupt_metadata() || !matches!(self.life, Life::Running) {
            return;
        }
        let me = self.me();
        let needs_us = self.pgs().find(|pg| !pg.can_do_without_us()).map(|pg| pg.id);
        let then = match needs_us {
            Some(pg) => format!("it continues to serve, because pg {pg} would have too few other copies"),
            None => "it leaves".to_string(),
        };
        if !std::mem::replace(&mut self.reported_corruption, true) || needs_us.is_none() {
            let text = format!(
                "osd.{me}: metadata of its store is corrupt, and it must be recreated (`nacre osd format \
                 --id {me}`): {then}"
            );
            self.tell_cluster(now, ERROR, text, out);
        }
        if needs_us.is_none() {
            let mut txn = Transaction::new();
            txn.push(given_up(), Change::Touch);
            self.store(txn, out);
            self.on_stop(now, out);
        }
    }

    pub(super) fn on_stop(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.life = Life::Stopping(now.mono + GOODBYE);
        match (self.mon.ready(), self.presence.serving) {
            (Some(conn), true) => {
                // Otherwise the next primary of our PGs would wait until our leases end.
                self.shards.iter_mut().flat_map(|shard| shard.pgs.values_mut()).for_each(Pg::give_up_leases);
                let epoch = self.maps.epoch();
                let message = DaemonMsg::MarkMeDown { osd: self.me(), epoch, is_over: true }.into();
                out.push(Effect::Send { conn, tid: 0, message });
            }
            _ => self.life = Life::Stopping(now.mono),
        }
        self.stop_if_done(now, out);
    }
    /// The map says that this OSD is down (or no map came), and everything is durable.
    pub(super) fn stop_if_done(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Life::Stopping(deadline) = self.life else { return };
        let quiet = self.io.stores.is_empty() && !self.shards.iter().any(Shard::is_storing);
        if (!self.presence.serving && quiet) || now.mono >= deadline {
            self.life = Life::Stopped;
            out.push(Effect::Stopped);
        }
    }
}
