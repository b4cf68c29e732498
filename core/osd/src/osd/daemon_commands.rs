//! Commands that make an OSD act: get the newest map, scrub, write to the cluster log.

use super::Osd;
use crate::commands::{group, not_here};
use crate::pg::{PgEvent, ScrubRequest};
use nacre_base::errno::{EAGAIN, EBUSY, EINVAL};
use nacre_base::{Now, PgId, Time, Utime};
use nacre_command::{Answer, Args, Refusal, refuse, reply};
use nacre_machine::{ConnId, Effect, StoreView};
use nacre_monc::MakeMessage;
use nacre_proto::maps::Uuid;
use nacre_proto::messages::{DaemonMsg, LogLevel, Message, MonGetVersion};
use serde_json::{Value, json};
use std::time::Duration;

/// How many may wait for the newest map.
const ASKERS_MAX: usize = 64;
/// And for how long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of a word to the cluster's log, in bytes.
const WORDS_MAX: usize = 4096;

/// A command that waits until this OSD has the map that was the newest when it arrived.
pub(super) struct MapWaiter {
    conn: ConnId,
    tid: u64,
    /// Of the question to the monitors.
    handle: u64,
    /// The newest epoch by the monitors' answer.
    epoch: Option<u64>,
    since: Time,
}

impl Osd {
    /// None if it is no such command, or is answered later.
    pub(super) fn order(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        from: (ConnId, u64),
        args: Args<'_>,
        out: &mut Vec<Effect>,
    ) -> Option<Result<Value, Refusal>> {
        match args.prefix()? {
            "get_latest_osdmap" => self.ask_for_newest_map(now, from, out).err().map(Err),
            "scrub" => Some(self.scrub_asked(now, store, args, false, out)),
            "deep_scrub" => Some(self.scrub_asked(now, store, args, true, out)),
            "cluster_log" => Some(self.log_words(now.wall, args, out)),
            _ => None,
        }
    }

    fn ask_for_newest_map(
        &mut self,
        now: Now,
        (conn, tid): (ConnId, u64),
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        if self.mon.ready().is_none() {
            return Err(refuse(EAGAIN, "no monitor can be reached"));
        }
        if self.waiting_for_map.commands.len() >= ASKERS_MAX {
            return Err(refuse(EBUSY, format!("{ASKERS_MAX} other requests wait for the newest map")));
        }
        self.waiting_for_map.last_handle += 1;
        let handle = self.waiting_for_map.last_handle;
        self.waiting_for_map.commands.push(MapWaiter { conn, tid, handle, epoch: None, since: now.mono });
        self.with_mon(now, out, |mon, cx| mon.request(handle, AskNewest, cx));
        Ok(())
    }
    pub(super) fn on_newest_map(&mut self, now: Now, handle: u64, newest: u64, out: &mut Vec<Effect>) {
        let Some(asker) = self.waiting_for_map.commands.iter_mut().find(|asker| asker.handle == handle)
        else {
            return;
        };
        asker.epoch = Some(newest);
        if newest > u64::from(self.maps.epoch().0) {
            self.ask_for_maps(now, out);
        }
    }
    /// Answers commands whose map has arrived, or that waited too long.
    pub(super) fn answer_map_askers(&mut self, now: Now, out: &mut Vec<Effect>) {
        let epoch = u64::from(self.maps.epoch().0);
        let is_over = |asker: &mut MapWaiter| {
            asker.epoch.is_some_and(|asked| asked <= epoch) || now.mono.since(asker.since) > PATIENCE
        };
        for asker in self.waiting_for_map.commands.extract_if(.., is_over) {
            let outcome = match asker.epoch {
                Some(asked) if asked <= epoch => Ok(Answer::default()),
                _ => Err(refuse(EAGAIN, "the monitors did not send a newer map in time")),
            };
            let message = reply(outcome).into();
            self.mon.forget(asker.handle);
            out.push(Effect::Send { conn: asker.conn, tid: asker.tid, message });
        }
    }

    fn scrub_asked(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        args: Args<'_>,
        deep: bool,
        out: &mut Vec<Effect>,
    ) -> Result<Value, Refusal> {
        let id: PgId = group(args)?;
        let me = self.me();
        let pg = self.pg(id).ok_or_else(|| not_here(id))?;
        if pg.interval().primary != Some(me) {
            return Err(refuse(EINVAL, format!("osd.{me} is not the primary of pg {id}")));
        }
        let stamp: Utime = pg.last_scrub(deep);
        self.tell_pg(now, store, id, PgEvent::ScrubRequest(ScrubRequest { deep, repair: false }), out);
        Ok(json!({ "deep": deep, "stamp": stamp.to_string() }))
    }

    fn log_words(&mut self, stamp: Utime, args: Args<'_>, out: &mut Vec<Effect>) -> Result<Value, Refusal> {
        let text = args.list("message").join(" ");
        if args.str("level") != "error" || text.is_empty() {
            return Err(refuse(EINVAL, "give the level 'error' and a message"));
        }
        if text.len() > WORDS_MAX {
            let long = format!("the message has {} bytes, the limit is {WORDS_MAX}", text.len());
            return Err(refuse(EINVAL, long));
        }
        self.to_mon(DaemonMsg::ClusterLog { level: LogLevel::Error as u8, stamp, text }, out);
        Ok(Value::Null)
    }
}

/// The question for the epoch of the newest OSD map.
#[derive(Debug)]
struct AskNewest;

impl MakeMessage for AskNewest {
    fn make(&self, tid: u64, _: Uuid) -> Message {
        MonGetVersion { handle: tid, what: "osdmap".to_string() }.into()
    }
}
