//! Snapshots of pools: those that have names in the map, and ids for those that clients manage
//! themselves. A pool has the one kind or the other.

use super::{Answer, Call, Outcome, Row, refuse};
use crate::pending_txn::PendingTxn;
use crate::state::State;
use nacre_base::{IntervalSet, Name, PoolId, SnapId, Utime, errno};
use nacre_proto::maps::{Pool, PoolSnap, pool_flags};
use nacre_proto::messages::{PoolOp, RemoveSnaps};
use std::collections::BTreeMap;

pub const COMMANDS: &[Row] = &[
    ("osd pool mksnap", "create a snapshot of a pool", mksnap),
    ("osd pool rmsnap", "remove a snapshot of a pool", rmsnap),
];

fn find(pool: &Pool, name: &Name) -> Option<SnapId> {
    pool.snaps.values().find(|snap| snap.name == *name).map(|snap| snap.id)
}

/// The pool with which a command is about, none of whose snapshots clients manage.
fn pool_of(call: &Call<'_>) -> Result<(PoolId, String, String), super::Refusal> {
    let (pool, snap) = (call.args.text("pool")?, call.args.text("snap")?);
    let id = call.args.pool("pool", call.pending.map())?;
    if call.pending.map().pools[&id].has(pool_flags::SELFMANAGED_SNAPS) {
        return Err(refuse(errno::EINVAL, format!("pool {pool} is in unmanaged snaps mode")));
    }
    Ok((id, pool, snap))
}

fn mksnap(call: &mut Call<'_>) -> Outcome {
    let (id, pool, snap) = pool_of(call)?;
    if find(&call.pending.map().pools[&id], &snap.as_str().into()).is_some() {
        return Answer::said(format!("pool {pool} snap {snap} already exists"));
    }
    create_named(call.pending, id, snap.as_str().into(), call.now.wall);
    Answer::said(format!("created pool {pool} snap {snap}"))
}

fn rmsnap(call: &mut Call<'_>) -> Outcome {
    let (id, pool, snap) = pool_of(call)?;
    match find(&call.pending.map().pools[&id], &snap.as_str().into()) {
        None => Answer::said(format!("pool {pool} snap {snap} does not exist")),
        Some(found) => {
            remove_named(call.pending, id, found);
            Answer::said(format!("removed pool {pool} snap {snap}"))
        }
    }
}

fn create_named(pending: &mut PendingTxn, id: PoolId, name: Name, now: Utime) {
    let epoch = pending.committed_map().epoch.next();
    pending.edit_pool(id, |pool| {
        let snap = SnapId(pool.snap_seq.0 + 1);
        pool.flags |= pool_flags::POOL_SNAPS;
        pool.snap_seq = snap;
        pool.snap_epoch = epoch;
        pool.snaps.insert(snap, PoolSnap { id: snap, stamp: now, name });
    });
}

fn remove_named(pending: &mut PendingTxn, id: PoolId, snap: SnapId) {
    pending.edit_pool(id, |pool| drop(pool.snaps.remove(&snap)));
    remove(pending, id, &(snap.0..snap.0 + 1).into());
}

/// These are to be trimmed. That takes a number: OSDs see by it that the context of writes is another one.
pub fn remove(pending: &mut PendingTxn, id: PoolId, snaps: &IntervalSet) {
    let epoch = pending.committed_map().epoch.next();
    let mut number = SnapId::default();
    pending.edit_pool(id, |pool| {
        number = SnapId(pool.snap_seq.0 + 1);
        (pool.snap_seq, pool.snap_epoch) = (number, epoch);
    });
    pending.batch.osdmap.removal_numbers.push((id, number));
    pending.edit(|inc| inc.new_removed_snaps.entry(id).or_default().add(snaps));
}

