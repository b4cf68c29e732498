//! The worker's part of schedules: it looks up what they are for, keeps them, and does what is due.
//!
//! Time is cut in minutes, and each is handled once, by the leader at that time. What was due without a
//! leader is not made up for: the next time comes.

use super::every::Every;
use super::images::{Images, Place};
use super::schedules::{Kind, Level, Schedules, read, shown, stored};
use super::task::written_long;
use super::{Trouble, Worker, helper, trouble};
use bytes::Bytes;
use nacre_base::{Name, PoolId, errno};
use nacre_client::{Failure, Output, Request};
use nacre_mon::ImageCommand;
use nacre_node::now;
use nacre_proto::types::Op;
use nacre_wire::{Decode, DecodeError, Reader};
use serde_json::json;
use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};
use std::time::Duration;

const PAGE: u64 = 128;

/// All schedules, and how far they were followed.
#[derive(Default)]
pub struct Repeats {
    by_kind: BTreeMap<Kind, Schedules>,
    /// The last minute that was examined.
    looked_at: u64,
    working: Option<JoinHandle<()>>,
}

fn minute() -> u64 {
    u64::from(now().wall.sec) / 60
}

impl Repeats {
    pub fn load(images: &Images) -> Result<Repeats, Trouble> {
        let mut by_kind = BTreeMap::new();
        for kind in Kind::ALL {
            by_kind.insert(kind, images.schedules(kind)?);
        }
        Ok(Repeats { by_kind, looked_at: minute(), working: None })
    }

    fn of(&mut self, kind: Kind) -> &mut Schedules {
        self.by_kind.entry(kind).or_default()
    }

    /// How long nothing can be due.
    pub fn patience(&self) -> Option<Duration> {
        let soonest = self.by_kind.values().filter_map(|all| all.soonest(self.looked_at + 1)).min()?;
        let seconds = (soonest * 60).saturating_sub(now().wall.sec.into());
        Some(Duration::from_secs(seconds + 1))
    }

    /// The kinds for something of which the time may have come since this was asked last.
    fn due(&mut self) -> (u64, Vec<Kind>) {
        let (after, now) = (self.looked_at, minute());
        self.looked_at = now;
        let due = |all: &Schedules| all.soonest(after + 1).is_some_and(|soonest| soonest <= now);
        (after, self.by_kind.iter().filter(|(_, all)| due(all)).map(|(&kind, _)| kind).collect())
    }
}

impl Worker {
    /// Begins what schedules say that is due.
    pub fn follow_schedules(&mut self) {
        let Some(repeats) = &mut self.repeats else { return };
        let (after, kinds) = repeats.due();
        let mut orders = Vec::new();
        for kind in kinds {
            let leaves = match self.images().leaves(kind) {
                Ok(leaves) => leaves,
                Err(why) => {
                    tracing::warn!("pools and images of schedules cannot be listed: {}", why.text);
                    continue;
                }
            };
            let Some(repeats) = &mut self.repeats else { return };
            let now = repeats.looked_at;
            let all = repeats.of(kind);
            let due = |leaf: &Level| all.next(leaf, after + 1).is_some_and(|next| next <= now);
            orders.extend(leaves.into_iter().filter(due).map(|leaf| (kind, leaf)));
        }
        let Some(repeats) = self.repeats.as_mut().filter(|_| !orders.is_empty()) else { return };
        if repeats.working.as_ref().is_some_and(|thread| !thread.is_finished()) {
            tracing::warn!("the last scheduled work is still running: the work that is due now is skipped");
            return;
        }
        let conf = self.conf.clone();
        let work = move || {
            for (kind, level) in orders {
                if let Err(why) = helper::repeat(&conf, kind, &level) {
                    tracing::warn!("{kind:?} of {}: {why:#}", level.name());
                }
            }
        };
        match thread::Builder::new().name("rbd schedule".to_string()).spawn(work) {
            Ok(thread) => repeats.working = Some(thread),
            Err(e) => tracing::warn!("schedules are not executed: {e}"),
        }
    }

