//! Liveness: of peers, of this OSD, and when to boot again after the map marked it down.

use super::{BEAT, Life, Osd};
use crate::heartbeat::{BEAT_EVERY, Place, witnessed};
use nacre_base::{Now, OsdId, Time};
use nacre_machine::{Effect, Level, Token};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::{Beat, DaemonMsg};
use nacre_proto::types::Network;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// Heartbeats that come later than due by more than this say that we stood still, not others.
const LATE: Duration = Duration::from_millis(150);
/// A disk whose I/O takes longer than this hangs. Slow disks take a tenth of it in their worst moments.
const DISK_HANGS: Duration = Duration::from_secs(5);
/// How long an OSD that was marked down although it lives waits for a peer that it does not hear; it
/// doubles each time. Its place is taken by others meanwhile, and to return would stall them.
const RETURN_PATIENCE: Duration = Duration::from_secs(30);
const RETURN_DOUBLINGS: u32 = 3;
/// For the cluster log.
const WARNING: u8 = 3;

/// Whether this OSD is up by the map, and when it may boot again.
#[derive(Default)]
pub(super) struct Presence {
    /// The map says that this incarnation of the OSD is up.
    pub serving: bool,
    pub next_boot: Time,
    /// How often this incarnation was marked down while it was running.
    pub times_down: u32,
    /// While peers are not heard, a boot waits until then.
    pub return_at: Time,
    pub said_why_waiting: bool,
}

impl Osd {
    // ---- others ----

    pub(super) fn on_beat(&mut self, now: Now, out: &mut Vec<Effect>) {
        if matches!(self.life, Life::Stopped) {
            return;
        }
        out.push(Effect::Arm { timer: BEAT, after: BEAT_EVERY });
        let due = self.last.beat + BEAT_EVERY;
        self.last.beat = now.mono;
        let late = now.mono.since(due);
        if late > LATE {
            self.links.heartbeats.forgive(now.mono, late);
            self.io.disk.forgive(late);
        }
        // An OSD that cannot store is not alive for others.
        if !self.io.disk.is_hung() {
            for (osd, network, addr) in self.links.heartbeats.take_due(now.mono) {
                let beat = self.beat(osd, addr.nonce, now.mono.nanos, false);
                out.extend(beat.zip(addr.sock).map(|(beat, to)| datagram(network, to, &beat)));
            }
        }
        self.links.heartbeats.note_sessions(|osd, life| self.links.peers.without_since(osd, life));
        for (osd, evidence) in self.links.heartbeats.silent(now.mono) {
            if let Some(life) = self.links.heartbeats.life(osd).filter(|_| self.presence.serving) {
                self.report_failure(osd, life, evidence, out);
            }
        }
        self.change_networks(now, out);
    }

    /// What goes over a network that is silent goes over the other one, and back when it is well.
    fn change_networks(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(map) = self.map() else { return };
        let preferred =
            |osd| self.place_of(map, osd).map(|place| self.links.heartbeats.network(osd, &place, now.mono));
        for (osd, conn) in self.links.peers.misplaced(now.mono, preferred) {
            let network = self.links.peers.network(osd).map_or(Network::Public, Network::other);
            let text = format!("osd.{osd} is now reached on the {network}");
            out.push(Effect::Log { level: Level::Info, text });
            out.push(Effect::Hangup { conn });
            self.links.peers.closed(osd, now.mono, false);
            self.copier.on_session_lost(osd);
            self.dial(now, osd, out);
        }
    }

    fn beat(&self, to: OsdId, to_life: u32, stamp: u64, is_answer: bool) -> Option<Beat> {
        let from_life = self.config.cluster.msgr2()?.nonce;
        Some(Beat { fsid: self.map()?.fsid, from: self.me(), from_life, to, to_life, is_answer, stamp })
    }

    pub(super) fn on_datagram(
        &mut self,
        now: Now,
        network: Network,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut Vec<Effect>,
    ) {
        // Anything may arrive at an open port; it is dropped without an answer.
        let Ok(beat) = Beat::from_datagram(bytes) else { return };
        let Some(fsid) = self.map().map(|map| map.fsid) else { return };
        let our_life = self.config.cluster.msgr2().map(|addr| addr.nonce);
        if beat.fsid != fsid || beat.to != self.me() || Some(beat.to_life) != our_life {
            return;
        }
        if !beat.is_answer && !self.io.disk.is_hung() {
            let answer = self.beat(beat.from, beat.from_life, beat.stamp, true);
            out.extend(answer.map(|answer| datagram(network, from, &answer)));
        }
        if self.links.heartbeats.life(beat.from) == Some(beat.from_life) {
            self.heard(now, beat.from, network, out);
        }
    }

    pub(super) fn heard(&mut self, now: Now, osd: OsdId, network: Network, out: &mut Vec<Effect>) {
        if let Some(evidence) = self.links.heartbeats.heard(osd, network, now.mono)
            && let Some(life) = self.links.heartbeats.life(osd)
        {
            self.report_failure(osd, life, evidence, out);
        }
    }

