//! Advisory locks on objects, as librbd and librados take them. Ceph: `cls_lock`.
//!
//! A lock `x` is the attribute `lock.x`: its holders, mode and tag. A holder is a
//! client with a cookie of its own choice.

use crate::context::stored;
use crate::record::record;
use crate::{Class, Context, Reply, Stop, fail, input, ok, output, r, rw};
use nacre_base::errno::{EBUSY, EEXIST, EINVAL, ENODATA, ENOENT};
use nacre_base::{Name, Utime};
use nacre_proto::types::{AddrKind, EntityAddr, EntityName};
use nacre_wire::Decode;
use std::collections::BTreeMap;

pub const CLASS: Class = Class {
    name: "lock",
    methods: &[
        rw("lock", lock),
        rw("unlock", unlock),
        rw("break_lock", break_lock),
        r("get_info", get_info),
        r("list_locks", list_locks),
        r("assert_locked", assert_locked),
        rw("set_cookie", set_cookie),
    ],
};

const PREFIX: &str = "lock.";

const EXCLUSIVE: u8 = 1;
const SHARED: u8 = 2;
/// Exclusive, and unlocking removes the object.
const EXCLUSIVE_EPHEMERAL: u8 = 3;

const MAY_RENEW: u8 = 1;
const MUST_RENEW: u8 = 2;

record!(LockRequest, "cls_lock_lock_op", 1, {
    name: Name, kind: u8, cookie: Name, tag: Name, description: Name,
    /// Zero: forever.
    duration: Utime,
    flags: u8,
});
record!(UnlockRequest, "cls_lock_unlock_op", 1, { name: Name, cookie: Name });
record!(BreakRequest, "cls_lock_break_op", 1, { name: Name, locker: EntityName, cookie: Name });
record!(InfoRequest, "cls_lock_get_info_op", 1, { name: Name });
record!(AssertRequest, "cls_lock_assert_op", 1, { name: Name, kind: u8, cookie: Name, tag: Name });
record!(CookieRequest, "cls_lock_set_cookie_op", 1, {
    name: Name, kind: u8, cookie: Name, tag: Name, new_cookie: Name,
});
record!(Locks, "cls_lock_list_locks_reply", 1, { names: Vec<Name> });

record!(Holder, "locker_id_t", 1, { name: EntityName, cookie: Name });
record!(Hold, "locker_info_t", 1, {
    /// Zero: never.
    expires: Utime,
    addr: EntityAddr,
    description: Name,
});
record!(
    /// What the attribute holds, and what `get_info` answers.
    Lock, "lock_info_t", 1, { holders: BTreeMap<Holder, Hold>, kind: u8, tag: Name }
);

fn is_exclusive(kind: u8) -> bool {
    matches!(kind, EXCLUSIVE | EXCLUSIVE_EPHEMERAL)
}

fn attr_name(name: &Name) -> Name {
    crate::context::key(PREFIX, name)
}

/// The lock without holders whose time is over; ENOENT if the object does not exist.
fn load(ctx: &mut Context<'_>, name: &Name) -> Result<Lock, Stop> {
    let mut lock = match ctx.attr(&attr_name(name)) {
        Ok(bytes) => stored::<Lock>(&bytes)?,
        Err(Stop::Failed(ENODATA)) => Lock { holders: BTreeMap::new(), kind: 0, tag: Name::default() },
        Err(stop) => return Err(stop),
    };
    let now = ctx.now();
    lock.holders.retain(|_, hold| hold.expires == Utime::ZERO || hold.expires >= now);
    Ok(lock)
}

fn save(ctx: &mut Context<'_>, name: &Name, lock: &Lock) -> Result<(), Stop> {
    ctx.set_attr(&attr_name(name), nacre_wire::to_vec(lock))
}

fn caller_with(ctx: &Context<'_>, cookie: Name) -> Holder {
    Holder { name: ctx.caller.name, cookie }
}

fn check(name: &Name, kind: u8) -> Result<(), Stop> {
    if name.is_empty() || !matches!(kind, EXCLUSIVE | SHARED | EXCLUSIVE_EPHEMERAL) {
        return fail(EINVAL);
    }
    Ok(())
}

