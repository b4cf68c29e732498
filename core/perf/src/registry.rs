//! All sets of one daemon, and the forms in which they are shown.

use crate::values::{Kind, Reading, Value};
use serde_json::{Map, Value as Json, json};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// A set of counters: see `counters!`.
pub trait Counters: Send + Sync {
    fn set_name(&self) -> &'static str;
    fn items(&self) -> Vec<Item<'_>>;
}

/// One counter of a set.
pub struct Item<'a> {
    pub name: &'static str,
    pub description: &'static str,
    pub value: &'a dyn Value,
}

impl Item<'_> {
    /// Its name in `perf histogram dump`, where a mean goes by another one than in `perf dump`.
    fn histogram_name(&self) -> String {
        match self.value.json() {
            Some(_) => format!("{}_histogram", self.name),
            None => self.name.to_string(),
        }
    }
}

/// The sets of one daemon. Clones are the same registry.
#[derive(Clone, Default)]
pub struct Registry {
    sets: Arc<Mutex<Vec<Arc<dyn Counters>>>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sets = self.sets();
        f.debug_list().entries(sets.iter().map(|set| set.set_name())).finish()
    }
}

impl Registry {
    /// Makes a set and shows it from now on.
    pub fn add<C: Counters + Default + 'static>(&self) -> Arc<C> {
        let set = Arc::new(C::default());
        let mut sets = self.sets();
        sets.push(set.clone());
        sets.sort_by_key(|set| set.set_name());
        set
    }

    fn sets(&self) -> MutexGuard<'_, Vec<Arc<dyn Counters>>> {
        self.sets.lock().expect("no thread panics while it holds the list")
    }

    /// `perf dump`; only one set or one counter of it where they are named.
    pub fn dump(&self, set: &str, counter: &str) -> Json {
        self.show(set, |item| {
            Some((item.name.to_string(), item.value.json()?)).filter(|(name, _)| wanted(counter, name))
        })
    }
    /// `perf histogram dump`.
    pub fn histograms(&self, set: &str, counter: &str) -> Json {
        self.show(set, |item| {
            Some((item.histogram_name(), item.value.histogram()?)).filter(|(name, _)| wanted(counter, name))
        })
    }
    /// `perf schema`.
    pub fn schema(&self) -> Json {
        self.show("", |item| {
            item.value.json()?;
            Some((item.name.to_string(), schema(item, item.value.kind())))
        })
    }
    /// `perf histogram schema`.
    pub fn histogram_schema(&self) -> Json {
        self.show("", |item| {
            item.value.histogram()?;
            let kind = if item.value.json().is_some() { Kind::HISTOGRAM } else { item.value.kind() };
            Some((item.histogram_name(), schema(item, kind)))
        })
    }

    /// Every value, with the names of its set and its own.
    pub fn readings(&self) -> Vec<(&'static str, &'static str, Reading)> {
        let sets = self.sets();
        let of_set = |set: &Arc<dyn Counters>| -> Vec<_> {
            let items = set.items().into_iter();
            items.filter_map(|item| Some((set.set_name(), item.name, item.value.reading()?))).collect()
        };
        sets.iter().flat_map(of_set).collect()
    }

    fn show(&self, set: &str, each: impl Fn(&Item<'_>) -> Option<(String, Json)>) -> Json {
        let mut out = Map::new();
        for counters in self.sets().iter().filter(|counters| wanted(set, counters.set_name())) {
            let items: Map<String, Json> = counters.items().iter().filter_map(&each).collect();
            out.insert(counters.set_name().to_string(), Json::Object(items));
        }
        Json::Object(out)
    }

    /// `perf reset`: a set by its name, or `all`. False if there is no such set.
    pub fn reset(&self, set: &str) -> bool {
        let sets = self.sets();
        let mut found = set == "all";
        for counters in sets.iter().filter(|counters| set == "all" || counters.set_name() == set) {
            counters.items().iter().for_each(|item| item.value.reset());
            found = true;
        }
        found
    }
}

fn wanted(filter: &str, name: &str) -> bool {
    filter.is_empty() || filter == name
}

fn schema(item: &Item<'_>, kind: Kind) -> Json {
    json!({
        "type": kind.number,
        "metric_type": kind.metric,
        "value_type": kind.value,
        "description": item.description,
        "nick": "",
        "priority": 5,
        "units": kind.unit,
    })
}