    /// `rbd trash purge schedule ...` and `rbd mirror snapshot schedule ...`.
    pub fn on_schedule(&mut self, kind: Kind, what: &str, command: &ImageCommand) -> Result<String, Trouble> {
        let arg = |name| command.arg(name).unwrap_or_default();
        let level = self.images().level(kind, arg("level_spec"))?;
        let repeats = self.repeats.as_mut().expect("they are read before a command is answered");
        let mut schedule = repeats.of(kind).of(&level).cloned().unwrap_or_default();
        match what {
            "list" => return Ok(repeats.of(kind).list(&level)),
            "status" => return self.schedule_status(kind, &level),
            "add" => {
                if !schedule.insert(entry(arg("interval"), arg("start_time"))?) {
                    return Ok(String::new());
                }
            }
            "remove" if arg("interval").is_empty() => schedule.clear(),
            "remove" => drop(schedule.remove(&entry(arg("interval"), arg("start_time"))?)),
            other => return Err(trouble(errno::EINVAL, format!("no such command: {other}"))),
        }
        self.images().keep_schedule(kind, &level, &stored(&schedule), schedule.is_empty())?;
        self.repeats.as_mut().expect("seen above").of(kind).set(level, schedule);
        Ok(String::new())
    }

    fn schedule_status(&mut self, kind: Kind, within: &Level) -> Result<String, Trouble> {
        let leaves = self.images().leaves(kind)?;
        let Some(repeats) = &mut self.repeats else {
            unreachable!("schedules are read before they are shown")
        };
        let all = repeats.of(kind);
        let mut rows: Vec<(u64, Level)> = Vec::new();
        for leaf in leaves.into_iter().filter(|leaf| leaf.is_in(within)) {
            rows.extend(all.next(&leaf, minute() + 1).map(|next| (next, leaf)));
        }
        rows.sort_by_key(|(next, leaf)| (*next, leaf.name()));
        let shown = |(next, leaf): &(u64, Level)| match (kind, &leaf.pool) {
            (Kind::TrashPurge, Some((pool, name))) => json!({
                "namespace": leaf.namespace.clone().unwrap_or_default(), "pool_id": pool.0.to_string(),
                "pool_name": name, "schedule_time": shown(*next),
            }),
            _ => json!({ "image": leaf.name(), "schedule_time": shown(*next) }),
        };
        let rows: Vec<_> = rows.iter().map(shown).collect();
        let name = if kind == Kind::TrashPurge { "scheduled" } else { "scheduled_images" };
        Ok(written_long(&json!({ name: rows })))
    }
}

fn entry(interval: &str, start: &str) -> Result<Every, Trouble> {
    let invalid = |word: &str| {
        let why = match word == interval {
            true => format!("Invalid interval ({word})"),
            false => format!("Invalid start time {word}"),
        };
        trouble(errno::EINVAL, why)
    };
    Every::parse(interval, Some(start)).map_err(invalid)
}

/// A pool of which each image is mirrored only if that is said. Ceph: `MIRROR_MODE_IMAGE`.
const BY_IMAGE: u32 = 1;

/// What there is to know of a mirrored image. Ceph: `MirrorImage`.
struct Mirrored {
    is_enabled: bool,
    by_snapshots: bool,
}

impl Decode for Mirrored {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("MirrorImage", 2, |r, v| {
            let _global_id = String::decode(r)?;
            let is_enabled = u8::decode(r)? == 1;
            Ok(Mirrored { is_enabled, by_snapshots: v >= 2 && u8::decode(r)? == 1 })
        })
    }
}

/// The state of a snapshot that is for mirrors; none of any other. Ceph: `SnapshotInfo`.
struct MirrorState(Option<u8>);

impl MirrorState {
    /// Ceph: `MIRROR_SNAPSHOT_STATE_PRIMARY`. The others are of images that were demoted or never primary.
    const PRIMARY: u8 = 0;
    /// Ceph: `SNAPSHOT_NAMESPACE_TYPE_MIRROR`.
    const KIND: u32 = 3;
}

