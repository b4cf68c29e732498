//! What is done to images again and again: purging of the trash, snapshots for mirrors.
//!
//! A schedule is for everything, for a pool, for a namespace in it or (of mirrors) for an image, and the one
//! nearest to an image counts. Those of a pool and below are kept in an object of the pool, in the form in
//! which Ceph's manager keeps them; those for everything among the monitors' configuration keys.

use super::every::Every;
use super::task::written_long;
use nacre_base::PoolId;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    TrashPurge,
    MirrorSnapshot,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::TrashPurge, Kind::MirrorSnapshot];

    /// The object of a pool that keeps its schedules.
    pub fn object(self) -> &'static str {
        match self {
            Kind::TrashPurge => "rbd_trash_purge_schedule",
            Kind::MirrorSnapshot => "rbd_mirror_snapshot_schedule",
        }
    }
    /// The key of the one that is for everything.
    pub fn config_key(self) -> &'static str {
        match self {
            Kind::TrashPurge => "mgr/rbd_support/trash_purge_schedule",
            Kind::MirrorSnapshot => "mgr/rbd_support/mirror_snapshot_schedule",
        }
    }
}

/// What a schedule is for; the more of it is given, the less.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    pub pool: Option<(PoolId, String)>,
    pub namespace: Option<String>,
    /// Id and name.
    pub image: Option<(String, String)>,
}

impl Level {
    /// The key under which its schedule is kept.
    pub fn id(&self) -> String {
        let mut id = self.pool.as_ref().map_or(String::new(), |(pool, _)| pool.0.to_string());
        for part in [&self.namespace, &self.image.as_ref().map(|(id, _)| id.clone())].into_iter().flatten() {
            id.push('/');
            id.push_str(part);
        }
        id
    }
    pub fn name(&self) -> String {
        let Some((_, pool)) = &self.pool else { return String::new() };
        let namespace = self.namespace.iter().filter(|namespace| !namespace.is_empty());
        let parents: String = namespace.map(|namespace| format!("{namespace}/")).collect();
        format!("{pool}/{parents}{}", self.image.as_ref().map_or("", |(_, name)| name))
    }
    /// Whether it is `other`, or a part of that.
    pub fn is_in(&self, other: &Level) -> bool {
        fn fits<T: PartialEq>(other: Option<T>, own: Option<T>) -> bool {
            other.is_none() || own == other
        }
        let pool = |level: &Level| level.pool.as_ref().map(|(pool, _)| *pool);
        let image = |level: &Level| level.image.as_ref().map(|(id, _)| id.clone());
        fits(pool(other), pool(self))
            && fits(other.namespace.clone(), self.namespace.clone())
            && fits(image(other), image(self))
    }
    /// Itself, and what it is a part of, from near to far.
    fn outwards(&self) -> impl Iterator<Item = Level> {
        let namespace = Level { image: None, ..self.clone() };
        let pool = Level { namespace: None, ..namespace.clone() };
        [self.clone(), namespace, pool, Level::default()].into_iter()
    }
}

/// The schedules of one kind.
#[derive(Debug, Default)]
pub struct Schedules(BTreeMap<String, (Level, BTreeSet<Every>)>);

impl Schedules {
    pub fn of(&self, level: &Level) -> Option<&BTreeSet<Every>> {
        self.0.get(&level.id()).map(|(_, schedule)| schedule)
    }
    /// An empty one is none.
    pub fn set(&mut self, level: Level, schedule: BTreeSet<Every>) {
        if schedule.is_empty() {
            self.0.remove(&level.id());
        } else {
            self.0.insert(level.id(), (level, schedule));
        }
    }

    /// When something that is no schedule's own level is next, in minutes since 1970.
    pub fn next(&self, leaf: &Level, minute: u64) -> Option<u64> {
        let schedule = leaf.outwards().find_map(|level| self.of(&level))?;
        schedule.iter().map(|every| every.next(minute)).min()
    }
    /// The earliest time at which any schedule is due.
    pub fn soonest(&self, minute: u64) -> Option<u64> {
        let all = self.0.values().flat_map(|(_, schedule)| schedule);
        all.map(|every| every.next(minute)).min()
    }

    /// The schedules of a level and of its parts. If it has none itself, also the one that it inherits.
    pub fn list(&self, within: &Level) -> String {
        let nearest = within.outwards().find(|level| self.of(level).is_some()).map(|level| level.id());
        let shown = |(level, schedule): &(Level, BTreeSet<Every>)| json!({ "name": level.name(), "schedule": entries(schedule) });
        let rows = self.0.iter();
        let rows = rows.filter(|(id, (level, _))| level.is_in(within) || Some(*id) == nearest.as_ref());
        written_long(&Value::Object(rows.map(|(id, row)| (id.clone(), shown(row))).collect()))
    }
}