/// Snapshots of a file system, whose metadata server numbers them itself. So their removal takes no number.
pub fn remove_of_file_system(message: &RemoveSnaps, state: &State, pending: &mut PendingTxn) {
    let epoch = pending.committed_map().epoch.next();
    for (id, snaps) in &message.snaps {
        let id = PoolId((*id).into());
        let Some(pool) = pending.map().pool(id) else { continue };
        // A pool has the one kind of snapshots or the other.
        if pool.has(pool_flags::POOL_SNAPS) {
            continue;
        }
        let gone = |snap: u64| {
            let has =
                |all: &BTreeMap<PoolId, IntervalSet>| all.get(&id).is_some_and(|set| set.contains(snap));
            has(&pending.map().removed_snaps_queue) || has(&state.osdmap.purged_snaps)
        };
        let snaps: Vec<u64> = snaps.iter().map(|snap| snap.0).filter(|snap| !gone(*snap)).collect();
        let Some(last) = snaps.iter().max().copied().filter(|last| *last < SnapId::HEAD.0) else {
            continue;
        };
        pending.edit_pool(id, |pool| {
            pool.flags |= pool_flags::SELFMANAGED_SNAPS;
            (pool.snap_seq, pool.snap_epoch) = (SnapId(pool.snap_seq.0.max(last)), epoch);
        });
        let snaps: IntervalSet = snaps.into_iter().map(|snap| snap..snap + 1).collect();
        pending.edit(|inc| inc.new_removed_snaps.entry(id).or_default().add(&snaps));
    }
}

// ---- what librados asks for by a message of its own; errors are errnos ----

/// The pool, if it has no snapshots of the other kind.
fn pool_without(op: &PoolOp, pending: &PendingTxn, other: u64) -> Result<PoolId, i32> {
    let id = PoolId(op.pool.into());
    let pool = pending.map().pool(id).ok_or(errno::ENOENT)?;
    if pool.has(other) { Err(errno::EINVAL) } else { Ok(id) }
}

pub fn create(op: &PoolOp, pending: &mut PendingTxn, now: Utime) -> Result<(), i32> {
    let id = pool_without(op, pending, pool_flags::SELFMANAGED_SNAPS)?;
    let name = Name::new(op.name.clone().into_bytes());
    if find(&pending.map().pools[&id], &name).is_none() {
        create_named(pending, id, name, now);
    }
    Ok(())
}

pub fn delete(op: &PoolOp, pending: &mut PendingTxn) -> Result<(), i32> {
    let id = pool_without(op, pending, pool_flags::SELFMANAGED_SNAPS)?;
    if let Some(snap) = find(&pending.map().pools[&id], &Name::new(op.name.clone().into_bytes())) {
        remove_named(pending, id, snap);
    }
    Ok(())
}

/// The next id for a snapshot whose context clients keep themselves.
pub fn create_unmanaged(op: &PoolOp, pending: &mut PendingTxn) -> Result<SnapId, i32> {
    let id = pool_without(op, pending, pool_flags::POOL_SNAPS)?;
    let snap = SnapId(pending.map().pools[&id].snap_seq.0.max(1) + 1);
    let epoch = pending.committed_map().epoch.next();
    pending.edit_pool(id, |pool| {
        pool.flags |= pool_flags::SELFMANAGED_SNAPS;
        pool.snap_seq = snap;
        pool.snap_epoch = epoch;
    });
    Ok(snap)
}

pub fn delete_unmanaged(op: &PoolOp, state: &State, pending: &mut PendingTxn) -> Result<(), i32> {
    let id = pool_without(op, pending, pool_flags::POOL_SNAPS)?;
    // A repeated request finds its work done, or under way.
    let has = |all: &BTreeMap<PoolId, IntervalSet>| all.get(&id).is_some_and(|set| set.contains(op.snap.0));
    if has(&pending.map().removed_snaps_queue) || has(&state.osdmap.purged_snaps) {
        return Ok(());
    }
    if op.snap > pending.map().pools[&id].snap_seq {
        return Err(errno::ENOENT);
    }
    remove(pending, id, &(op.snap.0..op.snap.0 + 1).into());
    Ok(())
}