impl Decode for MirrorState {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("SnapshotInfo", 1, |r, _| {
            let _id = u64::decode(r)?;
            r.versioned("SnapshotNamespace", 1, |r, _| {
                let is_of_mirror = u32::decode(r)? == MirrorState::KIND;
                Ok(MirrorState(if is_of_mirror { Some(u8::decode(r)?) } else { None }))
            })
        })
    }
}

impl Images {
    /// All pools for images and the namespaces in them.
    fn places(&self) -> Result<Vec<Level>, Trouble> {
        let mut all = Vec::new();
        for (pool, name) in self.pools()? {
            let default = Place { pool, namespace: String::new() };
            for namespace in [String::new()].into_iter().chain(self.namespaces(&default)?) {
                let pool = Some((pool, name.clone()));
                all.push(Level { pool, namespace: Some(namespace), image: None });
            }
        }
        Ok(all)
    }

    /// What schedules are followed for, one by one.
    fn leaves(&self, kind: Kind) -> Result<Vec<Level>, Trouble> {
        let places = self.places()?;
        if kind == Kind::TrashPurge {
            return Ok(places);
        }
        let mut images = Vec::new();
        for place in places {
            self.add_mirrored(&place, &mut images)?;
        }
        Ok(images)
    }

    /// The images there that snapshots are made of for mirrors.
    fn add_mirrored(&self, place: &Level, images: &mut Vec<Level>) -> Result<(), Failure> {
        let Some(at) = at(place) else { return Ok(()) };
        let mut after = String::new();
        loop {
            let page = self.call::<Vec<(String, String)>>(
                &at,
                "rbd_mirroring",
                "mirror_image_list",
                &(&after, PAGE),
            )?;
            let page = page.unwrap_or_default();
            for (id, _) in &page {
                let mirrored = self.mirrored(&at, id)?;
                if !mirrored.is_some_and(|image| image.is_enabled && image.by_snapshots)
                    || !self.is_primary(&at, id)?
                {
                    continue;
                }
                let Some(name) = self.call::<String>(&at, "rbd_directory", "dir_get_name", id)? else {
                    continue;
                };
                images.push(Level { image: Some((id.clone(), name)), ..place.clone() });
            }
            match page.last() {
                Some((last, _)) if page.len() as u64 == PAGE => after = last.clone(),
                _ => return Ok(()),
            }
        }
    }