    pub(super) fn choose_watched(&mut self, now: Now, map: &OsdMap) {
        let me = self.me();
        let mut osds: BTreeSet<OsdId> = self
            .pgs()
            .filter(|pg| pg.interval().acting.contains(&me) || pg.interval().up.contains(&me))
            .flat_map(|pg| pg.interval().up.iter().chain(&pg.interval().acting).copied())
            .collect();
        let witnessed = witnessed(map, me);
        osds.extend(&witnessed);
        if !self.presence.serving {
            // Whether to return depends on whether they are heard again.
            osds.extend(self.links.heartbeats.watched());
        }
        osds.remove(&me);
        let lives: Vec<(OsdId, Place)> =
            osds.into_iter().filter_map(|osd| Some((osd, self.place_of(map, osd)?))).collect();
        self.links.heartbeats.watch(lives.into_iter(), &witnessed, now.mono);
    }

    // ---- ourselves ----

    /// The map says something new about us.
    pub(super) fn note_fall(&mut self, now: Now, was_serving: bool) {
        if was_serving && matches!(self.life, Life::Running) {
            let doublings = self.presence.times_down.min(RETURN_DOUBLINGS);
            self.presence.times_down += 1;
            self.presence.return_at = now.mono + RETURN_PATIENCE * 2_u32.pow(doublings);
            self.presence.said_why_waiting = false;
        }
    }

    /// Whether to ask for being up. An OSD that does not hear another one would be missed by it, and
    /// marked down again.
    pub(super) fn may_return(&mut self, now: Now, out: &mut Vec<Effect>) -> bool {
        if self.io.disk.is_hung() {
            return false;
        }
        let missed = self.links.heartbeats.missed(now.mono);
        if missed.is_empty() || now.mono >= self.presence.return_at {
            return true;
        }
        if !std::mem::replace(&mut self.presence.said_why_waiting, true) {
            let names: Vec<String> = missed.iter().map(|osd| format!("osd.{osd}")).collect();
            let text = format!(
                "osd.{} receives no heartbeats from {} and delays its return",
                self.me(),
                names.join(", ")
            );
            self.tell_cluster(now, WARNING, text, out);
        }
        false
    }

    /// With a hung disk the OSD must not send heartbeats.
    pub(super) fn look_at_disk(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(changed) = self.io.disk.look(now.mono) else {
            if self.io.disk.is_hung() && self.presence.serving {
                self.ask_to_be_down(out);
            }
            return;
        };
        let id = self.me();
        let text = match changed {
            true => format!("osd.{id}: its disk has not answered for {} s", DISK_HANGS.as_secs()),
            false => format!("osd.{id}: its disk answers again"),
        };
        self.tell_cluster(now, WARNING, text, out);
        if self.io.disk.is_hung() && self.presence.serving {
            self.ask_to_be_down(out);
        }
    }
    fn ask_to_be_down(&self, out: &mut Vec<Effect>) {
        self.to_mon(DaemonMsg::MarkMeDown { osd: self.me(), epoch: self.maps.epoch(), is_over: false }, out);
    }

    pub(super) fn tell_cluster(&self, now: Now, level: u8, text: String, out: &mut Vec<Effect>) {
        out.push(Effect::Log { level: Level::Warn, text: text.clone() });
        self.to_mon(DaemonMsg::ClusterLog { level, stamp: now.wall, text }, out);
    }
}

fn datagram(network: Network, to: SocketAddr, beat: &Beat) -> Effect {
    Effect::Datagram { network, to, bytes: beat.to_datagram().into() }
}

/// What the disk was told to do and has not done, and since when.
#[derive(Default)]
pub struct DiskWatch {
    /// In the order in which they were pushed, which is that in which they are done.
    stores: VecDeque<(Token, Time)>,
    reads: BTreeMap<Token, Time>,
    hung: bool,
}

impl DiskWatch {
    pub fn is_hung(&self) -> bool {
        self.hung
    }
    /// What a turn pushed.
    pub fn note(&mut self, now: Time, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Store { token, .. } => self.stores.push_back((*token, now)),
                Effect::Read { token, .. } => drop(self.reads.insert(*token, now)),
                _ => {}
            }
        }
    }
    /// Gives all that are durable with this one, in order.
    pub fn stored(&mut self, token: Token) -> Vec<Token> {
        let durable = self.stores.iter().position(|(stored, _)| *stored == token).map_or(0, |at| at + 1);
        self.stores.drain(..durable).map(|(token, _)| token).collect()
    }
    pub fn read_done(&mut self, token: Token) {
        self.reads.remove(&token);
    }
    /// We stood still ourselves and may not have heard.
    pub fn forgive(&mut self, late: Duration) {
        let times = self.stores.iter_mut().map(|(_, since)| since).chain(self.reads.values_mut());
        times.for_each(|since| *since = *since + late);
    }
    /// Whether it hangs since now, or does no longer.
    pub fn look(&mut self, now: Time) -> Option<bool> {
        let oldest =
            self.stores.front().map(|(_, since)| *since).into_iter().chain(self.reads.values().copied());
        let hung = oldest.min().is_some_and(|since| now.since(since) > DISK_HANGS);
        (hung != std::mem::replace(&mut self.hung, hung)).then_some(hung)
    }
}
