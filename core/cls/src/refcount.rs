//! Objects that go with their last reference. Ceph: `cls_refcount`.

use crate::context::stored;
use crate::record::record;
use crate::{Class, Context, Reply, Stop, fail, input, ok, output, r, rw};
use nacre_base::Name;
use nacre_base::errno::{EINVAL, ENODATA};
use nacre_wire::{Decode, to_vec};
use std::collections::{BTreeMap, BTreeSet};

pub const CLASS: Class =
    Class { name: "refcount", methods: &[rw("get", get), rw("put", put), rw("set", set), r("read", read)] };

const ATTR: &str = "refcount";

record!(TagRequest, "cls_refcount_get_op", 1, {
    tag: Name,
    /// An object without a count has one reference, whose tag is empty.
    implicit: bool,
});
record!(SetRequest, "cls_refcount_set_op", 1, { refs: Vec<Name> });
record!(ReadRequest, "cls_refcount_read_op", 1, { implicit: bool });
record!(ReadReply, "cls_refcount_read_ret", 1, { refs: Vec<Name> });
record!(Count, "obj_refcount", 2, { refs: BTreeMap<Name, bool> } since 2 {
    /// Already removed tags: removing them again, as a client without a reply does, changes nothing.
    retired: BTreeSet<Name>,
});

fn load(ctx: &mut Context<'_>, implicit: bool) -> Result<Count, Stop> {
    match ctx.attr(&Name::from(ATTR)) {
        Ok(bytes) => stored(&bytes),
        Err(Stop::Failed(ENODATA)) => {
            let refs = implicit.then(|| (Name::default(), true)).into_iter().collect();
            Ok(Count { refs, retired: BTreeSet::new() })
        }
        Err(stop) => Err(stop),
    }
}

fn get(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, TagRequest::decode)?;
    let mut count = load(ctx, request.implicit)?;
    count.refs.insert(request.tag, true);
    ctx.set_attr(&Name::from(ATTR), to_vec(&count))?;
    ok()
}

fn put(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let TagRequest { tag, implicit } = input(bytes, TagRequest::decode)?;
    let mut count = load(ctx, implicit)?;
    if count.refs.is_empty() {
        return fail(EINVAL);
    }
    if count.retired.contains(&tag) {
        return ok();
    }
    let found =
        count.refs.remove(&tag).is_some() || (implicit && count.refs.remove(&Name::default()).is_some());
    if !found {
        return ok();
    }
    count.retired.insert(tag);
    if count.refs.is_empty() {
        ctx.remove()?;
    } else {
        ctx.set_attr(&Name::from(ATTR), to_vec(&count))?;
    }
    ok()
}

fn set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, SetRequest::decode)?;
    if request.refs.is_empty() {
        ctx.remove()?;
        return ok();
    }
    let refs = request.refs.into_iter().map(|tag| (tag, true)).collect();
    ctx.set_attr(&Name::from(ATTR), to_vec(&Count { refs, retired: BTreeSet::new() }))?;
    ok()
}

fn read(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ReadRequest::decode)?;
    let count = load(ctx, request.implicit)?;
    output(&ReadReply { refs: count.refs.into_keys().collect() })
}