    /// What `[POOL/[NAMESPACE/][IMAGE]]` means.
    fn level(&self, kind: Kind, spec: &str) -> Result<Level, Trouble> {
        let invalid = |why: String| trouble(errno::EINVAL, format!("Invalid level spec {spec}: {why}"));
        let absent = |what: &str, name: &str| invalid(format!("{what} {name} does not exist"));
        let parts: Vec<&str> = spec.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [""] => return Ok(Level::default()),
            [pool, ""] => (pool, None, ""),
            [pool, image] => (pool, Some(""), image),
            [pool, namespace, image] => (pool, Some(namespace), image),
            _ => ("", None, ""),
        };
        if pool.is_empty() {
            return Err(invalid(format!("failed to parse {spec}")));
        }
        if !image.is_empty() && kind == Kind::TrashPurge {
            return Err(invalid(format!("invalid name {spec}: image level is not allowed")));
        }
        let found = self.pools()?.into_iter().find(|(_, name)| name == pool);
        let found = found.ok_or_else(|| absent("pool", pool))?;
        let default = Place { pool: found.0, namespace: String::new() };
        if let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty())
            && !self.namespaces(&default)?.iter().any(|have| have == namespace)
        {
            return Err(absent("namespace", namespace));
        }
        let mut level = Level { pool: Some(found), namespace: namespace.map(str::to_owned), image: None };
        let at = at(&level).unwrap_or(default);
        // As on Ceph, what a pool as a whole is mirrored by is not examined.
        let mirrors = kind == Kind::MirrorSnapshot;
        if mirrors && !at.namespace.is_empty() && self.mirror_mode(&at)? != Some(BY_IMAGE) {
            return Err(invalid(format!("namespace {} is not in mirror image mode", at.namespace)));
        }
        if !image.is_empty() {
            let found = self.find(&at, image)?.ok_or_else(|| absent("image", image))?;
            if mirrors && !self.mirrored(&at, &found.id)?.is_some_and(|mirrored| mirrored.by_snapshots) {
                return Err(invalid(format!("image {image} is not in snapshot mirror mode")));
            }
            level.image = Some((found.id, image.to_owned()));
        }
        Ok(level)
    }

    fn mirrored(&self, at: &Place, id: &String) -> Result<Option<Mirrored>, Failure> {
        self.call(at, "rbd_mirroring", "mirror_image_get", id)
    }

    /// Whether snapshots for mirrors are made of the image here, by the last of them.
    fn is_primary(&self, at: &Place, id: &str) -> Result<bool, Failure> {
        let header = format!("rbd_header.{id}");
        let snaps = self.call::<(u64, Vec<u64>)>(at, &header, "get_snapcontext", &Bytes::new())?;
        // The newest is first.
        for snap in snaps.map_or_else(Vec::new, |(_, snaps)| snaps) {
            let state = self.call::<MirrorState>(at, &header, "snapshot_get", &snap)?;
            if let Some(MirrorState(Some(state))) = state {
                return Ok(state == MirrorState::PRIMARY);
            }
        }
        Ok(true)
    }

    fn mirror_mode(&self, at: &Place) -> Result<Option<u32>, Failure> {
        self.call(at, "rbd_mirroring", "mirror_mode_get", &Bytes::new())
    }

    fn schedules(&self, kind: Kind) -> Result<Schedules, Trouble> {
        let mut all = Schedules::default();
        let get = json!({ "prefix": "config-key get", "key": kind.config_key() });
        match self.ask(Request::mon_command(get.to_string(), Bytes::new())) {
            Ok(Output::Command(said)) => all.set(Level::default(), read(&said.output).unwrap_or_default()),
            Ok(_) => unreachable!("a command gives its output"),
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => return Err(failure.into()),
        }
        for (pool, name) in self.pools()? {
            let place = Place { pool, namespace: String::new() };
            for (id, kept) in self.omap(&place, kind.object())? {
                let level = self.level_by_id((pool, &name), &id.to_text())?;
                match (level, read(&kept)) {
                    (Some(level), Some(schedule)) => all.set(level, schedule),
                    _ => tracing::warn!(
                        "schedule {id} of pool {name} cannot be read, or its image does not exist any more"
                    ),
                }
            }
        }
        Ok(all)
    }

    fn level_by_id(&self, (pool, name): (PoolId, &str), id: &str) -> Result<Option<Level>, Failure> {
        let mut parts = id.splitn(3, '/').skip(1);
        let namespace = parts.next().map(str::to_owned);
        let mut level = Level { pool: Some((pool, name.to_owned())), namespace, image: None };
        if let (Some(at), Some(id)) = (at(&level), parts.next()) {
            let name = self.call::<String>(&at, "rbd_directory", "dir_get_name", &id.to_owned())?;
            let Some(name) = name else { return Ok(None) };
            level.image = Some((id.to_owned(), name));
        }
        Ok(Some(level))
    }

    fn keep_schedule(&self, kind: Kind, level: &Level, kept: &str, gone: bool) -> Result<(), Trouble> {
        let Some((pool, _)) = level.pool else {
            let prefix = if gone { "config-key rm" } else { "config-key set" };
            let command = json!({ "prefix": prefix, "key": kind.config_key(), "val": kept });
            self.ask(Request::mon_command(command.to_string(), Bytes::new()))?;
            return Ok(());
        };
        let (at, key) = (Place { pool, namespace: String::new() }, Name::from(level.id()));
        let op = match gone {
            true => Op::OmapRmKeys([key].into()),
            false => Op::OmapSetVals([(key, Bytes::from(kept.to_owned()))].into()),
        };
        self.run(&at, kind.object(), op)?;
        Ok(())
    }
}

fn at(level: &Level) -> Option<Place> {
    let (pool, _) = level.pool.as_ref()?;
    Some(Place { pool: *pool, namespace: level.namespace.clone()? })
}
