//! Watches and notifies: what stays with an OSD after its answer.
//!
//! An OSD keeps a watch for one connection. When that connection is gone, or another OSD serves the
//! object, the watch is made again there under another tid; the OSD knows it by its cookie, so nothing is
//! lost if that happens within the watch's timeout. Pings tell both sides that the other one is there.
//! A notify is sent again in the same way until its completion arrives, so that a watcher may hear of it
//! twice.

use crate::object::ObjectRequest;
use crate::objecter::Work;
use crate::request::{Failure, RequestId};
use bytes::Bytes;
use nacre_base::{Now, Time, errno};
use nacre_proto::messages::{WatchNotify, WatchNotifyKind};
use nacre_proto::types::{NotifyAcks, Op, WatchAction, op_flags::message as flag};
use nacre_wire::from_slice;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Names a watch of one client: the id of the request that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// What happened to a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// To be acknowledged (`ObjectRequest::notify_ack`): the notifier waits for that.
    Notified { watch: WatchId, notify_id: u64, notifier: u64, payload: Bytes },
    /// The watch is over, and notifies may have been missed.
    Lost { watch: WatchId, failure: Failure },
}

/// What a notify came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifyOutcome {
    /// The replies of watchers, by client id and cookie, and those that did not answer in time.
    pub acks: NotifyAcks,
    pub timed_out: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Watches {
    watches: BTreeMap<WatchId, Watch>,
    notifies: BTreeMap<RequestId, Notify>,
    /// By tid in the objecter.
    tids: BTreeMap<u64, Owner>,
    pings: BTreeSet<(Time, WatchId)>,
}

#[derive(Clone, Copy, Debug)]
enum Owner {
    Watch(WatchId),
    Ping(WatchId),
    Notify(RequestId),
}

#[derive(Debug)]
struct Watch {
    /// The object; without operations.
    object: ObjectRequest,
    timeout: Duration,
    tid: u64,
    /// Of a ping that is on its way.
    ping: Option<u64>,
    ping_at: Option<Time>,
    /// How often it was made again.
    generation: u32,
    registered: bool,
}

#[derive(Debug)]
struct Notify {
    object: ObjectRequest,
    tid: u64,
}

/// What the outcome of a tid means for the rest of the client.
pub(crate) enum Outcome {
    /// The tid is not of a watch or a notify.
    NotOurs,
    Nothing,
    /// The request that made the watch is complete.
    Established(WatchId),
    /// The same, and there is no watch.
    Refused(WatchId, Failure),
    Lost(WatchId, Failure),
    NotifyFailed(RequestId, Failure),
}

/// What a message about a watch or a notify means.
pub(crate) enum Notice {
    Nothing,
    Event(WatchEvent),
    Complete(RequestId, NotifyOutcome),
}

impl Watches {
    /// Makes a watch: the work for `tid`.
    pub(crate) fn watch(
        &mut self,
        id: WatchId,
        object: ObjectRequest,
        timeout: Duration,
        tid: u64,
        now: Now,
    ) -> Work {
        let watch =
            Watch { object, timeout, tid, ping: None, ping_at: None, generation: 0, registered: false };
        let work = watch.work(id, WatchAction::Watch, now);
        self.watches.insert(id, watch);
        self.tids.insert(tid, Owner::Watch(id));
        work
    }

    /// Sends a notify: the work for `tid`.
    pub(crate) fn notify(
        &mut self,
        id: RequestId,
        object: ObjectRequest,
        (timeout, payload): (Duration, Bytes),
        tid: u64,
        now: Now,
    ) -> Work {
        let timeout_secs = whole_secs(timeout);
        let object = object.op(Op::Notify { cookie: id.0, timeout_secs, payload }).flags(flag::READ);
        let work = Work::lingering(object.clone(), now.wall);
        self.notifies.insert(id, Notify { object, tid });
        self.tids.insert(tid, Owner::Notify(id));
        work
    }

    /// Ends a watch here. Its tids, which the objecter is to forget, and the request that ends it at the
    /// OSD.
    pub(crate) fn unwatch(&mut self, id: WatchId) -> Option<(Vec<u64>, ObjectRequest)> {
        let watch = self.watches.get(&id)?;
        let request = watch.request(id, WatchAction::Unwatch);
        Some((self.drop_watch(id), request))
    }

    fn drop_watch(&mut self, id: WatchId) -> Vec<u64> {
        let Some(watch) = self.watches.remove(&id) else { return Vec::new() };
        if let Some(at) = watch.ping_at {
            self.pings.remove(&(at, id));
        }
        let tids: Vec<u64> = [watch.tid].into_iter().chain(watch.ping).collect();
        for tid in &tids {
            self.tids.remove(tid);
        }
        tids
    }

    /// A watch or notify whose request was cancelled, or whose time is up: tids to forget.
    pub(crate) fn cancel(&mut self, id: RequestId) -> Vec<u64> {
        if let Some(notify) = self.notifies.remove(&id) {
            self.tids.remove(&notify.tid);
            return vec![notify.tid];
        }
        let watch = WatchId(id.0);
        match self.watches.get(&watch) {
            Some(Watch { registered: false, .. }) => self.drop_watch(watch),
            _ => Vec::new(),
        }
    }

    /// Ends all watches and returns the registered ones.
    pub(crate) fn stop(&mut self) -> Vec<WatchId> {
        let watches = std::mem::take(self).watches;
        watches.into_iter().filter(|(_, watch)| watch.registered).map(|(id, _)| id).collect()
    }

