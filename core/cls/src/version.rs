//! A version that clients keep on an object, to notice each other's changes. Ceph: `cls_version`.

use crate::context::stored;
use crate::record::record;
use crate::{Class, Context, Reply, Stop, fail, input, ok, output, r, rw};
use nacre_base::Name;
use nacre_base::errno::{ECANCELED, ENODATA, ENOENT};
use nacre_wire::{Decode, to_vec};

pub const CLASS: Class = Class {
    name: "version",
    methods: &[
        rw("set", set),
        rw("inc", increment),
        rw("inc_conds", increment),
        r("read", read),
        r("check_conds", check),
    ],
};

const ATTR: &str = "ceph.objclass.version";
const TAG_LEN: usize = 24;

record!(ObjectVersion, "obj_version", 1, {
    number: u64,
    /// Chosen at random when an object gets its first version.
    tag: Name,
});
record!(Condition, "obj_version_cond", 1, { version: ObjectVersion, relation: u32 });
record!(SetRequest, "cls_version_set_op", 1, { version: ObjectVersion });
record!(ConditionalRequest, "cls_version_inc_op", 1, {
    version: ObjectVersion, conditions: Vec<Condition>,
});
record!(ReadReply, "cls_version_read_ret", 1, { version: ObjectVersion });

impl Condition {
    fn holds(&self, have: &ObjectVersion) -> bool {
        let given = &self.version;
        match self.relation {
            1 => have == given,
            2 => have.number > given.number,
            3 => have.number >= given.number,
            4 => have.number < given.number,
            5 => have.number <= given.number,
            6 => have.tag == given.tag,
            7 => have.tag != given.tag,
            _ => true,
        }
    }
}

fn load(ctx: &mut Context<'_>) -> Result<Option<ObjectVersion>, Stop> {
    match ctx.attr(&Name::from(ATTR)) {
        Ok(bytes) => stored(&bytes).map(Some),
        Err(Stop::Failed(ENOENT | ENODATA)) => Ok(None),
        Err(stop) => Err(stop),
    }
}

fn none() -> ObjectVersion {
    ObjectVersion { number: 0, tag: Name::default() }
}

fn save(ctx: &mut Context<'_>, version: &ObjectVersion) -> Reply {
    ctx.set_attr(&Name::from(ATTR), to_vec(version))?;
    ok()
}

fn set(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, SetRequest::decode)?;
    save(ctx, &request.version)
}

fn increment(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ConditionalRequest::decode)?;
    let mut version = match load(ctx)? {
        Some(version) => version,
        None => ObjectVersion { number: 1, tag: ctx.random_text(TAG_LEN) },
    };
    if !request.conditions.iter().all(|condition| condition.holds(&version)) {
        return fail(ECANCELED);
    }
    version.number = version.number.wrapping_add(1);
    save(ctx, &version)
}

fn read(ctx: &mut Context<'_>, _: &[u8]) -> Reply {
    let version = load(ctx)?.unwrap_or_else(none);
    output(&ReadReply { version })
}

fn check(ctx: &mut Context<'_>, bytes: &[u8]) -> Reply {
    let request = input(bytes, ConditionalRequest::decode)?;
    let version = load(ctx)?.unwrap_or_else(none);
    if !request.conditions.iter().all(|condition| condition.holds(&version)) {
        return fail(ECANCELED);
    }
    ok()
}
