//! Storage classes: their names, as clients give them, and the pools that have their data.
//!
//! The omap of the object `classes` in the meta namespace has them, by their numbers. `s3.data` is the pool
//! of STANDARD, which has no number there.

use crate::errors;
use crate::service::Core;
use crate::store::{DATA_POOL, INDEX_POOL, Pools, Store};
use bytes::Bytes;
use nacre_base::{Name, errno};
use nacre_rados::{Failure, Pool};
use nacre_s3::{CLASSES_MAX, STANDARD, StorageClass, Tag, omap_page};
use nacre_wire::{from_slice, to_vec};
use s3s::{S3Result, s3_error};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CLASSES: &str = "classes";
/// How long what was read is used.
const FRESH: Duration = Duration::from_secs(30);
/// The shortest time between two reads for the sake of a name or a number that is not known.
const UNKNOWN_FRESH: Duration = Duration::from_secs(1);

/// A class with its pool; none if the pool is gone.
#[derive(Clone)]
struct Class {
    record: StorageClass,
    pool: Option<Pool>,
}

type Table = Arc<BTreeMap<u16, Class>>;

/// What is known of the classes.
#[derive(Default)]
pub struct Classes {
    read: Mutex<Option<(Table, Instant)>>,
}

/// The class that an object gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Empty for STANDARD.
    pub name: String,
    pub number: u16,
}

fn key(number: u16) -> Name {
    Name::from(format!("{number:05}"))
}

/// The records, and the version of the object that has them; none if there is none yet.
async fn read(pools: &Pools) -> Result<Option<(BTreeMap<u16, StorageClass>, u64)>, Failure> {
    let request = pools.meta.object(CLASSES).omap_get(Name::default(), CLASSES_MAX as u64 + 1);
    let reply = match pools.meta.run(request).await {
        Err(failure) if failure.is_not_found() => return Ok(None),
        reply => reply?,
    };
    let bad = |why: String| Failure::new(errno::EIO, format!("storage classes cannot be read: {why}"));
    let output = reply.ops.first().map(|op| op.data.clone()).unwrap_or_default();
    let (page, _) = omap_page(&output).map_err(|e| bad(e.to_string()))?;
    let mut records = BTreeMap::new();
    for (name, value) in page {
        let number = name.to_string().parse().map_err(|_| bad(format!("{name} is no number")))?;
        records.insert(number, from_slice(&value).map_err(|e| bad(e.to_string()))?);
    }
    Ok(Some((records, reply.user_version)))
}

impl Store {
    /// The classes, not older than this.
    async fn classes_since(&self, pools: &Pools, fresh: Duration) -> Result<Table, Failure> {
        let known = self.classes.read.lock().expect("no code panics with it").clone();
        if let Some((table, _)) = known.filter(|(_, asked)| asked.elapsed() < fresh) {
            return Ok(table);
        }
        let asked = Instant::now();
        let mut table = BTreeMap::new();
        for (number, record) in read(pools).await?.map(|(records, _)| records).unwrap_or_default() {
            let pool = match self.client().pool(&record.pool).await {
                Err(failure) if failure.is_not_found() => None,
                pool => Some(pool?),
            };
            table.insert(number, Class { record, pool });
        }
        let table = Arc::new(table);
        *self.classes.read.lock().expect("no code panics with it") = Some((table.clone(), asked));
        Ok(table)
    }

    /// The number of a class by its name, which is empty for STANDARD; none if there is none. `also_retired`:
    /// one that no new object gets is found as well.
    pub async fn class_number(&self, name: &str, also_retired: bool) -> Result<Option<u16>, Failure> {
        if name.is_empty() {
            return Ok(Some(0));
        }
        let Some(pools) = self.find_pools().await? else { return Ok(None) };
        for fresh in [FRESH, UNKNOWN_FRESH] {
            let table = self.classes_since(pools, fresh).await?;
            let is_it =
                |class: &Class| class.record.name == name && (also_retired || !class.record.is_retired);
            if let Some((number, _)) = table.iter().find(|(_, class)| is_it(class)) {
                return Ok(Some(*number));
            }
        }
        Ok(None)
    }

    /// The pool that has the data of a write. `ENOENT`: it was removed.
    pub async fn data_pool(&self, tag: Tag) -> Result<Pool, Failure> {
        let missing = |why: String| Failure::new(errno::ENOENT, why);
        let pools = self.find_pools().await?.ok_or_else(|| missing("the pools are gone".into()))?;
        let number = tag.class();
        if number == 0 {
            return Ok(pools.data.clone());
        }
        for fresh in [FRESH, UNKNOWN_FRESH] {
            if let Some(class) = self.classes_since(pools, fresh).await?.get(&number) {
                let Class { record: StorageClass { name, pool, .. }, .. } = class;
                let gone = || missing(format!("pool {pool} of the storage class {name} is gone"));
                return class.pool.clone().ok_or_else(gone);
            }
        }
        Err(Failure::new(errno::EIO, format!("there is no storage class with the number {number}")))
    }