    /// What was under `tid` is to be done again under `next`: the work, and a ping to forget, as it was for
    /// a session that is over.
    pub(crate) fn displaced(&mut self, tid: u64, next: u64, now: Now) -> (Option<Work>, Option<u64>) {
        let owner = self.tids.remove(&tid);
        let again = match owner {
            Some(Owner::Notify(id)) => self.notifies.get_mut(&id).map(|notify| {
                notify.tid = next;
                (Work::lingering(notify.object.clone(), now.wall), None)
            }),
            Some(Owner::Watch(id)) => self.watches.get_mut(&id).map(|watch| {
                watch.tid = next;
                watch.generation += u32::from(watch.registered);
                let action = if watch.registered { WatchAction::Reconnect } else { WatchAction::Watch };
                (watch.work(id, action, now), watch.ping.take())
            }),
            Some(Owner::Ping(_)) | None => None,
        };
        let (Some(owner), Some((work, ping))) = (owner, again) else { return (None, None) };
        if let Some(ping) = &ping {
            self.tids.remove(ping);
        }
        self.tids.insert(next, owner);
        (Some(work), ping)
    }

    /// The objecter is through with `tid`, or an OSD has what lingers.
    pub(crate) fn on_done(&mut self, tid: u64, result: Result<(), Failure>, now: Now) -> Outcome {
        match (self.tids.get(&tid).copied(), result) {
            (None, _) => Outcome::NotOurs,
            (Some(Owner::Notify(_)), Ok(())) => Outcome::Nothing,
            (Some(Owner::Notify(id)), Err(failure)) => {
                self.notifies.remove(&id);
                self.tids.remove(&tid);
                Outcome::NotifyFailed(id, failure)
            }
            (Some(Owner::Watch(id) | Owner::Ping(id)), Err(failure)) => {
                let registered = self.watches.get(&id).is_some_and(|watch| watch.registered);
                self.drop_watch(id);
                match registered {
                    true => Outcome::Lost(id, failure),
                    false => Outcome::Refused(id, failure),
                }
            }
            (Some(Owner::Ping(id)), Ok(())) => {
                self.tids.remove(&tid);
                if let Some(watch) = self.watches.get_mut(&id) {
                    watch.ping = None;
                    watch.arm_ping(id, now, &mut self.pings);
                }
                Outcome::Nothing
            }
            (Some(Owner::Watch(id)), Ok(())) => {
                let Some(watch) = self.watches.get_mut(&id) else { return Outcome::Nothing };
                watch.arm_ping(id, now, &mut self.pings);
                match std::mem::replace(&mut watch.registered, true) {
                    true => Outcome::Nothing,
                    false => Outcome::Established(id),
                }
            }
        }
    }

    pub(crate) fn on_notice(&mut self, notice: WatchNotify) -> (Notice, Vec<u64>) {
        let watch = WatchId(notice.cookie);
        match notice.kind {
            WatchNotifyKind::Notify if self.watches.contains_key(&watch) => {
                let WatchNotify { notify_id, notifier, payload, .. } = notice;
                (Notice::Event(WatchEvent::Notified { watch, notify_id, notifier, payload }), Vec::new())
            }
            WatchNotifyKind::Disconnect if self.watches.contains_key(&watch) => {
                let failure = Failure::new(errno::ENOTCONN, "the OSD ended the watch");
                (Notice::Event(WatchEvent::Lost { watch, failure }), self.drop_watch(watch))
            }
            WatchNotifyKind::Complete => {
                let id = RequestId(notice.cookie);
                let Some(notify) = self.notifies.remove(&id) else { return (Notice::Nothing, Vec::new()) };
                self.tids.remove(&notify.tid);
                // Without watchers there may be nothing at all.
                let acks = from_slice::<NotifyAcks>(&notice.acks).unwrap_or_default();
                let timed_out = notice.result < 0 || !acks.missed.is_empty();
                (Notice::Complete(id, NotifyOutcome { acks, timed_out }), vec![notify.tid])
            }
            _ => (Notice::Nothing, Vec::new()),
        }
    }

    pub(crate) fn due(&self) -> Option<Time> {
        self.pings.first().map(|&(at, _)| at)
    }

    /// The next ping that is due, under `tid`; called until there is none.
    pub(crate) fn next_ping(&mut self, tid: u64, now: Now) -> Option<ObjectRequest> {
        while let Some(&(at, id)) = self.pings.first()
            && at <= now.mono
        {
            self.pings.remove(&(at, id));
            let Some(watch) = self.watches.get_mut(&id) else { continue };
            watch.ping_at = None;
            if watch.ping.is_some() {
                continue;
            }
            watch.ping = Some(tid);
            self.tids.insert(tid, Owner::Ping(id));
            return Some(watch.request(id, WatchAction::Ping));
        }
        None
    }
}

impl Watch {
    fn request(&self, id: WatchId, action: WatchAction) -> ObjectRequest {
        let timeout_secs = whole_secs(self.timeout);
        let op = Op::Watch { cookie: id.0, action, generation: self.generation, timeout_secs };
        let request = self.object.clone().op(op);
        match action {
            WatchAction::Ping => request.flags(flag::READ),
            _ => request,
        }
    }

    fn work(&self, id: WatchId, action: WatchAction, now: Now) -> Work {
        Work::lingering(self.request(id, action), now.wall)
    }

    /// Three pings fit into the time after which the OSD gives the watch up.
    fn arm_ping(&mut self, id: WatchId, now: Now, pings: &mut BTreeSet<(Time, WatchId)>) {
        if let Some(at) = self.ping_at.take() {
            pings.remove(&(at, id));
        }
        let at = now.mono + (self.timeout / 4).clamp(Duration::from_millis(250), Duration::from_secs(5));
        self.ping_at = Some(at);
        pings.insert((at, id));
    }
}

fn whole_secs(time: Duration) -> u32 {
    u32::try_from(time.as_secs().max(1)).unwrap_or(u32::MAX)
}
