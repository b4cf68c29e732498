//! A lease: what one gateway at a time does.

use crate::store::{Pools, Store, now};
use anyhow::Result;
use nacre_base::{Name, errno};
use nacre_rados::Compare;
use nacre_wire::{from_slice, to_vec};
use std::time::Duration;

/// The attribute with the gateway's number and the end of the lease.
const HOLDER: &str = "holder";
/// A gateway that ends is followed by another one after this time.
const LEASE_TIME: Duration = Duration::from_secs(60);

/// Takes the lease that an object of the meta namespace has, or keeps it. No: another gateway has it.
pub async fn hold(store: &Store, pools: &Pools, name: &str) -> Result<bool> {
    let before = match pools.meta.xattrs(name).await {
        Err(failure) if failure.is_not_found() => None,
        xattrs => xattrs?.get(&Name::from(HOLDER)).cloned(),
    };
    if let Some(value) = &before {
        // One that cannot be read counts as none.
        let (holder, until) = from_slice::<(u64, u64)>(value).unwrap_or_default();
        if holder != store.instance && until > now() {
            return Ok(false);
        }
    }
    let until = now() + u64::try_from(LEASE_TIME.as_millis()).unwrap_or(u64::MAX);
    let lease = to_vec(&(store.instance, until));
    let object = pools.meta.object(name);
    let request = match before {
        None => object.create(true),
        Some(before) => object.compare_xattr(HOLDER, Compare::Equal, before),
    };
    match pools.meta.run(request.set_xattr(HOLDER, lease)).await {
        Ok(_) => Ok(true),
        Err(failure) if [errno::EEXIST, errno::ECANCELED].contains(&failure.errno) => Ok(false),
        Err(failure) => Err(failure.into()),
    }
}