fn lock(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, LockRequest::decode)?;
    check(&request.name, request.kind)?;
    let may_renew = request.flags & MAY_RENEW != 0;
    let must_renew = request.flags & MUST_RENEW != 0;
    if may_renew && must_renew {
        return fail(EINVAL); // they disagree about a lock that is not held
    }
    let mut lock = match load(ctx, &request.name) {
        Err(Stop::Failed(ENOENT)) => Lock { holders: BTreeMap::new(), kind: 0, tag: Name::default() },
        loaded => loaded?,
    };
    if !lock.holders.is_empty() && lock.tag != request.tag {
        return fail(EBUSY);
    }
    let holder = caller_with(ctx, request.cookie);
    if lock.holders.remove(&holder).is_some() {
        if !may_renew && !must_renew {
            return fail(EEXIST);
        }
    } else if must_renew {
        return fail(ENOENT);
    }
    if !lock.holders.is_empty() && (is_exclusive(request.kind) || lock.kind != request.kind) {
        return fail(EBUSY);
    }
    let expires = match request.duration {
        Utime::ZERO => Utime::ZERO,
        duration => after(ctx.now(), duration),
    };
    // The same client may speak either protocol; the address that it is known by has no kind of
    // its own, and old clients must be able to read it.
    let mut addr = ctx.caller.addr;
    if addr.kind == AddrKind::Msgr2 {
        addr.kind = AddrKind::Legacy;
    }
    lock.holders.insert(holder, Hold { expires, addr, description: request.description });
    lock.kind = request.kind;
    lock.tag = request.tag;
    save(ctx, &request.name, &lock)?;
    ok()
}

fn after(time: Utime, duration: Utime) -> Utime {
    let nsec = u64::from(time.nsec) + u64::from(duration.nsec);
    let sec = u64::from(time.sec) + u64::from(duration.sec) + nsec / 1_000_000_000;
    Utime { sec: sec.min(u32::MAX.into()) as u32, nsec: (nsec % 1_000_000_000) as u32 }
}

fn release(ctx: &mut Context<'_>, name: &Name, holder: &Holder) -> Reply {
    let mut lock = load(ctx, name)?;
    if lock.holders.remove(holder).is_none() {
        return fail(ENOENT);
    }
    if lock.kind == EXCLUSIVE_EPHEMERAL {
        ctx.remove()?;
    } else {
        save(ctx, name, &lock)?;
    }
    ok()
}

fn unlock(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, UnlockRequest::decode)?;
    let holder = caller_with(ctx, request.cookie);
    release(ctx, &request.name, &holder)
}

fn break_lock(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, BreakRequest::decode)?;
    release(ctx, &request.name, &Holder { name: request.locker, cookie: request.cookie })
}

fn get_info(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, InfoRequest::decode)?;
    output(&load(ctx, &request.name)?)
}

fn list_locks(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let attrs = ctx.attrs()?;
    let names = attrs.keys().filter_map(|name| name.as_bytes().strip_prefix(PREFIX.as_bytes()));
    output(&Locks { names: names.map(Name::copy_from).collect() })
}

/// The lock, if the caller holds it just so; EBUSY otherwise.
fn held(ctx: &mut Context<'_>, name: &Name, kind: u8, tag: &Name, holder: &Holder) -> Result<Lock, Stop> {
    check(name, kind)?;
    let lock = load(ctx, name)?;
    if lock.kind != kind || lock.tag != *tag || !lock.holders.contains_key(holder) {
        return fail(EBUSY);
    }
    Ok(lock)
}

fn assert_locked(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, AssertRequest::decode)?;
    let holder = caller_with(ctx, request.cookie);
    held(ctx, &request.name, request.kind, &request.tag, &holder)?;
    ok()
}

fn set_cookie(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, CookieRequest::decode)?;
    let old = caller_with(ctx, request.cookie);
    let new = caller_with(ctx, request.new_cookie);
    let mut lock = held(ctx, &request.name, request.kind, &request.tag, &old)?;
    if lock.holders.contains_key(&new) {
        return fail(EBUSY);
    }
    let hold = lock.holders.remove(&old).expect("it is held");
    lock.holders.insert(new, hold);
    save(ctx, &request.name, &lock)?;
    ok()
}
