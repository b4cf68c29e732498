//! Records in the meta namespace: one object each, changed by compare-and-set.

use crate::secrets::unreadable;
use crate::store::Pools;
use nacre_base::{Name, errno};
use nacre_rados::{Compare, Failure, Pool};
use nacre_wire::{Decode, Encode, from_slice, to_vec};

/// Pairs that are read at once.
const PAGE: u64 = 1000;

/// A record, and the version at which it was read.
pub struct Versioned<T> {
    pub record: T,
    version: u64,
}

/// A record; none if there is none.
pub async fn read<T: Decode>(pools: &Pools, name: &str) -> Result<Option<Versioned<T>>, Failure> {
    let reply = match pools.meta.run(pools.meta.object(name).read(0, 0)).await {
        Err(failure) if failure.is_not_found() => return Ok(None),
        reply => reply?,
    };
    let output = reply.ops.first().ok_or_else(|| unreadable("a reply without its data"))?;
    let record = from_slice(&output.data).map_err(unreadable)?;
    Ok(Some(Versioned { record, version: reply.user_version }))
}

/// Makes a record; false if there is one.
pub async fn create<T: Encode>(pools: &Pools, name: &str, record: &T) -> Result<bool, Failure> {
    let make = pools.meta.object(name).create(true).write_full(to_vec(record));
    match pools.meta.run(make).await {
        Err(failure) if failure.errno == errno::EEXIST => Ok(false),
        result => result.map(|_| true),
    }
}

/// Changes a record by a function, which runs again if the record was changed meanwhile; none if there is no
/// record.
pub async fn update<T: Decode + Encode + Clone + PartialEq, R, E: From<Failure>>(
    pools: &Pools,
    name: &str,
    mut change: impl FnMut(&mut T) -> Result<R, E>,
) -> Result<Option<(T, R)>, E> {
    loop {
        let Some(Versioned { mut record, version }) = read::<T>(pools, name).await? else { return Ok(None) };
        let before = record.clone();
        let output = change(&mut record)?;
        if record == before {
            return Ok(Some((record, output)));
        }
        let write = pools.meta.object(name).assert_version(version).write_full(to_vec(&record));
        match pools.meta.run(write).await {
            Ok(_) => return Ok(Some((record, output))),
            Err(failure) if is_changed(&failure) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// Removes a record if it still is as it was read; false if it was changed.
pub async fn remove<T>(pools: &Pools, name: &str, seen: &Versioned<T>) -> Result<bool, Failure> {
    match pools.meta.run(pools.meta.object(name).assert_version(seen.version).remove()).await {
        Err(failure) if failure.is_not_found() => Ok(true),
        Err(failure) if is_changed(&failure) => Ok(false),
        result => result.map(|_| true),
    }
}

/// Whether a write was refused since the record is another one than was read.
fn is_changed(failure: &Failure) -> bool {
    failure.errno == errno::ERANGE || failure.errno == errno::EOVERFLOW || failure.is_not_found()
}

/// All names of records with a prefix, without it, in order.
pub async fn names(pools: &Pools, prefix: &str) -> Result<Vec<String>, Failure> {
    let (mut found, mut names) = (Vec::new(), pools.meta.objects());
    while let Some(entry) = names.next().await? {
        found.extend(entry.name.to_string().strip_prefix(prefix).map(str::to_owned));
    }
    found.sort_unstable();
    Ok(found)
}

/// The names in a list, in order. A list has what belongs to an owner: a name is put into it before its
/// record is made, and taken out after the record is gone, so that no record is missing in it.
pub async fn listed(pools: &Pools, list: &str) -> Result<Vec<String>, Failure> {
    Ok(pairs(&pools.meta, list, "").await?.into_iter().map(|(name, _)| name).collect())
}

/// Makes a record whose name is in a list; false if there is one.
pub async fn create_listed<T: Encode>(
    pools: &Pools,
    list: &str,
    name: &str,
    record_name: &str,
    record: &T,
) -> Result<bool, Failure> {
    let put = pools.meta.object(list).omap_set([(Name::from(name), bytes::Bytes::new())]);
    pools.meta.run(put).await?;
    create(pools, record_name, record).await
}

/// Takes a name out of a list, whose record is gone.
pub async fn unlist(pools: &Pools, list: &str, name: &str) -> Result<(), Failure> {
    let take = pools.meta.object(list).omap_remove([Name::from(name)]);
    match pools.meta.run(take).await {
        Err(failure) if !failure.is_not_found() => Err(failure),
        _ => Ok(()),
    }
}

/// The pairs of a record's omap whose names have a prefix, without it, in order.
pub async fn pairs(pool: &Pool, name: &str, prefix: &str) -> Result<Vec<(String, String)>, Failure> {
    let (mut found, mut after) = (Vec::new(), Name::from(prefix));
    loop {
        let (page, more) = match pool.omap(name, after.clone(), PAGE).await {
            Err(failure) if failure.is_not_found() => return Ok(found),
            page => page?,
        };
        if let Some(last) = page.keys().next_back() {
            after = last.clone();
        }
        for (name, value) in page {
            let name = name.to_string();
            let Some(name) = name.strip_prefix(prefix) else { return Ok(found) };
            found.push((name.to_owned(), String::from_utf8(value.to_vec()).map_err(unreadable)?));
        }
        if !more {
            return Ok(found);
        }
    }
}

/// The value of a name in a record's omap.
pub async fn pair(pool: &Pool, name: &str, key: &str) -> Result<Option<String>, Failure> {
    let request = pool.object(name).omap_get_keys([Name::from(key)].into());
    let reply = match pool.run(request).await {
        Err(failure) if failure.is_not_found() => return Ok(None),
        reply => reply?,
    };
    let output = reply.ops.first().ok_or_else(|| unreadable("a reply without its data"))?;
    let found: std::collections::BTreeMap<Name, bytes::Bytes> =
        from_slice(&output.data).map_err(unreadable)?;
    let value = found.into_values().next();
    value.map(|value| String::from_utf8(value.to_vec()).map_err(unreadable)).transpose()
}

/// Gives a name in a record's omap another value, or none; false if the present one is not the expected one,
/// or there is no such record.
pub async fn set_pair(
    pool: &Pool,
    name: &str,
    key: &str,
    expected: Option<&str>,
    value: Option<&str>,
) -> Result<bool, Failure> {
    // What is not there is compared as if it were empty.
    let expected = expected.unwrap_or_default().to_owned();
    let same = pool.object(name).assert_exists().omap_compare(Name::from(key), Compare::Equal, expected);
    let request = match value {
        Some(value) => same.omap_set([(Name::from(key), value.to_owned().into())]),
        None => same.omap_remove([Name::from(key)]),
    };
    match pool.run(request).await {
        Err(failure) if failure.errno == errno::ECANCELED || failure.is_not_found() => Ok(false),
        result => result.map(|_| true),
    }
}