    /// All pools with data.
    pub async fn data_pools(&self, pools: &Pools) -> Result<Vec<Pool>, Failure> {
        let table = self.classes_since(pools, Duration::ZERO).await?;
        let mut all = vec![pools.data.clone()];
        for pool in table.values().filter_map(|class| class.pool.clone()) {
            if all.iter().all(|known| known.id() != pool.id()) {
                all.push(pool);
            }
        }
        Ok(all)
    }

    /// All classes by their names, with their pools and whether they are retired; STANDARD first.
    pub async fn list_classes(&self) -> Result<Vec<StorageClass>, Failure> {
        let standard = StorageClass { name: STANDARD.into(), pool: DATA_POOL.into(), is_retired: false };
        let Some(pools) = self.find_pools().await? else { return Ok(vec![standard]) };
        let records = read(pools).await?.map(|(records, _)| records).unwrap_or_default();
        Ok(std::iter::once(standard).chain(records.into_values()).collect())
    }

    /// Makes a class, or takes one back that was retired; the fault if that cannot be.
    pub async fn add_class(&self, name: &str, pool: &str) -> Result<Result<(), String>, Failure> {
        if pool == INDEX_POOL {
            return Ok(Err(format!("{INDEX_POOL} is the pool of indexes")));
        }
        match self.client().pool(pool).await {
            Err(failure) if failure.is_not_found() => return Ok(Err(format!("there is no pool {pool}"))),
            found => drop(found?),
        }
        let enable = json!({ "prefix": "osd pool application enable", "pool": pool, "app": "s3" });
        self.client().mon_command(enable.to_string(), "").await?;
        self.change_classes(|records| {
            if let Some((number, found)) = records.iter().find(|(_, class)| class.name == name) {
                return match found.pool == pool {
                    true => Ok((*number, StorageClass { is_retired: false, ..found.clone() })),
                    false => Err(format!("the storage class {name} has its data in pool {}", found.pool)),
                };
            }
            if records.len() >= CLASSES_MAX {
                return Err(format!("there are {CLASSES_MAX} storage classes already"));
            }
            let number = records.keys().next_back().map_or(1, |last| last + 1);
            Ok((number, StorageClass { name: name.into(), pool: pool.into(), is_retired: false }))
        })
        .await
    }

    /// No new object gets a class any more.
    pub async fn retire_class(&self, name: &str) -> Result<Result<(), String>, Failure> {
        self.change_classes(|records| {
            let found = records.iter().find(|(_, class)| class.name == name);
            let (number, found) = found.ok_or_else(|| format!("there is no storage class {name}"))?;
            Ok((*number, StorageClass { is_retired: true, ..found.clone() }))
        })
        .await
    }

    /// Writes one record that is decided on all, and again if others have written meanwhile.
    async fn change_classes(
        &self,
        decide: impl Fn(&BTreeMap<u16, StorageClass>) -> Result<(u16, StorageClass), String>,
    ) -> Result<Result<(), String>, Failure> {
        let pools = self.pools().await?;
        loop {
            let before = read(pools).await?;
            let object = pools.meta.object(CLASSES);
            let (records, object) = match before {
                Some((records, version)) => (records, object.assert_version(version)),
                None => (BTreeMap::new(), object.create(true)),
            };
            let (number, record) = match decide(&records) {
                Ok(decided) => decided,
                Err(fault) => return Ok(Err(fault)),
            };
            let pair = (key(number), Bytes::from(to_vec(&record)));
            match pools.meta.run(object.omap_set([pair])).await {
                Err(failure) if [errno::EEXIST, errno::ERANGE, errno::EOVERFLOW].contains(&failure.errno) => {
                }
                result => return result.map(|_| Ok(())),
            }
        }
    }
}

impl Core {
    /// The class of an object or an upload that is there already, also if it is retired.
    pub async fn kept_class(&self, name: &str) -> S3Result<Chosen> {
        let number =
            self.store.class_number(name, true).await.map_err(|failure| errors::of_failure(&failure))?;
        // Before there were classes, any name was taken, and meant nothing.
        Ok(Chosen { name: name.to_owned(), number: number.unwrap_or_default() })
    }

    /// The class that a request asks for, or STANDARD.
    pub async fn class_of(&self, asked: Option<&str>) -> S3Result<Chosen> {
        let name = asked.filter(|name| *name != STANDARD).unwrap_or_default();
        let number = self.store.class_number(name, false).await;
        match number.map_err(|failure| errors::of_failure(&failure))? {
            Some(number) => Ok(Chosen { name: name.to_owned(), number }),
            None => {
                Err(s3_error!(InvalidStorageClass, "The storage class you specified is not valid: {name}"))
            }
        }
    }
}