fn entries(schedule: &BTreeSet<Every>) -> Value {
    schedule.iter().map(|every| every.to_json()).collect()
}

/// As a schedule is kept.
pub fn stored(schedule: &BTreeSet<Every>) -> String {
    written_long(&entries(schedule))
}

pub fn read(stored: &[u8]) -> Option<BTreeSet<Every>> {
    let value: Value = serde_json::from_slice(stored).ok()?;
    value.as_array()?.iter().map(Every::from_json).collect()
}

/// `YYYY-MM-DD HH:MM:SS` of a minute since 1970.
pub fn shown(minute: u64) -> String {
    let time = nacre_base::Utime { sec: (minute * 60) as u32, nsec: 0 };
    time.to_string().chars().take("2021-01-01T00:00:00".len()).collect::<String>().replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(pool: i64, namespace: &str, id: &str) -> Level {
        Level {
            pool: Some((PoolId(pool), format!("pool{pool}"))),
            namespace: Some(namespace.to_owned()),
            image: Some((id.to_owned(), format!("name-{id}"))),
        }
    }
    fn pool(pool: i64) -> Level {
        Level { pool: Some((PoolId(pool), format!("pool{pool}"))), ..Level::default() }
    }
    fn every(interval: &str) -> BTreeSet<Every> {
        [Every::parse(interval, None).unwrap()].into()
    }

    #[test]
    fn levels_have_ids_and_names() {
        let of = |level: Level| (level.id(), level.name());
        assert_eq!(of(Level::default()), (String::new(), String::new()));
        assert_eq!(of(pool(2)), ("2".into(), "pool2/".into()));
        assert_eq!(of(Level { image: None, ..image(2, "n", "") }), ("2/n".into(), "pool2/n/".into()));
        assert_eq!(of(image(2, "n", "1f")), ("2/n/1f".into(), "pool2/n/name-1f".into()));
        assert_eq!(of(image(2, "", "1f")), ("2//1f".into(), "pool2/name-1f".into()));
    }

    #[test]
    fn the_nearest_schedule_counts() {
        let mut all = Schedules::default();
        let leaf = image(2, "n", "1f");
        assert_eq!((all.next(&leaf, 1), all.soonest(1)), (None, None));
        all.set(Level::default(), every("7m"));
        assert_eq!(all.next(&leaf, 1), Some(7));
        all.set(pool(2), every("1h"));
        assert_eq!((all.next(&leaf, 1), all.next(&image(3, "", "1f"), 1)), (Some(60), Some(7)));
        all.set(leaf.clone(), every("5m"));
        assert_eq!((all.next(&leaf, 6), all.next(&image(2, "n", "2f"), 6)), (Some(10), Some(60)));
        assert_eq!(all.soonest(6), Some(7));
        all.set(leaf.clone(), BTreeSet::new());
        assert_eq!(all.next(&leaf, 6), Some(60));
    }

    #[test]
    fn list_shows_the_inherited_schedule() {
        let mut all = Schedules::default();
        let names = |all: &Schedules, level: &Level| {
            let listed: Value = serde_json::from_str(&all.list(level)).unwrap();
            let rows = listed.as_object().unwrap().values();
            rows.map(|row| row["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
        };
        let namespace = Level { image: None, ..image(2, "n", "") };
        assert_eq!(names(&all, &pool(2)), [""; 0]);
        all.set(Level::default(), every("7m"));
        for level in [Level::default(), pool(2), namespace.clone(), image(2, "n", "1f")] {
            assert_eq!(names(&all, &level), [""]);
        }
        all.set(pool(2), every("1h"));
        all.set(pool(3), every("1h"));
        assert_eq!(names(&all, &pool(2)), ["pool2/"]);
        assert_eq!(names(&all, &namespace), ["pool2/"], "the nearest one");
        assert_eq!(names(&all, &pool(4)), [""]);
        all.set(image(2, "n", "1f"), every("5m"));
        assert_eq!(names(&all, &pool(2)), ["pool2/", "pool2/n/name-1f"]);
        assert_eq!(names(&all, &namespace), ["pool2/", "pool2/n/name-1f"]);
        assert_eq!(names(&all, &Level::default()).len(), 4);
    }

    #[test]
    fn stored_schedules_are_read_back() {
        let kept: BTreeSet<Every> = every("1d").into_iter().chain(every("2h")).collect();
        assert_eq!(read(stored(&kept).as_bytes()), Some(kept));
        assert_eq!(read(b"[{\"interval\": 5}]"), None);
        assert_eq!(read(b"nonsense"), None);
        assert_eq!(shown(27_000_000), "2021-05-03 00:00:00");
    }
}
