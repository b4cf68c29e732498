//! The cluster's configuration: options by section and mask, and the log of their changes.

use crate::crush_edit::class_of;
use crate::services::osdmap::maps::INCREMENTALS;
use crate::sessions::Session;
use crate::state::{Applying, Genesis, Published, Rejected, Slice, State};
use nacre_base::Utime;
use nacre_proto::messages::Config as ConfigMsg;
use nacre_proto::types::EntityType;
use nacre_wire::versioned_fields;
use std::collections::{BTreeMap, VecDeque};

/// Changes that `ceph config log` shows.
const CHANGES_MAX: usize = 100;

/// All options that are set, and how they came to be.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub options: BTreeMap<ConfigKey, String>,
    pub changes: VecDeque<ConfigChange>,
}

/// One option for some entities: `section` is `global`, a kind, or an entity; `mask` narrows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigKey {
    pub section: String,
    /// `class:ssd`, `host:a`, or empty.
    pub mask: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    pub stamp: Utime,
    pub version: u64,
    /// `osd/class:hdd/osd_max_backfills`
    pub what: String,
    pub old: Option<String>,
    pub new: Option<String>,
}

/// The daemon or client whose options are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigEntity {
    pub kind: String,
    /// Without the kind; may be empty.
    pub id: String,
    pub host: String,
    pub class: String,
}

impl ConfigKey {
    fn bytes(&self) -> usize {
        self.section.len() + self.mask.len() + self.name.len()
    }
}

impl ConfigEntity {
    /// How specific a section is for this entity; none if it does not apply.
    fn rank(&self, key: &ConfigKey) -> Option<u8> {
        let masked = match key.mask.split_once(':') {
            None => true,
            Some(("class", class)) => class == self.class,
            Some(("host", host)) => host == self.host,
            Some(_) => false,
        };
        let rank = match key.section.split_once('.') {
            None if key.section == "global" => 0,
            None if key.section == self.kind => 1,
            // `client.a` applies to `client.a.b` as well, less closely.
            Some((kind, id)) if kind == self.kind && is_scope(id, &self.id) => {
                2 + u8::try_from(id.matches('.').count()).unwrap_or(u8::MAX - 2)
            }
            _ => return None,
        };
        masked.then_some(rank)
    }
}

/// Whether an id is this scope, or in it.
fn is_scope(scope: &str, id: &str) -> bool {
    id.strip_prefix(scope).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

versioned_fields!(ConfigKey, "config key", section, mask, name);
versioned_fields!(ConfigChange, "config change", stamp, version, what, old, new);

impl Slice for Config {
    /// None removes.
    type Delta = Vec<(ConfigKey, Option<String>)>;

    fn begin(_: &Genesis) -> Result<Config, Rejected> {
        Ok(Config::default())
    }
    fn apply(&mut self, delta: &Self::Delta, at: &Applying) {
        for (key, value) in delta {
            self.set(at.stamp, key, value.clone());
        }
    }
    fn delta_bytes(delta: &Self::Delta) -> usize {
        delta.iter().map(|(key, value)| key.bytes() + value.as_ref().map_or(0, String::len)).sum()
    }
    fn client_bytes(&self) -> usize {
        self.options.iter().map(|(key, value)| key.bytes() + value.len()).sum()
    }

    fn publish(state: &State, what: &str, session: &mut Session, _: u64) -> Option<Published> {
        if what != "config" {
            return None;
        }
        let id = match session.peer.kind {
            EntityType::Osd => session.peer.num.to_string(),
            _ => String::new(),
        };
        let values = state.config_values(session.peer.kind.to_string(), id, session.host.clone());
        if session.sent_config.as_ref() == Some(&values) {
            return None;
        }
        session.sent_config = Some(values.clone());
        Some(Published { messages: vec![ConfigMsg { values }.into()], next: 0 })
    }
}

impl Config {
    fn set(&mut self, stamp: Utime, key: &ConfigKey, value: Option<String>) {
        let old = self.options.get(key).cloned();
        if old == value {
            return;
        }
        match &value {
            Some(value) => drop(self.options.insert(key.clone(), value.clone())),
            None => drop(self.options.remove(key)),
        }
        let mask = if key.mask.is_empty() { String::new() } else { format!("/{}", key.mask) };
        let what = format!("{}{mask}/{}", key.section, key.name);
        let version = self.changes.back().map_or(1, |last| last.version) + 1;
        self.changes.push_back(ConfigChange { stamp, version, what, old, new: value });
        while self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
        }
    }

    /// The options for an entity: of its kind (`osd`), its name (`osd.3`), its host and class.
    pub fn effective(&self, who: &ConfigEntity) -> BTreeMap<String, (String, ConfigKey)> {
        let mut rules: Vec<_> = self.ranked(who).collect();
        rules.sort_by_key(|(rank, ..)| *rank);
        rules.into_iter().map(|(_, key, value)| (key.name.clone(), (value.clone(), key.clone()))).collect()
    }

    /// The value of one option for an entity, as `effective` has it.
    pub fn value_for(&self, who: &ConfigEntity, name: &str) -> Option<&str> {
        let rules = self.ranked(who).filter(|(_, key, _)| key.name == name);
        rules.max_by_key(|(rank, ..)| *rank).map(|(_, _, value)| value.as_str())
    }

    /// What is set for an entity, with a rank that wins over lower ones: from the widest section to the
    /// narrowest, and without a mask before with one.
    fn ranked(&self, who: &ConfigEntity) -> impl Iterator<Item = ((bool, u8), &ConfigKey, &String)> {
        let rank = |key: &ConfigKey| Some((!key.mask.is_empty(), who.rank(key)?));
        self.options.iter().filter_map(move |(key, value)| Some((rank(key)?, key, value)))
    }

    /// How many changes of the OSD map are kept. The same for every member: from what was committed alone.
    pub fn osdmaps_kept(&self) -> u32 {
        let mon = ConfigEntity { kind: "mon".into(), ..ConfigEntity::default() };
        let set = self.value_for(&mon, "mon_min_osdmap_epochs");
        set.and_then(|value| value.parse().ok()).unwrap_or(INCREMENTALS).max(1)
    }
}

impl State {
    /// The options of a daemon or client that runs on that host.
    pub fn config_values(&self, kind: String, id: String, host: String) -> BTreeMap<String, String> {
        let class = match (&*kind, id.parse()) {
            ("osd", Ok(osd)) => class_of(&self.osdmap.map.crush, osd).unwrap_or_default(),
            _ => String::new(),
        };
        let entity = ConfigEntity { kind, id, host, class };
        let values = self.config.effective(&entity).into_iter();
        values.map(|(name, (value, _))| (name, value)).collect()
    }
}
